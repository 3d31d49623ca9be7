//! A configuration, in both modes: they agree, whoever is accepted works, and what is wrong is named.
#![no_main]

use libfuzzer_sys::fuzz_target;
use limiter::config::{Mode, Object, parse};
use limiter::{Limiter, Route, StatsQuery, StreamCall};

fuzz_target!(|text: &str| {
    let (strict, lenient) = (parse(text, Mode::Strict), parse(text, Mode::Lenient));
    match (&strict, &lenient) {
        (Ok((strict, none)), Ok((lenient, named))) => {
            assert!(none.is_empty() && named.is_empty());
            assert_eq!(strict, lenient);
        }
        (Err(problems), Ok((_, named))) => assert!(!problems.is_empty() && problems == named),
        (Err(problems), Err(named)) => assert!(problems.len() == 1 && problems == named),
        (Ok(_), Err(named)) => panic!("accepted, and refused for {named:?}"),
    }
    let (Ok((_, problems)) | Err(problems)) = &lenient;
    for problem in problems {
        assert!(problem.path.len() < 1_000 && problem.message.len() < 8_000 && !problem.message.is_empty());
    }
    let Ok((config, problems)) = lenient else { return };

    // A `Value` gives a meaning to keys of its own, and keeps one of those that are repeated; what looks like one, and what may
    // hide one behind "and 7 more problems", is left out.
    if !text.contains("private")
        && !text.contains("\\u")
        && problems.iter().all(|problem| problem.message != Object::REPEATED && !problem.path.is_empty())
        && let Ok(value) = serde_json::from_str::<serde_json::Value>(text)
    {
        let again = parse(&value.to_string(), Mode::Lenient).expect("it has been read before");
        assert_eq!((&again.0, again.1.len()), (&config, problems.len()), "however it is written");
    }

    // What is in force works.
    let mut limiter = Limiter::new();
    let keys: Vec<_> = config.limits.keys().cloned().collect();
    let routes: Vec<Route> = config.groups.values().flatten().cloned().collect();
    limiter.configure(config, 1);
    for key in &keys {
        assert_eq!(limiter::ScopeKey::parse(&key.to_string()).as_ref(), Some(key), "a scope's text names it");
    }
    for (id, route) in (1..).zip(routes.into_iter().chain([Route::new("p", "m")])) {
        let call = StreamCall { route, session: Some("s".into()), first: true, spawn: None, within: None };
        limiter.start_stream(id, call, 2);
    }
    limiter.tick(3);
    let stats = limiter.stats(&StatsQuery::default(), 4);
    assert!(keys.len() <= stats.scopes_total);
});
