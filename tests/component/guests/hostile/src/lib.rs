//! A plugin that does what no plugin should: its configuration says what, and in which export.
//!
//! `{"do": "loop", "in": "finish", "after": 3}` loops in the fourth call of `finish`; without `after` in the first. `"in": "*"` is
//! every export but `configure`, without which it would never be one. What is done has a number where it needs one, `"n"`. Apart
//! from that every call is answered by what `"calls"` says.
//!
//! | `do` | what happens |
//! |---|---|
//! | `loop`, `trap`, `eat` | the call never returns, traps, asks for memory without end |
//! | `spin` | the call goes about `n` thousand times round a loop and returns |
//! | `recurse` | the stack ends |
//! | `flood` | `n` lines are logged, `line` bytes each |
//! | `futures` | `n` futures are made and kept |
//! | `ask` | the harness is asked `n` times, and nobody waits for the answers |
//!
//! | `calls` | how a call that wants to start is answered |
//! |---|---|
//! | `admit` | it may; so without the key |
//! | `wait` | it waits until it is given up |
//! | `mute` | it waits for ever: its future is never written |
//! | `deny` | it may not, in `n` bytes |
//!
//! A route answers `size` bytes; `"route": "hang"` never answers, `"yield"` is always about to, `"ask"` waits for an answer of
//! the harness's. `tools`, `paths` and `needs` are numbers of names, of `name` bytes each. With `"restless": true` there is
//! always more to do now.

use std::cell::{Cell, RefCell};
use std::future;
use std::hint::black_box;
use std::mem;
use std::pin::pin;
use std::task::{Context, Poll, Waker};

use bindings::dsh::plugin::log::{Level, log};
use bindings::dsh::plugin::types::{
    CallId, Instant, Outcome, Refusal, RefusalReason, StreamCall, ToolCall, Verdict, Waiting,
};
use bindings::dsh::plugin::{models, sessions, settings};
use bindings::exports::dsh::plugin::lifecycle::{LiveCall, Mode, Problem, WaitingCall};
use bindings::exports::dsh::plugin::pools::{Grant, Need};
use bindings::exports::dsh::plugin::routes::{Request, Response};
use bindings::exports::dsh::plugin::{lifecycle, llm_stream, pools, routes, tool_pre_execute};
use bindings::wit_future;
use serde_json::Value;
use wit_bindgen::FutureWriter;

mod bindings;

type Writer = FutureWriter<Result<(), Refusal>>;

thread_local! {
    static CONFIG: RefCell<Value> = const { RefCell::new(Value::Null) };
    static CALLS: Cell<u64> = const { Cell::new(0) };
    static LINE: RefCell<Vec<(CallId, Writer)>> = const { RefCell::new(Vec::new()) };
}

fn text(key: &str) -> String {
    CONFIG.with_borrow(|config| config[key].as_str().unwrap_or_default().to_owned())
}

fn number(key: &str) -> usize {
    CONFIG.with_borrow(|config| config[key].as_u64().unwrap_or_default() as usize)
}

/// What every export begins with.
fn enter(export: &str) {
    let place = text("in");
    if place != export && (place != "*" || export == "configure") {
        return;
    }
    let calls = CALLS.get() + 1;
    CALLS.set(calls);
    if calls > number("after") as u64 {
        strike(&text("do"), number("n"));
    }
}

fn strike(what: &str, n: usize) {
    match what {
        "loop" => loop {
            black_box(());
        },
        "spin" => {
            for _ in 0..n * 1_000 {
                black_box(());
            }
        }
        "trap" => panic!("trapped on demand"),
        // Taken and not touched, or time would run out first.
        "eat" => loop {
            mem::forget(black_box(Vec::<u8>::with_capacity(1 << 20)));
        },
        "recurse" => {
            recurse(0);
        }
        "flood" => {
            let line = "x".repeat(number("line").max(1));
            (0..n).for_each(|_| log(Level::Info, &line));
        }
        "futures" => {
            for _ in 0..n {
                let (writer, settled) = wit_future::new(|| Ok(()));
                mem::forget::<(Writer, _)>((writer, settled));
            }
        }
        "ask" => {
            for n in 0..n {
                match n % 4 {
                    0 => mem::forget(settings::read()),
                    1 => mem::forget(models::providers()),
                    2 => mem::forget(models::list_models(&"p".repeat(1_000))),
                    _ => mem::forget(sessions::describe(&["s".repeat(1_000)])),
                }
            }
        }
        _ => {}
    }
}

