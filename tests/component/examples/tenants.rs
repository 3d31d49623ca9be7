//! What tenants cost: a thousand instances of the component that ships, each with its own configuration, counts and limits.
//!
//! `cargo xtask bench tenants`; with `--tenants N` for another number.

use std::fs;
use std::time::{Duration, Instant};

use component_tests::{ROUTE, is_admitted, limit, release, release_path, runtime, stream};
use gen_limit_runtime::{Chain, Limits, Mode, Options, Outcome};
use wasmtime::component::{Component, Linker};
use wasmtime::{Config, Engine, Store};

/// One tenant alone and all of them are measured in turns, so that whatever else the machine does is the same for both.
const ROUNDS: usize = 15;
/// Decisions measured in each.
const DECISIONS: usize = 20_000;

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let count = arguments
        .iter()
        .position(|argument| argument == "--tenants")
        .and_then(|at| arguments.get(at + 1)?.parse().ok())
        .unwrap_or(1_000);

    // What everybody shares is made first.
    let mut alone = vec![tenant()];
    decide(&mut alone, DECISIONS);

    let before = resident();
    let (mut tenants, made) = each(count, tenant);
    let idle = resident().saturating_sub(before) / count;
    decide(&mut tenants, count);
    let used = resident().saturating_sub(before) / count;
    let rounds: Vec<[Spread; 2]> =
        (0..ROUNDS).map(|_| [decide(&mut alone, DECISIONS), decide(&mut tenants, DECISIONS)]).collect();
    let [one, many] = [0, 1].map(|which| Spread {
        p50: median(rounds.iter().map(|round| round[which].p50)),
        p99: median(rounds.iter().map(|round| round[which].p99)),
    });

    let (_bare, instantiated) = each(count, instances());
    let configured = Took {
        median: made.median.saturating_sub(instantiated.median),
        best: made.best.saturating_sub(instantiated.best),
    };

    let linear = tenants[0].status().memory_bytes;
    let ratio = many.p99.as_secs_f64() / one.p99.as_secs_f64();
    if arguments.iter().any(|argument| argument == "--json") {
        println!(
            "{}",
            serde_json::json!({
                "tenants": count,
                "instantiateUs": micros(instantiated.median),
                "instantiateBestUs": micros(instantiated.best),
                "configureUs": micros(configured.median),
                "configureBestUs": micros(configured.best),
                "idleBytes": idle,
                "residentBytes": used,
                "linearMemoryBytes": linear,
                "decision": {
                    "one": { "p50Us": micros(one.p50), "p99Us": micros(one.p99) },
                    "many": { "p50Us": micros(many.p50), "p99Us": micros(many.p99) },
                    "p99Ratio": ratio,
                },
            })
        );
    } else {
        println!("{count} tenants");
        println!("an instance alone:      median {:?} best {:?}", instantiated.median, instantiated.best);
        println!("what configuring it adds: median {:?} best {:?}", configured.median, configured.best);
        println!("resident {idle} bytes each, {used} after a call ({linear} bytes of linear memory)");
        println!("start and finish, one tenant:  p50 {:?} p99 {:?}", one.p50, one.p99);
        println!("start and finish, all in turn: p50 {:?} p99 {:?} ({ratio:.2} times)", many.p50, many.p99);
    }
}

fn tenant() -> Chain {
    let options = Options { limits: Limits::default(), config: limit(2, ""), mode: Mode::Strict };
    Chain::new(runtime(), "gen-limit", release(), options, 0).expect("a tenant").0
}

/// Makes instances and calls none of them: wasmtime's own part of what a tenant takes. What the host adds before it can call
/// one, looking up the exports and comparing their types, counts as configuring.
fn instances() -> impl FnMut() -> Store<()> {
    // Whatever of the host's settings bears on making an instance.
    let mut config = Config::new();
    config
        .epoch_interruption(true)
        .signals_based_traps(false)
        .memory_reservation(256 << 20)
        .memory_guard_size(0)
        .guard_before_linear_memory(false)
        .memory_reservation_for_growth(0);
    let engine = Engine::new(&config).expect("an engine");
    let component = Component::from_file(&engine, release_path()).expect("run `cargo xtask component`");
    let mut linker = Linker::new(&engine);
    linker.define_unknown_imports_as_traps(&component).expect("imports");
    let ready = linker.instantiate_pre(&component).expect("it can be linked");
    let make = move || {
        let mut store = Store::new(&engine, ());
        store.set_epoch_deadline(1);
        ready.instantiate(&mut store).expect("an instance");
        store
    };
    // The first of an engine prepares what all share.
    make();
    make
}

struct Took {
    median: Duration,
    best: Duration,
}

/// Makes so many of something, all of which stay, and says what one took.
fn each<T>(count: usize, mut make: impl FnMut() -> T) -> (Vec<T>, Took) {
    let (all, mut took): (Vec<T>, Vec<Duration>) = (0..count)
        .map(|_| {
            let start = Instant::now();
            (make(), start.elapsed())
        })
        .unzip();
    took.sort_unstable();
    (all, Took { median: took[count / 2], best: took[0] })
}

struct Spread {
    p50: Duration,
    p99: Duration,
}

/// Starts and finishes calls, of one tenant after the other.
fn decide(tenants: &mut [Chain], times: usize) -> Spread {
    let call = stream("a-session-of-usual-length-0001");
    assert_eq!((call.route.provider.as_str(), call.route.model.as_str()), ROUTE);
    let mut took: Vec<Duration> = (0..times)
        .map(|n| {
            let tenant = &mut tenants[n % tenants.len()];
            let call = call.clone();
            let start = Instant::now();
            let started = tenant.start_stream(call, 1);
            tenant.finish(started.id, Outcome::Completed, 1);
            let took = start.elapsed();
            assert!(is_admitted(&started));
            took
        })
        .collect();
    took.sort_unstable();
    Spread { p50: took[took.len() / 2], p99: took[took.len() * 99 / 100] }
}

fn median(times: impl Iterator<Item = Duration>) -> Duration {
    let mut times: Vec<Duration> = times.collect();
    times.sort_unstable();
    times[times.len() / 2]
}

/// Bytes of this process that are in memory.
fn resident() -> usize {
    let statm = fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let pages: usize = statm.split_whitespace().nth(1).and_then(|pages| pages.parse().ok()).unwrap_or(0);
    pages * 4_096
}

fn micros(duration: Duration) -> f64 {
    duration.as_nanos() as f64 / 1_000.0
}
