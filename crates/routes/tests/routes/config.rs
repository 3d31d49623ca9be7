//! The configuration: one parser, nothing wrong is ever stored, whoever comes second is told.

use limiter::config::{Mode, parse};
use routes::{CONFIG, Section, SettingsError, patch};
use serde_json::{Value, json};

use crate::common::{Asked, Fake, error, get, json as body, post, section};

const GOOD: &str = r#"{"limits":[{"provider":"p","model":"m","max":2}]}"#;

fn update(host: &Fake) -> Option<(String, Option<String>)> {
    host.asked.borrow().iter().find_map(|asked| match asked {
        Asked::Update { patch, revision } => Some((patch.clone(), revision.clone())),
        _ => None,
    })
}

#[test]
fn reading_shows_the_section_as_the_settings_tell_it() {
    // Digits, order and spaces are the harness's own.
    let value = r#"{"queueTimeoutMs": 1e3, "limits": [ {"provider":"p","model":"m","max":2.0} ]}"#;
    let response = Fake::with_settings(Ok(section(value))).respond(&get(CONFIG, ""));
    assert_eq!(response.status, 200);
    let text = String::from_utf8_lossy(&response.body).into_owned();
    assert!(text.contains(value), "{text}");
    let shown = body(&response);
    assert_eq!(shown["status"], "ok");
    assert_eq!(shown["base"], json!({}));
    assert_eq!(shown["writable"], true);
    assert_eq!(shown["revision"], "boot.7");
    assert_eq!(shown["problems"], json!([]));
}

#[test]
fn reading_names_what_is_wrong_with_the_document_as_it_is_now() {
    let value =
        r#"{"limits":[{"provider":"p","model":"m","max":"abc"},{"provider":"p","model":"n","max":-7}]}"#;
    let shown = body(&Fake::with_settings(Ok(section(value))).respond(&get(CONFIG, "")));
    let paths: Vec<_> = shown["problems"].as_array().expect("a list").iter().map(|p| &p["path"]).collect();
    assert_eq!(paths, ["limits[0].max", "limits[1].max"]);
}

#[test]
fn without_a_settings_service_reading_says_so_and_writing_is_503() {
    let host = Fake::with_settings(Err(SettingsError::Unavailable));
    let response = host.respond(&get(CONFIG, ""));
    assert_eq!((response.status, body(&response)), (200, json!({ "status": "unavailable" })));
    assert_eq!(host.respond(&post(GOOD)).status, 503);
}

