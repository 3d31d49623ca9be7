//! Requests: answered beside hooks, bounded, and never left open by a fault.

use component_tests::{Host, chaos, is_admitted, is_waiting, limit, release};
use gen_limit_runtime::{
    Answer, Ask, Mode, Model, Question, Request, Response, Section, SessionInfo, SettingsError, State,
};
use serde_json::Value;

const CONFIG: &str = "/api/dsh-gen-limit/config";
const CATALOG: &str = "/api/dsh-gen-limit/catalog";
const STATS: &str = "/api/dsh-gen-limit/stats";
pub const METRICS: &str = "/api/dsh-gen-limit/metrics";

pub fn get(query: &str) -> Request {
    Request { method: "GET".into(), path: STATS.into(), query: query.into(), ..Request::default() }
}

/// A change of the configuration.
fn post(body: impl Into<Vec<u8>>) -> Request {
    let headers = vec![("content-type".into(), "application/json".into())];
    Request { method: "POST".into(), path: CONFIG.into(), headers, body: body.into(), ..Request::default() }
}

/// The answer of a host without a harness, which is there at once.
pub fn ask(host: &mut Host, request: Request) -> Response {
    ask_of(host, request, |_| Answer::Unavailable)
}

/// The answer of a host whose harness answers so.
pub fn ask_of(host: &mut Host, request: Request, mut answer: impl FnMut(&Question) -> Answer) -> Response {
    let id = host.plugin.request(request, host.now);
    let mut asks = host.plugin.take_asks();
    while !asks.is_empty() {
        for Ask { id, question } in asks {
            host.plugin.answer(id, answer(&question), host.now);
        }
        asks = host.plugin.take_asks();
    }
    let mut responses = host.plugin.take_responses();
    assert_eq!(responses.len(), 1);
    let (answered, response) = responses.remove(0);
    assert_eq!(answered, id);
    response
}

pub fn json(response: &Response) -> Value {
    serde_json::from_slice(&response.body)
        .unwrap_or_else(|e| panic!("{e}: {}", String::from_utf8_lossy(&response.body)))
}

#[test]
fn stats_answers_who_runs_and_who_waits_as_of_now() {
    let mut host = Host::new(release(), &limit(1, ""));
    assert_eq!(host.plugin.paths(), [CONFIG, CATALOG, STATS, METRICS]);
    host.stream("a");
    host.stream("b");
    host.now += 700;
    let response = ask(&mut host, get(""));
    assert_eq!(response.status, 200);
    assert!(response.headers.iter().any(|(name, value)| name == "content-type" && value.contains("json")));
    let stats = json(&response);
    assert_eq!(stats["entries"][0]["active"], 1);
    assert_eq!(stats["entries"][0]["waiting"], 1);
    assert_eq!(stats["waiters"][0]["session"], "b");
    assert_eq!(stats["waiters"][0]["waitedMs"], 700, "{stats}");
    assert_eq!(stats["host"]["state"], "running");
    assert_eq!(stats["host"]["policy"], "open");
    assert_eq!(stats["host"]["component"], release().sha256());
    assert_eq!(stats["host"]["waiting"], 1);
}

#[test]
fn stats_tell_of_a_trap_that_was_survived() {
    let mut host = Host::new(chaos(), &limit(1, ""));
    let before = json(&ask(&mut host, get("")));
    assert_eq!((&before["host"]["restarts"], &before["host"]["lastError"]), (&Value::from(0), &Value::Null));
    host.order("a", "trap-in:1");
    host.stream("b");
    let after = json(&ask(&mut host, get("")));
    assert_eq!((&after["host"]["restarts"], &after["host"]["state"]), (&Value::from(1), &"running".into()));
    let words = after["host"]["lastError"].as_str().expect("it is told");
    assert!(words.contains("trapped on demand"), "{words}");
}

