//! Hosts a `dsh:plugin` component under wasmtime, for any Rust program.
//!
//! A [`Runtime`] compiles files into [`Component`]s. A [`Plugin`] is one component at work: calls are brought to it before they
//! start and told to it when they end, and it says who may start and who waits. `examples/embed.rs` is the shortest whole use.
//!
//! # What holds
//!
//! - Nothing here blocks, sleeps or calls back. Operations are synchronous and take `now`; decisions for those who wait are
//!   queued and [taken](Plugin::take_settled); [`Plugin::next_tick`] says when to come again.
//! - Whatever a component does, the calls are the host's. A component that traps, loops or eats memory is stopped and
//!   replaced, and its successor is told who runs and who waits, under the same ids and in the same order. Every wait ends
//!   exactly once.
//! - A component touches nothing but the interfaces in `wit/`: no files, no network, no clock.
//!
//! # What it costs
//!
//! A start and a finish together take a few microseconds on the caller's thread. The store lives there: a hop to another
//! thread would cost ten times that. Only compiling belongs on a worker.

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
pub use plugin::{Options, Plugin, State, Status, UNAVAILABLE};
pub use pool::{Grant, MemberId, MemberView, Need, Pool, ProcessPool, ScopeView, SharedPool};
pub use precompiled::{PrecompileError, Precompiled, precompile};
pub use routes::{Request, RequestId, Response};
