//! The Node addon around `gen-limit-runtime`: conversions and nothing else.
//!
//! # Cost
//!
//! A call crosses into the addon once to start and once to finish. Both answer with one number, the *answer*: the call's
//! id above, seven bits (`ANSWER_SPAN`) below that say what was decided and what there is to fetch. So nothing is allocated
//! on the JavaScript side unless somebody waited, was refused, or a timer has to be set anew. The two are handed out as
//! functions as well, which know their limiter without looking for it (`hooks.rs`).
//!
//! # Failure
//!
//! Nothing here aborts the process. Arguments are checked by hand (`arg.rs`), a trap in the component is the runtime's
//! business, and a panic is caught at the boundary: the object it happened in may be inconsistent, so it refuses every
//! later call with `GEN_LIMIT_PANIC`. Each error carries one of the codes of `error.rs`.
//!
//! # Threads
//!
//! Compiling runs on a worker of Node's; everything else on the thread that calls. The runtime never calls JavaScript,
//! so an object is never entered twice.

#![expect(clippy::missing_errors_doc, reason = "what JavaScript sees of errors is told in `error`")]
#![expect(clippy::too_many_arguments, reason = "an object would cost more than the call it describes")]

mod arg;
mod error;
pub mod folder;
mod hooks;
pub mod inspect;
mod packaged;

use std::cell::RefCell;
use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::{Arc, Mutex, OnceLock};

use gen_limit_runtime as runtime;
use napi::bindgen_prelude::{AsyncTask, ClassInstance, Function, Object, Uint8Array};
use napi::threadsafe_function::ThreadsafeFunctionCallMode;
use napi::{Env, JsError, Task, Unknown};
use napi_derive::napi;

use crate::arg::{Arg, bad};
use crate::error::{Code, Error, Result, panic_text};

/// What the limiter's own component is called among the plugins of its chain.
const OWN: &str = "gen-limit";

/// Answers are `id * ANSWER_SPAN + bits`.
const ANSWER_SPAN: u64 = 128;
/// The call stands in line. Neither this nor `DENIED`: it is admitted.
const WAITS: u64 = 1;
/// The call may not start; `refusal()` says why.
const DENIED: u64 = 2;
/// Waits have ended; `takeSettled()` names them.
const SETTLED: u64 = 4;
/// `nextTick()` has changed.
const TICK: u64 = 8;
/// Something was logged; `takeLog()` has it.
const LOGGED: u64 = 16;
/// The component asks or answers; `takeAsks()` and `takeResponses()` have it.
const ANSWERS: u64 = 32;
/// The pool has seats for other limiters, or wants some back: their `collect()` takes note of it.
const NEWS: u64 = 64;

/// One engine for the process, made on first use.
fn engine() -> Result<runtime::Runtime> {
    static ENGINE: OnceLock<runtime::Runtime> = OnceLock::new();
    if let Some(engine) = ENGINE.get() {
        return Ok(engine.clone());
    }
    let engine = runtime::Runtime::new().map_err(|error| Error::new(Code::Load, error))?;
    Ok(ENGINE.get_or_init(|| engine).clone())
}

/// Turns a panic into an error.
fn catching<T>(operation: impl FnOnce() -> Result<T>) -> Result<T> {
    catch_unwind(AssertUnwindSafe(operation))
        .unwrap_or_else(|panic| Err(Error::new(Code::Panic, panic_text(&*panic))))
}

/// The version of the addon.
#[napi]
pub fn version() -> &'static str {
    env!("CARGO_PKG_VERSION")
}

/// A compiled component.
#[napi]
pub struct Component(runtime::Component);

/// Inspects and compiles a file on a worker thread.
pub struct Load {
    path: PathBuf,
    cache: Option<runtime::Cache>,
}

impl Task for Load {
    type Output = Result<runtime::Component>;
    type JsValue = Component;

    fn compute(&mut self) -> napi::Result<Self::Output> {
        let load = || {
            let engine = engine()?;
            let loaded = match (packaged::code_beside(&self.path), &self.cache) {
                (Some(code), cache) => engine.load_file_precompiled(&self.path, &code, cache.as_ref()),
                (None, Some(cache)) => engine.load_file_cached(&self.path, cache),
                (None, None) => engine.load_file(&self.path),
            };
            loaded.map_err(|error| Error::new(Code::Load, error))
        };
        Ok(catching(load))
    }

    fn resolve(&mut self, env: Env, output: Self::Output) -> napi::Result<Self::JsValue> {
        // A napi error made of a JavaScript one rejects with that very object, code included.
        output.map(Component).map_err(|error| JsError::from(error).into_unknown(env).into())
    }
}

