//! Metrics: read back as a scraper does, nothing that grows with what was ever run.

use std::collections::{BTreeMap, BTreeSet};

use limiter::Outcome;
use routes::{METRICS, Request};

use crate::common::{Fake, get, header};

/// Samples by name and labels.
type Samples = BTreeMap<(String, BTreeMap<String, String>), f64>;

/// Reads the text format, and refuses what a scraper would refuse or a linter would complain of.
fn read(text: &str) -> Samples {
    let mut samples = Samples::new();
    let (mut helped, mut typed) = (BTreeSet::new(), BTreeMap::new());
    let mut family = String::new();
    assert!(text.ends_with('\n'));
    for line in text.lines() {
        if let Some(help) = line.strip_prefix("# HELP ") {
            let (name, words) = help.split_once(' ').expect("words");
            assert!(helped.insert(name.to_owned()) && !words.is_empty(), "{line}");
            name.clone_into(&mut family);
        } else if let Some(kind) = line.strip_prefix("# TYPE ") {
            let (name, kind) = kind.split_once(' ').expect("a kind");
            assert_eq!(name, family);
            assert_eq!(name.ends_with("_total"), kind == "counter", "{line}");
            assert!(typed.insert(name.to_owned(), kind.to_owned()).is_none(), "{line}");
        } else {
            let (name, labels, value) = sample(line);
            let plain = ["_sum", "_count"].iter().find_map(|end| name.strip_suffix(end)).unwrap_or(&name);
            let of = if typed.get(plain).is_some_and(|kind| kind == "summary") { plain } else { &name };
            assert_eq!(of, family, "a family stands together");
            assert!(name.bytes().all(|b| b.is_ascii_lowercase() || b == b'_' || b.is_ascii_digit()));
            assert!(samples.insert((name.clone(), labels), value).is_none(), "twice: {line}");
        }
    }
    samples
}

fn sample(line: &str) -> (String, BTreeMap<String, String>, f64) {
    let number = |text: &str| text.parse().unwrap_or_else(|_| panic!("{line}"));
    let Some((name, rest)) = line.split_once('{') else {
        let (name, value) = line.split_once(' ').unwrap_or_else(|| panic!("{line}"));
        return (name.into(), BTreeMap::new(), number(value));
    };
    let mut labels = BTreeMap::new();
    let mut rest = rest;
    loop {
        let (key, after) = rest.split_once("=\"").unwrap_or_else(|| panic!("{line}"));
        let mut value = String::new();
        let mut chars = after.char_indices();
        let end = loop {
            match chars.next().unwrap_or_else(|| panic!("{line}")) {
                (at, '"') => break at,
                (_, '\\') => value.push(match chars.next() {
                    Some((_, 'n')) => '\n',
                    Some((_, c @ ('\\' | '"'))) => c,
                    other => panic!("{other:?} in {line}"),
                }),
                (_, c) => value.push(c),
            }
        };
        assert!(labels.insert(key.to_owned(), value).is_none(), "{line}");
        rest = &after[end + 1..];
        if let Some(value) = rest.strip_prefix("} ") {
            return (name.into(), labels, number(value));
        }
        rest = rest.strip_prefix(',').unwrap_or_else(|| panic!("{line}"));
    }
}

fn scrape(host: &Fake) -> Samples {
    let response = host.respond(&get(METRICS, ""));
    assert_eq!(response.status, 200);
    assert_eq!(header(&response, "content-type"), Some("text/plain; version=0.0.4; charset=utf-8"));
    read(&String::from_utf8(response.body).expect("text"))
}

fn at(samples: &Samples, name: &str, labels: &[(&str, &str)]) -> Option<f64> {
    let labels = labels.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
    samples.get(&(format!("gen_limit_{name}"), labels)).copied()
}

#[test]
fn seats_waits_and_ends_are_counted() {
    let host = Fake::new(
        r#"{"limits":[{"provider":"p","model":"m","max":1},{"provider":"q","model":"*","max":-1}],"maxQueued":2}"#,
    );
    let first = host.stream(Some("a"), "p", "m", 2_000);
    for session in ["b", "c", "d"] {
        host.stream(Some(session), "p", "m", 2_000);
    }
    host.limiter.borrow_mut().finish(first, Outcome::Completed, 3_500);
    let samples = scrape(&host);
    let scope = &[("scope", "p/m")];
    for (name, labels, value) in [
        ("live_calls", &[][..], 1.0),
        ("waiting_calls", &[], 1.0),
        ("admitted_calls_total", &[], 2.0),
        ("delayed_calls_total", &[], 1.0),
        ("refused_calls_total", &[("reason", "queue-full")], 1.0),
        ("refused_calls_total", &[("reason", "paused")], 0.0),
        ("cancelled_calls_total", &[], 0.0),
        ("wait_seconds", &[("quantile", "1")], 1.5),
        ("wait_seconds_sum", &[], 1.5),
        ("wait_seconds_count", &[], 2.0),
        ("scope_seats_limit", scope, 1.0),
        ("scope_seats_limit", &[("scope", "q/*")], f64::INFINITY),
        ("scope_seats_occupied", scope, 1.0),
        ("scope_waiting_calls", scope, 1.0),
        ("scope_oldest_wait_seconds", scope, 1.5),
        ("scope_call_duration_mean_seconds", scope, 1.5),
        ("scope_spawn_credits", scope, 0.0),
        ("scope_admitted_calls_total", scope, 2.0),
        ("scope_refused_calls_total", &[("scope", "p/m"), ("reason", "queue-full")], 1.0),
        ("scope_wait_seconds", &[("scope", "p/m"), ("quantile", "0.95")], 1.5),
        ("scope_wait_seconds_count", &[("scope", "q/*")], 0.0),
    ] {
        assert_eq!(at(&samples, name, labels), Some(value), "{name} {labels:?}");
    }
    assert_eq!(at(&samples, "scope_wait_seconds", &[("scope", "q/*"), ("quantile", "1")]), None);
    assert_eq!(at(&samples, "scope_pool_seats", scope), None);
}

