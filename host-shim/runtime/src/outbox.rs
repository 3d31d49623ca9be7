//! What waits to be taken by the owner of a plugin.
//!
//! # Floods
//!
//! A store drops what is logged in one call beyond its limit; here it is seen over calls and instances, second by second. How
//! many lines were dropped is said by a line of the host's own, which comes at once for the first of a second and for the rest
//! at the second's end, for which the owner is asked to come again: so a flooder gets at most two such lines a second, and
//! none of its lines is dropped in silence.

use crate::host::State;
use crate::log::{Level, LogLine, LogQueue};
use crate::routes::{self, RequestId, Response};
use crate::table::Table;
use crate::{CallId, Instant, Refusal, Settled, bound};

/// A component's lines are kept up to this many until taken.
const MAX_LINES: usize = 1_024;
/// So many more are kept of the host's own, which a component's may not crowd out.
const MAX_HOST_LINES: usize = 256;

const SECOND_MS: u64 = 1_000;

pub(crate) struct Outbox {
    settled: Vec<Settled>,
    log: Vec<LogLine>,
    flood: Flood,
    responses: Vec<(RequestId, Response)>,
}

/// A component's lines of the second under way.
struct Flood {
    most: usize,
    since: Instant,
    passed: usize,
    dropped: u64,
    /// Whether it was said that some were dropped.
    told: bool,
}

impl Outbox {
    pub(crate) fn new(lines_per_second: usize) -> Self {
        Self {
            settled: Vec::new(),
            log: Vec::new(),
            flood: Flood { most: lines_per_second, since: 0, passed: 0, dropped: 0, told: false },
            responses: Vec::new(),
        }
    }

    /// Another limit of a component's lines within a second, from now on.
    pub(crate) fn set_lines_per_second(&mut self, most: usize) {
        self.flood.most = most;
    }

    /// Begins another second, if the last one has passed.
    pub(crate) fn pass(&mut self, now: Instant) {
        if now < self.flood.since.saturating_add(SECOND_MS) {
            return;
        }
        (self.flood.since, self.flood.passed, self.flood.told) = (now, 0, false);
        self.tell_dropped();
    }

    /// When [`pass`](Self::pass) has something to say.
    pub(crate) fn due(&self) -> Option<Instant> {
        (self.flood.dropped > 0).then(|| self.flood.since.saturating_add(SECOND_MS))
    }

    fn tell_dropped(&mut self) {
        let Flood { dropped: 1.., told: false, .. } = self.flood else { return };
        let message = format!("the component logged too much: {} lines dropped", self.flood.dropped);
        if self.line(Level::Warn, message) {
            (self.flood.dropped, self.flood.told) = (0, true);
        }
    }

    fn collect_lines(&mut self, queue: &mut LogQueue, now: Instant) {
        self.pass(now);
        let (lines, dropped) = queue.drain();
        let room =
            MAX_LINES.saturating_sub(self.log.len()).min(self.flood.most.saturating_sub(self.flood.passed));
        let kept = lines.len().min(room);
        self.flood.passed += kept;
        self.flood.dropped += dropped + (lines.len() - kept) as u64;
        self.log.extend(lines.into_iter().take(kept));
        self.tell_dropped();
    }

    /// Takes what a store has queued, as far as the table agrees.
    pub(crate) fn collect(&mut self, state: &mut State, table: &mut Table, now: Instant) {
        for (id, result) in state.settled.drain(..) {
            self.settle(id, result, table, now);
        }
        self.collect_answers(state, now);
    }

    /// The same of a store that decides nothing any more.
    pub(crate) fn collect_answers(&mut self, state: &mut State, now: Instant) {
        self.responses.append(&mut state.responses);
        self.collect_lines(&mut state.log, now);
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

    /// A line of the host's own, which may quote the component. Whether there was room for it.
    pub(crate) fn line(&mut self, level: Level, mut message: String) -> bool {
        let has_room = self.log.len() < MAX_LINES + MAX_HOST_LINES;
        if has_room {
            bound::cut(&mut message);
            self.log.push(LogLine { level, message });
        }
        has_room
    }

    pub(crate) fn respond(&mut self, id: RequestId, response: Response) {
        self.responses.push((id, response));
    }

    /// Answers for a store that will not.
    pub(crate) fn fail_open_requests(&mut self, state: &mut State) {
        for (id, _) in state.open.drain(..) {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_of_the_host_s_is_short_whatever_it_quotes() {
        let mut out = Outbox::new(1);
        assert!(out.line(Level::Warn, "x".repeat(1 << 20)));
        let [line] = &out.take_log()[..] else { panic!("one line") };
        assert!(line.message.len() < 20_000, "{}", line.message.len());
    }
}
