//! Pacing of spawns, one rule per test.

mod common;

use common::{Desk, NOBODY, admits, denied, desk, waits};
use limiter::{AnyCall, LiveCall, Outcome, Reason, SpawnCall, SpawnEnd};

#[test]
fn a_burst_of_eight_at_limit_three_lets_three_through() {
    let mut desk = desk(3);
    let admitted = (0..8).filter(|_| admits(&desk.spawn().1)).count();
    assert_eq!((admitted, desk.waiting()), (3, 5));
    assert_eq!(desk.scope("p/m").occupancy, 0, "spawns hold no seat");
    assert_eq!(desk.scope("p/m").credits, 3);
}

#[test]
fn three_spawns_and_their_three_children_fit_max_three() {
    let mut desk = desk(3);
    for n in 1..=3 {
        let (spawn, verdict) = desk.spawn();
        assert!(admits(&verdict));
        assert!(admits(&desk.child(spawn, &format!("c{n}")).1), "never two seats for one child");
    }
    assert_eq!((desk.active(), desk.scope("p/m").credits), (3, 0));
    assert!(waits(&desk.spawn().1));
}

#[test]
fn eight_spawns_at_limit_one_pass_one_per_freed_seat() {
    let mut desk = desk(1);
    let mut admitted: Vec<_> =
        (0..8).map(|_| desk.spawn()).filter(|(_, v)| admits(v)).map(|(id, _)| id).collect();
    for left in (0..8).rev() {
        assert_eq!(admitted.len(), 1, "one per freed seat");
        let (child, verdict) = desk.child(admitted[0], &format!("child of {}", admitted[0]));
        assert!(admits(&verdict));
        assert_eq!(desk.newly_admitted(), NOBODY, "the seat is taken, no credit is left");
        desk.end(child);
        admitted = desk.newly_admitted();
        assert_eq!(desk.waiting(), left.max(1) - 1);
    }
    assert_eq!(admitted, NOBODY);
}

#[test]
fn a_spawn_needs_a_seat_for_a_new_session_whatever_its_parent_holds() {
    let mut desk = desk(1);
    let (parent, _) = desk.call("parent");
    let (spawn, verdict) = desk.spawn();
    assert!(waits(&verdict));
    desk.end(parent);
    assert_eq!(desk.newly_admitted(), [spawn]);
}

#[test]
fn credits_never_delay_a_stream() {
    let mut desk = desk(1);
    assert!(admits(&desk.spawn().1));
    assert!(admits(&desk.call("other").1));
}

#[test]
fn a_child_does_not_wait_again_behind_those_who_came_after_its_spawn() {
    let mut desk = desk(1);
    let (spawn, verdict) = desk.spawn();
    assert!(admits(&verdict));
    let (running, _) = desk.call("took the seat meanwhile");
    let (later, verdict) = desk.call("came after the spawn");
    assert!(waits(&verdict));
    let (child, verdict) = desk.child(spawn, "child");
    assert!(waits(&verdict));
    desk.end(running);
    assert_eq!(desk.newly_admitted(), [child]);
    desk.end(child);
    assert_eq!(desk.newly_admitted(), [later]);
}

