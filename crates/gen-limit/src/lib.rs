//! The component: the [`limiter`] behind the world `plugin` of `wit/`. Conversion, and nothing else.
//!
//! [`host`] has the exports, [`convert`] the shapes, [`gate`] the limiter and the futures of those who wait, [`routes`] the
//! answers to requests. There is no clock, no entropy, no I/O and no thread in here: time is an argument, decisions are data.

mod bindings;
mod convert;
mod gate;
mod host;
mod routes;

#[cfg(feature = "chaos")]
mod chaos;

#[cfg(feature = "chaos")]
use chaos::Chaos as Exported;
#[cfg(not(feature = "chaos"))]
use host::Component as Exported;

bindings::export!(Exported with_types_in bindings);