#[test]
fn writing_hands_on_what_was_written_and_answers_as_reading_does() {
    let host = Fake::with_settings(Ok(section(GOOD)));
    let posted = r#" { "revision" : "boot.6", "limits":[ {"provider":"p", "model":"m", "max":3e0} ], "maxQueued": 9 } "#;
    let response = host.respond(&post(posted));
    assert_eq!(response.status, 200, "{response:?}");
    assert_eq!(response.body, host.respond(&get(CONFIG, "")).body);
    let (patch, revision) = update(&host).expect("it was written");
    assert_eq!(patch, r#"{"limits":[ {"provider":"p", "model":"m", "max":3e0} ],"maxQueued":9}"#);
    assert_eq!(revision.as_deref(), Some("boot.6"));
}

#[test]
fn a_revision_may_be_left_out_or_null_and_is_opaque() {
    for (revision, given) in [
        ("", None),
        (r#","revision":null"#, None),
        (r#","revision":"\u0000…""#, Some("\0…")),
        (r#","revision":"""#, Some("")),
    ] {
        let read = patch(format!(r#"{{"maxQueued":1{revision}}}"#).as_bytes()).expect("a patch");
        assert_eq!(read.revision.as_deref(), given);
    }
    for revision in ["7", "[]", "{}", "true", "1e400"] {
        let host = Fake::with_settings(Ok(section("{}")));
        let response = host.respond(&post(format!(r#"{{"maxQueued":1,"revision":{revision}}}"#)));
        assert_eq!(response.status, 400);
        assert!(error(&response).starts_with("revision: "), "{response:?}");
        assert!(host.asked.borrow().is_empty());
    }
}

#[test]
fn every_knob_may_be_posted_alone() {
    for (key, value) in [
        ("limits", "[]"),
        ("groups", "[]"),
        ("queueTimeoutMs", "0"),
        ("maxQueued", "0"),
        ("maxWaiting", "200000"),
        ("countBy", r#""stream""#),
        ("headStart", "32"),
        ("maxOvertakes", "0"),
        ("spawnTools", "[]"),
        ("spawnGraceMs", "0"),
        ("onFailure", r#""closed""#),
        ("maxRestarts", "0"),
    ] {
        let host = Fake::with_settings(Ok(section("{}")));
        assert_eq!(host.respond(&post(format!(r#"{{"{key}":{value}}}"#))).status, 200, "{key}");
        assert_eq!(update(&host), Some((format!(r#"{{"{key}":{value}}}"#), None)));
    }
}

#[test]
fn a_wrong_value_is_named_and_nothing_is_written() {
    for max in [
        r#""abc""#,
        r#""2 sessions""#,
        "1e400",
        "{}",
        "null",
        r#""""#,
        "false",
        "[]",
        "0.4",
        "-0.2",
        "true",
        "[5]",
        r#""0x10""#,
        "-2",
        "4294967296",
        "1e99999999999999999999",
    ] {
        let host = Fake::with_settings(Ok(section("{}")));
        let rows = format!(
            r#"{{"limits":[{{"provider":"p","model":"m","max":1}},{{"provider":"p","model":"n","max":{max}}}]}}"#
        );
        let response = host.respond(&post(rows));
        assert_eq!(response.status, 400, "{max}");
        assert!(error(&response).starts_with("limits[1].max: "), "{response:?}");
        assert_eq!(body(&response)["problems"][0]["path"], "limits[1].max");
        assert!(host.asked.borrow().is_empty(), "{max}");
    }
    for (posted, path) in [
        (r#"{"limits":[{"provider":"p","model":"m"}]}"#, "limits[0].max"),
        (r#"{"limits":[{"provider":"p","model":"m","maximum":3,"max":1}]}"#, "limits[0].maximum"),
        (r#"{"limits":[{"provider":"p\u0000","model":"m","max":1}]}"#, "limits[0].provider"),
        (
            r#"{"limits":[{"provider":"p","model":"m","max":1},{"provider":" p","model":"m","max":2}]}"#,
            "limits[1]",
        ),
        (r#"{"limits":null}"#, "limits"),
        (r#"{"limits":{}}"#, "limits"),
        (r#"{"queueTimeoutMs":"120000"}"#, "queueTimeoutMs"),
        (r#"{"maxQueued":1.5}"#, "maxQueued"),
        (r#"{"onFailure":"Closed"}"#, "onFailure"),
        (r#"{"maxqueued":1}"#, "maxqueued"),
        (r#"{"maxQueued":1,"\u0000":1}"#, "\\0"),
    ] {
        let host = Fake::with_settings(Ok(section("{}")));
        let response = host.respond(&post(posted));
        assert_eq!(
            (response.status, &body(&response)["problems"][0]["path"]),
            (400, &json!(path)),
            "{posted}"
        );
        assert!(host.asked.borrow().is_empty());
    }
}

#[test]
fn a_body_that_is_no_change_is_refused() {
    let nested = [r#"{"limits":"#.into(), "[".repeat(100_000), "]".repeat(100_000), "}".into()].concat();
    let cases: [&[u8]; 14] = [
        b"",
        b"{}",
        br#"{"revision":"x"}"#,
        b"[]",
        b"null",
        b"3",
        b"\"limits\"",
        b"{\"limits\":[]",
        b"{\"limits\":[]}}",
        b"\xff\xfe",
        b"{\"limits\":\"\xc3\x28\"}",
        b"\0",
        b"\xef\xbb\xbf{\"limits\":[]}",
        nested.as_bytes(),
    ];
    for case in cases {
        let host = Fake::with_settings(Ok(section("{}")));
        let response = host.respond(&post(case));
        assert_eq!(response.status, 400, "{}", String::from_utf8_lossy(&case[..case.len().min(50)]));
        let said = error(&response);
        assert!(!said.is_empty() && said.len() < 1_000, "{said}");
        assert!(host.asked.borrow().is_empty());
    }
}

#[test]
fn a_key_that_is_repeated_is_named_and_nothing_is_written() {
    for (posted, key) in [
        (r#"{"limits":[],"limits":[{"provider":"p","model":"m","max":-1}]}"#, "limits: "),
        (r#"{"maxQueued":1,"revision":"boot.7","r\u0065vision":"boot.8"}"#, "revision: "),
        (r#"{"limits":[{"provider":"p","model":"m","max":1,"max":-1}]}"#, "limits[0].max: "),
    ] {
        let host = Fake::with_settings(Ok(section("{}")));
        let response = host.respond(&post(posted));
        assert_eq!(response.status, 400, "{posted}");
        assert!(error(&response).contains(&format!("{key}given more than once")), "{}", error(&response));
        assert!(host.asked.borrow().is_empty());
    }
}

#[test]
fn only_json_is_read() {
    let types: [&[&str]; 6] = [
        &[],
        &["text/plain"],
        &["application/x-www-form-urlencoded"],
        &["application/jsonp"],
        &["json"],
        &["application/json", "text/plain"],
    ];
    for types in types {
        let host = Fake::with_settings(Ok(section("{}")));
        let headers = types.iter().map(|text| ("content-type".to_owned(), (*text).to_owned())).collect();
        let response = host.respond(&routes::Request { headers, ..post(GOOD) });
        assert_eq!(response.status, 415, "{types:?}");
        assert!(host.asked.borrow().is_empty());
    }
    for accepted in ["application/json", "Application/JSON; charset=utf-8", " application/json ;x=y"] {
        let headers = vec![("content-type".to_owned(), accepted.to_owned())];
        let request = routes::Request { headers, ..post(GOOD) };
        assert_eq!(Fake::with_settings(Ok(section("{}"))).respond(&request).status, 200, "{accepted}");
    }
}

#[test]
fn what_an_older_version_left_elsewhere_does_not_keep_anybody_from_mending_the_rest() {
    let stored = r#"{"limits":[{"provider":"p","model":"m","max":"abc"}],"maxQueued":5,"old":true}"#;
    let host = Fake::with_settings(Ok(section(stored)));
    let response = host.respond(&post(r#"{"maxQueued":5}"#));
    assert_eq!(response.status, 200);
    let paths: Vec<Value> =
        body(&response)["problems"].as_array().expect("a list").iter().map(|p| p["path"].clone()).collect();
    assert_eq!(paths, ["old", "limits[0].max"], "they are told of");
}

#[test]
fn what_is_stored_but_not_in_force_says_so() {
    for in_force in [true, false] {
        let mut host = Fake::new(GOOD);
        host.settings = Ok(Section { in_force, ..section(GOOD) });
        for request in [get(CONFIG, ""), post(GOOD)] {
            assert_eq!(body(&host.respond(&request))["inForce"], in_force);
        }
    }
}

#[test]
fn no_problem_depends_on_two_keys() {
    let keys = [
        (
            "limits",
            r#"[{"provider":"p","model":"m","max":"x"},{"provider":"p","model":"n","max":1,"countBy":"z"}]"#,
        ),
        (
            "groups",
            r#"[{"name":"p","max":1,"routes":[]},{"name":"p","max":-1,"routes":[{"provider":"p","model":"m"}]}]"#,
        ),
        ("countBy", r#""nobody""#),
        ("maxQueued", "-1"),
        ("spawnTools", r#"["",1]"#),
        ("onFailure", "1"),
        ("unknown", "1"),
    ];
    let problems = |json: &str| parse(json, Mode::Lenient).map(|(_, problems)| problems).expect("an object");
    let one = |(key, value): &(&str, &str)| format!(r#""{key}":{value}"#);
    let mut alone: Vec<_> = keys.iter().flat_map(|key| problems(&format!("{{{}}}", one(key)))).collect();
    let mut together = problems(&format!("{{{}}}", keys.iter().map(one).collect::<Vec<_>>().join(",")));
    for list in [&mut alone, &mut together] {
        list.sort_by(|a, b| (&a.path, &a.message).cmp(&(&b.path, &b.message)));
    }
    assert_eq!(alone, together);
}

#[test]
fn whoever_comes_second_is_told_what_is_there_now() {
    let host = Fake::with_settings(Err(SettingsError::Conflict(section(GOOD))));
    let response = host.respond(&post(r#"{"maxQueued":1,"revision":"boot.6"}"#));
    assert_eq!(response.status, 409);
    let shown = body(&response);
    assert_eq!(shown["section"]["revision"], "boot.7");
    assert_eq!(shown["section"]["value"]["limits"][0]["max"], 2);
    assert!(shown["error"].is_string());
}

#[test]
fn every_other_end_has_its_status_and_no_path_of_a_file() {
    let words = "EACCES: permission denied, open '/home/me/.dsh/settings.yaml'";
    for (end, status, told) in [
        (SettingsError::ReadOnly, 503, "cannot be changed"),
        (SettingsError::Unavailable, 503, "nothing was stored, try again"),
        (SettingsError::Invalid(words.into()), 400, "permission denied"),
        (SettingsError::Other(Some(words.into())), 500, "permission denied"),
        (SettingsError::Other(None), 500, "without a word"),
        (SettingsError::Conflict(section("no JSON")), 500, "no JSON"),
    ] {
        let host = Fake::with_settings(Err(end.clone()));
        let response = host.respond(&post(GOOD));
        assert_eq!(response.status, status, "{end:?}");
        let said = error(&response);
        assert!(said.contains(told) && !said.contains("/home"), "{said}");
        let logged = host.warned.borrow().concat();
        assert_eq!(
            logged.contains("/home/me"),
            matches!(end, SettingsError::Other(Some(_))),
            "the log has it whole"
        );
    }
}

#[test]
fn a_document_of_any_depth_is_shown() {
    let deep = format!(r#"{{"limits":{}{}}}"#, "[".repeat(10_000), "]".repeat(10_000));
    let response = Fake::with_settings(Ok(section(&deep))).respond(&get(CONFIG, ""));
    assert_eq!(response.status, 200);
    let text = String::from_utf8(response.body).expect("text");
    assert!(text.contains(&deep) && text.contains("limits[0]"));
}

#[test]
fn a_document_that_is_no_json_is_the_settings_services_fault() {
    for broken in ["", "{", "nonsense", "{}{}"] {
        let response = Fake::with_settings(Ok(section(broken))).respond(&get(CONFIG, ""));
        assert_eq!(response.status, 500, "{broken}");
        assert!(error(&response).contains("no JSON"));
    }
}

#[test]
fn which_calls_a_row_owns_is_not_for_a_request_to_say() {
    let host = Fake::with_settings(Ok(section(GOOD)));
    let response = host.respond(&post(r#"{"maxQueued":3,"tenant":{"preset":"reviewer"}}"#));
    assert_eq!(response.status, 400);
    assert!(error(&response).starts_with("tenant: "), "{}", error(&response));
    assert_eq!(update(&host), None);
}
