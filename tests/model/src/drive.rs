//! Runs a history through the model and a subject and compares them after every step.

use limiter::config::{Mode, parse};
use limiter::{
    AnyCall, CallId, Grant, Instant, LiveCall, Need, Outcome, Reason, Refusal, Route, ScopeKey, Settled,
    SpawnCall, Stats, StreamCall, Verdict, WaitingCall,
};

use crate::history::{ROUTES, Step};
use crate::naive::{Answer, Ended, Model, route};

/// What is compared with the model.
pub trait Subject {
    /// Replaces the configuration.
    fn configure(&mut self, json: &str, now: Instant);
    /// A model call arrives.
    fn start_stream(&mut self, id: CallId, call: StreamCall, now: Instant) -> Verdict;
    /// A spawn arrives.
    fn start_spawn(&mut self, id: CallId, call: SpawnCall, now: Instant) -> Verdict;
    /// A call ends.
    fn finish(&mut self, id: CallId, outcome: Outcome, now: Instant);
    /// Time has passed; the answer is when to come again.
    fn tick(&mut self, now: Instant) -> Option<Instant>;
    /// The pool gives seats; only asked of subjects that are driven with pools.
    fn capacity(&mut self, grant: &Grant, now: Instant);
    /// What the pooled scopes need; only asked of subjects that are driven with pools.
    fn demand(&mut self) -> Vec<Need>;
    /// The state is lost; what the host knows is restored, at most `portion` calls at a time. What is decided on the way
    /// comes out of [`settled`](Self::settled).
    fn rebuild(&mut self, known: Known, now: Instant);
    /// Waits that ended since the last time.
    fn settled(&mut self) -> Vec<Settled>;
    /// What `stats` says, if it can be asked at any time.
    fn stats(&mut self, now: Instant) -> Option<Stats>;
}

/// What a host knows when the state is lost.
pub struct Known {
    /// The configuration in force.
    pub json: String,
    /// Seats held of pooled scopes.
    pub capacity: Vec<Grant>,
    /// Who runs.
    pub live: Vec<LiveCall>,
    /// Who waits, oldest first.
    pub waiting: Vec<WaitingCall>,
    /// At most so many calls in one portion.
    pub portion: usize,
}

/// Drives both through a history and then to its end; panics where they differ or where an invariant does not hold.
///
/// I2 (no waiter fits) holds in the model by its definition of serving, I1 and I5 are asserted at its every admission;
/// the comparison carries them over to the subject.
pub fn drive(subject: &mut dyn Subject, world: &str, steps: &[Step], pools: bool) {
    let mut run = Run::new(subject, world, pools);
    for (at, step) in steps.iter().enumerate() {
        run.step(step);
        run.check(&format!("after step {at} {step:?}"));
    }
    run.wind_down();
}

/// L2, as far as a finite run can show it: after a history, while somebody new arrives again and again and the oldest
/// holding ends again and again, the oldest waiter that no limit of 0 blocks is admitted. `arrivals` are routes, and
/// whether a spawn arrives; every one is of a new session, since a session that overlaps its calls never lets go.
pub fn starve(subject: &mut dyn Subject, world: &str, steps: &[Step], arrivals: &[(u8, bool)]) {
    let mut run = Run::new(subject, world, false);
    for step in steps {
        run.step(step);
    }
    let Some(oldest) = run.model.oldest_unpaused() else { return };
    for (round, &(route, spawn)) in arrivals.iter().cycle().enumerate() {
        if !run.model.waiting.iter().any(|waiter| waiter.id == oldest) {
            return;
        }
        assert!(round < 1_000, "L2: {oldest} starves: {:#?}", run.model);
        for _ in 0..3 {
            run.step(&if spawn {
                Step::Spawn { session: None, route: Some(route) }
            } else {
                Step::Stream { session: None, route, first: true, spawn: None }
            });
        }
        let credits = run.model.spawns.iter().filter(|(_, credit)| *credit).map(|(spawn, _)| spawn.id);
        if let Some(id) = run.model.live.iter().map(|call| call.id).chain(credits).min() {
            run.finish(id, false);
        }
    }
}

