//! The two clocks the host reads, so that plugins need none.

use crate::Instant;

/// Milliseconds since the machine started, sleep included: the `now` of every operation.
///
/// On systems without `CLOCK_BOOTTIME`: since the first call in this process.
pub fn boottime_ms() -> Instant {
    #[cfg(target_os = "linux")]
    {
        read(libc::CLOCK_BOOTTIME)
    }
    #[cfg(not(target_os = "linux"))]
    {
        use std::sync::LazyLock;
        static START: LazyLock<std::time::Instant> = LazyLock::new(std::time::Instant::now);
        START.elapsed().as_millis() as Instant
    }
}

/// Milliseconds this thread has spent on a processor; those of a wall clock where the system cannot tell.
pub(crate) fn thread_cpu_ms() -> u64 {
    #[cfg(unix)]
    {
        read(libc::CLOCK_THREAD_CPUTIME_ID)
    }
    #[cfg(not(unix))]
    {
        boottime_ms()
    }
}

/// The same clock in nanoseconds, so fine that it gives processes of a machine an order.
pub(crate) fn boottime_ns() -> u64 {
    #[cfg(target_os = "linux")]
    {
        read_ns(libc::CLOCK_BOOTTIME)
    }
    #[cfg(not(target_os = "linux"))]
    {
        // Only this one is the same in all processes. Where it is set back, somebody comes before his turn.
        let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
        since.as_nanos() as u64
    }
}

#[cfg(unix)]
fn read(clock: libc::clockid_t) -> u64 {
    read_ns(clock) / 1_000_000
}

#[cfg(unix)]
fn read_ns(clock: libc::clockid_t) -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` is a valid place for the answer. The call fails only for a clock the system does not have; these are
    // older than any Linux that Rust supports, and a failure would leave the zeros.
    unsafe { libc::clock_gettime(clock, &raw mut time) };
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}
