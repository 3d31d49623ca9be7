//! The catalog: everybody is asked at once, and whoever fails is named.

use std::task::Poll;

use routes::CATALOG;
use serde_json::json;

use crate::common::{Asked, Fake, get, json as body};

fn of_three() -> Fake {
    let mut host = Fake::new("{}");
    host.catalog =
        vec![("box", Ok(vec!["qwen", "gemma"])), ("down", Err("connection refused")), ("empty", Ok(vec![]))];
    host
}

#[test]
fn a_provider_that_fails_has_no_models_and_says_why() {
    let response = of_three().respond(&get(CATALOG, ""));
    assert_eq!(response.status, 200);
    let expected = json!({ "providers": [
        { "id": "box", "name": "BOX", "models": [{ "id": "qwen", "name": "QWEN" }, { "id": "gemma", "name": "GEMMA" }] },
        { "id": "down", "name": "DOWN", "models": [], "error": "connection refused" },
        { "id": "empty", "name": "EMPTY", "models": [] },
    ] });
    assert_eq!(body(&response), expected);
}

#[test]
fn all_providers_are_asked_before_any_has_answered() {
    let host = of_three();
    host.offers.set(false);
    let response = host.poll(&get(CATALOG, ""), |host| {
        let asked = ["box", "down", "empty"].map(|provider| Asked::Models(provider.into()));
        assert_eq!(host.asked.borrow()[1..], asked);
        host.offers.set(true);
    });
    assert!(response.is_ready());
}

#[test]
fn without_an_llm_service_there_are_no_providers() {
    let response = Fake::new("{}").respond(&get(CATALOG, ""));
    assert_eq!((response.status, body(&response)), (200, json!({ "providers": [] })));
}

#[test]
fn it_takes_no_parameters() {
    assert!(matches!(of_three().poll(&get(CATALOG, "x=1"), |_| ()), Poll::Ready(r) if r.status == 400));
}
