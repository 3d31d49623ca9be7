//! One store with one instance in it: how it is entered, and how it dies.
//!
//! # Deadline
//!
//! Whoever begins an operation sets the epoch's deadline; every entry keeps the ticker awake. Epochs count a wall's time, and on
//! a busy machine this thread may have been kept from running for all of it. So an epoch only makes the call look at the
//! thread's own clock, and what counts is what it has burnt of a processor since the first look: at most two epochs more than
//! it may, never less. Entries of one operation do not set the deadline back, so a component that burns a little less than it
//! may in each of them is stopped like one that does so in one ([`Limits`]).
//!
//! # Order
//!
//! Every answer that holds a future has it piped before anything else is called. An error out of the component is the end of the
//! store; what it had queued can still be taken.

use std::future;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::task::{Context, Poll, Wake, Waker};

use wasmtime::component::FutureReader;
use wasmtime::{Store, Trap, UpdateDeadline};

use crate::ask::{Answer, AskId};
use crate::bindings::dsh::plugin::types;
use crate::bindings::exports::dsh::plugin::{lifecycle, llm_stream, pools, routes, tool_pre_execute};
use crate::call::Verdict;
use crate::clock::thread_cpu_ms;
use crate::engine::{Component, Runtime};
use crate::host::{OutOfBounds, Settle, State};
use crate::routes::{Handling, Request, RequestId};
use crate::table::Hook;
use crate::ticker::Ticker;
use crate::{CallId, Fault, Instant, Limits, Mode, Outcome, Problem, StreamCall, ToolCall, bound};

/// A configuration may burn what a call may once more for each so many bytes: 1 500 rows, for which a usual machine needs an
/// eighth of that.
const CONFIGURE_BYTES: u64 = 64 << 10;
/// And half as much for each so many calls, which may all have to be counted again: with a route and a row for each, a usual machine
/// needs a twentieth of that.
const CONFIGURE_CALLS: usize = 500;

/// Entries of wasmtime's table that a waiting call takes: the future and its two ends.
const ENTRIES_PER_HANDLE: usize = 3;

/// Why there is no instance.
pub(crate) enum Unborn {
    /// It failed.
    Fault(Fault),
    /// A type of an export is not the contract's.
    Misfit(String),
}

impl From<Unborn> for Fault {
    fn from(unborn: Unborn) -> Self {
        match unborn {
            Unborn::Fault(fault) => fault,
            Unborn::Misfit(reason) => Self::Trap(reason),
        }
    }
}

pub(crate) struct Instance {
    ticker: Arc<Ticker>,
    store: Store<State>,
    llm_stream: llm_stream::Guest,
    tool_pre_execute: tool_pre_execute::Guest,
    lifecycle: lifecycle::Guest,
    routes: Option<routes::Guest>,
    pools: Option<pools::Guest>,
    call_ms: u64,
    turn_ms: u64,
    copied_bytes: usize,
    /// What a turn may carry out: a whole answer is one value.
    turn_bytes: usize,
    names: usize,
}

impl Instance {
    /// A fresh store with a fresh instance, which has not been called.
    pub(crate) fn new(runtime: &Runtime, component: &Component, limits: &Limits) -> Result<Self, Unborn> {
        let mut store = Store::new(runtime.engine(), State::new(limits));
        store.limiter(|state| &mut state.meter);
        store.set_hostcall_fuel(limits.copied_bytes);
        store.set_max_component_handles(limits.handles);
        if let Some(table) = store.concurrent_resource_table() {
            table.set_max_capacity(limits.handles.saturating_mul(ENTRIES_PER_HANDLE));
        }
        store.data_mut().may_burn_ms = limits.call_ms;
        store.set_epoch_deadline(1);
        store.epoch_deadline_callback(|mut store| {
            let clock = thread_cpu_ms();
            let state = store.data_mut();
            let since = *state.burning_since.get_or_insert(clock);
            Ok(if clock - since < state.may_burn_ms {
                UpdateDeadline::Continue(1)
            } else {
                UpdateDeadline::Interrupt
            })
        });

        let _awake = runtime.ticker().watch();
        let loaded = &component.0;
        let instance =
            loaded.pre.instantiate(&mut store).map_err(|e| Unborn::Fault(Fault::of(&e, limits.call_ms)))?;
        let exports = &loaded.exports;
        let load = |store: &mut Store<State>| -> wasmtime::Result<_> {
            Ok((
                exports.llm_stream.load(&mut *store, &instance)?,
                exports.tool_pre_execute.load(&mut *store, &instance)?,
                exports.lifecycle.load(&mut *store, &instance)?,
                exports.routes.as_ref().map(|routes| routes.load(&mut *store, &instance)).transpose()?,
                exports.pools.as_ref().map(|pools| pools.load(&mut *store, &instance)).transpose()?,
            ))
        };
        let (llm_stream, tool_pre_execute, lifecycle, routes, pools) =
            load(&mut store).map_err(|e| Unborn::Misfit(e.root_cause().to_string()))?;
        Ok(Self {
            ticker: runtime.ticker().clone(),
            store,
            llm_stream,
            tool_pre_execute,
            lifecycle,
            routes,
            pools,
            call_ms: limits.call_ms,
            turn_ms: limits.turn_ms,
            copied_bytes: limits.copied_bytes,
            turn_bytes: limits.copied_bytes.saturating_add(limits.response_bytes),
            names: limits.names,
        })
    }

