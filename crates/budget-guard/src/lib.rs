//! A budget: at most so many model calls a minute on each route. One past it waits until a minute has passed since the oldest
//! of them, or is denied.
//!
//! A plugin of the world `hooks`, as small as one can be: it holds no seats, serves no paths, and needs nothing of its host. Its
//! configuration is `{"perMinute": 60, "maxWaitMs": 30000}`; without `perMinute` everything passes.
//!
//! A successor is told of the calls that run and wait, not of those that ended within the minute: after a fault a route may
//! have up to `perMinute` more calls than its budget once.

use std::cell::RefCell;
use std::collections::{BTreeMap, VecDeque};
use std::pin::pin;
use std::task::{Context, Poll, Waker};

use bindings::dsh::plugin::types::{
    CallId, Instant, Outcome, Refusal, RefusalReason, Route, StreamCall, ToolCall, Verdict, Waiting,
};
use bindings::exports::dsh::plugin::lifecycle::{LiveCall, Mode, Problem, RestoredCall, WaitingCall};
use bindings::exports::dsh::plugin::{lifecycle, llm_stream, tool_pre_execute};
use bindings::wit_future;
use serde_json::{Map, Value};
use wit_bindgen::FutureWriter;

mod bindings;

const MINUTE: u64 = 60_000;

/// What a route is known by.
type Key = (String, String);

#[derive(Clone, Copy)]
struct Config {
    /// Calls that may begin within a minute on one route.
    per_minute: Option<usize>,
    /// How long one may wait, in milliseconds; 0 is not at all.
    max_wait_ms: u64,
}

const DEFAULT: Config = Config { per_minute: None, max_wait_ms: 30_000 };

struct Waiter {
    id: CallId,
    route: Key,
    since: Instant,
    writer: FutureWriter<Result<(), Refusal>>,
}

struct Guard {
    config: Config,
    /// When the calls of the last minute began, the oldest first; of routes that had any.
    begun: BTreeMap<Key, VecDeque<Instant>>,
    /// Those who wait, the oldest first.
    line: VecDeque<Waiter>,
}

thread_local! {
    static GUARD: RefCell<Guard> = const {
        RefCell::new(Guard { config: DEFAULT, begun: BTreeMap::new(), line: VecDeque::new() })
    };
}

impl Guard {
    /// When the next call may begin on a route; now, if it may.
    fn room_at(&self, route: &Key, now: Instant) -> Instant {
        match (self.config.per_minute, self.begun.get(route)) {
            (Some(0), _) => Instant::MAX,
            (Some(most), Some(begun)) if begun.len() >= most => begun[begun.len() - most] + MINUTE,
            _ => now,
        }
    }

    fn begin(&mut self, route: Key, at: Instant) {
        if self.config.per_minute.is_some() {
            self.begun.entry(route).or_default().push_back(at);
        }
    }

    fn start(&mut self, id: CallId, route: Route, now: Instant) -> Verdict {
        let route = (route.provider, route.model);
        let is_first = !self.line.iter().any(|waiter| waiter.route == route);
        if is_first && self.room_at(&route, now) <= now {
            self.begin(route, now);
            return Verdict::Admit;
        }
        if self.config.max_wait_ms == 0 {
            return Verdict::Deny(self.refusal(&route));
        }
        self.enqueue(id, route, now)
    }

    fn enqueue(&mut self, id: CallId, route: Key, since: Instant) -> Verdict {
        let (writer, settled) = wit_future::new(|| Ok(()));
        self.line.push_back(Waiter { id, route, since, writer });
        let deadline = Some(since.saturating_add(self.config.max_wait_ms));
        Verdict::Wait(Waiting { settled, deadline, seniority: id })
    }

    /// Ends the waits that are over; when to come again.
    fn tick(&mut self, now: Instant) -> Option<Instant> {
        self.begun.retain(|_, begun| {
            while begun.front().is_some_and(|&at| at + MINUTE <= now) {
                begun.pop_front();
            }
            !begun.is_empty()
        });
        let mut next = None;
        for waiter in std::mem::take(&mut self.line) {
            let (room, deadline) =
                (self.room_at(&waiter.route, now), waiter.since.saturating_add(self.config.max_wait_ms));
            if room <= now {
                self.begin(waiter.route, now);
                write(waiter.writer, Ok(()));
            } else if deadline <= now {
                write(waiter.writer, Err(self.refusal(&waiter.route)));
            } else {
                next = Some(next.unwrap_or(Instant::MAX).min(room).min(deadline));
                self.line.push_back(waiter);
            }
        }
        next
    }

