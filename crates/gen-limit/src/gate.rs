//! The limiter, and one end of a future for everybody who waits.
//!
//! The other end left with the verdict. The host has attached a reader to it before it calls again, so a decision is written
//! within the call in which it falls and nothing is ever pending here.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::panic;
use std::pin::pin;
use std::task::{Context, Poll, Waker};

use limiter::{CallId, Limiter};
use wit_bindgen::FutureWriter;

use crate::bindings::dsh::plugin::log::{Level, log};
use crate::bindings::dsh::plugin::types::{Refusal, Verdict, Waiting};
use crate::bindings::wit_future;
use crate::convert;

pub type Decision = Result<(), Refusal>;

thread_local! {
    static GATE: RefCell<Gate> = RefCell::new(Gate::new());
}

/// One operation on the limiter: runs it, then settles whatever it decided and passes on what it warns of.
pub fn operate<R>(operation: impl FnOnce(&mut Gate) -> R) -> R {
    GATE.with_borrow_mut(|gate| {
        let result = operation(gate);
        gate.settle();
        gate.warn();
        result
    })
}

/// A look at the limiter, which decides nothing.
pub fn look<R>(at: impl FnOnce(&Limiter) -> R) -> R {
    GATE.with_borrow(|gate| at(&gate.limiter))
}

pub struct Gate {
    pub limiter: Limiter,
    waiting: BTreeMap<CallId, FutureWriter<Decision>>,
}

impl Gate {
    fn new() -> Self {
        panic::set_hook(Box::new(|panic| log(Level::Error, &panic.to_string())));
        Self { limiter: Limiter::new(), waiting: BTreeMap::new() }
    }

    /// The contract's verdict. Whoever has to wait gets a future, unless the same operation has already decided.
    pub fn verdict(&mut self, id: CallId, verdict: limiter::Verdict) -> Verdict {
        match verdict {
            limiter::Verdict::Admit => Verdict::Admit,
            limiter::Verdict::Deny(refusal) => Verdict::Deny(convert::refusal(refusal)),
            limiter::Verdict::Wait { deadline, seniority } => {
                let (writer, settled) = wit_future::new(|| Ok(()));
                self.waiting.insert(id, writer);
                Verdict::Wait(Waiting { settled, deadline, seniority })
            }
        }
    }

    /// The host gave this call up; it ignores the answer, but an unwritten future may not be dropped.
    pub fn withdraw(&mut self, id: CallId) {
        if let Some(writer) = self.waiting.remove(&id) {
            write(writer, Ok(()));
        }
    }

    fn settle(&mut self) {
        for (id, decision) in self.limiter.settled() {
            if let Some(writer) = self.waiting.remove(&id) {
                write(writer, decision.map_err(convert::refusal));
            }
        }
    }

    fn warn(&mut self) {
        for warning in self.limiter.warnings() {
            log(Level::Warn, &warning);
        }
    }
}

/// Writes at once. A reader that is gone is the host's affair; one that is not there yet breaks the contract.
fn write(writer: FutureWriter<Decision>, decision: Decision) {
    let write = pin!(writer.write(decision));
    match write.poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(_) => {}
        Poll::Pending => panic!("the host called again before it had attached a reader to an earlier answer"),
    }
}
