//! What sections share: rounds, and what is told of them.

/// What several rounds took, in nanoseconds.
pub struct Taken {
    pub best: f64,
    pub median: f64,
}

impl Taken {
    pub fn of(mut rounds: Vec<f64>) -> Self {
        rounds.sort_by(f64::total_cmp);
        Self { best: rounds[0], median: rounds[rounds.len() / 2] }
    }
}

/// What one of `times` burns of this thread's processor, in nanoseconds, in so many rounds.
pub fn each(rounds: usize, times: u32, mut run: impl FnMut()) -> Taken {
    let round = |_| {
        let begun = burnt();
        (0..times).for_each(|_| run());
        (burnt() - begun) / f64::from(times)
    };
    Taken::of((0..rounds).map(round).collect())
}

/// Nanoseconds that this thread has spent on a processor.
fn burnt() -> f64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: it is a place for the answer, and the clock is older than any Linux that Rust supports.
    unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &raw mut time) };
    time.tv_sec as f64 * 1e9 + time.tv_nsec as f64
}
