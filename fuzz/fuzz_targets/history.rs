//! A history of hooks through the chain, its components failing wherever it can be: the host does not panic, every wait ends
//! exactly once, every request is answered once, and no session more runs than the limits allow.
//!
//! The first bytes choose configuration, limits of the instance and whether a hostile plugin stands before the limiter; then an
//! operation is a byte, and those after it say more. `onFailure` is `closed` where occupancy is compared: `open` lets calls pass
//! that no component decided.
#![no_main]

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::LazyLock;

use gen_limit_runtime::{
    Answer, Cache, CallId, Chain, Component, ConfigureError, Failure, Limits, Mode, Model, Options, Outcome,
    Question, Request, RequestId, Route, Runtime, SettingsError, Started, State, StreamCall, ToolCall,
    Verdict,
};
use libfuzzer_sys::{Corpus, fuzz_target};

/// Engine and components; they live as long as the process.
struct Built {
    runtime: Runtime,
    release: Component,
    chaos: Component,
    hostile: Component,
}

static BUILT: LazyLock<Built> = LazyLock::new(|| {
    let runtime = Runtime::new().expect("an engine");
    let target = Path::new(env!("CARGO_MANIFEST_DIR")).join("../target");
    let compiled = Cache::in_folder(target.join("fuzz/compiled"));
    let load = |name: &str| {
        let path = target.join("component").join(name);
        runtime
            .load_file_cached(&path, &compiled)
            .unwrap_or_else(|error| panic!("{}: {error}", path.display()))
    };
    let (release, chaos, hostile) =
        (load("gen-limit.wasm"), load("gen-limit-chaos.wasm"), load("hostile.wasm"));
    Built { runtime, release, chaos, hostile }
});

const OWN: &str = "gen-limit";
const HOSTILE: &str = "hostile";
const MODELS: [&str; 3] = ["a", "b", "c"];
/// Scopes, and the models that are in them.
const SCOPES: [(&str, &[&str]); 3] = [("a", &["a"]), ("b", &["b"]), ("g", &["a", "b"])];

/// Draws what a history is made of; zeros when there is nothing left.
struct Bytes<'a>(&'a [u8]);

impl Bytes<'_> {
    fn next(&mut self) -> Option<u8> {
        let (&first, rest) = self.0.split_first()?;
        self.0 = rest;
        Some(first)
    }

    fn below(&mut self, end: u8) -> u8 {
        self.next().unwrap_or_default() % end
    }

    fn flag(&mut self) -> bool {
        self.below(2) == 1
    }

    fn of<T: Copy>(&mut self, all: &[T]) -> T {
        all[usize::from(self.below(u8::try_from(all.len()).expect("a short list")))]
    }
}

/// Limits in force, in the order of `SCOPES`; none is unlimited.
type Caps = [Option<u8>; 3];

#[derive(Clone)]
struct Call {
    model: Option<&'static str>,
    session: String,
}

struct History<'a> {
    bytes: Bytes<'a>,
    chain: Chain,
    now: u64,
    /// Whether nobody is let through but by the component.
    is_closed: bool,
    caps: Caps,
    /// The greatest limits that may have been in force during this operation.
    most: Caps,
    live: BTreeMap<CallId, Call>,
    waiting: BTreeMap<CallId, Call>,
    over: BTreeSet<CallId>,
    open: BTreeSet<RequestId>,
    asked: Vec<(gen_limit_runtime::AskId, Question)>,
}

