//! A typo never becomes "unlimited" or "blocked": it is an error that names row and field.

use limiter::config::{Config, GREATEST_BYTES, GREATEST_VALUES, Mode, parse};
use limiter::{CountBy, ScopeKey};

fn strict(json: &str) -> Result<Config, Vec<(String, String)>> {
    match parse(json, Mode::Strict) {
        Ok((config, problems)) => {
            assert!(problems.is_empty());
            Ok(config)
        }
        Err(problems) => Err(problems.into_iter().map(|problem| (problem.path, problem.message)).collect()),
    }
}

fn paths(json: &str) -> Vec<String> {
    strict(json)
        .err()
        .unwrap_or_else(|| panic!("{json} is accepted"))
        .into_iter()
        .map(|(path, _)| path)
        .collect()
}

#[test]
fn absent_knobs_take_the_defaults() {
    let config = strict("{}").expect("an empty object is a configuration");
    assert_eq!(config, Config::default());
    assert_eq!((config.queue_timeout_ms, config.max_queued, config.max_waiting), (120_000, 64, 50_000));
    assert_eq!((config.head_start, config.max_overtakes, config.spawn_grace_ms), (0, 64, 10_000));
    assert_eq!(config.spawn_tools, ["subagent", "subagent_fork"]);
}

#[test]
fn whatever_is_no_limit_is_an_error_that_names_row_and_field() {
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
        "-7",
        "4294967296",
        "1e300",
        r#""3""#,
        "1.00000000000000001",
        "99999999999999999999",
        "1e-400",
        "10000000000000000001e-19",
        "1e99999999999999999999",
        "-1e30",
    ] {
        let json = format!(
            r#"{{"limits":[{{"provider":"p","model":"a","max":1}},{{"provider":"p","model":"m","max":{max}}}]}}"#
        );
        assert_eq!(paths(&json), ["limits[1].max"], "{max}");
    }
}

