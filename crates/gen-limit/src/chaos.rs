//! Faults on demand, for tests of the host. Compiled only with the feature `chaos`.
//!
//! [`Chaos`] stands in front of [`Component`] and passes everything on, unless a call tells it to misbehave. The telling is in
//! `extra`, under the key `chaos`; in the configuration, under the same key, which is taken out before the limiter sees it (so
//! that every new instance is told again); or in the query of a request.
//!
//! | value | what happens |
//! |---|---|
//! | `trap`, `loop`, `eat` | this call traps, never returns, or asks for memory without end |
//! | `trap-in:N`, `loop-in:N`, `eat-in:N` | the N-th call after this one does, whatever export it is |
//! | `flood:N` | N lines are logged |
//! | `mute` | from now on nobody who waits is ever told |
//! | `ask` | (requests) answers with what the host's futures resolved to |
//! | `hang` | (requests) never answers |
//! | `status:N` | (requests) answers with that status |

use std::cell::Cell;
use std::hint::black_box;

use crate::bindings::dsh::plugin::log::{Level, log};
use crate::bindings::dsh::plugin::types::{CallId, Instant, Outcome, StreamCall, ToolCall, Verdict};
use crate::bindings::dsh::plugin::{models, sessions, settings};
use crate::bindings::exports::dsh::plugin::lifecycle::{LiveCall, Mode, Problem, WaitingCall};
use crate::bindings::exports::dsh::plugin::pools::{Grant, Need};
use crate::bindings::exports::dsh::plugin::routes::{Request, Response};
use crate::bindings::exports::dsh::plugin::{lifecycle, llm_stream, pools, routes, tool_pre_execute};
use crate::bindings::wit_future;
use crate::gate::Decision;
use crate::host::Component;

const KEY: &str = "chaos";

/// The component, with faults on demand.
pub struct Chaos;

#[derive(Clone, Copy)]
enum Fault {
    Trap,
    Loop,
    Eat,
}

thread_local! {
    /// A fault that is to come, and after how many calls.
    static ARMED: Cell<Option<(Fault, u64)>> = const { Cell::new(None) };
    static MUTE: Cell<bool> = const { Cell::new(false) };
}

impl Fault {
    fn named(name: &str) -> Option<Self> {
        Some(match name {
            "trap" => Self::Trap,
            "loop" => Self::Loop,
            "eat" => Self::Eat,
            _ => return None,
        })
    }

    fn strike(self) -> ! {
        match self {
            Self::Trap => panic!("trapped on demand"),
            Self::Loop => loop {
                black_box(());
            },
            Self::Eat => {
                // Taken and not touched, or time would run out first.
                loop {
                    std::mem::forget(black_box(Vec::<u8>::with_capacity(1 << 20)));
                }
            }
        }
    }
}

/// What every call begins with.
fn step() {
    match ARMED.take() {
        Some((fault, 0 | 1)) => fault.strike(),
        Some((fault, calls)) => ARMED.set(Some((fault, calls - 1))),
        None => {}
    }
}

fn obey(order: &str) {
    let (name, number) = order.split_once(':').unwrap_or((order, ""));
    let number = number.parse().unwrap_or(0);
    if let Some(fault) = name.strip_suffix("-in").and_then(Fault::named) {
        ARMED.set(Some((fault, number)));
    } else if let Some(fault) = Fault::named(name) {
        fault.strike();
    } else if name == "flood" {
        for line in 0..number {
            log(Level::Info, &format!("line {line} of a flood"));
        }
    } else if name == "mute" {
        MUTE.set(true);
    }
}

fn obey_extra(extra: &[(String, String)]) {
    for (_, order) in extra.iter().filter(|(key, _)| key == KEY) {
        obey(order);
    }
}

/// Puts a future that is never written in the place of the real one.
fn mute(verdict: Verdict) -> Verdict {
    match verdict {
        Verdict::Wait(mut waiting) if MUTE.get() => {
            let (writer, settled) = wit_future::new(|| Ok(()));
            std::mem::forget(writer);
            waiting.settled = settled;
            Verdict::Wait(waiting)
        }
        verdict => verdict,
    }
}

impl llm_stream::Guest for Chaos {
    fn start(id: CallId, call: StreamCall, now: Instant) -> Verdict {
        step();
        obey_extra(&call.extra);
        mute(<Component as llm_stream::Guest>::start(id, call, now))
    }

    fn finish(id: CallId, outcome: Outcome, now: Instant) {
        step();
        <Component as llm_stream::Guest>::finish(id, outcome, now);
    }
}

impl tool_pre_execute::Guest for Chaos {
    fn tools() -> Vec<String> {
        step();
        <Component as tool_pre_execute::Guest>::tools()
    }

    fn start(id: CallId, call: ToolCall, now: Instant) -> Verdict {
        step();
        obey_extra(&call.extra);
        mute(<Component as tool_pre_execute::Guest>::start(id, call, now))
    }

    fn finish(id: CallId, outcome: Outcome, now: Instant) {
        step();
        <Component as tool_pre_execute::Guest>::finish(id, outcome, now);
    }
}

impl lifecycle::Guest for Chaos {
    fn configure(json: String, mode: Mode, now: Instant) -> Result<Vec<Problem>, Vec<Problem>> {
        step();
        let mut value: serde_json::Value = serde_json::from_str(&json).unwrap_or_default();
        let Some(order) = value.as_object_mut().and_then(|fields| fields.remove(KEY)) else {
            return Component::configure(json, mode, now);
        };
        obey(order.as_str().unwrap_or_default());
        Component::configure(value.to_string(), mode, now)
    }

    fn tick(now: Instant) -> Option<Instant> {
        step();
        Component::tick(now)
    }

    fn restore(live: Vec<LiveCall>, waiting: Vec<WaitingCall>, now: Instant) -> Vec<(CallId, Verdict)> {
        step();
        let verdicts = Component::restore(live, waiting, now);
        verdicts.into_iter().map(|(id, verdict)| (id, mute(verdict))).collect()
    }
}

impl pools::Guest for Chaos {
    fn demand() -> Vec<Need> {
        step();
        Component::demand()
    }

    fn capacity(grant: Grant, now: Instant) {
        step();
        Component::capacity(grant, now);
    }
}

impl routes::Guest for Chaos {
    fn paths() -> Vec<String> {
        step();
        Component::paths()
    }

    async fn handle(mut request: Request) -> Response {
        step();
        let Some(order) = request.query.strip_prefix("chaos=").map(str::to_owned) else {
            return <Component as routes::Guest>::handle(request).await;
        };
        request.query.clear();
        match order.as_str() {
            "ask" => answer(200, &ask().await),
            "hang" => {
                let (writer, never) = wit_future::new(|| Ok(()));
                std::mem::forget(writer);
                let _: Decision = never.await;
                answer(200, "")
            }
            order => {
                if let Some(status) = order.strip_prefix("status:").and_then(|status| status.parse().ok()) {
                    return answer(status, "");
                }
                obey(order);
                <Component as routes::Guest>::handle(request).await
            }
        }
    }
}

/// Everything the host lends, asked once.
async fn ask() -> String {
    let read = settings::read().await;
    let written = settings::update("{}", None).await;
    let providers = models::providers().await;
    let listed = models::list_models("p").await;
    let described = sessions::describe(&["s".to_owned()]).await;
    format!("{read:?} {written:?} {providers:?} {listed:?} {described:?}")
}

fn answer(status: u16, body: &str) -> Response {
    Response { status, headers: Vec::new(), body: body.as_bytes().to_vec() }
}
