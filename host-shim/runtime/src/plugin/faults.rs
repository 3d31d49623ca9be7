//! What happens when a component stops working.
//!
//! A trap is the end of a store. The outcomes it had queued are delivered first, for they were decided. Then a
//! [successor](super::succession) is brought to work. The call that hit the fault is asked about once more, unless it was
//! stopped for running too long; if that fails too, `onFailure` answers this one call.
//!
//! More than `maxRestarts` instances within a minute, and `onFailure` decides for all until one works again: `open` lets
//! everybody through and keeps counting, `closed` refuses new calls and those who wait. Attempts follow with a growing pause.
//!
//! An attempt that took long is not followed by another at once: whoever loops wherever it is called would block the thread as
//! often as it may be tried, and an operation is followed by another before anything else gets to run. The next one is made when
//! the thread has had time for others; until then `onFailure` decides for who comes, and who waits goes on waiting.

use std::collections::VecDeque;

use crate::bindings::exports::dsh::plugin::lifecycle::RestoredCall;
use crate::clock::thread_cpu_ms;
use crate::config::OnFailure;
use crate::log::Level;
use crate::plugin::{Plugin, UNAVAILABLE, Work};
use crate::{CallId, Fault, Instant, Refusal, RefusalReason, Verdict};

/// `maxRestarts` counts over this time, and the pause between attempts grows to it.
const WINDOW_MS: u64 = 60_000;
/// The first pause before an attempt.
const FIRST_PAUSE_MS: u64 = 1_000;
/// After an attempt that took long the next one follows so many times as long after the operation had begun; the fault before the
/// attempt has taken about as long as the attempt.
const GIVE_WAY_FACTOR: u64 = 4;

/// The faults so far, and what may be tried after the next.
#[derive(Default)]
pub(super) struct Faults {
    /// When instances were tried after faults, within the window.
    recent: VecDeque<Instant>,
    /// When requests brought faults about, within the window.
    over_requests: VecDeque<Instant>,
    /// How many were brought to work.
    pub(super) restarts: u64,
    pub(super) last: Option<Fault>,
    /// The next pause between attempts.
    pause_ms: u64,
}

impl Faults {
    /// Instances that were tried count no more: what is at work now is another component, or has other limits.
    pub(super) fn forgive(&mut self) {
        self.recent.clear();
    }

    /// Whether one more instance may be tried now; counts it.
    fn begin_attempt(&mut self, now: Instant, max_restarts: u64) -> bool {
        while self.recent.front().is_some_and(|&at| at.saturating_add(WINDOW_MS) <= now) {
            self.recent.pop_front();
        }
        if self.recent.is_empty() {
            self.pause_ms = FIRST_PAUSE_MS;
        }
        if self.recent.len() as u64 >= max_restarts {
            return false;
        }
        self.recent.push_back(now);
        true
    }

    /// The pause before the next attempt; each is twice as long as the last.
    fn next_pause(&mut self) -> u64 {
        let pause = self.pause_ms.clamp(FIRST_PAUSE_MS, WINDOW_MS);
        self.pause_ms = (pause * 2).min(WINDOW_MS);
        pause
    }

    /// A request has brought one about.
    pub(super) fn note_over_request(&mut self, now: Instant) {
        self.over_requests.push_back(now);
    }

    /// How many requests have brought about within the window.
    pub(super) fn over_requests(&mut self, now: Instant) -> usize {
        while self.over_requests.front().is_some_and(|&at| at.saturating_add(WINDOW_MS) <= now) {
            self.over_requests.pop_front();
        }
        self.over_requests.len()
    }
}

impl Plugin {
    /// Buries the instance that hit a fault and brings another to work, or gives up.
    pub(crate) fn recover(&mut self, fault: Fault, now: Instant) {
        self.bury_failed(now);
        self.note(fault);
        self.try_successors(now);
    }

    /// The same for a fault that a new component or configuration, or a request, brought about: the first attempt under what is
    /// in force is free.
    pub(super) fn recover_uncharged(&mut self, fault: Fault, now: Instant) {
        self.bury_failed(now);
        self.note(fault);
        match self.rebuild(now) {
            Ok(()) => self.say_replaced(),
            Err(fault) => self.recover(fault, now),
        }
    }

