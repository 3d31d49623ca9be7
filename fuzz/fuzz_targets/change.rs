//! The body of a change: what is accepted is what the parser accepts, and is handed on as it was written.
#![no_main]

use std::collections::BTreeMap;

use libfuzzer_sys::fuzz_target;
use limiter::config::{Mode, parse};
use serde_json::Value;
use serde_json::value::RawValue;

/// An object, its values as they are written.
fn fields(text: &[u8]) -> BTreeMap<String, &str> {
    let fields: BTreeMap<String, &RawValue> = serde_json::from_slice(text).expect("an object");
    fields.into_iter().map(|(key, value)| (key, value.get())).collect()
}

fuzz_target!(|body: &[u8]| {
    match routes::patch(body) {
        Ok(patch) => {
            let (config, problems) = parse(&patch.json, Mode::Strict).expect("nothing wrong is handed on");
            assert!(problems.is_empty());
            let mut posted = fields(body);
            let revision: Option<String> =
                posted.remove("revision").and_then(|text| serde_json::from_str(text).expect("text or null"));
            assert_eq!(revision, patch.revision);
            assert!(!posted.is_empty());
            assert_eq!(posted, fields(patch.json.as_bytes()));
            let again = routes::patch(patch.json.as_bytes()).expect("it is a change as well");
            assert_eq!((again.json, again.revision), (patch.json, None));
            assert!(config.limits.len() >= config.groups.len());
        }
        Err(response) => {
            assert_eq!(response.status, 400);
            let answer: Value = serde_json::from_slice(&response.body).expect("JSON");
            assert!(answer["error"].as_str().is_some_and(|error| !error.is_empty() && error.len() < 10_000));
        }
    }
});
