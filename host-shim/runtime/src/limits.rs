//! What one plugin may use of its host, and how somebody says so.
//!
//! A component is somebody else's code. What it can do is bounded by what is lent to it (`wit/`); how much of it, here. Every
//! number is one plugin's on its own: reaching it is an error in that plugin, a call of its that is refused, a line of its that
//! is cut, an instance of its that is stopped and replaced. It takes nothing from another plugin of the same process, and
//! nothing from the process that was not counted on.
//!
//! # Two sets
//!
//! [`Limits::default`] is for a component that its host ships and has tested: room for the greatest line the limiter can have,
//! no end to its waits, because it ends them itself. [`Limits::foreign`] is for one that was dropped into a folder. It may turn
//! out to loop on the thread that serves everybody, so it gets the time that one loop may cost the others, and its waits and
//! requests end.
//!
//! # Time
//!
//! What counts is the processor time of the thread that calls, looked at whenever an epoch of five milliseconds ends. A call is
//! never stopped before it has burnt [`call_ms`](Limits::call_ms), and at the latest two epochs after: with 80 ms within 90,
//! with 30 ms within 40; later only where the thread that moves the epochs is kept waiting by other programs. The limit is that
//! of an *operation* as a whole, which as a rule is one call of the component and a tick; else a component that burns a little
//! less than it may in every call would never be stopped.
//!
//! The limiter's longest operation is to end or serve 2 000 waits and as many again in the tick after it, each on a route of its
//! own: 45 ms where this was measured; thus 80. Making a successor is an operation of its own, which may burn as much again. One
//! that fails slowly is tried again after other events had their turn, so a component that loops wherever it is called costs its
//! caller two loops at most before somebody else gets to run.
//!
//! # Written down
//!
//! [`Limits::from_json`] reads the object `limits` of a plugin's file. It knows no defaults of its own: what is not named is that
//! of the base, and what is named and wrong is an error that says what is allowed. Every limit has a greatest value, beyond
//! which the host itself would not be safe.

use std::fmt;

use serde::de::{Deserialize, Deserializer, MapAccess, Visitor};
use serde_json::Value;

use crate::Problem;
use crate::config::whole;
use crate::engine::MEMORY_RESERVATION;

