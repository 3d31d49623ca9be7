//! A plugin that does what no plugin should, beside one that behaves: it is stopped, replaced and given up, what the host holds
//! stays bounded and right, and its neighbour notices nothing.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::path::Path;

use component_tests::{Host, denied, hostile, is_admitted, is_waiting, limit, release, runtime, stream};
use gen_limit_runtime::{
    CallId, ConfigureError, Fault, Limits, LoadError, Mode, Options, Outcome, Plugin, Request, Response,
    StartError, State, UNAVAILABLE, Verdict,
};
use wit_parser::{ManglingAndAbi, Resolve};

/// Milliseconds this thread has spent on a processor. On a busy machine a wall's clock says more about the others.
fn cpu_ms() -> f64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` is a valid place for the answer.
    unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &raw mut time) };
    time.tv_sec as f64 * 1e3 + time.tv_nsec as f64 / 1e6
}

/// The middle one.
fn median(mut numbers: Vec<f64>) -> f64 {
    numbers.sort_by(f64::total_cmp);
    numbers[numbers.len() / 2]
}

/// A plugin that behaves, in the same process and on the same thread.
struct Neighbour(Host);

impl Neighbour {
    fn new() -> Self {
        let mut host = Host::new(release(), &limit(1, ""));
        host.stream("holder");
        Self(host)
    }

    /// Its limit holds, its line moves, and it has not been touched.
    fn check(&mut self) {
        let Self(host) = self;
        let first = host.stream("first");
        assert!(is_waiting(&first));
        let second = host.stream("second");
        host.plugin.finish(first.id, Outcome::Cancelled, host.now);
        assert!(host.plugin.take_settled().is_empty());
        host.plugin.finish(second.id, Outcome::Cancelled, host.now);
        let status = host.plugin.status();
        assert_eq!((status.state, status.live, status.waiting), (State::Running, 1, 0));
        assert_eq!((status.restarts, status.last_error), (0, None));
        assert!(host.plugin.take_log().is_empty());
    }
}

fn get() -> Request {
    Request { method: "GET".into(), path: "/api/hostile/x".into(), ..Request::default() }
}

/// What is answered without anybody answering for the harness; nothing if the request stays open.
fn ask(host: &mut Host, request: Request) -> Option<Response> {
    let id = host.plugin.request(request, host.now);
    let mut responses = host.plugin.take_responses();
    assert!(responses.len() <= 1);
    responses.pop().map(|(answered, response)| {
        assert_eq!(answered, id);
        response
    })
}

fn words(response: &Response) -> String {
    String::from_utf8_lossy(&response.body).into_owned()
}

fn options(config: &str, limits: Limits) -> Options {
    Options { limits, config: config.into(), mode: Mode::Strict }
}

/// Why it cannot be brought to work.
fn unstartable(config: &str, limits: Limits) -> Fault {
    match Plugin::new(runtime(), hostile(), options(config, limits), 0) {
        Err(StartError::Fault(fault)) => fault,
        Err(error) => panic!("{config}: {error}"),
        Ok(_) => panic!("{config}: it works"),
    }
}

fn foreign(config: &str) -> Host {
    Host::with_limits(hostile(), config, Limits::foreign())
}

/// What came of a history under some misbehaviour.
#[derive(Default)]
struct Told {
    states: BTreeSet<&'static str>,
    /// The dearest operation, in milliseconds of a processor.
    dearest: f64,
    admitted: usize,
    refused: usize,
}

/// Every operation again and again, while the books are kept here as well. Each wait ends once, who runs is counted, and the
/// neighbour is left alone.
fn history(host: &mut Host) -> Told {
    let mut told = Told::default();
    let mut neighbour = Neighbour::new();
    let (mut live, mut waiting) = (BTreeSet::<CallId>::new(), BTreeSet::<CallId>::new());
    for round in 0..40 {
        for operation in 0..6 {
            let before = cpu_ms();
            let started = match operation {
                0 => Some(host.stream(&format!("s{round}"))),
                1 => Some(host.spawn(&format!("s{round}"))),
                2 => {
                    host.pass(400);
                    None
                }
                3 => {
                    if let Some(id) = live.pop_first() {
                        host.end(id);
                    }
                    None
                }
                4 => {
                    if let Some(id) = waiting.pop_first() {
                        host.plugin.finish(id, Outcome::Cancelled, host.now);
                    }
                    None
                }
                _ => {
                    host.plugin.request(get(), host.now);
                    host.plugin.turn(host.now);
                    None
                }
            };
            told.dearest = told.dearest.max(cpu_ms() - before);
            match started.as_ref().map(|started| (&started.verdict, started.id)) {
                Some((Verdict::Admit, id)) => {
                    told.admitted += 1;
                    live.insert(id);
                }
                Some((Verdict::Wait { .. }, id)) => {
                    waiting.insert(id);
                }
                Some((Verdict::Deny(refusal), _)) => {
                    assert_eq!(refusal.code, UNAVAILABLE);
                    told.refused += 1;
                }
                None => {}
            }
            for settled in host.plugin.take_settled() {
                assert!(waiting.remove(&settled.id), "{} did not wait, or was told twice", settled.id);
                if settled.result.is_ok() {
                    live.insert(settled.id);
                }
            }
            let status = host.plugin.status();
            assert_eq!((status.live, status.waiting), (live.len(), waiting.len()));
            assert!(status.memory_bytes <= host.plugin.limits().memory_bytes);
            assert!(host.plugin.take_log().len() < 300);
            host.plugin.take_responses();
            told.states.insert(status.state.as_str());
        }
        neighbour.check();
    }
    told
}

const PLACES: [&str; 7] = ["start", "tool", "finish", "tool-finish", "tick", "restore", "*"];

/// One misbehaviour after the other, wherever it can come, under both policies.
fn everywhere(what: &str) {
    for place in PLACES {
        for (policy, failed) in [("open", "failed-open"), ("closed", "failed-closed")] {
            for after in [0, 1, 7] {
                let config = format!(
                    r#"{{"do":"{what}","in":"{place}","after":{after},"calls":"wait","onFailure":"{policy}","maxRestarts":3}}"#
                );
                if place == "*" && after < 7 {
                    unstartable(&config, Limits::foreign());
                    continue;
                }
                let mut host = foreign(&config);
                let told = history(&mut host);
                assert!(told.dearest <= 150.0, "{config}: {} ms", told.dearest);
                let known: BTreeSet<_> = ["running", failed].into();
                assert!(told.states.is_subset(&known), "{config}: {:?}", told.states);
                let status = host.plugin.status();
                // Nobody restores what never failed.
                assert_eq!(status.last_error.is_some(), place != "restore", "{config}: {status:?}");
                match policy {
                    "open" => assert_eq!(told.refused, 0, "{config}"),
                    _ if place == "start" && after == 0 => assert_eq!(told.admitted, 0, "{config}"),
                    _ => {}
                }
            }
        }
    }
}

#[test]
fn a_loop_anywhere_is_stopped_and_loses_nobody() {
    everywhere("loop");
}

#[test]
fn a_trap_anywhere_is_survived_and_loses_nobody() {
    everywhere("trap");
}

#[test]
fn who_eats_memory_anywhere_is_stopped_and_loses_nobody() {
    everywhere("eat");
}

#[test]
fn an_endless_recursion_anywhere_is_stopped_and_loses_nobody() {
    everywhere("recurse");
}

#[test]
fn a_loop_is_stopped_within_100_ms_and_a_foreign_one_within_50() {
    for (limits, most) in [(Limits::default(), 100.0), (Limits::foreign(), 50.0)] {
        for place in ["start", "tick", "finish"] {
            let mut neighbour = Neighbour::new();
            let (mut burnt, mut walls) = (Vec::new(), Vec::new());
            for _ in 0..7 {
                // The third tick of an instance; nothing is wrong with the first of its successor.
                let after = if place == "tick" { 2 } else { 0 };
                let config = format!(r#"{{"do":"loop","in":"{place}","after":{after},"calls":"wait"}}"#);
                let mut host = Host::with_limits(hostile(), &config, limits.clone());
                let (began, before) = (std::time::Instant::now(), cpu_ms());
                if place == "finish" {
                    let id = host.stream("a").id;
                    host.end(id);
                } else {
                    host.stream("a");
                    host.pass(1);
                }
                burnt.push(cpu_ms() - before);
                walls.push(began.elapsed().as_secs_f64() * 1e3);
                let status = host.plugin.status();
                assert_eq!((status.state, status.restarts), (State::Running, 1), "{place}: {status:?}");
                neighbour.check();
            }
            eprintln!(
                "a loop in {place} that may burn {} ms is stopped and replaced after {:.1} ms of a processor, {:.1} of a wall",
                limits.call_ms,
                median(burnt.clone()),
                median(walls)
            );
            assert!(median(burnt.clone()) <= most, "{place}: {burnt:?}");
        }
    }
}

#[test]
fn a_component_that_loops_wherever_it_is_called_gives_way_between_two_loops() {
    let config = r#"{"do":"loop","in":"*","after":6,"maxRestarts":5}"#;
    let mut dearest = Vec::new();
    for _ in 0..3 {
        let mut host = foreign(config);
        let told = history(&mut host);
        assert!(told.states.contains("failed-open"));
        dearest.push(told.dearest);
    }
    eprintln!(
        "one that loops wherever it is called blocks its caller for {:.1} ms at most",
        median(dearest.clone())
    );
    assert!(median(dearest.clone()) <= 100.0, "{dearest:?}");
}

#[test]
fn after_an_attempt_that_took_long_the_next_operations_cost_nothing() {
    let mut host = foreign(r#"{"do":"loop","in":"*","after":6,"maxRestarts":9}"#);
    let mut burnt = 0.0;
    for n in 0.. {
        assert!(n < 50, "it never loops while it is tried");
        let before = cpu_ms();
        host.stream("a");
        burnt = cpu_ms() - before;
        if host.plugin.status().state != State::Running {
            break;
        }
    }
    assert!(burnt >= 20.0, "{burnt} ms");
    let due = host.plugin.next_tick().expect("it is tried again");
    assert!(due > host.now, "others have their turn first");
    let before = cpu_ms();
    for _ in 0..20 {
        assert!(is_admitted(&host.stream("b")), "onFailure: open");
        host.plugin.tick(host.now);
    }
    assert!(cpu_ms() - before <= 10.0, "nothing is tried");
    host.now = due;
    let before = cpu_ms();
    host.plugin.tick(host.now);
    assert!(cpu_ms() - before >= 20.0 || host.plugin.status().state == State::Running, "it is tried again");
}

#[test]
fn what_loops_while_it_starts_is_refused_within_50_ms() {
    for place in ["configure", "demand", "tools", "paths"] {
        let mut burnt = Vec::new();
        for _ in 0..5 {
            let before = cpu_ms();
            let fault = unstartable(&format!(r#"{{"do":"loop","in":"{place}"}}"#), Limits::foreign());
            burnt.push(cpu_ms() - before);
            assert!(matches!(fault, Fault::Deadline { ms: 30 }), "{place}: {fault}");
        }
        assert!(median(burnt.clone()) <= 50.0, "{place}: {burnt:?}");
    }
}

#[test]
fn a_component_that_is_slow_in_every_call_of_a_start_is_stopped_like_one_that_loops() {
    // Each of ten thousand calls takes a fraction of what one may.
    let config = r#"{"needs":10000,"do":"spin","n":100,"in":"capacity"}"#;
    let mut burnt = Vec::new();
    for _ in 0..5 {
        let before = cpu_ms();
        let fault = unstartable(config, Limits::foreign());
        burnt.push(cpu_ms() - before);
        assert!(matches!(fault, Fault::Deadline { .. }), "{fault}");
    }
    assert!(median(burnt.clone()) <= 50.0, "{burnt:?}");
}

#[test]
fn ending_many_waits_of_a_slow_component_gives_way_too() {
    let limits = Limits { wait_ms: Some(1_000), ..Limits::foreign() };
    // About a millisecond for each of them.
    let config = r#"{"do":"spin","n":1000,"in":"finish","calls":"wait"}"#;
    let mut host = Host::with_limits(hostile(), config, limits);
    let ids: Vec<_> = (0..400).map(|n| host.stream(&format!("s{n}")).id).collect();
    host.now += 1_000;
    let (mut ended, mut dearest) = (Vec::new(), 0_f64);
    while host.plugin.next_tick().is_some_and(|due| due <= host.now) {
        let before = cpu_ms();
        host.plugin.tick(host.now);
        dearest = dearest.max(cpu_ms() - before);
        ended.extend(host.plugin.take_settled().into_iter().map(|settled| settled.id));
        // As a harness does, which has other things to do in between.
        host.now += 1;
    }
    assert_eq!(ended, ids, "all of them, the oldest first, each once");
    assert!(dearest <= 150.0, "{dearest} ms");
}

#[test]
fn memory_ends_where_the_limit_says() {
    for memory_bytes in [4 << 20, 32 << 20] {
        let limits = Limits { memory_bytes, ..Limits::foreign() };
        let mut host = Host::with_limits(hostile(), r#"{"do":"eat","in":"start"}"#, limits);
        assert!(is_admitted(&host.stream("a")), "asked twice, then onFailure: open");
        let words = host.plugin.status().last_error.expect("it is told");
        assert!(words.contains(&format!("more than the {memory_bytes} it may have")), "{words}");
        assert!(host.plugin.status().memory_bytes < 4 << 20);
    }
}

#[test]
fn one_that_traps_on_every_call_is_tried_after_growing_pauses() {
    for (policy, state) in [("open", State::FailedOpen), ("closed", State::FailedClosed)] {
        let mut neighbour = Neighbour::new();
        let config = format!(r#"{{"do":"trap","in":"tick","onFailure":"{policy}","maxRestarts":5}}"#);
        let mut host = foreign(&config);
        assert_eq!(host.plugin.status().state, state);
        let mut pauses = Vec::new();
        for n in 0..9 {
            let due = host.plugin.next_tick().expect("there is a next attempt");
            pauses.push(due - host.now);
            host.now = due;
            let started = host.stream(&format!("s{n}"));
            assert_eq!(host.plugin.status().state, state);
            match policy {
                "open" => assert!(is_admitted(&started)),
                _ => assert_eq!(denied(&started).code, UNAVAILABLE),
            }
            neighbour.check();
        }
        assert_eq!(pauses, [1_000, 2_000, 4_000, 8_000, 16_000, 32_000, 60_000, 60_000, 60_000]);
        let expected = if policy == "open" { 9 } else { 0 };
        assert_eq!(host.plugin.status().live, expected, "who was let through is counted");
    }
}

#[test]
fn a_flood_is_cut_in_every_call_and_every_second_and_what_was_cut_is_told() {
    let limits = Limits { log_lines_per_call: 10, log_lines_per_second: 25, ..Limits::foreign() };
    let mut host = Host::with_limits(hostile(), r#"{"do":"flood","n":1000,"in":"start"}"#, limits);
    let mut kept = Vec::new();
    let mut dropped = 0;
    let mut take = |host: &mut Host| {
        let mut lines = 0;
        for line in host.plugin.take_log() {
            match line.message.strip_prefix("the component logged too much: ") {
                Some(told) => {
                    let (number, _) = told.split_once(' ').expect("a number");
                    dropped += number.parse::<usize>().expect("a number");
                }
                None => lines += 1,
            }
        }
        lines
    };
    for second in 0..3 {
        for n in 0..5 {
            host.stream(&format!("s{second}.{n}"));
            kept.push(take(&mut host));
            host.now += 100;
        }
        assert_eq!(host.plugin.next_tick(), Some(1_000 * (second + 2)), "to say what was dropped");
        host.now = 1_000 * (second + 2);
        host.plugin.tick(host.now);
        kept.push(take(&mut host));
    }
    assert_eq!(kept, [10, 10, 5, 0, 0, 0].repeat(3));
    assert_eq!(dropped + kept.iter().sum::<usize>(), 15 * 1_000, "no line goes in silence");
    assert_eq!((host.plugin.next_tick(), host.plugin.status().restarts), (None, 0));
}

#[test]
fn a_flood_goes_on_being_cut_when_the_component_traps_in_between() {
    let limits = Limits { log_lines_per_call: 10, log_lines_per_second: 25, ..Limits::foreign() };
    let config = r#"{"do":"flood","n":20,"in":"configure","maxRestarts":50}"#;
    let mut host = Host::with_limits(hostile(), config, limits);
    for _ in 0..40 {
        host.plugin.replace(hostile(), host.now).expect("the same again");
    }
    let lines = host.plugin.take_log();
    let from_component = lines.iter().filter(|line| line.message == "x").count();
    assert_eq!(from_component, 25, "{lines:?}");
}

#[test]
fn lines_are_cut_to_their_length_and_a_call_s_to_their_sum() {
    let limits = Limits { log_line_bytes: 100, log_bytes_per_call: 1_050, ..Limits::foreign() };
    let config = r#"{"do":"flood","n":50,"line":100000,"in":"start"}"#;
    let mut host = Host::with_limits(hostile(), config, limits);
    host.stream("a");
    let lines = host.plugin.take_log();
    assert_eq!(lines.len(), 11);
    assert!(lines[..10].iter().all(|line| line.message.len() == 103), "{lines:?}");
    assert!(lines[10].message.contains("40 lines dropped"), "{lines:?}");
    let silent = Limits { log_lines_per_call: 0, ..Limits::foreign() };
    let mut host = Host::with_limits(hostile(), config, silent);
    host.stream("a");
    assert!(host.plugin.take_log()[0].message.contains("50 lines dropped"));
}

#[test]
fn waits_that_are_never_settled_end_by_the_hosts_own_bounds() {
    let limits = Limits { waits: 100, ..Limits::foreign() };
    assert_eq!(limits.wait_ms, Some(600_000), "ten minutes, unless somebody says otherwise");
    let mut neighbour = Neighbour::new();
    let mut host = Host::with_limits(hostile(), r#"{"calls":"mute"}"#, limits);
    let waiting: Vec<_> = (0..100).map(|n| host.stream(&format!("s{n}")).id).collect();
    assert_eq!(denied(&host.stream("one more")).code, UNAVAILABLE);
    assert_eq!(host.plugin.next_tick(), Some(601_000));
    host.pass(599_999);
    assert!(host.plugin.take_settled().is_empty());
    host.pass(1);
    let settled = host.plugin.take_settled();
    assert_eq!(settled.iter().map(|settled| settled.id).collect::<Vec<_>>(), waiting);
    assert!(settled.iter().all(|settled| settled.result.as_ref().is_err_and(|why| why.code == UNAVAILABLE)));
    let status = host.plugin.status();
    assert_eq!((status.live, status.waiting, status.restarts), (0, 0, 0));
    neighbour.check();
}

#[test]
fn a_million_waits_that_nobody_settles_leave_a_bounded_number() {
    let mut neighbour = Neighbour::new();
    let mut host = foreign(r#"{"calls":"mute","onFailure":"closed"}"#);
    let most = host.plugin.limits().waits;
    let (mut waiting, mut settled, mut dearest) = (0, 0, 0_f64);
    for n in 0..1_000_000 {
        let measured = n % 1_000 == 0;
        let before = if measured { cpu_ms() } else { 0.0 };
        let started = host.plugin.start_stream(stream("s"), host.now);
        if measured {
            dearest = dearest.max(cpu_ms() - before);
        }
        match started.verdict {
            Verdict::Wait { .. } => waiting += 1,
            Verdict::Deny(refusal) => assert_eq!(refusal.code, UNAVAILABLE),
            Verdict::Admit => panic!("nobody is admitted"),
        }
        settled += host.plugin.take_settled().len();
        let status = host.plugin.status();
        assert!(status.waiting <= most && status.live == 0);
        assert_eq!(status.waiting, waiting - settled);
        assert!(host.plugin.take_log().len() < 20);
        if n % 100_000 == 0 {
            neighbour.check();
            host.pass(700);
        }
    }
    assert!(waiting >= most, "{waiting}");
    assert!(host.plugin.status().memory_bytes <= 64 << 20);
    assert!(dearest < 150.0, "{dearest} ms");
}

#[test]
fn the_limit_of_handles_is_a_fault_of_the_one_who_reaches_it() {
    let mut neighbour = Neighbour::new();
    let mut host = foreign(r#"{"do":"futures","n":1000000,"in":"start","calls":"wait"}"#);
    let started = host.stream("a");
    assert!(is_admitted(&started), "asked twice, then onFailure: open");
    let status = host.plugin.status();
    assert_eq!((status.state, status.restarts, status.live), (State::Running, 2, 1));
    eprintln!("reaching the limit of handles: {:?}", status.last_error);
    neighbour.check();
    // A tenth of them is none, and goes with the instance.
    let mut host = foreign(r#"{"do":"futures","n":1600,"in":"start"}"#);
    host.stream("a");
    assert_eq!(host.plugin.status().restarts, 0);
    host.plugin.replace(hostile(), host.now).expect("the same again");
    host.stream("b");
    assert_eq!(host.plugin.status().restarts, 0);
}

#[test]
fn a_route_that_yields_for_ever_is_stopped_and_costs_no_limit() {
    let mut neighbour = Neighbour::new();
    let mut host = foreign(r#"{"route":"yield","calls":"wait","maxRestarts":0}"#);
    let waiting = host.stream("a");
    let mut burnt = Vec::new();
    for _ in 0..3 {
        let before = cpu_ms();
        assert_eq!(ask(&mut host, get()).map(|response| response.status), Some(503));
        burnt.push(cpu_ms() - before);
        neighbour.check();
    }
    eprintln!("a route that yields for ever is stopped after {:.1} ms", median(burnt.clone()));
    assert!(median(burnt.clone()) <= 50.0, "{burnt:?}");
    let status = host.plugin.status();
    assert_eq!((status.state, status.waiting), (State::Running, 1));
    let words = words(&ask(&mut host, get()).expect("an answer"));
    assert!(words.contains("too often"), "{words}");
    host.plugin.finish(waiting.id, Outcome::Cancelled, host.now);
    assert!(host.plugin.take_settled().is_empty());
}

#[test]
fn a_route_that_never_answers_is_answered_for_and_its_instance_replaced() {
    let mut neighbour = Neighbour::new();
    for route in ["hang", "ask"] {
        let config = format!(r#"{{"route":"{route}","calls":"wait","maxRestarts":0}}"#);
        let mut host = foreign(&config);
        let waiting = host.stream("a");
        assert!(ask(&mut host, get()).is_none());
        host.pass(20_000);
        assert!(ask(&mut host, get()).is_none());
        assert_eq!(host.plugin.next_tick(), Some(61_000), "a minute after the first");
        host.pass(39_999);
        assert!(host.plugin.take_responses().is_empty());
        host.pass(1);
        let statuses: Vec<_> =
            host.plugin.take_responses().into_iter().map(|(_, response)| response.status).collect();
        assert_eq!(statuses, [503, 503]);
        let status = host.plugin.status();
        assert_eq!((status.state, status.waiting), (State::Running, 1));
        assert!(status.last_error.expect("it is told").contains("was not answered within 60000 ms"));
        assert!(host.plugin.take_settled().is_empty());
        host.plugin.finish(waiting.id, Outcome::Cancelled, host.now);
        neighbour.check();
    }
}

#[test]
fn replaced_instances_that_owe_answers_are_let_go_as_well() {
    let mut host = foreign(r#"{"route":"hang"}"#);
    for _ in 0..8 {
        assert!(ask(&mut host, get()).is_none());
        host.plugin.replace(hostile(), host.now).expect("the same again");
    }
    assert_eq!(ask(&mut host, get()).map(|response| response.status), Some(503), "eight are open");
    host.pass(60_000);
    assert_eq!(host.plugin.take_responses().len(), 8);
    assert_eq!(host.plugin.status().restarts, 0, "the instance at work did nothing wrong");
    assert!(ask(&mut host, get()).is_none(), "and is asked again");
}

#[test]
fn a_response_that_is_too_large_is_not_passed_on() {
    let mut neighbour = Neighbour::new();
    let most = Limits::foreign().response_bytes;
    for (size, status) in
        [(most, 200), (most + 1, 502), (most + (1 << 19), 502), (1 << 25, 503), (1 << 31, 503)]
    {
        let mut host = foreign(&format!(r#"{{"size":{size},"maxRestarts":0}}"#));
        let response = ask(&mut host, get()).expect("an answer");
        assert_eq!(
            response.status,
            status,
            "{size}: {}",
            words(&response)[..80.min(response.body.len())].to_owned()
        );
        if status == 502 {
            assert!(words(&response).contains(&format!("more than the {most}")), "{}", words(&response));
        }
        assert_eq!(host.plugin.status().state, State::Running);
        neighbour.check();
    }
}

#[test]
fn a_request_that_is_too_large_reaches_no_component() {
    let mut host = Host::with_limits(hostile(), r#"{"do":"trap","in":"route"}"#, {
        Limits { request_bytes: 1_000, ..Limits::foreign() }
    });
    let long = |bytes: usize| "x".repeat(bytes);
    for request in [
        Request { method: long(1_001), ..get() },
        Request { path: long(1_001), ..get() },
        Request { query: long(1_001), ..get() },
        Request { headers: vec![(long(500), long(500))], ..get() },
        Request { body: long(1_000).into(), ..get() },
    ] {
        let response = ask(&mut host, request).expect("an answer");
        assert_eq!(response.status, 413);
        assert!(words(&response).contains("more than the 1000"), "{}", words(&response));
    }
    assert_eq!(host.plugin.status().last_error, None);
    assert_eq!(ask(&mut host, Request { body: long(900).into(), ..get() }).map(|r| r.status), Some(503));
}

#[test]
fn more_open_requests_than_may_be_are_answered_at_once() {
    let mut host = foreign(r#"{"route":"hang"}"#);
    let most = host.plugin.limits().open_requests;
    for _ in 0..most {
        assert!(ask(&mut host, get()).is_none());
    }
    assert_eq!(ask(&mut host, get()).map(|response| response.status), Some(503));
    assert!(is_admitted(&host.stream("a")), "hooks go on");
    let mut none = Host::with_limits(hostile(), "{}", Limits { open_requests: 0, ..Limits::foreign() });
    assert_eq!(ask(&mut none, get()).map(|response| response.status), Some(503));
}

#[test]
fn too_many_names_and_names_that_are_too_long_are_faults() {
    for (config, words) in [
        (r#"{"tools":257}"#, "names 257 tools, more than the 256"),
        (r#"{"paths":256}"#, "names 257 paths, more than the 256"),
        (r#"{"tools":1,"name":2000}"#, "one of its tools has a name of 2005 bytes, more than the 1024"),
        (r#"{"paths":1,"name":2000}"#, "one of its paths"),
        (r#"{"tools":10000000}"#, "stopped"),
        (r#"{"tools":2000,"name":1000}"#, "too much data"),
    ] {
        let fault = unstartable(config, Limits::foreign()).to_string();
        assert!(fault.contains(words), "{config}: {fault}");
    }
    assert_eq!(foreign(r#"{"tools":256,"name":1000}"#).plugin.tools().len(), 256);
}

#[test]
fn who_asks_without_end_is_told_so_and_nothing_is_queued_for_it() {
    let mut neighbour = Neighbour::new();
    for place in ["start", "route", "tick"] {
        let mut host = foreign(&format!(r#"{{"do":"ask","n":5000,"in":"{place}"}}"#));
        for n in 0..5 {
            host.stream(&format!("s{n}"));
            ask(&mut host, get());
            host.pass(1);
            let asked = host.plugin.take_asks().len();
            assert!(asked <= Limits::foreign().asks, "{place}: {asked}");
        }
        neighbour.check();
    }
    let limits = Limits { ask_bytes: 10_000, ..Limits::foreign() };
    let mut host = Host::with_limits(hostile(), r#"{"do":"ask","n":60,"in":"start"}"#, limits);
    host.stream("a");
    let bytes: usize = host.plugin.take_asks().iter().map(|ask| format!("{:?}", ask.question).len()).sum();
    assert!(bytes < 13_000, "{bytes}");
}

#[test]
fn what_a_call_may_carry_out_of_the_component_is_bounded() {
    let mut host = foreign(r#"{"calls":"deny","n":2000000}"#);
    host.stream("a");
    let words = host.plugin.status().last_error.expect("it is told");
    assert!(words.contains("too much data"), "{words}");
    let limits = Limits { copied_bytes: 4 << 20, ..Limits::foreign() };
    let mut host = Host::with_limits(hostile(), r#"{"calls":"deny","n":2000000}"#, limits);
    let refused = host.stream("a");
    let refusal = denied(&refused);
    assert_eq!(refusal.code, "HOSTILE");
    assert!(refusal.message.len() < 20_000, "and is cut to what a sentence may have");
}

#[test]
fn a_configuration_that_is_too_long_reaches_no_component() {
    let limits = Limits { config_bytes: 100, ..Limits::foreign() };
    let long = |bytes| format!("{{\"do\":\"trap\",\"in\":\"configure\"{}}}", " ".repeat(bytes));
    let error = Plugin::new(runtime(), hostile(), options(&long(100), limits.clone()), 0).err();
    assert!(matches!(error, Some(StartError::Config { .. })), "{error:?}");
    let mut host = Host::with_limits(hostile(), "{}", limits);
    let error = host.plugin.configure(&long(100), Mode::Strict, host.now).expect_err("it is too long");
    assert!(matches!(error, ConfigureError::Refused { .. }), "{error:?}");
    assert_eq!(host.plugin.status().last_error, None);
}

#[test]
fn a_restless_component_does_not_keep_its_host_busy() {
    let mut host = foreign(r#"{"restless":true}"#);
    host.stream("a");
    let mut ticks = 0;
    let end = host.now + 1_000;
    while let Some(due) = host.plugin.next_tick()
        && due <= end
    {
        host.now = due.max(host.now);
        host.plugin.tick(host.now);
        ticks += 1;
        assert!(ticks < 1_000, "there is more to do for ever");
    }
    assert!(ticks > 300, "{ticks}: a hundred of them a second, once that many had come at once");
}

#[test]
fn an_instance_may_get_other_limits_while_calls_wait() {
    let mut host = foreign(r#"{"do":"loop","in":"finish","after":1,"calls":"wait"}"#);
    let (first, second) = (host.stream("a"), host.stream("b"));
    let more = Limits { waits: 3, ..Limits::foreign() };
    host.plugin.set_limits(more.clone(), host.now).expect("it works within them");
    assert_eq!((host.plugin.limits(), host.plugin.status().waiting), (&more, 2));
    assert!(is_waiting(&host.stream("c")));
    assert_eq!(denied(&host.stream("d")).code, UNAVAILABLE);
    let less = Limits { memory_bytes: 65_536, ..more.clone() };
    assert!(matches!(host.plugin.set_limits(less, host.now), Err(StartError::Fault(Fault::Memory(_)))));
    assert_eq!((host.plugin.limits(), host.plugin.status().waiting), (&more, 3));
    for id in [first.id, second.id] {
        host.plugin.finish(id, Outcome::Cancelled, host.now);
    }
    assert_eq!(host.plugin.status().waiting, 1);
}

/// A component of the world `hooks` whose exports trap, with more in its core module.
fn dummy(more: &str) -> Vec<u8> {
    let mut resolve = Resolve::default();
    let wit = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../wit");
    let (package, _) = resolve.push_dir(wit).expect("the contract parses");
    let world = resolve.select_world(&[package], Some("hooks")).expect("the world is there");
    let module = wit_component::dummy_module(&resolve, world, ManglingAndAbi::Standard32);
    let text = wasmprinter::print_bytes(&module).expect("it prints");
    let open = text.trim_end().strip_suffix(')').expect("a module ends with a bracket");
    let mut module = wat::parse_str(format!("{open}\n{more}\n)")).expect("it is well-formed");
    let encoding = wit_component::StringEncoding::UTF8;
    wit_component::embed_component_metadata(&mut module, &resolve, world, encoding).expect("it embeds");
    let mut encoder = wit_component::ComponentEncoder::default();
    encoder.module(&module).and_then(wit_component::ComponentEncoder::encode).expect("it encodes")
}

/// What becomes of one when it is brought to work within limits.
fn started(bytes: &[u8], limits: Limits) -> Fault {
    let component = runtime().load(bytes).expect("it is of the contract");
    match Plugin::new(runtime(), component, options("{}", limits), 0) {
        Err(StartError::Fault(fault)) => fault,
        other => panic!("{:?}", other.map(drop)),
    }
}

#[test]
fn what_fails_while_it_is_instantiated_is_refused_when_it_is_loaded() {
    for (start, words) in [
        ("unreachable", "unreachable"),
        ("(loop br 0)", "longer than 30 ms"),
        ("(loop (drop (memory.grow (i32.const 16))) br 0)", "bytes of memory, more than the 268435456"),
        (
            "(loop (drop (table.grow $t (ref.null func) (i32.const 9999))) br 0)",
            "table elements, more than the 1000000",
        ),
        ("call $evil", "call stack exhausted"),
    ] {
        let bytes = dummy(&format!("(table $t 1 funcref) (func $evil {start}) (start $evil)"));
        let before = cpu_ms();
        let error = runtime().load(&bytes).expect_err(start);
        let burnt = cpu_ms() - before;
        assert!(matches!(error, LoadError::Stillborn(_)), "{error:?}");
        assert!(error.to_string().contains(words), "{start}: {error}");
        eprintln!("{start}: refused after {burnt:.0} ms, compiled and tried");
    }
}

#[test]
fn table_elements_are_counted_over_all_tables() {
    let bytes = dummy("(table 3000 funcref) (table 3000 funcref) (table 3000 funcref)");
    let words = started(&bytes, Limits { table_elements: 8_000, ..Limits::foreign() }).to_string();
    assert!(words.contains("table elements, more than the 8000"), "{words}");
    let fault = started(&bytes, Limits::foreign());
    assert!(
        fault.to_string().contains("unreachable"),
        "it is instantiated, and traps in its first call: {fault}"
    );
}

#[test]
fn memory_is_counted_over_all_memories_which_are_counted_too() {
    let memories = |count: usize, pages: usize| {
        let mut more = String::new();
        for n in 0..count {
            write!(more, "(memory $m{n} {pages})").expect("a string takes it");
        }
        dummy(&more)
    };
    let words = started(&memories(5, 300), Limits::foreign()).to_string();
    assert!(words.contains("bytes of memory, more than the 67108864"), "{words}");
    let words = started(&memories(12, 1), Limits::foreign()).to_string();
    assert!(words.contains("memory count too high"), "{words}");
    let words = started(&memories(12, 1), Limits { memories: 20, ..Limits::foreign() }).to_string();
    assert!(words.contains("unreachable"), "{words}");
}

#[test]
fn instances_and_tables_are_counted() {
    for (limits, words) in [
        (Limits { instances: 1, ..Limits::foreign() }, "instance count too high"),
        (Limits { tables: 1, ..Limits::foreign() }, "table count too high"),
    ] {
        let fault = unstartable("{}", limits).to_string();
        assert!(fault.contains(words), "{fault}");
    }
}

/// How long a neighbour's call takes, its start and its finish, in microseconds.
fn duration(neighbour: &mut Host) -> f64 {
    let before = cpu_ms();
    let started = neighbour.stream("s");
    neighbour.end(started.id);
    let took = cpu_ms() - before;
    assert!(is_admitted(&started));
    took * 1e3
}

fn p99(mut durations: Vec<f64>) -> f64 {
    durations.sort_by(f64::total_cmp);
    durations[durations.len() * 99 / 100]
}

#[test]
fn whatever_a_plugin_does_a_neighbours_calls_take_at_most_twice_as_long() {
    for (what, config) in [
        ("nothing", "{}"),
        ("10 000 waiters", r#"{"calls":"wait"}"#),
        ("loops", r#"{"do":"loop","in":"start"}"#),
        ("traps", r#"{"do":"trap","in":"start"}"#),
        ("floods", r#"{"do":"flood","n":100,"line":100,"in":"start"}"#),
        ("restless ticks", r#"{"restless":true}"#),
    ] {
        let mut good = Host::new(release(), &limit(1, ""));
        let mut evil = foreign(config);
        let mut ratios = Vec::new();
        for round in 0..10 {
            let (mut alone, mut beside) = (Vec::new(), Vec::new());
            for n in 0..1_000 {
                let began = std::time::Instant::now();
                evil.stream(&format!("t{round}.{n}"));
                evil.pass(1);
                evil.plugin.take_log();
                evil.plugin.take_settled();
                let took = began.elapsed();
                beside.push(duration(&mut good));
                // On a busy machine others had the processor meanwhile, and the caches; so it is with anything that takes time.
                let began = std::time::Instant::now();
                while began.elapsed() < took {
                    std::hint::spin_loop();
                }
                alone.push(duration(&mut good));
            }
            let (alone, beside) = (p99(alone), p99(beside));
            if round == 9 {
                eprintln!("beside {what}: p99 {beside:.1} us, alone {alone:.1} us");
            }
            ratios.push(beside / alone);
        }
        assert!(median(ratios.clone()) <= 2.0, "beside {what}: {ratios:?}");
        let status = good.plugin.status();
        assert_eq!((status.restarts, status.live, status.waiting), (0, 0, 0));
    }
}
