//! Ceilings: what all tenants together may not exceed, and what one of them does with the seats it was given.

mod common;

use common::{Desk, NOBODY, admits, denied, waits};
use limiter::{Grant, Need, Outcome, Reason};

/// A desk whose own limit on `p/m` is this, under a ceiling of 3.
fn under(own: i64) -> Desk {
    Desk::new(&under_three(own))
}

fn under_three(own: i64) -> String {
    format!(
        r#"{{"limits":[{{"provider":"p","model":"m","max":{own}}}],"ceilings":[{{"provider":"p","model":"m","max":3}}]}}"#
    )
}

/// The pool gives seats for a scope.
fn grant(desk: &mut Desk, scope: &str, seats: u32, contended: bool) {
    let grant = Grant { scope: scope.into(), seats, until: None, contended };
    desk.limiter.capacity(&grant, desk.now);
    desk.pass(0);
}

fn give(desk: &mut Desk, seats: u32, contended: bool) {
    grant(desk, "p/m", seats, contended);
}

fn held(desk: &Desk) -> Option<u32> {
    desk.scope("p/m").pool_seats
}

/// What changed since the last time: scope, held, occupied, wanted.
fn changed(desk: &mut Desk) -> Vec<(String, u32, u32, u32)> {
    desk.limiter
        .demand()
        .into_iter()
        .map(|need| (need.scope, need.held, need.occupied, need.wanted))
        .collect()
}

fn said(held: u32, occupied: u32, wanted: u32) -> Vec<(String, u32, u32, u32)> {
    vec![("p/m".into(), held, occupied, wanted)]
}

#[test]
fn nobody_is_admitted_without_a_seat_of_the_ceiling() {
    let mut desk = under(-1);
    let (first, verdict) = desk.call("a");
    assert!(waits(&verdict));
    assert_eq!(changed(&mut desk), said(0, 0, 1));
    give(&mut desk, 1, false);
    assert_eq!(desk.newly_admitted(), [first]);
    assert!(waits(&desk.call("b").1));
    assert_eq!(changed(&mut desk), said(1, 1, 2));
    assert_eq!(changed(&mut desk), [], "nothing changed since");
}

#[test]
fn the_least_of_own_limit_and_ceiling_holds() {
    for (own, admitted) in [(2, 2), (3, 3), (9, 3), (-1, 3)] {
        let mut desk = under(own);
        give(&mut desk, 100, false);
        let admitted_of = (0..5).filter(|n| admits(&desk.call(&format!("s{n}")).1)).count();
        assert_eq!(admitted_of, admitted, "own limit {own}");
    }
}

#[test]
fn a_ceiling_without_a_row_is_a_scope_of_its_own() {
    let mut desk = Desk::new(
        r#"{"ceilings":[{"provider":"p","model":"*","max":1},{"provider":"q","model":"m","max":-1}]}"#,
    );
    assert!(admits(&desk.call_on("q/m", "free").1), "-1 is no ceiling");
    let (first, verdict) = desk.call("a");
    assert!(waits(&verdict));
    grant(&mut desk, "p/*", 1, false);
    assert_eq!(desk.newly_admitted(), [first]);
    let scope = desk.scope("p/*");
    assert_eq!((scope.configured, scope.max, scope.ceiling, scope.pool_seats), (true, -1, Some(1), Some(1)));
    assert_eq!(desk.stats().scopes.iter().filter(|scope| scope.configured).count(), 1);
}

#[test]
fn a_need_states_the_rows_own_limit_its_pool_and_the_ceiling() {
    let mut desk = Desk::new(
        r#"{"limits":[{"provider":"p","model":"a","max":5,"pool":"gpu"},{"provider":"p","model":"b","max":-1,"pool":"gpu"}],
            "ceilings":[{"provider":"p","model":"a","max":2},{"provider":"p","model":"b","max":2}]}"#,
    );
    let need = |scope: &str, pool: Option<&str>, max| Need {
        scope: scope.into(),
        pool: pool.map(str::to_owned),
        max,
        ceiling: Some(2),
        held: 0,
        occupied: 0,
        wanted: 0,
    };
    assert_eq!(
        desk.limiter.demand(),
        [need("p/a", Some("gpu"), 5), need("p/b", None, 2)],
        "what is unlimited needs nothing of the pool that it names"
    );
}