/// What one plugin may use. In JSON every limit has the same name in camel case.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Memory, all linear memories of an instance together, in bytes; more is a fault. By default it holds the greatest
    /// `maxWaiting`, 200 000, with sessions and routes of usual length. More than that, 256 MiB, is possible and not wise: growth
    /// beyond moves the memory, which nothing interrupts.
    pub memory_bytes: usize,
    /// Elements of all tables of an instance together; more is a fault.
    pub table_elements: usize,
    /// Core instances, those that adapt and link included; a component of more cannot be started.
    pub instances: usize,
    /// Tables; a component of more cannot be started.
    pub tables: usize,
    /// Linear memories; a component of more cannot be started.
    pub memories: usize,
    /// Milliseconds of a processor, the caller's own thread, that one operation may burn; it is stopped ten later at the
    /// latest, which is a fault. A configuration may burn as much once more with every 64 KiB of it, and a successor half as
    /// much once more with every 500 calls that it is told of.
    pub call_ms: u64,
    /// The same for a turn of the open requests.
    pub turn_ms: u64,
    /// Calls that wait and futures of open requests, together; more is a fault. The configuration's `maxWaiting` stays below.
    pub handles: usize,
    /// Calls that it may keep waiting at once; one more is refused.
    pub waits: usize,
    /// How long it may keep one waiting, in milliseconds; then the host refuses the call. None for as long as it likes, which
    /// is right for a component that is known to end its waits, and for no other.
    pub wait_ms: Option<u64>,
    /// Bytes that one answer, or one call of what the host lends, may carry out of the component; more is a fault. The answer
    /// to a request may carry `response_bytes` besides.
    pub copied_bytes: usize,
    /// Tools and paths that it may name, and as many bytes of each as an id may have; more is a fault.
    pub names: usize,
    /// Lines that it may log until they are taken, which is after every call; more are dropped and counted.
    pub log_lines_per_call: usize,
    /// Bytes of those lines, likewise.
    pub log_bytes_per_call: usize,
    /// Lines that it may log within a second, likewise.
    pub log_lines_per_second: usize,
    /// Bytes of one line; a longer one is cut.
    pub log_line_bytes: usize,
    /// Bytes of its configuration's text; a longer one is refused.
    pub config_bytes: usize,
    /// Bytes of a request: method, path, query, headers and body; a larger one is answered with 413.
    pub request_bytes: usize,
    /// Bytes of a response, headers and body; in place of a larger one the host answers 502.
    pub response_bytes: usize,
    /// Requests open at once; one more is answered with 503.
    pub open_requests: usize,
    /// How long a request may be open, in milliseconds; then the instance is replaced, and the host answers 503. None for as
    /// long as whoever lends what it asks for takes.
    pub request_ms: Option<u64>,
    /// Questions to the harness without an answer; one more is declined.
    pub asks: usize,
    /// Bytes of their texts, likewise.
    pub ask_bytes: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            memory_bytes: MEMORY_RESERVATION as usize,
            table_elements: 100_000,
            instances: 16,
            tables: 16,
            memories: 16,
            call_ms: 80,
            turn_ms: 320,
            handles: 262_144,
            waits: 262_144,
            wait_ms: None,
            copied_bytes: 4 << 20,
            names: 4_096,
            log_lines_per_call: 256,
            log_bytes_per_call: 64 << 10,
            log_lines_per_second: 1_024,
            log_line_bytes: 4 << 10,
            config_bytes: 1 << 20,
            request_bytes: 4 << 20,
            response_bytes: 64 << 20,
            open_requests: 32,
            request_ms: None,
            asks: 4_096,
            ask_bytes: 16 << 20,
        }
    }
}

impl Limits {
    /// For a component that was dropped in: it may turn out to be anything.
    pub fn foreign() -> Self {
        Self {
            memory_bytes: 64 << 20,
            table_elements: 10_000,
            instances: 16,
            tables: 16,
            memories: 8,
            call_ms: 30,
            turn_ms: 30,
            handles: 16_384,
            waits: 10_000,
            wait_ms: Some(600_000),
            copied_bytes: 1 << 20,
            names: 256,
            log_lines_per_call: 64,
            log_bytes_per_call: 16 << 10,
            log_lines_per_second: 128,
            log_line_bytes: 1 << 10,
            config_bytes: 64 << 10,
            request_bytes: 1 << 20,
            response_bytes: 4 << 20,
            open_requests: 8,
            request_ms: Some(60_000),
            asks: 64,
            ask_bytes: 1 << 20,
        }
    }

    /// For the instance that is made of a file to see whether it fits the contract: as large as any may be, and no slower than
    /// a foreign one.
    pub(crate) fn trial() -> Self {
        let mut limits = Self::foreign();
        for limit in LIMITS {
            if matches!(limit.key, "memoryBytes" | "tableElements" | "instances" | "tables" | "memories") {
                (limit.set)(&mut limits, limit.greatest);
            }
        }
        limits
    }

