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
fn long_lists_are_cut_and_say_so() {
    for (providers, models, told, each) in [
        (1, 500, (1, None), (500, None)),
        (1, 501, (1, None), (500, Some("p lists more than 500 models, the first 500 are told"))),
        (20, 260, (20, None), (250, Some("p lists more than 250 models, the first 250 are told"))),
        (200, 25, (200, None), (25, None)),
        (
            201,
            26,
            (200, Some("there are more than 200 providers, the first 200 are told")),
            (25, Some("p lists more than 25 models, the first 25 are told")),
        ),
    ] {
        let mut host = Fake::new("{}");
        host.catalog = vec![("p", Ok(vec!["m"; models])); providers];
        let catalog = body(&host.respond(&get(CATALOG, "")));
        let rows = catalog["providers"].as_array().expect("a list");
        assert_eq!((rows.len(), catalog["error"].as_str()), told);
        for row in rows {
            assert_eq!((row["models"].as_array().map_or(0, Vec::len), row["error"].as_str()), each);
        }
        let asked = host.asked.borrow().iter().filter(|asked| matches!(asked, Asked::Models(_))).count();
        assert_eq!(asked, rows.len(), "nobody is asked for nothing");
    }
}

#[test]
fn it_takes_no_parameters() {
    assert!(matches!(of_three().poll(&get(CATALOG, "x=1"), |_| ()), Poll::Ready(r) if r.status == 400));
}
