//! Every interleaving of the limiter's operations in a small world, breadth first.
//!
//! A state is who is there under which configuration. It is written down with new numbers ([`Run::picture`]): sessions are
//! numbered by what they do, ids by their order, and of the distance between two ids only as much is kept as any rule asks
//! about. So the space is finite, and two states with one picture go on alike. That the limiter is nothing beyond that is
//! checked at every step: whatever it keeps for speed is what it is defined to be ([`limiter::Limiter::audit`]).
//!
//! After every step: the limiter and the rules agree on every verdict, on who was told what in which order, and on who is
//! there; I1 to I7; L1 where nothing runs any more, which every state comes to when calls end. In worlds where nobody's wait
//! runs out, over the whole graph: L2.

use std::any::Any;
use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::{Duration, Instant};

use limiter::{CallId, Route, SpawnCall, StreamCall};

use crate::drive::{Configured, Subject};
use crate::run::Run;
use crate::starvation::{Graph, Seats};
use crate::tables::{Call, Tables};

/// What can happen in a small world. All of it happens, in every order.
#[derive(Clone, Debug)]
pub struct World {
    /// Its name.
    pub name: &'static str,
    /// The configurations.
    pub configs: Vec<Arc<Configured>>,
    /// To which of them each can change.
    pub changes: Vec<Vec<usize>>,
    /// The routes.
    pub routes: Vec<Route>,
    /// Sessions with a name.
    pub sessions: usize,
    /// How many calls each of them may have at once, and of those on one route.
    pub calls: (usize, usize),
    /// How many calls without a session there may be at once.
    pub nameless: usize,
    /// How many spawns may wait or be remembered at once.
    pub spawns: usize,
    /// By how much time passes, if it does: every timeout and grace is so many times this.
    pub tick: Option<u64>,
    /// The most seats a pool gives; `None` without pools.
    pub seats: Option<u32>,
    /// Whether the state may be lost and restored.
    pub rebuilds: bool,
}

/// Something happens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Op {
    /// A model call: of a session or of none, its first or a later one, the child of a spawn or of none.
    Stream {
        /// Which session.
        session: Option<usize>,
        /// Which route.
        route: usize,
        /// Whether the session has called before.
        begun: bool,
        /// Whose child it is.
        spawn: Option<CallId>,
    },
    /// A spawn for a route.
    Spawn(usize),
    /// A call ends, well or not, or gives up.
    Finish(CallId, bool),
    /// Time passes.
    Tick,
    /// Another configuration.
    Configure(usize),
    /// A pool gives a scope so many seats, and says whether others wait.
    Grant(usize, u32, bool),
    /// The state is lost and restored.
    Rebuild,
}

/// What was covered.
#[derive(Clone, Copy, Debug, Default)]
pub struct Covered {
    /// Different states.
    pub states: usize,
    /// Steps from them.
    pub transitions: usize,
    /// How long it took.
    pub time: Duration,
}

/// A promise that does not hold, and the shortest way there.
#[derive(Debug)]
pub struct Violation {
    /// What happened, from the beginning.
    pub path: Vec<Op>,
    /// What is wrong then.
    pub what: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}, after", self.what)?;
        self.path.iter().try_for_each(|op| writeln!(f, "  {op:?}"))
    }
}

/// Goes everywhere.
///
/// # Errors
/// The first promise that does not hold.
pub fn explore<S: Subject + Clone>(world: &World, subject: S) -> Result<Covered, Violation> {
    let start = Instant::now();
    let mut reached = Reached { world, ways: Vec::new(), pictures: HashMap::new() };
    let mut covered = Covered::default();
    let mut graph = Graph::default();
    let mut first =
        Place { run: Run::under(subject, world.configs[0].clone(), world.seats.is_some()), config: 0 };
    first.name_everything(world);
    let (picture, _) = first.picture(world);
    graph.add(first.seats(world));
    reached.add(picture, (0, Op::Tick));
    let mut frontier = vec![(0, first)];
    while !frontier.is_empty() {
        let mut next = Vec::new();
        for (from, place) in frontier {
            let before = place.picture(world).1;
            for op in place.ops(world) {
                covered.transitions += 1;
                let mut after = place.clone();
                catch_unwind(AssertUnwindSafe(|| {
                    after.go(world, op);
                    after.check(&place);
                }))
                .map_err(|panic| Violation { path: reached.path(from, Some(op)), what: told(&*panic) })?;
                let (picture, names) = after.picture(world);
                let known = reached.pictures.get(&picture).copied();
                let to = known.unwrap_or_else(|| reached.add(picture, (from, op)));
                if world.is_patient() && place.stays(&after, op) {
                    graph.connect(from, to, &before, &names, place.frees(op));
                }
                if known.is_none() {
                    graph.add(after.seats(world));
                    next.push((to, after));
                }
            }
        }
        frontier = next;
    }
    if let Some(at) = graph.starving() {
        let what = "L2: from here the oldest waiter waits for ever, although every seat changes hands".into();
        return Err(Violation { path: reached.path(at, None), what });
    }
    covered.states = reached.ways.len();
    covered.time = start.elapsed();
    Ok(covered)
}

