//! What the tests of the built components share: the builds, a host's clock, and short ways to say a call.

use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use gen_limit_runtime::{
    CallId, Component, Instant, Limits, Mode, Options, Outcome, Plugin, Refusal, Route, Runtime, Settled,
    Started, StreamCall, ToolCall, Verdict,
};

/// The route of most calls.
pub const ROUTE: (&str, &str) = ("p", "m");

/// One engine for all tests.
pub fn runtime() -> &'static Runtime {
    static RUNTIME: LazyLock<Runtime> = LazyLock::new(|| Runtime::new().expect("an engine"));
    &RUNTIME
}

/// Where the build that ships is.
pub fn release_path() -> PathBuf {
    built("gen-limit.wasm")
}

/// The build that ships.
pub fn release() -> Component {
    static COMPONENT: LazyLock<Component> = LazyLock::new(|| load(&release_path()));
    COMPONENT.clone()
}

/// The build with faults on demand.
pub fn chaos() -> Component {
    static COMPONENT: LazyLock<Component> = LazyLock::new(|| load(&built("gen-limit-chaos.wasm")));
    COMPONENT.clone()
}

/// Another plugin: a budget of calls a minute.
pub fn budget() -> Component {
    static COMPONENT: LazyLock<Component> = LazyLock::new(|| load(&budget_path()));
    COMPONENT.clone()
}

/// One that does what no plugin should, as its configuration says.
pub fn hostile() -> Component {
    static COMPONENT: LazyLock<Component> = LazyLock::new(|| load(&built("hostile.wasm")));
    COMPONENT.clone()
}

/// Where it is.
pub fn budget_path() -> PathBuf {
    built("budget-guard.wasm")
}

fn built(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/component").join(name)
}

fn load(path: &Path) -> Component {
    assert!(path.exists(), "{} is missing: run `cargo xtask component`", path.display());
    runtime().load_file(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// One plugin and the clock of its host.
pub struct Host {
    /// The plugin.
    pub plugin: Plugin,
    /// Its `now`.
    pub now: Instant,
}

impl Host {
    /// A plugin under a configuration that has no problems.
    pub fn new(component: Component, config: &str) -> Self {
        Self::with_limits(component, config, Limits::default())
    }

    /// The same within given limits.
    pub fn with_limits(component: Component, config: &str, limits: Limits) -> Self {
        let options = Options { limits, config: config.into(), mode: Mode::Strict };
        let (plugin, problems) = Plugin::new(runtime(), component, options, 1_000).expect("a plugin");
        assert!(problems.is_empty(), "{problems:?}");
        Self { plugin, now: 1_000 }
    }

    /// A session's call on the usual route.
    pub fn stream(&mut self, session: &str) -> Started {
        self.plugin.start_stream(stream(session), self.now)
    }

    /// The same, with an order for the build with faults.
    pub fn order(&mut self, session: &str, order: &str) -> Started {
        self.plugin.start_stream(
            StreamCall { extra: vec![("chaos".into(), order.into())], ..stream(session) },
            self.now,
        )
    }

    /// A spawn for the usual route.
    pub fn spawn(&mut self, session: &str) -> Started {
        self.plugin.start_tool(spawn(session), self.now)
    }

    /// A call ran to its end.
    pub fn end(&mut self, id: CallId) {
        self.plugin.finish(id, Outcome::Completed, self.now);
    }

    /// Time passes.
    pub fn pass(&mut self, ms: u64) {
        self.now += ms;
        self.plugin.tick(self.now);
    }

    /// Ticks as long as there is more to do now. How often that was.
    pub fn settle_all(&mut self) -> usize {
        let mut ticks = 0;
        while self.plugin.next_tick().is_some_and(|due| due <= self.now) {
            self.plugin.tick(self.now);
            ticks += 1;
            assert!(ticks < 10_000, "there is more to do for ever");
        }
        ticks
    }

    /// The ids admitted out of the line since the last time; nobody was refused.
    pub fn admitted(&mut self) -> Vec<CallId> {
        self.plugin.take_settled().iter().map(admitted).collect()
    }

    /// Every line of the log since the last time, as one text.
    pub fn log(&mut self) -> String {
        let lines = self.plugin.take_log();
        lines.iter().map(|line| format!("{:?} {}", line.level, line.message)).collect::<Vec<_>>().join("\n")
    }
}

/// A session's call on the usual route.
pub fn stream(session: &str) -> StreamCall {
    StreamCall {
        route: route(),
        session: Some(session.into()),
        root: None,
        parent: None,
        first: false,
        spawn: None,
        purpose: "conversation".into(),
        extra: Vec::new(),
    }
}

/// A spawn for the usual route.
pub fn spawn(session: &str) -> ToolCall {
    ToolCall {
        tool: "subagent".into(),
        session: Some(session.into()),
        route: Some(route()),
        extra: Vec::new(),
    }
}

/// What may have become of a file: it is empty, another, cut short or has grown, or one bit of it is flipped, at so many places.
pub fn spoilt(whole: &[u8], places: usize) -> Vec<Vec<u8>> {
    let flipped = (0..whole.len()).step_by(whole.len().div_ceil(places)).map(|at| {
        let mut bytes = whole.to_vec();
        bytes[at] ^= 0x10;
        bytes
    });
    let mut files = vec![
        Vec::new(),
        b"\x7fELF".to_vec(),
        whole[..whole.len() / 2].to_vec(),
        whole[..whole.len() - 1].to_vec(),
        [whole, &[0]].concat(),
    ];
    files.extend(flipped);
    files
}

/// The usual route.
pub fn route() -> Route {
    Route { provider: ROUTE.0.into(), model: ROUTE.1.into() }
}

/// A configuration with one limit on the usual route and more fields.
pub fn limit(max: i64, more: &str) -> String {
    let (provider, model) = ROUTE;
    format!(r#"{{"limits":[{{"provider":"{provider}","model":"{model}","max":{max}}}]{more}}}"#)
}

/// Whether a call may start now.
pub fn is_admitted(started: &Started) -> bool {
    matches!(started.verdict, Verdict::Admit)
}

/// Whether a call stands in line.
pub fn is_waiting(started: &Started) -> bool {
    matches!(started.verdict, Verdict::Wait { .. })
}

/// The refusal of a call that was denied.
pub fn denied(started: &Started) -> &Refusal {
    match &started.verdict {
        Verdict::Deny(refusal) => refusal,
        other => panic!("expected a refusal, got {other:?}"),
    }
}

/// The id of a wait that ended with admission.
pub fn admitted(settled: &Settled) -> CallId {
    assert!(settled.result.is_ok(), "{settled:?}");
    settled.id
}
