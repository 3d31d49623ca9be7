//! Placeholder: the public surface, filled in next.
mod call;

pub use call::*;