    /// Reads the text of an object of limits, such as `{"memoryBytes": 33554432, "callMs": 20}`. What is not named is that of
    /// the base.
    ///
    /// # Errors
    ///
    /// All that is wrong with it: what is not an object, an unknown key, one that is given twice, what is not a whole number,
    /// and what is less or more than is allowed. The path of a problem is the key, or empty for the object as a whole.
    ///
    /// ```
    /// use gen_limit_runtime::Limits;
    ///
    /// let limits = Limits::from_json(r#"{"memoryBytes": 33554432, "waitMs": 60000}"#, &Limits::foreign()).unwrap();
    /// assert_eq!((limits.memory_bytes, limits.wait_ms), (32 << 20, Some(60_000)));
    /// assert_eq!(limits.call_ms, Limits::foreign().call_ms);
    ///
    /// let problems = Limits::from_json(r#"{"callMs": "long"}"#, &Limits::foreign()).unwrap_err();
    /// assert_eq!(problems[0].path, "callMs");
    /// assert_eq!(problems[0].message, "found \"long\", expected a whole number of milliseconds from 1 to 1000");
    /// ```
    pub fn from_json(json: &str, base: &Self) -> Result<Self, Vec<Problem>> {
        let Entries(entries) = serde_json::from_str(json).map_err(|error| {
            vec![problem(
                "",
                format!("expected an object of limits, such as {{\"memoryBytes\": 33554432}}: {error}"),
            )]
        })?;
        let mut limits = base.clone();
        let mut problems = Vec::new();
        for (at, (key, value)) in entries.iter().enumerate() {
            let Some(limit) = LIMITS.iter().find(|limit| limit.key == key) else {
                problems.push(problem(key, format!("unknown limit; there are {}", keys().join(", "))));
                continue;
            };
            if entries[..at].iter().any(|(earlier, _)| earlier == key) {
                problems.push(problem(key, "is given twice".into()));
                continue;
            }
            match whole(value).filter(|number| (limit.least..=limit.greatest).contains(number)) {
                Some(number) => (limit.set)(&mut limits, number),
                None => problems.push(problem(
                    key,
                    format!(
                        "found {}, expected a whole number of {} from {} to {}",
                        short(value),
                        limit.unit,
                        limit.least,
                        limit.greatest
                    ),
                )),
            }
        }
        let named = |key| entries.iter().any(|(named, _)| named == key);
        if problems.is_empty() && limits.waits > limits.handles && (named("waits") || named("handles")) {
            let (waits, handles) = (limits.waits, limits.handles);
            problems.push(problem(
                if named("waits") { "waits" } else { "handles" },
                format!("{waits} waits need as many handles, and there may be {handles}; raise handles or lower waits"),
            ));
        }
        if problems.is_empty() { Ok(limits) } else { Err(problems) }
    }

    /// All of them as a JSON object, the way [`from_json`](Self::from_json) reads it; what has no end is left out.
    pub fn to_json(&self) -> String {
        let told = LIMITS.iter().filter_map(|limit| Some((limit.key.to_owned(), (limit.get)(self)?.into())));
        Value::Object(told.collect()).to_string()
    }
}

/// One limit as it is written down.
struct Limit {
    key: &'static str,
    unit: &'static str,
    least: u64,
    greatest: u64,
    get: fn(&Limits) -> Option<u64>,
    set: fn(&mut Limits, u64),
}

/// A limit of the given field; its value fits whatever the field's type is, as the greatest is far below.
macro_rules! limit {
    ($key:literal, $field:ident, $unit:literal, $least:expr, $greatest:expr) => {
        Limit {
            key: $key,
            unit: $unit,
            least: $least,
            greatest: $greatest,
            get: |limits| Some(limits.$field as u64),
            set: |limits, number| limits.$field = number as _,
        }
    };
    ($key:literal, $field:ident?, $unit:literal, $least:expr, $greatest:expr) => {
        Limit {
            key: $key,
            unit: $unit,
            least: $least,
            greatest: $greatest,
            get: |limits| limits.$field,
            set: |limits, number| limits.$field = Some(number),
        }
    };
}

