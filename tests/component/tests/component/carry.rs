//! What a successor is told: replaced components, reconfiguration by rebuild, release, cancellation.

use component_tests::{Host, admitted, chaos, is_admitted, is_waiting, limit, release, stream};
use gen_limit_runtime::{Mode, Outcome, StartError, StreamCall, Verdict};

fn seniority(verdict: &Verdict) -> u64 {
    match verdict {
        Verdict::Wait { seniority, .. } => *seniority,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_replaced_component_keeps_calls_line_and_seniority() {
    let mut host = Host::new(release(), &limit(2, r#","queueTimeoutMs":5000"#));
    let running: Vec<_> = ["a", "b"].map(|session| host.stream(session).id).into();
    let waiting: Vec<_> = ["c", "d", "e"].map(|session| host.stream(session).id).into();
    host.pass(1_000);
    host.plugin.replace(chaos(), host.now).expect("the other build works");
    assert_eq!(host.plugin.status().sha256, chaos().sha256());
    assert_eq!((host.plugin.status().live, host.plugin.status().waiting), (2, 3));
    assert_eq!(host.plugin.next_tick(), Some(6_000), "the wait is counted from its arrival");
    let late = host.stream("f");
    assert_eq!(seniority(&late.verdict), late.id);
    host.end(running[1]);
    assert_eq!(host.admitted(), [waiting[0]]);
    host.end(running[0]);
    assert_eq!(host.admitted(), [waiting[1]]);
}

#[test]
fn a_component_that_cannot_start_does_not_replace_the_one_that_works() {
    let mut host = Host::new(release(), &limit(1, ""));
    host.stream("a");
    let waiting = host.stream("b");
    // The build that ships does not know the key, the other one did.
    let mut broken = Host::new(chaos(), &limit(1, r#","chaos":"flood:1""#));
    assert!(matches!(broken.plugin.replace(release(), 0), Err(StartError::Config { .. })));
    assert_eq!(broken.plugin.status().sha256, chaos().sha256());
    host.plugin.replace(release(), host.now).expect("the same build again");
    host.end(1);
    assert_eq!(host.admitted(), [waiting.id]);
}

#[test]
fn a_spawns_place_is_kept_over_a_rebuild_until_its_child_has_come() {
    let mut host = Host::new(release(), &limit(1, ""));
    let spawn = host.spawn("root");
    assert!(is_admitted(&spawn));
    host.end(spawn.id);
    let holder = host.stream("holder");
    let (before, after) = (host.stream("before"), host.stream("after"));
    host.pass(9_000);
    host.plugin.replace(release(), host.now).expect("the same build again");
    let child = StreamCall { first: true, spawn: Some(spawn.id), ..stream("child") };
    let child = host.plugin.start_stream(child, host.now);
    assert_eq!(seniority(&child.verdict), spawn.id);
    for (end, next) in [(holder.id, child.id), (child.id, before.id), (before.id, after.id)] {
        host.end(end);
        assert_eq!(host.admitted(), [next]);
    }
}

#[test]
fn a_credit_outlives_a_rebuild_and_runs_from_its_admission() {
    let mut host = Host::new(release(), &limit(1, ""));
    let spawn = host.spawn("root");
    let next = host.spawn("root");
    assert!(is_admitted(&spawn) && is_waiting(&next));
    host.pass(9_000);
    host.plugin.replace(release(), host.now).expect("the same build again");
    assert!(host.plugin.take_settled().is_empty(), "the credit still counts");
    host.pass(1_000);
    assert_eq!(host.admitted(), [next.id], "ten seconds after its admission it does not");
}

/// So many calls that a configuration is applied by a new instance.
fn crowded(max: i64) -> (Host, Vec<u64>) {
    let mut host = Host::new(release(), &limit(max, r#","maxQueued":10000"#));
    let ids = (0..6_000).map(|n| host.stream(&format!("s{n}")).id).collect();
    (host, ids)
}

#[test]
fn a_configuration_for_thousands_of_calls_keeps_them_all_in_order() {
    let (mut host, ids) = crowded(1);
    host.plugin
        .configure(&limit(5_900, r#","maxQueued":10000"#), Mode::Strict, host.now)
        .expect("it is valid");
    host.settle_all();
    assert_eq!(host.admitted(), ids[1..5_900]);
    assert_eq!((host.plugin.status().live, host.plugin.status().waiting), (5_900, 100));
    assert_eq!(host.plugin.status().restarts, 0, "that is not a fault");
    host.end(ids[17]);
    assert_eq!(host.admitted(), [ids[5_900]]);
}

#[test]
fn a_wrong_configuration_for_thousands_of_calls_touches_none() {
    let (mut host, ids) = crowded(1);
    assert!(host.plugin.configure(r#"{"limits":3}"#, Mode::Strict, host.now).is_err());
    assert!(host.plugin.take_settled().is_empty());
    host.end(ids[0]);
    assert_eq!(host.admitted(), [ids[1]]);
}

#[test]
fn a_released_line_proceeds_and_counts() {
    let mut host = Host::new(release(), &limit(1, ""));
    let running = host.stream("a");
    let waiting: Vec<_> = ["b", "c"].map(|session| host.stream(session).id).into();
    host.plugin.release_all(host.now);
    assert_eq!(host.admitted(), waiting);
    let next = host.stream("d");
    assert!(is_waiting(&next), "all three count");
    for id in [running.id, waiting[0]] {
        host.end(id);
        assert!(host.admitted().is_empty());
    }
    host.end(waiting[1]);
    assert_eq!(host.admitted(), [next.id]);
}

#[test]
fn a_cancelled_line_is_named_in_order_and_nobody_of_it_proceeds() {
    let mut host = Host::new(release(), &limit(1, ""));
    let running = host.stream("a");
    let waiting: Vec<_> = ["b", "c", "d"].map(|session| host.stream(session).id).into();
    assert_eq!(host.plugin.cancel_all(host.now), waiting);
    host.end(running.id);
    host.plugin.finish(waiting[0], Outcome::Cancelled, host.now);
    host.pass(1_000_000);
    assert!(host.plugin.take_settled().is_empty());
    assert_eq!((host.plugin.status().live, host.plugin.status().waiting), (0, 0));
    assert!(is_admitted(&host.stream("e")));
}

#[test]
fn thousands_of_waiters_are_restored_in_the_order_they_had() {
    let mut host = Host::new(release(), &limit(0, r#","maxQueued":30000"#));
    let ids: Vec<_> = (0..20_000).map(|n| host.stream(&format!("s{n}")).id).collect();
    host.plugin.replace(chaos(), host.now).expect("the other build works");
    host.plugin.release_all(host.now);
    let settled: Vec<_> = host.plugin.take_settled().iter().map(admitted).collect();
    assert_eq!(settled, ids);
    assert_eq!(host.plugin.status().restarts, 0);
}
