//! The engine, and what it makes of files.
//!
//! # Settings
//!
//! The process belongs to somebody else, Node as a rule: traps come from explicit checks and not from signals, and memories
//! reserve no more addresses than they may use. Calls are bounded by epochs, not by fuel, so that time spent in the host
//! counts too. No import is ever async: one would make every hook async.

use std::fmt::{self, Write as _};
use std::path::Path;
use std::sync::Arc;

use sha2::{Digest, Sha256};
use wasmtime::component::{InstancePre, Linker};
use wasmtime::{Config, Engine};

use crate::bindings::exports::dsh::plugin as exports;
use crate::host::{self, State};
use crate::inspect::{self, World};
use crate::instance::Instance;
use crate::ticker::Ticker;
use crate::{Limits, LoadError};

/// Addresses reserved for a memory, which it can grow into without being moved; addresses only, pages come with use.
pub(crate) const MEMORY_RESERVATION: usize = 256 << 20;

/// The engine and its clock. Cheap to clone; one per process is enough.
#[derive(Clone)]
pub struct Runtime {
    engine: Engine,
    linker: Arc<Linker<State>>,
    ticker: Arc<Ticker>,
}

/// No engine can be had on this machine.
#[derive(Debug, thiserror::Error)]
#[error("WebAssembly cannot be run on this machine: {0}")]
pub struct EngineError(String);

impl Runtime {
    /// An engine for this machine. Starts one thread, which sleeps while no component runs.
    ///
    /// # Errors
    ///
    /// If the machine cannot run compiled WebAssembly, or has no thread left.
    pub fn new() -> Result<Self, EngineError> {
        let mut config = Config::new();
        config
            .epoch_interruption(true)
            .signals_based_traps(false)
            .memory_reservation(MEMORY_RESERVATION as u64)
            .memory_guard_size(0)
            .guard_before_linear_memory(false)
            .memory_reservation_for_growth(0);
        let engine = Engine::new(&config).map_err(|e| EngineError(format!("{e:#}")))?;
        let linker = host::linker(&engine).map_err(|e| EngineError(format!("{e:#}")))?;
        let ticker = Ticker::start(engine.weak()).map_err(|e| EngineError(e.to_string()))?;
        Ok(Self { engine, linker: Arc::new(linker), ticker: Arc::new(ticker) })
    }

    /// Inspects, validates and compiles. Takes some tenths of a second: call it on a worker thread.
    ///
    /// # Errors
    ///
    /// If the bytes are not a component of this contract.
    pub fn load(&self, bytes: &[u8]) -> Result<Component, LoadError> {
        let world = inspect::inspect(bytes)?;
        let reason = |e: wasmtime::Error| format!("{e:#}");
        let compiled = wasmtime::component::Component::from_binary(&self.engine, bytes)
            .map_err(|e| LoadError::Invalid { reason: reason(e) })?;
        let pre =
            self.linker.instantiate_pre(&compiled).map_err(|e| LoadError::Mismatch { reason: reason(e) })?;
        let exports = Indices::new(&pre, world).map_err(|e| LoadError::Mismatch { reason: reason(e) })?;
        let sha256 = hex(&Sha256::digest(bytes));
        let component = Component(Arc::new(Loaded { pre, exports, sha256, size: bytes.len() }));
        // The types of exports are compared with the contract's when an instance is made, so make one.
        Instance::new(self, &component, &Limits::default())
            .map_err(|fault| LoadError::Mismatch { reason: fault.to_string() })?;
        Ok(component)
    }

    /// [`load`](Self::load) from a file.
    ///
    /// # Errors
    ///
    /// If the file cannot be read or is not a component of this contract.
    pub fn load_file(&self, path: &Path) -> Result<Component, LoadError> {
        let unreadable = |source| LoadError::Unreadable { path: path.to_owned(), source };
        let size = std::fs::metadata(path).map_err(unreadable)?.len();
        if size > inspect::MAX_FILE_BYTES {
            return Err(LoadError::TooLarge { size, bound: inspect::MAX_FILE_BYTES });
        }
        self.load(&std::fs::read(path).map_err(unreadable)?)
    }

    pub(crate) fn engine(&self) -> &Engine {
        &self.engine
    }

    pub(crate) fn ticker(&self) -> &Arc<Ticker> {
        &self.ticker
    }
}

/// A compiled component. Cheap to clone, `Send + Sync`: compile it on a worker, use it where the calls are.
#[derive(Clone)]
pub struct Component(pub(crate) Arc<Loaded>);

pub(crate) struct Loaded {
    pub(crate) pre: InstancePre<State>,
    pub(crate) exports: Indices,
    sha256: String,
    size: usize,
}

impl Component {
    /// Digest of the file it was made from, in hexadecimal.
    pub fn sha256(&self) -> &str {
        &self.0.sha256
    }

    /// Size of the file it was made from, in bytes.
    pub fn size(&self) -> usize {
        self.0.size
    }
}

impl fmt::Debug for Component {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Component").field("sha256", &self.0.sha256).field("size", &self.0.size).finish()
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        // A string takes whatever is written.
        let _ = write!(text, "{byte:02x}");
        text
    })
}

/// Where the exports are; their types are compared when an instance is made.
pub(crate) struct Indices {
    pub(crate) llm_stream: exports::llm_stream::GuestIndices,
    pub(crate) tool_pre_execute: exports::tool_pre_execute::GuestIndices,
    pub(crate) lifecycle: exports::lifecycle::GuestIndices,
    pub(crate) routes: Option<exports::routes::GuestIndices>,
    pub(crate) pools: Option<exports::pools::GuestIndices>,
}

impl Indices {
    fn new(pre: &InstancePre<State>, world: World) -> wasmtime::Result<Self> {
        let (routes, pools) = match world {
            World::Hooks => (None, None),
            World::Plugin => (
                Some(exports::routes::GuestIndices::new(pre)?),
                Some(exports::pools::GuestIndices::new(pre)?),
            ),
        };
        Ok(Self {
            llm_stream: exports::llm_stream::GuestIndices::new(pre)?,
            tool_pre_execute: exports::tool_pre_execute::GuestIndices::new(pre)?,
            lifecycle: exports::lifecycle::GuestIndices::new(pre)?,
            routes,
            pools,
        })
    }
}