/// All there are. A zero is allowed where it means that there shall be none.
const LIMITS: &[Limit] = &[
    limit!("memoryBytes", memory_bytes, "bytes", 64 << 10, MEMORY_RESERVATION),
    limit!("tableElements", table_elements, "elements", 1, 1_000_000),
    limit!("instances", instances, "instances", 1, 1_000),
    limit!("tables", tables, "tables", 1, 1_000),
    limit!("memories", memories, "memories", 1, 1_000),
    limit!("callMs", call_ms, "milliseconds", 1, 1_000),
    limit!("turnMs", turn_ms, "milliseconds", 1, 1_000),
    limit!("handles", handles, "handles", 1, 1_000_000),
    limit!("waits", waits, "calls", 0, 1_000_000),
    limit!("waitMs", wait_ms?, "milliseconds", 1, 7 * 24 * 3_600_000),
    limit!("copiedBytes", copied_bytes, "bytes", 1 << 10, 256 << 20),
    limit!("names", names, "names", 0, 100_000),
    limit!("logLinesPerCall", log_lines_per_call, "lines", 0, 10_000),
    limit!("logBytesPerCall", log_bytes_per_call, "bytes", 0, 16 << 20),
    limit!("logLinesPerSecond", log_lines_per_second, "lines", 0, 10_000),
    limit!("logLineBytes", log_line_bytes, "bytes", 16, 1 << 20),
    limit!("configBytes", config_bytes, "bytes", 2, 16 << 20),
    limit!("requestBytes", request_bytes, "bytes", 1 << 10, 256 << 20),
    limit!("responseBytes", response_bytes, "bytes", 1 << 10, 256 << 20),
    limit!("openRequests", open_requests, "requests", 0, 1_000),
    limit!("requestMs", request_ms?, "milliseconds", 1, 24 * 3_600_000),
    limit!("asks", asks, "questions", 0, 100_000),
    limit!("askBytes", ask_bytes, "bytes", 0, 256 << 20),
];

fn keys() -> Vec<&'static str> {
    LIMITS.iter().map(|limit| limit.key).collect()
}

fn problem(path: &str, message: String) -> Problem {
    Problem { path: path.to_owned(), message }
}

/// A value as it was written, not longer than a message can bear.
fn short(value: &Value) -> String {
    let mut text = value.to_string();
    if text.len() > 60 {
        text.truncate(text.floor_char_boundary(60));
        text.push('…');
    }
    text
}

/// The entries of an object as they were written: a map would keep the last of two.
struct Entries(Vec<(String, Value)>);

impl<'de> Deserialize<'de> for Entries {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Visit;
        impl<'de> Visitor<'de> for Visit {
            type Value = Entries;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Entries, A::Error> {
                let mut entries = Vec::new();
                while let Some(entry) = map.next_entry()? {
                    entries.push(entry);
                }
                Ok(Entries(entries))
            }
        }
        deserializer.deserialize_map(Visit)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn problems(json: &str) -> Vec<(String, String)> {
        let found = Limits::from_json(json, &Limits::foreign()).expect_err(json);
        found.into_iter().map(|Problem { path, message }| (path, message)).collect()
    }

