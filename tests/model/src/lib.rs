//! The rules once more, so naive that they can be checked by eye (`rules.rs`), what a whole limiter has around them
//! ([`Model`]), random histories ([`history`]), and the step-by-step comparison of both with a [`Subject`], which is the
//! native limiter or the built component.

mod drive;
mod ends;
mod history;
mod model;
mod pools;
mod rules;
mod run;
mod tables;

pub use drive::{Known, Subject, drive, starve};
pub use history::{Step, World, fair_history, history, world};
pub use model::{Answer, Model};
pub use run::{Run, config};
pub use tables::{Call, Tables};
