//! Several plugins that all must admit.
//!
//! # Order
//!
//! A call is brought to one plugin after the other. Where one makes it wait, the later ones are not asked before that wait
//! ends; where one refuses it, those that had admitted it are told that it was cancelled. So whoever comes last decides about
//! calls that nothing else holds back any more, and that is where seats belong: a seat that is held while an earlier plugin
//! still makes the call wait is a seat that nobody uses. Hence plugins of the world `hooks` come first, in the order of their
//! names, then those of the world `plugin`, which may draw seats from pools, and last the host's own.
//!
//! # Identity
//!
//! The chain mints the ids, and every plugin knows a call by the same one. An id is the number of the call's arrival, so who has
//! waited at an earlier plugin comes to a later one with the seniority it arrived with.
//!
//! # Change
//!
//! Plugins are added, replaced and removed while calls run and wait. One that is added, or gets another place because its
//! successor is of the other world, is told of every call of its kind that is past its place, as running: it did not admit
//! them, but it has to count them. Where one is removed, those that it kept waiting go on to the next. The host's own plugin is
//! always there.
//!
//! So a call need not be known to just the plugins before some place. Wherever a wait ends, those are asked that do not know
//! the call; whoever refuses, it is over for all that do.
//!
//! # Time
//!
//! Many waits may end at once, and the next plugin may be slow, or loop at every call. So they are brought on oldest first, and
//! only for as long as one operation should take; the rest is due at once, and until then new calls come after it.

use std::collections::BTreeMap;
use std::mem;

use serde_json::{Map, Value, json};

use crate::ask::{Answer, Ask, AskId};
use crate::bindings::exports::dsh::plugin::lifecycle::RestoredCall;
use crate::clock::thread_cpu_ms;
use crate::log::LogLine;
use crate::plugin::{Incoming, Role};
use crate::routes::{Request, RequestId, Response};
use crate::{
    CallId, Component, ConfigureError, Fault, Instant, Limits, MemberId, Mode, Options, Outcome, Plugin,
    Problem, Refusal, Runtime, Settled, SharedPool, StartError, Started, Status, StreamCall, ToolCall,
    Verdict, World, bound,
};

/// Milliseconds of a processor after which, in one operation, nobody more is brought on to the next plugin.
const MOVING_MS: u64 = 10;

/// Several plugins at work for the same calls. It may be sent, not shared: it lives where the calls are.
///
/// Used like one [`Plugin`]: operations are synchronous, and after each there may be something to [take](Self::take_settled) and
/// another [`next_tick`](Self::next_tick).
pub struct Chain {
    runtime: Runtime,
    /// Never empty; the host's own is the last.
    links: Vec<Link>,
    next: CallId,
    /// Those whose wait ended at one of them, and who are nowhere else yet.
    moving: BTreeMap<CallId, Moving>,
    /// When the rest of them is to be brought on.
    due: Option<Instant>,
    settled: Vec<Settled>,
    /// Of plugins that have gone.
    log: Vec<LogLine>,
    responses: Vec<(RequestId, Response)>,
    facts: Map<String, Value>,
}

struct Link {
    name: String,
    plugin: Plugin,
}

/// What is to become of one whose wait ended.
enum Moving {
    /// The others are asked.
    On(RestoredCall),
    /// It is over for the others too.
    Out(Refusal),
}

/// A question of one of the plugins.
#[derive(Clone, Debug)]
pub struct Asked {
    /// Whose.
    pub plugin: String,
    /// What.
    pub ask: Ask,
}

impl Chain {
    /// A chain of one, the host's own plugin, which stays its last. The problems are those of [`Mode::Lenient`].
    ///
    /// # Errors
    ///
    /// Those of [`Plugin::new`].
    pub fn new(
        runtime: &Runtime,
        name: impl Into<String>,
        component: Component,
        options: Options,
        now: Instant,
    ) -> Result<(Self, Vec<Problem>), StartError> {
        let (plugin, problems) = Plugin::new(runtime, component, options, now)?;
        let chain = Self {
            runtime: runtime.clone(),
            links: vec![Link { name: name.into(), plugin }],
            next: 1,
            moving: BTreeMap::new(),
            due: None,
            settled: Vec::new(),
            log: Vec::new(),
            responses: Vec::new(),
            facts: Map::new(),
        };
        Ok((chain, problems))
    }

