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
use crate::{CallId, Limits, Refusal};

/// What one store has queued for its owner, and what it may use.
pub(crate) struct State {
    /// Waits that ended, in the order of their ending.
    pub(crate) settled: Vec<(CallId, Result<(), Refusal>)>,
    /// Requests without an answer.
    pub(crate) open: Vec<RequestId>,
    /// Requests answered.
    pub(crate) responses: Vec<(RequestId, Response)>,
    /// Questions asked.
    pub(crate) asks: Asks,
    /// Lines logged.
    pub(crate) log: LogQueue,
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
            asks: Asks::default(),
            log: LogQueue::default(),
            meter: Meter { used: 0, bound: limits.memory_bytes },
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
        if let Some(result) = result {
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

/// Counts memory over all memories of a store; more than the bound is a trap that says so.
pub(crate) struct Meter {
    used: usize,
    bound: usize,
}

/// A memory was refused growth.
#[derive(Debug, thiserror::Error)]
#[error("asked for {wanted} bytes of memory, more than the {bound} it may have")]
pub(crate) struct OutOfMemory {
    wanted: usize,
    bound: usize,
}

impl Meter {
    pub(crate) fn used(&self) -> usize {
        self.used
    }
}

impl ResourceLimiter for Meter {
    fn memory_growing(&mut self, current: usize, desired: usize, _: Option<usize>) -> wasmtime::Result<bool> {
        let wanted = self.used - current + desired;
        if wanted > self.bound {
            return Err(OutOfMemory { wanted, bound: self.bound }.into());
        }
        self.used = wanted;
        Ok(true)
    }

    fn table_growing(&mut self, _: usize, desired: usize, _: Option<usize>) -> wasmtime::Result<bool> {
        Ok(desired <= 100_000)
    }

    fn instances(&self) -> usize {
        16
    }

    fn tables(&self) -> usize {
        16
    }

    fn memories(&self) -> usize {
        16
    }
}