fn told(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    text.or(panic.downcast_ref::<&str>().copied()).unwrap_or("a panic").to_owned()
}

/// The states found so far, by picture, and how each was come to.
struct Reached<'a> {
    world: &'a World,
    ways: Vec<(usize, Op)>,
    pictures: HashMap<Box<[u8]>, usize>,
}

impl Reached<'_> {
    fn add(&mut self, picture: Box<[u8]>, way: (usize, Op)) -> usize {
        let at = self.ways.len();
        self.ways.push(way);
        self.pictures.insert(picture, at);
        at
    }

    fn path(&self, mut at: usize, last: Option<Op>) -> Vec<Op> {
        let mut path: Vec<Op> = last.into_iter().collect();
        while at > 0 {
            let (from, op) = self.ways[at];
            path.push(op);
            at = from;
        }
        path.reverse();
        debug_assert!(!self.world.configs.is_empty());
        path
    }
}

/// Where a history has come to.
#[derive(Clone)]
struct Place<S> {
    run: Run<S>,
    config: usize,
}

impl World {
    /// Nobody's wait runs out, and no pool keeps its seats.
    fn is_patient(&self) -> bool {
        self.seats.is_none() && self.configs.iter().all(|config| config.config.queue_timeout_ms == 0)
    }

    /// The greatest distance between two ids that makes a difference.
    fn reach(&self) -> u64 {
        let reach = |config: &Arc<Configured>| {
            // So many never come.
            let overtakes = Some(config.config.max_overtakes).filter(|&n| n < 1_000).unwrap_or(0);
            overtakes + config.config.head_start + 1
        };
        self.configs.iter().map(reach).max().unwrap_or(1)
    }

    fn longest(&self, knob: impl Fn(&limiter::Config) -> u64) -> u64 {
        self.configs.iter().map(|config| knob(&config.config)).max().unwrap_or(0)
    }
}

impl<S: Subject + Clone> Place<S> {
    /// Sessions and routes are known by number, the same in every history.
    fn name_everything(&mut self, world: &World) {
        for session in 0..world.sessions {
            assert_eq!(self.run.model.session(&name(session)), session);
        }
        for (number, route) in world.routes.iter().enumerate() {
            assert_eq!(self.run.model.route(route), number);
        }
    }

    fn tables(&self) -> &Tables {
        &self.run.model.tables
    }

    fn calls(&self) -> impl Iterator<Item = &Call> {
        let Tables { live, waiting, .. } = self.tables();
        live.iter().chain(waiting).filter(|call| !call.is_spawn)
    }

