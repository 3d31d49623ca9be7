//! The rules once more, so naive that they can be checked by eye ([`Model`]), random histories ([`history`]), and the
//! step-by-step comparison of both with a [`Subject`], which is the native limiter or the built component.

mod drive;
mod history;
mod naive;

pub use drive::{Known, Subject, drive, starve};
pub use history::{Step, World, fair_history, history, world};
pub use naive::Model;
