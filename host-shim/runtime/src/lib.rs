//! Hosts `dsh:plugin` components under wasmtime, for any Rust program.
//!
//! | | |
//! |---|---|
//! | [`Runtime`] | the engine; compiles files into [`Component`]s. One per process |
//! | [`Plugin`] | one component at work: calls are brought to it before they start and told to it when they end, and it says who may start and who waits |
//! | [`Chain`] | several plugins that all must admit, in a fixed order, the host's own the last. One per tenant |
//! | [`Folder`] | a watched folder: what is dropped in is inspected and compiled on a thread of its own, and told as [`Change`]s to be applied to chains |
//! | [`Limits`] | what a plugin may use: memory, time, handles, waits, lines of the log, sizes |
//! | [`Pool`] | seats that several plugins share; [`ProcessPool`] is a ceiling over those of one process, and what they draw from the pools of their [`Machine`] |
//! | [`Cache`], [`Precompiled`] | compiled code, from an earlier start or from the program's own build |
//! | [`Inspection`] | what a file is and wants, without running or compiling any of it |
//!
//! `examples/embed.rs` is a whole host: what one has to do, in seven steps. This is its middle:
//!
//! ```no_run
//! use gen_limit_runtime::{
//!     Cache, Chain, Limits, Mode, Options, Outcome, Route, Runtime, StreamCall, Verdict, boottime_ms,
//! };
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let runtime = Runtime::new()?;
//! let component = match Cache::of_user() {
//!     Some(cache) => runtime.load_file_cached("gen-limit.wasm".as_ref(), &cache)?,
//!     None => runtime.load_file("gen-limit.wasm".as_ref())?,
//! };
//! let options = Options {
//!     limits: Limits::default(),
//!     config: r#"{"limits": [{"provider": "my-box", "model": "*", "max": 2}]}"#.into(),
//!     mode: Mode::Strict,
//! };
//! let (mut chain, _) = Chain::new(&runtime, "gen-limit", component, options, boottime_ms())?;
//!
//! let call = StreamCall {
//!     route: Route { provider: "my-box".into(), model: "a-model".into() },
//!     session: Some("a session".into()),
//!     root: None,
//!     parent: None,
//!     first: true,
//!     spawn: None,
//!     purpose: "conversation".into(),
//!     extra: Vec::new(),
//! };
//! let started = chain.start_stream(call, boottime_ms());
//! match started.verdict {
//!     Verdict::Admit => chain.finish(started.id, Outcome::Completed, boottime_ms()),
//!     Verdict::Wait { .. } => {} // its end comes out of `take_settled`, after this or any later operation
//!     Verdict::Deny(refusal) => eprintln!("{}: {}", refusal.code, refusal.message),
//! }
//! for settled in chain.take_settled() {
//!     println!("call {} {}", settled.id, if settled.result.is_ok() { "may start" } else { "is refused" });
//! }
//! println!("to be ticked at {:?}", chain.next_tick());
//! # Ok(())
//! # }
//! ```
//!
//! # What holds
//!
//! - Operations are synchronous and take `now`: milliseconds of one clock that moves forward only, such as [`boottime_ms`].
//!   Nothing sleeps and nothing calls back, except a folder's `wake`. Decisions for those who wait are queued and
//!   [taken](Chain::take_settled); [`Chain::next_tick`] says when to come again.
//! - Whatever a component does, the calls are the host's. A component that traps, loops or eats memory is stopped and
//!   replaced, and its successor is told who runs and who waits, under the same ids and in the same order. Every wait ends
//!   exactly once.
//! - A component touches nothing but the interfaces in `wit/`: no files, no network, no clock. A file that wants anything else
//!   is refused by its names, before it is compiled; whatever is wrong is one sentence with what was found, what was expected
//!   and what to do.
//! - What a component may use is bounded, and reaching a bound is an error in that plugin alone: see [`Limits`].
//! - A plugin that cannot be put to work, or a configuration that is refused, leaves what was at work as it was.
//!
//! # Tenants
//!
//! A [`Component`] is code, and cheap to clone. A [`Chain`] has instances of its own, each with its own memory, configuration,
//! limits, counts and lines: two chains made of one component know nothing of each other. So a tenant is a chain. What
//! tenants of one thread still share is that thread, whose time [`Limits::call_ms`] bounds for each operation.
//!
//! Where limits are to hold over tenants together, chains [join](Chain::join) a [`Pool`]. One that has joined brings its needs and
//! takes its seats with every operation of its own, and what it did may be news for others: whoever runs several chains asks
//! the pool after each operation [whom](Pool::news), and has those [collect](Chain::collect_grants).
//!
//! ```
//! use gen_limit_runtime::{Chain, Instant, SharedPool};
//!
//! /// To be called after every operation of any of the chains.
//! fn hand_round(pool: &SharedPool, chains: &mut [Chain], now: Instant) {
//!     let mut quiet = false;
//!     while !quiet {
//!         let news = pool.lock().expect("nobody panics while holding it").news();
//!         quiet = true;
//!         for chain in &mut *chains {
//!             if chain.member().is_some_and(|member| news.contains(&member)) {
//!                 chain.collect_grants(now);
//!                 quiet = false;
//!             }
//!         }
//!     }
//! }
//! ```
//!
//! # What it costs
//!
//! A start and a finish together take a few microseconds on the caller's thread. The store lives there: a hop to another
//! thread would cost ten times that. Loading takes tenths of a second when the component has to be compiled, which belongs on a
//! worker, and milliseconds when its code is in a [`Cache`] or [`Precompiled`]. An instance is made in tens of microseconds;
//! `tests/component/examples/tenants.rs` measures what a thousand tenants take. A folder costs a thread that sleeps.

mod ask;
mod bindings;
mod bound;
mod cache;
mod call;
mod chain;
mod clock;
mod config;
mod engine;
mod error;
mod folder;
mod host;
mod inspect;
mod instance;
mod limits;
mod log;
mod machine;
mod outbox;
mod plugin;
mod pool;
mod precompiled;
mod routes;
mod share;
mod table;
mod ticker;

pub use ask::{Answer, Ask, AskId, Model, Question, Section, SessionInfo, SettingsError};
pub use cache::Cache;
pub use call::{
    CallId, Failure, Instant, LineFull, Mode, Outcome, Problem, Refusal, RefusalReason, Route, Settled,
    Started, StreamCall, ToolCall, Verdict, WaitEnded,
};
pub use chain::{Asked, Chain};
pub use clock::boottime_ms;
pub use config::OnFailure;
pub use engine::{Component, EngineError, Runtime, Source};
pub use error::{ConfigureError, Fault, LoadError, StartError};
pub use folder::{
    Change, Changed, Entry, EntryState, Folder, FolderError, FolderOptions, Settings, Standing,
};
pub use inspect::{Inspection, World};
pub use limits::Limits;
pub use log::{Level, LogLine};
pub use machine::Machine;
pub use plugin::{Options, Plugin, State, Status, UNAVAILABLE};
pub use pool::{Grant, MemberId, MemberView, Need, Pool, ProcessPool, ScopeView, SharedPool, SupplyView};
pub use precompiled::{PrecompileError, Precompiled, precompile};
pub use routes::{Request, RequestId, Response};