struct Run<'a> {
    subject: &'a mut dyn Subject,
    model: Model,
    json: String,
    now: Instant,
    /// All ids handed out, and whether each is a spawn.
    calls: Vec<(CallId, bool)>,
    pools: bool,
}

impl<'a> Run<'a> {
    /// Both under the configuration of this world, with nobody there.
    fn new(subject: &'a mut dyn Subject, world: &str, pools: bool) -> Self {
        let (model, json) = (Model::default(), world.to_owned());
        let mut run = Self { subject, model, json, now: 1_000, calls: Vec::new(), pools };
        run.configure(world.to_owned());
        run
    }

    fn step(&mut self, step: &Step) {
        let next = self.calls.len() as CallId + 1;
        match step {
            Step::Stream { session, route, first, spawn } => {
                let spawns: Vec<CallId> =
                    self.calls.iter().filter(|(_, spawn)| *spawn).map(|(id, _)| *id).collect();
                let spawn =
                    spawn.filter(|_| !spawns.is_empty()).map(|at| spawns[usize::from(at) % spawns.len()]);
                // A spawn that has not been let through has no child yet.
                let spawn = spawn.filter(|id| !self.model.waiting.iter().any(|w| w.id == *id));
                let call = StreamCall {
                    route: route_at(*route),
                    session: session.map(|n| format!("s{n}")),
                    first: *first,
                    spawn,
                    within: None,
                };
                self.calls.push((next, false));
                let verdict = self.subject.start_stream(next, call.clone(), self.now);
                self.arrived(next, AnyCall::Stream(call), verdict);
            }
            Step::Spawn { session, route } => {
                let call = SpawnCall {
                    tool: "subagent".into(),
                    session: session.map(|n| format!("s{n}")),
                    route: route.map(route_at),
                };
                self.calls.push((next, true));
                let verdict = self.subject.start_spawn(next, call.clone(), self.now);
                self.arrived(next, AnyCall::Spawn(call), verdict);
            }
            Step::Finish(at, completed) => {
                if !self.calls.is_empty() {
                    self.finish(self.calls[usize::from(*at) % self.calls.len()].0, *completed);
                }
            }
            Step::Tick(ms) => {
                self.now += u64::from(*ms);
                self.tick();
            }
            Step::Configure(world) => self.configure(world.clone()),
            Step::Capacity(at, seats, ms, contended) => {
                let pooled: Vec<ScopeKey> = self
                    .model
                    .config
                    .limits
                    .iter()
                    .filter(|(_, l)| l.is_pooled())
                    .map(|(key, _)| key.clone())
                    .collect();
                if !pooled.is_empty() {
                    let key = &pooled[usize::from(*at) % pooled.len()];
                    let until = ms.map(|ms| self.now + u64::from(ms));
                    self.grant(key, u32::from(*seats), until, *contended);
                }
            }
            Step::Rebuild(portion) => self.rebuild(usize::from(*portion)),
        }
    }

    fn grant(&mut self, key: &ScopeKey, seats: u32, until: Option<Instant>, contended: bool) {
        let grant = Grant { scope: key.to_string(), seats, until, contended };
        self.subject.capacity(&grant, self.now);
        let ended = self.model.capacity(key, grant, self.now);
        self.ended(ended);
    }

    fn arrived(&mut self, id: CallId, call: AnyCall, verdict: Verdict) {
        let (answer, ended) = self.model.arrive(id, call, self.now);
        let got = match verdict {
            Verdict::Admit => Answer::Admit,
            Verdict::Wait { deadline, seniority } => Answer::Wait(deadline, seniority),
            Verdict::Deny(refusal) => Answer::Deny(refusal.reason),
        };
        assert_eq!(got, answer, "verdict for call {id}");
        self.ended(ended);
    }

    fn finish(&mut self, id: CallId, completed: bool) {
        let outcome = if completed { Outcome::Completed } else { Outcome::Failed };
        self.subject.finish(id, outcome, self.now);
        let ended = self.model.finish(id, completed, self.now);
        self.ended(ended.into_iter().filter(|(ended, _)| *ended != id).collect());
    }

    fn tick(&mut self) -> Option<Instant> {
        self.ended(Vec::new())
    }