#[expect(unconditional_recursion, reason = "that is what it is for")]
fn recurse(depth: u64) -> u64 {
    black_box([depth; 16]);
    black_box(recurse(black_box(depth + 1))) + 1
}

fn decide(id: CallId) -> Verdict {
    match text("calls").as_str() {
        "deny" => Verdict::Deny(Refusal {
            code: "HOSTILE".into(),
            reason: RefusalReason::Other(None),
            message: "x".repeat(number("n")),
        }),
        "wait" | "mute" => {
            let (writer, settled) = wit_future::new(|| Ok(()));
            LINE.with_borrow_mut(|line| line.push((id, writer)));
            Verdict::Wait(Waiting { settled, deadline: None, seniority: id })
        }
        _ => Verdict::Admit,
    }
}

fn leave(id: CallId) {
    if text("calls") != "wait" {
        return;
    }
    let writer = LINE.with_borrow_mut(|line| {
        let at = line.iter().position(|(waiting, _)| *waiting == id)?;
        Some(line.swap_remove(at).1)
    });
    if let Some(writer) = writer {
        let written = pin!(writer.write(Ok(())));
        let Poll::Ready(_) = written.poll(&mut Context::from_waker(Waker::noop())) else {
            panic!("the host does not read")
        };
    }
}

fn names(key: &str, beginning: &str) -> Vec<String> {
    let length = number("name");
    (0..number(key)).map(|n| format!("{beginning}{n}{}", "x".repeat(length))).collect()
}

struct Hostile;

impl lifecycle::Guest for Hostile {
    fn configure(json: String, _mode: Mode, _now: Instant) -> Result<Vec<Problem>, Vec<Problem>> {
        CONFIG.set(serde_json::from_str(&json).unwrap_or_default());
        enter("configure");
        Ok(Vec::new())
    }

    fn tick(now: Instant) -> Option<Instant> {
        enter("tick");
        CONFIG.with_borrow(|config| config["restless"] == true).then_some(now)
    }

    fn restore(_live: Vec<LiveCall>, waiting: Vec<WaitingCall>, _now: Instant) -> Vec<(CallId, Verdict)> {
        enter("restore");
        waiting.into_iter().map(|call| (call.id, decide(call.id))).collect()
    }
}

impl llm_stream::Guest for Hostile {
    fn start(id: CallId, _call: StreamCall, _now: Instant) -> Verdict {
        enter("start");
        decide(id)
    }

    fn finish(id: CallId, _outcome: Outcome, _now: Instant) {
        enter("finish");
        leave(id);
    }
}

impl tool_pre_execute::Guest for Hostile {
    fn tools() -> Vec<String> {
        enter("tools");
        names("tools", "tool")
    }

    fn start(id: CallId, _call: ToolCall, _now: Instant) -> Verdict {
        enter("tool");
        decide(id)
    }

    fn finish(id: CallId, _outcome: Outcome, _now: Instant) {
        enter("tool-finish");
        leave(id);
    }
}

impl pools::Guest for Hostile {
    fn demand() -> Vec<Need> {
        enter("demand");
        let need =
            |scope| Need { scope, pool: None, max: 1, ceiling: Some(1), held: 0, occupied: 0, wanted: 1 };
        names("needs", "scope").into_iter().map(need).collect()
    }

    fn capacity(_grant: Grant, _now: Instant) {
        enter("capacity");
    }
}

impl routes::Guest for Hostile {
    fn paths() -> Vec<String> {
        enter("paths");
        let mut paths = names("paths", "/api/hostile/");
        paths.push("/api/hostile/x".into());
        paths
    }

    async fn handle(_request: Request) -> Response {
        enter("route");
        match text("route").as_str() {
            "hang" => {
                let (writer, never) = wit_future::new(|| Ok(()));
                mem::forget::<Writer>(writer);
                let _: Result<(), Refusal> = never.await;
            }
            "yield" => loop {
                yield_now().await;
            },
            "ask" => drop(models::providers().await),
            _ => {}
        }
        Response { status: 200, headers: Vec::new(), body: vec![b'x'; number("size")] }
    }
}

/// Ready the second time it is asked, which is at once.
async fn yield_now() {
    let mut asked = false;
    future::poll_fn(|cx| {
        if mem::replace(&mut asked, true) {
            return Poll::Ready(());
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}

bindings::export!(Hostile with_types_in bindings);