#[test]
fn a_childs_first_call_is_not_refused_for_a_full_line() {
    let mut desk = Desk::new(r#"{"limits":[{"provider":"p","model":"m","max":1}],"maxQueued":1}"#);
    let (spawn, _) = desk.spawn();
    desk.call("runs");
    desk.call("waits");
    assert!(matches!(denied(&desk.call("is refused").1), Reason::QueueFull { .. }));
    assert!(waits(&desk.child(spawn, "child").1));
}

#[test]
fn a_credit_ends_with_the_childs_first_call_on_whatever_route() {
    let mut desk = desk(1);
    let (spawn, _) = desk.spawn();
    let (waiting, verdict) = desk.spawn();
    assert!(waits(&verdict));
    let call = limiter::StreamCall {
        session: Some("child".into()),
        first: true,
        spawn: Some(spawn),
        ..common::stream("q/x")
    };
    desk.start(call);
    assert_eq!(desk.newly_admitted(), [waiting]);
}

#[test]
fn a_credit_ends_when_the_tool_call_fails_or_is_cancelled() {
    for outcome in [Outcome::Failed, Outcome::Cancelled] {
        let mut desk = desk(1);
        let (spawn, _) = desk.spawn();
        let (waiting, _) = desk.spawn();
        desk.finish(spawn, outcome);
        assert_eq!(desk.newly_admitted(), [waiting]);
    }
}

#[test]
fn a_tool_call_that_merely_returns_leaves_its_credit_to_the_child_or_the_grace() {
    let mut desk = desk(1);
    let (spawn, _) = desk.spawn();
    let (waiting, _) = desk.spawn();
    desk.end(spawn);
    assert_eq!(desk.newly_admitted(), NOBODY);
    desk.pass(9_999);
    assert_eq!(desk.newly_admitted(), NOBODY);
    desk.pass(1);
    assert_eq!(desk.newly_admitted(), [waiting]);
}

#[test]
fn a_late_child_keeps_its_spawns_place_until_the_grace_after_the_tool_call() {
    let mut desk = desk(1);
    let (spawn, _) = desk.spawn();
    desk.pass(60_000);
    assert_eq!(desk.scope("p/m").credits, 0, "the credit has run out");
    let (running, _) = desk.call("runs");
    desk.call("waits");
    desk.end(spawn);
    desk.pass(9_000);
    let (child, _) = desk.child(spawn, "late child");
    desk.end(running);
    assert_eq!(desk.newly_admitted(), [child]);

    let mut desk = common::desk(1);
    let (spawn, _) = desk.spawn();
    desk.end(spawn);
    desk.pass(10_000);
    let (running, _) = desk.call("runs");
    let (waiting, _) = desk.call("waits");
    desk.child(spawn, "too late");
    desk.end(running);
    assert_eq!(desk.newly_admitted(), [waiting], "after the grace it is a call like any other");
}

#[test]
fn a_spawn_is_refused_only_after_its_own_wait_ran_out() {
    let mut desk = Desk::new(r#"{"limits":[{"provider":"p","model":"m","max":1}],"queueTimeoutMs":5000}"#);
    desk.call("runs");
    let (spawn, verdict) = desk.spawn();
    assert!(waits(&verdict));
    desk.pass(4_999);
    assert!(desk.refused.is_empty());
    desk.pass(1);
    assert!(matches!(desk.refusal(spawn).reason, Reason::QueueTimeout(_)));
}

#[test]
fn unlimited_and_unknown_routes_are_not_gated() {
    let mut desk = desk(1);
    desk.call("runs");
    assert!(admits(&desk.spawn_on("p/other").1));
    desk.last += 1;
    let call = SpawnCall { tool: "subagent".into(), session: None, route: None };
    assert!(admits(&desk.limiter.start_spawn(desk.last, call, desk.now)));
    assert_eq!(desk.stats().credits, 1, "a spawn whose route is unknown leaves no credit");
}

#[test]
fn a_limit_set_later_knows_the_credits() {
    let mut desk = Desk::new("{}");
    desk.spawn();
    desk.configure(r#"{"limits":[{"provider":"p","model":"m","max":1}]}"#);
    assert!(waits(&desk.spawn().1));
}

#[test]
fn a_grace_of_zero_ends_the_credit_at_once() {
    let mut desk = Desk::new(r#"{"limits":[{"provider":"p","model":"m","max":1}],"spawnGraceMs":0}"#);
    assert!(admits(&desk.spawn().1));
    assert!(admits(&desk.spawn().1));
}

#[test]
fn a_restored_spawn_whose_tool_call_failed_has_its_place_but_no_credit() {
    let restored = |completed| {
        let mut desk = desk(1);
        let call =
            SpawnCall { tool: "subagent".into(), session: None, route: Some(common::stream("p/m").route) };
        let ended = Some(SpawnEnd { at: desk.now, completed });
        let live = LiveCall { id: 1, call: AnyCall::Spawn(call), since: desk.now, ended };
        desk.limiter.restore(vec![live], vec![], desk.now);
        desk.last = 1;
        desk
    };
    assert_eq!(restored(true).scope("p/m").credits, 1);
    let mut desk = restored(false);
    assert_eq!(desk.scope("p/m").credits, 0);
    let (running, _) = desk.call("runs");
    desk.call("waits");
    let (child, _) = desk.child(1, "child");
    desk.end(running);
    assert_eq!(desk.newly_admitted(), [child]);
}

#[test]
fn the_tools_to_be_brought_are_those_of_the_configuration_in_force() {
    let mut desk = Desk::new("{}");
    assert_eq!(desk.limiter.tools(), ["subagent", "subagent_fork"]);
    desk.configure(r#"{"spawnTools":["mine"]}"#);
    assert_eq!(desk.limiter.tools(), ["mine"]);
}