#[test]
fn where_row_and_ceiling_count_differently_every_call_is_counted() {
    for (own, ceiling) in [("session", "stream"), ("stream", "session"), ("stream", "stream")] {
        let mut desk = Desk::new(&format!(
            r#"{{"limits":[{{"provider":"p","model":"m","max":2,"countBy":"{own}"}}],
                "ceilings":[{{"provider":"p","model":"m","max":9,"countBy":"{ceiling}"}}]}}"#
        ));
        give(&mut desk, 9, false);
        let admitted = (0..3).filter(|_| admits(&desk.call("one").1)).count();
        assert_eq!(admitted, 2, "own {own}, ceiling {ceiling}");
    }
}

#[test]
fn a_ceiling_counts_sessions_whatever_a_tenants_default_is() {
    let mut desk = Desk::new(r#"{"countBy":"stream","ceilings":[{"provider":"p","model":"m","max":1}]}"#);
    give(&mut desk, 1, false);
    assert!(admits(&desk.call("one").1) && admits(&desk.call("one").1));
    assert!(waits(&desk.call("two").1));
}

#[test]
fn while_others_wait_a_seat_goes_back_before_the_line_is_served() {
    let mut desk = under(-1);
    give(&mut desk, 2, true);
    let ids: Vec<_> = (0..4).map(|n| desk.call(&format!("s{n}")).0).collect();
    changed(&mut desk);
    desk.end(ids[0]);
    assert_eq!(desk.newly_admitted(), NOBODY, "somebody waits here too");
    assert_eq!(changed(&mut desk), said(1, 1, 3));
    give(&mut desk, 2, true);
    assert_eq!(desk.newly_admitted(), [ids[2]], "at our turn");
    give(&mut desk, 2, false);
    desk.end(ids[1]);
    assert_eq!(desk.newly_admitted(), [ids[3]], "nobody else waits: it stays");
    desk.end(ids[2]);
    desk.end(ids[3]);
    assert_eq!(held(&desk), Some(2));
}

#[test]
fn a_session_gives_its_seat_back_when_its_last_call_has_ended() {
    let mut desk = under(-1);
    give(&mut desk, 1, true);
    let (first, second) = (desk.call("a").0, desk.call("a").0);
    desk.end(first);
    assert_eq!(held(&desk), Some(1));
    desk.end(second);
    assert_eq!(held(&desk), Some(0));
    desk.end(second);
    assert_eq!(held(&desk), Some(0));
}

#[test]
fn who_ran_before_seats_were_needed_has_none_to_give_back() {
    let mut desk = Desk::new("{}");
    let ids: Vec<_> = (0..4).map(|n| desk.call(&format!("s{n}")).0).collect();
    desk.configure(&under_three(-1));
    assert_eq!(changed(&mut desk), said(0, 4, 3));
    give(&mut desk, 2, true);
    for (id, held_then) in ids.into_iter().zip([2, 2, 1, 0]) {
        desk.end(id);
        assert_eq!(held(&desk), Some(held_then));
    }
}

#[test]
fn what_is_promised_to_a_child_stays_until_it_comes_or_will_not() {
    let mut desk = under(-1);
    give(&mut desk, 2, true);
    let spawn = desk.spawn().0;
    let other = desk.call("other").0;
    assert!(waits(&desk.spawn().1));
    desk.end(other);
    assert_eq!(
        (held(&desk), desk.newly_admitted()),
        (Some(1), NOBODY.to_vec()),
        "one goes back, one is promised"
    );
    assert!(admits(&desk.child(spawn, "child").1));
}

#[test]
fn a_credit_that_nobody_comes_for_gives_its_seat_back() {
    let mut desk = under(-1);
    give(&mut desk, 3, true);
    let (first, second, third) = (desk.spawn().0, desk.spawn().0, desk.spawn().0);
    assert!(waits(&desk.spawn().1), "all are promised");
    desk.finish(first, Outcome::Failed);
    assert_eq!((held(&desk), desk.newly_admitted()), (Some(2), NOBODY.to_vec()));
    desk.child(second, "child");
    assert_eq!(held(&desk), Some(2), "the child took it");
    desk.pass(10_000);
    assert_eq!(held(&desk), Some(1), "the grace of the third has passed");
    desk.finish(third, Outcome::Failed);
    assert_eq!(held(&desk), Some(1), "once");
}

#[test]
fn seats_that_end_are_held_no_more() {
    let mut desk = under(-1);
    let until = Some(desk.now + 100);
    let lease = Grant { scope: "p/m".into(), seats: 2, until, contended: true };
    desk.limiter.capacity(&lease, desk.now);
    let first = desk.call("a").0;
    changed(&mut desk);
    desk.pass(100);
    assert_eq!(changed(&mut desk), said(0, 1, 1));
    assert!(waits(&desk.call("b").1), "nobody is admitted on seats that have ended");
    desk.end(first);
    assert_eq!((held(&desk), desk.newly_admitted()), (Some(0), NOBODY.to_vec()));
}

#[test]
fn seats_of_another_source_are_not_held_over_a_reconfiguration() {
    let mut desk = Desk::new(r#"{"limits":[{"provider":"p","model":"m","max":5,"pool":"gpu"}]}"#);
    give(&mut desk, 5, false);
    let first = desk.call("a").0;
    let row = r#"{"provider":"p","model":"m","max":5,"pool":"gpu"}"#;
    let both = format!(r#"{{"limits":[{row}],"ceilings":[{{"provider":"p","model":"m","max":3}}]}}"#);
    desk.configure(&both);
    assert_eq!(held(&desk), Some(0));
    assert!(waits(&desk.call("b").1));
    give(&mut desk, 2, false);
    desk.configure(&both.replace(r#""max":3"#, r#""max":2"#));
    assert_eq!(held(&desk), Some(2), "the same ceiling, lowered");
    desk.configure("{}");
    assert_eq!(held(&desk), None);
    desk.end(first);
}

#[test]
fn a_ceiling_of_zero_pauses_and_says_that_it_is_the_ceiling() {
    let row = |own: i64, ceiling: i64| {
        format!(
            r#"{{"limits":[{{"provider":"p","model":"m","max":{own}}}],
                "ceilings":[{{"provider":"p","model":"m","max":{ceiling}}}],"queueTimeoutMs":100}}"#
        )
    };
    let mut desk = Desk::new(&row(4, 0));
    let (id, _) = desk.call("a");
    desk.pass(100);
    let refusal = desk.refusal(id);
    assert!(matches!(refusal.reason, Reason::Paused(_)), "{refusal:?}");
    assert!(refusal.message.contains("paused for all tenants (ceiling 0)"), "{refusal}");
    let mut desk = Desk::new(&row(0, 4));
    give(&mut desk, 4, false);
    let (id, _) = desk.call("a");
    desk.pass(100);
    assert!(desk.refusal(id).message.contains("is paused (max 0)"), "{}", desk.refusal(id));
}

#[test]
fn a_refusal_says_whose_limit_blocks() {
    let row = |own: i64, more: &str| {
        format!(
            r#"{{"limits":[{{"provider":"p","model":"m","max":{own}}}],
                "ceilings":[{{"provider":"p","model":"m","max":3}}],"queueTimeoutMs":100{more}}}"#
        )
    };
    // Others hold the seats.
    let mut desk = Desk::new(&row(5, ""));
    give(&mut desk, 1, false);
    desk.call("a");
    let (id, _) = desk.call("b");
    assert_eq!(desk.stats().waiters[0].blocked_by.as_ref().map(|blocked| blocked.why), Some("pool"));
    desk.pass(100);
    let refusal = desk.refusal(id);
    assert!(matches!(&refusal.reason, Reason::NoPoolSeat(ended) if (ended.occupancy, ended.limit) == (1, 1)));
    for words in
        ["1 of the 3 seats that all tenants share (the ceiling)", "have the operator raise the ceiling"]
    {
        assert!(refusal.message.contains(words), "{refusal}");
    }
    // Of a ceiling that is no lower than the row, the row is to blame.
    let mut desk = Desk::new(&row(3, ""));
    give(&mut desk, 3, false);
    let ids = ["a", "b", "c", "d"].map(|session| desk.call(session).0);
    desk.pass(100);
    assert!(!desk.refusal(ids[3]).message.contains("ceiling"), "{}", desk.refusal(ids[3]));
    // This one holds them all.
    let mut desk = Desk::new(&row(5, ""));
    give(&mut desk, 3, false);
    for session in ["a", "b", "c"] {
        desk.call(session);
    }
    let (id, _) = desk.call("d");
    desk.pass(100);
    let refusal = desk.refusal(id);
    assert!(matches!(refusal.reason, Reason::QueueTimeout(_)), "{refusal:?}");
    for words in
        ["3 of 3 in use", "that is the ceiling over all tenants", "have the operator raise the ceiling"]
    {
        assert!(refusal.message.contains(words), "{refusal}");
    }
    // Its own limit.
    let mut desk = Desk::new(&row(1, ""));
    give(&mut desk, 3, false);
    desk.call("a");
    let (id, _) = desk.call("b");
    desk.pass(100);
    let refusal = desk.refusal(id);
    assert!(matches!(refusal.reason, Reason::QueueTimeout(_)), "{refusal:?}");
    assert!(!refusal.message.contains("ceiling") && refusal.message.contains("raise the limit"), "{refusal}");
    // At the door.
    let mut desk = Desk::new(&row(5, r#","maxQueued":0"#));
    let (_, verdict) = desk.call("a");
    assert!(matches!(denied(&verdict), Reason::QueueFull { .. }));
    let limiter::Verdict::Deny(refusal) = verdict else { unreachable!() };
    assert!(refusal.message.contains("have the operator raise the ceiling"), "{refusal}");
}

#[test]
fn seats_are_wanted_in_the_order_of_scopes() {
    let mut desk = Desk::new(
        r#"{"ceilings":[{"provider":"p","model":"m","max":1},{"provider":"*","model":"*","max":1}]}"#,
    );
    let (id, _) = desk.call("a");
    let wanted = |desk: &mut Desk| -> Vec<(String, u32)> {
        desk.limiter.demand().into_iter().map(|need| (need.scope, need.wanted)).collect()
    };
    assert_eq!(wanted(&mut desk), [("p/m".into(), 1), ("*/*".into(), 0)], "the later only with the earlier");
    grant(&mut desk, "p/m", 1, true);
    assert_eq!(wanted(&mut desk), [("p/m".into(), 1), ("*/*".into(), 1)]);
    assert_eq!(desk.newly_admitted(), NOBODY, "all or none");
    grant(&mut desk, "*/*", 1, true);
    assert_eq!(desk.newly_admitted(), [id]);
    desk.end(id);
    assert_eq!((held(&desk), desk.scope("*/*").pool_seats), (Some(0), Some(0)), "each goes back");
}

#[test]
fn stats_tell_the_rows_own_limit_and_the_ceiling() {
    let mut desk = under(9);
    give(&mut desk, 2, false);
    let scope = desk.scope("p/m");
    assert_eq!((scope.max, scope.ceiling, scope.pool_seats), (9, Some(3), Some(2)));
    let json = serde_json::to_value(&scope).expect("JSON");
    assert_eq!(json["ceiling"], 3);
    assert!(serde_json::to_value(common::desk(1).scope("p/m")).expect("JSON").get("ceiling").is_none());
}

#[test]
fn another_number_for_a_ceiling_leaves_the_seats_where_they_are() {
    let ceiling = |max: u32| format!(r#"{{"ceilings":[{{"provider":"p","model":"m","max":{max}}}]}}"#);
    let mut desk = Desk::new(&ceiling(3));
    give(&mut desk, 2, false);
    assert!(admits(&desk.call("a").1));
    assert!(admits(&desk.call("b").1));
    let (third, verdict) = desk.call("c");
    assert!(waits(&verdict));
    changed(&mut desk);
    desk.configure(&ceiling(2));
    assert_eq!(changed(&mut desk), said(2, 2, 2), "told anew, and no more than the ceiling");
    assert_eq!(desk.scope("p/m").ceiling, Some(2));
    desk.configure(&ceiling(5));
    assert_eq!(changed(&mut desk), said(2, 2, 3));
    assert_eq!(desk.newly_admitted(), NOBODY);
    give(&mut desk, 3, false);
    assert_eq!(desk.newly_admitted(), [third]);
}

#[test]
fn seats_go_where_the_source_is_another_though_the_numbers_are_the_same() {
    let row = |pool: &str, ceiling: &str| {
        format!(r#"{{"limits":[{{"provider":"p","model":"m","max":3{pool}}}],"ceilings":[{ceiling}]}}"#)
    };
    let ceiling = r#"{"provider":"p","model":"m","max":3}"#;
    let pooled = row(r#","pool":"x""#, "");
    for (other, seats) in [
        (row(r#","pool":"y""#, ""), Some(0)),
        (row("", ""), None),
        (row("", ceiling), Some(0)),
        (row(r#","pool":"x""#, ceiling), Some(0)),
    ] {
        let mut desk = Desk::new(&pooled);
        give(&mut desk, 2, false);
        desk.configure(&pooled);
        assert_eq!(held(&desk), Some(2), "the same again");
        desk.configure(&other);
        assert_eq!(held(&desk), seats, "{other}");
        give(&mut desk, 2, false);
        desk.configure(&pooled);
        assert_eq!(held(&desk), Some(0), "{other}, and back");
    }
}

#[test]
fn a_ceiling_that_comes_or_goes_is_asked_for_or_not_though_the_number_is_the_same() {
    let own = r#"{"limits":[{"provider":"p","model":"m","max":3}]}"#;
    let mut desk = Desk::new(own);
    for _ in 0..2 {
        assert_eq!((held(&desk), changed(&mut desk)), (None, vec![]));
        desk.configure(&under_three(3));
        assert_eq!((held(&desk), changed(&mut desk)), (Some(0), said(0, 0, 0)));
        give(&mut desk, 2, false);
        desk.configure(own);
    }
}

#[test]
fn a_row_that_limits_nothing_yet_gives_way_to_one_that_does() {
    let ceiling = |own: i64| under_three(own);
    let mut desk = Desk::new(&ceiling(-1));
    give(&mut desk, 3, false);
    let ids = ["a", "b", "c"].map(|session| desk.call(session).0);
    for (own, max) in [(2, 2), (-1, -1), (3, 3)] {
        desk.configure(&ceiling(own));
        assert_eq!((desk.scope("p/m").max, desk.scope("p/m").occupancy), (max, 3));
        assert_eq!(desk.limiter.demand()[0].max, if own < 0 { 3 } else { own as u32 });
    }
    for id in ids {
        desk.end(id);
    }
}

/// What `p/m` wants of its pool, by its row, beside what else is configured.
fn wanted(row: &str, more: &str, come: impl FnOnce(&mut Desk)) -> Option<u32> {
    let mut desk = Desk::new(&format!(
        r#"{{"limits":[{{"provider":"p","model":"m","max":5,"pool":"gpu"{row}}}{more}}}"#
    ));
    changed(&mut desk);
    come(&mut desk);
    changed(&mut desk).iter().find(|(scope, ..)| scope == "p/m").map(|&(.., wanted)| wanted)
}

#[test]
fn seats_are_wanted_for_every_seat_that_those_who_wait_would_take() {
    let two = |desk: &mut Desk| {
        desk.call("a");
        desk.call("a");
    };
    assert_eq!(wanted("", "]", two), Some(1), "the calls of a session share one");
    assert_eq!(wanted(r#","countBy":"stream""#, "]", two), Some(2));
    let spawns = |desk: &mut Desk| {
        desk.spawn();
        desk.spawn();
    };
    assert_eq!(wanted("", "]", spawns), Some(2));
}

#[test]
fn no_seat_is_wanted_for_whom_another_limit_blocks_unless_seats_are_kept_for_it() {
    let everything = |max: u32| format!(r#",{{"provider":"*","model":"*","max":{max}}}],"maxOvertakes":1"#);
    let one_waits = |desk: &mut Desk| {
        desk.call_on("q/x", "elsewhere");
        desk.call("waits");
    };
    assert_eq!(wanted("", &everything(2), one_waits), Some(1), "there is room beyond");
    assert_eq!(wanted("", &everything(1), one_waits), None, "there is none");
    let it_is_old = |desk: &mut Desk| {
        one_waits(desk);
        desk.call_on("q/x", "elsewhere");
        desk.call_on("q/x", "elsewhere");
    };
    assert_eq!(wanted("", &everything(1), it_is_old), Some(1), "two have come since");
    let a_young_one_behind_it = |desk: &mut Desk| {
        one_waits(desk);
        desk.call("waits too");
        desk.call_on("q/x", "elsewhere");
        desk.call_on("q/x", "elsewhere");
        desk.call("waits");
    };
    let by_stream = r#","countBy":"stream""#;
    assert_eq!(
        wanted(by_stream, &everything(1), a_young_one_behind_it),
        Some(2),
        "both old ones, not the third"
    );
}

#[test]
fn seats_that_end_do_so_whatever_rows_come_meanwhile() {
    let row = r#"{"provider":"p","model":"m","max":5,"pool":"gpu"}"#;
    let mut desk = Desk::new(&format!(r#"{{"limits":[{row}]}}"#));
    let until = Some(desk.now + 100);
    let grant = Grant { scope: "p/m".into(), seats: 2, until, contended: false };
    desk.limiter.capacity(&grant, desk.now);
    desk.configure(&format!(r#"{{"limits":[{row},{{"provider":"q","model":"x","max":1}}]}}"#));
    assert_eq!(held(&desk), Some(2));
    desk.pass(100);
    assert_eq!(held(&desk), Some(0));
}
