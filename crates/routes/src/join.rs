//! Several futures at once.

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::task::Poll;

enum Slot<F: Future> {
    Open(Pin<Box<F>>),
    Done(F::Output),
}

/// Drives all of them and gives what they came to, in their order.
///
/// Whenever one moves, all that are open are polled again: meant for the few hundred providers of a catalog at most.
pub async fn all<F: Future>(futures: impl IntoIterator<Item = F>) -> Vec<F::Output> {
    let mut slots: Vec<Slot<F>> = futures.into_iter().map(|future| Slot::Open(Box::pin(future))).collect();
    poll_fn(|context| {
        let mut open = false;
        for slot in &mut slots {
            if let Slot::Open(future) = slot {
                match future.as_mut().poll(context) {
                    Poll::Ready(output) => *slot = Slot::Done(output),
                    Poll::Pending => open = true,
                }
            }
        }
        if open { Poll::Pending } else { Poll::Ready(()) }
    })
    .await;
    let output = |slot| match slot {
        Slot::Done(output) => Some(output),
        Slot::Open(_) => None,
    };
    slots.into_iter().filter_map(output).collect()
}