    /// What it has queued; also after its death.
    pub(crate) fn state(&mut self) -> &mut State {
        self.store.data_mut()
    }

    pub(crate) fn start_stream(
        &mut self,
        id: CallId,
        call: &StreamCall,
        now: Instant,
    ) -> Result<Verdict, Fault> {
        self.enter(|me| {
            let verdict = me.llm_stream.call_start(&mut me.store, id, call, now)?;
            me.pipe(id, verdict)
        })
    }

    pub(crate) fn start_tool(&mut self, id: CallId, call: &ToolCall, now: Instant) -> Result<Verdict, Fault> {
        self.enter(|me| {
            let verdict = me.tool_pre_execute.call_start(&mut me.store, id, call, now)?;
            me.pipe(id, verdict)
        })
    }

    pub(crate) fn finish(
        &mut self,
        hook: Hook,
        id: CallId,
        outcome: &Outcome,
        now: Instant,
    ) -> Result<(), Fault> {
        self.enter(|me| match hook {
            Hook::Stream => me.llm_stream.call_finish(&mut me.store, id, outcome, now),
            Hook::Tool => me.tool_pre_execute.call_finish(&mut me.store, id, outcome, now),
        })
    }

    pub(crate) fn tools(&mut self) -> Result<Vec<String>, Fault> {
        let tools = self.enter(|me| me.tool_pre_execute.call_tools(&mut me.store))?;
        self.check_names("tools", tools)
    }

    /// Empty for a component without routes.
    pub(crate) fn paths(&mut self) -> Result<Vec<String>, Fault> {
        let paths = self.enter(|me| match &me.routes {
            Some(routes) => routes.call_paths(&mut me.store),
            None => Ok(Vec::new()),
        })?;
        self.check_names("paths", paths)
    }

    fn check_names(&self, what: &str, names: Vec<String>) -> Result<Vec<String>, Fault> {
        if names.len() > self.names {
            let (found, most) = (names.len(), self.names);
            return Err(Fault::Exceeded(format!("it names {found} {what}, more than the {most} it may")));
        }
        match names.iter().map(String::len).max() {
            Some(found) if found > bound::MAX_TEXT_BYTES => Err(Fault::Exceeded(format!(
                "one of its {what} has a name of {found} bytes, more than the {} it may have",
                bound::MAX_TEXT_BYTES
            ))),
            _ => Ok(names),
        }
    }

    /// While it knows of so many calls.
    pub(crate) fn configure(
        &mut self,
        json: &str,
        mode: Mode,
        calls: usize,
        now: Instant,
    ) -> Result<Result<Vec<Problem>, Vec<Problem>>, Fault> {
        self.begin_for(self.call_ms.saturating_mul((json.len() as u64).div_ceil(CONFIGURE_BYTES).max(1)));
        self.grant(calls.div_ceil(CONFIGURE_CALLS) as u64);
        let mut answer = self.enter(|me| me.lifecycle.call_configure(&mut me.store, json, mode, now))?;
        let (Ok(problems) | Err(problems)) = &mut answer;
        bound::problems(problems);
        Ok(answer)
    }

    pub(crate) fn tick(&mut self, now: Instant) -> Result<Option<Instant>, Fault> {
        self.enter(|me| me.lifecycle.call_tick(&mut me.store, now))
    }

    pub(crate) fn restore(
        &mut self,
        live: &[lifecycle::LiveCall],
        waiting: &[lifecycle::WaitingCall],
        now: Instant,
    ) -> Result<Vec<(CallId, Verdict)>, Fault> {
        self.enter(|me| {
            let verdicts = me.lifecycle.call_restore(&mut me.store, live, waiting, now)?;
            verdicts.into_iter().map(|(id, verdict)| Ok((id, me.pipe(id, verdict)?))).collect()
        })
    }

    /// The scopes that want a pool's seats; empty for a component without pools.
    pub(crate) fn demand(&mut self) -> Result<Vec<pools::Need>, Fault> {
        self.enter(|me| match &me.pools {
            Some(pools) => pools.call_demand(&mut me.store),
            None => Ok(Vec::new()),
        })
    }

    pub(crate) fn capacity(&mut self, grant: &pools::Grant, now: Instant) -> Result<(), Fault> {
        self.enter(|me| match &me.pools {
            Some(pools) => pools.call_capacity(&mut me.store, grant, now),
            None => Ok(()),
        })
    }