    /// Everything that can happen next. Of sessions that do the same one is tried, and of calls that are the same.
    fn ops(&self, world: &World) -> Vec<Op> {
        let Tables { live, waiting, spawns, .. } = self.tables();
        let mut ops = Vec::new();
        let begun: &[bool] =
            if world.longest(|config| config.head_start) > 0 { &[false, true] } else { &[false] };
        let sessions = self.by_doings(world);
        for (at, (session, doing)) in sessions.iter().enumerate() {
            if at > 0 && sessions[at - 1].1 == *doing {
                continue;
            }
            let mine = || self.calls().filter(|call| call.session == Some(*session));
            for route in 0..world.routes.len() {
                let here = mine().filter(|call| call.route == route).count();
                if mine().count() >= world.calls.0 || here >= world.calls.1 {
                    continue;
                }
                let session = Some(*session);
                ops.extend(begun.iter().map(|&begun| Op::Stream { session, route, begun, spawn: None }));
                if mine().next().is_none() {
                    let children = spawns.iter().map(|spawn| Some(spawn.call.id));
                    ops.extend(children.map(|spawn| Op::Stream { session, route, begun: false, spawn }));
                }
            }
        }
        for route in 0..world.routes.len() {
            if self.calls().filter(|call| call.session.is_none()).count() < world.nameless {
                ops.push(Op::Stream { session: None, route, begun: false, spawn: None });
                let children = spawns.iter().map(|spawn| Some(spawn.call.id));
                ops.extend(children.map(|spawn| Op::Stream { session: None, route, begun: false, spawn }));
            }
            if spawns.len() + waiting.iter().filter(|waiter| waiter.is_spawn).count() < world.spawns {
                ops.push(Op::Spawn(route));
            }
        }
        let mut classes = BTreeMap::new();
        for call in live {
            classes.entry((call.session, call.route)).or_insert(call.id);
        }
        ops.extend(classes.into_values().map(|id| Op::Finish(id, true)));
        ops.extend(waiting.iter().map(|waiter| Op::Finish(waiter.id, false)));
        for spawn in spawns {
            let changes = |completed: bool| spawn.ended.is_none() || !completed && !spawn.failed;
            ops.extend(
                [true, false].into_iter().filter(|&c| changes(c)).map(|c| Op::Finish(spawn.call.id, c)),
            );
        }
        if world.tick.is_some() && self.run.model.clone().tick(self.run.now).0.is_some() {
            ops.push(Op::Tick);
        }
        ops.extend(world.changes[self.config].iter().map(|&to| Op::Configure(to)));
        if let Some(most) = world.seats {
            for (at, key) in self.run.model.pooled().enumerate() {
                let scope = self.run.model.scope(key).expect("a pooled scope has a limit");
                let scope = &self.tables().scopes[scope];
                let steps = [scope.seats.saturating_sub(1), scope.seats, scope.seats + 1];
                for seats in steps.into_iter().filter(|&seats| seats <= most) {
                    for contended in [false, true] {
                        if (seats, contended) != (scope.seats, scope.contended) {
                            ops.push(Op::Grant(at, seats, contended));
                        }
                    }
                }
            }
        }
        if world.rebuilds {
            ops.push(Op::Rebuild);
        }
        ops
    }

    fn go(&mut self, world: &World, op: Op) {
        match op {
            Op::Stream { session, route, begun, spawn } => {
                let route = world.routes[route].clone();
                let call =
                    StreamCall { route, session: session.map(name), first: !begun, spawn, within: None };
                self.run.stream(call);
            }
            Op::Spawn(route) => {
                let route = Some(world.routes[route].clone());
                self.run.spawn(SpawnCall { tool: "subagent".into(), session: None, route });
            }
            Op::Finish(id, completed) => self.run.finish(id, completed),
            Op::Tick => _ = self.run.advance(world.tick.unwrap_or(0)),
            Op::Configure(to) => {
                self.config = to;
                self.run.configure(world.configs[to].clone());
            }
            Op::Grant(at, seats, contended) => {
                let key = self.run.model.pooled().nth(at).cloned().expect("the scope is pooled");
                self.run.grant(&key, seats, None, contended);
            }
            // One at a time is the hardest: each is served before the next is there.
            Op::Rebuild => self.run.rebuild(1),
        }
    }

    /// What holds after every step. The tables are the model's, and the limiter has just agreed with all of them.
    fn check(&mut self, before: &Self) {
        self.run.check_audit();
        self.run.check_demand();
        let tables = self.tables();
        for call in tables.live.iter().filter(|call| before.tables().live.iter().all(|b| b.id != call.id)) {
            for &scope in &tables.routes[call.route] {
                let mine = tables.holder(scope, call);
                let others = tables
                    .live
                    .iter()
                    .filter(|other| other.id != call.id && tables.routes[other.route].contains(&scope));
                let (occupancy, limit) = (tables.occupancy(scope), tables.limit(scope));
                let held = others.map(|other| tables.holder(scope, other)).any(|holder| holder == mine);
                assert!(held || occupancy <= limit, "I1: {call:?} makes {occupancy} of {limit} in {scope}");
            }
        }
        assert_eq!(tables.next(), None, "I2: somebody waits who fits");
        if tables.live.is_empty() && tables.spawns.iter().all(|spawn| !spawn.credit) {
            for waiter in &tables.waiting {
                let mut scopes = tables.routes[waiter.route].iter();
                let blocked = scopes.any(|&scope| tables.limit(scope) == 0);
                assert!(blocked, "L1: {waiter:?} waits, although nothing runs and nothing is paused");
            }
        }
    }

    /// The sessions in the order of what they do, which is also their new names: with the routes of their live calls, then
    /// the places of their waiting ones.
    fn by_doings(&self, world: &World) -> Vec<(usize, Vec<u8>)> {
        let Tables { live, waiting, .. } = self.tables();
        let doings = |session: usize| {
            let mut doing: Vec<u8> =
                live.iter().filter(|c| c.session == Some(session)).map(|call| call.route as u8).collect();
            doing.sort_unstable();
            let places = waiting.iter().enumerate().filter(|(_, waiter)| waiter.session == Some(session));
            doing.extend(places.map(|(place, _)| 100 + place as u8));
            doing
        };
        let mut sessions: Vec<_> = (0..world.sessions).map(|session| (session, doings(session))).collect();
        sessions.sort_by(|a, b| a.1.cmp(&b.1));
        sessions
    }

