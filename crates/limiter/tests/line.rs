//! Counting, limits and the line, one rule per test.

mod common;

use common::{Desk, NOBODY, admits, denied, desk, stream, waits};
use limiter::{
    AnyCall, Limiter, LiveCall, Outcome, Reason, SpawnCall, StatsQuery, StreamCall, Verdict, WaitingCall,
};

const THIRTY_DAYS: u64 = 30 * 24 * 3_600 * 1_000;

fn limits(max: impl std::fmt::Display, more: &str) -> String {
    format!(r#"{{"limits":[{{"provider":"p","model":"m","max":{max}}}]{more}}}"#)
}

#[test]
fn admits_at_once_with_room_and_without_a_limit() {
    let mut desk = desk(2);
    assert!(admits(&desk.call("a").1));
    assert!(admits(&desk.call("b").1));
    assert!(admits(&desk.call_on("p/other", "c").1));
    assert!(waits(&desk.call("d").1));
}

#[test]
fn a_claim_counts_before_the_next_is_looked_at() {
    let mut desk = desk(1);
    let verdicts: Vec<Verdict> = (0..8).map(|n| desk.call(&format!("s{n}")).1).collect();
    assert_eq!(verdicts.iter().filter(|verdict| admits(verdict)).count(), 1);
    assert_eq!(desk.active(), 1);
}

#[test]
fn one_seat_wakes_exactly_one() {
    let mut desk = desk(1);
    let (first, _) = desk.call("a");
    for n in 0..5 {
        assert!(waits(&desk.call(&format!("w{n}")).1));
    }
    desk.end(first);
    assert_eq!(desk.newly_admitted(), [2], "exactly one, not five");
    assert_eq!((desk.active(), desk.waiting()), (1, 4));
}

#[test]
fn the_line_is_first_in_first_out() {
    let mut desk = desk(1);
    let (mut running, _) = desk.call("a");
    let waiting: Vec<_> = (0..20).map(|n| desk.call(&format!("w{n}")).0).collect();
    let mut order = Vec::<u64>::new();
    while desk.active() > 0 {
        desk.end(running);
        let admitted = desk.newly_admitted();
        assert!(admitted.len() <= 1);
        order.extend(&admitted);
        running = admitted.first().copied().unwrap_or(running);
    }
    assert_eq!(order, waiting);
}

#[test]
fn many_short_streams_peak_at_the_limit() {
    for max in 1..=3usize {
        let mut desk = Desk::new(&limits(max, r#","queueTimeoutMs":0,"maxQueued":1000"#));
        let mut seed = 7u64;
        let mut random = move |below: u64| {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (seed >> 33) % below
        };
        let mut left = [20u32; 12];
        let mut running: Vec<(u64, usize, u64)> = Vec::new();
        let mut owner = std::collections::BTreeMap::new();
        for (session, left) in left.iter_mut().enumerate() {
            *left -= 1;
            let (id, verdict) = desk.call(&format!("s{session}"));
            owner.insert(id, session);
            if admits(&verdict) {
                running.push((id, session, desk.now + 1 + random(50)));
            }
        }
        let (mut peak, mut done) = (0usize, 0);
        while !running.is_empty() {
            let sessions: std::collections::BTreeSet<_> =
                running.iter().map(|(_, session, _)| *session).collect();
            peak = peak.max(sessions.len());
            let next = (0..running.len()).min_by_key(|at| running[*at].2).unwrap_or(0);
            let (id, session, at) = running.remove(next);
            desk.now = at;
            desk.end(id);
            done += 1;
            if left[session] > 0 {
                left[session] -= 1;
                let (id, verdict) = desk.call(&format!("s{session}"));
                owner.insert(id, session);
                if admits(&verdict) {
                    running.push((id, session, desk.now + 1 + random(50)));
                }
            }
            for id in desk.newly_admitted() {
                running.push((id, owner[&id], desk.now + 1 + random(50)));
            }
        }
        assert_eq!((peak, done), (max, 240));
    }
}

#[test]
fn overlapping_calls_of_a_session_hold_one_seat_until_the_last_ends() {
    let mut desk = desk(1);
    let (first, _) = desk.call("a");
    let (second, verdict) = desk.call("a");
    assert!(admits(&verdict), "its own seat");
    assert!(waits(&desk.call("b").1));
    desk.end(first);
    assert_eq!(desk.newly_admitted(), NOBODY, "the second call still holds the seat");
    assert_eq!(desk.scope("p/m").occupancy, 1);
    desk.end(second);
    assert_eq!(desk.newly_admitted(), [3]);
}

#[test]
fn a_call_without_a_session_is_its_own_session() {
    let mut desk = desk(2);
    assert!(admits(&desk.anonymous().1));
    assert!(admits(&desk.anonymous().1));
    assert!(waits(&desk.anonymous().1));
    assert!(waits(&desk.call("").1), "an empty session id is a session of that name");
}

#[test]
fn count_by_stream_gives_every_call_its_own_seat() {
    let mut desk = Desk::new(&limits(2, r#","countBy":"stream""#));
    let (first, _) = desk.call("a");
    assert!(admits(&desk.call("a").1));
    assert!(waits(&desk.call("a").1));
    desk.end(first);
    assert_eq!(desk.newly_admitted(), [3]);
}

#[test]
fn a_second_waiter_of_an_admitted_session_comes_with_it() {
    let mut desk = desk(1);
    let (running, _) = desk.call("a");
    let (first, _) = desk.call("b");
    let (other, _) = desk.call("c");
    let (second, _) = desk.call("b");
    desk.end(running);
    assert_eq!(desk.newly_admitted(), [first, second]);
    assert_eq!(desk.scope("p/m").occupancy, 1, "no second seat");
    desk.end(first);
    assert_eq!(desk.newly_admitted(), NOBODY, "no undercount later");
    desk.end(second);
    assert_eq!(desk.newly_admitted(), [other]);
}

#[test]
fn parked_parent_holds_no_seat() {
    let mut desk = desk(1);
    let (root, _) = desk.call("root");
    desk.end(root);
    let (spawn, verdict) = desk.spawn();
    assert!(admits(&verdict));
    let (child, verdict) = desk.child(spawn, "child");
    assert!(admits(&verdict));
    desk.end(child);
    let (spawn, _) = desk.spawn();
    let (grandchild, verdict) = desk.child(spawn, "grandchild");
    assert!(admits(&verdict), "a chain of depth 3 completes at a cap of 1");
    desk.end(grandchild);
    assert!(admits(&desk.call("child").1));
}

#[test]
fn a_limit_set_later_knows_who_runs() {
    let mut desk = Desk::new("{}");
    let running: Vec<_> = (0..5).map(|n| desk.call(&format!("s{n}")).0).collect();
    desk.configure(&limits(2, ""));
    assert!(waits(&desk.call("new").1));
    for id in &running[..3] {
        desk.end(*id);
        assert_eq!(desk.newly_admitted(), NOBODY, "nobody new until occupancy is below 2");
    }
    desk.end(running[3]);
    assert_eq!(desk.newly_admitted(), [6]);
}

#[test]
fn a_lowered_limit_stops_nobody_and_drains_one_at_a_time() {
    let mut desk = desk(3);
    let running: Vec<_> = (0..3).map(|n| desk.call(&format!("r{n}")).0).collect();
    let waiting: Vec<_> = (0..4).map(|n| desk.call(&format!("w{n}")).0).collect();
    desk.configure(&limits(1, ""));
    assert_eq!((desk.active(), desk.waiting()), (3, 4));
    desk.end(running[0]);
    desk.end(running[1]);
    assert_eq!(desk.newly_admitted(), NOBODY);
    desk.end(running[2]);
    assert_eq!(desk.newly_admitted(), waiting[..1]);
    desk.end(waiting[0]);
    assert_eq!(desk.newly_admitted(), waiting[1..2]);
}

#[test]
fn raising_removing_and_switching_off_serve_the_line_at_once() {
    for (json, expected) in [(limits(3, ""), 2), ("{}".into(), 4), (limits(-1, ""), 4)] {
        let mut desk = desk(1);
        desk.call("a");
        (0..4).for_each(|n| _ = desk.call(&format!("w{n}")));
        desk.configure(&json);
        assert_eq!(desk.newly_admitted().len(), expected, "{json}");
    }
}

#[test]
fn zero_pauses_and_the_refusal_says_so() {
    let mut desk = Desk::new(&limits(0, r#","queueTimeoutMs":1000"#));
    let (id, verdict) = desk.call("a");
    assert!(waits(&verdict));
    desk.pass(1_000);
    let Reason::Paused(ended) = &desk.refusal(id).reason else { panic!("{:?}", desk.refusal(id)) };
    assert_eq!((ended.scope.as_str(), ended.waited_ms, ended.limit), ("p/m", 1_000, 0));
    assert!(desk.refusal(id).message.contains("paused (max 0)"), "{}", desk.refusal(id));
}

#[test]
fn all_scopes_apply_together_and_seats_are_all_or_none() {
    let json = r#"{"limits":[{"provider":"p","model":"*","max":2},{"provider":"p","model":"m","max":1},
        {"provider":"*","model":"*","max":3}],
        "groups":[{"name":"g","routes":[{"provider":"q","model":"m"},{"provider":"p","model":"m"}],"max":1}]}"#;
    let mut desk = Desk::new(json);
    let (pm, _) = desk.call("a");
    assert!(waits(&desk.call_on("q/m", "b").1), "the group is full");
    assert!(
        admits(&desk.call_on("p/n", "c").1),
        "a model key does not bypass the provider's cap, and there is room"
    );
    assert!(waits(&desk.call_on("p/o", "d").1), "the provider is full");
    assert!(admits(&desk.call_on("r/m", "e").1));
    assert!(waits(&desk.call_on("r/n", "f").1), "everything is full");
    assert_eq!(desk.scope("q/m").occupancy, 0, "who waits holds nothing anywhere");
    desk.end(pm);
    assert_eq!(desk.newly_admitted(), [2], "the oldest that fits");
}

#[test]
fn who_does_not_fit_blocks_nobody_that_needs_other_scopes_only() {
    let json = r#"{"limits":[{"provider":"p","model":"m","max":1},{"provider":"p","model":"n","max":1}]}"#;
    let mut desk = Desk::new(json);
    desk.call_on("p/m", "a");
    let (n, _) = desk.call_on("p/n", "b");
    assert!(waits(&desk.call_on("p/m", "c").1));
    let (waiter, _) = desk.call_on("p/n", "d");
    desk.end(n);
    assert_eq!(desk.newly_admitted(), [waiter]);
}

#[test]
fn the_last_seat_is_kept_for_the_oldest_who_needs_it_with_others() {
    // Somebody who needs the provider and everything comes to their turn although others keep everything busy.
    let json = r#"{"limits":[{"provider":"p","model":"*","max":1},{"provider":"*","model":"*","max":1}],"maxOvertakes":2,
        "queueTimeoutMs":0}"#;
    let mut desk = Desk::new(json);
    let (q, _) = desk.call_on("q/x", "q0");
    let (old, verdict) = desk.call_on("p/m", "old");
    assert!(waits(&verdict));
    let mut running = q;
    for n in 0..5 {
        desk.call_on("q/x", &format!("q{}", n + 1));
    }
    desk.end(running);
    running = desk.newly_admitted()[0];
    assert_eq!(running, old, "it is the oldest that fits");
}

#[test]
fn a_seat_that_comes_free_is_kept_while_the_older_still_lacks_another() {
    // The group keeps its seat for the older waiter only if that one can take it; the provider comes after the group.
    let json = r#"{"limits":[{"provider":"p","model":"*","max":1}],
        "groups":[{"name":"g","routes":[{"provider":"p","model":"m"},{"provider":"q","model":"m"}],"max":1}],
        "maxOvertakes":1,"queueTimeoutMs":0}"#;
    let mut desk = Desk::new(json);
    let (provider, _) = desk.call_on("p/n", "holds the provider");
    let (old, verdict) = desk.call_on("p/m", "needs group and provider");
    assert!(waits(&verdict));
    let (one, verdict) = desk.call_on("q/m", "one younger");
    assert!(admits(&verdict), "one arrival younger may overtake");
    desk.end(one);
    let (two, verdict) = desk.call_on("q/m", "two younger");
    assert!(waits(&verdict), "two arrivals younger may not take the last seat");
    assert_eq!(desk.scope("@g").kept_for, Some(old));
    desk.end(provider);
    assert_eq!(desk.newly_admitted(), [old]);
    desk.end(old);
    assert_eq!(desk.newly_admitted(), [two]);
}

#[test]
fn a_session_that_gets_one_seat_is_looked_at_again_where_it_needs_fewer() {
    // Its second call needed the group too; now it needs the route alone, and both lists were offered at once.
    let json = r#"{"limits":[{"provider":"p","model":"b","max":1}],"groups":[
        {"name":"g","max":1,"routes":[{"provider":"p","model":"a"},{"provider":"p","model":"b"}]}]}"#;
    let mut desk = Desk::new(json);
    let (running, _) = desk.call_on("p/a", "a");
    let (first, _) = desk.call_on("p/a", "s");
    let (second, _) = desk.call_on("p/b", "s");
    desk.end(running);
    assert_eq!(desk.newly_admitted(), [first, second]);
}

#[test]
fn the_full_line_refuses_at_the_door() {
    let mut desk = Desk::new(&limits(1, r#","maxQueued":2"#));
    let (running, _) = desk.call("a");
    desk.call("b");
    desk.spawn();
    let (_, verdict) = desk.call("c");
    assert_eq!(*denied(&verdict), Reason::QueueFull { scope: "p/m".into(), waiting: 2, bound: 2 });
    let (_, verdict) = desk.call("a");
    assert!(
        admits(&verdict),
        "a call that needs nothing never waits, so a full line is none of its business"
    );
    desk.end(running);
    assert_eq!(desk.waiting(), 2, "the session still runs, the refused one has no place");
}

#[test]
fn a_line_of_length_zero_lets_nobody_wait() {
    let mut desk = Desk::new(&limits(1, r#","maxQueued":0"#));
    assert!(admits(&desk.call("a").1));
    let (_, verdict) = desk.call("b");
    assert_eq!(*denied(&verdict), Reason::QueueFull { scope: "p/m".into(), waiting: 0, bound: 0 });
}

#[test]
fn max_waiting_bounds_all_lines_together() {
    let mut desk =
        Desk::new(r#"{"limits":[{"provider":"*","model":"*","max":1}],"maxWaiting":3,"maxQueued":64}"#);
    desk.call_on("p/0", "a");
    for n in 1..=3 {
        assert!(waits(&desk.call_on(&format!("p/{n}"), "b").1));
    }
    let (_, verdict) = desk.call_on("p/4", "c");
    assert_eq!(*denied(&verdict), Reason::QueueFull { scope: "*/*".into(), waiting: 3, bound: 3 });
}

#[test]
fn zero_timeout_waits_for_ever() {
    let mut desk = Desk::new(&limits(1, r#","queueTimeoutMs":0"#));
    let (running, _) = desk.call("a");
    let (id, verdict) = desk.call("b");
    assert!(matches!(verdict, Verdict::Wait { deadline: None, .. }));
    assert_eq!(desk.limiter.tick(desk.now), None, "arms nothing");
    desk.pass(THIRTY_DAYS * 100);
    assert_eq!(desk.waiting(), 1);
    desk.end(running);
    assert_eq!(desk.newly_admitted(), [id]);
}

#[test]
fn long_timeouts_wait_that_long() {
    for timeout in [2_147_483_648, 9_999_999_999, THIRTY_DAYS, (1 << 53) - 1] {
        let mut desk = Desk::new(&limits(1, &format!(r#","queueTimeoutMs":{timeout}"#)));
        desk.call("a");
        let (id, verdict) = desk.call("b");
        assert!(matches!(verdict, Verdict::Wait { deadline: Some(at), .. } if at == desk.now + timeout));
        desk.pass(timeout - 1);
        assert_eq!(desk.waiting(), 1, "{timeout}");
        desk.pass(1);
        assert!(
            matches!(&desk.refusal(id).reason, Reason::QueueTimeout(ended) if ended.waited_ms == timeout)
        );
    }
}

#[test]
fn a_timed_out_waiter_is_gone_and_the_next_release_goes_to_a_live_one() {
    let mut desk = Desk::new(&limits(1, r#","queueTimeoutMs":100"#));
    let (running, _) = desk.call("a");
    let (late, _) = desk.call("b");
    desk.pass(60);
    let (live, _) = desk.call("c");
    desk.pass(40);
    assert!(matches!(desk.refusal(late).reason, Reason::QueueTimeout(_)));
    desk.end(running);
    assert_eq!(desk.newly_admitted(), [live]);
    desk.end(late);
    assert_eq!(desk.active(), 1, "finishing the refused one frees nothing");
}

#[test]
fn a_wait_that_is_due_ends_before_a_seat_is_freed_in_the_same_step() {
    let mut desk = Desk::new(&limits(1, r#","queueTimeoutMs":100"#));
    let (running, _) = desk.call("a");
    let (late, _) = desk.call("b");
    desk.now += 100;
    desk.end(running);
    assert!(matches!(desk.refusal(late).reason, Reason::QueueTimeout(_)));
    assert_eq!(desk.newly_admitted(), NOBODY);
}

#[test]
fn the_refusal_quotes_the_numbers_of_now() {
    let mut desk = Desk::new(&limits(3, r#","queueTimeoutMs":100"#));
    for n in 0..3 {
        desk.call(&format!("r{n}"));
    }
    let (id, _) = desk.call("w");
    desk.pass(50);
    desk.configure(&limits(1, r#","queueTimeoutMs":100"#));
    desk.end(1);
    desk.pass(50);
    let Reason::QueueTimeout(ended) = &desk.refusal(id).reason else { panic!("{:?}", desk.refusal(id)) };
    assert_eq!((ended.occupancy, ended.limit, ended.waited_ms), (2, 1, 100));
    let text = &desk.refusal(id).message;
    assert!(text.contains("2 of 1 in use") && text.contains("\"r1\""), "{text}");
}

#[test]
fn a_changed_timeout_applies_to_those_in_line() {
    let mut desk = desk(1);
    desk.call("a");
    let (id, _) = desk.call("b");
    desk.pass(500);
    desk.configure(&limits(1, r#","queueTimeoutMs":400"#));
    assert!(matches!(&desk.refusal(id).reason, Reason::QueueTimeout(ended) if ended.waited_ms == 500));
}

#[test]
fn a_changed_max_queued_evicts_nobody() {
    let mut desk = desk(1);
    let (running, _) = desk.call("a");
    (0..5).for_each(|n| _ = desk.call(&format!("w{n}")));
    desk.configure(&limits(1, r#","maxQueued":1"#));
    assert_eq!(desk.waiting(), 5);
    desk.end(running);
    assert_eq!(desk.newly_admitted(), [2]);
}

#[test]
fn a_withdrawn_head_wakes_the_next() {
    let json = r#"{"limits":[{"provider":"p","model":"*","max":1},{"provider":"*","model":"*","max":1}],"maxOvertakes":0}"#;
    let mut desk = Desk::new(json);
    let (running, _) = desk.call_on("p/m", "a");
    let (head, _) = desk.call_on("p/m", "b");
    let (next, _) = desk.call_on("q/m", "c");
    desk.cancel(head);
    desk.end(running);
    assert_eq!(desk.newly_admitted(), [next]);
    // Withdrawn while a seat is kept for it: the same step serves whom it held back.
    let json = r#"{"limits":[{"provider":"p","model":"*","max":1}],"maxOvertakes":0,"groups":[{"name":"g","max":1,
        "routes":[{"provider":"p","model":"m"},{"provider":"q","model":"m"}]}]}"#;
    let mut desk = Desk::new(json);
    desk.call_on("p/n", "a");
    let (kept_for, _) = desk.call_on("p/m", "b");
    let (held_back, verdict) = desk.call_on("q/m", "c");
    assert!(waits(&verdict));
    desk.cancel(kept_for);
    assert_eq!(desk.newly_admitted(), [held_back]);
}

#[test]
fn a_withdrawn_id_can_never_start() {
    let mut desk = desk(1);
    let (running, _) = desk.call("a");
    let ids: Vec<_> = (0..9).map(|n| desk.call(&format!("w{n}")).0).collect();
    for id in [ids[0], ids[4], ids[8]] {
        desk.cancel(id);
    }
    desk.end(running);
    let mut admitted = Vec::new();
    while let Some(id) = desk.newly_admitted().first().copied() {
        admitted.push(id);
        desk.end(id);
    }
    assert_eq!(admitted, [ids[1], ids[2], ids[3], ids[5], ids[6], ids[7]]);
    assert_eq!(desk.stats().totals.totals.cancelled, 3);
}

#[test]
fn release_is_idempotent_and_knows_two_streams_of_one_session_apart() {
    let mut desk = desk(1);
    let (first, _) = desk.call("a");
    let (second, _) = desk.call("a");
    desk.end(first);
    desk.end(first);
    desk.finish(first, Outcome::Failed);
    desk.end(9_999);
    assert_eq!(desk.scope("p/m").occupancy, 1);
    desk.end(second);
    assert_eq!(desk.scope("p/m").occupancy, 0);
}

#[test]
fn a_hundred_failures_in_a_row_leave_nothing() {
    let mut desk = desk(1);
    for n in 0..100 {
        let (id, verdict) = desk.call(&format!("s{n}"));
        assert!(admits(&verdict));
        desk.finish(id, Outcome::Failed);
    }
    assert_eq!((desk.active(), desk.scope("p/m").occupancy), (0, 0));
}

#[test]
fn a_call_that_is_older_than_its_session_s_first_in_line_goes_before_it() {
    let mut desk = Desk::new(&limits(1, r#","headStart":32"#));
    let (runs, _) = desk.call("a");
    let (first, _) = desk.start(StreamCall { session: Some("b".into()), first: true, ..stream("p/m") });
    let (begun, _) = desk.call("b");
    desk.end(runs);
    assert_eq!(desk.newly_admitted(), [begun, first]);
}

#[test]
fn a_head_start_lets_begun_sessions_go_first() {
    let mut desk = Desk::new(&limits(1, r#","headStart":32"#));
    let (running, _) = desk.call("a");
    let (fresh, _) = desk.start(StreamCall { session: Some("new".into()), first: true, ..stream("p/m") });
    let (begun, verdict) = desk.call("begun");
    assert!(matches!(verdict, Verdict::Wait { seniority: 0, .. }), "{verdict:?}");
    desk.end(running);
    assert_eq!(desk.newly_admitted(), [begun]);
    desk.end(begun);
    assert_eq!(desk.newly_admitted(), [fresh]);
}

#[test]
fn a_nested_call_ends_by_its_timeout_and_names_the_holder() {
    let mut desk = Desk::new(&limits(1, r#","queueTimeoutMs":1000"#));
    let (outer, _) = desk.call("outer");
    let (inner, verdict) =
        desk.start(StreamCall { session: Some("inner".into()), within: Some(outer), ..stream("p/m") });
    assert!(waits(&verdict));
    let warning: Vec<String> = desk.limiter.warnings().collect();
    assert!(
        warning.len() == 1 && warning[0].contains("\"inner\"") && warning[0].contains("\"outer\""),
        "{warning:?}"
    );
    desk.pass(1_000);
    assert!(matches!(desk.refusal(inner).reason, Reason::QueueTimeout(_)));
    assert!(
        desk.refusal(inner).message.contains("session \"outer\" waits for this call itself"),
        "{}",
        desk.refusal(inner)
    );
}

#[test]
fn a_nested_call_that_waits_for_ever_is_warned_of_at_once() {
    let mut desk = Desk::new(&limits(1, r#","queueTimeoutMs":0"#));
    let (outer, _) = desk.call("outer");
    desk.start(StreamCall { session: Some("inner".into()), within: Some(outer), ..stream("p/m") });
    let warning: Vec<String> = desk.limiter.warnings().collect();
    assert!(warning[0].contains("for ever"), "{warning:?}");
    assert_eq!(desk.limiter.warnings().count(), 0, "once");
}

#[test]
fn an_id_in_use_is_refused_and_changes_nothing() {
    let mut desk = desk(1);
    let (id, _) = desk.call("a");
    let verdict = desk.limiter.start_stream(id, stream("p/m"), desk.now);
    assert!(matches!(denied(&verdict), Reason::Other(Some(_))));
    assert_eq!(desk.active(), 1);
}

#[test]
fn a_step_stops_after_so_many_decisions_and_says_there_is_more() {
    let json = limits(1, r#","maxQueued":20000,"queueTimeoutMs":1000"#);
    let mut desk = Desk::new(&json);
    desk.call("a");
    for n in 0..10_000 {
        desk.call(&format!("w{n}"));
    }
    desk.now += 1_000;
    let mut steps = 0;
    while desk.limiter.tick(desk.now) == Some(desk.now) {
        assert!(desk.limiter.settled().count() <= 2_000);
        steps += 1;
    }
    desk.limiter.settled();
    assert_eq!((steps, desk.waiting()), (4, 0));
}

#[test]
fn a_removed_limit_lets_a_long_line_go_in_steps() {
    let mut desk = Desk::new(&limits(1, r#","maxQueued":20000,"queueTimeoutMs":0"#));
    desk.call("a");
    for n in 0..10_000 {
        desk.call(&format!("w{n}"));
    }
    desk.configure("{}");
    assert_eq!(desk.newly_admitted().len(), 2_000);
    assert!(admits(&desk.call("late").1), "what needs nothing never waits");
    while desk.limiter.tick(desk.now) == Some(desk.now) {}
    assert_eq!(desk.limiter.settled().count() + desk.newly_admitted().len(), 8_000);
}

#[test]
fn restore_keeps_ids_places_and_waits() {
    let mut desk = desk(1);
    let (live, _) = desk.call("a");
    let waiting: Vec<_> = (0..3).map(|n| desk.call(&format!("w{n}")).0).collect();
    let session = |name: &str| AnyCall::Stream(StreamCall { session: Some(name.into()), ..stream("p/m") });
    desk.limiter = Limiter::new();
    desk.configure(&limits(1, ""));
    desk.now += 500;
    assert!(
        desk.limiter
            .restore(
                vec![LiveCall { id: live, call: session("a"), since: 1_000, ended: None }],
                vec![],
                desk.now
            )
            .is_empty()
    );
    for (n, id) in waiting.iter().enumerate() {
        let waiter = WaitingCall { id: *id, call: session(&format!("w{n}")), since: 1_000, seniority: *id };
        let answer = desk.limiter.restore(vec![], vec![waiter], desk.now);
        assert_eq!(
            answer,
            [(*id, Verdict::Wait { deadline: Some(121_000), seniority: *id })],
            "counted from arrival"
        );
    }
    desk.end(live);
    assert_eq!(desk.newly_admitted(), waiting[..1]);
}

#[test]
fn an_id_is_in_use_while_its_call_runs_waits_or_is_remembered_and_one_that_is_not_may_be_restored() {
    let mut desk = desk(1);
    let (runs, _) = desk.call("a");
    let (waits, _) = desk.call("b");
    let call = || StreamCall { session: Some("c".into()), ..stream("p/m") };
    let in_use = Reason::Other(Some("id-in-use".into()));
    for id in [runs, waits] {
        assert_eq!(*denied(&desk.limiter.start_stream(id, call(), desk.now)), in_use);
    }
    desk.end(runs);
    desk.end(waits);
    let (spawn, _) = desk.spawn();
    assert_eq!(*denied(&desk.limiter.start_stream(spawn, call(), desk.now)), in_use);
    // A lower one than others had is new all the same.
    let live = LiveCall { id: waits, call: AnyCall::Stream(call()), since: desk.now, ended: None };
    desk.limiter.restore(vec![live], vec![], desk.now);
    assert_eq!(desk.active(), 1);
}

#[test]
fn restore_serves_before_it_ends_due_waits() {
    let mut desk = Desk::new(&limits(1, r#","queueTimeoutMs":100"#));
    desk.now += 1_000;
    let waiter = |id| WaitingCall {
        id,
        call: AnyCall::Stream(StreamCall { session: Some(format!("s{id}")), ..stream("p/m") }),
        since: 1_000,
        seniority: id,
    };
    let answers = desk.limiter.restore(vec![], vec![waiter(1), waiter(2)], desk.now);
    assert_eq!(
        answers[0],
        (1, Verdict::Admit),
        "the seat is free, so nobody is refused for a wait that was ours"
    );
    assert!(matches!(answers[1], (2, Verdict::Deny(_))));
}

#[test]
fn a_restore_answers_for_its_own_portion_and_tells_of_earlier_ones_in_the_ordinary_way() {
    let mut desk = Desk::new(r#"{"limits":[{"provider":"p","model":"m","max":0}],"queueTimeoutMs":10}"#);
    let mut restore = |id, since, now| {
        let call = AnyCall::Stream(StreamCall { session: Some(format!("s{id}")), ..stream("p/m") });
        let waiting = WaitingCall { id, call, since, seniority: id };
        let answers = desk.limiter.restore(vec![], vec![waiting], now);
        let [(answered, verdict)] = &answers[..] else { panic!("{answers:?}") };
        assert_eq!(*answered, id);
        let told: Vec<_> = desk.limiter.settled().map(|(id, result)| (id, result.is_ok())).collect();
        (waits(verdict), told)
    };
    assert_eq!(restore(1, 1_000, 1_005), (true, vec![]));
    assert_eq!(restore(2, 1_006, 1_012), (true, vec![(1, false)]), "the time of the first is up");
    assert_eq!(restore(3, 1_001, 1_013), (false, vec![]), "whose time was up before is answered, not told");
}

#[test]
fn restored_spawns_keep_their_credit_and_their_place() {
    let mut desk = desk(1);
    let spawn = SpawnCall { tool: "subagent".into(), session: None, route: Some(stream("p/m").route) };
    let live = LiveCall { id: 5, call: AnyCall::Spawn(spawn), since: desk.now, ended: None };
    desk.limiter.restore(vec![live], vec![], desk.now);
    desk.last = 5;
    assert!(waits(&desk.spawn().1), "its credit counts");
    let (_, verdict) = desk.child(5, "child");
    assert!(admits(&verdict));
}

#[test]
fn stats_show_busy_routes_only_and_every_running_stream() {
    let mut desk = Desk::new(r#"{"limits":[{"provider":"*","model":"*","max":1}],"queueTimeoutMs":100}"#);
    let (running, _) = desk.call_on("p/run", "a");
    for n in 0..1_000 {
        desk.call_on(&format!("p/{n}"), "b");
    }
    assert_eq!((desk.stats().entries.len(), desk.stats().entries_total), (500, 1_001), "a page of them");
    desk.pass(100);
    let entries = desk.stats().entries;
    assert_eq!(entries.len(), 1);
    assert_eq!((entries[0].model.as_str(), entries[0].active, entries[0].waiting), ("run", 1, 0));
    desk.end(running);
    assert!(desk.stats().entries.is_empty());
}

#[test]
fn stats_name_who_holds_who_waits_and_what_blocks() {
    let mut desk = desk(1);
    desk.call("holder");
    desk.pass(40);
    desk.call("first");
    desk.pass(10);
    desk.call("second");
    let stats = desk.stats();
    assert_eq!((stats.holders[0].session.as_deref(), stats.holders[0].held_ms), (Some("holder"), 50));
    let positions: Vec<_> =
        stats.waiters.iter().map(|w| (w.session.as_deref(), w.position, w.waited_ms)).collect();
    assert_eq!(positions, [(Some("first"), 1, 10), (Some("second"), 2, 0)]);
    let blocked = stats.waiters[0].blocked_by.as_ref();
    let blocked = blocked.map(|b| (b.scope.as_str(), b.why, b.limit, b.occupancy));
    assert_eq!(blocked, Some(("p/m", "full", 1, 1)));
}

#[test]
fn to_let_more_overtake_is_enough_for_whoever_waits_for_that_alone() {
    let json = |overtakes: u32| {
        format!(
            r#"{{"limits":[{{"provider":"p","model":"*","max":1}},{{"provider":"*","model":"*","max":1}}],
                "maxOvertakes":{overtakes}}}"#
        )
    };
    let mut desk = Desk::new(&json(0));
    desk.call_on("q/x", "runs");
    desk.call_on("p/m", "the seat of p/* is kept for it");
    let (overtakes, verdict) = desk.call_on("p/m", "runs");
    assert!(waits(&verdict));
    desk.configure(&json(0));
    assert_eq!(desk.newly_admitted(), [0; 0]);
    desk.configure(&json(9));
    assert_eq!(desk.newly_admitted(), [overtakes]);
}

#[test]
fn a_session_has_held_its_seat_since_its_first_call_without_a_gap_whatever_rows_come_meanwhile() {
    let row = r#"{"provider":"p","model":"m","max":1}"#;
    let mut desk = Desk::new(&format!(r#"{{"limits":[{row}]}}"#));
    let (first, _) = desk.call("a");
    desk.pass(500);
    desk.call("a");
    desk.end(first);
    desk.pass(500);
    desk.configure(&format!(r#"{{"limits":[{row},{{"provider":"q","model":"x","max":1}}]}}"#));
    assert_eq!(desk.stats().holders[0].held_ms, 1_000);
}

#[test]
fn nothing_follows_a_page_that_is_just_full() {
    let mut desk = Desk::new(&limits(1, r#","maxQueued":1000"#));
    desk.call("runs");
    for n in 0..500 {
        desk.call(&format!("w{n}"));
    }
    let stats = desk.stats();
    assert_eq!((stats.waiters.len(), stats.truncated), (500, false));
    desk.call("one more");
    assert!(desk.stats().truncated);
}

#[test]
fn stats_are_paged_and_counts_stay_whole() {
    let mut desk = Desk::new(&limits(1, r#","maxQueued":2000"#));
    desk.call("a");
    for n in 0..1_200 {
        desk.call(&format!("w{n}"));
    }
    let page = |offset| {
        desk.limiter
            .stats(&StatsQuery { scope: Some("p/m".into()), offset, ..StatsQuery::default() }, desk.now)
    };
    let (first, last) = (page(0), page(1_000));
    assert_eq!((first.waiters.len(), first.truncated, first.waiters_total), (500, true, 1_200));
    assert_eq!((last.waiters.len(), last.truncated, last.waiters[0].position), (200, false, 1_001));
    assert_eq!(first.scopes.iter().find(|s| s.scope == "p/m").map(|s| s.waiting), Some(1_200));
    let nobody = StatsQuery { scope: Some("q/m".into()), ..StatsQuery::default() };
    let elsewhere = desk.limiter.stats(&nobody, desk.now);
    assert_eq!((elsewhere.holders.len(), elsewhere.waiters.len()), (0, 0));
}

#[test]
fn of_some_sessions_stats_tell_those_alone_and_their_true_position() {
    let config = r#"{"limits":[{"provider":"p","model":"m","max":1},{"provider":"q","model":"*","max":1},{"provider":"idle","model":"*","max":1}],"maxQueued":3000}"#;
    let mut desk = Desk::new(config);
    desk.call("holder");
    desk.call_on("q/m", "elsewhere");
    for n in 0..1_200 {
        desk.call(&format!("w{n:04}"));
    }
    let of = |names: &[&str], offset| {
        let sessions = Some(names.iter().map(|&name| name.to_owned()).collect());
        desk.limiter.stats(&StatsQuery { sessions, offset, ..StatsQuery::default() }, desk.now)
    };
    let stats = of(&["holder", "w0700", "w1199", "unheard-of"], 0);
    let waiters: Vec<_> = stats.waiters.iter().map(|w| (w.session.as_deref(), w.position)).collect();
    assert_eq!(waiters, [(Some("w0700"), 701), (Some("w1199"), 1_200)]);
    assert_eq!((stats.holders.len(), stats.waiters_total, stats.truncated), (1, 2, false));
    assert_eq!(
        stats
            .scopes
            .iter()
            .filter(|s| s.configured)
            .map(|s| (s.scope.as_str(), s.waiting))
            .collect::<Vec<_>>(),
        [("p/m", 1_200)]
    );
    assert_eq!(stats.entries.iter().map(|e| (e.active, e.waiting)).collect::<Vec<_>>(), [(1, 1_200)]);
    assert_eq!(of(&["w0700", "w1199"], 1).waiters[0].position, 1_200, "a page of them as well");
    let nobody = of(&["unheard-of"], 0);
    assert_eq!((nobody.holders.len(), nobody.waiters.len()), (0, 0));
    assert_eq!((nobody.entries_total, nobody.scopes_total, nobody.totals.waiting), (0, 0, 1_200));
}

#[test]
fn wait_percentiles_and_mean_durations_are_counted_per_scope() {
    let mut desk = desk(1);
    let (mut running, _) = desk.call("a");
    for n in 0..4 {
        let (next, _) = desk.call(&format!("w{n}"));
        desk.pass(100);
        desk.end(running);
        running = next;
    }
    let scope = desk.scope("p/m");
    assert_eq!(scope.wait_ms.map(|waits| (waits.p50, waits.max, waits.of)), Some((100, 100, 5)));
    assert_eq!(scope.mean_call_ms, Some(100));
    assert_eq!((scope.totals.admitted, scope.totals.waited, scope.totals.max_wait_ms), (5, 4, 100));
}

#[test]
fn percentiles_are_of_the_last_1024_admissions_and_means_of_the_last_64_calls() {
    let mut desk = desk(1);
    let (mut running, _) = desk.call("a");
    // The n-th waits for n milliseconds, and then runs until the next has waited.
    for n in 1..=1_124 {
        let (next, _) = desk.call(&format!("w{n}"));
        desk.pass(n);
        desk.end(running);
        running = next;
    }
    let scope = desk.scope("p/m");
    let waits = scope.wait_ms.map(|waits| (waits.p50, waits.p95, waits.max, waits.of));
    assert_eq!(waits, Some((613, 1_073, 1_124, 1_024)), "of 101 to 1124");
    assert_eq!(scope.mean_call_ms, Some(1_092), "of 1061 to 1124");
    assert_eq!((scope.totals.admitted, scope.totals.sum_wait_ms), (1_125, 1_124 * 1_125 / 2));
}

#[test]
fn a_refusal_is_a_sentence_whatever_the_names_are() {
    let long = "\u{202e}".repeat(500_000);
    let json = r#"{"limits":[{"provider":"*","model":"*","max":1}],"queueTimeoutMs":1000,"maxQueued":1}"#;
    let mut desk = Desk::new(json);
    desk.call_on(&format!("p/{long}"), &long);
    let (waits, _) = desk.call_on(&format!("q/{long}"), "b");
    let (_, full) = desk.call_on(&format!("q/{long}"), "c");
    let Verdict::Deny(full) = full else { panic!("{full:?}") };
    desk.pass(1_000);
    for message in [&full.message, &desk.refusal(waits).message] {
        assert!(message.len() < 2_000, "{} bytes", message.len());
    }
    assert!(desk.refusal(waits).message.starts_with("Waited 1.0 s for a seat of */*. 1 of 1 in use"));
}

#[test]
fn ids_of_calls_are_taken_as_they_are() {
    let mut desk = Desk::new(r#"{"limits":[{"provider":"p","model":"m","max":1}]}"#);
    let long = "x".repeat(1_024);
    for route in ["p/m", "p/ m", "p/m\0", &format!("p/{long}a"), &format!("p/{long}b")] {
        assert!(admits(&desk.call_on(route, route).1), "{route:?} is a route of its own");
    }
    assert_eq!(desk.stats().entries.len(), 5);
    assert!(waits(&desk.call("next").1));
}