    /// Puts a component to work under a name. Where there is one of that name it takes its place, and what it counted and kept
    /// waiting carries over; without a configuration the one in force stays, or `{}` is. Gives the problems of
    /// [`Mode::Lenient`].
    ///
    /// # Errors
    ///
    /// If it cannot be brought to work, refuses its configuration, or wants to serve paths that lie outside `/api/<name>/`.
    /// Then everything is as it was.
    pub fn put(
        &mut self,
        name: &str,
        component: Component,
        limits: Limits,
        config: Option<(String, Mode)>,
        now: Instant,
    ) -> Result<Vec<Problem>, StartError> {
        let incoming = Incoming { component, limits, config };
        let changed = match self.at(name) {
            Some(at) => self.replace_at(at, incoming, now),
            None => self.insert(name, incoming, now),
        };
        self.settle(now);
        changed
    }

    fn replace_at(
        &mut self,
        at: usize,
        incoming: Incoming,
        now: Instant,
    ) -> Result<Vec<Problem>, StartError> {
        let world = incoming.component.world();
        self.links[at].plugin.replace_under(incoming, now)?;
        let problems = self.links[at].plugin.status().problems;
        // One of the other world may have another place.
        if at + 1 < self.links.len() {
            let link = self.links.remove(at);
            let place = self.place_of(&link.name, world);
            self.links.insert(place, link);
            if let Err(fault) = self.adopt(place, now) {
                self.links[place].plugin.recover(fault, now);
            }
        }
        Ok(problems)
    }

    fn insert(&mut self, name: &str, incoming: Incoming, now: Instant) -> Result<Vec<Problem>, StartError> {
        let Incoming { component, limits, config } = incoming;
        let place = self.place_of(name, component.world());
        let role = Role::Added(name.to_owned());
        let (config, mode) = config.unwrap_or_else(|| ("{}".into(), Mode::Strict));
        let options = Options { limits, config, mode };
        let (plugin, problems) = Plugin::with_role(&self.runtime, role, component, options, now)?;
        self.links.insert(place, Link { name: name.to_owned(), plugin });
        if let Err(fault) = self.adopt(place, now) {
            self.links.remove(place);
            return Err(fault.into());
        }
        Ok(problems)
    }

    /// Tells one of them of the calls past its place that it does not know.
    fn adopt(&mut self, at: usize, now: Instant) -> Result<(), Fault> {
        let (before, after) = self.links.split_at_mut(at + 1);
        let link = &mut before[at];
        let mut passed = BTreeMap::new();
        for (id, call, since) in after.iter().flat_map(|link| link.plugin.calls()) {
            if link.wants(call) && link.plugin.call(id).is_none() {
                passed.entry(id).or_insert_with(|| (call.clone(), since));
            }
        }
        link.plugin.adopt(passed, now)
    }

    /// Takes a plugin out. Whoever waits for it goes on to the next; requests that are open there get 503. The host's own, and
    /// a name that nobody has, are left alone.
    pub fn remove(&mut self, name: &str, now: Instant) {
        let Some(at) = self.at(name).filter(|&at| at + 1 < self.links.len()) else { return };
        // Out of the chain first: nobody who comes free elsewhere is brought to it any more.
        let Link { name, mut plugin } = self.links.remove(at);
        plugin.dissolve(now);
        self.moving.extend(ended(&mut plugin));
        self.settle(now);
        self.log.extend(lines_of(&name, &mut plugin));
        self.responses.extend(plugin.take_responses());
    }

    /// Replaces the component of a plugin and nothing else about it.
    ///
    /// # Errors
    ///
    /// Those of [`Plugin::replace`]; also if there is no plugin of that name.
    pub fn replace(&mut self, name: &str, component: Component, now: Instant) -> Result<(), StartError> {
        let at = self.at(name).ok_or_else(|| unknown(name))?;
        let limits = self.links[at].plugin.limits().clone();
        self.put(name, component, limits, None, now).map(drop)
    }

