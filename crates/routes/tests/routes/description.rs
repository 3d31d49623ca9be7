//! The description in `docs/openapi.json` and the answers say the same.

use std::collections::BTreeSet;
use std::sync::LazyLock;

use limiter::config::KEYS;
use routes::{CATALOG, CONFIG, METRICS, PATHS, Request, Response, STATS, SettingsError};
use serde_json::{Map, Value};

use crate::common::{Fake, get, header, post, section};

static DESCRIPTION: LazyLock<Value> = LazyLock::new(|| {
    serde_json::from_str(include_str!("../../../../docs/openapi.json")).expect("the description is JSON")
});

/// What a reference stands for.
fn resolve(schema: &Value) -> &Value {
    match schema["$ref"].as_str() {
        Some(name) => resolve(DESCRIPTION.pointer(name.trim_start_matches('#')).expect("it is there")),
        None => schema,
    }
}

fn object<'a>(schema: &'a Value, key: &str) -> Option<&'a Map<String, Value>> {
    schema[key].as_object()
}

/// The first way in which a value is not what the schema says. A property that the schema does not name is one.
fn fault(schema: &Value, value: &Value, at: &str) -> Option<String> {
    let schema = resolve(schema);
    let wrong = |why: &str| Some(format!("{at}: {why}: {value}"));
    for alternatives in ["anyOf", "oneOf"] {
        if let Some(schemas) = schema[alternatives].as_array() {
            let faults: Vec<_> = schemas.iter().map(|schema| fault(schema, value, at)).collect();
            if faults.iter().all(Option::is_some) {
                return wrong(&format!("none of {faults:?}"));
            }
        }
    }
    let types = match &schema["type"] {
        Value::Null => Vec::new(),
        Value::Array(types) => types.iter().filter_map(Value::as_str).collect(),
        one => one.as_str().into_iter().collect(),
    };
    let is = |name: &&str| match *name {
        "object" => value.is_object(),
        "array" => value.is_array(),
        "string" => value.is_string(),
        "boolean" => value.is_boolean(),
        "integer" => value.is_i64() || value.is_u64(),
        "null" => value.is_null(),
        other => panic!("{at}: {other}"),
    };
    if !types.is_empty() && !types.iter().any(is) {
        return wrong("another type");
    }
    if schema["enum"].as_array().is_some_and(|known| !known.contains(value))
        || schema.get("const").is_some_and(|known| known != value)
    {
        return wrong("another value");
    }
    if let (Some(least), Some(found)) = (schema["minimum"].as_i64(), value.as_i64())
        && found < least
    {
        return wrong("too small");
    }
    if let Some(items) = value.as_array() {
        let most = schema["maxItems"].as_u64().unwrap_or(u64::MAX);
        return if items.len() as u64 > most {
            wrong("too many")
        } else {
            items
                .iter()
                .enumerate()
                .find_map(|(n, item)| fault(&schema["items"], item, &format!("{at}[{n}]")))
        };
    }
    let (Some(fields), Some(properties)) = (value.as_object(), object(schema, "properties")) else {
        return None;
    };
    let missing = schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str);
    if let Some(missing) = missing.into_iter().find(|name| !fields.contains_key(*name)) {
        return wrong(&format!("no `{missing}`"));
    }
    fields.iter().find_map(|(name, value)| match properties.get(name) {
        Some(schema) => fault(schema, value, &format!("{at}.{name}")),
        None => wrong(&format!("`{name}` is not described")),
    })
}

fn check(request: &Request, response: &Response) {
    let at = format!("{} {} {}", request.method, request.path, response.status);
    let operation = &DESCRIPTION["paths"][&request.path][request.method.to_lowercase()];
    let described = resolve(&operation["responses"][response.status.to_string()]);
    let content = object(described, "content").unwrap_or_else(|| panic!("{at} is not described"));
    let content_type = header(response, "content-type").expect("a type");
    let content =
        content.get(content_type).unwrap_or_else(|| panic!("{at}: {content_type} is not described"));
    if content_type.starts_with("application/json") {
        let body = serde_json::from_slice(&response.body).expect("JSON");
        assert_eq!(fault(&content["schema"], &body, &at), None);
    }
    for name in object(described, "headers").into_iter().flat_map(Map::keys) {
        assert!(header(response, &name.to_lowercase()).is_some(), "{at}: no {name}");
    }
}