#[napi]
impl Component {
    /// Inspects, validates and compiles a file, on a worker thread. The component that ships is not compiled: its code is taken
    /// from `gen-limit.cwasm` beside it. With `cached`, code that was compiled before is taken from the user's cache
    /// directory, and kept there otherwise. Whatever is wrong with either, it is compiled. Rejects with `GEN_LIMIT_LOAD` and a
    /// message that says what was found and what was expected.
    #[napi(ts_args_type = "path: string, cached?: boolean", ts_return_type = "Promise<Component>")]
    pub fn load(path: Arg<String>, cached: Arg<Option<bool>>) -> Result<AsyncTask<Load>> {
        let cached = cached.get("cached")?.unwrap_or(false);
        let cache = if cached { runtime::Cache::of_user() } else { None };
        Ok(AsyncTask::new(Load { path: path.get("path")?.into(), cache }))
    }

    /// Where its code came from: what ships, the cache, or the compiler.
    #[napi(getter, ts_return_type = "'precompiled' | 'cached' | 'compiled'")]
    pub fn source(&self) -> &'static str {
        self.0.source().as_str()
    }

    /// Why the code that ships with it was not used, if it was not.
    #[napi(getter)]
    pub fn notice(&self) -> Option<&str> {
        self.0.notice()
    }

    /// Digest of its file, in hexadecimal.
    #[napi(getter)]
    pub fn sha256(&self) -> String {
        self.0.sha256().to_owned()
    }

    /// Size of its file, in bytes.
    #[napi(getter)]
    pub fn size(&self) -> f64 {
        self.0.size() as f64
    }
}

/// The seats of ceilings, shared by limiters of one thread, and those of named pools, shared by all processes of a user.
#[napi]
pub struct Pool(runtime::SharedPool);

#[napi]
impl Pool {
    /// A pool without members. The seats of named pools are kept in `folder`, or where this user's are. `onNews` is called when
    /// another process has changed something for this one: then `tick()` is due.
    #[napi(constructor, ts_args_type = "onNews: () => void, folder?: string")]
    pub fn new(
        on_news: Arg<Function<'_, (), Unknown<'static>>>,
        folder: Arg<Option<String>>,
    ) -> Result<Self> {
        let folder = folder.get("folder")?.map_or_else(runtime::Machine::of_user, PathBuf::from);
        let wake = waker(on_news.get("onNews")?, "onNews")?;
        let pool = runtime::ProcessPool::of_machine(runtime::Machine::new(folder, wake));
        Ok(Self(Arc::new(Mutex::new(pool))))
    }

    /// Takes note of what other processes have done. Afterwards its members are to `collect()`.
    #[napi]
    pub fn tick(&mut self) -> Result<()> {
        catching(|| {
            if let Ok(mut pool) = self.0.lock() {
                pool.tick(runtime::boottime_ms());
            }
            Ok(())
        })
    }

    /// How each scope stands that shares its seats with other processes.
    #[napi]
    pub fn view(&mut self) -> Result<Vec<PoolView>> {
        catching(|| {
            let Ok(pool) = self.0.lock() else { return Ok(Vec::new()) };
            let view = |scope: runtime::ScopeView| {
                let supply = scope.supply?;
                Some(PoolView {
                    scope: scope.scope,
                    seats: supply.seats,
                    contended: supply.is_contended,
                    lost: supply.lost as f64,
                    error: supply.error,
                })
            };
            Ok(pool.view().into_iter().filter_map(view).collect())
        })
    }
}

/// A scope whose seats this process shares with others.
#[napi(object, object_from_js = false)]
pub struct PoolView {
    /// The scope's text.
    pub scope: String,
    /// Seats this process holds.
    pub seats: u32,
    /// Whether another process waits for one.
    pub contended: bool,
    /// Seats that were lost while they were held, since somebody removed their files.
    pub lost: f64,
    /// Why there are no seats to be had, or why this process has all for itself.
    pub error: Option<String>,
}

/// Calls a function of JavaScript from any thread. It does not keep the process alive.
fn waker(
    function: Function<'_, (), Unknown<'static>>,
    name: &str,
) -> Result<impl Fn() + Send + Sync + use<>> {
    let tell = function
        .build_threadsafe_function::<()>()
        .weak::<true>()
        // One call takes whatever there is: while it has not begun, a second would find nothing.
        .max_queue_size::<1>()
        .build()
        .map_err(|_| bad(name, "expected a function"))?;
    Ok(move || {
        tell.call((), ThreadsafeFunctionCallMode::NonBlocking);
    })
}

/// Whether any member has to be asked to collect.
fn has_news(pool: &runtime::SharedPool) -> bool {
    // Whoever panicked in it has said so, and is asked for nothing more.
    pool.lock().is_ok_and(|pool| !pool.news().is_empty())
}

/// How a limiter begins.
#[napi(object, object_to_js = false)]
#[derive(Default)]
pub struct Options {
    /// The configuration, a JSON object. Default: nothing limited.
    pub config: Option<String>,
    /// Take what is valid of the configuration instead of refusing it whole. Default: false.
    pub lenient: Option<bool>,
    /// Time stands still except for `advance()`: for tests. Default: false.
    pub manual_clock: Option<bool>,
    /// Memory the component may use, in bytes.
    pub memory_bytes: Option<f64>,
    /// Milliseconds of a processor that a call into the component may burn.
    pub call_ms: Option<f64>,
}

