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
use serde_json::{Map, Value};
use wit_bindgen::FutureWriter;

mod bindings;

const MINUTE: u64 = 60_000;

/// What a route is known by: its provider and its model.
type Key = (String, String);

struct Waiter {
    id: CallId,
    route: Key,
    since: Instant,
    writer: FutureWriter<Result<(), Refusal>>,
}

struct Guard {
    /// Calls that may begin within a minute on one route; nothing lets all pass.
    per_minute: Option<usize>,
    /// How long one may wait, in milliseconds; 0 is not at all.
    max_wait_ms: u64,
    /// When the calls of the last minute began, the oldest first; of routes that had any.
    begun: BTreeMap<Key, VecDeque<Instant>>,
    /// Those who wait, the oldest first.
    line: Vec<Waiter>,
}

thread_local! {
    static GUARD: RefCell<Guard> = const {
        RefCell::new(Guard { per_minute: None, max_wait_ms: 30_000, begun: BTreeMap::new(), line: Vec::new() })
    };
}

impl Guard {
    fn begin(&mut self, route: &Key, at: Instant) {
        self.begun.entry(route.clone()).or_default().push_back(at);
    }

    /// When the next call may begin on a route; now, if it may.
    fn room_at(&self, route: &Key, now: Instant) -> Instant {
        match (self.per_minute, self.begun.get(route)) {
            (Some(0), _) => Instant::MAX,
            (Some(most), Some(begun)) if begun.len() >= most => begun[begun.len() - most] + MINUTE,
            _ => now,
        }
    }

    /// What becomes of a call that came at `since`: it begins, it is refused, or, without an answer, it waits.
    fn decide(&mut self, route: &Key, since: Instant, now: Instant) -> Option<Result<(), Refusal>> {
        if self.room_at(route, now) <= now {
            self.begin(route, now);
            return Some(Ok(()));
        }
        (since.saturating_add(self.max_wait_ms) <= now).then(|| Err(self.refusal(route)))
    }

    fn enqueue(&mut self, id: CallId, route: Key, since: Instant) -> Verdict {
        let (writer, settled) = bindings::wit_future::new(|| Ok(()));
        self.line.push(Waiter { id, route, since, writer });
        Verdict::Wait(Waiting {
            settled,
            deadline: Some(since.saturating_add(self.max_wait_ms)),
            seniority: id,
        })
    }

    /// Forgets what began more than a minute ago and ends the waits that are over; says when to come again.
    fn tick(&mut self, now: Instant) -> Option<Instant> {
        self.begun.retain(|_, begun| {
            while begun.front().is_some_and(|at| at + MINUTE <= now) {
                begun.pop_front();
            }
            !begun.is_empty()
        });
        let mut next = None;
        for waiter in std::mem::take(&mut self.line) {
            if let Some(decided) = self.decide(&waiter.route, waiter.since, now) {
                write(waiter.writer, decided);
            } else {
                let deadline = waiter.since.saturating_add(self.max_wait_ms);
                next = Some(self.room_at(&waiter.route, now).min(deadline).min(next.unwrap_or(Instant::MAX)));
                self.line.push(waiter);
            }
        }
        next
    }

    fn refusal(&self, (provider, model): &Key) -> Refusal {
        let most = self.per_minute.unwrap_or_default();
        Refusal {
            code: "BUDGET_EXCEEDED".into(),
            reason: RefusalReason::Other(None),
            message: format!(
                "{provider}/{model} has had its {most} calls of this minute. Start fewer agents at once, or raise perMinute or maxWaitMs."
            ),
        }
    }

    fn configure(&mut self, json: &str, mode: Mode) -> Result<Vec<Problem>, Vec<Problem>> {
        let problem = |path: &str, message: String| Problem { path: path.into(), message };
        let keys: Map<String, Value> = serde_json::from_str(json)
            .map_err(|error| vec![problem("", format!("expected an object: {error}"))])?;
        let (mut per_minute, mut max_wait_ms, mut problems) = (None, 30_000, Vec::new());
        for (key, value) in &keys {
            match (key.as_str(), value.as_u64()) {
                ("perMinute", Some(most)) => per_minute = Some(usize::try_from(most).unwrap_or(usize::MAX)),
                ("maxWaitMs", Some(ms)) => max_wait_ms = ms,
                ("perMinute" | "maxWaitMs", None) => {
                    problems.push(problem(key, format!("expected a whole number from 0, found {value}")));
                }
                _ => problems.push(problem(key, "unknown key; known are perMinute and maxWaitMs".into())),
            }
        }
        if mode == Mode::Strict && !problems.is_empty() {
            return Err(problems);
        }
        (self.per_minute, self.max_wait_ms) = (per_minute, max_wait_ms);
        Ok(problems)
    }
}

/// The host has a reader at the other end, so a value is taken at once.
fn write(writer: FutureWriter<Result<(), Refusal>>, value: Result<(), Refusal>) {
    let written = pin!(writer.write(value)).poll(&mut Context::from_waker(Waker::noop()));
    assert!(matches!(written, Poll::Ready(_)), "the host does not read");
}

fn key(Route { provider, model }: Route) -> Key {
    (provider, model)
}

struct Component;

impl lifecycle::Guest for Component {
    fn configure(json: String, mode: Mode, _now: Instant) -> Result<Vec<Problem>, Vec<Problem>> {
        GUARD.with_borrow_mut(|guard| guard.configure(&json, mode))
    }

    fn tick(now: Instant) -> Option<Instant> {
        GUARD.with_borrow_mut(|guard| guard.tick(now))
    }

    fn restore(live: Vec<LiveCall>, waiting: Vec<WaitingCall>, _now: Instant) -> Vec<(CallId, Verdict)> {
        GUARD.with_borrow_mut(|guard| {
            for LiveCall { call, since, .. } in live {
                if let RestoredCall::Model(call) = call {
                    guard.begin(&key(call.route), since);
                }
            }
            let restored = waiting.into_iter().map(|WaitingCall { id, call, since, .. }| match call {
                RestoredCall::Model(call) => (id, guard.enqueue(id, key(call.route), since)),
                RestoredCall::Tool(_) => (id, Verdict::Admit),
            });
            restored.collect()
        })
    }
}

impl llm_stream::Guest for Component {
    fn start(id: CallId, call: StreamCall, now: Instant) -> Verdict {
        GUARD.with_borrow_mut(|guard| {
            // Whoever waits and may begin now comes first.
            guard.tick(now);
            let route = key(call.route);
            match guard.decide(&route, now, now) {
                Some(Ok(())) => Verdict::Admit,
                Some(Err(refusal)) => Verdict::Deny(refusal),
                None => guard.enqueue(id, route, now),
            }
        })
    }

    fn finish(id: CallId, _outcome: Outcome, _now: Instant) {
        GUARD.with_borrow_mut(|guard| {
            if let Some(at) = guard.line.iter().position(|waiter| waiter.id == id) {
                // Whoever gave up is not in line any more; the host ignores the answer, but an unwritten future may not be dropped.
                write(guard.line.remove(at).writer, Ok(()));
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