    #[test]
    fn what_is_not_named_is_that_of_the_base() {
        for base in [Limits::default(), Limits::foreign()] {
            assert_eq!(Limits::from_json("{}", &base).expect("valid"), base);
            let limits = Limits::from_json(r#"{"callMs":7,"waitMs":5e3,"waits":0}"#, &base).expect("valid");
            assert_eq!((limits.call_ms, limits.wait_ms, limits.waits), (7, Some(5_000), 0));
            assert_eq!(
                Limits { call_ms: base.call_ms, wait_ms: base.wait_ms, waits: base.waits, ..limits },
                base
            );
        }
    }

    #[test]
    fn every_limit_can_be_written_down_and_is_read_back() {
        let written = Limits::foreign().to_json();
        assert_eq!(Limits::from_json(&written, &Limits::trial()).expect("valid"), Limits::foreign());
        let keys: Vec<String> = serde_json::from_str::<serde_json::Map<String, Value>>(&written)
            .expect("an object")
            .into_iter()
            .map(|(key, _)| key)
            .collect();
        let fields = format!("{:?}", Limits::foreign());
        assert_eq!(keys.len(), fields.matches(": ").count(), "{fields}");
    }

    #[test]
    fn every_limit_has_bounds_that_both_sets_keep() {
        for limit in LIMITS {
            for base in [Limits::default(), Limits::foreign(), Limits::trial()] {
                let value = (limit.get)(&base);
                assert!(
                    value.is_none_or(|value| (limit.least..=limit.greatest).contains(&value)),
                    "{}",
                    limit.key
                );
            }
            let key = limit.key;
            let mut roomy = Limits::foreign();
            (roomy.waits, roomy.handles) = (0, 1_000_000);
            for value in [limit.least, limit.greatest] {
                let limits = Limits::from_json(&format!("{{\"{key}\":{value}}}"), &roomy);
                assert_eq!(limits.ok().and_then(|limits| (limit.get)(&limits)), Some(value), "{key}");
            }
            let mut wrong = vec![
                (limit.greatest + 1).to_string(),
                "-1".into(),
                "0.5".into(),
                "1e400".into(),
                "\"9\"".into(),
                "null".into(),
                "true".into(),
                "[]".into(),
                "{}".into(),
            ];
            wrong.extend(limit.least.checked_sub(1).map(|less| less.to_string()));
            for value in wrong {
                let found = problems(&format!("{{\"{key}\":{value}}}"));
                let [(path, message)] = &found[..] else { panic!("{found:?}") };
                assert_eq!(path, key);
                let range = format!("from {} to {}", limit.least, limit.greatest);
                assert!(message.contains(&range) && message.contains(limit.unit), "{message}");
                assert!(message.contains("found "), "{message}");
            }
        }
    }

    #[test]
    fn all_that_is_wrong_is_told_at_once_and_nothing_is_taken() {
        let found = problems(r#"{"callMs":20,"callMs":30,"memory":1,"asks":-1}"#);
        let paths: Vec<&str> = found.iter().map(|(path, _)| path.as_str()).collect();
        assert_eq!(paths, ["callMs", "memory", "asks"]);
        assert!(found[0].1.contains("twice"), "{found:?}");
        assert!(found[1].1.contains("unknown limit") && found[1].1.contains("memoryBytes"), "{found:?}");
        for not_an_object in ["", "[]", "3", "null", "{", "{} {}", "nonsense"] {
            assert_eq!(problems(not_an_object)[0].0, "", "{not_an_object}");
        }
        let long = problems(&format!("{{\"callMs\":\"{}\"}}", "ä".repeat(1_000)));
        assert!(long[0].1.len() < 200, "{long:?}");
    }

    /// As `docs/design.md` writes it.
    fn shown(limit: &Limit, limits: &Limits) -> String {
        match (limit.get)(limits) {
            None => "none".into(),
            Some(number @ 0..1_000) => number.to_string(),
            Some(number) if !limit.key.contains("ytes") => {
                format!("{} {:03}", number / 1_000, number % 1_000)
            }
            Some(number) if number.is_multiple_of(1 << 20) => format!("{} MiB", number >> 20),
            Some(number) => format!("{} KiB", number >> 10),
        }
    }

    #[test]
    fn the_table_of_the_documents_is_this_one() {
        let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/design.md");
        let page = std::fs::read_to_string(page).expect("the page");
        let (_, section) = page.split_once("## Limits of an instance").expect("the section");
        let (section, _) = section.split_once("\n## ").expect("another after it");
        let rows: Vec<[String; 3]> = section
            .lines()
            .filter_map(|line| {
                let mut cells = line.strip_prefix("| `")?.split(" | ");
                let (key, _) = cells.next()?.split_once('`')?;
                Some([key.to_owned(), cells.next()?.to_owned(), cells.next()?.to_owned()])
            })
            .collect();
        let expected: Vec<[String; 3]> = LIMITS
            .iter()
            .map(|limit| {
                [limit.key.to_owned(), shown(limit, &Limits::default()), shown(limit, &Limits::foreign())]
            })
            .collect();
        assert_eq!(rows, expected);
    }

    #[test]
    fn more_waits_than_handles_are_an_error_of_the_one_that_was_named() {
        for (json, path) in [(r#"{"waits":20000}"#, "waits"), (r#"{"handles":9999}"#, "handles")] {
            let found = problems(json);
            assert_eq!((found.len(), found[0].0.as_str()), (1, path));
            assert!(found[0].1.contains("raise handles"), "{found:?}");
        }
        assert!(Limits::from_json(r#"{"waits":20000,"handles":20000}"#, &Limits::foreign()).is_ok());
    }
}