    /// [`Plugin::configure`] of one of them.
    ///
    /// # Errors
    ///
    /// Those of [`Plugin::configure`]; also if there is no plugin of that name.
    pub fn configure(
        &mut self,
        name: &str,
        json: &str,
        mode: Mode,
        now: Instant,
    ) -> Result<Vec<Problem>, ConfigureError> {
        let at = self.at(name).ok_or_else(|| unknown(name))?;
        let problems = self.links[at].plugin.configure(json, mode, now);
        self.settle(now);
        problems
    }

    /// Their names, in the order in which they are asked.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.links.iter().map(|link| link.name.as_str())
    }

    /// One of them, to be looked at.
    pub fn plugin(&self, name: &str) -> Option<&Plugin> {
        Some(&self.links[self.at(name)?].plugin)
    }

    /// How the host's own plugin is doing.
    pub fn status(&self) -> Status {
        self.own().status()
    }

    /// The tools to bring to [`start_tool`](Self::start_tool), of all of them. May change with everything that changes the chain.
    pub fn tools(&self) -> Vec<String> {
        let mut tools: Vec<String> =
            self.links.iter().flat_map(|link| link.plugin.tools().iter().cloned()).collect();
        tools.sort_unstable();
        tools.dedup();
        tools
    }

    /// The paths to bring to [`request`](Self::request), of all of them.
    pub fn paths(&self) -> Vec<String> {
        self.links.iter().flat_map(|link| link.plugin.paths().iter().cloned()).collect()
    }

    /// Asks whether a model call may leave for its provider.
    pub fn start_stream(&mut self, call: StreamCall, now: Instant) -> Started {
        self.start(RestoredCall::Model(bound::stream(call)), now)
    }

    /// Asks whether a tool call may run.
    pub fn start_tool(&mut self, call: ToolCall, now: Instant) -> Started {
        self.start(RestoredCall::Tool(bound::tool(call)), now)
    }

    fn start(&mut self, call: RestoredCall, now: Instant) -> Started {
        let id = self.next;
        self.next += 1;
        let verdict = if self.moving.is_empty() {
            self.ask(id, call, now)
        } else {
            // It is younger than they are.
            self.moving.insert(id, Moving::On(call));
            Verdict::Wait { deadline: None, seniority: id }
        };
        self.settle(now);
        Started { id, verdict }
    }

    /// Asks the plugins that do not know the call.
    fn ask(&mut self, id: CallId, call: RestoredCall, now: Instant) -> Verdict {
        let last = self.links.len() - 1;
        for link in &mut self.links[..last] {
            if !link.wants(&call) || link.plugin.call(id).is_some() {
                continue;
            }
            match link.plugin.start(id, call.clone(), now) {
                Verdict::Admit => {}
                Verdict::Deny(refusal) => return self.deny(id, refusal, now),
                wait @ Verdict::Wait { .. } => return wait,
            }
        }
        // Nobody comes to it who has not been everywhere else.
        if !self.links[last].wants(&call) {
            return Verdict::Admit;
        }
        match self.links[last].plugin.start(id, call, now) {
            Verdict::Deny(refusal) => self.deny(id, refusal, now),
            verdict => verdict,
        }
    }

    /// One of them has refused a call: those that know it are told that it does not come.
    fn deny(&mut self, id: CallId, refusal: Refusal, now: Instant) -> Verdict {
        for link in self.links.iter_mut().filter(|link| link.plugin.call(id).is_some()) {
            link.plugin.finish(id, Outcome::Cancelled, now);
        }
        Verdict::Deny(refusal)
    }

    /// Tells that a call ended, or was given up while it waited. Repeating it, or an unknown id, does nothing.
    pub fn finish(&mut self, id: CallId, outcome: Outcome, now: Instant) {
        let last = self.links.len() - 1;
        for link in &mut self.links[..last] {
            link.plugin.finish(id, outcome.clone(), now);
        }
        self.links[last].plugin.finish(id, outcome, now);
        self.moving.remove(&id);
        self.settled.retain(|settled| settled.id != id);
        self.settle(now);
    }

    /// Brings those whose wait ended at one plugin to the next, until nobody moves or it has taken long.
    fn settle(&mut self, now: Instant) {
        let mut began = None;
        self.gather();
        while let Some((id, moving)) = self.moving.pop_first() {
            let began = *began.get_or_insert_with(thread_cpu_ms);
            let verdict = match moving {
                Moving::On(call) => self.ask(id, call, now),
                Moving::Out(refusal) => self.deny(id, refusal, now),
            };
            match verdict {
                Verdict::Admit => self.settled.push(Settled { id, result: Ok(()) }),
                Verdict::Wait { .. } => {}
                Verdict::Deny(refusal) => self.settled.push(Settled { id, result: Err(refusal) }),
            }
            self.gather();
            if thread_cpu_ms() - began >= MOVING_MS {
                break;
            }
        }
        self.due = (!self.moving.is_empty()).then_some(now);
    }

    /// Takes the waits that ended. Whoever the host's own plugin admits has been everywhere.
    fn gather(&mut self) {
        let last = self.links.len() - 1;
        for link in &mut self.links[..last] {
            self.moving.extend(ended(&mut link.plugin));
        }
        for Settled { id, result } in self.links[last].plugin.take_settled() {
            match result {
                Ok(()) => self.settled.push(Settled { id, result }),
                Err(refusal) => drop(self.moving.insert(id, Moving::Out(refusal))),
            }
        }
    }

    /// Does what is due at `now`. To be called when [`next_tick`](Self::next_tick) is reached; earlier does no harm.
    pub fn tick(&mut self, now: Instant) {
        for link in &mut self.links {
            link.plugin.tick(now);
        }
        self.settle(now);
    }

    /// When to call [`tick`](Self::tick). An instant that has passed means at once, after other events had their turn.
    pub fn next_tick(&self) -> Option<Instant> {
        self.links.iter().filter_map(|link| link.plugin.next_tick()).chain(self.due).min()
    }

    /// Makes the host's own plugin a member of a pool, under a name for people; it leaves with the chain. Others share no seats,
    /// or one that was dropped in could state a ceiling for all.
    pub fn join(&mut self, pool: SharedPool, name: &str, now: Instant) {
        let last = self.links.len() - 1;
        self.links[last].plugin.join(pool, name, now);
        self.settle(now);
    }

    /// [`Plugin::part`] of the host's own plugin.
    pub fn part(&mut self) {
        let last = self.links.len() - 1;
        self.links[last].plugin.part();
    }

    /// Which member of its pool it is.
    pub fn member(&self) -> Option<MemberId> {
        self.own().member()
    }

    /// Takes what the pool has for it, as every operation does.
    pub fn collect_grants(&mut self, now: Instant) {
        let last = self.links.len() - 1;
        self.links[last].plugin.collect_grants(now);
        self.settle(now);
    }

    /// The waits that ended since the last time: every waiting id exactly once, never one that was finished.
    pub fn take_settled(&mut self) -> Vec<Settled> {
        mem::take(&mut self.settled)
    }

    /// What was logged since the last time; lines of a plugin that is not the host's own begin with its name.
    pub fn take_log(&mut self) -> Vec<LogLine> {
        let mut log = mem::take(&mut self.log);
        let last = self.links.len() - 1;
        for link in &mut self.links[..last] {
            log.extend(lines_of(&link.name, &mut link.plugin));
        }
        log.append(&mut self.links[last].plugin.take_log());
        log
    }

    /// Hands a request to the plugin whose path it is. The answer comes out of [`take_responses`](Self::take_responses), as a rule
    /// at once.
    pub fn request(&mut self, request: Request, now: Instant) -> RequestId {
        let last = self.links.len() - 1;
        let serves = |link: &Link| link.plugin.paths().contains(&request.path);
        let at = self.links.iter().rposition(serves).unwrap_or(last);
        let mut facts = self.facts.clone();
        if at == last {
            facts.insert("plugins".into(), self.describe());
        }
        let plugin = &mut self.links[at].plugin;
        plugin.tell_of_host(facts);
        let id = plugin.request(request, now);
        self.settle(now);
        id
    }

    /// The plugins beside the host's own, for whoever looks.
    fn describe(&self) -> Value {
        let added = &self.links[..self.links.len() - 1];
        added
            .iter()
            .map(|Link { name, plugin }| {
                let mut told = plugin.status().to_object();
                told.insert("name".into(), json!(name));
                Value::Object(told)
            })
            .collect()
    }

    /// What the host's own plugin is told of its host, with every request: members of `host-status`.
    pub fn tell_of_host(&mut self, facts: Map<String, Value>) {
        self.facts = facts;
    }

    /// The answers since the last time, to each request exactly once.
    pub fn take_responses(&mut self) -> Vec<(RequestId, Response)> {
        let mut responses = mem::take(&mut self.responses);
        responses.extend(self.links.iter_mut().flat_map(|link| link.plugin.take_responses()));
        responses
    }

    /// What the plugins ask of the harness since the last time. Each is to be [answered](Self::answer).
    pub fn take_asks(&mut self) -> Vec<Asked> {
        let ask_of = |link: &mut Link| {
            let plugin = link.name.clone();
            link.plugin.take_asks().into_iter().map(move |ask| Asked { plugin: plugin.clone(), ask })
        };
        self.links.iter_mut().flat_map(ask_of).collect()
    }

    /// [`Plugin::answer`] of the one that asked.
    pub fn answer(&mut self, id: AskId, answer: Answer, now: Instant) {
        let Some(at) = (0..self.links.len()).find(|&at| self.links[at].plugin.has_asked(id)) else { return };
        self.links[at].plugin.answer(id, answer, now);
        self.settle(now);
    }

    /// Whether there is anything to take by [`take_asks`](Self::take_asks) or [`take_responses`](Self::take_responses).
    pub fn has_answers(&mut self) -> bool {
        !self.responses.is_empty() || self.links.iter_mut().any(|link| link.plugin.has_answers())
    }

    /// Lets open requests go on. There is nothing to do while none is open.
    pub fn turn(&mut self, now: Instant) {
        for link in &mut self.links {
            link.plugin.turn(now);
        }
        self.settle(now);
    }

    fn own(&self) -> &Plugin {
        &self.links[self.links.len() - 1].plugin
    }

    fn at(&self, name: &str) -> Option<usize> {
        self.links.iter().position(|link| link.name == name)
    }

    /// Where a plugin that is not the host's own belongs.
    fn place_of(&self, name: &str, world: World) -> usize {
        let rank = |name: &str, world: World| (world == World::Plugin, name.to_owned());
        let new = rank(name, world);
        let added = &self.links[..self.links.len() - 1];
        added.partition_point(|link| rank(&link.name, link.plugin.component().world()) < new)
    }
}

impl Link {
    /// Whether its plugin is asked about such a call.
    fn wants(&self, call: &RestoredCall) -> bool {
        match call {
            RestoredCall::Model(_) => true,
            RestoredCall::Tool(call) => self.plugin.tools().contains(&call.tool),
        }
    }
}

/// The waits that ended at a plugin, of calls that go on and of those that do not.
fn ended(plugin: &mut Plugin) -> Vec<(CallId, Moving)> {
    let moving = |plugin: &Plugin, Settled { id, result }| match result {
        Ok(()) => Some((id, Moving::On(plugin.call(id)?.clone()))),
        Err(refusal) => Some((id, Moving::Out(refusal))),
    };
    plugin.take_settled().into_iter().filter_map(|settled| moving(plugin, settled)).collect()
}

fn lines_of(name: &str, plugin: &mut Plugin) -> impl Iterator<Item = LogLine> {
    plugin
        .take_log()
        .into_iter()
        .map(move |line| LogLine { message: format!("{name}: {}", line.message), ..line })
}

fn unknown(name: &str) -> StartError {
    let message = format!("no plugin is called {name}");
    StartError::Config { problems: vec![Problem { path: String::new(), message }] }
}