    /// Answers a question and lets whoever asked go on. Nobody may have asked.
    pub(crate) fn answer(&mut self, id: AskId, answer: Answer) -> Result<(), Fault> {
        if self.state().asks.answer(id, answer) { self.turn() } else { Ok(()) }
    }

    /// When the request that has been open longest was opened.
    pub(crate) fn oldest_request(&self) -> Option<Instant> {
        self.store.data().open.first().map(|&(_, at)| at)
    }

    pub(crate) fn has_routes(&self) -> bool {
        self.routes.is_some()
    }

    /// Begins a request; it moves with the next [`turn`](Self::turn).
    pub(crate) fn open(
        &mut self,
        id: RequestId,
        request: Request,
        host_status: String,
        now: Instant,
    ) -> Result<(), Fault> {
        let Some(handle) = self.routes.as_ref().map(routes::Guest::func_handle) else { return Ok(()) };
        let task = Handling { id, handle, request: request.with_status(host_status) };
        self.state().open.push((id, now));
        self.enter(|me| me.store.spawn(task).map(drop))
    }

    /// Lets open requests go on until each waits for something or is answered.
    ///
    /// # Hazards
    ///
    /// A turn that is dropped after it was woken loses what woke it, so it is polled until nothing has. A component that wakes
    /// itself for ever is stopped by the epoch, whose deadline holds for the whole turn.
    pub(crate) fn turn(&mut self) -> Result<(), Fault> {
        self.begin_for(self.turn_ms);
        self.store.set_hostcall_fuel(self.turn_bytes);
        let turned = self.enter(|me| {
            let woken = Arc::new(Woken::default());
            let waker = Waker::from(woken.clone());
            let mut turn = pin!(me.store.run_concurrent(async |_| future::pending::<()>().await));
            loop {
                woken.0.store(false, Relaxed);
                match turn.as_mut().poll(&mut Context::from_waker(&waker)) {
                    Poll::Ready(done) => return done,
                    Poll::Pending if woken.0.load(Relaxed) => {}
                    Poll::Pending => return Ok(()),
                }
            }
        });
        self.store.set_hostcall_fuel(self.copied_bytes);
        turned
    }

    /// # Panics
    ///
    /// If the store still holds anything of a call.
    pub(crate) fn assert_empty(&mut self) {
        self.store.assert_concurrent_state_empty();
    }

    pub(crate) fn memory_bytes(&self) -> usize {
        self.store.data().meter.used()
    }

    /// Begins an operation: what the calls of it burn, up to the beginning of the next, is counted together.
    pub(crate) fn begin(&mut self) {
        self.begin_for(self.call_ms);
    }

    /// The same for one that may take longer.
    fn begin_for(&mut self, ms: u64) {
        self.store.set_epoch_deadline(1);
        let state = self.store.data_mut();
        state.may_burn_ms = ms;
        state.burning_since = None;
    }

    /// Grants more to the operation under way, in parts of what a call may burn.
    pub(crate) fn grant(&mut self, halves: u64) {
        let more = (self.call_ms / 2).saturating_mul(halves);
        let state = self.store.data_mut();
        state.may_burn_ms = state.may_burn_ms.saturating_add(more);
    }

    fn enter<R>(&mut self, call: impl FnOnce(&mut Self) -> wasmtime::Result<R>) -> Result<R, Fault> {
        let ticker = self.ticker.clone();
        let _awake = ticker.watch();
        call(self).map_err(|e| {
            let state = self.store.data();
            match (Fault::of(&e, state.may_burn_ms), state.log.last_words()) {
                (Fault::Trap(reason), Some(words)) => Fault::Trap(format!("{reason} ({words})")),
                (fault, _) => fault,
            }
        })
    }

    /// Takes the future out of a verdict and lets it settle into the queue.
    fn pipe(&mut self, id: CallId, verdict: types::Verdict) -> wasmtime::Result<Verdict> {
        Ok(match verdict {
            types::Verdict::Admit => Verdict::Admit,
            types::Verdict::Deny(mut refusal) => {
                bound::refusal(&mut refusal);
                Verdict::Deny(refusal)
            }
            types::Verdict::Wait(types::Waiting { settled, deadline, seniority }) => {
                let settled: FutureReader<_> = settled;
                settled.pipe(&mut self.store, Settle(id))?;
                Verdict::Wait { deadline, seniority }
            }
        })
    }
}

#[derive(Default)]
struct Woken(AtomicBool);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Relaxed);
    }
}

impl Fault {
    fn of(error: &wasmtime::Error, ms: u64) -> Self {
        if let Some(memory) = error.downcast_ref::<OutOfBounds>() {
            return Self::Memory(memory.to_string());
        }
        match error.downcast_ref::<Trap>() {
            Some(Trap::Interrupt) => Self::Deadline { ms },
            Some(trap) => Self::Trap(trap.to_string()),
            None => Self::Trap(error.root_cause().to_string()),
        }
    }
}