    /// Tries to bring a successor to work as often as it may be tried. After an attempt that took long others are to have their
    /// turn before the next, and meanwhile `onFailure` decides for who comes, not for who waits.
    pub(super) fn try_successors(&mut self, now: Instant) {
        while self.faults.begin_attempt(now, self.config.max_restarts) {
            let began = thread_cpu_ms();
            match self.rebuild(now) {
                Ok(()) => return self.say_replaced(),
                Err(fault) => self.note(fault),
            }
            let took = thread_cpu_ms() - began;
            if took >= self.limits.call_ms / 2 {
                let retry_at = now.saturating_add(took.saturating_mul(GIVE_WAY_FACTOR));
                self.work = Work::Failed { retry_at, given_up: false };
                return;
            }
        }
        self.give_up(now);
    }

    fn say_replaced(&mut self) {
        self.out.line(
            Level::Warn,
            format!(
                "the component was replaced: {} running and {} waiting calls carried over",
                self.table.live(),
                self.table.waiting()
            ),
        );
    }

    /// Lets `onFailure` decide for all.
    fn give_up(&mut self, now: Instant) {
        let retry_at = now.saturating_add(self.faults.next_pause());
        self.work = Work::Failed { retry_at, given_up: true };
        let (meaning, refusal) = match self.config.on_failure {
            OnFailure::Open => (self.role.without(), None),
            OnFailure::Closed => ("closed: calls are REFUSED", Some(self.unavailable())),
        };
        self.release(|| refusal.clone().map_or(Ok(()), Err), now);
        self.out.line(
            Level::Error,
            format!(
                "{} has FAILED more often than maxRestarts ({}) allows within a minute; onFailure is {meaning} until it is back, \
                 next attempt in {} ms",
                self.role.subject(),
                self.config.max_restarts,
                retry_at - now
            ),
        );
    }

    /// One attempt out of the failed state.
    pub(super) fn retry(&mut self, now: Instant) {
        self.faults.recent.push_back(now);
        match self.rebuild(now) {
            Ok(()) => self.back(),
            Err(fault) => {
                self.note(fault);
                let retry_at = now.saturating_add(self.faults.next_pause());
                self.work = Work::Failed { retry_at, given_up: true };
            }
        }
    }

    /// Says that one works again after it was given up.
    pub(super) fn back(&mut self) {
        self.out.line(
            Level::Warn,
            format!(
                "{} is BACK: {}, {} running calls are counted",
                self.role.subject(),
                self.role.again(),
                self.table.live()
            ),
        );
    }

    /// A new instance of the component in force, under the configuration in force.
    fn rebuild(&mut self, now: Instant) -> Result<(), Fault> {
        let fresh = self.fresh(&self.config, now)?;
        self.take_over(fresh, now)?;
        self.faults.restarts += 1;
        Ok(())
    }

    /// Takes the instance that hit a fault from its place. Its requests are answered by the host.
    pub(super) fn bury_failed(&mut self, now: Instant) {
        self.bury(now, |me, mut instance| me.out.fail_open_requests(instance.state()));
    }

    fn note(&mut self, fault: Fault) {
        self.out.line(Level::Error, format!("the component failed: {fault}"));
        self.faults.last = Some(fault);
    }

    pub(super) fn last_fault(&self) -> Fault {
        self.faults.last.clone().unwrap_or_else(|| Fault::Trap("unknown".into()))
    }

    /// What `onFailure` says about one call.
    pub(super) fn decide_alone(&mut self, id: CallId, call: RestoredCall, now: Instant) -> Verdict {
        let verdict = match self.config.on_failure {
            OnFailure::Open => Verdict::Admit,
            OnFailure::Closed => Verdict::Deny(self.unavailable()),
        };
        self.record(id, call, &verdict, now);
        verdict
    }

    fn unavailable(&self) -> Refusal {
        let why = self.faults.last.as_ref().map(Fault::to_string);
        let because = why.as_deref().map_or(String::new(), |why| format!(" ({why})"));
        Refusal {
            code: UNAVAILABLE.into(),
            reason: RefusalReason::Other(why),
            message: format!(
                "{} has failed{because} and `onFailure` is \"closed\": nothing starts until it is back. Set `onFailure` to \
                 \"open\" to let calls pass without limits meanwhile.",
                capitalised(&self.role.subject())
            ),
        }
    }
}

/// A sentence's first word in capitals.
fn capitalised(text: &str) -> String {
    let mut letters = text.chars();
    letters.next().map_or_else(String::new, |first| first.to_uppercase().chain(letters).collect())
}