#[test]
fn stats_are_paged_by_scope_and_offset() {
    let mut host = Host::new(release(), &limit(0, r#","maxQueued":1000"#));
    for n in 0..600 {
        host.stream(&format!("s{n}"));
    }
    let all = json(&ask(&mut host, get("")));
    assert_eq!((all["waiters"].as_array().map(Vec::len), &all["truncated"]), (Some(500), &Value::Bool(true)));
    let rest = json(&ask(&mut host, get("scope=p%2Fm&offset=500")));
    assert_eq!(
        (rest["waiters"].as_array().map(Vec::len), &rest["truncated"]),
        (Some(100), &Value::Bool(false))
    );
    let other = json(&ask(&mut host, get("scope=q%2Fm")));
    assert_eq!(other["waiters"].as_array().map(Vec::len), Some(0));
}

#[test]
fn what_cannot_be_answered_is_an_answer_too() {
    let mut host = Host::new(release(), "{}");
    let post = Request { method: "POST".into(), ..get("") };
    let response = ask(&mut host, post);
    assert_eq!(response.status, 405);
    assert!(response.headers.contains(&("allow".into(), "GET, HEAD".into())));
    assert_eq!(ask(&mut host, Request { path: "/elsewhere".into(), ..get("") }).status, 404);
    for query in ["offset=minus", "scope=%zz", "scope=%e", "scope=%ff", "limit=3"] {
        let response = ask(&mut host, get(query));
        assert_eq!(response.status, 400, "{query}");
        assert!(json(&response)["error"].is_string());
    }
}

#[test]
fn nothing_that_is_asked_traps() {
    let mut host = Host::new(release(), &limit(1, ""));
    host.stream("a");
    host.stream("b");
    let deep = |open: &str, close: &str| format!("{}{}", open.repeat(200_000), close.repeat(200_000));
    let mut bodies: Vec<Vec<u8>> = [
        "",
        "{",
        "null",
        "\0",
        "{\"limits\":1e400}",
        "{\"maxQueued\":-1e-99999999999999999999}",
        "{\"a\":1,\"a\":2}",
        "{\"limits\":[{\"provider\":\"\\ud800\",\"model\":\"m\",\"max\":1}]}",
        "{\"revision\":{}}",
    ]
    .map(Into::into)
    .to_vec();
    bodies.extend([b"\xff\xfe\xfd".to_vec(), b"{\"limits\":\"\xc3\x28\"}".to_vec(), vec![b' '; 1 << 20]]);
    bodies
        .extend([deep("[", "]"), deep("{\"a\":", "}"), deep("{\"limits\":[", "]}")].map(String::into_bytes));
    let rows = |row: &str| format!("{{\"limits\":[{}]}}", vec![row; (1 << 20) / row.len() - 1].join(","));
    bodies.extend(
        [rows("1"), rows("{}"), rows(r#"{"provider":"p","model":"m","max":1}"#)].map(String::into_bytes),
    );
    bodies.push(format!("{{\"limits\":\"{}\"}}", "x".repeat(1 << 20)).into_bytes());
    for body in bodies {
        let what = String::from_utf8_lossy(&body[..body.len().min(60)]).into_owned();
        assert_eq!(ask(&mut host, post(body)).status, 400, "{what}: {:?}", host.plugin.status().last_error);
    }
    for (query, status) in
        [("%00=%00", 400), ("offset=99999999999999999999", 400), (&"&".repeat(1 << 20), 200)]
    {
        assert_eq!(ask(&mut host, get(query)).status, status);
    }
    let long = format!("scope={}", "%00".repeat(100_000));
    assert_eq!(ask(&mut host, get(&long)).status, 200);
    let headers = vec![("content-type".to_owned(), "x".repeat(1 << 20)), (String::new(), "\0".into())];
    assert_eq!(ask(&mut host, Request { headers, ..post("{}") }).status, 415);
    assert_eq!((host.plugin.status().restarts, host.plugin.status().last_error), (0, None));
}

#[test]
fn sessions_are_named_by_the_harness_and_hooks_go_on_meanwhile() {
    let mut host = Host::new(release(), &limit(1, ""));
    let running = host.stream("a");
    let waiting = host.stream("b");
    host.plugin.request(get(""), host.now);
    let asks = host.plugin.take_asks();
    let [Ask { id, question: Question::DescribeSessions { ids } }] = &asks[..] else { panic!("{asks:?}") };
    assert_eq!(*ids, ["a", "b"]);
    host.end(running.id);
    assert_eq!(host.admitted(), [waiting.id]);
    let about = SessionInfo {
        id: "b".into(),
        label: Some("Fix the roof".into()),
        parent: Some("a".into()),
        root: None,
    };
    host.plugin.answer(*id, Answer::Sessions(vec![about]), host.now);
    let stats = json(&host.plugin.take_responses()[0].1);
    let waiter = &stats["waiters"][0];
    assert_eq!((&waiter["label"], &waiter["parent"]), (&"Fix the roof".into(), &"a".into()), "{stats}");
    assert_eq!(waiter.get("root"), None);
    assert_eq!(stats["holders"][0].get("label"), None);
}

#[test]
fn stats_of_a_session_are_those_of_its_tree_however_many_others_wait() {
    let mut host = Host::new(release(), &limit(1, r#","maxQueued":10000"#));
    host.stream("holder");
    host.spawn("root");
    for n in 0..5_000 {
        host.stream(&format!("s{n:04}"));
    }
    let mut questions = 0;
    let mut about = |host: &mut Host, query: &str| {
        questions = 0;
        let response = ask_of(host, get(query), |question| {
            questions += 1;
            let Question::DescribeSessions { ids } = question else { panic!("{question:?}") };
            assert!(ids.len() <= 1_000);
            // Every hundredth is a child of a child of the root.
            let parent = |id: &str| match id {
                "holder" => Some("root".to_owned()),
                _ if id.starts_with("parent-of-") => Some("root".to_owned()),
                _ if id.ends_with("00") => Some(format!("parent-of-{id}")),
                _ => None,
            };
            let info =
                |id: &String| SessionInfo { id: id.clone(), label: None, parent: parent(id), root: None };
            Answer::Sessions(ids.iter().map(info).collect())
        });
        (json(&response), questions)
    };
    let (stats, _) = about(&mut host, "session=root&describe=false");
    assert_eq!(stats["holders"][0]["session"], "holder");
    assert_eq!((&stats["waitersTotal"], &stats["truncated"]), (&51.into(), &false.into()));
    let waiters = stats["waiters"].as_array().expect("a list");
    let told: Vec<_> = waiters[..3]
        .iter()
        .map(|w| (w["session"].as_str(), w["kind"].as_str(), w["position"].as_u64()))
        .collect();
    assert_eq!(
        told,
        [
            (Some("root"), Some("spawn"), Some(1)),
            (Some("s0000"), Some("stream"), Some(2)),
            (Some("s0100"), Some("stream"), Some(102))
        ]
    );
    assert_eq!(stats["waiters"][0]["blockedBy"]["limit"], 1);
    let (again, questions) = about(&mut host, "session=root&describe=false");
    assert_eq!((&again["waitersTotal"], questions), (&51.into(), 0), "what is known is not asked again");
    let (nobody, _) = about(&mut host, "session=nobody");
    assert_eq!((&nobody["waitersTotal"], &nobody["scopes"]), (&0.into(), &Value::Array(Vec::new())));
    assert_eq!((host.plugin.status().restarts, host.plugin.status().last_error), (0, None));
}

#[test]
fn all_providers_are_asked_at_once_and_may_answer_in_any_order() {
    let mut host = Host::new(release(), "{}");
    host.plugin.request(Request { path: CATALOG.into(), ..get("") }, host.now);
    let model = |id: &str| Model { id: id.into(), name: id.to_uppercase() };
    let asks = host.plugin.take_asks();
    assert_eq!(asks[0].question, Question::ListProviders);
    let names: Vec<String> = (0..40).map(|n| format!("p{n:02}")).collect();
    host.plugin.answer(asks[0].id, Answer::Providers(names.iter().map(|n| model(n)).collect()), host.now);
    let asks = host.plugin.take_asks();
    assert_eq!(asks.len(), 40);
    for Ask { id, question } in asks.iter().rev() {
        let Question::ListModels { provider } = question else { panic!("{question:?}") };
        assert!(host.plugin.take_responses().is_empty());
        let answer = match provider.as_str() {
            "p07" => Answer::Models(Err("took longer than 2 s".into())),
            "p08" => Answer::Unavailable,
            _ => Answer::Models(Ok(vec![model("m")])),
        };
        host.plugin.answer(*id, answer, host.now);
    }
    let catalog = json(&host.plugin.take_responses()[0].1);
    let providers = catalog["providers"].as_array().expect("a list");
    assert_eq!(providers.iter().map(|p| p["id"].as_str().expect("an id")).collect::<Vec<_>>(), names);
    for (provider, name) in providers.iter().zip(&names) {
        let silent = ["p07", "p08"].contains(&name.as_str());
        assert_eq!(provider["models"].as_array().map(Vec::len), Some(usize::from(!silent)));
        assert_eq!(provider["error"].is_string(), silent, "{provider}");
    }
}

#[test]
fn the_configuration_is_read_and_changed_through_the_hosts_settings() {
    let mut host = Host::new(release(), "{}");
    let section = |value: &str, revision: &str| Section {
        value: value.into(),
        base: "{}".into(),
        user: "{}".into(),
        in_force: true,
        writable: true,
        revision: Some(revision.into()),
    };
    let get = Request { path: CONFIG.into(), ..get("") };
    let read = ask_of(&mut host, get.clone(), |question| {
        assert_eq!(*question, Question::ReadSettings);
        Answer::Settings(Ok(section(r#"{"maxQueued":"many"}"#, "b.1")))
    });
    let shown = json(&read);
    assert_eq!((read.status, &shown["status"], &shown["revision"]), (200, &"ok".into(), &"b.1".into()));
    assert_eq!(shown["problems"][0]["path"], "maxQueued");
    assert_eq!(json(&ask(&mut host, get))["status"], "unavailable");

    let change = post(r#"{"limits":[{"provider":"p","model":"m","max":1}],"revision":"b.1"}"#);
    let written = ask_of(&mut host, change.clone(), |question| {
        let json = r#"{"limits":[{"provider":"p","model":"m","max":1}]}"#.to_owned();
        assert_eq!(*question, Question::UpdateSettings { json, revision: Some("b.1".into()) });
        Answer::Settings(Ok(section("{}", "b.2")))
    });
    assert_eq!((written.status, &json(&written)["revision"]), (200, &"b.2".into()));
    let stale = ask_of(&mut host, change.clone(), |_| {
        Answer::Settings(Err(SettingsError::Conflict(section("{}", "b.3"))))
    });
    assert_eq!((stale.status, &json(&stale)["section"]["revision"]), (409, &"b.3".into()));
    for (error, status) in [
        (SettingsError::ReadOnly, 503),
        (SettingsError::Unavailable, 503),
        (SettingsError::Invalid("no".into()), 400),
        (SettingsError::Other(None), 500),
    ] {
        let mut error = Some(error);
        let answer = |_: &Question| Answer::Settings(Err(error.take().expect("asked once")));
        assert_eq!(ask_of(&mut host, change.clone(), answer).status, status);
    }
    let bad = post(r#"{"limits":[{"provider":"p","model":"m","max":"abc"}]}"#);
    let refused = ask_of(&mut host, bad, |question| panic!("{question:?} is asked"));
    assert_eq!((refused.status, &json(&refused)["problems"][0]["path"]), (400, &"limits[0].max".into()));
}

#[test]
fn answers_of_the_harness_are_passed_on_however_large_they_are() {
    let mut host = Host::new(release(), "{}");
    let text = |filling: &str| {
        format!("{{\"limits\":[{}]}}", vec![filling; (3 << 20) / (filling.len() + 1)].join(","))
    };
    for filling in ["1", "{}", "\"x\"", "{\"provider\":\"p\",\"model\":\"m\",\"max\":1}"] {
        let read = ask_of(&mut host, Request { path: CONFIG.into(), ..get("") }, |_| {
            let (value, base, user) = (text(filling), text(filling), "{}".into());
            Answer::Settings(Ok(Section {
                value,
                base,
                user,
                in_force: true,
                writable: true,
                revision: None,
            }))
        });
        assert_eq!(read.status, 200, "{:?}", host.plugin.status().last_error);
        assert_eq!(json(&read)["problems"][0]["path"], "", "it is too long to be in force");
    }
    let many: Vec<_> = (0..4_000).map(|n| Model { id: format!("p{n}"), name: "x".repeat(100) }).collect();
    let catalog = ask_of(&mut host, Request { path: CATALOG.into(), ..get("") }, |question| match question {
        Question::ListProviders => Answer::Providers(many.clone()),
        _ => Answer::Unavailable,
    });
    let catalog = json(&catalog);
    assert_eq!(catalog["providers"].as_array().map(Vec::len), Some(200));
    assert!(catalog["error"].as_str().is_some_and(|error| error.contains("more than 200")), "{catalog}");
    assert_eq!((host.plugin.status().restarts, host.plugin.status().last_error), (0, None));
}

#[test]
fn metrics_are_text_of_prometheus() {
    let mut host = Host::new(release(), &limit(2, ""));
    host.stream("a");
    let response = ask(&mut host, Request { path: METRICS.into(), ..get("") });
    assert_eq!(response.status, 200);
    let content_type = ("content-type".to_owned(), "text/plain; version=0.0.4; charset=utf-8".to_owned());
    assert!(response.headers.contains(&content_type));
    let text = String::from_utf8(response.body).expect("text");
    for line in [
        "gen_limit_component_restarts_total 0\n",
        "# TYPE gen_limit_scope_seats_occupied gauge\ngen_limit_scope_seats_occupied{scope=\"p/m\"} 1\n",
        &format!("component=\"{}\"}} 1\n", release().sha256()),
    ] {
        assert!(text.contains(line), "{line}: {text}");
    }
}

#[test]
fn a_request_that_waits_for_the_harness_is_answered_by_the_host_when_the_instance_dies() {
    let mut host = Host::new(chaos(), &limit(1, ""));
    let open = host.plugin.request(Request { path: CONFIG.into(), ..get("") }, host.now);
    let asks = host.plugin.take_asks();
    host.order("a", "trap");
    let responses = host.plugin.take_responses();
    assert_eq!((responses.len(), responses[0].0, responses[0].1.status), (1, open, 503));
    host.plugin.answer(asks[0].id, Answer::Unavailable, host.now);
    assert!(host.plugin.take_responses().is_empty());
}

#[test]
fn whoever_changes_the_configuration_under_many_calls_is_answered_by_the_instance_that_was_asked() {
    let mut host = Host::new(release(), &limit(1, r#","maxQueued":2000"#));
    let running = host.stream("a");
    let waiting: Vec<_> = (0..1_200).map(|n| host.stream(&format!("s{n}")).id).collect();
    let id = host.plugin.request(post(r#"{"maxQueued":3000}"#), host.now);
    let beside = host.plugin.request(Request { path: CATALOG.into(), ..get("") }, host.now);
    let asks = host.plugin.take_asks();
    let [update, providers] = &asks[..] else { panic!("{asks:?}") };
    assert!(matches!(update.question, Question::UpdateSettings { .. }));

    // As a harness does: it is in force before the question is answered. So many calls take a new instance.
    let changed = limit(1, r#","maxQueued":3000"#);
    host.plugin.configure(&changed, Mode::Strict, host.now).expect("it is valid");
    assert!(host.plugin.take_responses().is_empty());
    let section = Section {
        value: changed,
        base: "{}".into(),
        user: "{}".into(),
        in_force: true,
        writable: true,
        revision: None,
    };
    host.plugin.answer(update.id, Answer::Settings(Ok(section)), host.now);
    let responses = host.plugin.take_responses();
    assert_eq!((responses.len(), responses[0].0, responses[0].1.status), (1, id, 200));
    assert_eq!(json(&responses[0].1)["inForce"], true);

    // The other one is still open, and counts as such, until it is answered as well.
    host.plugin.answer(providers.id, Answer::Providers(Vec::new()), host.now);
    let responses = host.plugin.take_responses();
    assert_eq!((responses.len(), responses[0].0, responses[0].1.status), (1, beside, 200));
    host.end(running.id);
    assert_eq!(host.admitted(), waiting[..1]);
    let status = host.plugin.status();
    assert_eq!((status.restarts, status.last_error), (0, None));
}

#[test]
fn requests_that_bring_the_component_down_lift_no_limit() {
    let mut host = Host::new(chaos(), &limit(1, r#","maxRestarts":2"#));
    host.stream("a");
    let mut statuses = Vec::new();
    for _ in 0..6 {
        statuses.push(ask(&mut host, get("chaos=trap")).status);
    }
    assert_eq!((host.plugin.status().state, host.plugin.status().restarts), (State::Running, 3));
    assert_eq!(statuses, [503; 6]);
    let words = String::from_utf8_lossy(&ask(&mut host, get("")).body).into_owned();
    assert!(words.contains("too often"), "{words}");
    assert!(is_waiting(&host.stream("b")), "the limit holds");
    host.pass(60_000);
    assert_eq!(ask(&mut host, get("")).status, 200, "and requests are answered again");
}

#[test]
fn the_hosts_futures_are_answered_and_no_hook_is_made_async_by_them() {
    let mut host = Host::new(chaos(), &limit(9, ""));
    let id = host.plugin.request(get("chaos=ask"), host.now);
    // It asks one thing after the other.
    let mut asked = Vec::new();
    while let [Ask { id, question }] = &host.plugin.take_asks()[..] {
        assert!(host.plugin.take_responses().is_empty());
        assert!(is_admitted(&host.stream(&format!("beside {question:?}"))));
        asked.push(question.clone());
        host.plugin.answer(*id, Answer::Unavailable, host.now);
    }
    assert_eq!(asked.len(), 5, "{asked:?}");
    let responses = host.plugin.take_responses();
    let [(answered, response)] = &responses[..] else { panic!("{responses:?}") };
    assert_eq!(*answered, id);
    let text = String::from_utf8_lossy(&response.body);
    assert!(text.contains("Unavailable") && text.contains("no llm service") && text.contains("[]"), "{text}");
}

#[test]
fn answers_reach_the_component_as_they_are_given() {
    let mut host = Host::new(chaos(), "{}");
    host.plugin.request(get("chaos=ask"), host.now);
    while let [Ask { id, question }] = &host.plugin.take_asks()[..] {
        let section = |value: &str| Section {
            value: value.into(),
            base: "{}".into(),
            user: "{}".into(),
            in_force: true,
            writable: true,
            revision: Some("r1".into()),
        };
        let model = |id: &str| Model { id: id.into(), name: id.to_uppercase() };
        let answer = match question {
            Question::ReadSettings => Answer::Settings(Ok(section("as read"))),
            Question::UpdateSettings { .. } => {
                Answer::Settings(Err(SettingsError::Conflict(section("of another"))))
            }
            Question::ListProviders => Answer::Providers(vec![model("box")]),
            Question::ListModels { provider } => Answer::Models(Err(format!("{provider} is down"))),
            Question::DescribeSessions { ids } => Answer::Sessions(
                ids.iter()
                    .map(|id| SessionInfo {
                        id: id.clone(),
                        label: Some("title".into()),
                        parent: None,
                        root: None,
                    })
                    .collect(),
            ),
        };
        host.plugin.answer(*id, answer, host.now);
    }
    let responses = host.plugin.take_responses();
    let text = String::from_utf8_lossy(&responses[0].1.body);
    for given in ["as read", "of another", "r1", "BOX", "p is down", "title"] {
        assert!(text.contains(given), "{given}: {text}");
    }
}

#[test]
fn an_answer_for_an_instance_that_died_reaches_nobody() {
    let mut host = Host::new(chaos(), "{}");
    host.plugin.request(get("chaos=ask"), host.now);
    let asks = host.plugin.take_asks();
    host.order("a", "trap");
    assert_eq!(host.plugin.take_responses()[0].1.status, 503);
    host.plugin.request(get("chaos=ask"), host.now);
    host.plugin.answer(asks[0].id, Answer::Unavailable, host.now);
    host.plugin.answer(asks[0].id + 1_000, Answer::Unavailable, host.now);
    let open = host.plugin.take_asks();
    assert_eq!(open.len(), 1, "the new instance's first question stands");
    assert_ne!(open[0].id, asks[0].id);
    assert!(host.plugin.take_responses().is_empty());
}

#[test]
fn hooks_go_on_beside_open_requests_which_are_bounded() {
    let mut host = Host::new(chaos(), &limit(1, ""));
    let open: Vec<_> = (0..32).map(|_| host.plugin.request(get("chaos=hang"), host.now)).collect();
    assert!(host.plugin.take_responses().is_empty());
    let refused = ask(&mut host, get(""));
    assert_eq!(refused.status, 503);
    let running = host.stream("a");
    let waiting = host.stream("b");
    assert!(is_admitted(&running) && is_waiting(&waiting));
    host.end(running.id);
    assert_eq!(host.admitted(), [waiting.id]);
    host.plugin.turn(host.now);
    assert!(host.plugin.take_responses().is_empty());

    host.order("c", "trap");
    let mut failed = host.plugin.take_responses();
    failed.sort_unstable_by_key(|(id, _)| *id);
    assert!(failed.iter().all(|(_, response)| response.status == 503));
    assert_eq!(
        failed.into_iter().map(|(id, _)| id).collect::<Vec<_>>(),
        open,
        "a trap answers them all, once"
    );
    assert_eq!(ask(&mut host, get("")).status, 200);
}

#[test]
fn a_request_that_traps_or_loops_gets_503_and_costs_nobody_else_anything() {
    for fault in ["trap", "loop", "eat"] {
        let mut host = Host::new(chaos(), &limit(1, ""));
        let running = host.stream("a");
        let waiting = host.stream("b");
        assert_eq!(ask(&mut host, get(&format!("chaos={fault}"))).status, 503, "{fault}");
        assert_eq!((host.plugin.status().state, host.plugin.status().restarts), (State::Running, 1));
        host.end(running.id);
        assert_eq!(host.admitted(), [waiting.id], "{fault}");
    }
}

#[test]
fn without_a_component_requests_get_503() {
    let mut host = Host::new(chaos(), r#"{"maxRestarts":0}"#);
    host.order("a", "trap");
    assert_eq!(ask(&mut host, get("")).status, 503);
}

#[test]
fn a_status_that_is_none_becomes_502() {
    let mut host = Host::new(chaos(), "{}");
    assert_eq!(ask(&mut host, get("chaos=status:204")).status, 204);
    for status in [0, 99, 101, 1_000, 65_535] {
        assert_eq!(ask(&mut host, get(&format!("chaos=status:{status}"))).status, 502);
    }
}
