//! A limiter with a clock of its own, for tests that read like the rules.
#![allow(dead_code, reason = "every test file uses its own part")]

use limiter::config::{Mode, parse};
use limiter::{
    CallId, Instant, Limiter, Outcome, Reason, Refusal, Route, ScopeStats, SpawnCall, Stats, StatsQuery,
    StreamCall, Verdict,
};

/// The limiter, and what has been decided.
pub struct Desk {
    pub limiter: Limiter,
    pub now: Instant,
    pub last: CallId,
    pub admitted: Vec<CallId>,
    pub refused: Vec<(CallId, Refusal)>,
}

/// A desk where `p/m` has this limit.
pub fn desk(max: i64) -> Desk {
    Desk::new(&format!(r#"{{"limits":[{{"provider":"p","model":"m","max":{max}}}]}}"#))
}

impl Desk {
    pub fn new(json: &str) -> Self {
        let mut desk =
            Self { limiter: Limiter::new(), now: 1_000, last: 0, admitted: vec![], refused: vec![] };
        desk.configure(json);
        desk
    }

    pub fn configure(&mut self, json: &str) {
        let (config, _) = parse(json, Mode::Strict).unwrap_or_else(|problems| panic!("{problems:?}"));
        self.limiter.configure(config, self.now);
        self.listen();
    }

    /// A later call of a session on `p/m`.
    pub fn call(&mut self, session: &str) -> (CallId, Verdict) {
        self.call_on("p/m", session)
    }

    pub fn call_on(&mut self, route: &str, session: &str) -> (CallId, Verdict) {
        self.start(StreamCall { session: Some(session.into()), ..stream(route) })
    }

    /// A call without a session on `p/m`.
    pub fn anonymous(&mut self) -> (CallId, Verdict) {
        self.start(stream("p/m"))
    }

    /// The first call of the child of a spawn.
    pub fn child(&mut self, spawn: CallId, session: &str) -> (CallId, Verdict) {
        let call =
            StreamCall { session: Some(session.into()), first: true, spawn: Some(spawn), ..stream("p/m") };
        self.start(call)
    }

    pub fn start(&mut self, call: StreamCall) -> (CallId, Verdict) {
        self.last += 1;
        let verdict = self.limiter.start_stream(self.last, call, self.now);
        self.listen();
        (self.last, verdict)
    }

    pub fn spawn(&mut self) -> (CallId, Verdict) {
        self.spawn_on("p/m")
    }

    pub fn spawn_on(&mut self, route: &str) -> (CallId, Verdict) {
        self.last += 1;
        let call = SpawnCall {
            tool: "subagent".into(),
            session: Some("parent".into()),
            route: Some(stream(route).route),
        };
        let verdict = self.limiter.start_spawn(self.last, call, self.now);
        self.listen();
        (self.last, verdict)
    }

    pub fn end(&mut self, id: CallId) {
        self.finish(id, Outcome::Completed);
    }

    pub fn cancel(&mut self, id: CallId) {
        self.finish(id, Outcome::Cancelled);
    }

    pub fn finish(&mut self, id: CallId, outcome: Outcome) {
        self.limiter.finish(id, outcome, self.now);
        self.listen();
    }

    /// Time passes; the limiter is ticked as often as it asks for.
    pub fn pass(&mut self, ms: u64) {
        let end = self.now + ms;
        let mut due = self.limiter.tick(self.now);
        while let Some(at) = due.filter(|at| *at <= end) {
            self.now = at;
            due = self.limiter.tick(at);
        }
        self.now = end;
        self.limiter.tick(end);
        self.listen();
    }

    fn listen(&mut self) {
        for (id, result) in self.limiter.settled() {
            match result {
                Ok(()) => self.admitted.push(id),
                Err(refusal) => self.refused.push((id, refusal)),
            }
        }
    }

    /// Who has been admitted from the line since the last time.
    pub fn newly_admitted(&mut self) -> Vec<CallId> {
        std::mem::take(&mut self.admitted)
    }

    pub fn stats(&self) -> Stats {
        self.limiter.stats(&StatsQuery::default(), self.now)
    }

    pub fn scope(&self, text: &str) -> ScopeStats {
        let stats = self.stats();
        stats
            .scopes
            .into_iter()
            .find(|scope| scope.scope == text)
            .unwrap_or_else(|| panic!("no scope {text}"))
    }

    pub fn active(&self) -> u32 {
        self.stats().entries.iter().map(|entry| entry.active).sum()
    }

    pub fn waiting(&self) -> u32 {
        self.stats().entries.iter().map(|entry| entry.waiting).sum()
    }

    /// The refusal of a call that waited.
    pub fn refusal(&self, id: CallId) -> &Refusal {
        &self
            .refused
            .iter()
            .find(|(refused, _)| *refused == id)
            .unwrap_or_else(|| panic!("{id} is not refused"))
            .1
    }
}

pub fn stream(route: &str) -> StreamCall {
    let (provider, model) = route.split_once('/').unwrap_or_else(|| panic!("{route} is no route"));
    StreamCall { route: Route::new(provider, model), session: None, first: false, spawn: None, within: None }
}

pub fn waits(verdict: &Verdict) -> bool {
    matches!(verdict, Verdict::Wait { .. })
}

pub fn admits(verdict: &Verdict) -> bool {
    *verdict == Verdict::Admit
}

pub fn denied(verdict: &Verdict) -> &Reason {
    match verdict {
        Verdict::Deny(refusal) => &refusal.reason,
        other => panic!("{other:?} is no refusal"),
    }
}

pub const NOBODY: [CallId; 0] = [];
