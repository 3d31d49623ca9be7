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
use wasmtime::component::{Component as Compiled, InstancePre, Linker};
use wasmtime::{Config, Engine};

use crate::bindings::exports::dsh::plugin as exports;
use crate::error::quoted;
use crate::host::{self, State};
use crate::inspect::{self, World};
use crate::instance::{Instance, Unborn};
use crate::ticker::Ticker;
use crate::{Cache, Limits, LoadError, Precompiled};

/// Addresses reserved for a memory, as many as one may use; it grows into them without being moved. Addresses only, pages come
/// with use. Growth beyond would copy the whole memory within one instruction, which no deadline stops.
pub(crate) const MEMORY_RESERVATION: u64 = 256 << 20;

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
        let engine = Engine::new(&settings()).map_err(|e| EngineError(format!("{e:#}")))?;
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
        self.link(bytes, |digest| self.code(bytes, digest, None))
    }

    /// [`load`](Self::load), without compiling what is kept in a cache; then it takes a few milliseconds. What was compiled is
    /// kept for the next time, if it can be.
    ///
    /// # Errors
    ///
    /// Those of [`load`](Self::load). Whatever is wrong with the cache only means that it is compiled.
    pub fn load_cached(&self, bytes: &[u8], cache: &Cache) -> Result<Component, LoadError> {
        self.link(bytes, |digest| self.code(bytes, digest, Some(cache)))
    }

    /// [`load_cached`](Self::load_cached), or [`load`](Self::load) without a cache, unless the component is the one that there is
    /// precompiled code for; then it takes a few milliseconds.
    ///
    /// # Errors
    ///
    /// Those of [`load`](Self::load). Whatever is wrong with the precompiled code only means that it is not used, and that
    /// [`Component::notice`] says so.
    pub fn load_precompiled(
        &self,
        bytes: &[u8],
        precompiled: &Precompiled,
        cache: Option<&Cache>,
    ) -> Result<Component, LoadError> {
        self.link(bytes, |digest| {
            if !precompiled.is_of(digest) {
                return self.code(bytes, digest, cache);
            }
            let found = precompiled.read().and_then(|code| {
                // SAFETY: the code is what the build of this program has made of this component: it knows the digest from then,
                // and it was taken over the very bytes that are loaded.
                unsafe { Compiled::deserialize(&self.engine, code) }
                    .map_err(|e| format!("this engine does not take it ({e:#})"))
            });
            match found {
                Ok(compiled) => Ok(Code { compiled, source: Source::Precompiled, notice: None }),
                Err(found) => {
                    let code = self.code(bytes, digest, cache)?;
                    Ok(Code { notice: Some(precompiled.notice(&found)), ..code })
                }
            }
        })
    }

    /// The code of a component, out of the cache or compiled and, if it can be, kept there.
    fn code(&self, bytes: &[u8], digest: &[u8], cache: Option<&Cache>) -> Result<Code, LoadError> {
        if let Some(cache) = cache
            && let Some(code) = cache.read(&self.engine, digest)
            // SAFETY: the code is what this engine, by its compatibility hash, has compiled and written there, whole: its
            // digest holds for the very bytes that are loaded, and nobody but this user can write to the folder.
            && let Ok(compiled) = unsafe { Compiled::deserialize(&self.engine, code) }
        {
            return Ok(Code { compiled, source: Source::Cached, notice: None });
        }
        let compiled = self.compile(bytes)?;
        if let Some(cache) = cache
            && let Ok(code) = compiled.serialize()
        {
            let _ = cache.write(&self.engine, digest, &code);
        }
        Ok(Code { compiled, source: Source::Compiled, notice: None })
    }

    fn compile(&self, bytes: &[u8]) -> Result<Compiled, LoadError> {
        Compiled::from_binary(&self.engine, bytes)
            .map_err(|e| LoadError::Invalid { reason: quoted(&format!("{e:#}")) })
    }

    /// Makes a component of bytes that are one by their names, with the code that there is for their digest.
    fn link(
        &self,
        bytes: &[u8],
        code: impl FnOnce(&[u8]) -> Result<Code, LoadError>,
    ) -> Result<Component, LoadError> {
        let world = inspect::inspect(bytes)?;
        let mismatch = |e: wasmtime::Error| LoadError::Mismatch { reason: quoted(&format!("{e:#}")) };
        let digest = Sha256::digest(bytes);
        let Code { compiled, source, notice } = code(&digest)?;
        let pre = self.linker.instantiate_pre(&compiled).map_err(mismatch)?;
        let exports = Indices::new(&pre, world).map_err(mismatch)?;
        let sha256 = hex(&digest);
        let loaded = Loaded { pre, exports, sha256, size: bytes.len(), source, notice };
        let component = Component(Arc::new(loaded));
        // The types of exports are compared with the contract's when an instance is made, so make one.
        match Instance::new(self, &component, &Limits::trial()) {
            Ok(_) => Ok(component),
            Err(Unborn::Misfit(reason)) => Err(LoadError::Mismatch { reason }),
            Err(Unborn::Fault(fault)) => Err(LoadError::Stillborn(fault)),
        }
    }

    /// [`load`](Self::load) from a file.
    ///
    /// # Errors
    ///
    /// If the file cannot be read or is not a component of this contract.
    pub fn load_file(&self, path: &Path) -> Result<Component, LoadError> {
        self.load(&inspect::read_file(path)?)
    }

    /// [`load_cached`](Self::load_cached) from a file.
    ///
    /// # Errors
    ///
    /// If the file cannot be read or is not a component of this contract.
    pub fn load_file_cached(&self, path: &Path, cache: &Cache) -> Result<Component, LoadError> {
        self.load_cached(&inspect::read_file(path)?, cache)
    }

    /// [`load_precompiled`](Self::load_precompiled) from a file.
    ///
    /// # Errors
    ///
    /// If the file cannot be read or is not a component of this contract.
    pub fn load_file_precompiled(
        &self,
        path: &Path,
        precompiled: &Precompiled,
        cache: Option<&Cache>,
    ) -> Result<Component, LoadError> {
        self.load_precompiled(&inspect::read_file(path)?, precompiled, cache)
    }

    pub(crate) fn engine(&self) -> &Engine {
        &self.engine
    }

    pub(crate) fn ticker(&self) -> &Arc<Ticker> {
        &self.ticker
    }
}

