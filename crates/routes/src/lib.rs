//! Answers to requests: what is configured, what could be, who runs, who waits and why.
//!
//! # What it promises
//!
//! * Whatever comes in, there is an answer: a request that cannot be understood gets a status from 400 on and a sentence
//!   that names what was wrong.
//! * There is one parser of configurations, the limiter's. What is posted is judged by it before the settings service hears
//!   of it, and what the settings hold is judged by it again in every answer.
//! * The limiter is only looked at, and never while an answer waits for its [`Host`].
//! * What is asked of several is asked of all at once.
//!
//! The component converts its imports to a [`Host`] and calls [`handle`]; a test brings a host of its own.
#![forbid(unsafe_code)]

mod catalog;
mod config;
mod host;
mod join;
mod kin;
mod metrics;
mod request;
mod response;
mod stats;

pub use config::{Patch, patch};
pub use host::{Host, Model, Section, SessionInfo, SettingsError};
pub use kin::Kin;
pub use request::{Request, parameters};
pub use response::Response;

/// The configuration: `GET` reads it, `POST` changes it.
pub const CONFIG: &str = "/api/dsh-gen-limit/config";
/// The providers and models that limits can be set on.
pub const CATALOG: &str = "/api/dsh-gen-limit/catalog";
/// Who runs, who waits, and why.
pub const STATS: &str = "/api/dsh-gen-limit/stats";
/// The same in numbers, as Prometheus reads them.
pub const METRICS: &str = "/api/dsh-gen-limit/metrics";

/// Every path there is.
pub const PATHS: [&str; 4] = [CONFIG, CATALOG, STATS, METRICS];

/// Answers a request. `HEAD` is answered like `GET`; whoever sends the answer leaves its body out.
pub async fn handle(host: &impl Host, request: &Request) -> Response {
    let (path, method) = (request.path.as_str(), request.method.as_str());
    let answer = match (path, method) {
        (CONFIG, "GET" | "HEAD") => config::read(host, request).await,
        (CONFIG, "POST") => config::write(host, request).await,
        (CATALOG, "GET" | "HEAD") => catalog::read(host, request).await,
        (STATS, "GET" | "HEAD") => stats::read(host, request).await,
        (METRICS, "GET" | "HEAD") => metrics::read(host, request),
        (CONFIG, _) => Err(Response::not_allowed("GET, HEAD, POST")),
        (CATALOG | STATS | METRICS, _) => Err(Response::not_allowed("GET, HEAD")),
        _ => Err(Response::error(404, &format!("nothing is served at {}", request::brief(path)))),
    };
    match answer {
        Ok(response) | Err(response) => response,
    }
}
