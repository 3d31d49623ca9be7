//! What every call goes through: asking whether it may start, hearing that its wait has ended, and telling that it ended.
//!
//! Before a method of a class runs, napi-rs looks its object up and makes sure of its class, which takes longer than all the
//! rest of a crossing. So a limiter hands these out as functions that carry a pointer to it.

use std::cell::RefCell;
use std::ffi::c_void;
use std::ptr;
use std::rc::Rc;

use gen_limit_runtime as runtime;
use napi::bindgen_prelude::{FromNapiValue, Object, ToNapiValue};
use napi::{Env, JsError, JsValue, check_status, sys};

use crate::arg::{Arg, bad};
use crate::error::Result;
use crate::{Core, Failure};

pub fn start_stream(
    core: &RefCell<Core>,
    provider: Arg<String>,
    model: Arg<String>,
    session: Arg<Option<String>>,
    first: Arg<bool>,
    spawn: Arg<Option<f64>>,
    within: Arg<Option<f64>>,
    purpose: Arg<Option<String>>,
) -> Result<f64> {
    let extra = within.integer("within")?.map(|id| ("within".to_owned(), id.to_string()));
    let call = runtime::StreamCall {
        route: runtime::Route { provider: provider.get("provider")?, model: model.get("model")? },
        session: session.get("session")?,
        root: None,
        parent: None,
        first: first.get("first")?,
        spawn: spawn.integer("spawn")?,
        purpose: purpose.get("purpose")?.unwrap_or_else(|| "conversation".to_owned()),
        extra: extra.into_iter().collect(),
    };
    core.borrow_mut().guard(|inner| {
        let started = inner.chain.start_stream(call, inner.clock.now());
        Ok(inner.answer(started))
    })
}

pub fn finish(
    core: &RefCell<Core>,
    id: Arg<f64>,
    outcome: Arg<f64>,
    failure: Arg<Option<Failure>>,
) -> Result<f64> {
    let id = id.integer("id")?;
    let outcome = match (outcome.integer("outcome")?, failure.get("failure")?) {
        (0, _) => runtime::Outcome::Completed,
        (1, _) => runtime::Outcome::Cancelled,
        (2, failure) => runtime::Outcome::Failed(runtime::Failure {
            code: failure.as_ref().map_or_else(|| "UNKNOWN".to_owned(), |failure| failure.code.clone()),
            status: failure.as_ref().and_then(|failure| failure.status).map(|status| status as u16),
            retry_after_ms: failure.and_then(|failure| failure.retry_after_ms).map(|delay| delay as u64),
        }),
        (other, _) => return Err(bad("outcome", &format!("expected 0, 1 or 2, found {other}"))),
    };
    core.borrow_mut().guard(|inner| {
        inner.chain.finish(id, outcome, inner.clock.now());
        Ok(inner.bits() as f64)
    })
}

pub fn next_settled(core: &RefCell<Core>) -> Result<f64> {
    core.borrow_mut().guard(|inner| {
        Ok(match inner.settled.pop_front() {
            None => 0.0,
            Some(runtime::Settled { id, result: Ok(()) }) => (id * 2) as f64,
            Some(runtime::Settled { id, result: Err(refusal) }) => {
                inner.refusal = Some(refusal);
                (id * 2 + 1) as f64
            }
        })
    })
}

pub fn next_tick(core: &RefCell<Core>) -> Result<f64> {
    core.borrow_mut().guard(|inner| {
        inner.told = inner.chain.next_tick();
        Ok(inner.told.map_or(f64::INFINITY, |due| due.saturating_sub(inner.clock.now()) as f64))
    })
}

/// All of them, as members of an object.
pub fn of<'env>(env: &'env Env, core: &Rc<RefCell<Core>>) -> napi::Result<Object<'env>> {
    let mut hooks = Object::new(env)?;
    function(env, &mut hooks, "startStream", core, entered::<7, StartStream>)?;
    function(env, &mut hooks, "finish", core, entered::<3, Finish>)?;
    function(env, &mut hooks, "nextSettled", core, entered::<0, NextSettled>)?;
    function(env, &mut hooks, "nextTick", core, entered::<0, NextTick>)?;
    Ok(hooks)
}

/// One of them, by its arguments.
trait Hook<const ARGUMENTS: usize> {
    /// # Safety
    ///
    /// The arguments are values of `env`, in the scope of a call.
    unsafe fn enter(
        core: &RefCell<Core>,
        env: sys::napi_env,
        arguments: [sys::napi_value; ARGUMENTS],
    ) -> Result<f64>;
}