    fn configure(&mut self, world: String) {
        let (config, _) =
            parse(&world, Mode::Strict).unwrap_or_else(|problems| panic!("{problems:?} in {world}"));
        self.subject.configure(&world, self.now);
        self.json = world;
        let ended = self.model.configure(config, self.now);
        self.ended(ended);
    }

    fn rebuild(&mut self, portion: usize) {
        // A host ticks when it is due; what is due now is decided before the state is lost.
        self.tick();
        let (live, waiting) = self.model.tables();
        let capacity = self.model.capacity.values().map(|(grant, _)| grant.clone());
        let known = Known { json: self.json.clone(), capacity: capacity.collect(), live, waiting, portion };
        // Of those that have come and gone nobody knows any more.
        let ids = known.live.iter().map(|call| call.id).chain(known.waiting.iter().map(|call| call.id));
        self.model.newest = ids.max().unwrap_or(0);
        self.subject.rebuild(known, self.now);
        // A credit runs from its spawn's admission; one that ran out under a shorter grace runs on under a longer.
        let grace = self.model.config.spawn_grace_ms;
        for (spawn, credit) in &mut self.model.spawns {
            let failed = spawn.ended.is_some_and(|end| !end.completed);
            *credit = !failed && spawn.since.saturating_add(grace) > self.now;
        }
        self.ended(Vec::new());
    }

    /// After every operation the host ticks. Then the subject has told of exactly the waits that ended in the model, in
    /// the same order, and both want the next tick at the same time.
    fn ended(&mut self, mut expected: Vec<Ended>) -> Option<Instant> {
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

    fn check(&mut self, when: &str) {
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
            assert_eq!(scope.occupancy, self.model.occupancy(&key), "I3: occupancy of {key}, {when}");
            assert_eq!(scope.credits, self.model.credits(&key), "credits of {key}, {when}");
        }
        let run = stats.totals;
        let ended = run.finished + run.totals.refused.sum() + run.totals.cancelled;
        assert_eq!(
            run.submitted,
            run.live + run.waiting + run.spawned + ended,
            "I4: the books balance, {when}: {run:?}"
        );
        assert_eq!(run.waiting, self.model.waiting.len() as u64, "who waits, {when}");
        assert_eq!(run.live, self.model.live.len() as u64, "who runs, {when}");
        assert_eq!(run.spawned, self.model.spawns.len() as u64, "spawns remembered, {when}");
    }

    /// L1: when calls end and nothing arrives, only waiters blocked by a limit of 0 remain. I7: nothing is left behind.
    fn wind_down(&mut self) {
        for key in self.model.config.limits.clone().into_keys() {
            if self.model.config.limits[&key].is_pooled() {
                self.grant(&key, 9, None, false);
            }
        }
        loop {
            let next = self
                .model
                .live
                .first()
                .or(self.model.spawns.first().map(|(spawn, _)| spawn))
                .map(|call| call.id);
            let Some(id) = next else { break };
            self.finish(id, true);
            self.now += self.model.config.spawn_grace_ms;
            self.tick();
        }
        for waiter in &self.model.waiting {
            let blocked = route(&waiter.call).is_some_and(|route| {
                let zero = self.model.config.limits.iter().filter(|(_, limit)| limit.least() == Some(0));
                zero.map(|(key, _)| key).any(|key| self.model.is_in(key, route))
            });
            assert!(blocked, "L1: {waiter:?} remains although nothing runs and nothing is paused");
        }
        for (id, _) in self.calls.clone() {
            self.finish(id, false);
        }
        self.check("at the end");
        if let Some(stats) = self.subject.stats(self.now) {
            assert_eq!(stats.entries, [], "I7: nobody is busy");
            assert_eq!(
                stats.scopes.len(),
                self.model.config.limits.len(),
                "I7: only configured scopes are left"
            );
        }
        let due = self.tick();
        let leases = self.model.capacity.values().any(|(grant, _)| grant.until.is_some());
        assert!(due.is_none() || leases, "I7: nothing is due any more, yet {due:?}");
    }
}

fn route_at(at: u8) -> Route {
    let (provider, model) = ROUTES[usize::from(at)];
    Route::new(provider, model)
}
