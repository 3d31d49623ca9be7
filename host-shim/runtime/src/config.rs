//! The configuration, as far as the host reads it by itself.
//!
//! The component parses and judges it. The host needs three values when there may be no component to ask: what to do without
//! one, how often to try, and how long a spawn's record is worth restoring. It reads them leniently, a wrong value is the
//! default; the component reports what is wrong.

use serde_json::Value;

use crate::Mode;

/// What decides while the component cannot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OnFailure {
    Open,
    Closed,
}

/// A configuration and how it is to be taken.
#[derive(Clone, Debug)]
pub(crate) struct Config {
    pub(crate) json: String,
    pub(crate) mode: Mode,
    pub(crate) on_failure: OnFailure,
    /// Instances that may be built within a minute after faults.
    pub(crate) max_restarts: u64,
    /// How long a finished spawn is remembered for its child.
    pub(crate) spawn_grace_ms: u64,
}

impl Config {
    pub(crate) fn new(json: impl Into<String>, mode: Mode) -> Self {
        let json = json.into();
        let value: Value = serde_json::from_str(&json).unwrap_or_default();
        let number = |key: &str, default| value.get(key).and_then(Value::as_u64).unwrap_or(default);
        Self {
            on_failure: match value.get("onFailure").and_then(Value::as_str) {
                Some("closed") => OnFailure::Closed,
                _ => OnFailure::Open,
            },
            max_restarts: number("maxRestarts", 5),
            spawn_grace_ms: number("spawnGraceMs", 10_000),
            json,
            mode,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_exactly_closed_is_closed() {
        let policy = |json: &str| Config::new(json, Mode::Lenient).on_failure;
        assert_eq!(policy(r#"{"onFailure":"closed"}"#), OnFailure::Closed);
        for open in [r#"{"onFailure":"Closed"}"#, r#"{"onFailure":true}"#, "{}", "[]", "nonsense", ""] {
            assert_eq!(policy(open), OnFailure::Open, "{open}");
        }
    }

    #[test]
    fn wrong_numbers_are_the_defaults() {
        let config = Config::new(r#"{"maxRestarts":-1,"spawnGraceMs":"soon"}"#, Mode::Lenient);
        assert_eq!((config.max_restarts, config.spawn_grace_ms), (5, 10_000));
        let config = Config::new(r#"{"maxRestarts":0,"spawnGraceMs":7}"#, Mode::Lenient);
        assert_eq!((config.max_restarts, config.spawn_grace_ms), (0, 7));
    }
}
