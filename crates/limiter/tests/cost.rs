//! What it costs: memory goes back to the base, and a call costs the same however much is configured, busy or blocked.

mod common;

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::fmt::Write;
use std::time::{Duration, Instant};

use common::{Desk, admits, desk, waits};

/// Counts this thread's bytes and allocations.
struct Counting;

thread_local! {
    static BYTES: Cell<isize> = const { Cell::new(0) };
    static COUNT: Cell<u64> = const { Cell::new(0) };
}

fn add(bytes: isize) {
    // The allocator outlives the thread's counters; what it does then is nobody's business.
    let _ = BYTES.try_with(|total| total.set(total.get() + bytes));
    let _ = COUNT.try_with(|count| count.set(count.get() + 1));
}

// SAFETY: hands everything to the system's allocator and counts beside it.
#[expect(unsafe_code, reason = "an allocator is")]
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        add(layout.size().cast_signed());
        // SAFETY: the caller's promise is passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        add(-layout.size().cast_signed());
        // SAFETY: the caller's promise is passed on.
        unsafe { System.dealloc(at, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

fn bytes() -> isize {
    BYTES.with(Cell::get)
}

/// Bytes of memory traffic are not time, but allocations per operation are exact: they show work that grows.
fn allocations(work: impl FnOnce()) -> u64 {
    let before = COUNT.with(Cell::get);
    work();
    COUNT.with(Cell::get) - before
}

#[test]
fn memory_goes_back_to_the_base_when_everybody_has_gone() {
    let mut desk = Desk::new(
        r#"{"limits":[{"provider":"*","model":"*","max":1}],"queueTimeoutMs":0,"maxQueued":200000,"maxWaiting":200000}"#,
    );
    let warm_up = desk.call_on("warm/up", "x").0;
    desk.end(warm_up);
    let base = bytes();
    for n in 0..100_000 {
        desk.call_on(&format!("p/{}", n % 1_000), &format!("session {n}"));
    }
    let full = bytes() - base;
    assert!(full > 10_000_000, "it does hold them: {full}");
    for id in (2..=100_001).rev() {
        desk.cancel(id);
    }
    desk.admitted = Vec::new();
    let left = bytes() - base;
    println!("{} bytes per waiter, {left} left", full / 100_000);
    assert!(left < 64 * 1024, "{left} bytes are left of {full}");
}

#[test]
fn room_for_thousands_who_held_seats_goes_back_too() {
    let mut desk = desk(200_000);
    let (warm_up, _) = desk.call("x");
    desk.end(warm_up);
    let base = bytes();
    for n in 0..20_000 {
        desk.call(&format!("session {n}"));
    }
    for id in 2..=20_001 {
        desk.end(id);
    }
    let left = bytes() - base;
    assert!(left < 16 * 1024, "{left} bytes are left");
}

#[test]
fn of_a_hundred_thousand_idle_sessions_and_routes_no_more_than_a_few_routes_stay() {
    let mut desk = Desk::new("{}");
    let once = desk.call_on("p/0", "s").0;
    desk.end(once);
    let base = bytes();
    for n in 0..100_000 {
        let (id, _) = desk.call_on(&format!("p/{n}"), &format!("session {n}"));
        desk.end(id);
    }
    let left = bytes() - base;
    assert!(left < 16 * 1024, "{left} bytes are left");
}

#[test]
fn ten_thousand_rows_cost_a_call_nothing() {
    let mut rows = String::from(r#"{"limits":[{"provider":"p","model":"m","max":1}"#);
    let few = Desk::new(&format!("{rows}]}}"));
    for n in 0..10_000 {
        let _ = write!(rows, r#",{{"provider":"p{n}","model":"m","max":1}}"#);
    }
    rows.push_str("]}");
    let cost = |mut desk: Desk| {
        let run = |desk: &mut Desk| {
            let (runs, _) = desk.call("a");
            let (waiter, _) = desk.call("b");
            desk.end(runs);
            desk.end(waiter);
        };
        run(&mut desk);
        allocations(|| run(&mut desk))
    };
    assert_eq!(cost(few), cost(Desk::new(&rows)));

    // Work that allocates nothing shows in time: ten thousand rows looked at would be a factor of hundreds.
    let time = |json: &str| {
        let mut desk = Desk::new(json);
        let mut fastest = Duration::MAX;
        for _ in 0..5 {
            let begun = Instant::now();
            for _ in 0..1_000 {
                let (id, _) = desk.call("a");
                desk.end(id);
            }
            fastest = fastest.min(begun.elapsed());
        }
        fastest
    };
    let (one, many) = (time(r#"{"limits":[{"provider":"p","model":"m","max":1}]}"#), time(&rows));
    assert!(many < 4 * one, "{one:?} with one row, {many:?} with 10 001");
}

#[test]
fn blocked_waiters_of_other_routes_cost_a_release_nothing() {
    let cost = |blocked: usize| {
        let json = r#"{"limits":[{"provider":"b","model":"*","max":0},{"provider":"p","model":"m","max":1}],
            "queueTimeoutMs":0,"maxWaiting":200000}"#;
        let mut desk = Desk::new(json);
        for n in 0..blocked {
            assert!(waits(&desk.call_on(&format!("b/{n}"), &format!("s{n}")).1));
        }
        let mut running = desk.call("a").0;
        for n in 0..40 {
            desk.call(&format!("w{n}"));
        }
        desk.admitted.reserve(64);
        let allocations = allocations(|| {
            for _ in 0..40 {
                desk.end(running);
                running = desk.admitted.pop().expect("the next");
            }
        });
        assert!(admits(&desk.call_on("q/x", "y").1));
        allocations
    };
    let (few, many) = (cost(10), cost(20_000));
    assert!(many <= few + few / 5, "{few} allocations with 10 blocked waiters, {many} with 20 000");
}

#[test]
fn a_call_that_never_waits_makes_no_line() {
    let mut desk = desk(8);
    let (warm, _) = desk.call("a");
    desk.end(warm);
    let with_room = allocations(|| {
        let (id, _) = desk.call("a");
        desk.end(id);
    });
    let mut unlimited = Desk::new("{}");
    let (warm, _) = unlimited.call("a");
    unlimited.end(warm);
    let free = allocations(|| {
        let (id, _) = unlimited.call("a");
        unlimited.end(id);
    });
    assert!(with_room <= free + 4, "{with_room} allocations against {free}");
}

#[test]
fn a_call_on_a_route_that_was_used_before_makes_no_scopes() {
    let mut desk = desk(8);
    let run = |desk: &mut Desk| {
        let (id, _) = desk.call("a");
        desk.end(id);
    };
    run(&mut desk);
    let taken = allocations(|| run(&mut desk));
    // Taken and given back: the three strings of the call, the session and its place, the call's.
    assert!(taken <= 14, "{taken} allocations");
}

#[test]
fn a_change_of_numbers_costs_the_same_however_many_wait() {
    let config = |max: u32, timeout: u32| {
        format!(
            r#"{{"limits":[{{"provider":"p","model":"m","max":{max}}}],"queueTimeoutMs":{timeout},"maxQueued":200000,"maxWaiting":200000}}"#
        )
    };
    let cost = |waiting: usize| {
        let mut desk = Desk::new(&config(2, 10));
        for n in 0..waiting {
            desk.call(&format!("s{n}"));
        }
        desk.admitted.reserve(8);
        [config(2, 10), config(2, 20), config(1, 20), config(3, 20)]
            .map(|config| allocations(|| desk.configure(&config)))
    };
    let (few, many) = (cost(10), cost(10_000));
    assert!(
        many.iter().zip(few).all(|(many, few)| *many <= few + 8),
        "{few:?} with 10, {many:?} with 10 000"
    );
}

#[test]
fn thousands_whose_time_is_up_cost_no_more_where_thousands_hold_seats() {
    let time = |seats: usize| {
        let json = format!(
            r#"{{"limits":[{{"provider":"p","model":"m","max":{seats}}}],"queueTimeoutMs":10,"maxQueued":200000,"maxWaiting":200000}}"#
        );
        let mut fastest = Duration::MAX;
        for _ in 0..5 {
            let mut desk = Desk::new(&json);
            for n in 0..seats + 2_000 {
                desk.call(&format!("s{n}"));
            }
            let begun = Instant::now();
            desk.pass(10);
            fastest = fastest.min(begun.elapsed());
            assert_eq!(desk.refused.len(), 2_000);
        }
        fastest
    };
    let (few, many) = (time(10), time(10_000));
    assert!(many < 4 * few, "{few:?} where 10 hold seats, {many:?} where 10 000 do");
}
