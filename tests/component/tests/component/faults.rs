//! Components that trap, loop, eat and flood: they are stopped and replaced, and nobody is lost.

use std::collections::BTreeSet;

use component_tests::{Host, chaos, denied, is_admitted, is_waiting, limit, release, stream};
use gen_limit_runtime::{CallId, Limits, Mode, Outcome, State, StreamCall, UNAVAILABLE};

/// What came of one operation: the verdict in a word, and the waits that ended with it.
type Told = (String, Vec<(CallId, bool)>);

/// A history that goes through every export: streams, spawns, children, withdrawals, timeouts, reconfigurations.
fn history(host: &mut Host) -> Vec<Told> {
    const CONFIG: &str = r#","queueTimeoutMs":400,"maxRestarts":1000000,"spawnGraceMs":300"#;
    let mut told = Vec::new();
    let mut ids = Vec::new();
    for (round, max) in [1, 2, 1].into_iter().enumerate() {
        for n in 0..4 {
            let started = host.stream(&format!("s{round}{n}"));
            ids.push(started.id);
            told.push(note(host, &format!("{:?}", started.verdict)));
        }
        let spawn = host.spawn("root");
        told.push(note(host, &format!("{:?}", spawn.verdict)));
        let child = StreamCall { first: true, spawn: Some(spawn.id), ..stream(&format!("child{round}")) };
        if is_admitted(&spawn) {
            let started = host.plugin.start_stream(child, host.now);
            ids.push(started.id);
            told.push(note(host, &format!("{:?}", started.verdict)));
        }
        host.end(ids[round]);
        told.push(note(host, "end"));
        host.plugin.finish(ids[ids.len() - 1], Outcome::Cancelled, host.now);
        told.push(note(host, "withdraw"));
        host.pass(150);
        told.push(note(host, "pass"));
        host.end(spawn.id);
        told.push(note(host, "end of spawn"));
        let config = limit(max, CONFIG);
        if host.plugin.configure(&config, Mode::Strict, host.now).is_err() {
            // It was stopped over it; whoever configures may say it again.
            host.plugin.configure(&config, Mode::Strict, host.now).expect("it is valid");
        }
        told.push(note(host, "configure"));
    }
    for id in ids {
        host.end(id);
        told.push(note(host, "end"));
    }
    host.pass(1_000);
    told.push(note(host, "pass"));
    told
}

fn note(host: &mut Host, verdict: &str) -> Told {
    let settled = host.plugin.take_settled();
    (verdict.into(), settled.into_iter().map(|settled| (settled.id, settled.result.is_ok())).collect())
}