#[test]
fn the_paths_and_the_keys_are_those_there_are() {
    let paths: BTreeSet<&str> =
        object(&DESCRIPTION, "paths").expect("paths").keys().map(String::as_str).collect();
    assert_eq!(paths, BTreeSet::from(PATHS));
    let change = &DESCRIPTION["components"]["schemas"]["Change"];
    let keys: BTreeSet<&str> =
        object(change, "properties").expect("keys").keys().map(String::as_str).collect();
    // Which calls a row owns is not for a request to say.
    let writable = KEYS.split(", ").filter(|key| *key != "tenant");
    assert_eq!(keys, writable.chain(["revision"]).collect());
    assert_eq!(DESCRIPTION["info"]["version"], env!("CARGO_PKG_VERSION"));
}

#[test]
fn every_answer_is_as_it_is_described() {
    let mut host = Fake::new(
        r#"{"limits":[{"provider":"p","model":"m","max":1},{"provider":"q","model":"*","max":2,"pool":"x"},
            {"provider":"r","model":"m","max":-1,"countBy":"stream"}],"maxQueued":2,
            "ceilings":[{"provider":"s","model":"m","max":3}],"tenant":{"name":"team","preset":"reviewer"}}"#,
    );
    host.titles = vec![("a", "Fix the roof"), ("b", "Paint it")];
    host.catalog = vec![("box", Ok(vec!["qwen"])), ("down", Err("connection refused"))];
    let first = host.stream(Some("a"), "p", "m", 2_000);
    for (session, provider) in
        [(Some("b"), "p"), (Some("c"), "p"), (Some("d"), "p"), (None, "p"), (None, "q"), (Some("e"), "r")]
    {
        host.stream(session, provider, "m", 2_100);
    }
    host.limiter.borrow_mut().finish(first, limiter::Outcome::Completed, 2_500);
    for request in [
        get(CATALOG, ""),
        get(CATALOG, "x"),
        get(STATS, ""),
        get(STATS, "describe=false&offset=1"),
        get(STATS, "offset=x"),
        get(METRICS, ""),
        get(METRICS, "x"),
    ] {
        check(&request, &host.respond(&request));
    }
    let old = section(r#"{"maxQueued":"many"}"#);
    let ends = [
        Ok(old.clone()),
        Err(SettingsError::Conflict(old)),
        Err(SettingsError::ReadOnly),
        Err(SettingsError::Unavailable),
        Err(SettingsError::Invalid("no".into())),
        Err(SettingsError::Other(None)),
    ];
    for end in ends {
        let writes_only = matches!(end, Err(SettingsError::Conflict(_) | SettingsError::Invalid(_)));
        let host = Fake::with_settings(end);
        let text = Request { headers: Vec::new(), ..post("{}") };
        let writes = [post(r#"{"maxQueued":1}"#), post("{}"), post(r#"{"maxQueued":-1}"#), text];
        let reads = [get(CONFIG, ""), get(CONFIG, "x")];
        for request in writes.into_iter().chain(reads.into_iter().filter(|_| !writes_only)) {
            check(&request, &host.respond(&request));
        }
    }
}

#[test]
fn a_method_that_is_not_described_is_not_there() {
    for path in PATHS {
        let described = object(&DESCRIPTION["paths"], path).expect("methods");
        for method in ["get", "put", "post", "delete", "patch", "trace"] {
            let request = Request { method: method.to_uppercase(), ..get(path, "") };
            let response = Fake::new("{}").respond(&request);
            assert_eq!(response.status != 405, described.contains_key(method), "{method} {path}");
        }
    }
}