/// What is wrong with a configuration, and where.
#[napi(object, object_from_js = false)]
pub struct Problem {
    /// Row and field.
    pub path: String,
    /// What is wrong there.
    pub message: String,
}

/// What became of a configuration.
#[napi(object, object_from_js = false)]
pub struct Configured {
    /// Whether it is in force now; if not, the one before it is.
    pub applied: bool,
    /// What is wrong with it.
    pub problems: Vec<Problem>,
}

/// Why something may not start.
#[napi(object, object_from_js = false)]
pub struct Refusal {
    /// For machines: `GEN_CAPACITY_EXCEEDED` or `GEN_LIMITER_UNAVAILABLE`.
    pub code: String,
    /// The kind of refusal.
    #[napi(ts_type = "'queue-full' | 'queue-timeout' | 'paused' | 'no-pool-seat' | 'other'")]
    pub reason: &'static str,
    /// For people.
    pub message: String,
    /// How long it waited, in milliseconds, if it did.
    pub waited_ms: Option<f64>,
}

/// One line of the log.
#[napi(object, object_from_js = false)]
pub struct LogLine {
    /// How much it matters.
    #[napi(ts_type = "'debug' | 'info' | 'warn' | 'error'")]
    pub level: &'static str,
    /// What it says.
    pub message: String,
}

/// What a provider said when it failed.
#[napi(object, object_to_js = false)]
pub struct Failure {
    /// The harness's code.
    pub code: String,
    /// The HTTP status.
    pub status: Option<f64>,
    /// How long the provider asks to be left alone, in milliseconds.
    pub retry_after_ms: Option<f64>,
}

/// The answer to a request.
#[napi(object, object_from_js = false)]
pub struct Response {
    /// The id `request()` gave.
    pub id: f64,
    /// The HTTP status.
    pub status: u16,
    /// The headers, in lower case.
    #[napi(ts_type = "Array<[string, string]>")]
    pub headers: Vec<Vec<String>>,
    /// The body, whole.
    pub body: Uint8Array,
}

/// A question of the component's, to be answered once by the `answer…` of its kind or by `decline()`, in any order.
#[napi(object, object_from_js = false)]
pub struct Ask {
    /// For the answer.
    pub id: f64,
    /// The name of the plugin that asks.
    pub plugin: String,
    /// What is asked.
    #[napi(
        ts_type = "'read-settings' | 'update-settings' | 'list-providers' | 'list-models' | 'describe-sessions'"
    )]
    pub kind: &'static str,
    /// Of `update-settings`: the patch, a JSON object. Absent keys stay, lists are replaced whole.
    pub json: Option<String>,
    /// Of `update-settings`: the state the patch is meant for; any, if there is none.
    pub revision: Option<String>,
    /// Of `list-models`: whose.
    pub provider: Option<String>,
    /// Of `describe-sessions`: their ids.
    pub sessions: Option<Vec<String>>,
}

/// The plugin's section of the settings.
#[napi(object, object_to_js = false)]
pub struct Section {
    /// What the user stored over what the row seeds, JSON; what is wrong in it is not in force.
    pub value: String,
    /// What the row seeds, JSON.
    pub base: String,
    /// What the user stored, JSON.
    pub user: String,
    /// Whether what is valid of `value` is in force; otherwise an earlier one is, until this one is put right.
    pub in_force: bool,
    /// Whether it can be changed at all.
    pub writable: bool,
    /// Names this state of it; opaque.
    pub revision: Option<String>,
}

/// Why the section cannot be read or changed.
#[napi(object, object_to_js = false)]
pub struct SettingsError {
    /// Somebody else changed it since the given revision; the deployment does not let it be changed; there is no settings
    /// service; the harness refuses the values; anything else.
    #[napi(ts_type = "'conflict' | 'read-only' | 'unavailable' | 'invalid' | 'other'")]
    pub kind: String,
    /// Of `invalid` and `other`: in words.
    pub message: Option<String>,
    /// Of `conflict`: the section as it is now.
    pub section: Option<Section>,
}

/// A provider or one of its models.
#[napi(object, object_to_js = false)]
pub struct Model {
    /// Its id, as routes use it.
    pub id: String,
    /// What people call it.
    pub name: String,
}

/// What is known about a session.
#[napi(object, object_to_js = false)]
pub struct SessionInfo {
    /// The id that was asked about.
    pub id: String,
    /// What people call it.
    pub label: Option<String>,
    /// The session that spawned it.
    pub parent: Option<String>,
    /// The root of its tree.
    pub root: Option<String>,
}