    /// The state, with new numbers, and the new number of each session.
    fn picture(&self, world: &World) -> (Box<[u8]>, Vec<u8>) {
        let Tables { live, waiting, spawns, scopes, .. } = self.tables();
        let mut names = vec![0; world.sessions];
        for (new, (old, _)) in self.by_doings(world).into_iter().enumerate() {
            names[old] = new as u8;
        }
        let name = |call: &Call| call.session.map_or(u8::MAX, |session| names[session]);

        let mut marks: Vec<u64> = waiting.iter().map(|waiter| waiter.seniority).collect();
        marks.extend(spawns.iter().map(|spawn| spawn.call.id));
        marks.push(self.run.next);
        if world.seats.is_some() {
            marks.push(self.run.model.newest);
        }
        marks.sort_unstable();
        let reach = world.reach();
        let place = |id: u64| {
            let gaps = marks.windows(2).take_while(|pair| pair[1] <= id).map(|pair| pair[1] - pair[0]);
            gaps.map(|gap| gap.min(reach) as u8).sum::<u8>()
        };

        let unit = world.tick.unwrap_or(1);
        let age = |since: u64, most: u64| ((self.run.now - since).min(most) / unit) as u8;
        let timeout = world.longest(|config| config.queue_timeout_ms);
        let grace = world.longest(|config| config.spawn_grace_ms);

        let mut out = vec![self.config as u8, live.len() as u8, waiting.len() as u8, spawns.len() as u8];
        let mut running: Vec<[u8; 2]> = live.iter().map(|call| [name(call), call.route as u8]).collect();
        running.sort_unstable();
        out.extend(running.as_flattened());
        out.push(place(self.run.next));
        for waiter in waiting {
            let earlier = waiting.iter().filter(|other| timeout > 0 && other.id < waiter.id).count();
            out.extend([name(waiter), waiter.route as u8, waiter.is_spawn.into(), place(waiter.seniority)]);
            out.extend([age(waiter.since, timeout), earlier as u8]);
        }
        for spawn in spawns {
            let state = u8::from(spawn.credit) | u8::from(spawn.failed) << 1;
            let ended = spawn.ended.map_or(u8::MAX, |ended| age(ended, grace));
            out.extend([spawn.call.route as u8, place(spawn.call.id), state, ended]);
            out.push(age(spawn.call.since, grace));
        }
        if world.seats.is_some() {
            out.push(place(self.run.model.newest));
            for scope in scopes {
                out.extend([scope.seats.min(254) as u8, scope.contended.into()]);
            }
        }
        (out.into(), names)
    }

    /// What is held by whom.
    fn seats(&self, world: &World) -> Seats {
        let (_, names) = self.picture(world);
        let tables = self.tables();
        let mut seats = Seats { sessions: vec![0; world.sessions], nameless: 0, credits: false };
        for call in &tables.live {
            match call.session {
                Some(session) => {
                    let scopes = &mut seats.sessions[usize::from(names[session])];
                    *scopes |= tables.routes[call.route].iter().fold(0, |set, scope| set | 1 << scope);
                }
                None => seats.nameless |= 1 << call.route,
            }
        }
        seats.credits = tables.spawns.iter().any(|spawn| spawn.credit);
        seats
    }

    /// Whether the oldest waiter that no limit of 0 blocks stays, while nothing is configured.
    fn stays(&self, after: &Self, op: Op) -> bool {
        let oldest = self.run.model.oldest_unpaused();
        oldest.is_some()
            && oldest == after.run.model.oldest_unpaused()
            && !matches!(op, Op::Configure(_) | Op::Grant(..))
    }

    /// Of what nobody can be told from another: the route of a nameless call that ends, and whether the oldest credit does.
    fn frees(&self, op: Op) -> (u8, bool) {
        let Tables { live, spawns, .. } = self.tables();
        let credit = spawns.iter().find(|spawn| spawn.credit).map(|spawn| spawn.call.id);
        match op {
            Op::Finish(id, completed) => {
                let nameless = live.iter().find(|call| call.id == id && call.session.is_none());
                (nameless.map_or(0, |call| 1 << call.route), credit == Some(id) && !completed)
            }
            Op::Stream { spawn, .. } => (0, spawn.is_some() && spawn == credit),
            Op::Tick => (0, credit.is_some()),
            _ => (0, false),
        }
    }
}

fn name(session: usize) -> String {
    format!("s{session}")
}
