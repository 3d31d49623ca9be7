//! Ceilings: what several plugins of one process, each with limits and lines of its own, may not exceed together.

use std::collections::BTreeMap;

use component_tests::{
    Host, admitted, budget, chaos, denied, is_admitted, is_waiting, limit, release, runtime, spawn, stream,
};
use gen_limit_runtime::{
    CallId, Chain, Component, Instant, Limits, Mode, Options, Outcome, Plugin, ProcessPool, RefusalReason,
    SharedPool, Started, State, StreamCall,
};
use proptest::prelude::*;

/// The plugins of several tenants, the pool they share, and the clock of their host.
struct Tenants {
    pool: SharedPool,
    plugins: BTreeMap<&'static str, Plugin>,
    now: Instant,
}

/// A configuration with a limit of one's own on the usual route, under a ceiling.
fn under(own: i64, ceiling: i64, more: &str) -> String {
    format!(
        r#"{{"limits":[{{"provider":"p","model":"m","max":{own}}}],"ceilings":[{{"provider":"p","model":"m","max":{ceiling}}}]{more}}}"#
    )
}

/// One with ceilings alone: on the usual route, and on everything.
fn two(route: usize, everything: usize) -> String {
    format!(
        r#"{{"ceilings":[{{"provider":"p","model":"m","max":{route}}},{{"provider":"*","model":"*","max":{everything}}}]}}"#
    )
}

