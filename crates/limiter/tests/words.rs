//! What whoever is refused is told: where, why, with which numbers, and what to do.

mod common;

use common::Desk;
use limiter::{Grant, Refusal, Verdict};

/// One row, or as many as are given, with a timeout of ten seconds.
fn config(limits: &str, more: &str) -> String {
    format!(r#"{{"limits":[{limits}],"queueTimeoutMs":10000{more}}}"#)
}

const ONE: &str = r#"{"provider":"p","model":"m","max":1}"#;

/// What the last of these sessions is told when its time is up.
fn told(config: &str, seats: Option<u32>, sessions: &[&str]) -> String {
    let mut desk = Desk::new(config);
    if let Some(seats) = seats {
        let grant = Grant { scope: "p/m".into(), seats, until: None, contended: false };
        desk.limiter.capacity(&grant, desk.now);
    }
    let last = sessions.iter().map(|session| desk.call(session).0).last().expect("somebody");
    desk.pass(10_000);
    desk.refusal(last).message.clone()
}

/// What is told at the door.
fn told_at_the_door(config: &str, sessions: &[&str]) -> String {
    let mut desk = Desk::new(config);
    let verdict = sessions.iter().map(|session| desk.call(session).1).last().expect("somebody");
    match verdict {
        Verdict::Deny(Refusal { message, .. }) => message,
        other => panic!("{other:?}"),
    }
}

fn ceiling(max: u32) -> String {
    format!(r#","ceilings":[{{"provider":"p","model":"m","max":{max}}}]"#)
}

#[test]
fn whose_time_is_up_is_told_what_held_the_seat_and_what_to_do() {
    let paused = r#"{"provider":"p","model":"m","max":0}"#;
    let pooled = r#"{"provider":"p","model":"m","max":5,"pool":"gpu"}"#;
    for (config, seats, sessions, expected) in [
        (
            config(ONE, ""),
            None,
            &["a", "b"][..],
            "1 of 1 in use, longest by session \"a\" for 10.0 s; nobody else is in line. Start fewer agents at once, raise \
             the limit, or raise queueTimeoutMs.",
        ),
        (
            config(paused, ""),
            None,
            &["a"],
            "p/m is paused (max 0); nobody else is in line. Set its max above 0, or to -1 for no limit, to let calls \
             through.",
        ),
        (
            config(pooled, ""),
            Some(1),
            &["a", "b"],
            "Its pool gave 1 of 5 seats; nobody else is in line. Others that share the pool hold its seats; raise max \
             everywhere, or queueTimeoutMs.",
        ),
        (
            config("", &ceiling(0)),
            None,
            &["a"],
            "p/m is paused for all tenants (ceiling 0); nobody else is in line. The operator lifts it by raising the \
             ceiling.",
        ),
        (
            config("", &ceiling(1)),
            Some(1),
            &["a", "b"],
            "1 of 1 in use, longest by session \"a\" for 10.0 s; that is the ceiling over all tenants; nobody else is in \
             line. Start fewer agents at once, have the operator raise the ceiling, or raise queueTimeoutMs.",
        ),
        (
            config("", &ceiling(2)),
            Some(1),
            &["a", "b"],
            "1 of the 2 seats that all tenants share (the ceiling) are held here, others hold the rest; nobody else is in \
             line. Start fewer agents at once, have the operator raise the ceiling, or raise queueTimeoutMs.",
        ),
    ] {
        assert_eq!(told(&config, seats, sessions), format!("Waited 10.0 s for a seat of p/m. {expected}"));
    }
}

#[test]
fn whose_time_is_up_is_told_how_many_stand_in_line_behind_it() {
    let mut desk = Desk::new(&config(ONE, ""));
    let [_, first, second] = ["a", "b", "c"].map(|session| desk.call(session).0);
    desk.pass(10_000);
    assert!(desk.refusal(first).message.contains("; 1 more in line."));
    assert!(desk.refusal(second).message.contains("; nobody else is in line."));
}

#[test]
fn a_spawn_is_told_of_seats_that_are_promised() {
    let mut desk = Desk::new(&config(r#"{"provider":"p","model":"m","max":2}"#, ""));
    desk.call("a");
    desk.spawn();
    let (waits, _) = desk.spawn();
    desk.pass(10_000);
    assert_eq!(
        desk.refusal(waits).message,
        "Waited 10.0 s for a seat of p/m. 1 of 2 in use and 1 promised to agents that are starting; nobody else is in \
         line. Start fewer agents at once, raise the limit, or raise queueTimeoutMs."
    );
}

#[test]
fn who_finds_the_line_full_is_told_which_and_what_to_do() {
    let in_use =
        "1 of 1 in use, longest by session \"a\" for 0.0 s. Start fewer agents at once, raise the limit,";
    for (config, sessions, expected) in [
        (
            config(ONE, r#","maxQueued":0"#),
            &["a", "b"][..],
            format!(
                "No seat is free for p/m, and nobody may wait for one (maxQueued is 0). {in_use} or raise maxQueued."
            ),
        ),
        (
            config(ONE, r#","maxQueued":1"#),
            &["a", "b", "c"],
            format!(
                "The line for p/m is full: 1 wait and no more than 1 may (maxQueued). {in_use} or raise maxQueued."
            ),
        ),
        (
            config(ONE, r#","maxWaiting":1"#),
            &["a", "b", "c"],
            format!(
                "The line for */* is full: 1 wait and no more than 1 may (maxWaiting). {in_use} or raise maxWaiting."
            ),
        ),
        (
            config("", &format!(r#"{},"maxQueued":0"#, ceiling(0))),
            &["a"],
            "No seat is free for p/m, and nobody may wait for one (maxQueued is 0). p/m is paused for all tenants \
             (ceiling 0). Start fewer agents at once, have the operator raise the ceiling, or raise maxQueued."
                .into(),
        ),
    ] {
        assert_eq!(told_at_the_door(&config, sessions), expected);
    }
}
