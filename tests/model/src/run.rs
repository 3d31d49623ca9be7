//! A subject and the model, side by side: every operation is done to both, and what both say of it is compared.

use std::sync::Arc;

use limiter::config::{Mode, parse};
use limiter::{
    AnyCall, CallId, Config, Grant, Instant, Outcome, Reason, Refusal, ScopeKey, SpawnCall, StreamCall,
    Verdict,
};

use crate::drive::{Known, Subject};
use crate::model::{Answer, Ended, Model};

/// Reads a configuration of a test.
pub fn config(json: &str) -> Arc<Config> {
    let (config, _) = parse(json, Mode::Strict).unwrap_or_else(|problems| panic!("{problems:?} in {json}"));
    Arc::new(config)
}

/// Both. Panics where they differ.
#[derive(Clone)]
pub struct Run<S> {
    /// What is tested.
    pub subject: S,
    /// What it is compared with.
    pub model: Model,
    /// The time.
    pub now: Instant,
    /// The id of the call that comes next.
    pub next: CallId,
    json: Arc<str>,
    pools: bool,
}

impl<S: Subject> Run<S> {
    /// Both under this configuration, with nobody there.
    pub fn new(subject: S, world: &str, pools: bool) -> Self {
        let json = world.into();
        let mut run = Self { subject, model: Model::default(), now: 1_000, next: 1, json, pools };
        run.configure(world, config(world));
        run
    }

    /// A model call arrives; the answer is its id.
    pub fn stream(&mut self, call: StreamCall) -> CallId {
        let verdict = self.subject.start_stream(self.next, call.clone(), self.now);
        self.arrived(AnyCall::Stream(call), verdict)
    }

    /// A spawn arrives; the answer is its id.
    pub fn spawn(&mut self, call: SpawnCall) -> CallId {
        let verdict = self.subject.start_spawn(self.next, call.clone(), self.now);
        self.arrived(AnyCall::Spawn(call), verdict)
    }

    fn arrived(&mut self, call: AnyCall, verdict: Verdict) -> CallId {
        let id = self.next;
        self.next += 1;
        let (answer, ended) = self.model.arrive(id, call, self.now);
        let got = match verdict {
            Verdict::Admit => Answer::Admit,
            Verdict::Wait { deadline, seniority } => Answer::Wait(deadline, seniority),
            Verdict::Deny(refusal) => Answer::Deny(refusal.reason),
        };
        assert_eq!(got, answer, "verdict for call {id}");
        self.ended(ended);
        id
    }

    /// A call ends.
    pub fn finish(&mut self, id: CallId, completed: bool) {
        let outcome = if completed { Outcome::Completed } else { Outcome::Failed };
        self.subject.finish(id, outcome, self.now);
        let ended = self.model.finish(id, completed, self.now);
        self.ended(ended.into_iter().filter(|(ended, _)| *ended != id).collect());
    }

    /// Time passes; the answer is when the next thing is due.
    pub fn advance(&mut self, ms: u64) -> Option<Instant> {
        self.now += ms;
        self.ended(Vec::new())
    }

    /// Another configuration.
    pub fn configure(&mut self, json: &str, config: Arc<Config>) {
        self.subject.configure(json, self.now);
        self.json = json.into();
        let ended = self.model.configure(config, self.now);
        self.ended(ended);
    }

    /// A pool gives seats, for some time if need be.
    pub fn grant(&mut self, key: &ScopeKey, seats: u32, ms: Option<u64>, contended: bool) {
        let until = ms.map(|ms| self.now + ms);
        let grant = Grant { scope: key.to_string(), seats, until, contended };
        self.subject.capacity(&grant, self.now);
        let ended = self.model.capacity(key, &grant, self.now);
        self.ended(ended);
    }

    /// The state is lost; what the host knows is restored, in portions.
    pub fn rebuild(&mut self, portion: usize) {
        // A host ticks when it is due; what is due now is decided before the state is lost.
        self.advance(0);
        let (live, waiting) = self.model.known();
        let capacity = self.model.grants();
        let known = Known { json: self.json.to_string(), capacity, live, waiting, portion };
        self.subject.rebuild(known, self.now);
        self.model.rebuilt(self.now);
        self.advance(0);
    }

    /// After every operation the host ticks. Then the subject has told of exactly the waits that ended in the model, in
    /// the same order, and both want the next tick at the same time.
    fn ended(&mut self, mut expected: Ended) -> Option<Instant> {
        let due = self.subject.tick(self.now);
        let (next, ended) = self.model.tick(self.now);
        expected.extend(ended);
        let reasons =
            |(id, result): (CallId, Result<(), Refusal>)| (id, result.map_err(|refusal| refusal.reason));
        let got: Vec<(CallId, Result<(), Reason>)> =
            self.subject.settled().into_iter().map(reasons).collect();
        assert_eq!(got, expected, "waits that ended");
        assert_eq!(due, next, "when to tick again");
        due
    }

    /// What both say of who is there and of what pools have to give is the same.
    pub fn check(&mut self, when: &str) {
        if self.pools {
            let needs = self.subject.demand();
            let wanted = self.model.demand();
            for need in needs {
                assert_eq!(wanted.get(&need.scope), Some(&need), "demand, {when}");
            }
        }
        let Some(stats) = self.subject.stats(self.now) else { return };
        for scope in &stats.scopes {
            let key = ScopeKey::parse(&scope.scope).unwrap_or_else(|| panic!("{scope:?}"));
            let counts = (scope.occupancy, scope.credits);
            assert_eq!(counts, self.model.counts(&key), "I3: occupancy and credits of {key}, {when}");
        }
        let run = stats.totals;
        let ended = run.finished + run.totals.refused.sum() + run.totals.cancelled;
        assert_eq!(
            run.submitted,
            run.live + run.waiting + run.spawned + ended,
            "I4: the books balance, {when}: {run:?}"
        );
        let tables = &self.model.tables;
        assert_eq!(run.waiting, tables.waiting.len() as u64, "who waits, {when}");
        assert_eq!(run.live, tables.live.len() as u64, "who runs, {when}");
        assert_eq!(run.spawned, tables.spawns.len() as u64, "spawns remembered, {when}");
    }

    /// L1: when calls end and nothing arrives, only waiters blocked by a limit of 0 remain.
    pub fn wind_down(&mut self) {
        for key in self.model.pooled().cloned().collect::<Vec<_>>() {
            self.grant(&key, 9, None, false);
        }
        loop {
            let tables = &self.model.tables;
            let spawn = tables.spawns.first().map(|spawn| &spawn.call);
            let Some(id) = tables.live.first().or(spawn).map(|call| call.id) else { break };
            self.finish(id, true);
            self.advance(self.model.config.spawn_grace_ms);
        }
        let tables = &self.model.tables;
        for waiter in &tables.waiting {
            let blocked = tables.routes[waiter.route].iter().any(|&scope| tables.scopes[scope].max == 0);
            assert!(blocked, "L1: {waiter:?} remains although nothing runs and nothing is paused");
        }
    }

    /// I7: when everybody has gone, nothing is left behind.
    pub fn check_empty(&mut self) {
        self.check("at the end");
        if let Some(stats) = self.subject.stats(self.now) {
            assert_eq!(stats.entries, [], "I7: nobody is busy");
            let limits = self.model.config.limits.len();
            assert_eq!(stats.scopes.len(), limits, "I7: only configured scopes are left");
        }
        let due = self.advance(0);
        let leases = self.model.leases.values().any(|(until, _)| until.is_some());
        assert!(due.is_none() || leases, "I7: nothing is due any more, yet {due:?}");
    }
}
