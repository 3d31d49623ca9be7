//! Where the time of a call goes, up to the addon: `cargo xtask bench layers`, which measures the rest and puts both together.
//!
//! Each layer contains the one before it. A call is a start and a finish, of a session that has no other, on a route with a limit
//! that it does not reach. One that waits comes to the end of a line of a thousand while whoever runs ends and lets the first in.

mod measure;

use std::collections::VecDeque;

use component_tests::{Host, hostile, is_admitted, is_waiting, limit, release, runtime, stream};
use gen_limit_runtime::{Chain, Limits, Mode, Options, Outcome, ProcessPool};
use measure::{Taken, each};
use serde_json::{Value, json};
use wasmtime::component::{Component, Linker, TypedFunc};
use wasmtime::{Config, Engine, Store};

/// Not optimised it measures nothing; then it is a test of what it does.
const IS_TEST: bool = cfg!(debug_assertions);
const ROUNDS: usize = if IS_TEST { 1 } else { 25 };
const CALLS: u32 = if IS_TEST { 100 } else { 10_000 };
/// So many stand in line.
const LINE: u32 = 1_000;

const SESSION: &str = "a-session-of-usual-length-0001";

/// Nobody is refused for the length of the line.
const LONG: &str = r#", "maxQueued": 100000, "maxWaiting": 100000"#;

fn main() {
    let rows = [
        ("wasmtime: one call of a component that does nothing, three numbers", nothing()),
        ("the limiter, native", native()),
        ("the runtime, with a component that admits and counts nothing", plugin(hostile(), "{}")),
        ("the runtime, with ours", plugin(release(), &limit(2, ""))),
        ("the chain, with ours alone", chain(false)),
        ("the chain, with one that admits and counts nothing before ours", chain(true)),
        ("the runtime, under a ceiling that nobody else wants", ceiling()),
        ("one that waits: the limiter, native", native_line()),
        ("one that waits: the runtime, with ours", line()),
    ];
    let told: Vec<Value> = rows
        .iter()
        .map(|(what, taken)| json!({"what": what, "best": taken.best, "median": taken.median}))
        .collect();
    println!("{}", Value::Array(told));
}

/// What wasmtime does around every call.
fn nothing() -> Taken {
    const NOTHING: &str = r#"(component
        (core module $m (func (export "f") (param i64 i64 i64)))
        (core instance $i (instantiate $m))
        (func (export "f") (param "a" u64) (param "b" u64) (param "c" u64) (canon lift (core func $i "f"))))"#;
    let mut config = Config::new();
    config.epoch_interruption(true).signals_based_traps(false).memory_guard_size(0);
    let engine = Engine::new(&config).expect("an engine");
    let component = Component::new(&engine, wat::parse_str(NOTHING).expect("a text")).expect("a component");
    let mut store = Store::new(&engine, ());
    store.set_epoch_deadline(1);
    let instance = Linker::new(&engine).instantiate(&mut store, &component).expect("an instance");
    let call: TypedFunc<(u64, u64, u64), ()> = instance.get_typed_func(&mut store, "f").expect("a function");
    each(ROUNDS, CALLS, || call.call(&mut store, (1, 2, 3)).expect("nothing"))
}

fn limiter(config: &str) -> limiter::Limiter {
    let (config, _) = limiter::config::parse(config, limiter::config::Mode::Strict).expect("it is right");
    let mut limiter = limiter::Limiter::new();
    limiter.configure(config, 1);
    limiter
}

fn call(session: String) -> limiter::StreamCall {
    let route = limiter::Route::new("p", "m");
    limiter::StreamCall { route, session: Some(session), first: false, spawn: None, within: None }
}

fn native() -> Taken {
    let mut limiter = limiter(&limit(2, ""));
    let mut id = 0;
    each(ROUNDS, CALLS, || {
        id += 1;
        assert!(matches!(limiter.start_stream(id, call(SESSION.into()), 1), limiter::Verdict::Admit));
        limiter.finish(id, limiter::Outcome::Completed, 1);
    })
}

fn native_line() -> Taken {
    let mut limiter = limiter(&limit(1, LONG));
    let come = |limiter: &mut limiter::Limiter, id| limiter.start_stream(id, call(session(id)), 1);
    (1..=u64::from(LINE) + 1).for_each(|id| drop(come(&mut limiter, id)));
    let mut first = 1;
    each(ROUNDS, CALLS, || {
        assert!(matches!(come(&mut limiter, first + u64::from(LINE) + 1), limiter::Verdict::Wait { .. }));
        limiter.finish(first, limiter::Outcome::Completed, 1);
        first += 1;
        assert!(limiter.settled().eq([(first, Ok(()))]));
    })
}

/// Nobody else's, as long as the usual one.
fn session(id: u64) -> String {
    format!("a-session-of-usual-length-{id:08}")
}

fn line() -> Taken {
    let mut host = Host::new(release(), &limit(1, LONG));
    let mut next = 0;
    let mut come = |host: &mut Host| {
        next += 1;
        host.stream(&session(next))
    };
    let mut all: VecDeque<_> = (0..=LINE).map(|_| come(&mut host).id).collect();
    each(ROUNDS, CALLS, || {
        let started = come(&mut host);
        assert!(is_waiting(&started));
        all.push_back(started.id);
        host.end(all.pop_front().expect("one runs"));
        let settled = host.plugin.take_settled();
        assert!(matches!(&settled[..], [one] if one.id == all[0] && one.result.is_ok()));
    })
}

fn plugin(component: gen_limit_runtime::Component, config: &str) -> Taken {
    calls(&mut Host::new(component, config))
}

fn calls(host: &mut Host) -> Taken {
    each(ROUNDS, CALLS, || {
        let started = host.stream(SESSION);
        assert!(is_admitted(&started));
        host.end(started.id);
    })
}

fn chain(two: bool) -> Taken {
    let options = Options { limits: Limits::default(), config: limit(2, ""), mode: Mode::Strict };
    let (mut chain, _) = Chain::new(runtime(), "gen-limit", release(), options, 1).expect("a chain");
    if two {
        chain.put("hostile", hostile(), Limits::foreign(), None, 1).expect("a plugin");
    }
    each(ROUNDS, CALLS, || {
        let started = chain.start_stream(stream(SESSION), 1);
        assert!(is_admitted(&started));
        chain.finish(started.id, Outcome::Completed, 1);
    })
}

fn ceiling() -> Taken {
    let config = r#"{"ceilings":[{"provider":"p","model":"m","max":1}]}"#;
    let pool = ProcessPool::shared();
    let mut host = Host::new(release(), config);
    host.plugin.join(pool, "tenant", host.now);
    calls(&mut host)
}
