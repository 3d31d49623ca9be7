//! The proofs that take longer than a test may: `cargo xtask prove`.
//!
//! What was covered goes to stdout, a line for each world or history; times are this process's own processor time.

use std::process::ExitCode;
use std::time::Duration;

use model::{Native, Plan, Size, explore, long, worlds};

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match arguments.as_slice() {
        ["exhaustive"] => exhaustive(""),
        ["exhaustive", name] => exhaustive(name),
        ["random"] => random(10_000_000, 1),
        ["random", steps, seed] => match (steps.parse(), seed.parse()) {
            (Ok(steps), Ok(seed)) => random(steps, seed),
            _ => usage(),
        },
        _ => usage(),
    }
}

fn usage() -> ExitCode {
    eprintln!("usage: prove exhaustive [WORLD] | random [STEPS SEED]");
    ExitCode::FAILURE
}

fn exhaustive(name: &str) -> ExitCode {
    let (mut states, mut transitions) = (0, 0);
    for world in worlds(Size::Whole).into_iter().filter(|world| world.name.contains(name)) {
        let before = processor();
        match explore(&world, Native::default()) {
            Ok(covered) => {
                let seconds = processor().saturating_sub(before).as_secs_f32();
                let (s, t) = (covered.states, covered.transitions);
                println!("{}: {s} states, {t} transitions, {seconds:.1} s", world.name);
                (states, transitions) = (states + s, transitions + t);
            }
            Err(violation) => {
                println!("{}: VIOLATED: {violation}", world.name);
                return ExitCode::FAILURE;
            }
        }
    }
    let seconds = processor().as_secs_f32();
    println!("in all: {states} states, {transitions} transitions, {seconds:.1} s");
    ExitCode::SUCCESS
}

fn random(steps: u64, seed: u64) -> ExitCode {
    const LENGTH: u64 = 100_000;
    let mut waited = 0;
    for history in 0..steps.div_ceil(LENGTH) {
        let length = LENGTH.min(steps - history * LENGTH);
        waited += long(Native::default(), Plan { steps: length, ..Plan::large(seed + history) }).0;
    }
    let seconds = processor().as_secs_f32();
    println!("{steps} steps in histories of {LENGTH}, from seed {seed}, {waited} waited, {seconds:.1} s");
    ExitCode::SUCCESS
}

/// How long this process has worked, where the system tells; what has passed, elsewhere.
fn processor() -> Duration {
    use std::sync::LazyLock;
    use std::time::Instant;
    static START: LazyLock<Instant> = LazyLock::new(Instant::now);
    let passed = START.elapsed();
    let told = std::fs::read_to_string("/proc/self/schedstat").ok();
    let nanoseconds = told.and_then(|told| told.split_whitespace().next()?.parse().ok());
    nanoseconds.map_or(passed, Duration::from_nanos)
}