#[test]
fn what_the_host_knows_is_there_and_nothing_of_it_is_trusted() {
    let host = Fake::new("{}");
    let status = r#"{"component":"a\"b","restarts":3,"memoryBytes":65536,"problems":[{},{}]}"#;
    let of = |status: &str| {
        let response = host.respond(&Request { host_status: status.into(), ..get(METRICS, "") });
        read(&String::from_utf8(response.body).expect("text"))
    };
    let samples = of(status);
    assert_eq!(at(&samples, "component_restarts_total", &[]), Some(3.0));
    assert_eq!(at(&samples, "component_memory_bytes", &[]), Some(65_536.0));
    assert_eq!(at(&samples, "configuration_problems", &[]), Some(2.0));
    let version = env!("CARGO_PKG_VERSION");
    assert_eq!(at(&samples, "build_info", &[("component", "a\"b"), ("version", version)]), Some(1.0));
    for odd in ["", "[]", "7", r#"{"restarts":-1}"#, r#"{"restarts":1e400,"component":{}}"#] {
        assert_eq!(at(&of(odd), "component_restarts_total", &[]), Some(0.0), "{odd}");
    }
}

#[test]
fn no_session_is_a_label_and_odd_names_are_escaped() {
    let host = Fake::new("{}");
    let odd = "a\"b\\c\nd\0é";
    host.stream(Some("secret-session"), odd, "m", 2_000);
    let samples = scrape(&host);
    let bounded = ["component", "quantile", "reason", "scope", "version"];
    let mut labels = samples.keys().flat_map(|(_, labels)| labels.keys());
    assert!(labels.all(|label| bounded.contains(&label.as_str())));
    assert!(!samples.keys().any(|(_, labels)| labels.values().any(|value| value.contains("secret"))));
    assert_eq!(at(&samples, "scope_seats_occupied", &[("scope", &format!("{odd}/m"))]), Some(1.0));
}

#[test]
fn counters_are_told_of_what_is_kept_while_it_is_idle() {
    let host = Fake::new(r#"{"limits":[{"provider":"p","model":"m","max":1}]}"#);
    let call = host.stream(Some("a"), "p", "m", 2_000);
    let busy = scrape(&host);
    assert_eq!(at(&busy, "scope_seats_occupied", &[("scope", "*/*")]), Some(1.0));
    assert_eq!(at(&busy, "scope_admitted_calls_total", &[("scope", "*/*")]), None);
    host.limiter.borrow_mut().finish(call, Outcome::Completed, 3_000);
    let idle = scrape(&host);
    assert_eq!(at(&idle, "scope_seats_occupied", &[("scope", "*/*")]), None);
    assert_eq!(at(&idle, "scope_admitted_calls_total", &[("scope", "p/m")]), Some(1.0));
    assert_eq!(at(&idle, "admitted_calls_total", &[]), Some(1.0));
}

#[test]
fn a_thousand_scopes_are_bounded_and_what_is_left_out_is_told() {
    let host = Fake::new("{}");
    for n in 0..1_000 {
        host.stream(None, "p", &format!("m{n}"), 2_000);
    }
    let samples = scrape(&host);
    let listed = samples.keys().filter(|(name, _)| name == "gen_limit_scope_seats_occupied").count();
    assert_eq!(listed, 500);
    assert_eq!(at(&samples, "scopes", &[]), Some(1_002.0));
    assert_eq!(at(&samples, "scopes_unlisted", &[]), Some(502.0));
}

#[test]
fn a_ceiling_is_told_beside_the_rows_own_limit() {
    let host = Fake::new(
        r#"{"limits":[{"provider":"p","model":"m","max":5}],"ceilings":[{"provider":"p","model":"m","max":3},
            {"provider":"q","model":"*","max":2}]}"#,
    );
    let samples = scrape(&host);
    let tell = |name: &str, scope: &str| at(&samples, name, &[("scope", scope)]);
    for (scope, limit, ceiling) in [("p/m", 5.0, 3.0), ("q/*", f64::INFINITY, 2.0)] {
        assert_eq!(tell("scope_seats_limit", scope), Some(limit));
        assert_eq!(tell("scope_seats_ceiling", scope), Some(ceiling));
        assert_eq!(tell("scope_pool_seats", scope), Some(0.0));
    }
}
