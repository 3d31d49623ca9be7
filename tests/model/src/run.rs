//! A subject and the model, side by side: every operation is done to both, and what both say of it is compared.

use std::sync::Arc;

use limiter::{
    AnyCall, CallId, Grant, Instant, Outcome, Reason, Refusal, ScopeKey, SpawnCall, StreamCall, Verdict,
};

use crate::drive::{Configured, Known, Subject};
use crate::model::{Answer, Ended, Model};
use crate::tables::Tables;

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
    /// The configuration in force.
    pub config: Arc<Configured>,
    pools: bool,
}

impl<S: Subject> Run<S> {
    /// Both under this configuration, with nobody there.
    pub fn new(subject: S, world: &str, pools: bool) -> Self {
        Self::under(subject, Configured::new(world), pools)
    }

    /// Both under this configuration, with nobody there.
    pub fn under(subject: S, config: Arc<Configured>, pools: bool) -> Self {
        let mut run =
            Self { subject, model: Model::default(), now: 1_000, next: 1, config: config.clone(), pools };
        run.configure(config);
        run
    }

    /// A model call arrives; the answer is its id.
    pub fn stream(&mut self, call: StreamCall) -> CallId {
        let verdict = self.subject.start_stream(self.next, call.clone(), self.now);
        self.arrived(&AnyCall::Stream(call), verdict)
    }

    /// A spawn arrives; the answer is its id.
    pub fn spawn(&mut self, call: SpawnCall) -> CallId {
        let verdict = self.subject.start_spawn(self.next, call.clone(), self.now);
        self.arrived(&AnyCall::Spawn(call), verdict)
    }

    fn arrived(&mut self, call: &AnyCall, verdict: Verdict) -> CallId {
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
    pub fn configure(&mut self, config: Arc<Configured>) {
        self.subject.configure(&config, self.now);
        let ended = self.model.configure(config.clone(), self.now);
        self.config = config;
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
        let known = Known { config: self.config.clone(), capacity, live, waiting, portion };
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

    /// Who is there is the same for both, and so is what the limiter keeps for speed.
    pub fn check_audit(&self) {
        let Some(audit) = self.subject.audit() else { return };
        let Tables { live, waiting, spawns, scopes, .. } = &self.model.tables;
        let mut running: Vec<CallId> = live.iter().map(|call| call.id).collect();
        running.sort_unstable();
        assert_eq!(audit.live, running, "who runs");
        assert!(
            audit.waiting.iter().copied().eq(waiting.iter().map(|call| (
                call.seniority,
                call.id,
                call.since
            ))),
            "who waits: {:?}, not {waiting:?}",
            audit.waiting
        );
        let mut remembered: Vec<_> =
            spawns.iter().map(|spawn| (spawn.call.id, spawn.credit, self.model.grace(spawn))).collect();
        remembered.sort_unstable();
        assert_eq!(audit.spawns, remembered, "spawns remembered");
        for (key, seats, until, contended) in audit.seats {
            let scope = &scopes[self.model.scope(&key).expect("a pooled scope has a limit")];
            assert_eq!((seats, contended), (scope.seats, scope.contended), "seats of {key}");
            let lease = self.model.leases.get(&key).and_then(|(until, _)| *until);
            assert_eq!(until, lease, "until when {key} has seats");
        }
    }

    /// What pools are asked for is the same.
    pub fn check_demand(&mut self) {
        if self.pools {
            let needs = self.subject.demand();
            let wanted = self.model.demand();
            for need in needs {
                assert_eq!(wanted.get(&need.scope), Some(&need), "demand");
            }
        }
    }

    /// What both say of who is there and of what pools have to give is the same.
    pub fn check(&mut self, when: &str) {
        self.check_audit();
        self.check_demand();
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
            self.advance(self.model.tables.knobs.spawn_grace_ms);
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
            let limits = self.model.config.config.limits.len();
            assert_eq!(stats.scopes.len(), limits, "I7: only configured scopes are left");
        }
        let due = self.advance(0);
        let leases = self.model.leases.values().any(|(until, _)| until.is_some());
        assert!(due.is_none() || leases, "I7: nothing is due any more, yet {due:?}");
    }
}