impl Tenants {
    /// Tenants of the same configuration.
    fn new(names: &[&'static str], config: &str) -> Self {
        let mut me = Self { pool: ProcessPool::shared(), plugins: BTreeMap::new(), now: 1_000 };
        for name in names {
            me.add(name, release(), config);
        }
        me
    }

    fn add(&mut self, name: &'static str, component: Component, config: &str) {
        let Host { mut plugin, .. } = Host::new(component, config);
        plugin.join(self.pool.clone(), name, self.now);
        self.plugins.insert(name, plugin);
        self.spread();
    }

    /// One operation of a tenant, and what a host does after it.
    fn with<R>(&mut self, name: &str, operation: impl FnOnce(&mut Plugin, Instant) -> R) -> R {
        let result = operation(self.plugins.get_mut(name).expect("a tenant"), self.now);
        self.spread();
        result
    }

    /// Has those with news collect it, until nobody has any.
    fn spread(&mut self) {
        for round in 0.. {
            let news = self.pool.lock().expect("no panic").news();
            if news.is_empty() {
                return;
            }
            assert!(round < 100, "there is news for ever");
            for plugin in self.plugins.values_mut() {
                if plugin.member().is_some_and(|member| news.contains(&member)) {
                    plugin.collect_grants(self.now);
                }
            }
        }
    }

    fn stream(&mut self, name: &str, session: &str) -> Started {
        self.with(name, |plugin, now| plugin.start_stream(stream(session), now))
    }

    fn spawn(&mut self, name: &str) -> Started {
        self.with(name, |plugin, now| plugin.start_tool(spawn("root"), now))
    }

    fn end(&mut self, name: &str, id: CallId) {
        self.with(name, |plugin, now| plugin.finish(id, Outcome::Completed, now));
    }

    fn configure(&mut self, name: &str, config: &str) {
        self.with(name, |plugin, now| plugin.configure(config, Mode::Strict, now)).expect("it is valid");
    }

    fn pass(&mut self, ms: u64) {
        self.now += ms;
        for name in self.plugins.keys().copied().collect::<Vec<_>>() {
            self.with(name, Plugin::tick);
        }
    }

    /// Those that came in from the line since the last time, by tenant.
    fn admitted(&mut self) -> Vec<(&'static str, CallId)> {
        let settled = self.plugins.iter_mut().map(|(name, plugin)| (*name, plugin.take_settled()));
        settled
            .flat_map(|(name, settled)| settled.into_iter().map(move |one| (name, admitted(&one))))
            .collect()
    }

    fn live(&self) -> usize {
        self.plugins.values().map(|plugin| plugin.status().live).sum()
    }

    fn waiting(&self) -> usize {
        self.plugins.values().map(|plugin| plugin.status().waiting).sum()
    }

    /// Seats that are held of the usual route, by tenant.
    fn held(&self) -> Vec<(String, u32)> {
        let view = self.pool.lock().expect("no panic").view();
        let scope = view.into_iter().find(|scope| scope.scope == "p/m");
        scope.map_or_else(Vec::new, |scope| {
            scope.members.into_iter().map(|one| (one.name, one.held)).collect()
        })
    }
}

const NOBODY: [(&str, CallId); 0] = [];

#[test]
fn the_ceiling_holds_over_all_whatever_each_ones_own_limit_says() {
    let mut tenants = Tenants::new(&["a", "b"], &under(2, 3, ""));
    let a: Vec<_> = ["1", "2", "3"].map(|session| tenants.stream("a", session)).into();
    let b: Vec<_> = ["1", "2"].map(|session| tenants.stream("b", session)).into();
    assert_eq!(a.iter().map(is_admitted).collect::<Vec<_>>(), [true, true, false], "its own limit holds");
    assert_eq!(b.iter().map(is_admitted).collect::<Vec<_>>(), [true, false], "the ceiling holds");
    tenants.end("b", b[0].id);
    assert_eq!(tenants.admitted(), [("b", b[1].id)], "nobody else may use it");
    tenants.end("a", a[0].id);
    assert_eq!(tenants.admitted(), [("a", a[2].id)]);
    assert_eq!((tenants.live(), tenants.waiting()), (3, 0));
}

#[test]
fn a_seat_that_the_pool_has_at_once_is_an_admission_at_once() {
    let mut tenants = Tenants::new(&["a", "b"], &under(-1, 2, ""));
    assert!(is_admitted(&tenants.stream("a", "1")));
    let first = tenants.spawn("b");
    assert!(is_admitted(&first), "{first:?}");
    assert_eq!(tenants.admitted(), NOBODY, "and is told of once");
}

#[test]
fn seats_that_lie_idle_elsewhere_are_there_for_whoever_asks() {
    let mut tenants = Tenants::new(&["a", "b"], &under(-1, 2, ""));
    for _ in 0..3 {
        for name in ["a", "b"] {
            let ids: Vec<_> = ["1", "2"].map(|session| tenants.stream(name, session).id).into();
            tenants.admitted();
            assert_eq!((tenants.live(), tenants.waiting()), (2, 0), "{name}");
            for id in ids {
                tenants.end(name, id);
            }
        }
    }
}

#[test]
fn within_a_tenant_the_oldest_goes_first_and_tenants_take_turns() {
    let mut tenants = Tenants::new(&["a", "b", "c"], &under(-1, 1, ""));
    let mut running = ("a", tenants.stream("a", "first").id);
    let mut lines: BTreeMap<&str, Vec<CallId>> = BTreeMap::new();
    for n in 0..5 {
        lines.entry("a").or_default().push(tenants.stream("a", &format!("s{n}")).id);
    }
    for (name, calls) in [("b", 3), ("c", 2)] {
        for n in 0..calls {
            lines.entry(name).or_default().push(tenants.stream(name, &format!("s{n}")).id);
        }
    }
    let mut turns = Vec::new();
    while tenants.live() > 0 {
        let (name, id) = running;
        tenants.end(name, id);
        let next = tenants.admitted();
        assert!(next.len() <= 1, "one seat for one: {next:?}");
        let Some(&next) = next.first() else { break };
        assert_eq!(
            lines.get_mut(next.0).map(|line| line.remove(0)),
            Some(next.1),
            "the oldest of {}",
            next.0
        );
        turns.push(next.0);
        running = next;
    }
    assert_eq!(turns, ["b", "c", "a", "b", "c", "a", "b", "a", "a", "a"]);
}

#[test]
fn two_who_both_need_two_ceilings_never_lock_each_other_out() {
    for (route, everything) in [(1, 1), (1, 2), (2, 1), (2, 2)] {
        let mut tenants = Tenants::new(&["a", "b"], &two(route, everything));
        let mut calls: Vec<(&str, CallId)> = Vec::new();
        for n in 0..4 {
            for name in ["a", "b"] {
                calls.push((name, tenants.stream(name, &format!("s{n}")).id));
            }
        }
        let mut rounds = 0;
        while tenants.live() > 0 {
            assert_eq!(tenants.live(), route.min(everything).min(calls.len()));
            for (name, id) in calls.clone() {
                let is_live = tenants.plugins[name].status().live > 0;
                if is_live {
                    tenants.end(name, id);
                    calls.retain(|call| *call != (name, id));
                    break;
                }
            }
            rounds += 1;
            assert!(rounds < 100);
        }
        assert_eq!((tenants.waiting(), calls.len()), (0, 0), "{route} and {everything}");
    }
}

#[test]
fn a_dropped_tenant_frees_its_seats_and_the_other_goes_on() {
    let mut tenants = Tenants::new(&["a", "b"], &under(-1, 2, ""));
    for session in ["1", "2", "3"] {
        tenants.stream("a", session);
    }
    let waiting: Vec<_> = ["1", "2"].map(|session| tenants.stream("b", session).id).into();
    assert_eq!(tenants.admitted(), NOBODY);
    tenants.plugins.remove("a");
    tenants.spread();
    assert_eq!(tenants.admitted(), [("b", waiting[0]), ("b", waiting[1])]);
}

fn order(session: &str, order: &str) -> StreamCall {
    StreamCall { extra: vec![("chaos".into(), order.into())], ..stream(session) }
}

#[test]
fn a_trap_at_whatever_point_loses_no_seat_and_admits_nobody_too_many() {
    let mut struck = 0;
    for at in 1..=60 {
        let mut tenants = Tenants::new(&["a"], &under(-1, 2, ""));
        tenants.add("b", chaos(), &under(-1, 2, ""));
        let mut calls = vec![(
            "b",
            tenants.with("b", |b, now| b.start_stream(order("0", &format!("trap-in:{at}")), now)).id,
        )];
        for n in 0..4 {
            for name in ["a", "b"] {
                calls.push((name, tenants.stream(name, &format!("s{n}")).id));
                assert!(tenants.live() <= 2, "trapped at {at}: {:?}", tenants.held());
            }
        }
        let mut running: Vec<_> = calls.iter().take(2).copied().collect();
        let mut served = 2;
        while let Some((name, id)) = running.pop() {
            tenants.end(name, id);
            let next = tenants.admitted();
            served += next.len();
            running.extend(next);
            assert!(tenants.live() <= 2, "trapped at {at}: {:?}", tenants.held());
        }
        struck += tenants.plugins["b"].status().restarts;
        assert_eq!((served, tenants.live(), tenants.waiting()), (calls.len(), 0, 0), "trapped at {at}");
        let held: u32 = tenants.held().iter().map(|(_, held)| held).sum();
        assert!(held <= 2, "trapped at {at}: {:?}", tenants.held());
    }
    assert!(struck > 30, "{struck} traps");
}

#[test]
fn a_replaced_component_holds_what_the_one_before_it_held() {
    let mut tenants = Tenants::new(&["a", "b"], &under(-1, 3, ""));
    let ids: Vec<_> = ["1", "2"].map(|session| tenants.stream("a", session).id).into();
    let b = tenants.stream("b", "1").id;
    let (a3, b2) = (tenants.stream("a", "3").id, tenants.stream("b", "2").id);
    for name in ["a", "b"] {
        tenants.with(name, |plugin, now| plugin.replace(release(), now)).expect("the same build again");
        assert_eq!((tenants.live(), tenants.waiting()), (3, 2));
    }
    tenants.end("b", b);
    assert_eq!(tenants.admitted(), [("a", a3)], "turns are as they were");
    tenants.end("a", ids[0]);
    assert_eq!(tenants.admitted(), [("b", b2)]);
}

#[test]
fn a_ceiling_is_raised_lowered_and_removed_while_calls_run_and_wait() {
    let mut tenants = Tenants::new(&["a", "b"], &under(-1, 2, ""));
    let mut running: Vec<(&str, CallId)> = Vec::new();
    for n in 0..5 {
        for name in ["a", "b"] {
            let started = tenants.stream(name, &format!("s{n}"));
            if is_admitted(&started) {
                running.push((name, started.id));
            }
        }
    }
    assert_eq!((tenants.live(), tenants.waiting()), (2, 8));
    tenants.configure("a", &under(-1, 4, ""));
    assert_eq!(tenants.live(), 2, "the lowest of them counts");
    tenants.configure("b", &under(-1, 4, ""));
    assert_eq!(tenants.live(), 4);
    running.extend(tenants.admitted());
    tenants.configure("a", &under(-1, 3, ""));
    tenants.configure("b", &under(-1, 3, ""));
    assert_eq!(tenants.live(), 4, "nobody is stopped");
    let (name, id) = running.remove(0);
    tenants.end(name, id);
    assert_eq!((tenants.live(), tenants.admitted()), (3, NOBODY.to_vec()));
    let (name, id) = running.remove(0);
    tenants.end(name, id);
    running.extend(tenants.admitted());
    assert_eq!(tenants.live(), 3);
    tenants.configure("a", "{}");
    assert_eq!(tenants.plugins["a"].status().waiting, 0, "no limit, no line");
    assert_eq!(tenants.held().len(), 1, "it shares nothing any more");
    let b = tenants.plugins["b"].status();
    assert_eq!(b.live, b.live.min(3));
    tenants.configure("b", &under(-1, 0, ""));
    let b = tenants.plugins["b"].status();
    assert!(b.waiting > 0 && b.live <= 3);
    tenants.configure("b", "{}");
    assert_eq!((tenants.live(), tenants.waiting()), (8, 0));
    assert!(tenants.held().is_empty());
}

#[test]
fn calls_that_began_before_there_was_a_ceiling_count() {
    let mut tenants = Tenants::new(&["a", "b"], "{}");
    let ids: Vec<_> = (0..5).map(|n| tenants.stream("a", &format!("s{n}")).id).collect();
    for name in ["a", "b"] {
        tenants.configure(name, &under(-1, 3, ""));
    }
    let b = tenants.stream("b", "1").id;
    for &id in &ids[..2] {
        tenants.end("a", id);
        assert_eq!(tenants.admitted(), NOBODY);
    }
    tenants.end("a", ids[2]);
    assert_eq!(tenants.admitted(), [("b", b)]);
    assert_eq!(tenants.live(), 3);
}

#[test]
fn a_configuration_for_thousands_of_calls_keeps_the_ceiling() {
    let patient = r#","maxQueued":10000"#;
    let mut tenants = Tenants::new(&["a", "b"], &under(-1, 10, patient));
    for n in 0..2_000 {
        tenants.stream("a", &format!("s{n}"));
    }
    let b = tenants.stream("b", "1").id;
    tenants.configure("a", &under(-1, 20, patient));
    assert_eq!(
        (tenants.live(), tenants.admitted()),
        (10, NOBODY.to_vec()),
        "by a new instance, and it holds no more"
    );
    tenants.configure("b", &under(-1, 20, patient));
    assert_eq!(tenants.live(), 20);
    assert!(tenants.admitted().contains(&("b", b)), "one turn in two is its");
}

#[test]
fn whoever_gives_up_gives_back_what_it_was_offered() {
    let mut tenants = Tenants::new(&["a", "b"], &under(-1, 1, ""));
    let a = tenants.stream("a", "1").id;
    let b = tenants.plugins.get_mut("b").expect("b").start_stream(stream("1"), 1_000).id;
    let a2 = tenants.stream("a", "2").id;
    // The seat is offered to b, which has not been asked when it gives up.
    tenants.plugins.get_mut("a").expect("a").finish(a, Outcome::Completed, 1_000);
    tenants.with("b", |plugin, now| plugin.finish(b, Outcome::Cancelled, now));
    assert_eq!(tenants.admitted(), [("a", a2)]);
    assert_eq!((tenants.live(), tenants.waiting()), (1, 0));
    let _ = tenants.stream("b", "2");
    assert_eq!(tenants.with("b", Plugin::cancel_all).len(), 1);
    tenants.end("a", a2);
    assert_eq!((tenants.live(), tenants.waiting(), tenants.admitted()), (0, 0, NOBODY.to_vec()));
}

#[test]
fn one_free_seat_lets_one_spawn_through_whoevers_it_is() {
    let mut tenants = Tenants::new(&["a", "b"], &under(-1, 2, ""));
    let spawns: Vec<_> = ["a", "b", "a", "b"].map(|name| (name, tenants.spawn(name))).into();
    let through: Vec<_> = spawns.iter().map(|(_, spawn)| is_admitted(spawn)).collect();
    assert_eq!(through, [true, true, false, false], "a seat is promised to each");
    let child = StreamCall { first: true, spawn: Some(spawns[0].1.id), ..stream("child") };
    let child = tenants.with("a", |plugin, now| plugin.start_stream(child, now));
    assert!(is_admitted(&child), "what was promised to it is there");
    assert_eq!(tenants.admitted(), NOBODY);
    tenants.end("a", child.id);
    assert_eq!(tenants.admitted(), [("a", spawns[2].1.id)], "a asked before b");
    tenants.pass(10_000);
    assert_eq!(tenants.admitted(), [("b", spawns[3].1.id)], "nobody came for the other of b");
}

#[test]
fn a_wait_for_a_seat_that_others_hold_runs_out_and_says_so() {
    let mut tenants = Tenants::new(&["a", "b"], &under(5, 2, r#","queueTimeoutMs":1000"#));
    for session in ["1", "2"] {
        assert!(is_admitted(&tenants.stream("a", session)));
    }
    let waiting = tenants.stream("b", "1");
    assert!(is_waiting(&waiting));
    tenants.pass(1_000);
    let settled = tenants.plugins.get_mut("b").expect("b").take_settled();
    let refusal = settled[0].result.as_ref().expect_err("it is refused");
    assert!(
        matches!(&refusal.reason, RefusalReason::NoPoolSeat(ended) if ended.scope == "p/m" && ended.waited_ms == 1_000)
    );
    for words in
        ["0 of the 2 seats that all tenants share (the ceiling)", "have the operator raise the ceiling"]
    {
        assert!(refusal.message.contains(words), "{}", refusal.message);
    }
    assert!(
        !refusal.message.contains("session"),
        "nobody is told of another's sessions: {}",
        refusal.message
    );
}

#[test]
fn a_ceiling_of_zero_pauses_all() {
    let mut tenants = Tenants::new(&["a", "b"], &under(5, 0, r#","maxQueued":0"#));
    for name in ["a", "b"] {
        let refused = tenants.stream(name, "1");
        assert!(denied(&refused).message.contains("paused for all tenants (ceiling 0)"), "{refused:?}");
    }
}

#[test]
fn who_has_failed_open_holds_what_runs_and_no_more() {
    let mut tenants = Tenants::new(&["a"], &under(-1, 2, ""));
    tenants.add("b", chaos(), &under(-1, 2, r#","maxRestarts":0"#));
    let a = tenants.stream("a", "1").id;
    let b = tenants.stream("b", "1").id;
    let a2 = tenants.stream("a", "2").id;
    let trapped = tenants.with("b", |plugin, now| plugin.start_stream(order("2", "trap"), now));
    assert!(is_admitted(&trapped));
    assert_eq!(tenants.plugins["b"].status().state, State::FailedOpen);
    assert!(is_admitted(&tenants.stream("b", "3")), "without limits");
    assert_eq!(tenants.admitted(), NOBODY, "what runs there still counts");
    tenants.end("a", a);
    assert_eq!(tenants.admitted(), [("a", a2)], "its own seat is its own");
    let a3 = tenants.stream("a", "3").id;
    for id in [b, trapped.id] {
        tenants.end("b", id);
        assert_eq!(tenants.admitted(), NOBODY, "one still runs on the seat of b");
    }
    tenants.end("b", trapped.id + 1);
    assert_eq!(tenants.admitted(), [("a", a3)]);
    // It comes back, and is counted again.
    assert!(is_admitted(&tenants.stream("b", "4")));
    tenants.pass(60_000);
    assert_eq!(tenants.plugins["b"].status().state, State::Running);
    tenants.end("a", a2);
    assert!(is_waiting(&tenants.stream("a", "5")));
    assert_eq!(tenants.live(), 2);
}

#[test]
fn a_released_line_counts_against_all() {
    let mut tenants = Tenants::new(&["a", "b"], &under(-1, 1, ""));
    let ids: Vec<_> = ["1", "2", "3"].map(|session| tenants.stream("a", session).id).into();
    let b = tenants.stream("b", "1").id;
    tenants.with("a", Plugin::release_all);
    assert_eq!(tenants.admitted().len(), 2);
    for &id in &ids {
        assert!(tenants.plugins["b"].status().live == 0);
        tenants.end("a", id);
    }
    assert_eq!(tenants.admitted(), [("b", b)]);
}

#[test]
fn without_a_pool_a_ceiling_holds_for_one_alone() {
    let mut host = Host::new(release(), &under(-1, 2, ""));
    assert!(is_admitted(&host.stream("1")) && is_admitted(&host.stream("2")));
    assert!(is_waiting(&host.stream("3")));
    assert_eq!(host.plugin.member(), None);
}

#[test]
fn who_joins_with_calls_at_work_is_counted_with_them() {
    let mut tenants = Tenants::new(&["a"], &under(-1, 2, ""));
    let mut late = Host::new(release(), &under(-1, 2, ""));
    late.stream("1");
    late.stream("2");
    let waiting = late.stream("3");
    late.plugin.join(tenants.pool.clone(), "late", tenants.now);
    tenants.plugins.insert("late", late.plugin);
    tenants.spread();
    assert!(is_waiting(&tenants.stream("a", "1")));
    assert!(is_waiting(&waiting) && tenants.live() == 2);
}

#[test]
fn chains_share_a_ceiling_and_hold_no_seat_while_another_of_their_plugins_makes_a_call_wait() {
    let pool = ProcessPool::shared();
    let now = 1_000;
    let mut chains = ["a", "b"].map(|name| {
        let options = Options { limits: Limits::default(), config: under(-1, 1, ""), mode: Mode::Strict };
        let (mut chain, _) = Chain::new(runtime(), "gen-limit", release(), options, now).expect("a chain");
        chain.join(pool.clone(), name, now);
        chain
    });
    let budget_of =
        |minute: u32| Some((format!(r#"{{"perMinute":{minute},"maxWaitMs":600000}}"#), Mode::Strict));
    chains[0].put("budget", budget(), Limits::default(), budget_of(1), now).expect("a plugin");
    let spread = |chains: &mut [Chain; 2], now| {
        for _ in 0..10 {
            let news = pool.lock().expect("no panic").news();
            let told =
                chains.iter_mut().filter(|chain| chain.member().is_some_and(|member| news.contains(&member)));
            told.for_each(|chain| chain.collect_grants(now));
        }
    };
    let [a, b] = &mut chains;
    let first = a.start_stream(stream("1"), now);
    assert!(is_admitted(&first));
    a.finish(first.id, Outcome::Completed, now);
    assert!(is_waiting(&a.start_stream(stream("2"), now)), "for the budget");
    let other = b.start_stream(stream("1"), now);
    spread(&mut chains, now);
    let settled = chains[1].take_settled();
    assert_eq!(settled.iter().map(admitted).collect::<Vec<_>>(), [other.id], "the seat is free for it");
    chains[0].tick(now + 60_000);
    spread(&mut chains, now + 60_000);
    assert!(chains[0].take_settled().is_empty(), "now it waits for the seat");
    chains[1].finish(other.id, Outcome::Completed, now + 60_000);
    spread(&mut chains, now + 60_000);
    assert_eq!(chains[0].take_settled().len(), 1);
}

/// One thing that happens to one of three tenants.
#[derive(Clone, Debug)]
enum Step {
    Stream {
        session: u8,
        other_route: bool,
    },
    Spawn,
    Child(u8),
    End(u8),
    Pass(u16),
    Own(i8),
    Replace,
    Leave,
    Join,
    /// Those with news are asked; else they are not, as long as nothing of theirs happens.
    Spread,
}

fn step() -> impl Strategy<Value = (u8, Step)> {
    let what = prop_oneof![
        10 => (0..4u8, prop::bool::weighted(0.3)).prop_map(|(session, other_route)| Step::Stream { session, other_route }),
        3 => Just(Step::Spawn),
        3 => any::<u8>().prop_map(Step::Child),
        12 => any::<u8>().prop_map(Step::End),
        2 => (0..120u16).prop_map(Step::Pass),
        1 => (-1..4i8).prop_map(Step::Own),
        1 => Just(Step::Replace),
        1 => Just(Step::Leave),
        1 => Just(Step::Join),
        6 => Just(Step::Spread),
    ];
    (0..3u8, what)
}

/// The tenants of a random history, and the ceilings that may not be exceeded.
struct History {
    tenants: Tenants,
    /// Calls that have not ended: tenant, id, whether it goes to the usual route.
    calls: Vec<(&'static str, CallId, bool)>,
    /// Calls that run, with their session.
    running: BTreeMap<(&'static str, CallId), (String, bool)>,
    asked: BTreeMap<(&'static str, CallId), (String, bool)>,
    /// Spawns that were let through and whose child has not come.
    spawns: Vec<(&'static str, CallId)>,
    /// All spawns.
    tools: Vec<(&'static str, CallId)>,
    ceilings: (usize, usize),
}

const NAMES: [&str; 3] = ["a", "b", "c"];

impl History {
    fn new(ceilings: (usize, usize)) -> Self {
        let tenants = Tenants::new(&NAMES, &Self::config(-1, ceilings));
        let (calls, spawns, tools) = (Vec::new(), Vec::new(), Vec::new());
        Self { tenants, calls, running: BTreeMap::new(), asked: BTreeMap::new(), spawns, tools, ceilings }
    }

    fn config(own: i8, (route, everything): (usize, usize)) -> String {
        format!(
            r#"{{"limits":[{{"provider":"p","model":"*","max":{own}}}],"ceilings":[{{"provider":"p","model":"m","max":{route}}},
                {{"provider":"*","model":"*","max":{everything}}}],"queueTimeoutMs":0,"maxQueued":100,"spawnGraceMs":100}}"#
        )
    }

    fn step(&mut self, name: &'static str, step: &Step) {
        if matches!(step, Step::Join) && !self.tenants.plugins.contains_key(name) {
            self.tenants.add(name, release(), &Self::config(-1, self.ceilings));
        }
        let now = self.tenants.now;
        let Some(plugin) = self.tenants.plugins.get_mut(name) else { return };
        match step {
            Step::Stream { session, other_route } => {
                let mut call = stream(&format!("s{session}"));
                if *other_route {
                    call.route.model = "other".into();
                }
                let started = plugin.start_stream(call, now);
                self.started(name, &started, format!("s{session}"), !other_route);
            }
            Step::Spawn => {
                let started = plugin.start_tool(spawn("root"), now);
                self.tools.push((name, started.id));
                if is_admitted(&started) {
                    self.spawns.push((name, started.id));
                }
            }
            Step::Child(at) => {
                let mine: Vec<CallId> =
                    self.spawns.iter().filter(|(of, _)| *of == name).map(|(_, id)| *id).collect();
                if mine.is_empty() {
                    return;
                }
                let id = mine[usize::from(*at) % mine.len()];
                self.spawns.retain(|spawn| *spawn != (name, id));
                let session = format!("child of {id}");
                let call = StreamCall { first: true, spawn: Some(id), ..stream(&session) };
                let started = plugin.start_stream(call, now);
                self.started(name, &started, session, true);
            }
            Step::End(at) => {
                let mine: Vec<CallId> =
                    self.calls.iter().filter(|(of, ..)| *of == name).map(|(_, id, _)| *id).collect();
                if !mine.is_empty() {
                    self.end(name, mine[usize::from(*at) % mine.len()]);
                }
            }
            Step::Pass(ms) => {
                self.tenants.now += u64::from(*ms);
                let now = self.tenants.now;
                self.tenants.plugins.values_mut().for_each(|plugin| plugin.tick(now));
            }
            Step::Own(own) => {
                let config = Self::config(*own, self.ceilings);
                plugin.configure(&config, Mode::Strict, now).expect("it is valid");
            }
            Step::Replace => plugin.replace(release(), now).expect("the same build again"),
            Step::Leave => {
                self.tenants.plugins.remove(name);
                self.calls.retain(|(of, ..)| *of != name);
                self.spawns.retain(|(of, _)| *of != name);
                self.tools.retain(|(of, _)| *of != name);
                self.running.retain(|(of, _), _| *of != name);
                self.asked.retain(|(of, _), _| *of != name);
            }
            Step::Join => {}
            Step::Spread => self.tenants.spread(),
        }
        self.check(&format!("after {step:?} of {name}"));
    }

    fn started(&mut self, name: &'static str, started: &Started, session: String, is_usual: bool) {
        self.calls.push((name, started.id, is_usual));
        let known = if is_admitted(started) { &mut self.running } else { &mut self.asked };
        known.insert((name, started.id), (session, is_usual));
    }

    fn end(&mut self, name: &'static str, id: CallId) {
        let now = self.tenants.now;
        let Some(plugin) = self.tenants.plugins.get_mut(name) else { return };
        plugin.finish(id, Outcome::Completed, now);
        self.calls.retain(|(of, call, _)| (*of, *call) != (name, id));
        self.running.remove(&(name, id));
        self.asked.remove(&(name, id));
    }

    fn check(&mut self, when: &str) {
        for (name, id) in self.tenants.admitted() {
            if let Some(call) = self.asked.remove(&(name, id)) {
                self.running.insert((name, id), call);
            } else {
                self.spawns.push((name, id));
            }
        }
        let seats = |usual_only: bool| {
            let held = self.running.iter().filter(|(_, (_, is_usual))| *is_usual || !usual_only);
            held.map(|((name, _), (session, _))| (*name, session))
                .collect::<std::collections::BTreeSet<_>>()
                .len()
        };
        let (route, everything) = self.ceilings;
        assert!(seats(true) <= route, "p/m, {when}: {:?}", self.running);
        assert!(seats(false) <= everything, "everything, {when}: {:?}", self.running);
    }

    /// When calls end and nothing new comes, everybody gets in and every seat returns.
    fn wind_down(&mut self) {
        for name in NAMES {
            self.step(name, &Step::Own(-1));
        }
        self.tenants.spread();
        self.check("at the end");
        let mut rounds = 0;
        while !self.calls.is_empty() || self.tenants.waiting() > 0 {
            let running: Vec<(&'static str, CallId)> = self.running.keys().copied().collect();
            for (name, id) in running {
                self.end(name, id);
                self.tenants.spread();
                self.check("at the end");
            }
            // Nobody comes for the credits that are left.
            self.tenants.pass(100);
            self.check("at the end");
            rounds += 1;
            assert!(rounds < 200, "they never get in: {:?}", self.asked);
        }
        for (name, id) in self.tools.clone() {
            self.end(name, id);
        }
        assert_eq!((self.tenants.live(), self.tenants.waiting()), (0, 0));
        for plugin in self.tenants.plugins.values_mut() {
            assert_eq!(plugin.status().restarts, 0);
            plugin.assert_store_is_empty();
        }
        self.tenants.plugins.clear();
        assert!(self.tenants.held().is_empty());
    }
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 2_000,
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn whatever_tenants_do_no_ceiling_is_exceeded_and_all_get_in(
        route in 1..4usize,
        everything in 1..4usize,
        steps in prop::collection::vec(step(), 1..60),
    ) {
        let mut history = History::new((route, everything));
        for (who, step) in &steps {
            history.step(NAMES[usize::from(*who)], step);
        }
        history.wind_down();
    }
}

#[test]
fn a_member_that_needs_no_seats_of_the_pool_is_called_no_more_often_than_one_of_no_pool() {
    // How often it has failed tells how often it was called.
    let restarts = |calls: usize, pool: Option<&SharedPool>| {
        let config = limit(1, &format!(r#","maxRestarts":1000,"chaos":"trap-in:{calls}""#));
        let mut host = Host::new(chaos(), &config);
        if let Some(pool) = pool {
            host.plugin.join(pool.clone(), "a", host.now);
        }
        for session in ["a", "b", "c"] {
            host.stream(session);
        }
        for id in 1..=3 {
            host.end(id);
        }
        host.plugin.status().restarts
    };
    let pool = ProcessPool::shared();
    for calls in [7, 8, 12, 20] {
        let alone = restarts(calls, None);
        assert!(calls > 8 || alone > 0, "{calls}");
        assert_eq!(restarts(calls, Some(&pool)), alone, "a fault at every {calls}th call");
    }
}
