//! Hosts a `dsh:plugin` component under wasmtime, for any Rust program.
//!
//! A [`Runtime`] compiles files into [`Component`]s; a [`Plugin`] is one component at work: its store, its instance and
//! the host's table of calls.

mod bindings;
mod error;

use std::path::Path;

pub use bindings::dsh::plugin::log::Level;
pub use bindings::dsh::plugin::types::{
    CallId, Failure, Instant, LineFull, Outcome, Refusal, RefusalReason, Route, StreamCall, ToolCall, WaitEnded,
};
pub use bindings::exports::dsh::plugin::lifecycle::{Mode, Problem};
pub use bindings::exports::dsh::plugin::routes::Response;
pub use error::{ConfigureError, Fault, LoadError, StartError};

/// The engine and its clock. Cheap to clone; one per process is enough. `Send + Sync`.
#[derive(Clone)]
pub struct Runtime(());

impl Runtime {
    /// An engine for this machine; starts one thread, which sleeps while no component runs.
    ///
    /// # Errors
    ///
    /// If the machine cannot run compiled WebAssembly.
    pub fn new() -> Result<Self, LoadError> {
        todo!()
    }

    /// Inspects, validates and compiles. Takes a few hundred milliseconds: call it on a worker thread.
    ///
    /// # Errors
    ///
    /// If the bytes are not a component of this contract.
    pub fn load(&self, bytes: &[u8]) -> Result<Component, LoadError> {
        let _ = bytes;
        todo!()
    }

    /// [`load`](Self::load) from a file.
    ///
    /// # Errors
    ///
    /// If the file cannot be read or is not a component of this contract.
    pub fn load_file(&self, path: &Path) -> Result<Component, LoadError> {
        let _ = path;
        todo!()
    }
}

/// A compiled component. Cheap to clone, `Send + Sync`: compile on a worker, use where the calls are.
#[derive(Clone)]
pub struct Component(());

impl Component {
    /// Digest of the file it was made from, in hexadecimal.
    pub fn sha256(&self) -> &str {
        todo!()
    }

    /// Size of the file it was made from, in bytes.
    pub fn size(&self) -> usize {
        todo!()
    }
}

/// What one instance may use.
#[derive(Clone, Debug)]
pub struct Limits {
    /// Memory of all its linear memories together, in bytes.
    pub memory_bytes: usize,
    /// Ticks of 10 ms after which a call that has not returned is stopped.
    pub call_ticks: u64,
    /// Waiting calls and open requests together; reaching it is a trap.
    pub handles: usize,
    /// Requests open at once.
    pub open_requests: usize,
}

/// How a plugin begins.
#[derive(Clone, Debug)]
pub struct Options {
    /// What it may use.
    pub limits: Limits,
    /// Its configuration, a JSON object.
    pub config: String,
    /// What to do if that is wrong in places.
    pub mode: Mode,
}

impl Default for Limits {
    fn default() -> Self {
        Self { memory_bytes: 64 << 20, call_ticks: 5, handles: 262_144, open_requests: 32 }
    }
}

/// The answer to a call that wants to start.
#[derive(Clone, Debug, PartialEq)]
pub enum Verdict {
    /// It may start now.
    Admit,
    /// It stands in line; the decision comes out of [`Plugin::take_settled`].
    Wait {
        /// When the wait runs out, if it does.
        deadline: Option<Instant>,
        /// Its place, smaller is older.
        seniority: u64,
    },
    /// It may not start.
    Deny(Refusal),
}

/// A call that has been asked about.
#[derive(Clone, Debug, PartialEq)]
pub struct Started {
    /// Its id, for [`Plugin::finish`].
    pub id: CallId,
    /// What was decided.
    pub verdict: Verdict,
}

/// The end of one wait: `Ok` is admission.
#[derive(Clone, Debug, PartialEq)]
pub struct Settled {
    /// Whose.
    pub id: CallId,
    /// How it ended.
    pub result: Result<(), Refusal>,
}

/// One line of the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogLine {
    /// How much it matters.
    pub level: Level,
    /// What it says.
    pub message: String,
}

/// A request to one of the plugin's [paths](Plugin::paths).
#[derive(Clone, Debug, Default)]
pub struct Request {
    /// The method, in capitals.
    pub method: String,
    /// The path, without the query.
    pub path: String,
    /// What follows the `?`, still encoded.
    pub query: String,
    /// Header names in lower case, with their values.
    pub headers: Vec<(String, String)>,
    /// The body, whole.
    pub body: Vec<u8>,
}

/// Names a request until its response has been taken.
pub type RequestId = u64;

