//! Verdicts and waits, as a host sees them.

use component_tests::{
    Host, admitted, chaos, denied, is_admitted, is_waiting, limit, release, runtime, stream,
};
use gen_limit_runtime::{
    ConfigureError, Limits, Mode, Options, Outcome, Plugin, RefusalReason, Request, Route, StartError,
    StreamCall,
};
use serde_json::{Value, json};

use crate::routes::{METRICS, ask, get, json as body};

/// A plugin that keeps everybody in line.
fn paused(more: &str) -> Host {
    Host::new(release(), &limit(0, more))
}

#[test]
fn one_freed_seat_admits_the_oldest_and_only_it() {
    let mut host = Host::new(release(), &limit(1, ""));
    let running = host.stream("a");
    assert!(is_admitted(&running));
    let waiting: Vec<_> = ["b", "c", "d"].map(|session| host.stream(session)).into();
    assert!(waiting.iter().all(is_waiting));
    host.end(running.id);
    assert_eq!(host.admitted(), [waiting[0].id]);
    assert_eq!((host.plugin.status().live, host.plugin.status().waiting), (1, 2));
}

#[test]
fn a_wait_that_runs_out_is_refused_with_the_numbers_of_now() {
    let mut host = Host::new(release(), &limit(1, r#","queueTimeoutMs":500"#));
    host.stream("a");
    let waiting = host.stream("b");
    assert_eq!(host.plugin.next_tick(), Some(1_500));
    host.pass(499);
    assert!(host.plugin.take_settled().is_empty());
    host.pass(1);
    let settled = host.plugin.take_settled();
    let [settled] = settled.as_slice() else { panic!("{settled:?}") };
    assert_eq!(settled.id, waiting.id);
    let refusal = settled.result.as_ref().expect_err("it ran out");
    assert_eq!(refusal.code, "GEN_CAPACITY_EXCEEDED");
    let RefusalReason::QueueTimeout(end) = &refusal.reason else { panic!("{refusal:?}") };
    assert_eq!((end.scope.as_str(), end.waited_ms, end.occupancy, end.limit), ("p/m", 500, 1, 1));
    assert_eq!(host.plugin.next_tick(), None);
}

#[test]
fn a_full_line_refuses_at_the_door() {
    let mut host = Host::new(release(), &limit(1, r#","maxQueued":1"#));
    host.stream("a");
    host.stream("b");
    let refusal = host.stream("c");
    let RefusalReason::QueueFull(full) = &denied(&refusal).reason else { panic!("{refusal:?}") };
    assert_eq!((full.scope.as_str(), full.waiting, full.bound), ("p/m", 1, 1));
}

#[test]
fn a_wait_ends_exactly_once() {
    let mut host = Host::new(release(), &limit(1, r#","queueTimeoutMs":500"#));
    let running = host.stream("a");
    let waiting = host.stream("b");
    host.end(running.id);
    assert_eq!(host.admitted(), [waiting.id]);
    host.pass(1_000);
    host.end(running.id);
    assert!(
        host.plugin.take_settled().is_empty(),
        "neither its timeout nor a repeated end tells of it again"
    );
}

#[test]
fn finish_is_idempotent_and_unknown_ids_do_nothing() {
    let mut host = Host::new(release(), &limit(1, ""));
    let running = host.stream("a");
    for id in [running.id, running.id, 0, 999, u64::MAX] {
        host.end(id);
    }
    let next = host.stream("b");
    assert!(is_admitted(&next));
    host.end(running.id);
    assert!(is_waiting(&host.stream("c")), "the second end of the first call frees nothing of the second");
}

#[test]
fn a_withdrawn_waiter_leaves_at_once_and_is_never_told() {
    let mut host = Host::new(release(), &limit(1, ""));
    let running = host.stream("a");
    let (withdrawn, next) = (host.stream("b"), host.stream("c"));
    host.plugin.finish(withdrawn.id, Outcome::Cancelled, host.now);
    assert!(host.plugin.take_settled().is_empty());
    host.end(running.id);
    assert_eq!(host.admitted(), [next.id]);
}

#[test]
fn a_spawn_and_its_child_share_the_line() {
    let mut host = Host::new(release(), &limit(1, ""));
    assert_eq!(host.plugin.tools(), ["subagent", "subagent_fork"]);
    let first = host.spawn("root");
    let second = host.spawn("root");
    assert!(is_admitted(&first) && is_waiting(&second));
    let child = |session: &str, spawn| StreamCall { first: true, spawn: Some(spawn), ..stream(session) };
    let run = host.plugin.start_stream(child("one", first.id), host.now);
    assert!(is_admitted(&run));
    host.end(run.id);
    assert_eq!(host.admitted(), [second.id]);
    host.end(first.id);
    let stranger = host.stream("stranger");
    assert!(is_admitted(&stranger), "a credit delays no stream");
    let later = host.stream("later");
    let run = host.plugin.start_stream(child("two", second.id), host.now);
    assert!(is_waiting(&run) && is_waiting(&later));
    host.end(stranger.id);
    assert_eq!(host.admitted(), [run.id], "the child has its spawn's place");
}

#[test]
fn tools_follow_the_configuration() {
    let mut host = Host::new(release(), "{}");
    host.plugin.configure(r#"{"spawnTools":["task"]}"#, Mode::Strict, host.now).expect("it is valid");
    assert_eq!(host.plugin.tools(), ["task"]);
}

#[test]
fn a_wrong_configuration_names_row_and_field_and_changes_nothing() {
    let mut host = Host::new(release(), &limit(1, ""));
    host.stream("a");
    let error = host.plugin.configure(&limit(2, r#","queueTimeoutMs":"soon""#), Mode::Strict, host.now);
    let text = error.expect_err("it is wrong").to_string();
    assert!(text.contains("queueTimeoutMs"), "{text}");
    assert!(is_waiting(&host.stream("b")), "the limit is still 1");

    let options =
        |mode| Options { limits: Limits::default(), config: r#"{"limits":[{"provider":"p"}]}"#.into(), mode };
    let Err(StartError::Config { problems }) = Plugin::new(runtime(), release(), options(Mode::Strict), 0)
    else {
        panic!("a strict start refuses it");
    };
    assert!(problems.iter().any(|problem| problem.path.contains("limits[0]")), "{problems:?}");
    let (plugin, listed) =
        Plugin::new(runtime(), release(), options(Mode::Lenient), 0).expect("a lenient start takes it");
    assert_eq!(listed.len(), problems.len());
    assert_eq!(plugin.status().problems.len(), problems.len());
}

/// What stats say is wrong with the configuration: paths.
fn listed(host: &mut Host) -> Vec<Value> {
    let stats = body(&ask(host, get("")));
    let problems = stats["host"]["problems"].as_array().expect("a list").iter();
    problems.map(|problem| problem["path"].clone()).collect()
}

#[test]
fn a_refused_configuration_is_listed_until_another_is_brought_and_taken() {
    let mut host = Host::new(release(), &limit(1, ""));
    let wrong = limit(-7, "");
    host.plugin.configure(&wrong, Mode::Strict, host.now).expect_err("it is wrong");
    assert_eq!(listed(&mut host), ["limits[0].max"]);
    host.stream("a");
    host.plugin.replace(release(), host.now).expect("the same component again");
    assert_eq!(
        listed(&mut host),
        ["limits[0].max"],
        "a rebuild under what is in force does not put it right"
    );
    host.plugin.configure(&limit(1, ""), Mode::Strict, host.now).expect("it is valid");
    assert_eq!(listed(&mut host), [""; 0], "the edit was taken back");
    host.plugin.configure(&wrong, Mode::Strict, host.now).expect_err("it is wrong");
    host.plugin.configure(&limit(2, ""), Mode::Strict, host.now).expect("it is valid");
    assert_eq!(listed(&mut host), [""; 0]);
}

#[test]
fn what_is_wrong_with_a_row_is_listed_beside_what_it_fell_back_to() {
    let mut host = Host::new(release(), "{}");
    let (wrong, stored) = (limit(-7, ""), limit(1, ""));
    host.plugin.configure(&wrong, Mode::Strict, host.now).expect_err("it is wrong");
    host.plugin.configure(&stored, Mode::Strict, host.now).expect("it is valid");
    host.plugin.configure(&wrong, Mode::Strict, host.now).expect_err("it is still wrong");
    assert_eq!(listed(&mut host), ["limits[0].max"]);
    assert!(is_admitted(&host.stream("a")) && is_waiting(&host.stream("b")), "the stored one is in force");
    host.plugin.configure(&wrong, Mode::Lenient, host.now).expect("what is valid of it");
    assert_eq!(listed(&mut host), ["limits[0].max"]);
}

#[test]
fn a_configuration_too_long_to_be_read_is_refused_with_its_size_and_the_bound() {
    const BOUND: usize = 1 << 20;
    let padded = |max, size: usize| {
        let text = limit(max, "");
        let spaces = " ".repeat(size - text.len());
        text + &spaces
    };
    let mut host = Host::new(release(), &limit(1, ""));
    host.plugin.configure(&padded(2, BOUND), Mode::Strict, host.now).expect("the longest");
    for mode in [Mode::Strict, Mode::Lenient] {
        let Err(ConfigureError::Refused { problems }) =
            host.plugin.configure(&padded(3, BOUND + 1), mode, host.now)
        else {
            panic!("it is too long")
        };
        let message = &problems[0].message;
        assert!(message.contains("1048577") && message.contains("1048576"), "{message}");
    }
    assert_eq!(listed(&mut host), [""]);
    let sessions = ["a", "b", "c"].map(|session| is_admitted(&host.stream(session)));
    assert_eq!(sessions, [true, true, false], "the limit is still 2");
    let options = Options { limits: Limits::default(), config: padded(1, BOUND + 1), mode: Mode::Lenient };
    assert!(matches!(Plugin::new(runtime(), release(), options, 0), Err(StartError::Config { .. })));
}

#[test]
fn ids_of_any_length_are_told_apart_and_cost_no_instance() {
    for long in ["x".repeat(5_000_000), "\u{202e}".repeat(500_000)] {
        let session = |n: usize| format!("{long}{n}");
        let mut host = Host::new(release(), &limit(1, r#","queueTimeoutMs":500"#));
        let running = host.stream(&session(1));
        assert!(is_admitted(&running));
        assert!(is_admitted(&host.stream(&session(1))), "it holds a seat already");
        let waiting = host.stream(&session(2));
        assert!(is_waiting(&waiting));
        assert_eq!(ask(&mut host, get("")).status, 200);
        host.pass(500);
        let settled = host.plugin.take_settled();
        let refusal = settled[0].result.as_ref().expect_err("it ran out");
        assert_eq!((settled[0].id, refusal.code.as_str()), (waiting.id, "GEN_CAPACITY_EXCEEDED"));
        assert!(refusal.message.len() < 10_000, "{} bytes", refusal.message.len());

        host.plugin.configure(&limit(1, r#","maxQueued":0"#), Mode::Strict, host.now).expect("it is valid");
        let refused = host.stream(&session(3));
        assert_eq!(denied(&refused).code, "GEN_CAPACITY_EXCEEDED");
        let mut spawn = component_tests::spawn(&session(3));
        spawn.tool = session(4);
        assert_eq!(denied(&host.plugin.start_tool(spawn, host.now)).code, "GEN_CAPACITY_EXCEEDED");
        for n in 0..2 {
            let route = Route { provider: session(n), model: session(n) };
            assert!(is_admitted(&host.plugin.start_stream(StreamCall { route, ..stream("r") }, host.now)));
        }
        let answer = body(&ask(&mut host, get("")));
        assert_eq!(answer["entries"].as_array().map(Vec::len), Some(3), "routes are told apart");
        host.plugin.replace(release(), host.now).expect("the same component again");
        let status = host.plugin.status();
        assert_eq!((status.restarts, status.last_error), (0, None));
        assert!(status.memory_bytes < 4 << 20, "{}", status.memory_bytes);
    }
}

/// Half of what a call may burn otherwise, so that a machine half as fast has the same answer.
fn pressed() -> Limits {
    let usual = Limits::default();
    Limits { call_ms: usual.call_ms / 2, ..usual }
}

#[test]
fn a_configuration_as_long_as_may_be_is_no_fault() {
    let mut host = Host::with_limits(release(), "{}", pressed());
    let row = |n: usize| json!({ "provider": format!("p{n}"), "model": "m", "max": 1 });
    let rows: Vec<_> = (0..24_000).map(row).collect();
    let config = json!({ "limits": rows }).to_string();
    assert!(config.len() > 900 << 10, "{} bytes", config.len());
    host.plugin.configure(&config, Mode::Strict, host.now).expect("it is valid");
    let status = host.plugin.status();
    assert_eq!((status.restarts, status.last_error, status.problems.len()), (0, None, 0));
}

/// So many calls, each on a route of its own.
fn spread(host: &mut Host, calls: usize) {
    for n in 0..calls {
        let route = Route { provider: format!("p{n}"), model: "m".into() };
        host.plugin.start_stream(StreamCall { route, ..stream(&format!("s{n}")) }, host.now);
    }
}

fn everything_paused(more: &str) -> String {
    format!(r#"{{"limits":[{{"provider":"*","model":"*","max":0}}]{more}}}"#)
}

#[test]
fn the_ends_of_many_waits_at_once_are_no_fault() {
    const WAITERS: usize = 4_000;
    let mut host = Host::with_limits(release(), &everything_paused(r#","queueTimeoutMs":500"#), pressed());
    spread(&mut host, WAITERS);
    host.now += 500;
    host.settle_all();
    assert_eq!(host.plugin.take_settled().len(), WAITERS);
    assert_eq!(host.plugin.status().restarts, 0);
}

#[test]
fn a_new_configuration_for_many_calls_is_no_fault() {
    // The greatest number that is told in place, and one that is told to a new instance.
    for calls in [1_000, 5_000] {
        let mut host = Host::with_limits(release(), "{}", pressed());
        spread(&mut host, calls);
        for max in [3, 1] {
            let rows: Vec<_> = (0..calls)
                .map(|n| json!({ "provider": format!("p{n}"), "model": "m", "max": max }))
                .collect();
            let config = json!({ "limits": rows }).to_string();
            host.plugin.configure(&config, Mode::Strict, host.now).expect("it is valid");
        }
        let status = host.plugin.status();
        assert_eq!((status.live, status.restarts, status.last_error), (calls, 0, None));
        let route = Route { provider: "p0".into(), model: "m".into() };
        let next = host.plugin.start_stream(StreamCall { route, ..stream("next") }, host.now);
        assert!(is_waiting(&next), "the last of them is in force");
    }
}

#[test]
fn stats_of_a_long_line_are_bounded_and_no_fault() {
    const WAITERS: usize = 50_000;
    let mut host = Host::with_limits(release(), &everything_paused(""), pressed());
    spread(&mut host, WAITERS);
    let response = ask(&mut host, get(""));
    assert!(response.body.len() < 1 << 20, "{} bytes", response.body.len());
    assert_eq!(body(&response)["waitersTotal"], json!(WAITERS));
    assert_eq!(ask(&mut host, Request { path: METRICS.into(), ..get("") }).status, 200);
    assert_eq!((host.plugin.status().restarts, host.plugin.status().last_error), (0, None));
}

#[test]
fn stats_of_the_longest_line_are_bounded_and_no_fault() {
    const WAITERS: usize = limiter::config::GREATEST_MAX_WAITING as usize;
    let mut host =
        Host::with_limits(release(), &limit(0, r#","maxWaiting":200000,"maxQueued":200000"#), pressed());
    for n in 0..WAITERS {
        host.stream(&format!("s{n}"));
    }
    let response = ask(&mut host, get(""));
    assert!(response.body.len() < 1 << 20, "{} bytes", response.body.len());
    assert_eq!(body(&response)["waitersTotal"], json!(WAITERS));
    assert_eq!(ask(&mut host, Request { path: METRICS.into(), ..get("") }).status, 200);
    assert_eq!((host.plugin.status().restarts, host.plugin.status().last_error), (0, None));
}

#[test]
fn a_pooled_scope_gets_every_seat_it_wants_and_says_so_once() {
    let config = r#"{"limits":[{"provider":"p","model":"m","max":2,"pool":"shared"}]}"#;
    let mut host = Host::new(release(), config);
    assert!(is_admitted(&host.stream("a")) && is_admitted(&host.stream("b")));
    assert!(is_waiting(&host.stream("c")), "max holds all the same");
    let log = host.log();
    assert_eq!(log.matches("no pools").count(), 1, "{log}");
    host.plugin.configure(config, Mode::Strict, host.now).expect("it is valid");
    assert_eq!(host.log(), "");
}

#[test]
fn ten_thousand_waits_end_in_a_few_ticks_and_nothing_leaks() {
    const WAITERS: usize = 10_000;
    let mut host = paused(r#","queueTimeoutMs":1000,"maxQueued":20000"#);
    for n in 0..WAITERS {
        assert!(is_waiting(&host.stream(&format!("s{n}"))));
    }
    host.now += 1_000;
    let ticks = host.settle_all();
    assert!(ticks <= WAITERS.div_ceil(2_000), "{ticks} ticks");
    let settled = host.plugin.take_settled();
    assert_eq!(settled.len(), WAITERS);
    assert!(settled.iter().all(|settled| settled.result.is_err()));
    assert_eq!(host.plugin.status().restarts, 0);
    host.plugin.assert_store_is_empty();
}

#[test]
fn a_thousand_turns_of_the_line_leave_the_store_empty() {
    let mut host = Host::new(release(), &limit(1, ""));
    let mut running = host.stream("first").id;
    for n in 0..1_000 {
        let waiting = host.stream(&format!("s{n}"));
        assert!(is_waiting(&waiting));
        let withdrawn = host.stream(&format!("w{n}"));
        host.plugin.finish(withdrawn.id, Outcome::Cancelled, host.now);
        host.end(running);
        assert_eq!(host.admitted(), [waiting.id]);
        running = waiting.id;
    }
    host.end(running);
    host.plugin.assert_store_is_empty();
    let status = host.plugin.status();
    assert_eq!((status.live, status.waiting, status.restarts), (0, 0, 0));
}

#[test]
fn the_greatest_line_fits_and_one_more_is_refused_cleanly() {
    const GREATEST: usize = 200_000;
    let mut host = paused(&format!(r#","maxWaiting":{GREATEST},"maxQueued":{GREATEST}"#));
    for n in 0..GREATEST {
        let started = host.stream(&format!("session-{n:032}"));
        assert!(is_waiting(&started), "{started:?} as the {n}th: {:?}", host.plugin.status());
    }
    let refused = host.stream("one more");
    assert!(matches!(denied(&refused).reason, RefusalReason::QueueFull(_)));
    let status = host.plugin.status();
    assert_eq!((status.restarts, status.waiting), (0, GREATEST));
    eprintln!("{GREATEST} waiters: {} MiB", status.memory_bytes >> 20);
}

#[test]
fn more_waiters_than_handles_are_a_fault_that_loses_nobody() {
    const HANDLES: usize = 50;
    let config = limit(0, r#","maxQueued":100,"maxRestarts":1"#);
    let mut host = Host::with_limits(chaos(), &config, Limits { handles: HANDLES, ..Limits::default() });
    let mut waiting = Vec::new();
    loop {
        let started = host.stream(&format!("s{}", waiting.len()));
        if is_admitted(&started) {
            break;
        }
        waiting.push(started.id);
        assert!(waiting.len() <= HANDLES);
    }
    // The line fits no instance, so onFailure decides for all: open.
    let mut settled: Vec<_> = host.plugin.take_settled().iter().map(admitted).collect();
    settled.sort_unstable();
    assert_eq!(settled, waiting);
    assert!(host.log().contains("FAILED"));
}