/// Runs the history with a trap in the n-th call. Nothing if it was over before.
fn with_trap(n: u64) -> Option<(Vec<Told>, Host)> {
    let mut host =
        Host::new(chaos(), &limit(2, r#","queueTimeoutMs":400,"maxRestarts":1000000,"spawnGraceMs":300"#));
    let elsewhere = StreamCall {
        route: gen_limit_runtime::Route { provider: "elsewhere".into(), model: "m".into() },
        extra: vec![("chaos".into(), format!("trap-in:{n}"))],
        ..stream("elsewhere")
    };
    let armed = host.plugin.start_stream(elsewhere, host.now);
    assert!(is_admitted(&armed));
    let told = history(&mut host);
    let status = host.plugin.status();
    assert_eq!((status.state, status.waiting), (State::Running, 0));
    (status.restarts > 0).then_some((told, host))
}

#[test]
fn a_trap_in_any_call_of_a_history_changes_nothing_for_anybody() {
    let mut undisturbed =
        Host::new(chaos(), &limit(2, r#","queueTimeoutMs":400,"maxRestarts":1000000,"spawnGraceMs":300"#));
    undisturbed.plugin.start_stream(
        StreamCall {
            route: gen_limit_runtime::Route { provider: "elsewhere".into(), model: "m".into() },
            ..stream("elsewhere")
        },
        undisturbed.now,
    );
    let expected = history(&mut undisturbed);
    let mut n = 1;
    while let Some((told, host)) = with_trap(n) {
        assert_eq!(told, expected, "with a trap in call {n}");
        assert_eq!(host.plugin.status().restarts, 1);
        n += 1;
    }
    assert!(n > 60, "the history is only {n} calls long");
}

#[test]
fn a_stop_in_any_call_of_a_history_loses_no_call_and_no_waiter() {
    // A loop takes its time, so only some; the first ticks, starts and ends among them.
    for n in [5, 6, 7, 9, 12, 17, 23, 31] {
        dying("loop", n);
    }
    for n in 5..32 {
        dying("eat", n);
    }
}

#[test]
fn a_loop_is_stopped_and_on_failure_answers_for_that_call_alone() {
    for (policy, opens) in [("open", true), ("closed", false)] {
        let mut host = Host::new(chaos(), &limit(1, &format!(r#","onFailure":"{policy}""#)));
        let running = host.stream("a");
        let waiting = host.stream("b");
        // How soon: `hostile.rs`.
        let looping = host.order("c", "loop");

        assert_eq!(is_admitted(&looping), opens);
        if !opens {
            assert_eq!(denied(&looping).code, UNAVAILABLE);
        }
        let status = host.plugin.status();
        assert_eq!((status.state, status.restarts), (State::Running, 1), "it is not asked again");
        assert!(status.last_error.expect("it is told").contains("longer than 80 ms"));
        assert!(host.plugin.take_settled().is_empty());
        host.end(running.id);
        let expected = if opens { vec![] } else { vec![waiting.id] };
        assert_eq!(host.admitted(), expected, "the call that was let through counts");
        if opens {
            host.end(looping.id);
            assert_eq!(host.admitted(), [waiting.id]);
        }
    }
}

#[test]
fn a_loop_is_stopped_also_when_nothing_ran_for_a_while() {
    let mut host = Host::new(chaos(), &limit(1, ""));
    host.stream("a");
    // The clock of the epochs sleeps while no component runs.
    std::thread::sleep(std::time::Duration::from_millis(700));
    host.order("b", "loop");
    assert_eq!(host.plugin.status().restarts, 1);
}

#[test]
fn a_memory_eater_is_stopped_and_replaced() {
    let mut host = Host::new(chaos(), &limit(1, ""));
    host.stream("a");
    let waiting = host.stream("b");
    let eater = host.order("c", "eat");
    assert!(is_admitted(&eater), "asked twice, then onFailure: open");
    let status = host.plugin.status();
    assert_eq!((status.state, status.restarts, status.waiting), (State::Running, 2, 1));
    assert!(status.last_error.expect("it is told").contains("bytes of memory"));
    assert!(status.memory_bytes < 8 << 20, "{}", status.memory_bytes);
    host.end(1);
    host.end(eater.id);
    assert_eq!(host.admitted(), [waiting.id]);
}

#[test]
fn a_call_that_traps_twice_is_answered_alone() {
    let mut host = Host::new(chaos(), &limit(1, ""));
    let trapping = host.order("a", "trap");
    assert!(is_admitted(&trapping));
    let words = host.plugin.status().last_error.expect("it is told");
    assert!(words.contains("trapped on demand"), "the panic's own words: {words}");
    assert!(host.log().contains("trapped on demand"));
    assert!(is_waiting(&host.stream("b")), "it was let through and counts");
    assert_eq!(host.plugin.status().restarts, 2);
}

#[test]
fn after_too_many_restarts_open_lets_all_pass_and_counts_them_when_it_is_back() {
    let mut host = Host::new(chaos(), &limit(1, r#","maxRestarts":3"#));
    let running = host.stream("a");
    let waiting = host.stream("b");
    host.order("t1", "trap");
    host.order("t2", "trap");
    assert_eq!(host.plugin.status().state, State::FailedOpen);
    assert_eq!(host.admitted(), [waiting.id], "waiters proceed");
    assert_eq!(host.log().matches("FAILED").count(), 1);
    assert!(is_admitted(&host.stream("c")));
    assert_eq!(host.plugin.next_tick(), Some(host.now + 1_000));
    host.pass(999);
    assert_eq!(host.plugin.status().state, State::FailedOpen);
    host.pass(1);
    assert_eq!(host.plugin.status().state, State::Running);
    assert!(host.log().contains("BACK"));
    let late = host.stream("d");
    assert!(is_waiting(&late), "everybody who passed is counted");
    for id in [running.id, waiting.id, 3, 4] {
        host.end(id);
        assert!(host.admitted().is_empty());
    }
    host.end(5);
    assert_eq!(host.admitted(), [late.id]);
}

#[test]
fn after_too_many_restarts_closed_refuses_all_with_a_code_of_its_own() {
    let mut host = Host::new(chaos(), &limit(1, r#","maxRestarts":3,"onFailure":"closed""#));
    let running = host.stream("a");
    let waiting = host.stream("b");
    host.order("t1", "trap");
    host.order("t2", "trap");
    assert_eq!(host.plugin.status().state, State::FailedClosed);
    let settled = host.plugin.take_settled();
    assert_eq!((settled.len(), settled[0].id), (1, waiting.id));
    let refusal = settled[0].result.as_ref().expect_err("closed");
    assert_eq!(refusal.code, UNAVAILABLE);
    assert!(refusal.message.contains("onFailure"), "{}", refusal.message);
    assert_eq!(denied(&host.stream("c")).code, UNAVAILABLE);
    assert_eq!(host.plugin.status().live, 1, "who runs goes on");
    host.pass(1_000);
    let next = host.stream("d");
    assert!(is_waiting(&next));
    host.end(running.id);
    assert_eq!(host.admitted(), [next.id]);
}

#[test]
fn restarts_are_forgotten_after_a_minute() {
    let mut host = Host::new(chaos(), &limit(1, r#","maxRestarts":2"#));
    for _ in 0..5 {
        host.order("t", "trap");
        assert_eq!(host.plugin.status().state, State::Running);
        host.pass(60_000);
    }
    assert_eq!(host.plugin.status().restarts, 10);
}

#[test]
fn with_no_restarts_the_first_fault_decides_for_all() {
    let mut host = Host::new(chaos(), &limit(1, r#","maxRestarts":0"#));
    assert!(is_admitted(&host.order("a", "trap")));
    assert_eq!(host.plugin.status().state, State::FailedOpen);
}

/// Each instance traps in the fourth call after `configure`, which is its first tick.
const BROKEN: &str = r#","maxRestarts":2,"chaos":"trap-in:4""#;

#[test]
fn a_component_that_never_works_is_tried_after_growing_pauses() {
    let mut host = Host::new(chaos(), &limit(1, BROKEN));
    assert_eq!(host.plugin.status().state, State::FailedOpen);
    let mut pauses = Vec::new();
    for _ in 0..9 {
        let due = host.plugin.next_tick().expect("there is a next attempt");
        pauses.push(due - host.now);
        let pause = due - host.now;
        host.pass(pause);
        assert_eq!(host.plugin.status().state, State::FailedOpen);
    }
    assert_eq!(pauses, [1_000, 2_000, 4_000, 8_000, 16_000, 32_000, 60_000, 60_000, 60_000]);
}

#[test]
fn instances_that_die_again_and_again_lose_nobody() {
    for n in 4..40 {
        dying("trap", n);
    }
}

/// A history in which the n-th call after its configuration is the last of each instance, its successors included. Everybody
/// who waits is told exactly once, and nobody gives up.
fn dying(fault: &str, n: u64) {
    let mut host = Host::new(
        chaos(),
        &limit(1, &format!(r#","maxRestarts":3,"queueTimeoutMs":0,"chaos":"{fault}-in:{n}""#)),
    );
    let mut waiting = BTreeSet::new();
    let mut running = BTreeSet::new();
    for round in 0..12 {
        let started = host.stream(&format!("s{round}"));
        if is_waiting(&started) { &mut waiting } else { &mut running }.insert(started.id);
        if round % 3 == 2
            && let Some(id) = running.pop_first()
        {
            host.end(id);
        }
        if round % 4 == 3 {
            host.pass(500);
        }
        for id in host.admitted() {
            assert!(waiting.remove(&id), "call {id} did not wait, or was told twice; {fault}-in:{n}");
            running.insert(id);
        }
        let status = host.plugin.status();
        assert_eq!((status.live, status.waiting), (running.len(), waiting.len()), "{fault}-in:{n}");
    }
    while let Some(id) = running.pop_first() {
        host.end(id);
        host.pass(61_000);
        for id in host.admitted() {
            assert!(waiting.remove(&id), "call {id} did not wait, or was told twice; {fault}-in:{n}");
            running.insert(id);
        }
    }
    assert_eq!(waiting, BTreeSet::new(), "{fault}-in:{n}");
    assert!(host.plugin.status().last_error.is_some(), "{fault}-in:{n}");
}

#[test]
fn a_repaired_configuration_brings_a_failed_component_back_at_once() {
    let mut host = Host::new(chaos(), &limit(1, BROKEN));
    assert!(is_admitted(&host.stream("a")) && is_admitted(&host.stream("b")));
    let error = host.plugin.configure(
        &limit(1, r#","chaos":"trap-in:1","onFailure":"closed""#),
        Mode::Strict,
        host.now,
    );
    assert!(error.is_err());
    assert_eq!(host.plugin.status().state, State::FailedClosed, "the host reads onFailure by itself");
    host.plugin.configure(&limit(3, ""), Mode::Strict, host.now).expect("it is repaired");
    assert_eq!(host.plugin.status().state, State::Running);
    assert!(is_admitted(&host.stream("c")), "two of three seats were taken");
    assert!(is_waiting(&host.stream("d")));
}

#[test]
fn what_is_decided_under_a_configuration_that_does_not_come_into_force_lets_nobody_pass() {
    let mut failed = 0;
    for n in 1..10 {
        let mut host = Host::new(chaos(), &limit(1, ""));
        host.stream("a");
        host.stream("b");
        let armed = StreamCall { extra: vec![("chaos".into(), format!("loop-in:{n}"))], ..stream("c") };
        assert!(is_waiting(&host.plugin.start_stream(armed, host.now)));
        if host.plugin.configure(&limit(5, ""), Mode::Strict, host.now).is_err() {
            failed += 1;
            assert!(host.plugin.take_settled().is_empty(), "{n}: the limit is still 1");
            assert_eq!((host.plugin.status().live, host.plugin.status().waiting), (1, 2));
        }
    }
    assert!(failed > 1, "it failed after it had taken the configuration, too");
}

#[test]
fn nor_does_it_where_many_wait_and_what_comes_into_force_holds_for_all_of_them() {
    let mut failed = 0;
    for n in 1..10 {
        let mut host = Host::new(chaos(), &limit(1, r#","maxQueued":5000"#));
        for session in 0..1_500 {
            host.stream(&session.to_string());
        }
        let config = limit(1_000, &format!(r#","maxQueued":5000,"chaos":"trap-in:{n}""#));
        if host.plugin.configure(&config, Mode::Strict, host.now).is_err() {
            failed += 1;
            assert!(host.plugin.take_settled().is_empty(), "{n}: the limit is still 1");
            assert_eq!(host.plugin.status().live, 1);
        } else {
            host.settle_all();
            // In force, it is also what its successors fail over, until onFailure decides.
            let passed = if host.plugin.status().state == State::Running { 999 } else { 1_499 };
            assert_eq!(host.admitted().len(), passed, "{n}: the limit is 1 000");
        }
    }
    assert!((2..9).contains(&failed), "{failed}: it failed before it was in force, and after");
}

#[test]
fn a_configuration_that_traps_is_refused_and_the_last_one_stays() {
    let mut host = Host::new(chaos(), &limit(1, ""));
    host.stream("a");
    let waiting = host.stream("b");
    let error = host.plugin.configure(&limit(5, r#","chaos":"trap""#), Mode::Strict, host.now);
    assert!(error.expect_err("it traps").to_string().contains("trapped"));
    assert_eq!(host.plugin.status().state, State::Running);
    assert!(host.plugin.take_settled().is_empty(), "the limit is still 1");
    host.end(1);
    assert_eq!(host.admitted(), [waiting.id]);
}

#[test]
fn wrong_edits_are_not_charged_to_max_restarts() {
    for fault in ["trap", "loop", "eat"] {
        let mut host = Host::new(chaos(), &limit(1, r#","maxRestarts":0"#));
        host.stream("a");
        for _ in 0..3 {
            let config = limit(5, &format!(r#","chaos":"{fault}""#));
            host.plugin.configure(&config, Mode::Strict, host.now).expect_err("it is not survived");
        }
        let status = host.plugin.status();
        assert_eq!((status.state, status.restarts), (State::Running, 0), "{fault}");
        assert!(status.problems[0].message.contains("failed"), "{:?}", status.problems);
        assert!(is_waiting(&host.stream("b")), "the limit is still 1");
    }
}

#[test]
fn a_new_configuration_that_is_not_survived_among_its_calls_is_not_charged_either() {
    let mut host = Host::new(chaos(), &limit(1, r#","maxRestarts":0"#));
    host.order("a", "trap-in:1");
    host.plugin
        .configure(&limit(2, r#","maxRestarts":0"#), Mode::Strict, host.now)
        .expect("it is asked again");
    assert_eq!((host.plugin.status().state, host.plugin.status().restarts), (State::Running, 1));
    assert!(is_admitted(&host.stream("b")) && is_waiting(&host.stream("c")));
}

#[test]
fn restarts_are_counted_by_the_components_own_notion_of_an_integer() {
    for text in ["0", "0.0", "0e0", "-0.0", "0.00E3"] {
        let mut host = Host::new(chaos(), &format!(r#"{{"maxRestarts":{text}}}"#));
        host.order("a", "trap");
        assert_eq!(host.plugin.status().state, State::FailedOpen, "{text}");
    }
}

#[test]
fn a_flood_of_lines_is_cut_and_counted() {
    let mut host = Host::new(chaos(), "{}");
    host.log();
    assert!(is_admitted(&host.order("a", "flood:5000")));
    let lines = host.plugin.take_log();
    assert!(lines.len() <= 257, "{}", lines.len());
    let last = &lines[lines.len() - 1].message;
    assert!(last.contains(&format!("{} lines dropped", 5_000 - (lines.len() - 1))), "{last}");
    assert_eq!(host.plugin.status().restarts, 0);
}

#[test]
fn a_flood_does_not_crowd_out_what_the_host_has_to_say() {
    let mut host = Host::new(chaos(), r#"{"maxRestarts":0}"#);
    for n in 0..10 {
        host.order(&format!("s{n}"), "flood:5000");
    }
    host.order("t", "trap");
    let lines = host.plugin.take_log();
    assert!(lines.len() < 1_100, "{}", lines.len());
    assert!(lines[lines.len() - 1].message.contains("FAILED"));
}

#[test]
fn a_component_that_never_settles_keeps_nobody_from_leaving() {
    let mut host = Host::new(chaos(), &limit(1, ""));
    let running = host.order("a", "mute");
    let (first, second, third) = (host.stream("b"), host.stream("c"), host.stream("d"));
    host.end(running.id);
    assert!(host.plugin.take_settled().is_empty(), "it tells nobody");
    host.plugin.finish(first.id, Outcome::Cancelled, host.now);
    host.plugin.release_all(host.now);
    assert_eq!(host.admitted(), [second.id, third.id]);
}

#[test]
fn a_wait_that_the_component_does_not_end_is_ended_by_the_host() {
    let limits = Limits { wait_ms: Some(5_000), ..Limits::default() };
    let mut host = Host::with_limits(chaos(), &limit(1, r#","queueTimeoutMs":0"#), limits);
    let running = host.order("a", "mute");
    let first = host.stream("b");
    host.pass(1_000);
    let second = host.stream("c");
    assert_eq!(host.plugin.next_tick(), Some(6_000), "five seconds after the first came");
    host.pass(3_999);
    assert!(host.plugin.take_settled().is_empty());
    host.pass(1);
    let [settled] = &host.plugin.take_settled()[..] else { panic!("one wait ended") };
    let refusal = settled.result.as_ref().expect_err("it was not admitted");
    assert_eq!((settled.id, refusal.code.as_str()), (first.id, UNAVAILABLE));
    assert!(refusal.message.contains("has not decided for 5 s"), "{}", refusal.message);
    // It is any operation that ends them, and the component is told.
    host.now += 1_000;
    host.end(running.id);
    assert_eq!(host.plugin.take_settled().iter().map(|settled| settled.id).collect::<Vec<_>>(), [second.id]);
    assert_eq!((host.plugin.status().waiting, host.plugin.next_tick()), (0, None));
}

#[test]
fn thousands_of_overdue_waits_are_ended_in_portions() {
    let limits = Limits { wait_ms: Some(5_000), ..Limits::default() };
    let mut host = Host::with_limits(chaos(), &limit(1, r#","queueTimeoutMs":0,"maxQueued":10000"#), limits);
    host.order("a", "mute");
    let waiting: Vec<_> = (0..3_000).map(|n| host.stream(&format!("s{n}")).id).collect();
    host.pass(5_000);
    let first = host.plugin.take_settled();
    assert!(first.len() < waiting.len() && host.plugin.next_tick() <= Some(host.now));
    host.settle_all();
    let ended: Vec<_> =
        first.into_iter().chain(host.plugin.take_settled()).map(|settled| settled.id).collect();
    assert_eq!(ended, waiting);
}

#[test]
fn a_component_keeps_no_more_calls_waiting_than_it_may() {
    let limits = Limits { waits: 2, ..Limits::default() };
    let mut host = Host::with_limits(release(), &limit(1, ""), limits);
    let running = host.stream("a");
    let waiting = [host.stream("b").id, host.stream("c").id];
    let refused = host.stream("d");
    assert_eq!(denied(&refused).code, UNAVAILABLE);
    assert!(denied(&refused).message.contains("keeps 2 calls waiting"), "{refused:?}");
    assert_eq!(host.plugin.status().waiting, 2);
    host.end(running.id);
    assert_eq!(host.admitted(), [waiting[0]], "the one that was refused is in nobody's way");
    assert!(is_waiting(&host.stream("e")));
    host.end(waiting[0]);
    host.end(waiting[1]);
}

#[test]
fn a_child_that_may_not_wait_has_come_all_the_same() {
    let limits = Limits { waits: 0, ..Limits::default() };
    let mut host = Host::with_limits(release(), &limit(1, ""), limits);
    let spawn = host.spawn("root");
    let holder = host.stream("holder");
    host.end(spawn.id);
    let child = StreamCall { first: true, spawn: Some(spawn.id), ..stream("child") };
    let child = host.plugin.start_stream(child, host.now);
    assert_eq!(denied(&child).code, UNAVAILABLE);
    host.end(holder.id);
    host.plugin.replace(release(), host.now).expect("the same build again");
    assert!(is_admitted(&host.spawn("root")), "no successor is told of a credit that has ended");
}
