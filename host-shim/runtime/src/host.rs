//! What a component may ask of its host, and what one store may use.
//!
//! Nothing here calls out of this crate: an answer that comes from elsewhere would find the store borrowed. Lines and
//! decisions are queued in [`State`] and taken when the call is over. What the harness has to be asked for is answered through a
//! future ([`crate::ask`]), never by an async import.

use std::pin::Pin;
use std::task::{Context, Poll};

use wasmtime::component::{Access, FutureConsumer, FutureReader, HasSelf, Linker, Source};
use wasmtime::{Engine, ResourceLimiter, StoreContextMut};

use crate::ask::Asks;
use crate::bindings::Plugin;
use crate::bindings::dsh::plugin::{log, models, sessions, settings, types};
use crate::log::LogQueue;
use crate::routes::{RequestId, Response};
use crate::{CallId, Instant, Limits, Refusal, bound};

/// What one store has queued for its owner, and what it may use.
pub(crate) struct State {
    /// Waits that ended, in the order of their ending.
    pub(crate) settled: Vec<(CallId, Result<(), Refusal>)>,
    /// Requests without an answer, with when they came.
    pub(crate) open: Vec<(RequestId, Instant)>,
    /// Requests answered.
    pub(crate) responses: Vec<(RequestId, Response)>,
    /// Questions asked.
    pub(crate) asks: Asks,
    /// Lines logged.
    pub(crate) log: LogQueue,
    /// Bytes of a response, at most.
    pub(crate) response_bytes: usize,
    /// What it uses.
    pub(crate) meter: Meter,
    /// What the call under way may burn of a processor.
    pub(crate) may_burn_ms: u64,
    /// What this thread had spent on a processor when the call under way was first looked at.
    pub(crate) burning_since: Option<u64>,
}

impl State {
    pub(crate) fn new(limits: &Limits) -> Self {
        Self {
            settled: Vec::new(),
            open: Vec::new(),
            responses: Vec::new(),
            asks: Asks::new(limits),
            log: LogQueue::new(limits),
            response_bytes: limits.response_bytes,
            meter: Meter::new(limits),
            may_burn_ms: 0,
            burning_since: None,
        }
    }
}

pub(crate) fn linker(engine: &Engine) -> wasmtime::Result<Linker<State>> {
    let mut linker = Linker::new(engine);
    Plugin::add_to_linker::<_, HasSelf<State>>(&mut linker, |state| state)?;
    Ok(linker)
}

/// Queues the end of one wait.
///
/// # Hazards
///
/// The guest writes the future inside another call of ours. A consumer that is pending or fails traps it there; so this one
/// takes the value and is done.
pub(crate) struct Settle(pub(crate) CallId);

impl FutureConsumer<State> for Settle {
    type Item = Result<(), Refusal>;

    fn poll_consume(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
        mut store: StoreContextMut<'_, State>,
        mut source: Source<'_, Self::Item>,
        _: bool,
    ) -> Poll<wasmtime::Result<()>> {
        let mut result = None;
        source.read(&mut store, &mut result)?;
        if let Some(mut result) = result {
            if let Err(refusal) = &mut result {
                bound::refusal(refusal);
            }
            store.data_mut().settled.push((self.0, result));
        }
        Poll::Ready(Ok(()))
    }
}

impl types::Host for State {}

impl log::Host for State {
    fn log(&mut self, level: log::Level, message: String) {
        self.log.push(level, message);
    }
}

impl settings::Host for State {}

impl<T: 'static> settings::HostWithStore<T> for HasSelf<State> {
    fn read(
        mut host: Access<T, Self>,
    ) -> wasmtime::Result<FutureReader<Result<settings::Section, settings::WriteError>>> {
        let answer = host.get().asks.read_settings();
        FutureReader::new(host, answer)
    }

    fn update(
        mut host: Access<T, Self>,
        json: String,
        revision: Option<String>,
    ) -> wasmtime::Result<FutureReader<Result<settings::Section, settings::WriteError>>> {
        let answer = host.get().asks.update_settings(json, revision);
        FutureReader::new(host, answer)
    }
}

impl models::Host for State {}

impl<T: 'static> models::HostWithStore<T> for HasSelf<State> {
    fn providers(mut host: Access<T, Self>) -> wasmtime::Result<FutureReader<Vec<models::Model>>> {
        let answer = host.get().asks.providers();
        FutureReader::new(host, answer)
    }

    fn list_models(
        mut host: Access<T, Self>,
        provider: String,
    ) -> wasmtime::Result<FutureReader<Result<Vec<models::Model>, String>>> {
        let answer = host.get().asks.models(provider);
        FutureReader::new(host, answer)
    }
}

impl sessions::Host for State {}

impl<T: 'static> sessions::HostWithStore<T> for HasSelf<State> {
    fn describe(
        mut host: Access<T, Self>,
        ids: Vec<String>,
    ) -> wasmtime::Result<FutureReader<Vec<sessions::Info>>> {
        let answer = host.get().asks.sessions(ids);
        FutureReader::new(host, answer)
    }
}

/// Counts memory and table elements over all memories and tables of a store; more than the bound is a trap that says so.
pub(crate) struct Meter {
    memory: Gauge,
    elements: Gauge,
    instances: usize,
    tables: usize,
    memories: usize,
}

struct Gauge {
    what: &'static str,
    used: usize,
    bound: usize,
}

/// A memory or a table was refused growth.
#[derive(Debug, thiserror::Error)]
#[error("asked for {wanted} {what}, more than the {bound} it may have")]
pub(crate) struct OutOfBounds {
    what: &'static str,
    wanted: usize,
    bound: usize,
}

impl Gauge {
    fn grow(&mut self, current: usize, desired: usize, maximum: Option<usize>) -> wasmtime::Result<bool> {
        if maximum.is_some_and(|maximum| desired > maximum) {
            return Ok(false);
        }
        let wanted = self.used.saturating_sub(current).saturating_add(desired);
        if wanted > self.bound {
            return Err(OutOfBounds { what: self.what, wanted, bound: self.bound }.into());
        }
        self.used = wanted;
        Ok(true)
    }
}

impl Meter {
    fn new(limits: &Limits) -> Self {
        Self {
            memory: Gauge { what: "bytes of memory", used: 0, bound: limits.memory_bytes },
            elements: Gauge { what: "table elements", used: 0, bound: limits.table_elements },
            instances: limits.instances,
            tables: limits.tables,
            memories: limits.memories,
        }
    }

    /// Bytes of memory in use.
    pub(crate) fn used(&self) -> usize {
        self.memory.used
    }
}

impl ResourceLimiter for Meter {
    fn memory_growing(
        &mut self,
        current: usize,
        desired: usize,
        max: Option<usize>,
    ) -> wasmtime::Result<bool> {
        self.memory.grow(current, desired, max)
    }

    fn table_growing(
        &mut self,
        current: usize,
        desired: usize,
        max: Option<usize>,
    ) -> wasmtime::Result<bool> {
        self.elements.grow(current, desired, max)
    }

    fn instances(&self) -> usize {
        self.instances
    }

    fn tables(&self) -> usize {
        self.tables
    }

    fn memories(&self) -> usize {
        self.memories
    }
}
