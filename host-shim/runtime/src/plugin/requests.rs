//! Requests, and what a component asks of the harness for them.
//!
//! An instance that is replaced on purpose answers what it was asked before, beside its successor: whoever changes the
//! configuration by a request is told that it is in force, also where that takes a new instance. One that failed answers
//! nothing any more; its requests get 503. A fault over a request is not charged to `maxRestarts`, or somebody who only looks
//! could lift the limits; after a few of them requests are refused for a while instead.

use serde_json::{Map, Value};

use crate::ask::{Answer, Ask, AskId};
use crate::instance::Instance;
use crate::log::Level;
use crate::plugin::{Plugin, Work};
use crate::routes::{self, Request, RequestId, Response};
use crate::{Fault, Instant};

/// So many faults over requests within a minute, and requests are refused for the rest of it.
const ROUTE_FAULTS: usize = 3;

const ABSENT: &str = "the component has failed and is not back yet";

impl Plugin {
    /// Hands a request to the component. The answer comes out of [`take_responses`](Self::take_responses), as a rule at once.
    pub fn request(&mut self, request: Request, now: Instant) -> RequestId {
        self.prepare(now);
        let id = routes::mint();
        let (size, most) = (request.size(), self.limits.request_bytes);
        if size > most {
            let error = format!("the request has {size} bytes, more than the {most} it may have");
            self.out.respond(id, routes::refusal(413, &error));
            return id;
        }
        if let Some((status, error)) = self.refuses_requests(now) {
            self.out.respond(id, routes::refusal(status, error));
            return id;
        }
        // What the component answers is as of now.
        self.advance(now);
        let mut status = self.host_facts.clone();
        status.extend(self.status().to_object());
        let status = Value::Object(status).to_string();
        match &mut self.work {
            Work::Running { instance, .. } => {
                let opened = instance.open(id, request, status, now).and_then(|()| instance.turn());
                self.conclude(opened, now);
            }
            Work::Failed { .. } => self.out.respond(id, routes::refusal(503, ABSENT)),
        }
        id
    }

    fn refuses_requests(&mut self, now: Instant) -> Option<(u16, &'static str)> {
        let open = self.instances().map(|instance| instance.state().open.len()).sum::<usize>();
        match &self.work {
            Work::Failed { .. } => Some((503, ABSENT)),
            Work::Running { instance, .. } if !instance.has_routes() => {
                Some((404, "the component serves no paths"))
            }
            Work::Running { .. } if open >= self.limits.open_requests => {
                Some((503, "too many requests are open"))
            }
            Work::Running { .. } if self.faults.over_requests(now) >= ROUTE_FAULTS => {
                Some((503, "the component failed over requests too often, it is asked again in a minute"))
            }
            Work::Running { .. } => None,
        }
    }

    /// The answers since the last time, to each request exactly once.
    pub fn take_responses(&mut self) -> Vec<(RequestId, Response)> {
        self.out.take_responses()
    }

    /// What the component asks of the harness since the last time. Each question is to be [answered](Self::answer), or the
    /// request it was asked for stays open.
    pub fn take_asks(&mut self) -> Vec<Ask> {
        self.instances().flat_map(|instance| instance.state().asks.take()).collect()
    }

    /// Whether a question of its is open.
    pub(crate) fn has_asked(&mut self, id: AskId) -> bool {
        self.instances().any(|instance| instance.state().asks.is_open(id))
    }

    /// Answers a question of the component's and lets it go on.
    ///
    /// An answer to a question that is not open does nothing: whoever asked may have failed meanwhile. Nor does one of another
    /// kind than was asked for.
    pub fn answer(&mut self, id: AskId, answer: Answer, now: Instant) {
        self.prepare(now);
        if let Some(at) = self.retiring.iter_mut().position(|one| one.state().asks.is_open(id)) {
            let answered = self.retiring[at].answer(id, answer);
            self.retire(at, answered, now);
        } else if let Work::Running { instance, .. } = &mut self.work {
            let answered = instance.answer(id, answer);
            self.conclude(answered, now);
        }
    }

    /// Whether there is anything to take by [`take_asks`](Self::take_asks) or [`take_responses`](Self::take_responses).
    pub fn has_answers(&mut self) -> bool {
        self.out.has_responses() || self.instances().any(|instance| instance.state().asks.is_queued())
    }

    /// Lets open requests go on. There is nothing to do while none is open.
    pub fn turn(&mut self, now: Instant) {
        self.prepare(now);
        for at in (0..self.retiring.len()).rev() {
            let turned = self.retiring[at].turn();
            self.retire(at, turned, now);
        }
        if let Work::Running { instance, .. } = &mut self.work
            && !instance.state().open.is_empty()
        {
            let turned = instance.turn();
            self.conclude(turned, now);
        }
    }

    /// Tells the component of its host, with every request, what the host does not know by itself: members of `host-status`.
    pub fn tell_of_host(&mut self, facts: Map<String, Value>) {
        self.host_facts = facts;
    }

    /// The instance at work, then those that are retiring.
    fn instances(&mut self) -> impl Iterator<Item = &mut Instance> {
        let working = match &mut self.work {
            Work::Running { instance, .. } => Some(&mut **instance),
            Work::Failed { .. } => None,
        };
        working.into_iter().chain(&mut self.retiring)
    }

    /// Takes what the instance at work has answered.
    fn conclude(&mut self, turned: Result<(), Fault>, now: Instant) {
        match turned {
            Ok(()) => self.collect(now),
            Err(fault) => {
                self.faults.note_over_request(now);
                self.recover_uncharged(fault, now);
            }
        }
    }

    /// Takes what a retiring instance has answered, and lets it go when that was all.
    fn retire(&mut self, at: usize, turned: Result<(), Fault>, now: Instant) {
        let state = self.retiring[at].state();
        self.out.collect_answers(state, now);
        if let Err(fault) = turned {
            self.out.fail_open_requests(state);
            self.out.line(Level::Error, format!("a component that had been replaced failed: {fault}"));
        }
        if self.retiring[at].state().open.is_empty() {
            self.retiring.swap_remove(at);
        }
    }

    /// When the request that has been open longest has been so for too long.
    pub(super) fn request_overdue_at(&self) -> Option<Instant> {
        let most = self.limits.request_ms?;
        let working = match &self.work {
            Work::Running { instance, .. } => Some(&**instance),
            Work::Failed { .. } => None,
        };
        let opened = working.into_iter().chain(&self.retiring).filter_map(Instance::oldest_request);
        opened.min().map(|at| at.saturating_add(most))
    }

    /// Answers for instances that should have answered long ago, and are replaced or let go for it.
    pub(super) fn end_overdue_requests(&mut self, now: Instant) {
        let Some(most) = self.limits.request_ms else { return };
        let is_overdue =
            |instance: &Instance| instance.oldest_request().is_some_and(|at| at.saturating_add(most) <= now);
        let overdue = || Err(Fault::Exceeded(format!("a request was not answered within {most} ms")));
        for at in (0..self.retiring.len()).rev() {
            if is_overdue(&self.retiring[at]) {
                self.retire(at, overdue(), now);
            }
        }
        if let Work::Running { instance, .. } = &self.work
            && is_overdue(instance)
        {
            self.conclude(overdue(), now);
        }
    }
}