/// Whether the component decides, or `onFailure` does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// The component decides.
    Running,
    /// It failed too often: calls pass until it is back.
    FailedOpen,
    /// It failed too often: calls are refused until it is back.
    FailedClosed,
}

/// How a plugin is doing.
#[derive(Clone, Debug)]
pub struct Status {
    /// Who decides.
    pub state: State,
    /// Instances built after a fault, since the beginning.
    pub restarts: u64,
    /// The last fault, if there was one.
    pub last_error: Option<String>,
    /// Digest of the component's file.
    pub sha256: String,
    /// Calls that run.
    pub live: usize,
    /// Calls that wait.
    pub waiting: usize,
    /// What is wrong with the configuration in force.
    pub problems: Vec<Problem>,
}

/// One component at work. `Send`, not shared: it lives where the calls are.
pub struct Plugin(());

#[expect(unused_variables, reason = "signatures first")]
impl Plugin {
    /// Brings a component to work under a configuration; the problems are those of `Mode::Lenient`.
    ///
    /// # Errors
    ///
    /// If it cannot be instantiated, fails at once, or refuses the configuration.
    pub fn new(
        runtime: &Runtime,
        component: Component,
        options: Options,
        now: Instant,
    ) -> Result<(Self, Vec<Problem>), StartError> {
        todo!()
    }

    /// The tools to bring to [`start_tool`](Self::start_tool); may change with every `configure`, `replace` and recovery.
    pub fn tools(&self) -> &[String] {
        todo!()
    }

    /// The paths to bring to [`request`](Self::request), exactly; empty if the component has no routes.
    pub fn paths(&self) -> &[String] {
        todo!()
    }

    /// Asks whether a model call may leave for its provider.
    pub fn start_stream(&mut self, call: StreamCall, now: Instant) -> Started {
        todo!()
    }

    /// Asks whether a tool call may run.
    pub fn start_tool(&mut self, call: ToolCall, now: Instant) -> Started {
        todo!()
    }

    /// Tells that a call ended or was given up. Repeating it, or an unknown id, does nothing.
    pub fn finish(&mut self, id: CallId, outcome: Outcome, now: Instant) {
        todo!()
    }

    /// Replaces the whole configuration.
    ///
    /// # Errors
    ///
    /// If the component refuses it or fails over it; what was in force before still is.
    pub fn configure(&mut self, json: &str, mode: Mode, now: Instant) -> Result<Vec<Problem>, ConfigureError> {
        todo!()
    }

    /// Ends what is due. To be called when [`next_tick`](Self::next_tick) is reached; earlier does no harm.
    pub fn tick(&mut self, now: Instant) {
        todo!()
    }

    /// When to call [`tick`](Self::tick) next; an instant that has passed means at once, after other events had their turn.
    pub fn next_tick(&self) -> Option<Instant> {
        todo!()
    }

    /// The waits that ended since the last time, each waiting id exactly once, never one that was finished.
    pub fn take_settled(&mut self) -> Vec<Settled> {
        todo!()
    }

    /// What was logged since the last time.
    pub fn take_log(&mut self) -> Vec<LogLine> {
        todo!()
    }

    /// Hands a request to the component; the answer comes out of [`take_responses`](Self::take_responses), often at once.
    pub fn request(&mut self, request: Request, now: Instant) -> RequestId {
        todo!()
    }

    /// Lets open requests go on. Needed only while some are open.
    pub fn turn(&mut self, now: Instant) {
        todo!()
    }

    /// The answers since the last time, each request exactly once.
    pub fn take_responses(&mut self) -> Vec<(RequestId, Response)> {
        todo!()
    }

    /// Puts another component in this one's place; calls, lines and seniority carry over.
    ///
    /// # Errors
    ///
    /// If the new one cannot be brought to work; the old one goes on.
    pub fn replace(&mut self, component: Component, now: Instant) -> Result<(), StartError> {
        todo!()
    }

    /// Lets everybody who waits proceed, whatever the limits: the plugin is disabled or removed.
    pub fn release_all(&mut self, now: Instant) {
        todo!()
    }

    /// Takes everybody who waits out of the line and names them, oldest first: the harness shuts down.
    ///
    /// They appear in no [`take_settled`](Self::take_settled); the caller turns each into its own cancellation.
    pub fn cancel_all(&mut self, now: Instant) -> Vec<CallId> {
        todo!()
    }

    /// How it is doing.
    pub fn status(&self) -> Status {
        todo!()
    }
}

/// Milliseconds since the machine started, sleep included: the `now` of every operation.
pub fn boottime_ms() -> Instant {
    todo!()
}
