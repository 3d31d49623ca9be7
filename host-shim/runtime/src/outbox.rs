//! What waits to be taken by the owner of a plugin.

use crate::host::State;
use crate::log::{Level, LogLine};
use crate::routes::{self, RequestId, Response};
use crate::table::Table;
use crate::{CallId, Instant, Refusal, Settled};

/// A component's lines are kept up to this many until taken.
const MAX_LINES: usize = 1_024;
/// So many more are kept of the host's own, which a component's may not crowd out.
const MAX_HOST_LINES: usize = 256;

#[derive(Default)]
pub(crate) struct Outbox {
    settled: Vec<Settled>,
    log: Vec<LogLine>,
    responses: Vec<(RequestId, Response)>,
}

impl Outbox {
    /// Takes what a store has queued, as far as the table agrees.
    pub(crate) fn collect(&mut self, state: &mut State, table: &mut Table, now: Instant) {
        for (id, result) in state.settled.drain(..) {
            self.settle(id, result, table, now);
        }
        self.collect_answers(state);
    }

    /// The same of a store that decides nothing any more.
    pub(crate) fn collect_answers(&mut self, state: &mut State) {
        self.responses.append(&mut state.responses);
        let room = MAX_LINES.saturating_sub(self.log.len());
        self.log.extend(state.log.drain().into_iter().take(room));
    }

    /// Ends a wait, if it is one.
    pub(crate) fn settle(
        &mut self,
        id: CallId,
        result: Result<(), Refusal>,
        table: &mut Table,
        now: Instant,
    ) {
        if table.settle(id, result.is_ok(), now) {
            self.settled.push(Settled { id, result });
        }
    }

    /// A line of the host's own.
    pub(crate) fn line(&mut self, level: Level, message: String) {
        if self.log.len() < MAX_LINES + MAX_HOST_LINES {
            self.log.push(LogLine { level, message });
        }
    }

    pub(crate) fn respond(&mut self, id: RequestId, response: Response) {
        self.responses.push((id, response));
    }

    /// Answers for a store that will not.
    pub(crate) fn fail_open_requests(&mut self, state: &mut State) {
        for id in state.open.drain(..) {
            self.respond(id, routes::refusal(503, "the component was replaced before it could answer"));
        }
    }

    /// Takes back the admission of one whose wait nobody has been told of yet. Whether there was one.
    pub(crate) fn take_admission(&mut self, id: CallId) -> bool {
        let at = self.settled.iter().rposition(|settled| settled.id == id && settled.result.is_ok());
        at.map(|at| self.settled.remove(at)).is_some()
    }

    /// Whoever is given up is told nothing any more.
    pub(crate) fn forget(&mut self, id: CallId) {
        self.settled.retain(|settled| settled.id != id);
    }

    pub(crate) fn take_settled(&mut self) -> Vec<Settled> {
        std::mem::take(&mut self.settled)
    }

    pub(crate) fn take_log(&mut self) -> Vec<LogLine> {
        std::mem::take(&mut self.log)
    }

    pub(crate) fn has_responses(&self) -> bool {
        !self.responses.is_empty()
    }

    pub(crate) fn take_responses(&mut self) -> Vec<(RequestId, Response)> {
        std::mem::take(&mut self.responses)
    }
}