/// How a limiter is doing.
#[napi(object, object_from_js = false)]
pub struct Status {
    /// Who decides: the component, or `onFailure` in its place.
    #[napi(ts_type = "'running' | 'failed-open' | 'failed-closed'")]
    pub state: &'static str,
    /// What `onFailure` says of calls that no component can decide.
    #[napi(ts_type = "'open' | 'closed'")]
    pub policy: &'static str,
    /// Instances built after a fault.
    pub restarts: f64,
    /// The last fault.
    pub last_error: Option<String>,
    /// Digest of the component's file.
    pub sha256: String,
    /// Calls that run.
    pub live: f64,
    /// Calls that wait.
    pub waiting: f64,
    /// What is wrong with the configuration in force.
    pub problems: Vec<Problem>,
}

/// How one plugin of a chain is doing.
#[napi(object, object_from_js = false)]
pub struct PluginStatus {
    /// Its name.
    pub name: String,
    /// Who decides in its place in the chain: its component, or its `onFailure`.
    #[napi(ts_type = "'running' | 'failed-open' | 'failed-closed'")]
    pub state: &'static str,
    /// Instances built after a fault.
    pub restarts: f64,
    /// The last fault.
    pub last_error: Option<String>,
    /// Digest of the component's file.
    pub sha256: String,
    /// Calls it admitted that run or wait for a later one.
    pub live: f64,
    /// Calls that wait for it.
    pub waiting: f64,
}

/// What tells the time.
enum Clock {
    Boottime,
    Manual(u64),
}

impl Clock {
    fn now(&self) -> u64 {
        match self {
            Self::Boottime => runtime::boottime_ms(),
            Self::Manual(now) => *now,
        }
    }
}

/// The parts of a limiter, apart so that a panic can be caught around them.
struct Inner {
    chain: runtime::Chain,
    clock: Clock,
    /// What `nextTick()` last told.
    told: Option<u64>,
    /// Why the last denied call was.
    refusal: Option<runtime::Refusal>,
    settled: VecDeque<runtime::Settled>,
    log: Vec<runtime::LogLine>,
    pool: Option<runtime::SharedPool>,
}

impl Inner {
    /// The bits that hold after every operation.
    fn bits(&mut self) -> u64 {
        self.settled.extend(self.chain.take_settled());
        self.log.append(&mut self.chain.take_log());
        let mut bits = 0;
        if !self.settled.is_empty() {
            bits |= SETTLED;
        }
        if self.chain.next_tick() != self.told {
            bits |= TICK;
        }
        if !self.log.is_empty() {
            bits |= LOGGED;
        }
        if self.chain.has_answers() {
            bits |= ANSWERS;
        }
        if self.pool.as_ref().is_some_and(has_news) {
            bits |= NEWS;
        }
        bits
    }

    fn answer(&mut self, started: runtime::Started) -> f64 {
        let verdict = match started.verdict {
            runtime::Verdict::Admit => 0,
            runtime::Verdict::Wait { .. } => WAITS,
            runtime::Verdict::Deny(refusal) => {
                self.refusal = Some(refusal);
                DENIED
            }
        };
        (started.id * ANSWER_SPAN + (verdict | self.bits())) as f64
    }
}

/// What a limiter and its functions share.
struct Core {
    inner: Inner,
    panicked: Option<String>,
}

/// One component at work: who runs, who waits, and who may go next.
#[napi]
pub struct Limiter(Rc<RefCell<Core>>);

impl Core {
    /// Runs `operation`, unless an earlier one panicked.
    fn guard<T>(&mut self, operation: impl FnOnce(&mut Inner) -> Result<T>) -> Result<T> {
        if let Some(text) = &self.panicked {
            return Err(Error::new(Code::Panic, text));
        }
        let inner = &mut self.inner;
        catching(|| operation(inner)).inspect_err(|error| {
            if error.status == Code::Panic {
                self.panicked = Some(error.reason.clone());
            }
        })
    }
}

impl Limiter {
    fn guard<T>(&mut self, operation: impl FnOnce(&mut Inner) -> Result<T>) -> Result<T> {
        self.0.borrow_mut().guard(operation)
    }

    fn tell(&mut self, id: runtime::AskId, answer: runtime::Answer) -> Result<f64> {
        self.guard(|inner| {
            inner.chain.answer(id, answer, inner.clock.now());
            Ok(inner.bits() as f64)
        })
    }
}

#[napi]
impl Limiter {
    /// Brings a component to work. Throws `GEN_LIMIT_START` if it cannot be.
    #[napi(constructor, ts_args_type = "component: Component, options?: Options")]
    pub fn new(component: Arg<ClassInstance<'_, Component>>, options: Arg<Option<Options>>) -> Result<Self> {
        let component = component.get("component")?.0.clone();
        let options = options.get("options")?.unwrap_or_default();
        let mut limits = runtime::Limits::default();
        if let Some(bytes) = options.memory_bytes {
            limits.memory_bytes = arg::integer(bytes, "options.memoryBytes")? as usize;
        }
        if let Some(ms) = options.call_ms {
            limits.call_ms = arg::integer(ms, "options.callMs")?;
        }
        let clock = if options.manual_clock.unwrap_or_default() { Clock::Manual(0) } else { Clock::Boottime };
        let options = runtime::Options {
            limits,
            config: options.config.unwrap_or_else(|| "{}".to_owned()),
            mode: mode(options.lenient.unwrap_or_default()),
        };
        let (chain, _) = catching(|| {
            runtime::Chain::new(&engine()?, OWN, component, options, clock.now())
                .map_err(|error| Error::new(Code::Start, error))
        })?;
        let inner = Inner {
            chain,
            clock,
            told: None,
            refusal: None,
            settled: VecDeque::new(),
            log: Vec::new(),
            pool: None,
        };
        Ok(Self(Rc::new(RefCell::new(Core { inner, panicked: None }))))
    }

