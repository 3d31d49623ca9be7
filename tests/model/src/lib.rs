//! The rules once more, so naive that they can be checked by eye (`rules.rs`), what a whole limiter has around them
//! ([`Model`]), random histories ([`history`]), and the step-by-step comparison of both with a [`Subject`], which is the
//! native limiter or the built component.

mod drive;
mod ends;
mod exhaustive;
mod history;
mod long;
mod model;
mod native;
mod pools;
mod rules;
mod run;
mod starvation;
mod tables;
mod worlds;

pub use drive::{Configured, Known, Subject, drive, starve};
pub use exhaustive::{Covered, Op, Violation, World as SmallWorld, explore};
pub use history::{Step, World, fair_history, history, world};
pub use long::{Plan, long};
pub use model::{Answer, Model};
pub use native::Native;
pub use run::Run;
pub use tables::{Call, Tables};
pub use worlds::{Size, unfair, worlds};
