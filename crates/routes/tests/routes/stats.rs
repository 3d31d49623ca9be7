//! Stats: everything that is known, and what people call the sessions.

use std::task::Poll;

use limiter::Outcome;
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
    assert_eq!(
        stats["waiters"][0]["blockedBy"],
        json!({ "scope": "p/m", "why": "full", "limit": 1, "occupancy": 1 })
    );
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

/// Two trees: `root` has two children, one of which has one of its own and is idle; `else` has one child.
fn trees() -> Fake {
    let mut host = Fake::new(r#"{"limits":[{"provider":"p","model":"m","max":1}],"maxQueued":20000}"#);
    let parents = [
        ("root", None),
        ("child", Some("root")),
        ("idle", Some("root")),
        ("grandchild", Some("idle")),
        ("else", None),
        ("stranger", Some("else")),
    ];
    host.parents = parents.map(|(id, parent)| (id.to_owned(), parent.map(str::to_owned))).into();
    host.titles = vec![("grandchild", "Nail the shingles")];
    host.stream(Some("stranger"), "p", "m", 2_000);
    host.stream(Some("else"), "p", "m", 2_000);
    host.stream(Some("child"), "free", "m", 2_000);
    host.stream(Some("grandchild"), "p", "m", 2_000);
    host.stream(None, "p", "m", 2_000);
    host.spawn("root", "p", "m", 2_000);
    host
}

fn names(rows: &Value) -> Vec<&str> {
    rows.as_array().expect("a list").iter().filter_map(|row| row["session"].as_str()).collect()
}

#[test]
fn of_a_session_it_is_told_what_it_and_its_descendants_do() {
    let host = trees();
    let of = |session: &str| body(&host.respond(&get(STATS, &format!("session={session}"))));
    let stats = of("root");
    assert_eq!(names(&stats["holders"]), ["child"]);
    assert_eq!(names(&stats["waiters"]), ["grandchild", "root"], "a spawn is the spawning session's");
    let waiter = &stats["waiters"][0];
    assert_eq!((&waiter["label"], &waiter["position"]), (&json!("Nail the shingles"), &json!(2)));
    assert_eq!(names(&of("idle")["waiters"]), ["grandchild"], "of one that does nothing itself as well");
    assert_eq!(names(&of("grandchild")["waiters"]), ["grandchild"]);
    assert_eq!(names(&of("else")["holders"]), ["stranger"]);
    assert_eq!(names(&of("else")["waiters"]), ["else"]);
    let stats = body(&host.respond(&get(STATS, "session=root&scope=p%2Fm")));
    assert_eq!((names(&stats["holders"]), names(&stats["waiters"])), (vec![], vec!["grandchild", "root"]));
}

#[test]
fn of_a_session_only_its_routes_and_scopes_are_told_and_nothing_of_one_that_is_idle() {
    let host = trees();
    let stats = body(&host.respond(&get(STATS, "session=else")));
    let scopes: Vec<_> = stats["scopes"].as_array().expect("a list").iter().map(|s| &s["scope"]).collect();
    assert_eq!(scopes, ["p/m", "p/*", "*/*"], "no other route's");
    assert_eq!(stats["entries"], json!([{ "provider": "p", "model": "m", "active": 1, "waiting": 4 }]));
    for nobody in ["", "nobody", "chi"] {
        let stats = body(&host.respond(&get(STATS, &format!("session={nobody}"))));
        for empty in ["entries", "scopes", "holders", "waiters"] {
            assert_eq!(stats[empty], json!([]), "{nobody}: {empty}");
        }
        assert_eq!((&stats["waitersTotal"], &stats["totals"]["waiting"]), (&json!(0), &json!(4)));
    }
}

#[test]
fn whose_child_a_session_is_is_asked_once() {
    let host = trees();
    let first = host.respond(&get(STATS, "session=root&describe=false"));
    let asked = host.asked.take();
    let Some(Asked::Sessions(among)) = asked.first() else { panic!("{asked:?}") };
    assert_eq!(among, &["child", "else", "grandchild", "stranger"], "not about the session itself");
    assert_eq!(host.respond(&get(STATS, "session=root&describe=false")), first);
    host.respond(&get(STATS, "session=else&describe=false"));
    host.stream(Some("child"), "p", "m", 2_000);
    host.respond(&get(STATS, "session=else&describe=false"));
    assert_eq!(*host.asked.borrow(), [Asked::Sessions(vec!["root".into()])], "of whom nobody wanted to know");
}

#[test]
fn of_a_session_the_numbers_are_of_one_look_however_long_its_family_takes() {
    let host = trees();
    host.answers.set(false);
    let response = host.poll(&get(STATS, "session=root&describe=false"), |host| {
        host.stream(Some("late"), "p", "m", 9_000);
        host.answers.set(true);
    });
    let Poll::Ready(response) = response else { panic!("no answer") };
    assert_eq!(body(&response)["now"], json!(9_000));
}

#[test]
fn a_family_is_whole_among_thousands_and_each_question_is_bounded() {
    let mut host = trees();
    let crowd: Vec<String> = (0..5_000).map(|n| format!("s{n:04}")).collect();
    for (n, session) in crowd.iter().enumerate() {
        host.parents.insert(session.clone(), Some(if n % 100 == 0 { "root" } else { "else" }.into()));
        host.stream(Some(session), "p", "m", 3_000);
    }
    let stats = body(&host.respond(&get(STATS, "session=root")));
    assert_eq!((&stats["waitersTotal"], &stats["truncated"]), (&json!(52), &json!(false)));
    assert_eq!(stats["waiters"][2]["position"], 5, "behind the two trees' and nobody's");
    assert_eq!(stats["waiters"][51]["position"], 4_905);
    let questions = host.asked.take();
    let mut about: Vec<String> = Vec::new();
    for question in &questions[..questions.len() - 1] {
        let Asked::Sessions(ids) = question else { panic!("{question:?}") };
        assert!(ids.len() <= 1_000);
        about.extend(ids.iter().cloned());
    }
    let each: std::collections::BTreeSet<_> = about.iter().collect();
    assert_eq!(each.len(), about.len(), "nobody twice");
    host.respond(&get(STATS, "session=root"));
    assert_eq!(host.asked.borrow().len(), 1, "what they are called");
}

#[test]
fn more_than_can_be_asked_about_at_once_are_asked_about_later_and_the_answer_says_so() {
    let mut host = trees();
    for n in 0..12_000 {
        let session = format!("s{n:05}");
        host.stream(Some(&session), "p", "m", 3_000);
        host.parents.insert(session, Some("root".into()));
    }
    let found = |stats: &Value| stats["waitersTotal"].as_u64().expect("a number");
    let first = body(&host.respond(&get(STATS, "session=root&describe=false")));
    assert_eq!(first["truncated"], true);
    assert!(found(&first) < 12_002);
    assert_eq!(found(&body(&host.respond(&get(STATS, "session=root&describe=false")))), 12_002);
}

#[test]
fn a_session_that_the_harness_does_not_know_is_nobodys_child_and_no_circle_hangs() {
    let mut host = trees();
    host.stream(Some("unknown"), "p", "m", 2_000);
    for (of, parent) in [("x", "y"), ("y", "x")] {
        host.parents.insert(of.into(), Some(parent.into()));
        host.stream(Some(of), "p", "m", 2_000);
    }
    let stats = body(&host.respond(&get(STATS, "session=root")));
    assert_eq!(names(&stats["waiters"]), ["grandchild", "root"]);
    host.parents.insert("unknown".into(), Some("root".into()));
    let stats = body(&host.respond(&get(STATS, "session=root")));
    assert_eq!(names(&stats["waiters"]), ["grandchild", "root", "unknown"], "once the harness knows");
}

#[test]
fn those_who_are_gone_are_forgotten() {
    let mut host = trees();
    let calls: Vec<_> = (0..5_000)
        .map(|n| {
            let session = format!("s{n}");
            host.parents.insert(session.clone(), None);
            host.stream(Some(&session), "free", "m", 3_000)
        })
        .collect();
    let asked = |host: &Fake| {
        host.respond(&get(STATS, "session=root&describe=false"));
        host.asked
            .take()
            .iter()
            .map(|a| if let Asked::Sessions(ids) = a { ids.len() } else { 0 })
            .sum::<usize>()
    };
    assert!(asked(&host) >= 5_000);
    for call in calls {
        host.limiter.borrow_mut().finish(call, Outcome::Completed, 3_000);
    }
    host.parents.insert("new".into(), Some("idle".into()));
    host.stream(Some("new"), "p", "m", 3_000);
    assert_eq!(asked(&host), 1, "those who are there are known");
    host.stream(Some("s7"), "free", "m", 3_000);
    assert_eq!(asked(&host), 1);
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