    /// What every call goes through, as functions that need no `this`.
    #[napi(ts_return_type = "Pick<Limiter, 'startStream' | 'finish' | 'nextSettled' | 'nextTick'>")]
    pub fn hooks<'env>(&self, env: &'env Env) -> napi::Result<Object<'env>> {
        hooks::of(env, &self.0)
    }

    /// Asks whether a model call may leave for its provider.
    ///
    /// `spawn` is the tool call that made the session, with `first`; `within` the live call whose stream this one is
    /// awaited by. Without `purpose` it is `conversation`.
    #[napi(
        ts_args_type = "provider: string, model: string, session: string | undefined, first: boolean, spawn?: number, within?: number, purpose?: string"
    )]
    pub fn start_stream(
        &mut self,
        provider: Arg<String>,
        model: Arg<String>,
        session: Arg<Option<String>>,
        first: Arg<bool>,
        spawn: Arg<Option<f64>>,
        within: Arg<Option<f64>>,
        purpose: Arg<Option<String>>,
    ) -> Result<f64> {
        hooks::start_stream(&self.0, provider, model, session, first, spawn, within, purpose)
    }

    /// Asks whether a tool call may run. `provider` and `model` are the route its child would use, both or neither.
    #[napi(ts_args_type = "tool: string, session: string | undefined, provider?: string, model?: string")]
    pub fn start_tool(
        &mut self,
        tool: Arg<String>,
        session: Arg<Option<String>>,
        provider: Arg<Option<String>>,
        model: Arg<Option<String>>,
    ) -> Result<f64> {
        let route = match (provider.get("provider")?, model.get("model")?) {
            (Some(provider), Some(model)) => Some(runtime::Route { provider, model }),
            (None, None) => None,
            _ => return Err(bad("model", "expected together with `provider`, or neither of them")),
        };
        let call = runtime::ToolCall {
            tool: tool.get("tool")?,
            session: session.get("session")?,
            route,
            extra: Vec::new(),
        };
        self.guard(|inner| {
            let started = inner.chain.start_tool(call, inner.clock.now());
            Ok(inner.answer(started))
        })
    }

    /// Tells that a call ended (0), was aborted or given up (1), or failed (2). Repeating it does nothing.
    #[napi(ts_args_type = "id: number, outcome: 0 | 1 | 2, failure?: Failure")]
    pub fn finish(&mut self, id: Arg<f64>, outcome: Arg<f64>, failure: Arg<Option<Failure>>) -> Result<f64> {
        hooks::finish(&self.0, id, outcome, failure)
    }

    /// Replaces the whole configuration. With `lenient` takes what is valid of it.
    #[napi(ts_args_type = "json: string, lenient: boolean")]
    pub fn configure(&mut self, json: Arg<String>, lenient: Arg<bool>) -> Result<Configured> {
        let (json, mode) = (json.get("json")?, mode(lenient.get("lenient")?));
        self.guard(|inner| match inner.chain.configure(OWN, &json, mode, inner.clock.now()) {
            Ok(found) => Ok(Configured { applied: true, problems: problems(found) }),
            Err(runtime::ConfigureError::Refused { problems: found }) => {
                Ok(Configured { applied: false, problems: problems(found) })
            }
            Err(error) => Err(Error::new(Code::Config, error)),
        })
    }

    /// Ends what is due. To be called when `nextTick()` has passed; earlier does no harm.
    #[napi]
    pub fn tick(&mut self) -> Result<f64> {
        self.guard(|inner| {
            inner.chain.tick(inner.clock.now());
            Ok(inner.bits() as f64)
        })
    }

    /// Milliseconds until `tick()` is due; infinite if it never is.
    #[napi]
    pub fn next_tick(&mut self) -> Result<f64> {
        hooks::next_tick(&self.0)
    }

    /// What there is to fetch now, as in an answer: for after `configure`, and at the beginning.
    #[napi]
    pub fn pending(&mut self) -> Result<f64> {
        self.guard(|inner| Ok(inner.bits() as f64))
    }

    /// Why the last call that was told of as denied may not start.
    #[napi]
    pub fn refusal(&mut self) -> Result<Option<Refusal>> {
        self.guard(|inner| Ok(inner.refusal.take().map(refusal)))
    }

    /// Takes the first of the waits that have ended: `id * 2`, and 1 more if it may not start, and then `refusal()` says why. 0 if
    /// there is none.
    #[napi]
    pub fn next_settled(&mut self) -> Result<f64> {
        hooks::next_settled(&self.0)
    }

    /// What was logged since the last time.
    #[napi]
    pub fn take_log(&mut self) -> Result<Vec<LogLine>> {
        self.guard(|inner| {
            let lines = std::mem::take(&mut inner.log).into_iter();
            Ok(lines.map(|line| LogLine { level: level(line.level), message: line.message }).collect())
        })
    }

    /// The tools to bring to `startTool()`; may change with `configure()`.
    #[napi]
    pub fn tools(&mut self) -> Result<Vec<String>> {
        self.guard(|inner| Ok(inner.chain.tools()))
    }

    /// The paths to bring to `request()`.
    #[napi]
    pub fn paths(&mut self) -> Result<Vec<String>> {
        self.guard(|inner| Ok(inner.chain.paths()))
    }

    /// Hands a request to the component; the answer comes out of `takeResponses()`, often at once.
    #[napi(
        ts_args_type = "method: string, path: string, query: string, headers: Array<[string, string]>, body: Uint8Array"
    )]
    pub fn request(
        &mut self,
        method: Arg<String>,
        path: Arg<String>,
        query: Arg<String>,
        headers: Arg<Vec<Vec<String>>>,
        body: Arg<Uint8Array>,
    ) -> Result<f64> {
        let pair = |header: Vec<String>| match <[String; 2]>::try_from(header) {
            Ok([name, value]) => Ok((name, value)),
            Err(_) => Err(bad("headers", "expected pairs of name and value")),
        };
        let request = runtime::Request {
            method: method.get("method")?,
            path: path.get("path")?,
            query: query.get("query")?,
            headers: headers.get("headers")?.into_iter().map(pair).collect::<Result<_>>()?,
            body: body.get("body")?.to_vec(),
        };
        self.guard(|inner| Ok(inner.chain.request(request, inner.clock.now()) as f64))
    }

    /// Lets open requests go on. Needed only while some are open.
    #[napi]
    pub fn turn(&mut self) -> Result<f64> {
        self.guard(|inner| {
            inner.chain.turn(inner.clock.now());
            Ok(inner.bits() as f64)
        })
    }

    /// The responses since the last time.
    #[napi]
    pub fn take_responses(&mut self) -> Result<Vec<Response>> {
        self.guard(|inner| {
            let responses = inner.chain.take_responses().into_iter();
            Ok(responses
                .map(|(id, response)| Response {
                    id: id as f64,
                    status: response.status,
                    headers: response.headers.into_iter().map(|(name, value)| vec![name, value]).collect(),
                    body: response.body.into(),
                })
                .collect())
        })
    }

    /// What the component asks since the last time.
    #[napi]
    pub fn take_asks(&mut self) -> Result<Vec<Ask>> {
        self.guard(|inner| Ok(inner.chain.take_asks().into_iter().map(ask).collect()))
    }

    /// Answers `read-settings` or `update-settings`: the section, or why not. A question that nobody waits for any more is
    /// passed over, like in every answer.
    #[napi(ts_args_type = "id: number, section: Section | undefined, error?: SettingsError")]
    pub fn answer_settings(
        &mut self,
        id: Arg<f64>,
        section: Arg<Option<Section>>,
        error: Arg<Option<SettingsError>>,
    ) -> Result<f64> {
        let id = id.integer("id")?;
        let result = match (section.get("section")?, error.get("error")?) {
            (Some(section), None) => Ok(section.into()),
            (None, Some(error)) => Err(settings_error(error)?),
            _ => return Err(bad("section", "expected either a section or an error")),
        };
        self.tell(id, runtime::Answer::Settings(result))
    }

    /// Answers `list-providers`.
    #[napi(ts_args_type = "id: number, providers: Array<Model>")]
    pub fn answer_providers(&mut self, id: Arg<f64>, providers: Arg<Vec<Model>>) -> Result<f64> {
        let providers = providers.get("providers")?.into_iter().map(Into::into).collect();
        self.tell(id.integer("id")?, runtime::Answer::Providers(providers))
    }

    /// Answers `list-models`: the models, or why there are none.
    #[napi(ts_args_type = "id: number, models: Array<Model> | undefined, error?: string")]
    pub fn answer_models(
        &mut self,
        id: Arg<f64>,
        models: Arg<Option<Vec<Model>>>,
        error: Arg<Option<String>>,
    ) -> Result<f64> {
        let result = match (models.get("models")?, error.get("error")?) {
            (Some(models), None) => Ok(models.into_iter().map(Into::into).collect()),
            (None, Some(error)) => Err(error),
            _ => return Err(bad("models", "expected either models or an error")),
        };
        self.tell(id.integer("id")?, runtime::Answer::Models(result))
    }

    /// Answers `describe-sessions` with those that are known.
    #[napi(ts_args_type = "id: number, sessions: Array<SessionInfo>")]
    pub fn answer_sessions(&mut self, id: Arg<f64>, sessions: Arg<Vec<SessionInfo>>) -> Result<f64> {
        let sessions = sessions.get("sessions")?.into_iter().map(Into::into).collect();
        self.tell(id.integer("id")?, runtime::Answer::Sessions(sessions))
    }

    /// Answers any question: there is nobody to ask.
    #[napi(ts_args_type = "id: number")]
    pub fn decline(&mut self, id: Arg<f64>) -> Result<f64> {
        self.tell(id.integer("id")?, runtime::Answer::Unavailable)
    }

    /// Puts another component in this one's place; calls, lines and seniority carry over. Throws `GEN_LIMIT_START` if it
    /// cannot be brought to work; the old one goes on.
    #[napi(ts_args_type = "component: Component")]
    pub fn replace(&mut self, component: Arg<ClassInstance<'_, Component>>) -> Result<f64> {
        let component = component.get("component")?.0.clone();
        self.guard(|inner| {
            inner
                .chain
                .replace(OWN, component, inner.clock.now())
                .map_err(|error| Error::new(Code::Start, error))?;
            Ok(inner.bits() as f64)
        })
    }

    /// Puts a component to work under a name, before the limiter's own; or in the place of the one of that name, whose calls and
    /// lines carry over. `config` is its configuration, a JSON object, by default the one in force or `{}`; `limits` is what its
    /// instance may use, a JSON object, by default nothing but the defaults. Throws `GEN_LIMIT_START` if it cannot be brought to
    /// work; then everything is as it was.
    #[napi(ts_args_type = "name: string, component: Component, config?: string, limits?: string")]
    pub fn put(
        &mut self,
        name: Arg<String>,
        component: Arg<ClassInstance<'_, Component>>,
        config: Arg<Option<String>>,
        limits: Arg<Option<String>>,
    ) -> Result<f64> {
        let name = name.get("name")?;
        let component = component.get("component")?.0.clone();
        let config = config.get("config")?.map(|json| (json, runtime::Mode::Strict));
        let limits = limits.get("limits")?;
        let limits = runtime::Settings::limits_of(&name, limits.as_deref())
            .map_err(|problems| Error::new(Code::Start, runtime::StartError::Config { problems }))?;
        self.guard(|inner| {
            inner
                .chain
                .put(&name, component, limits, config, inner.clock.now())
                .map_err(|error| Error::new(Code::Start, error))?;
            Ok(inner.bits() as f64)
        })
    }

    /// Shares the seats of ceilings with the other limiters of a pool, under a name for people.
    #[napi(ts_args_type = "pool: Pool, name: string")]
    pub fn join(&mut self, pool: Arg<ClassInstance<'_, Pool>>, name: Arg<String>) -> Result<f64> {
        let (pool, name) = (pool.get("pool")?.0.clone(), name.get("name")?);
        self.guard(|inner| {
            inner.chain.join(pool.clone(), &name, inner.clock.now());
            inner.pool = Some(pool);
            Ok(inner.bits() as f64)
        })
    }

    /// Leaves the pool, with all its calls: it is to decide no more. Does so after a panic as well, or its seats were lost.
    #[napi]
    pub fn part(&mut self) -> Result<()> {
        let inner = &mut self.0.borrow_mut().inner;
        catching(|| {
            inner.chain.part();
            inner.pool = None;
            Ok(())
        })
    }

    /// Takes what the pool has for it. To be called when another limiter's answer says that there is news.
    #[napi]
    pub fn collect(&mut self) -> Result<f64> {
        self.guard(|inner| {
            inner.chain.collect_grants(inner.clock.now());
            Ok(inner.bits() as f64)
        })
    }

    /// Takes out what was put there under a name. Whoever waits for it goes on to the next. The limiter's own stays.
    #[napi(ts_args_type = "name: string")]
    pub fn remove(&mut self, name: Arg<String>) -> Result<f64> {
        let name = name.get("name")?;
        self.guard(|inner| {
            inner.chain.remove(&name, inner.clock.now());
            Ok(inner.bits() as f64)
        })
    }

    /// All plugins, in the order in which they are asked; the limiter's own is the last.
    #[napi]
    pub fn plugins(&mut self) -> Result<Vec<PluginStatus>> {
        self.guard(|inner| {
            let statuses = inner.chain.names().filter_map(|name| {
                let status = inner.chain.plugin(name)?.status();
                Some(PluginStatus {
                    name: name.to_owned(),
                    state: state(status.state),
                    restarts: status.restarts as f64,
                    last_error: status.last_error,
                    sha256: status.sha256,
                    live: status.live as f64,
                    waiting: status.waiting as f64,
                })
            });
            Ok(statuses.collect())
        })
    }

    /// Tells the limiter's own component of its host what only the caller knows: members of `host` in stats, a JSON object.
    #[napi(ts_args_type = "facts: string")]
    pub fn tell_of_host(&mut self, facts: Arg<String>) -> Result<()> {
        let facts = serde_json::from_str(&facts.get("facts")?)
            .map_err(|error| bad("facts", &format!("expected a JSON object: {error}")))?;
        self.guard(|inner| {
            inner.chain.tell_of_host(facts);
            Ok(())
        })
    }

    /// How it is doing.
    #[napi]
    pub fn status(&mut self) -> Result<Status> {
        self.guard(|inner| {
            let status = inner.chain.status();
            Ok(Status {
                state: state(status.state),
                policy: status.policy.as_str(),
                restarts: status.restarts as f64,
                last_error: status.last_error,
                sha256: status.sha256,
                live: status.live as f64,
                waiting: status.waiting as f64,
                problems: problems(status.problems),
            })
        })
    }

    /// Moves a manual clock on and ends what is due.
    #[napi(ts_args_type = "ms: number")]
    pub fn advance(&mut self, ms: Arg<f64>) -> Result<f64> {
        let ms = ms.integer("ms")?;
        self.guard(|inner| {
            let Clock::Manual(now) = &mut inner.clock else {
                return Err(bad(
                    "ms",
                    "this limiter follows the machine's clock; make it with `manualClock`",
                ));
            };
            *now += ms;
            inner.chain.tick(inner.clock.now());
            Ok(inner.bits() as f64)
        })
    }
}

