//! Another plugin in the same host: a budget of calls a minute. What the host promises holds for it as it does for the limiter.

use component_tests::{Host, ROUTE, admitted, budget, budget_path, denied, is_admitted, is_waiting, stream};
use gen_limit_runtime::{
    Inspection, Limits, Mode, Options, Outcome, Plugin, Route, StartError, StreamCall, Verdict, World,
};

const MINUTE: u64 = 60_000;

fn on(model: &str) -> StreamCall {
    StreamCall { route: Route { provider: ROUTE.0.into(), model: model.into() }, ..stream("s") }
}

#[test]
fn it_is_of_the_smaller_world_and_wants_nothing_of_the_machine() {
    let bytes = std::fs::read(budget_path()).expect("run `cargo xtask component`");
    let found = Inspection::of(&bytes).expect("a component");
    assert_eq!(found.world().expect("of this contract"), World::Hooks);
    assert!(found.imports.iter().all(|name| name.starts_with("dsh:plugin/")), "{found:?}");
    assert_eq!((found.sha256.as_str(), found.size), (budget().sha256(), bytes.len()));
}

#[test]
fn without_a_budget_everything_passes() {
    let mut host = Host::new(budget(), "{}");
    for n in 0..1_000 {
        assert!(is_admitted(&host.stream(&format!("s{n}"))));
    }
    assert_eq!(host.plugin.next_tick(), None);
}

#[test]
fn a_call_costs_no_more_for_those_of_its_minute() {
    let mut host = Host::new(budget(), r#"{"perMinute":1000000}"#);
    // Of each the quickest thousand of ten: whatever else the machine does only adds.
    let mut ten_thousand = || {
        let thousand = || {
            let begun = std::time::Instant::now();
            for _ in 0..1_000 {
                host.stream("s");
            }
            begun.elapsed()
        };
        std::iter::repeat_with(thousand).take(10).min().expect("ten")
    };
    let first = ten_thousand();
    for _ in 0..3 {
        ten_thousand();
    }
    let fifth = ten_thousand();
    assert!(fifth < 4 * first, "{first:?} for a thousand of the first calls, {fifth:?} after forty thousand");
}

#[test]
fn a_call_past_the_budget_waits_until_the_oldest_is_a_minute_old() {
    let mut host = Host::new(budget(), r#"{"perMinute":2,"maxWaitMs":600000}"#);
    assert!(is_admitted(&host.stream("a")));
    host.pass(10_000);
    assert!(is_admitted(&host.stream("b")));
    let waiting: Vec<_> = ["c", "d", "e"].map(|session| host.stream(session)).into();
    assert!(waiting.iter().all(is_waiting));
    assert_eq!(host.plugin.next_tick(), Some(1_000 + MINUTE), "a began at 1 000");
    host.pass(MINUTE - 10_000 - 1);
    assert!(host.admitted().is_empty());
    host.pass(1);
    assert_eq!(host.admitted(), [waiting[0].id]);
    host.pass(10_000);
    assert_eq!(host.admitted(), [waiting[1].id]);
    host.pass(MINUTE - 10_000);
    assert_eq!(host.admitted(), [waiting[2].id], "a minute after c");
}

#[test]
fn every_route_has_a_budget_of_its_own_and_its_own_order() {
    let mut host = Host::new(budget(), r#"{"perMinute":1,"maxWaitMs":600000}"#);
    assert!(is_admitted(&host.plugin.start_stream(on("m"), host.now)));
    let second = host.plugin.start_stream(on("m"), host.now);
    assert!(is_admitted(&host.plugin.start_stream(on("n"), host.now)));
    host.pass(MINUTE);
    assert_eq!(host.admitted(), [second.id]);
    // Who comes when there would be room does not pass who is in line.
    let third = host.plugin.start_stream(on("m"), host.now);
    assert!(is_waiting(&third));
}

#[test]
fn a_wait_that_runs_out_is_refused_in_words_and_one_that_may_not_be_is_refused_at_once() {
    let mut host = Host::new(budget(), r#"{"perMinute":1,"maxWaitMs":5000}"#);
    host.stream("a");
    let waiting = host.stream("b");
    assert!(matches!(waiting.verdict, Verdict::Wait { deadline: Some(6_000), .. }), "{waiting:?}");
    host.pass(5_000);
    let [settled] = &host.plugin.take_settled()[..] else { panic!("one wait ended") };
    let refusal = settled.result.as_ref().expect_err("it ran out");
    assert_eq!((settled.id, refusal.code.as_str()), (waiting.id, "BUDGET_EXCEEDED"));
    assert!(refusal.message.contains("p/m has had its 1 calls"), "{}", refusal.message);

    host.plugin.configure(r#"{"perMinute":1,"maxWaitMs":0}"#, Mode::Strict, host.now).expect("valid");
    assert_eq!(denied(&host.stream("c")).code, "BUDGET_EXCEEDED");
}

#[test]
fn who_gives_up_takes_nobody_s_place() {
    let mut host = Host::new(budget(), r#"{"perMinute":1,"maxWaitMs":600000}"#);
    host.stream("a");
    let waiting: Vec<_> = ["b", "c"].map(|session| host.stream(session).id).into();
    host.plugin.finish(waiting[0], Outcome::Cancelled, host.now);
    host.pass(MINUTE);
    assert_eq!(host.admitted(), [waiting[1]]);
    assert_eq!(host.plugin.status().waiting, 0);
    host.plugin.assert_store_is_empty();
}

#[test]
fn a_successor_knows_who_runs_and_who_waits() {
    let mut host = Host::new(budget(), r#"{"perMinute":1,"maxWaitMs":600000}"#);
    host.stream("a");
    let waiting: Vec<_> = ["b", "c"].map(|session| host.stream(session).id).into();
    host.pass(20_000);
    host.plugin.replace(budget(), host.now).expect("the same again");
    assert!(is_waiting(&host.stream("d")));
    host.pass(MINUTE - 20_000);
    assert_eq!(host.plugin.take_settled().iter().map(admitted).collect::<Vec<_>>(), [waiting[0]]);
}

#[test]
fn a_wrong_configuration_is_named_by_its_key() {
    for (json, path, words) in [
        ("[]", "", "expected an object"),
        (r#"{"perMinute":"ten"}"#, "perMinute", "expected a whole number from 0, found \"ten\""),
        (r#"{"maxWaitMs":-1}"#, "maxWaitMs", "found -1"),
        (r#"{"perminute":1}"#, "perminute", "unknown key"),
    ] {
        let options = Options { limits: Limits::default(), config: json.into(), mode: Mode::Strict };
        let Err(StartError::Config { problems }) =
            Plugin::new(component_tests::runtime(), budget(), options, 0)
        else {
            panic!("{json}");
        };
        assert!(
            problems.len() == 1 && problems[0].path == path && problems[0].message.contains(words),
            "{problems:?}"
        );
    }
    let mut host = Host::new(budget(), r#"{"perMinute":1}"#);
    let problems = host
        .plugin
        .configure(r#"{"perMinute":"ten","maxWaitMs":0}"#, Mode::Lenient, host.now)
        .expect("in part");
    assert_eq!(problems.len(), 1);
    assert!(is_admitted(&host.stream("a")) && is_admitted(&host.stream("b")), "what is wrong is the default");
}