#[test]
fn the_error_says_what_was_found_and_what_is_expected() {
    let problems = strict(r#"{"limits":[{"provider":"p","model":"m","max":"abc"}]}"#).expect_err("no number");
    assert_eq!(
        problems[0].1,
        "expected an integer: -1 (unlimited), 0 (paused) or a cap from 1 to 4294967295, found \"abc\""
    );
}

#[test]
fn whole_numbers_are_limits_however_they_are_written() {
    for (max, expected) in [
        ("-1", None),
        ("0", Some(0)),
        ("3", Some(3)),
        ("3.0", Some(3)),
        ("3e0", Some(3)),
        ("4294967295", Some(u32::MAX)),
        ("1e3", Some(1_000)),
        ("30e-1", Some(3)),
        ("0.3E+1", Some(3)),
        ("-0.0", Some(0)),
        ("0e999999999999999999999", Some(0)),
    ] {
        let json = format!(r#"{{"limits":[{{"provider":"p","model":"*","max":{max}}}]}}"#);
        let config = strict(&json).unwrap_or_else(|problems| panic!("{max}: {problems:?}"));
        assert_eq!(config.limits[&ScopeKey::Provider("p".into())].max, expected, "{max}");
    }
}

#[test]
fn a_missing_or_misspelled_max_is_an_error() {
    assert_eq!(paths(r#"{"limits":[{"provider":"p","model":"m"}]}"#), ["limits[0].max"]);
    assert_eq!(
        paths(r#"{"limits":[{"provider":"p","model":"m","maximum":3}]}"#),
        ["limits[0].maximum", "limits[0].max"]
    );
    assert_eq!(paths(r#"{"limit":[]}"#), ["limit"]);
    assert_eq!(paths(r#"{"limits":[{"provider":"p","model":"m","max":1,"Pool":"x"}]}"#), ["limits[0].Pool"]);
}

#[test]
fn ids_are_trimmed_and_must_be_ids() {
    let config =
        strict(r#"{"limits":[{"provider":" p ","model":"\tm\n","max":1}]}"#).expect("blanks are trimmed");
    assert!(config.limits.contains_key(&ScopeKey::parse("p/m").expect("a scope")));
    for id in [r#""""#, r#""  ""#, r#""a\u0000b""#, r#""a\nb""#, "7", "null", "[]"] {
        assert_eq!(
            paths(&format!(r#"{{"limits":[{{"provider":{id},"model":"m","max":1}}]}}"#)),
            ["limits[0].provider"]
        );
        assert_eq!(
            paths(&format!(r#"{{"limits":[{{"provider":"p","model":{id},"max":1}}]}}"#)),
            ["limits[0].model"]
        );
    }
    for (length, expected) in [(1_024, true), (1_025, false), (5_000, false)] {
        let long = "x".repeat(length);
        let json = format!(r#"{{"limits":[{{"provider":"p","model":"{long}","max":1}}]}}"#);
        assert_eq!(strict(&json).is_ok(), expected, "{length}");
    }
}

#[test]
fn two_rows_for_one_scope_are_an_error() {
    let row = r#"{"provider":"p","model":"m","max":1}"#;
    assert_eq!(paths(&format!(r#"{{"limits":[{row},{row}]}}"#)), ["limits[1]"]);
    assert_eq!(
        paths(&format!(r#"{{"limits":[{row},{{"provider":"p "  ,"model":" m","max":2}}]}}"#)),
        ["limits[1]"],
        "blanks do not tell them apart"
    );
    let group = r#"{"name":"g","max":1,"routes":[{"provider":"p","model":"m"}]}"#;
    assert_eq!(paths(&format!(r#"{{"groups":[{group},{group}]}}"#)), ["groups[1].name"]);
}

#[test]
fn a_star_as_provider_goes_with_every_model_only() {
    assert_eq!(paths(r#"{"limits":[{"provider":"*","model":"m","max":1}]}"#), ["limits[0].provider"]);
    assert!(strict(r#"{"limits":[{"provider":"*","model":"*","max":1}]}"#).is_ok());
}

#[test]
fn groups_name_their_routes() {
    for (routes, path) in [
        ("[]", "groups[0].routes"),
        (r#""p/m""#, "groups[0].routes"),
        (r#"[{"provider":"p"}]"#, "groups[0].routes[0].model"),
        (r#"[{"provider":"p","model":"m"},{"provider":"p","model":"m"}]"#, "groups[0].routes[1]"),
        (r#"[{"provider":"*","model":"*"}]"#, "groups[0].routes[0].provider"),
        (r#"[{"provider":"p","model":"m","max":1}]"#, "groups[0].routes[0].max"),
        ("[7]", "groups[0].routes[0]"),
    ] {
        let json = format!(r#"{{"groups":[{{"name":"g","max":1,"routes":{routes}}}]}}"#);
        assert_eq!(paths(&json), [path], "{routes}");
    }
    assert_eq!(paths(r#"{"groups":[{"name":"g","max":1}]}"#), ["groups[0].routes"]);
}

#[test]
fn knobs_have_bounds_and_zero_is_kept() {
    let config = strict(r#"{"queueTimeoutMs":0,"maxQueued":0,"spawnGraceMs":0}"#).expect("zeros");
    assert_eq!((config.queue_timeout_ms, config.max_queued, config.spawn_grace_ms), (0, 0, 0));
    for timeout in ["2147483648", "9999999999", "2592000000", "9007199254740991"] {
        assert!(strict(&format!(r#"{{"queueTimeoutMs":{timeout}}}"#)).is_ok(), "{timeout}");
    }
    for (knob, wrong) in [
        ("queueTimeoutMs", "-1"),
        ("queueTimeoutMs", "1.5"),
        ("queueTimeoutMs", r#""2 min""#),
        ("queueTimeoutMs", "null"),
        ("queueTimeoutMs", "9007199254740992"),
        ("queueTimeoutMs", "9007199254740993"),
        ("maxQueued", "-1"),
        ("maxWaiting", "200001"),
        ("headStart", "true"),
        ("maxOvertakes", "{}"),
        ("spawnGraceMs", "1e400"),
        ("maxRestarts", "-1"),
        ("onFailure", r#""Closed""#),
        ("onFailure", "null"),
        ("countBy", r#""call""#),
        ("limits", "{}"),
        ("groups", "null"),
        ("spawnTools", r#""x""#),
    ] {
        assert_eq!(paths(&format!(r#"{{"{knob}":{wrong}}}"#)), [knob], "{wrong}");
    }
    assert_eq!(paths(r#"{"spawnTools":["a",""]}"#), ["spawnTools[1]"]);
}

#[test]
fn count_by_of_a_row_wins_over_the_default_of_all() {
    let json = r#"{"countBy":"stream","limits":[{"provider":"p","model":"a","max":1},
        {"provider":"p","model":"b","max":1,"countBy":"session"}]}"#;
    let config = strict(json).expect("valid");
    let count_by = |text: &str| config.limits[&ScopeKey::parse(text).expect("a scope")].count_by;
    assert_eq!((count_by("p/a"), count_by("p/b")), (CountBy::Stream, CountBy::Session));
}

#[test]
fn a_pool_is_named_or_is_the_process() {
    let json = r#"{"limits":[{"provider":"p","model":"a","max":1,"pool":"gpu"},
        {"provider":"p","model":"b","max":1,"pool":"process"}]}"#;
    let config = strict(json).expect("valid");
    let pool = |text: &str| config.limits[&ScopeKey::parse(text).expect("a scope")].pool.clone();
    assert_eq!((pool("p/a").as_deref(), pool("p/b")), (Some("gpu"), None));
    assert_eq!(paths(r#"{"limits":[{"provider":"p","model":"a","max":1,"pool":3}]}"#), ["limits[0].pool"]);
}

#[test]
fn ceilings_are_rows_like_limits_but_for_the_pool() {
    let json = r#"{"limits":[{"provider":"p","model":"a","max":5,"pool":"gpu"}],"ceilings":[
        {"provider":" p ","model":"a","max":2},{"provider":"p","model":"*","max":3.0,"countBy":"stream"},
        {"provider":"*","model":"*","max":-1}]}"#;
    let config = strict(json).expect("valid");
    let limit = |text: &str| config.limits.get(&ScopeKey::parse(text).expect("a scope"));
    let row = limit("p/a").expect("the row");
    assert_eq!((row.max, row.ceiling, row.least(), row.pool()), (Some(5), Some(2), Some(2), Some("gpu")));
    let own = limit("p/*").expect("a scope of its own");
    assert_eq!((own.max, own.ceiling, own.count_by), (None, Some(3), CountBy::Stream));
    assert!(limit("*/*").is_none(), "-1 is no ceiling");
    for (row, path) in [
        (r#"{"provider":"p","model":"m"}"#, "ceilings[0].max"),
        (r#"{"provider":"p","model":"m","max":"3"}"#, "ceilings[0].max"),
        (r#"{"provider":"","model":"m","max":3}"#, "ceilings[0].provider"),
        (r#"{"provider":"*","model":"m","max":3}"#, "ceilings[0].provider"),
        (r#"{"provider":"p","model":"m","max":3,"countBy":"x"}"#, "ceilings[0].countBy"),
        (r#"{"provider":"p","model":"m","max":3,"pool":"x"}"#, "ceilings[0].pool"),
        (r#"{"provider":"p","model":"m","max":3},{"provider":"p","model":"m","max":-1}"#, "ceilings[1]"),
        ("7", "ceilings[0]"),
    ] {
        assert_eq!(paths(&format!(r#"{{"ceilings":[{row}]}}"#)), [path], "{row}");
    }
    assert_eq!(paths(r#"{"ceilings":3}"#), ["ceilings"]);
}

#[test]
fn a_tenant_is_checked_and_changes_nothing() {
    let whole =
        r#"{"tenant":{"name":" team-1_a.B ","preset":"reviewer","workspace":"/home/a b","session":"s1"}}"#;
    for json in [whole, r#"{"tenant":{}}"#] {
        assert_eq!(strict(json).expect("valid"), Config::default());
    }
    let long = format!(r#"{{"name":"{}"}}"#, "a".repeat(65));
    for (tenant, path) in [
        (r#"{"name":"a b"}"#, "tenant.name"),
        (r#"{"name":"é"}"#, "tenant.name"),
        (r#"{"name":"a/b"}"#, "tenant.name"),
        (r#"{"name":""}"#, "tenant.name"),
        (long.as_str(), "tenant.name"),
        (r#"{"name":3}"#, "tenant.name"),
        (r#"{"preset":" "}"#, "tenant.preset"),
        (r#"{"workspace":"a\u0000"}"#, "tenant.workspace"),
        (r#"{"session":null}"#, "tenant.session"),
        (r#"{"colour":"red"}"#, "tenant.colour"),
        (r#""reviewer""#, "tenant"),
        ("[]", "tenant"),
    ] {
        assert_eq!(paths(&format!(r#"{{"tenant":{tenant}}}"#)), [path], "{tenant}");
    }
    assert!(strict(&format!(r#"{{"tenant":{{"name":"{}"}}}}"#, "a".repeat(64))).is_ok());
}

#[test]
fn strict_lists_every_problem_at_once() {
    let json = r#"{"limits":[{"provider":"","model":"m","max":"x"},7],"maxQueued":-1,"colour":"red"}"#;
    let mut found = paths(json);
    found.sort();
    assert_eq!(found, ["colour", "limits[0].max", "limits[0].provider", "limits[1]", "maxQueued"]);
}

#[test]
fn lenient_takes_the_valid_rows_and_lists_the_rest() {
    let json = r#"{"limits":[{"provider":"p","model":"a","max":"abc"},{"provider":"p","model":"b","max":-7},
        {"provider":"p","model":"c","max":2},{"provider":"p","model":"c","max":9}],"queueTimeoutMs":"soon","maxQueued":3}"#;
    let (config, problems) = parse(json, Mode::Lenient).expect("an object");
    let found: Vec<&str> = problems.iter().map(|problem| problem.path.as_str()).collect();
    assert_eq!(found, ["queueTimeoutMs", "limits[0].max", "limits[1].max", "limits[3]"]);
    assert_eq!(config.limits.len(), 1);
    assert_eq!(
        config.limits[&ScopeKey::parse("p/c").expect("a scope")].max,
        Some(2),
        "the first of two rows"
    );
    assert_eq!((config.queue_timeout_ms, config.max_queued), (120_000, 3));
}

#[test]
fn lenient_fails_only_on_what_is_no_object() {
    for json in ["", "[]", "null", "7", "{", r#"{"limits":}"#] {
        assert!(parse(json, Mode::Lenient).is_err(), "{json}");
    }
    let deep = format!(r#"{{"limits":{}{}}}"#, "[".repeat(100_000), "]".repeat(100_000));
    assert!(parse(&deep, Mode::Lenient).is_err(), "too deep is refused, not a crash");
}

#[test]
fn two_scopes_never_share_a_text_and_every_text_is_read_back() {
    let ids = ["p", "p/m", "%", "%2F", "@p", "p@", "*", "**", "@*", "%2A", "a/%/@", " ", "m\u{0}"];
    let mut texts = std::collections::BTreeMap::new();
    let mut keys = vec![ScopeKey::Everything];
    for provider in ids {
        keys.push(ScopeKey::Provider(provider.into()));
        keys.push(ScopeKey::Group(provider.into()));
        for model in ids {
            keys.push(ScopeKey::Route(limiter::Route::new(provider, model)));
        }
    }
    for key in keys {
        let text = key.to_string();
        assert_eq!(ScopeKey::parse(&text).as_ref(), Some(&key), "{text}");
        if let Some(other) = texts.insert(text.clone(), key.clone()) {
            panic!("{key:?} and {other:?} are both {text}");
        }
    }
    for text in ["", "p", "/", "p/", "/m", "*/m", "p/%zz", "p/%2", "%"] {
        assert_eq!(ScopeKey::parse(text), None, "{text}");
    }
}

#[test]
fn a_long_list_of_problems_is_cut_and_counted() {
    let rows = vec![r#"{"provider":"p","model":"m"}"#; 20_000].join(",");
    for mode in [Mode::Strict, Mode::Lenient] {
        let json = format!(r#"{{"limits":[{rows}]}}"#);
        let problems = match parse(&json, mode) {
            Ok((_, problems)) | Err(problems) => problems,
        };
        assert_eq!(problems.len(), 51);
        assert_eq!(problems[50].to_string(), "and 19950 more problems");
    }
}

#[test]
fn what_is_too_long_or_has_too_many_values_is_not_read() {
    let padded = |bytes: usize| format!("{{{}}}", " ".repeat(bytes - 2));
    assert!(strict(&padded(GREATEST_BYTES)).is_ok());
    let lists = |values: usize| format!(r#"{{"spawnTools":["t"{}]}}"#, r#","t""#.repeat(values - 2));
    assert!(strict(&lists(GREATEST_VALUES)).is_ok());
    for (json, number) in [(padded(GREATEST_BYTES + 1), "1048577"), (lists(GREATEST_VALUES + 1), "100001")] {
        for mode in [Mode::Strict, Mode::Lenient] {
            let problems = parse(&json, mode).expect_err("too much");
            assert_eq!((problems.len(), problems[0].path.as_str()), (1, ""));
            assert!(problems[0].message.contains(number), "{}", problems[0]);
        }
    }
}

#[test]
fn an_unknown_key_is_shown_printable_and_short() {
    let long = "k".repeat(100_000);
    let problems =
        parse(&format!(r#"{{"\u001b[31mred\n":1,"{long}":2}}"#), Mode::Strict).expect_err("unknown keys");
    assert!(problems.iter().any(|problem| problem.path == "\\u{1b}[31mred\\n"), "{problems:?}");
    assert!(problems.iter().all(|problem| problem.to_string().len() < 400));
}

#[test]
fn no_key_has_a_meaning_that_is_not_written_here() {
    let of_the_parser = ["Number", "RawValue"].map(|name| format!("$serde_json::private::{name}"));
    for key in &of_the_parser {
        for inside in [r#""5""#, "5", "[]", "{}"] {
            let value = format!(r#"{{"{key}":{inside}}}"#);
            assert_eq!(paths(&format!(r#"{{"maxQueued":{value}}}"#)), ["maxQueued"]);
            assert_eq!(paths(&format!(r#"{{"limits":{value}}}"#)), ["limits"]);
            let row = format!(r#"{{"limits":[{{"provider":"p","model":"m","max":{value}}}]}}"#);
            assert_eq!(paths(&row), ["limits[0].max"]);
            assert_eq!(paths(&value), std::slice::from_ref(key));
        }
    }
}

#[test]
fn scopes_of_ids_with_signs_in_them_have_texts_that_are_read_back() {
    for (provider, model, text) in
        [("@a", "b@c", "%40a/b@c"), ("a/b", "*", "a%2Fb/%2A"), ("a*", "100%", "a*/100%25")]
    {
        let key = ScopeKey::Route(limiter::Route::new(provider, model));
        assert_eq!((key.to_string(), ScopeKey::parse(text)), (text.into(), Some(key)));
    }
}

#[test]
fn what_was_found_is_told_in_a_word_or_two() {
    for (found, told) in [
        ("[]", "an empty list"),
        ("[ \n]", "an empty list"),
        ("[1]", "a list"),
        ("[[]]", "a list"),
        ("{}", "an object"),
        ("\"x\"", "\"x\""),
        ("null", "null"),
    ] {
        let problems = strict(&format!(r#"{{"maxQueued":{found}}}"#)).expect_err(found);
        let [(_, message)] = &problems[..] else { panic!("{problems:?}") };
        assert!(message.ends_with(&format!(", found {told}")), "{message}");
    }
}

#[test]
fn the_tools_that_spawn_are_those_that_are_named_and_a_list_that_is_wrong_names_none() {
    let tools = |json: &str| parse(json, Mode::Lenient).expect("an object").0.spawn_tools;
    assert_eq!(tools(r#"{"spawnTools":["mine"," other "]}"#), ["mine", "other"]);
    assert_eq!(tools(r#"{"spawnTools":[]}"#), [""; 0]);
    assert_eq!(tools(r#"{"spawnTools":["mine",1]}"#), ["subagent", "subagent_fork"]);
}

#[test]
fn no_depth_is_too_deep_to_be_named() {
    let deep = format!("{}{}", "[".repeat(40_000), "]".repeat(40_000));
    assert_eq!(paths(&format!(r#"{{"limits":{deep}}}"#)), ["limits[0]"]);
    assert_eq!(paths(&format!(r#"{{"maxQueued":{deep}}}"#)), ["maxQueued"]);
    assert_eq!(paths(&format!(r#"{{"x":{deep}}}"#)), ["x"]);
    assert_eq!(paths(&deep), [""]);
}

#[test]
fn text_that_is_no_text_is_named() {
    assert_eq!(paths(r#"{"limits":[{"provider":"\ud800","model":"m","max":1}]}"#), ["limits[0].provider"]);
    assert_eq!(paths(r#"{"limits":[{"\ud800":1}]}"#), ["limits[0]"]);
    assert_eq!(paths(r#"{"\ud800":1}"#), [""]);
}

#[test]
fn a_key_that_is_repeated_is_named_however_it_is_written_and_decides_nothing() {
    for (json, path) in [
        (r#"{"limits":[{"provider":"p","model":"m","max":1,"max":-1}]}"#, "limits[0].max"),
        (r#"{"limits":[{"provider":"p","model":"m","max":1,"m\u0061x":1}]}"#, "limits[0].max"),
        (r#"{"limits":[{"provider":"p","provider":"q","model":"m","max":1}]}"#, "limits[0].provider"),
        (
            r#"{"groups":[{"name":"g","max":1,"max":2,"routes":[{"provider":"p","model":"m"}]}]}"#,
            "groups[0].max",
        ),
        (
            r#"{"groups":[{"name":"g","max":1,"routes":[{"provider":"p","model":"m","model":"n"}]}]}"#,
            "groups[0].routes[0].model",
        ),
        (r#"{"limits":[],"maxQueued":1,"limits":[]}"#, "limits"),
        (r#"{"maxQueued":1,"maxQueued":1}"#, "maxQueued"),
    ] {
        let problems = strict(json).expect_err(json);
        assert_eq!(problems, [(path.into(), "given more than once; keep one".into())], "{json}");
        let (config, problems) = parse(json, Mode::Lenient).expect("an object");
        assert_eq!((config.limits.len(), problems.len()), (0, 1), "{json}");
    }
    assert_eq!(paths(r#"{"b":1,"b":1,"b":1,"a":1}"#), ["b", "a", "b"], "once, however often");
}
