//! The component: the [`limiter`] and its [`routes`] behind the world `plugin` of `wit/`. Conversion, and nothing else.
//!
//! `host.rs` has the exports, `convert.rs` the shapes, `gate.rs` the limiter and the futures of those who wait, `lent.rs` what the
//! routes may ask of the host. There is no clock, no entropy, no I/O and no thread in here: time is an argument, decisions
//! are data.

mod bindings;
mod convert;
mod gate;
mod host;
mod lent;

#[cfg(feature = "chaos")]
mod chaos;

#[cfg(feature = "chaos")]
use chaos::Chaos as Exported;
#[cfg(not(feature = "chaos"))]
use host::Component as Exported;

bindings::export!(Exported with_types_in bindings);
