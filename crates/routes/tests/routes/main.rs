//! Every route, answered by a host that is told what to say.

mod common;

mod catalog;
mod config;
mod description;
mod metrics;
mod request;
mod stats;
