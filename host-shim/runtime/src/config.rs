//! The configuration, as far as the host reads it by itself.
//!
//! The component parses and judges it. The host needs three values when there may be no component to ask: what to do without
//! one, how often to try, and how long a spawn's record is worth restoring. It reads them leniently, a wrong value is the
//! default; the component reports what is wrong. What is an integer, and how great it may be, is the component's notion.

use serde_json::Value;

use crate::Mode;

/// What decides while the component cannot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnFailure {
    /// Calls pass, uncounted by limits.
    Open,
    /// Calls are refused.
    Closed,
}

impl OnFailure {
    /// `open` or `closed`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Open => "open",
            Self::Closed => "closed",
        }
    }
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
        let number = |key: &str, greatest, default| {
            value.get(key).and_then(whole).filter(|&n| n <= greatest).unwrap_or(default)
        };
        Self {
            on_failure: match value.get("onFailure").and_then(Value::as_str) {
                Some("closed") => OnFailure::Closed,
                _ => OnFailure::Open,
            },
            max_restarts: number("maxRestarts", u32::MAX.into(), 5),
            spawn_grace_ms: number("spawnGraceMs", GREATEST_MS, 10_000),
            json,
            mode,
        }
    }
}

/// The greatest number of milliseconds, the last integer that every reader of JSON carries exactly.
const GREATEST_MS: u64 = (1 << 53) - 1;

/// The value as a whole number: `3.0` and `3e0` are 3, `3.5`, `1e-400` and `"3"` are none. Decided on the digits as they were
/// written: a double would round a fraction away.
pub(crate) fn whole(value: &Value) -> Option<u64> {
    let Value::Number(number) = value else { return None };
    let text = number.to_string();
    let (mantissa, exponent) = text.split_once(['e', 'E']).unwrap_or((&text, "0"));
    let (negative, mantissa) = mantissa.strip_prefix('-').map_or((false, mantissa), |rest| (true, rest));
    let (before, after) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let digits = format!("{before}{after}");
    let significant = digits.trim_end_matches('0');
    if significant.is_empty() {
        return Some(0);
    }
    // The number is `significant` followed by so many zeros.
    let zeros =
        exponent.parse::<i64>().ok()?.checked_add_unsigned((digits.len() - significant.len()) as u64)?;
    let zeros = u32::try_from(zeros.checked_sub_unsigned(after.len() as u64)?).ok()?;
    let number: u64 = significant.parse().ok()?;
    number.checked_mul(10_u64.checked_pow(zeros)?).filter(|_| !negative)
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
        let config = Config::new(r#"{"maxRestarts":4294967296,"spawnGraceMs":1e400}"#, Mode::Lenient);
        assert_eq!((config.max_restarts, config.spawn_grace_ms), (5, 10_000));
    }

    #[test]
    fn an_integer_is_one_however_it_is_written() {
        for (text, number) in
            [("3", 3), ("3.0", 3), ("3e0", 3), ("30e-1", 3), ("-0.0", 0), ("1E3", 1_000), ("0e999", 0)]
        {
            let json = format!(r#"{{"maxRestarts":{text},"spawnGraceMs":{text}}}"#);
            let config = Config::new(json, Mode::Lenient);
            assert_eq!((config.max_restarts, config.spawn_grace_ms), (number, number), "{text}");
        }
        for text in ["3.5", "-1.0", "3.00000000000000001", "1e-400", "\"3\"", "null"] {
            let json = format!(r#"{{"maxRestarts":{text},"spawnGraceMs":{text}}}"#);
            let config = Config::new(json, Mode::Lenient);
            assert_eq!((config.max_restarts, config.spawn_grace_ms), (5, 10_000), "{text}");
        }
    }
}