/// The settings of every engine, here or where code is compiled ahead: it is loaded only where they are the same.
pub(crate) fn settings() -> Config {
    let mut config = Config::new();
    config
        .epoch_interruption(true)
        .signals_based_traps(false)
        .memory_reservation(MEMORY_RESERVATION)
        .memory_guard_size(0)
        .guard_before_linear_memory(false)
        .memory_reservation_for_growth(0);
    config
}

/// What a component is made of, besides its bytes.
struct Code {
    compiled: Compiled,
    source: Source,
    notice: Option<String>,
}

/// Where the code of a component came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// It was delivered with the component.
    Precompiled,
    /// It was compiled at an earlier start.
    Cached,
    /// It has been compiled now.
    Compiled,
}

impl Source {
    /// In lower case.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Precompiled => "precompiled",
            Self::Cached => "cached",
            Self::Compiled => "compiled",
        }
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
    source: Source,
    notice: Option<String>,
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

    /// Which of the worlds it is of.
    pub fn world(&self) -> World {
        match self.0.exports.routes {
            Some(_) => World::Plugin,
            None => World::Hooks,
        }
    }

    /// Whether its code came out of a cache.
    pub fn was_cached(&self) -> bool {
        self.source() == Source::Cached
    }

    /// Where its code came from.
    pub fn source(&self) -> Source {
        self.0.source
    }

    /// Why the code that was delivered with it is not used, if it is not.
    pub fn notice(&self) -> Option<&str> {
        self.0.notice.as_deref()
    }
}

impl fmt::Debug for Component {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Component").field("sha256", &self.0.sha256).field("size", &self.0.size).finish()
    }
}

/// Bytes in lower-case hexadecimal.
pub(crate) fn hex(bytes: &[u8]) -> String {
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
