//! Moves the engine's epoch every five milliseconds while a component may be running, and sleeps otherwise.
//!
//! A call is stopped by comparing epochs, so somebody has to move them while it runs. An idle process should not wake up two
//! hundred times a second for that: after [`IDLE_TICKS`] without a call the thread parks, and the next call wakes it. That
//! call pays a few microseconds; calls in quick succession pay two atomic additions. To wait longer before parking costs a
//! process that is asked once a second more than everything else it is asked for: each tick is a thread woken for nothing.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::thread::{self, Thread};
use std::time::Duration;

use wasmtime::EngineWeak;

/// The time between two epochs.
const TICK_MS: u64 = 5;

/// After so many ticks without a call the thread parks.
const IDLE_TICKS: u32 = 2;

/// Stops the thread when dropped.
pub(crate) struct Ticker {
    shared: Arc<Shared>,
    thread: Thread,
}

#[derive(Default)]
struct Shared {
    entered: AtomicU64,
    left: AtomicU64,
    parked: AtomicBool,
    stopped: AtomicBool,
}

impl Ticker {
    pub(crate) fn start(engine: EngineWeak) -> std::io::Result<Self> {
        let shared = Arc::new(Shared::default());
        let run = shared.clone();
        let handle = thread::Builder::new().name("gen-limit-epoch".into()).spawn(move || run.run(&engine))?;
        Ok(Self { shared, thread: handle.thread().clone() })
    }

    /// Keeps the epoch moving until the guard is dropped.
    pub(crate) fn watch(&self) -> Watch<'_> {
        self.shared.entered.fetch_add(1, SeqCst);
        // The thread announces that it parks before it looks at `entered` for the last time, so one of the two sees the other.
        if self.shared.parked.load(SeqCst) && self.shared.parked.swap(false, SeqCst) {
            self.thread.unpark();
        }
        Watch(&self.shared)
    }
}

impl Drop for Ticker {
    fn drop(&mut self) {
        self.shared.stopped.store(true, SeqCst);
        self.shared.parked.store(false, SeqCst);
        self.thread.unpark();
    }
}

pub(crate) struct Watch<'a>(&'a Shared);

impl Drop for Watch<'_> {
    fn drop(&mut self) {
        self.0.left.fetch_add(1, SeqCst);
    }
}

impl Shared {
    fn run(&self, engine: &EngineWeak) {
        let mut seen = 0;
        let mut idle = 0;
        loop {
            thread::sleep(Duration::from_millis(TICK_MS));
            if self.stopped.load(SeqCst) {
                return;
            }
            let Some(engine) = engine.upgrade() else { return };
            engine.increment_epoch();
            drop(engine);

            let entered = self.entered.load(SeqCst);
            idle = if entered == seen && entered == self.left.load(SeqCst) { idle + 1 } else { 0 };
            seen = entered;
            if idle >= IDLE_TICKS {
                self.park(seen);
                idle = 0;
            }
        }
    }

    fn park(&self, seen: u64) {
        self.parked.store(true, SeqCst);
        if self.entered.load(SeqCst) != seen {
            self.parked.store(false, SeqCst);
        }
        while self.parked.load(SeqCst) {
            thread::park();
        }
    }
}