    fn refusal(&self, (provider, model): &Key) -> Refusal {
        let most = self.config.per_minute.unwrap_or_default();
        Refusal {
            code: "BUDGET_EXCEEDED".into(),
            reason: RefusalReason::Other(None),
            message: format!(
                "{provider}/{model} has had its {most} calls of this minute. Start fewer agents at once, or raise perMinute or maxWaitMs."
            ),
        }
    }
}

/// The host has a reader at the other end, so a value is taken at once.
fn write(writer: FutureWriter<Result<(), Refusal>>, value: Result<(), Refusal>) {
    let written = pin!(writer.write(value));
    let Poll::Ready(_) = written.poll(&mut Context::from_waker(Waker::noop())) else {
        panic!("the host does not read")
    };
}

fn parse(json: &str) -> (Option<Config>, Vec<Problem>) {
    let mut config = DEFAULT;
    let mut problems = Vec::new();
    let mut problem = |path: &str, message: String| problems.push(Problem { path: path.into(), message });
    let object = match serde_json::from_str::<Map<String, Value>>(json) {
        Ok(object) => object,
        Err(error) => {
            problem("", format!("expected an object: {error}"));
            return (None, problems);
        }
    };
    for (key, value) in &object {
        match (key.as_str(), value.as_u64()) {
            ("perMinute", Some(most)) => {
                config.per_minute = Some(usize::try_from(most).unwrap_or(usize::MAX));
            }
            ("maxWaitMs", Some(ms)) => config.max_wait_ms = ms,
            ("perMinute" | "maxWaitMs", None) => {
                problem(key, format!("expected a whole number from 0, found {value}"));
            }
            _ => problem(key, "unknown key; known are perMinute and maxWaitMs".into()),
        }
    }
    (Some(config), problems)
}

struct Component;

impl lifecycle::Guest for Component {
    fn configure(json: String, mode: Mode, _now: Instant) -> Result<Vec<Problem>, Vec<Problem>> {
        match parse(&json) {
            (Some(config), problems) if problems.is_empty() || mode == Mode::Lenient => {
                GUARD.with_borrow_mut(|guard| guard.config = config);
                Ok(problems)
            }
            (_, problems) => Err(problems),
        }
    }

    fn tick(now: Instant) -> Option<Instant> {
        GUARD.with_borrow_mut(|guard| guard.tick(now))
    }

    fn restore(live: Vec<LiveCall>, waiting: Vec<WaitingCall>, _now: Instant) -> Vec<(CallId, Verdict)> {
        GUARD.with_borrow_mut(|guard| {
            for LiveCall { call, since, .. } in live {
                if let RestoredCall::Model(call) = call {
                    guard.begin((call.route.provider, call.route.model), since);
                }
            }
            let restored = waiting.into_iter().map(|WaitingCall { id, call, since, .. }| match call {
                RestoredCall::Model(call) => {
                    (id, guard.enqueue(id, (call.route.provider, call.route.model), since))
                }
                RestoredCall::Tool(_) => (id, Verdict::Admit),
            });
            restored.collect()
        })
    }
}

impl llm_stream::Guest for Component {
    fn start(id: CallId, call: StreamCall, now: Instant) -> Verdict {
        GUARD.with_borrow_mut(|guard| guard.start(id, call.route, now))
    }

    fn finish(id: CallId, _outcome: Outcome, _now: Instant) {
        GUARD.with_borrow_mut(|guard| {
            // Whoever gave up is not in line any more; the host ignores the answer, but an unwritten future may not be dropped.
            if let Some(waiter) =
                guard.line.iter().position(|waiter| waiter.id == id).and_then(|at| guard.line.remove(at))
            {
                write(waiter.writer, Ok(()));
            }
        });
    }
}

impl tool_pre_execute::Guest for Component {
    fn tools() -> Vec<String> {
        Vec::new()
    }

    fn start(_id: CallId, _call: ToolCall, _now: Instant) -> Verdict {
        Verdict::Admit
    }

    fn finish(_id: CallId, _outcome: Outcome, _now: Instant) {}
}

bindings::export!(Component with_types_in bindings);
