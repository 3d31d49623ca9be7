//! Runs a history through the model and a subject and compares them after every step.

use std::sync::Arc;

use limiter::config::{Mode, parse};
use limiter::{
    Audit, CallId, Config, Grant, Instant, LiveCall, Need, Outcome, Route, ScopeKey, Settled, SpawnCall,
    Stats, StreamCall, Verdict, WaitingCall,
};

use crate::history::{ROUTES, Step};
use crate::run::Run;

/// What is compared with the model.
pub trait Subject {
    /// Replaces the configuration, which is this text.
    fn configure(&mut self, config: &Configured, now: Instant);
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
    /// It is to break so many operations from now and to recover by itself, if it can.
    fn trap_after(&mut self, operations: u64) {
        let _ = operations;
    }
    /// Who is there, if what is kept for speed can be looked at.
    fn audit(&self) -> Option<Audit> {
        None
    }
}

/// A configuration, as text and as the limiter reads it.
#[derive(Debug)]
pub struct Configured {
    /// The text.
    pub json: String,
    /// What it says.
    pub config: Config,
}

impl Configured {
    /// Reads a configuration of a test.
    pub fn new(json: &str) -> Arc<Self> {
        let (config, _) =
            parse(json, Mode::Strict).unwrap_or_else(|problems| panic!("{problems:?} in {json}"));
        Arc::new(Self { json: json.into(), config })
    }
}

/// What a host knows when the state is lost.
pub struct Known {
    /// The configuration in force.
    pub config: Arc<Configured>,
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
/// I2 (no waiter fits) holds in the model by its definition of serving, I1, I5 and I6 are asserted at its every admission;
/// the comparison carries them over to the subject.
pub fn drive(subject: impl Subject, world: &str, steps: &[Step], pools: bool) {
    let mut history = History::new(subject, world, pools);
    for (at, step) in steps.iter().enumerate() {
        history.step(step);
        history.run.check(&format!("after step {at} {step:?}"));
    }
    history.wind_down();
}

/// L2, as far as a finite run can show it: after a history, while somebody new arrives again and again and the oldest
/// holding ends again and again, the oldest waiter that no limit of 0 blocks is admitted. `arrivals` are routes, and
/// whether a spawn arrives; every one is of a new session, since a session that overlaps its calls never lets go.
pub fn starve(subject: impl Subject, world: &str, steps: &[Step], arrivals: &[(u8, bool)]) {
    let mut history = History::new(subject, world, false);
    for step in steps {
        history.step(step);
    }
    let Some(oldest) = history.run.model.oldest_unpaused() else { return };
    for (round, &(route, spawn)) in arrivals.iter().cycle().enumerate() {
        let tables = &history.run.model.tables;
        if !tables.waiting.iter().any(|waiter| waiter.id == oldest) {
            return;
        }
        assert!(round < 1_000, "L2: {oldest} starves: {:#?}", history.run.model);
        for _ in 0..3 {
            history.step(&if spawn {
                Step::Spawn { session: None, route: Some(route) }
            } else {
                Step::Stream { session: None, route, first: true, spawn: None }
            });
        }
        let tables = &history.run.model.tables;
        let credits = tables.spawns.iter().filter(|spawn| spawn.credit).map(|spawn| spawn.call.id);
        if let Some(id) = tables.live.iter().map(|call| call.id).chain(credits).min() {
            history.run.finish(id, false);
        }
    }
}

struct History<S> {
    run: Run<S>,
    /// All ids handed out, and whether each is a spawn.
    calls: Vec<(CallId, bool)>,
}

impl<S: Subject> History<S> {
    fn new(subject: S, world: &str, pools: bool) -> Self {
        Self { run: Run::new(subject, world, pools), calls: Vec::new() }
    }

    fn step(&mut self, step: &Step) {
        let session = |n: Option<u8>| n.map(|n| format!("s{n}"));
        match *step {
            Step::Stream { session: n, route, first, spawn } => {
                let spawns: Vec<CallId> =
                    self.calls.iter().filter(|(_, spawn)| *spawn).map(|(id, _)| *id).collect();
                let spawn =
                    spawn.filter(|_| !spawns.is_empty()).map(|at| spawns[usize::from(at) % spawns.len()]);
                // A spawn that has not been let through has no child yet.
                let spawn = spawn.filter(|id| self.run.model.tables.waiting.iter().all(|w| w.id != *id));
                let (route, session) = (route_at(route), session(n));
                let call = StreamCall { route, session, first, spawn, within: None };
                self.calls.push((self.run.stream(call), false));
            }
            Step::Spawn { session: n, route } => {
                let (session, route) = (session(n), route.map(route_at));
                let id = self.run.spawn(SpawnCall { tool: "subagent".into(), session, route });
                self.calls.push((id, true));
            }
            Step::Finish(at, completed) => {
                if !self.calls.is_empty() {
                    self.run.finish(self.calls[usize::from(at) % self.calls.len()].0, completed);
                }
            }
            Step::Tick(ms) => _ = self.run.advance(ms.into()),
            Step::Configure(ref world) => self.run.configure(Configured::new(world)),
            Step::Capacity(at, seats, ms, contended) => {
                let pooled: Vec<ScopeKey> = self.run.model.pooled().cloned().collect();
                if !pooled.is_empty() {
                    let key = &pooled[usize::from(at) % pooled.len()];
                    self.run.grant(key, seats.into(), ms.map(u64::from), contended);
                }
            }
            Step::Rebuild(portion) => self.run.rebuild(portion.into()),
        }
    }

    /// L1: when calls end and nothing arrives, only waiters blocked by a limit of 0 remain. I7: nothing is left behind.
    fn wind_down(mut self) {
        let run = &mut self.run;
        run.wind_down();
        for (id, _) in self.calls {
            run.finish(id, false);
        }
        run.check_empty();
    }
}

fn route_at(at: u8) -> Route {
    let (provider, model) = ROUTES[usize::from(at)];
    Route::new(provider, model)
}
