//! The body of a change: what is accepted is what the parser accepts, and is handed on as it was written.
#![no_main]

use libfuzzer_sys::fuzz_target;
use limiter::config::{Mode, parse};
use serde_json::{Map, Value};

fuzz_target!(|body: &[u8]| {
    match routes::patch(body) {
        Ok(patch) => {
            let (config, problems) = parse(&patch.json, Mode::Strict).expect("nothing wrong is handed on");
            assert!(problems.is_empty());
            let mut posted: Map<String, Value> = serde_json::from_slice(body).expect("an object");
            let revision = posted.remove("revision").unwrap_or_default();
            assert_eq!(revision.as_str(), patch.revision.as_deref());
            let handed_on: Map<String, Value> = serde_json::from_str(&patch.json).expect("an object");
            assert!(!handed_on.is_empty());
            assert_eq!(posted, handed_on);
            assert_eq!(parse(&Value::Object(posted).to_string(), Mode::Strict), Ok((config, problems)));
        }
        Err(response) => {
            assert_eq!(response.status, 400);
            let answer: Value = serde_json::from_slice(&response.body).expect("JSON");
            assert!(answer["error"].as_str().is_some_and(|error| !error.is_empty() && error.len() < 10_000));
        }
    }
});