/// A configuration of the limiter, and what it limits.
fn config(bytes: &mut Bytes<'_>, is_closed: bool) -> (String, Caps) {
    let cap = |bytes: &mut Bytes<'_>| Some(bytes.below(5)).filter(|&max| max < 4);
    let caps: Caps = std::array::from_fn(|_| cap(bytes));
    let row = |model: &str, max: Option<u8>| {
        max.map(|max| format!(r#"{{"provider":"p","model":"{model}","max":{max}}}"#))
    };
    let rows: Vec<String> = [row("a", caps[0]), row("b", caps[1])].into_iter().flatten().collect();
    let group = caps[2].map(|max| {
        format!(r#"{{"name":"g","max":{max},"routes":[{{"provider":"p","model":"a"}},{{"provider":"p","model":"b"}}]}}"#)
    });
    let policy = if is_closed { "closed" } else { "open" };
    let chaos = match bytes.below(6) {
        0 => format!(r#","chaos":"trap-in:{}""#, bytes.below(32)),
        1 => r#","chaos":"mute""#.into(),
        2 => format!(r#","chaos":"flood:{}""#, bytes.below(255)),
        _ => String::new(),
    };
    let more = format!(
        r#""queueTimeoutMs":{},"maxQueued":{},"maxWaiting":{},"headStart":{},"maxOvertakes":{},"spawnGraceMs":{},"maxRestarts":{}"#,
        bytes.of(&[0, 10, 1_000]),
        bytes.of(&[64, 1, 0]),
        bytes.of(&[50_000, 5]),
        bytes.below(3),
        bytes.of(&[64, 0, 1]),
        bytes.of(&[10_000, 0, 50]),
        bytes.below(5),
    );
    let group = group.unwrap_or_default();
    let json = format!(
        r#"{{"limits":[{}],"groups":[{group}],"onFailure":"{policy}",{more}{chaos}}}"#,
        rows.join(",")
    );
    (json, caps)
}

fn instance_limits(bytes: &mut Bytes<'_>) -> Limits {
    let mut limits = if bytes.flag() { Limits::default() } else { Limits::foreign() };
    if bytes.flag() {
        limits.handles = 1 + usize::from(bytes.below(12));
        limits.waits = usize::from(bytes.below(12)).min(limits.handles);
    }
    if bytes.flag() {
        limits.wait_ms = Some(1 + u64::from(bytes.below(200)));
    }
    // A request that hangs is not waited for.
    limits.request_ms = Some(1_000);
    limits
}

fn hostile_config(bytes: &mut Bytes<'_>) -> String {
    let what = bytes.of(&["trap", "none", "flood", "futures", "ask", "recurse"]);
    let place =
        bytes.of(&["start", "tool", "finish", "tool-finish", "tick", "restore", "*", "route", "demand"]);
    let calls = bytes.of(&["admit", "wait", "mute", "deny"]);
    let route = bytes.of(&["", "hang", "yield", "ask"]);
    let policy = bytes.of(&["open", "closed"]);
    let (after, n, restless) = (bytes.below(20), bytes.below(40), bytes.flag());
    format!(
        r#"{{"do":"{what}","in":"{place}","after":{after},"n":{n},"calls":"{calls}","route":"{route}","restless":{restless},"tools":1,"onFailure":"{policy}","maxRestarts":{}}}"#,
        bytes.below(4)
    )
}

impl<'a> History<'a> {
    fn begin(input: &'a [u8]) -> Option<Self> {
        let mut bytes = Bytes(input);
        let is_closed = !bytes.flag();
        let component = if bytes.flag() { &BUILT.release } else { &BUILT.chaos };
        let limits = instance_limits(&mut bytes);
        let (config, caps) = config(&mut bytes, is_closed);
        let options = Options { limits, config, mode: Mode::Lenient };
        let (chain, _) = Chain::new(&BUILT.runtime, OWN, component.clone(), options, 1_000).ok()?;
        let (live, waiting, over) = (BTreeMap::new(), BTreeMap::new(), BTreeSet::new());
        let (open, asked) = (BTreeSet::new(), Vec::new());
        Some(Self { bytes, chain, now: 1_000, is_closed, caps, most: caps, live, waiting, over, open, asked })
    }

    fn run(&mut self) {
        for _ in 0..400 {
            let Some(operation) = self.bytes.next() else { break };
            self.most = self.caps;
            match operation % 16 {
                0..=3 => self.stream(),
                4 => self.tool(),
                5..=7 => self.finish(),
                8 | 9 => {
                    self.now += self.bytes.of(&[0, 1, 10, 400, 70_000]);
                    self.chain.tick(self.now);
                }
                10 => self.configure(),
                11 => self.request(),
                12 => self.chain.turn(self.now),
                13 => self.answer(),
                14 => self.change(),
                _ => {
                    // As a host does: as often as there is more to do, others having their turn in between.
                    for _ in 0..3 {
                        if self.chain.next_tick().is_some_and(|due| due <= self.now) {
                            self.chain.tick(self.now);
                        }
                    }
                }
            }
            self.look();
        }
        self.end();
    }

    fn call(&mut self) -> Call {
        let session = self.bytes.below(6);
        Call { model: Some(self.bytes.of(&MODELS)), session: format!("s{session}") }
    }

    /// An id that the history has seen, or may see, in text or number.
    fn id(&mut self) -> CallId {
        u64::from(self.bytes.below(48))
    }

    fn stream(&mut self) {
        let call = self.call();
        let mut extra = Vec::new();
        match self.bytes.below(10) {
            0 => extra.push(("chaos".into(), format!("trap-in:{}", self.bytes.below(24)))),
            1 => extra.push(("chaos".into(), "trap".into())),
            2 => extra.push(("chaos".into(), "mute".into())),
            3 => extra.push(("within".into(), self.id().to_string())),
            _ => {}
        }
        let spawn = if self.bytes.below(4) == 0 { Some(self.id()) } else { None };
        let asked = StreamCall {
            route: Route { provider: "p".into(), model: call.model.unwrap_or("a").into() },
            session: Some(call.session.clone()),
            root: None,
            parent: None,
            first: spawn.is_some(),
            spawn,
            purpose: "conversation".into(),
            extra,
        };
        let started = self.chain.start_stream(asked, self.now);
        self.begun(started, call);
    }

    fn tool(&mut self) {
        let call = self.call();
        let route = Route { provider: "p".into(), model: call.model.unwrap_or("a").into() };
        let tool = if self.bytes.below(4) == 0 { "tool0" } else { "subagent" };
        let extra = match self.bytes.below(6) {
            0 => vec![("chaos".into(), format!("trap-in:{}", self.bytes.below(24)))],
            _ => Vec::new(),
        };
        let asked = ToolCall {
            tool: tool.into(),
            session: Some(call.session.clone()),
            route: (self.bytes.below(8) != 0).then_some(route),
            extra,
        };
        // As a harness: what nobody wants to be asked about is not brought.
        if !self.chain.tools().iter().any(|wanted| wanted == tool) {
            return;
        }
        let started = self.chain.start_tool(asked, self.now);
        self.begun(started, Call { model: None, ..call });
    }

    fn begun(&mut self, Started { id, verdict }: Started, call: Call) {
        assert!(
            !self.live.contains_key(&id) && !self.waiting.contains_key(&id) && self.over.insert(id),
            "{id} is new"
        );
        match verdict {
            Verdict::Admit => {
                self.check(&call, self.caps);
                self.live.insert(id, call);
            }
            Verdict::Wait { .. } => drop(self.waiting.insert(id, call)),
            // What a plugin has to say is its own affair.
            Verdict::Deny(refusal) => assert!(!refusal.message.is_empty() || refusal.code == "HOSTILE"),
        }
    }

    /// Nobody more than the limits allow.
    fn check(&self, call: &Call, caps: Caps) {
        let Some(model) = call.model.filter(|_| self.is_closed) else { return };
        for ((name, models), cap) in SCOPES.iter().zip(caps) {
            let Some(cap) = cap.filter(|_| models.contains(&model)) else { continue };
            let there =
                self.live.values().filter(|one| one.model.is_some_and(|model| models.contains(&model)));
            let sessions: BTreeSet<_> = there.map(|one| &one.session).collect();
            assert!(
                sessions.contains(&call.session) || sessions.len() < usize::from(cap),
                "{} came to {name}, where {sessions:?} run and {cap} may",
                call.session
            );
        }
    }

    fn finish(&mut self) {
        let known = self.live.len() + self.waiting.len();
        let at = usize::from(self.bytes.below(255));
        let id = if known == 0 || self.bytes.below(8) == 0 {
            self.id()
        } else {
            *self.live.keys().chain(self.waiting.keys()).nth(at % known).expect("one of them")
        };
        let outcome = match self.bytes.below(3) {
            0 => Outcome::Completed,
            1 => Outcome::Cancelled,
            _ => Outcome::Failed(Failure { code: "X".into(), status: Some(500), retry_after_ms: None }),
        };
        self.live.remove(&id);
        self.waiting.remove(&id);
        self.chain.finish(id, outcome, self.now);
    }

    fn configure(&mut self) {
        let (json, caps) = config(&mut self.bytes, self.is_closed);
        let mode = if self.bytes.flag() { Mode::Strict } else { Mode::Lenient };
        match self.chain.configure(OWN, &json, mode, self.now) {
            Ok(_) => self.caps = caps,
            Err(ConfigureError::Refused { problems }) => return assert!(!problems.is_empty()),
            // What was decided under it before the component failed is nobody's.
            Err(_) => return,
        }
        self.most = std::array::from_fn(|at| Some(self.most[at]?.max(caps[at]?)));
    }

    fn request(&mut self) {
        let order = match self.bytes.below(8) {
            0 => "chaos=trap".into(),
            1 => format!("chaos=trap-in:{}", self.bytes.below(24)),
            2 => "chaos=ask".into(),
            3 => "chaos=hang".into(),
            4 => "describe=true".into(),
            _ => String::new(),
        };
        let paths = self.chain.paths();
        let path = match paths.len() {
            0 => "/api/nobody".into(),
            n => paths[usize::from(self.bytes.below(255)) % n].clone(),
        };
        let post = self.bytes.below(4) == 0;
        let request = Request {
            method: if post { "POST" } else { "GET" }.into(),
            path,
            query: order,
            headers: vec![("content-type".into(), "application/json".into())],
            body: if post { br#"{"maxQueued":3}"#.to_vec() } else { Vec::new() },
        };
        let id = self.chain.request(request, self.now);
        assert!(self.open.insert(id), "a request's id is new");
    }

    fn answer(&mut self) {
        let Some((id, question)) = self.asked.pop() else { return };
        let models = || vec![Model { id: "m".into(), name: "M".into() }];
        let answer = match (self.bytes.below(5), question) {
            (0, _) => Answer::Sessions(Vec::new()),
            (_, Question::ReadSettings | Question::UpdateSettings { .. }) => {
                Answer::Settings(Err(SettingsError::Unavailable))
            }
            (_, Question::ListProviders) => Answer::Providers(models()),
            (_, Question::ListModels { .. }) => Answer::Models(Ok(models())),
            (_, Question::DescribeSessions { .. }) => Answer::Sessions(Vec::new()),
        };
        self.chain.answer(id, answer, self.now);
    }

    /// The chain changes.
    fn change(&mut self) {
        match self.bytes.below(4) {
            0 => self.chain.remove(HOSTILE, self.now),
            1 | 2 => {
                let limits = instance_limits(&mut self.bytes);
                let config = hostile_config(&mut self.bytes);
                let _ = self.chain.put(
                    HOSTILE,
                    BUILT.hostile.clone(),
                    limits,
                    Some((config, Mode::Strict)),
                    self.now,
                );
            }
            _ => {
                let component = if self.bytes.flag() { &BUILT.release } else { &BUILT.chaos };
                let _ = self.chain.replace(OWN, component.clone(), self.now);
            }
        }
    }

    /// Takes what there is.
    fn look(&mut self) {
        for settled in self.chain.take_settled() {
            let call = self.waiting.remove(&settled.id);
            let call = call.unwrap_or_else(|| panic!("{} did not wait, or was told twice", settled.id));
            if settled.result.is_ok() {
                self.check(&call, self.most);
                self.live.insert(settled.id, call);
            }
        }
        for (id, response) in self.chain.take_responses() {
            assert!(self.open.remove(&id), "a request that is not open was answered: {response:?}");
        }
        self.asked.extend(self.chain.take_asks().into_iter().map(|asked| (asked.ask.id, asked.ask.question)));
        assert!(self.chain.take_log().len() < 2_000);
        let status = self.chain.status();
        assert!(status.live <= self.live.len() && status.waiting <= self.waiting.len(), "{status:?}");
        if self.is_closed {
            assert!(status.state != State::FailedOpen);
        }
    }

    /// Everybody leaves; nobody and nothing is left.
    fn end(&mut self) {
        let ids: Vec<CallId> = self.live.keys().chain(self.waiting.keys()).copied().collect();
        for id in ids {
            self.live.remove(&id);
            self.waiting.remove(&id);
            self.chain.finish(id, Outcome::Completed, self.now);
            self.look();
        }
        for _ in 0..3 {
            self.now += 70_000;
            self.chain.tick(self.now);
            self.chain.turn(self.now);
            self.look();
        }
        assert!(self.open.is_empty(), "requests that nobody answered: {:?}", self.open);
        for name in [OWN, HOSTILE] {
            let Some(plugin) = self.chain.plugin(name) else { continue };
            let status = plugin.status();
            assert_eq!((status.live, status.waiting), (0, 0), "{name}: {status:?}");
        }
    }
}

fuzz_target!(init: LazyLock::force(&BUILT), |input: &[u8]| -> Corpus {
    match History::begin(input) {
        Some(mut history) => {
            history.run();
            Corpus::Keep
        }
        None => Corpus::Reject,
    }
});
