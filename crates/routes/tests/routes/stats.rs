//! Stats: everything that is known, and what people call the sessions.

use std::task::Poll;

use routes::STATS;
use serde_json::{Value, json};

use crate::common::{Asked, Fake, error, get, json as body};

const ONE: &str = r#"{"limits":[{"provider":"p","model":"m","max":1}]}"#;

fn busy() -> Fake {
    let mut host = Fake::new(ONE);
    host.titles = vec![("a", "Fix the roof"), ("c", "unseen")];
    host.stream(Some("a"), "p", "m", 2_000);
    host.stream(Some("b"), "p", "m", 2_100);
    host.stream(Some("a"), "p", "other", 2_200);
    host.stream(None, "p", "m", 2_300);
    host
}

#[test]
fn who_runs_and_who_waits_is_told_with_what_people_call_them() {
    let host = busy();
    let stats = body(&host.respond(&get(STATS, "")));
    assert_eq!(*host.asked.borrow(), [Asked::Sessions(vec!["a".into(), "b".into()])], "each once");
    let holder = &stats["holders"][0];
    assert_eq!(
        (&holder["session"], &holder["label"], &holder["root"]),
        (&json!("a"), &json!("Fix the roof"), &json!("root"))
    );
    assert_eq!(holder.get("parent"), None, "what is not known is left out");
    let waiters = stats["waiters"].as_array().expect("a list");
    assert_eq!(waiters.len(), 2);
    assert_eq!((&waiters[0]["session"], waiters[0].get("label")), (&json!("b"), None));
    assert_eq!((&waiters[1]["session"], waiters[1].get("label")), (&Value::Null, None));
}

#[test]
fn everything_that_is_observed_is_there() {
    let stats = body(&busy().respond(&get(STATS, "")));
    for key in [
        "now",
        "entries",
        "scopes",
        "holders",
        "waiters",
        "entriesTotal",
        "scopesTotal",
        "holdersTotal",
        "waitersTotal",
        "truncated",
        "credits",
        "wait_ms",
        "waitMs",
        "totals",
        "host",
    ] {
        assert_eq!(stats.get(key).is_some(), key != "wait_ms", "{key}");
    }
    assert_eq!(stats["entries"][0], json!({ "provider": "p", "model": "m", "active": 1, "waiting": 2 }));
    let scope = &stats["scopes"][0];
    for key in [
        "scope",
        "configured",
        "max",
        "countBy",
        "occupancy",
        "credits",
        "keptFor",
        "waiting",
        "oldestWaitMs",
        "waitMs",
        "meanCallMs",
        "totals",
    ] {
        assert!(scope.get(key).is_some(), "{key}: {scope}");
    }
    assert_eq!(
        (&scope["scope"], &scope["max"], &scope["occupancy"], &scope["waiting"]),
        (&json!("p/m"), &json!(1), &json!(1), &json!(2))
    );
    assert_eq!(scope["oldestWaitMs"], 200, "as of the last instant");
    for key in [
        "since",
        "submitted",
        "live",
        "waiting",
        "spawned",
        "finished",
        "admitted",
        "waited",
        "sumWaitMs",
        "maxWaitMs",
        "refused",
        "cancelled",
    ] {
        assert!(stats["totals"].get(key).is_some(), "{key}");
    }
    assert_eq!(stats["waiters"][0]["blockedBy"], json!({ "scope": "p/m", "why": "full" }));
    assert_eq!(stats["host"], json!({ "state": "running" }));
}

#[test]
fn reading_changes_nothing() {
    let host = busy();
    let first = host.respond(&get(STATS, ""));
    assert_eq!(host.respond(&get(STATS, "")), first);
}

#[test]
fn nobody_is_asked_where_nobody_is_named() {
    let host = Fake::new(ONE);
    host.answers.set(false);
    host.stream(None, "p", "m", 2_000);
    assert!(host.poll(&get(STATS, ""), |_| ()).is_ready());
    host.stream(Some("a"), "p", "m", 2_000);
    assert!(host.poll(&get(STATS, ""), |_| ()).is_pending());
    assert!(host.poll(&get(STATS, "describe=false"), |_| ()).is_ready(), "or not wanted");
}

#[test]
fn the_numbers_are_of_one_look_however_long_the_names_take() {
    let host = busy();
    host.answers.set(false);
    let response = host.poll(&get(STATS, ""), |host| {
        for _ in 0..5 {
            host.stream(Some("late"), "p", "m", 9_000);
        }
        host.answers.set(true);
    });
    let Poll::Ready(response) = response else { panic!("no answer") };
    let stats = body(&response);
    assert_eq!((&stats["now"], &stats["waitersTotal"]), (&json!(2_300), &json!(2)));
}

#[test]
fn a_long_line_is_told_page_by_page() {
    let host = Fake::new(r#"{"limits":[{"provider":"p","model":"m","max":0}],"maxQueued":2000}"#);
    for n in 0..1_100 {
        host.stream(Some(&format!("s{n:04}")), "p", "m", 2_000);
    }
    let mut seen = Vec::new();
    for (offset, listed, truncated) in
        [(0, 500, true), (500, 500, true), (1_000, 100, false), (u32::MAX, 0, false)]
    {
        let stats = body(&host.respond(&get(STATS, &format!("offset={offset}&scope=p%2Fm"))));
        let waiters = stats["waiters"].as_array().expect("a list");
        assert_eq!(
            (waiters.len(), &stats["truncated"], &stats["waitersTotal"]),
            (listed, &json!(truncated), &json!(1_100))
        );
        seen.extend(waiters.iter().map(|waiter| waiter["session"].as_str().expect("a name").to_owned()));
    }
    assert!(seen.is_sorted() && seen.len() == 1_100);
    for nobody in ["q%2Fm", "", "%00", "%25"] {
        let stats = body(&host.respond(&get(STATS, &format!("scope={nobody}"))));
        assert_eq!(stats["waiters"], json!([]), "{nobody}");
        assert_eq!(stats["entries"][0]["waiting"], 1_100, "counts are whole");
    }
}

#[test]
fn a_parameter_that_is_no_number_is_named() {
    for query in [
        "offset=",
        "offset=minus",
        "offset=-1",
        "offset=%2B1",
        "offset=1.0",
        "offset=4294967296",
        "offset=1e400",
        "describe=",
        "describe=yes",
    ] {
        let response = Fake::new(ONE).respond(&get(STATS, query));
        assert_eq!(response.status, 400, "{query}");
        assert!(error(&response).contains(query.split('=').next().expect("a name")), "{query}");
    }
}

#[test]
fn a_host_status_that_is_no_json_is_null() {
    for broken in ["", "{", "nonsense"] {
        let request = routes::Request { host_status: broken.into(), ..get(STATS, "") };
        assert_eq!(body(&Fake::new(ONE).respond(&request))["host"], Value::Null);
    }
}