struct StartStream;
struct Finish;
struct NextSettled;
struct NextTick;

/// # Safety
///
/// As [`Hook::enter`].
unsafe fn arg<T: FromNapiValue>(env: sys::napi_env, value: sys::napi_value) -> Arg<T> {
    // SAFETY: the caller's promise is passed on.
    unsafe { Arg::from_napi_value(env, value) }.unwrap_or_else(Arg::wrong)
}

impl Hook<7> for StartStream {
    unsafe fn enter(core: &RefCell<Core>, env: sys::napi_env, a: [sys::napi_value; 7]) -> Result<f64> {
        // SAFETY: the caller's promise is passed on.
        unsafe {
            start_stream(
                core,
                arg(env, a[0]),
                arg(env, a[1]),
                arg(env, a[2]),
                arg(env, a[3]),
                arg(env, a[4]),
                arg(env, a[5]),
                arg(env, a[6]),
            )
        }
    }
}

impl Hook<3> for Finish {
    unsafe fn enter(core: &RefCell<Core>, env: sys::napi_env, a: [sys::napi_value; 3]) -> Result<f64> {
        // SAFETY: the caller's promise is passed on.
        unsafe { finish(core, arg(env, a[0]), arg(env, a[1]), arg(env, a[2])) }
    }
}

impl Hook<0> for NextSettled {
    unsafe fn enter(core: &RefCell<Core>, _: sys::napi_env, []: [sys::napi_value; 0]) -> Result<f64> {
        next_settled(core)
    }
}

impl Hook<0> for NextTick {
    unsafe fn enter(core: &RefCell<Core>, _: sys::napi_env, []: [sys::napi_value; 0]) -> Result<f64> {
        next_tick(core)
    }
}

/// Makes a function of a hook.
fn function(
    env: &Env,
    on: &mut Object<'_>,
    name: &str,
    core: &Rc<RefCell<Core>>,
    callback: unsafe extern "C" fn(sys::napi_env, sys::napi_callback_info) -> sys::napi_value,
) -> napi::Result<()> {
    let held = Rc::into_raw(core.clone());
    let mut made = ptr::null_mut();
    // SAFETY: the name is told with its length. The function is given a share of the core, which goes with it.
    unsafe {
        let (data, text, length) =
            (held.cast_mut().cast::<c_void>(), name.as_ptr().cast(), name.len().cast_signed());
        let status = sys::napi_create_function(env.raw(), text, length, Some(callback), data, &raw mut made);
        if status == sys::Status::napi_ok {
            check_status!(sys::napi_add_finalizer(
                env.raw(),
                made,
                data,
                Some(released),
                ptr::null_mut(),
                ptr::null_mut()
            ))?;
        } else {
            drop(Rc::from_raw(held));
        }
        check_status!(status)?;
        check_status!(sys::napi_set_property(
            env.raw(),
            on.raw(),
            <&str>::to_napi_value(env.raw(), name)?,
            made
        ))
    }
}

/// The function has gone.
unsafe extern "C" fn released(_: sys::napi_env, data: *mut c_void, _: *mut c_void) {
    // SAFETY: it is the share that the function was given, and it goes once.
    drop(unsafe { Rc::from_raw(data.cast::<RefCell<Core>>()) });
}

/// The function was called.
unsafe extern "C" fn entered<const ARGUMENTS: usize, H: Hook<ARGUMENTS>>(
    env: sys::napi_env,
    info: sys::napi_callback_info,
) -> sys::napi_value {
    let mut arguments = [ptr::null_mut(); ARGUMENTS];
    let (mut count, mut data) = (ARGUMENTS, ptr::null_mut());
    let mut number = ptr::null_mut();
    // SAFETY: there is room for so many arguments, and those that are missing are filled in. The core lives as long as the
    // function does, which is being called.
    let answer = unsafe {
        let (values, this) = (arguments.as_mut_ptr(), ptr::null_mut());
        if sys::napi_get_cb_info(env, info, &raw mut count, values, this, &raw mut data)
            != sys::Status::napi_ok
        {
            return number;
        }
        H::enter(&*data.cast::<RefCell<Core>>(), env, arguments)
    };
    // SAFETY: a place for the number; an error is thrown in the scope of this call.
    unsafe {
        match answer {
            Ok(answer) => _ = sys::napi_create_double(env, answer, &raw mut number),
            Err(error) => JsError::from(error).throw_into(env),
        }
    }
    number
}
