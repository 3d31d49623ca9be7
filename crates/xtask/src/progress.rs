//! What a person watching sees of slow steps.

use std::time::Instant;

/// Runs a step, with a line before it and one after it that says how long it took.
pub fn step<T>(what: &str, run: impl FnOnce() -> anyhow::Result<T>) -> anyhow::Result<T> {
    eprintln!("▸ {what}");
    let start = Instant::now();
    let result = run();
    let seconds = start.elapsed().as_secs_f32();
    let mark = if result.is_ok() { '✓' } else { '✗' };
    eprintln!("{mark} {what} ({seconds:.1} s)");
    result
}