#[cfg(debug_assertions)]
#[napi]
impl Limiter {
    /// Panics, to show that it does no harm. Only in builds with debug assertions.
    #[napi(skip_typescript)]
    pub fn panic(&mut self) -> Result<f64> {
        self.guard(|_| panic!("on request"))
    }
}

fn mode(lenient: bool) -> runtime::Mode {
    if lenient { runtime::Mode::Lenient } else { runtime::Mode::Strict }
}

fn state(state: runtime::State) -> &'static str {
    match state {
        runtime::State::Running => "running",
        runtime::State::FailedOpen => "failed-open",
        runtime::State::FailedClosed => "failed-closed",
    }
}

fn level(level: runtime::Level) -> &'static str {
    match level {
        runtime::Level::Debug => "debug",
        runtime::Level::Info => "info",
        runtime::Level::Warn => "warn",
        runtime::Level::Error => "error",
    }
}

fn problems(found: Vec<runtime::Problem>) -> Vec<Problem> {
    found.into_iter().map(|problem| Problem { path: problem.path, message: problem.message }).collect()
}

fn ask(runtime::Asked { plugin, ask: runtime::Ask { id, question } }: runtime::Asked) -> Ask {
    use runtime::Question::{DescribeSessions, ListModels, ListProviders, ReadSettings, UpdateSettings};
    let of = |kind| Ask {
        id: id as f64,
        plugin: plugin.clone(),
        kind,
        json: None,
        revision: None,
        provider: None,
        sessions: None,
    };
    match question {
        ReadSettings => of("read-settings"),
        UpdateSettings { json, revision } => Ask { json: Some(json), revision, ..of("update-settings") },
        ListProviders => of("list-providers"),
        ListModels { provider } => Ask { provider: Some(provider), ..of("list-models") },
        DescribeSessions { ids } => Ask { sessions: Some(ids), ..of("describe-sessions") },
    }
}

