//! I4: the books balance, whoever comes, goes or is restored.

mod common;

use common::{Desk, admits, desk, stream};
use limiter::{AnyCall, Limiter, LiveCall, SpawnCall, StatsQuery, Verdict, WaitingCall};

const UNTOLD: SpawnCall = SpawnCall { tool: String::new(), session: None, route: None };

/// What has come, and what has ended for itself; the rest is there still.
fn books(limiter: &Limiter) -> (u64, u64) {
    let run = limiter.stats(&StatsQuery::default(), 1_000).totals;
    let there = run.live + run.waiting + run.spawned;
    assert_eq!(
        run.submitted,
        there + run.finished + run.totals.refused.sum() + run.totals.cancelled,
        "the books balance: {run:?}"
    );
    (run.submitted, run.finished)
}

#[test]
fn every_call_that_ends_is_counted_once() {
    let mut desk = desk(3);
    for n in 1..=3 {
        let (id, _) = desk.call("a");
        desk.end(id);
        desk.end(id);
        assert_eq!(books(&desk.limiter), (n, n));
    }
}

#[test]
fn a_spawn_whose_route_nobody_can_tell_has_come_and_gone() {
    let mut desk = desk(0);
    for n in 1..=3 {
        assert!(admits(&desk.limiter.start_spawn(n, UNTOLD, desk.now)));
        assert_eq!(books(&desk.limiter), (n, n));
    }
}

#[test]
fn what_is_restored_is_in_the_books_also_where_nobody_can_tell_its_route() {
    let mut limiter = Limiter::new();
    let live = |id| LiveCall { id, call: AnyCall::Spawn(UNTOLD), since: 1_000, ended: None };
    limiter.restore(vec![live(1), live(2)], vec![], 1_000);
    assert_eq!(books(&limiter), (2, 2));
    let waiting = |id| WaitingCall { id, call: AnyCall::Spawn(UNTOLD), since: 1_000, seniority: id };
    let answers = limiter.restore(vec![], vec![waiting(3), waiting(4)], 1_000);
    assert_eq!(answers, [(3, Verdict::Admit), (4, Verdict::Admit)]);
    assert_eq!(books(&limiter), (4, 4));
}

#[test]
fn totals_count_from_the_first_configuration() {
    let mut desk = desk(1);
    let began = desk.now;
    assert_eq!(desk.stats().totals.since, began);
    desk.pass(500);
    desk.configure("{}");
    assert_eq!(desk.stats().totals.since, began, "an edit is no new beginning");
}

#[test]
fn a_refusal_reads_as_its_sentence() {
    let mut desk = Desk::new(r#"{"limits":[{"provider":"p","model":"m","max":1}],"maxQueued":0}"#);
    assert!(admits(&desk.start(stream("p/m")).1));
    let Verdict::Deny(refusal) = desk.start(stream("p/m")).1 else { panic!("nobody may wait") };
    assert!(!refusal.message.is_empty());
    assert_eq!(refusal.to_string(), refusal.message);
}

#[test]
fn every_refusal_is_in_the_books_under_its_reason() {
    let mut desk = Desk::new(
        r#"{"limits":[{"provider":"p","model":"m","max":1},{"provider":"p","model":"z","max":0}],
            "queueTimeoutMs":10,"maxQueued":1}"#,
    );
    for session in ["runs", "waits", "finds the line full"] {
        desk.call(session);
    }
    desk.call_on("p/z", "is paused");
    desk.pass(10);
    let refused = desk.stats().totals.totals.refused;
    let counts = [("queue-full", 1), ("queue-timeout", 1), ("paused", 1), ("no-pool-seat", 0), ("other", 0)];
    assert_eq!((refused.by_reason(), refused.sum()), (counts, 3));
    books(&desk.limiter);
}

#[test]
fn a_spawn_has_ended_for_the_books_when_its_child_has_come() {
    let mut desk = desk(3);
    let (spawn, _) = desk.spawn();
    assert_eq!(books(&desk.limiter), (1, 0));
    let (child, _) = desk.child(spawn, "child");
    assert_eq!(books(&desk.limiter), (2, 1));
    desk.end(child);
    assert_eq!(books(&desk.limiter), (2, 2));
}

#[test]
fn what_a_scope_has_seen_outlives_a_change_of_the_rows_and_of_the_numbers() {
    let row = |model: &str, max: u32| format!(r#"{{"provider":"p","model":"{model}","max":{max}}}"#);
    let mut desk = Desk::new(&format!(r#"{{"limits":[{}]}}"#, row("m", 1)));
    let (runs, _) = desk.call("a");
    desk.call("b");
    desk.pass(70);
    desk.end(runs);
    let seen = desk.scope("p/m").wait_ms;
    assert!(seen.is_some());
    desk.configure(&format!(r#"{{"limits":[{}]}}"#, row("m", 2)));
    assert_eq!(desk.scope("p/m").wait_ms, seen);
    desk.configure(&format!(r#"{{"limits":[{},{}]}}"#, row("m", 2), row("n", 2)));
    assert_eq!(desk.scope("p/m").wait_ms, seen);
}
