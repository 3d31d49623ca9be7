//! Several plugins that all must admit: a budget of calls a minute, and after it the limiter.

use component_tests::{
    ROUTE, budget, chaos, denied, hostile, is_admitted, is_waiting, release, runtime, spawn, stream,
};
use gen_limit_runtime::{
    CallId, Chain, Component, Instant, Limits, Mode, Options, Outcome, Request, Started, State, StreamCall,
};

const MINUTE: u64 = 60_000;
const OWN: &str = "gen-limit";

/// A chain and the clock of its host.
struct World {
    chain: Chain,
    now: Instant,
}

impl World {
    /// The limiter alone, with so many seats on the usual route.
    fn new(max: u32) -> Self {
        let options = Options { limits: Limits::default(), config: limit(max), mode: Mode::Strict };
        let (chain, _) = Chain::new(runtime(), OWN, release(), options, 1_000).expect("a chain");
        Self { chain, now: 1_000 }
    }

    fn put(&mut self, name: &str, component: Component, config: &str) {
        let config = Some((config.to_owned(), Mode::Strict));
        self.chain.put(name, component, Limits::default(), config, self.now).expect("a plugin");
    }

    fn budget(&mut self, name: &str, per_minute: u32) {
        self.put(name, budget(), &format!(r#"{{"perMinute":{per_minute},"maxWaitMs":600000}}"#));
    }

    fn stream(&mut self, session: &str) -> Started {
        self.chain.start_stream(stream(session), self.now)
    }

    fn end(&mut self, id: CallId) {
        self.chain.finish(id, Outcome::Completed, self.now);
    }

    fn pass(&mut self, ms: u64) {
        self.now += ms;
        self.chain.tick(self.now);
    }

    fn admitted(&mut self) -> Vec<CallId> {
        let settled = self.chain.take_settled().into_iter();
        settled.map(|settled| settled.result.map(|()| settled.id).expect("nobody is refused")).collect()
    }

    /// Calls that run and that wait, as each plugin counts them.
    fn counts(&self, name: &str) -> (usize, usize) {
        let status = self.chain.plugin(name).expect("a plugin of that name").status();
        (status.live, status.waiting)
    }
}

fn limit(max: u32) -> String {
    format!(r#"{{"limits":[{{"provider":"{}","model":"{}","max":{max}}}]}}"#, ROUTE.0, ROUTE.1)
}

#[test]
fn plugins_are_asked_in_the_order_of_their_names_and_whoever_may_hold_seats_comes_last() {
    let mut world = World::new(1);
    world.budget("zebra", 1);
    // The name its paths are below.
    world.put("dsh-gen-limit", release(), "{}");
    world.budget("mole", 1);
    assert_eq!(world.chain.names().collect::<Vec<_>>(), ["mole", "zebra", "dsh-gen-limit", OWN]);
}

#[test]
fn all_must_admit() {
    let mut world = World::new(1);
    world.budget("budget", 2);
    let first = world.stream("a");
    assert!(is_admitted(&first));
    // The budget has one more, the limiter has no seat.
    let second = world.stream("b");
    assert!(is_waiting(&second));
    assert_eq!((world.counts("budget"), world.counts(OWN)), ((2, 0), (1, 1)));
    world.end(first.id);
    assert_eq!(world.admitted(), [second.id]);
    // Now it is the budget that has none, while the limiter would have.
    world.end(second.id);
    let third = world.stream("c");
    assert!(is_waiting(&third));
    assert_eq!(world.counts(OWN), (0, 0), "an earlier wait delays the question: no seat is held meanwhile");
    world.pass(MINUTE);
    assert_eq!(world.admitted(), [third.id]);
    assert_eq!(world.counts(OWN), (1, 0));
}

#[test]
fn what_an_earlier_one_admitted_is_over_when_a_later_one_refuses() {
    let mut world = World::new(1);
    world.budget("budget", 100);
    let config = limit(1).replacen('{', r#"{"maxQueued":0,"#, 1);
    world.chain.configure(OWN, &config, Mode::Strict, world.now).expect("valid");
    assert!(is_admitted(&world.stream("a")));
    assert_eq!(denied(&world.stream("b")).code, "GEN_CAPACITY_EXCEEDED");
    assert_eq!(world.counts("budget"), (1, 0));
}

#[test]
fn a_wait_that_a_later_one_refuses_is_refused_to_the_caller_and_over_everywhere() {
    let mut world = World::new(1);
    world.budget("budget", 1);
    let config = limit(1).replacen('{', r#"{"maxQueued":0,"#, 1);
    world.chain.configure(OWN, &config, Mode::Strict, world.now).expect("valid");
    assert!(is_admitted(&world.stream("a")));
    let second = world.stream("b");
    assert!(is_waiting(&second));
    world.pass(MINUTE);
    let [settled] = &world.chain.take_settled()[..] else { panic!("one wait ended") };
    let refusal = settled.result.as_ref().expect_err("the line is closed");
    assert_eq!((settled.id, refusal.code.as_str()), (second.id, "GEN_CAPACITY_EXCEEDED"));
    assert_eq!((world.counts("budget"), world.counts(OWN)), ((1, 0), (1, 0)));
}

#[test]
fn who_has_waited_earlier_is_older_than_who_came_later() {
    let mut world = World::new(1);
    world.budget("budget", 1);
    let running = world.stream("a");
    let patient = world.stream("b");
    assert!(is_waiting(&patient));
    // Without the budget's word a newer call stands in the limiter's line first.
    world.chain.remove("budget", world.now);
    let late = world.stream("c");
    assert!(is_waiting(&late));
    world.end(running.id);
    assert_eq!(world.admitted(), [patient.id]);
}

#[test]
fn who_gives_up_is_over_wherever_it_stands() {
    let mut world = World::new(1);
    world.budget("budget", 2);
    let [running, seatless, budgetless] = ["a", "b", "c"].map(|session| world.stream(session).id);
    for id in [budgetless, seatless, running] {
        world.chain.finish(id, Outcome::Cancelled, world.now);
        world.chain.finish(id, Outcome::Cancelled, world.now);
    }
    world.pass(MINUTE);
    assert!(world.admitted().is_empty());
    assert_eq!((world.counts("budget"), world.counts(OWN)), ((0, 0), (0, 0)));
}

#[test]
fn one_that_is_added_knows_who_is_past_its_place() {
    let mut world = World::new(1);
    let (running, waiting) = (world.stream("a"), world.stream("b"));
    world.budget("budget", 2);
    assert_eq!(world.counts("budget"), (2, 0), "one that runs, one that waits behind it");
    assert!(is_waiting(&world.stream("c")));
    assert_eq!(world.counts("budget"), (2, 1));
    world.end(running.id);
    assert_eq!(world.admitted(), [waiting.id]);
    world.end(waiting.id);
    assert_eq!(world.counts("budget"), (0, 1));
}

#[test]
fn one_that_is_replaced_keeps_who_runs_and_who_waits() {
    let mut world = World::new(4);
    world.budget("budget", 1);
    let running = world.stream("a");
    let waiting = ["b", "c"].map(|session| world.stream(session).id);
    world.budget("budget", 3);
    world.pass(0);
    assert_eq!(world.admitted(), waiting);
    assert_eq!(world.counts(OWN), (3, 0));
    world.chain.replace("budget", budget(), world.now).expect("the same again");
    assert_eq!(world.counts("budget"), (3, 0));
    world.end(running.id);
    assert_eq!(world.counts("budget"), (2, 0));
}

#[test]
fn the_host_s_own_is_replaced_under_its_configuration_and_is_never_removed() {
    let mut world = World::new(1);
    let (running, waiting) = (world.stream("a"), world.stream("b"));
    world.chain.replace(OWN, chaos(), world.now).expect("another build");
    assert_eq!(world.chain.status().sha256, chaos().sha256());
    assert!(is_waiting(&world.stream("c")));
    world.chain.remove(OWN, world.now);
    assert_eq!(world.counts(OWN), (1, 2));
    world.end(running.id);
    assert_eq!(world.admitted(), [waiting.id]);
}

#[test]
fn where_one_is_removed_those_it_kept_waiting_go_on_to_the_next() {
    let mut world = World::new(2);
    world.budget("budget", 1);
    let running = world.stream("a");
    let waiting = ["b", "c"].map(|session| world.stream(session).id);
    world.chain.remove("budget", world.now);
    assert_eq!(world.admitted(), [waiting[0]], "the limiter has one seat more");
    assert_eq!(world.counts(OWN), (2, 1));
    world.end(running.id);
    assert_eq!(world.admitted(), [waiting[1]]);
    world.chain.remove("budget", world.now);
}

#[test]
fn one_that_cannot_be_brought_to_work_changes_nothing() {
    let mut world = World::new(1);
    world.budget("budget", 1);
    let running = world.stream("a");
    let waiting = world.stream("b");
    let wrong = Some((r#"{"perMinute":"ten"}"#.to_owned(), Mode::Strict));
    for name in ["budget", "another"] {
        let limits = Limits::default();
        let error = world.chain.put(name, budget(), limits, wrong.clone(), world.now).expect_err("refused");
        assert!(error.to_string().contains("perMinute"), "{error}");
    }
    assert_eq!(world.chain.names().collect::<Vec<_>>(), ["budget", OWN]);
    world.end(running.id);
    world.pass(MINUTE);
    assert_eq!(world.admitted(), [waiting.id]);
}

#[test]
fn one_may_serve_below_its_own_name_alone() {
    let mut world = World::new(1);
    let config = Some(("{}".to_owned(), Mode::Strict));
    let error = world
        .chain
        .put("another", release(), Limits::default(), config.clone(), world.now)
        .expect_err("its paths are another's");
    let words = error.to_string();
    assert!(words.contains("/api/dsh-gen-limit/") && words.contains("/api/another/"), "{words}");
    world.chain.put("dsh-gen-limit", release(), Limits::default(), config, world.now).expect("its own");
}

#[test]
fn the_fault_of_one_is_no_other_s() {
    let mut world = World::new(1);
    world.put("dsh-gen-limit", chaos(), r#"{"maxRestarts":0}"#);
    let order = |what: &str| StreamCall { extra: vec![("chaos".into(), what.into())], ..stream("x") };
    let first = world.chain.start_stream(order("trap"), world.now);
    let state = |world: &World, name| world.chain.plugin(name).expect("there").status().state;
    assert!(is_admitted(&first), "what its policy says");
    assert_eq!((state(&world, "dsh-gen-limit"), state(&world, OWN)), (State::FailedOpen, State::Running));
    let second = world.stream("b");
    assert!(is_waiting(&second), "the limiter holds all the same");
    world.end(first.id);
    assert_eq!(world.admitted(), [second.id]);
    let lines = world.chain.take_log();
    assert!(
        lines.iter().any(|line| line.message.contains("the plugin dsh-gen-limit has FAILED")),
        "{lines:?}"
    );
}

#[test]
fn a_spawn_is_brought_to_those_alone_that_pace_such_tools() {
    let mut world = World::new(1);
    world.budget("budget", 1);
    assert_eq!(world.chain.tools(), ["subagent", "subagent_fork"]);
    let spawns = [1, 2].map(|_| world.chain.start_tool(spawn("root"), world.now));
    assert!(is_admitted(&spawns[0]) && is_waiting(&spawns[1]));
    assert_eq!(world.counts("budget"), (0, 0));
}

#[test]
fn stats_tell_of_the_others_and_of_what_the_host_knows() {
    let mut world = World::new(1);
    world.budget("budget", 1);
    world.stream("a");
    let facts = serde_json::json!({ "tenants": ["x"] });
    world.chain.tell_of_host(facts.as_object().expect("an object").clone());
    let request = Request {
        method: "GET".into(),
        path: "/api/dsh-gen-limit/stats".into(),
        query: "describe=false".into(),
        ..Request::default()
    };
    let id = world.chain.request(request, world.now);
    let [(answered, response)] = &world.chain.take_responses()[..] else { panic!("one answer") };
    let stats: serde_json::Value = serde_json::from_slice(&response.body).expect("JSON");
    assert_eq!(*answered, id);
    assert_eq!(stats["host"]["tenants"][0], "x");
    assert_eq!(stats["host"]["plugins"][0]["name"], "budget");
    assert_eq!(stats["host"]["plugins"][0]["live"], 1);
}

/// The limiter on a route of one seat, in a place where it is asked first, and a plugin after it that keeps everybody waiting.
fn one_that_admits_before_one_that_waits(world: &mut World) {
    world.put("dsh-gen-limit", release(), &limit(1));
    world.put("hostile", hostile(), r#"{"calls":"wait"}"#);
    assert_eq!(world.chain.names().collect::<Vec<_>>(), ["dsh-gen-limit", "hostile", OWN]);
}

#[test]
fn nobody_is_brought_to_one_that_is_being_removed() {
    let mut world = World::new(0);
    let config = limit(0).replacen('{', r#"{"maxQueued":0,"#, 1);
    world.chain.configure(OWN, &config, Mode::Strict, world.now).expect("valid");
    one_that_admits_before_one_that_waits(&mut world);
    let [there, before] = ["a", "b"].map(|session| world.stream(session).id);
    assert_eq!((world.counts("hostile"), world.counts("dsh-gen-limit")), ((0, 1), (1, 1)));
    // The limiter refuses the one, so the first has a seat for the other.
    world.chain.remove("hostile", world.now);
    let mut settled: Vec<_> = world.chain.take_settled();
    settled.sort_by_key(|settled| settled.id);
    assert!(settled.iter().all(|settled| settled.result.is_err()), "{settled:?}");
    assert_eq!(settled.iter().map(|settled| settled.id).collect::<Vec<_>>(), [there, before]);
    assert_eq!((world.counts("dsh-gen-limit"), world.counts(OWN)), ((0, 0), (0, 0)));
}

#[test]
fn who_waits_at_one_that_gets_a_later_place_is_brought_to_those_it_was_before() {
    let mut world = World::new(9);
    world.budget("hostile", 1);
    world.budget("zebra", 1);
    let [running, waiting] = ["a", "b"].map(|session| world.stream(session).id);
    assert_eq!((world.counts("hostile"), world.counts("zebra")), ((1, 1), (1, 0)));
    world.put("hostile", hostile(), "{}");
    assert_eq!(world.chain.names().collect::<Vec<_>>(), ["zebra", "hostile", OWN]);
    assert!(world.admitted().is_empty(), "zebra has none left");
    assert_eq!((world.counts("hostile"), world.counts("zebra")), ((2, 0), (1, 1)));
    world.pass(MINUTE);
    assert_eq!(world.admitted(), [waiting]);
    for id in [running, waiting] {
        world.end(id);
    }
    assert_eq!(["hostile", "zebra", OWN].map(|name| world.counts(name)), [(0, 0); 3]);
}

#[test]
fn one_that_gets_an_earlier_place_counts_who_is_past_it_and_its_refusal_holds_for_all() {
    let mut world = World::new(9);
    world.budget("mole", 2);
    world.put("hostile", hostile(), r#"{"calls":"wait"}"#);
    let [refused, other, before] = ["a", "b", "c"].map(|session| world.stream(session).id);
    assert_eq!((world.counts("mole"), world.counts("hostile")), ((2, 1), (0, 2)));
    world.end(other);
    world.put("hostile", budget(), r#"{"perMinute":0,"maxWaitMs":1}"#);
    assert_eq!(world.chain.names().collect::<Vec<_>>(), ["hostile", "mole", OWN]);
    assert_eq!(world.counts("hostile"), (1, 1), "who waits at the other is past its place");
    world.pass(10);
    let [settled] = &world.chain.take_settled()[..] else { panic!("one wait ended") };
    assert!(settled.id == refused && settled.result.is_err(), "{settled:?}");
    assert_eq!(world.counts("mole"), (0, 1), "it does not run there either");
    world.chain.finish(before, Outcome::Cancelled, world.now);
    assert_eq!(["hostile", "mole", OWN].map(|name| world.counts(name)), [(0, 0); 3]);
}

#[test]
fn of_who_has_been_given_up_nothing_is_told_any_more() {
    let mut world = World::new(1);
    let [running, waiting] = ["a", "b"].map(|session| world.stream(session).id);
    world.end(running);
    world.chain.finish(waiting, Outcome::Cancelled, world.now);
    assert!(world.admitted().is_empty());
}

#[test]
fn one_that_is_added_is_not_told_of_tools_it_does_not_pace() {
    let mut world = World::new(9);
    let id = world.chain.start_tool(spawn("root"), world.now).id;
    world.stream("a");
    world.budget("budget", 9);
    assert_eq!(world.counts("budget"), (1, 0));
    world.end(id);
    assert_eq!(world.counts("budget"), (1, 0));
}

#[test]
fn a_successor_that_cannot_be_told_who_waits_costs_the_one_at_work_nothing() {
    let mut world = World::new(9);
    world.put("hostile", hostile(), r#"{"calls":"wait","maxRestarts":0}"#);
    let waiting = world.stream("a");
    assert!(is_waiting(&waiting));
    let config = Some((r#"{"do":"trap","in":"restore"}"#.to_owned(), Mode::Strict));
    let refused = world.chain.put("hostile", hostile(), Limits::default(), config, world.now);
    refused.expect_err("it traps");
    assert!(world.admitted().is_empty(), "the one before goes on");
    let status = world.chain.plugin("hostile").expect("there").status();
    assert_eq!((status.state, status.waiting), (State::Running, 1));
}

/// A budget that lets one through, `more` that wait there, and after it a plugin that loops over every call.
fn one_that_loops_after_one_that_holds_many(more: usize) -> (World, Vec<CallId>) {
    let mut world = World::new(100);
    world.budget("budget", 1);
    world.stream("first");
    let config = Some((r#"{"do":"loop","in":"start","maxRestarts":100}"#.to_owned(), Mode::Strict));
    world.chain.put("hostile", hostile(), Limits::foreign(), config, world.now).expect("a plugin");
    let waiting = (0..more).map(|n| world.stream(&format!("s{n}")).id).collect();
    assert_eq!(world.counts("budget"), (1, more));
    (world, waiting)
}

fn restarts(world: &World) -> u64 {
    world.chain.plugin("hostile").expect("there").status().restarts
}

#[test]
fn many_that_go_on_to_a_slow_one_are_brought_to_it_over_several_turns() {
    let (mut world, waiting) = one_that_loops_after_one_that_holds_many(5);
    world.budget("budget", 100);
    let mut admitted = world.admitted();
    for turn in 1.. {
        assert!(restarts(&world) <= turn, "it loops once in a turn");
        if admitted.len() == waiting.len() {
            break;
        }
        assert!(world.chain.next_tick().is_some_and(|due| due <= world.now), "there is more to do");
        world.chain.tick(world.now);
        admitted.extend(world.admitted());
    }
    assert_eq!(admitted, waiting);
    assert_eq!(["budget", "hostile", OWN].map(|name| world.counts(name)), [(6, 0); 3]);
}

#[test]
fn who_comes_while_others_go_on_comes_after_them_and_who_gives_up_then_is_told_nothing() {
    let (mut world, waiting) = one_that_loops_after_one_that_holds_many(5);
    world.chain.remove("budget", world.now);
    let mut admitted = world.admitted();
    assert!(admitted.len() < 4, "{admitted:?}");
    let late = world.stream("late");
    assert!(is_waiting(&late));
    world.end(waiting[4]);
    // The one that is added is told of who is past its place, and asked about the others.
    world.budget("budget", 100);
    while world.chain.next_tick().is_some_and(|due| due <= world.now) {
        world.chain.tick(world.now);
    }
    admitted.extend(world.admitted());
    assert_eq!(admitted, [&waiting[..4], &[late.id]].concat());
    assert_eq!(["budget", "hostile", OWN].map(|name| world.counts(name)), [(6, 0); 3]);
}

#[test]
fn one_that_fails_over_those_it_is_told_of_is_not_put_to_work() {
    let mut world = World::new(9);
    let running = world.stream("a").id;
    let config = Some((r#"{"do":"trap","in":"restore"}"#.to_owned(), Mode::Strict));
    let put = world.chain.put("hostile", hostile(), Limits::foreign(), config, world.now);
    put.expect_err("it traps");
    assert_eq!(world.chain.names().collect::<Vec<_>>(), [OWN]);
    world.end(running);
    assert_eq!(world.counts(OWN), (0, 0));
}