impl From<Section> for runtime::Section {
    fn from(Section { value, base, user, in_force, writable, revision }: Section) -> Self {
        Self { value, base, user, in_force, writable, revision }
    }
}

impl From<Model> for runtime::Model {
    fn from(Model { id, name }: Model) -> Self {
        Self { id, name }
    }
}

impl From<SessionInfo> for runtime::SessionInfo {
    fn from(SessionInfo { id, label, parent, root }: SessionInfo) -> Self {
        Self { id, label, parent, root }
    }
}

fn settings_error(error: SettingsError) -> Result<runtime::SettingsError> {
    let SettingsError { kind, message, section } = error;
    Ok(match (kind.as_str(), section) {
        ("conflict", Some(section)) => runtime::SettingsError::Conflict(section.into()),
        ("conflict", None) => {
            return Err(bad("error", "expected a conflict to bring the section as it is now"));
        }
        ("read-only", _) => runtime::SettingsError::ReadOnly,
        ("unavailable", _) => runtime::SettingsError::Unavailable,
        ("invalid", _) => runtime::SettingsError::Invalid(message.unwrap_or_default()),
        ("other", _) => runtime::SettingsError::Other(message),
        (other, _) => return Err(bad("error", &format!("no kind of error is called {other}"))),
    })
}

fn refusal(refusal: runtime::Refusal) -> Refusal {
    use runtime::RefusalReason::{NoPoolSeat, Other, Paused, QueueFull, QueueTimeout};
    let (reason, ended) = match refusal.reason {
        QueueFull(_) => ("queue-full", None),
        QueueTimeout(ended) => ("queue-timeout", Some(ended)),
        Paused(ended) => ("paused", Some(ended)),
        NoPoolSeat(ended) => ("no-pool-seat", Some(ended)),
        Other(_) => ("other", None),
    };
    Refusal {
        code: refusal.code,
        reason,
        message: refusal.message,
        waited_ms: ended.map(|ended| ended.waited_ms as f64),
    }
}
