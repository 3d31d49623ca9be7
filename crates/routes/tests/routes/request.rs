//! Requests: whatever comes in, there is an answer that names what was wrong.

use routes::{CATALOG, CONFIG, METRICS, PATHS, Request, STATS, parameters};

use crate::common::{Fake, error, get, header};

#[test]
fn other_methods_are_told_which_ones_there_are() {
    for method in ["PUT", "DELETE", "PATCH", "OPTIONS", "TRACE", "POST", "", "get", "QUERY"] {
        for (path, allowed) in [
            (CONFIG, "GET, HEAD, POST"),
            (CATALOG, "GET, HEAD"),
            (STATS, "GET, HEAD"),
            (METRICS, "GET, HEAD"),
        ] {
            if (path, method) == (CONFIG, "POST") {
                continue;
            }
            let response = Fake::new("{}").respond(&Request { method: method.into(), ..get(path, "") });
            assert_eq!(response.status, 405, "{method} {path}");
            assert_eq!(header(&response, "allow"), Some(allowed));
        }
    }
}

#[test]
fn head_is_answered_like_get() {
    for path in PATHS {
        let host = Fake::new("{}");
        let got = host.respond(&get(path, ""));
        assert_eq!(got.status, 200);
        assert_eq!(host.respond(&Request { method: "HEAD".into(), ..get(path, "") }), got);
    }
}

#[test]
fn other_paths_are_not_there() {
    for path in
        ["", "/", "/api/dsh-gen-limit", "/api/dsh-gen-limit/stats/", "/api/dsh-gen-limit/Stats", "stats\0"]
    {
        assert_eq!(Fake::new("{}").respond(&get(path, "")).status, 404, "{path}");
    }
    let long = Fake::new("{}").respond(&get(&"x".repeat(1 << 20), ""));
    assert!(error(&long).len() < 1_000);
}

#[test]
fn nothing_is_kept_by_anybody_on_the_way() {
    for path in PATHS {
        assert_eq!(header(&Fake::new("{}").respond(&get(path, "")), "cache-control"), Some("no-store"));
    }
}

#[test]
fn unknown_parameters_are_named() {
    for path in PATHS {
        let response = Fake::new("{}").respond(&get(path, "scopes=p%2Fm"));
        assert_eq!(response.status, 400, "{path}");
        assert!(error(&response).contains("`scopes`"), "{path}");
    }
}

#[test]
fn parameters_are_decoded_and_come_in_the_order_they_are_known_in() {
    let read = |query| parameters(query, ["scope", "offset"]).map_err(|response| error(&response));
    let text = |text: &str| Some(text.to_owned());
    assert_eq!(read(""), Ok([None, None]));
    assert_eq!(read("&&"), Ok([None, None]));
    assert_eq!(read("offset=5&scope=p%2Fa+b%20c%2b"), Ok([text("p/a b c+"), text("5")]));
    assert_eq!(read("scope"), Ok([text(""), None]));
    assert_eq!(read("%73cope=%C3%A9=%3d"), Ok([text("é=="), None]));
    assert_eq!(read("scope=%00"), Ok([text("\0"), None]));
    for (query, named) in [
        ("scope=%", "scope"),
        ("scope=%e", "scope"),
        ("scope=%zz", "scope"),
        ("scope=%ff", "scope"),
        ("scope=%+1", "scope"),
        ("scope=a&scope=b", "scope"),
        ("offset=1&offset", "offset"),
        ("=", "``"),
        ("%=1", "%"),
        ("x%00=1", "x\0"),
    ] {
        let said = read(query).expect_err(query);
        assert!(said.contains(named), "{query}: {said}");
    }
}
