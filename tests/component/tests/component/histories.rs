//! The histories of the limiter's own tests through the built component: the same answers.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};

use component_tests::{chaos, release, runtime};
use gen_limit_runtime as runtime_types;
use gen_limit_runtime::{Component, Limits, Mode, Options, Plugin};
use limiter::{
    CallId, Entry, Grant, Instant, Need, Outcome, Reason, Refusal, Refused, Route, RunTotals, ScopeStats,
    Settled, SpawnCall, Stats, StreamCall, Totals, Verdict, WaitEnded,
};
use model::{Configured, Known, Plan, Subject, drive, history, long};
use proptest::test_runner::{Config, FileFailurePersistence};
use proptest::{prop_assert, proptest};
use serde_json::Value;

use crate::routes::{get, json};

/// The component behind its host.
#[derive(Default)]
struct Hosted {
    plugin: Option<Plugin>,
    /// The host has not ticked by itself since something changed that nobody waits for.
    stale: bool,
    /// Stats are asked for after every step.
    asked: bool,
    /// It is the build with faults on demand.
    chaos: bool,
    /// The next call is to bring a trap so many operations later.
    trap: Option<u64>,
}

impl Hosted {
    /// Every hundredth configuration is one whose stats are asked for; always the same, so that a failure shrinks.
    fn of(world: &str) -> Self {
        let mut hasher = DefaultHasher::new();
        world.hash(&mut hasher);
        Self { asked: hasher.finish().is_multiple_of(100), ..Self::default() }
    }

    /// One whose traps are ordered.
    fn fragile() -> Self {
        Self { chaos: true, ..Self::default() }
    }

    fn component(&self) -> Component {
        if self.chaos { chaos() } else { release() }
    }

    fn plugin(&mut self) -> &mut Plugin {
        self.plugin.as_mut().expect("histories begin with a configuration")
    }
}

impl Subject for Hosted {
    fn configure(&mut self, config: &Configured, now: Instant) {
        let json = config.json.as_str();
        if let Some(plugin) = &mut self.plugin {
            plugin.configure(json, Mode::Strict, now).expect("histories have valid configurations");
        } else {
            let options = Options { limits: Limits::default(), config: json.into(), mode: Mode::Strict };
            self.plugin = Some(Plugin::new(runtime(), self.component(), options, now).expect("a plugin").0);
        }
    }

    fn start_stream(&mut self, id: CallId, call: StreamCall, now: Instant) -> Verdict {
        let within = call.within.map(|id| ("within".into(), id.to_string()));
        let trap = self.trap.take().map(|operations| ("chaos".into(), format!("trap-in:{operations}")));
        let started = self.plugin().start_stream(
            runtime_types::StreamCall {
                route: route(call.route),
                session: call.session,
                root: None,
                parent: None,
                first: call.first,
                spawn: call.spawn,
                purpose: "conversation".into(),
                extra: within.into_iter().chain(trap).collect(),
            },
            now,
        );
        assert_eq!(started.id, id);
        self.stale |= matches!(started.verdict, runtime_types::Verdict::Admit);
        verdict(started.verdict)
    }

    fn start_spawn(&mut self, id: CallId, call: SpawnCall, now: Instant) -> Verdict {
        let call = runtime_types::ToolCall {
            tool: call.tool,
            session: call.session,
            route: call.route.map(route),
            extra: Vec::new(),
        };
        let started = self.plugin().start_tool(call, now);
        assert_eq!(started.id, id);
        verdict(started.verdict)
    }

    fn finish(&mut self, id: CallId, outcome: Outcome, now: Instant) {
        for _ in 0..2 {
            let outcome = match outcome {
                Outcome::Completed => runtime_types::Outcome::Completed,
                Outcome::Cancelled => runtime_types::Outcome::Cancelled,
                Outcome::Failed => runtime_types::Outcome::Failed(runtime_types::Failure {
                    code: "X".into(),
                    status: Some(500),
                    retry_after_ms: None,
                }),
            };
            self.plugin().finish(id, outcome, now);
        }
        self.stale = true;
    }

    fn tick(&mut self, now: Instant) -> Option<Instant> {
        // As a host does, and where the host would not care, to compare.
        if std::mem::take(&mut self.stale) || self.plugin().next_tick().is_some_and(|due| due <= now) {
            self.plugin().tick(now);
        }
        self.plugin().next_tick()
    }

    fn capacity(&mut self, _: &Grant, _: Instant) {
        unreachable!("these histories have no pools");
    }

    fn demand(&mut self) -> Vec<Need> {
        unreachable!("these histories have no pools");
    }

    fn rebuild(&mut self, known: Known, now: Instant) {
        let status = self.plugin().status();
        assert_eq!(status.waiting, known.waiting.len(), "the host's table knows who waits");
        let component = self.component();
        self.plugin().replace(component, now).expect("the same component again");
    }

    fn settled(&mut self) -> Vec<Settled> {
        let settled = self.plugin().take_settled();
        settled.into_iter().map(|settled| (settled.id, settled.result.map_err(refusal))).collect()
    }

    fn stats(&mut self, now: Instant) -> Option<Stats> {
        if !self.asked {
            return None;
        }
        self.plugin().request(get("describe=false"), now);
        let responses = self.plugin().take_responses();
        Some(stats(&json(&responses[0].1)))
    }

    fn trap_after(&mut self, operations: u64) {
        self.trap = self.chaos.then_some(operations);
    }
}

/// What the comparison reads of an answer, as the limiter's own type.
fn stats(answer: &Value) -> Stats {
    let number = |value: &Value| value.as_u64().unwrap_or_else(|| panic!("{value} in {answer}"));
    let small = |value: &Value| u32::try_from(number(value)).expect("a small number");
    let text = |value: &Value| value.as_str().unwrap_or_else(|| panic!("{value} in {answer}")).to_owned();
    let list = |value: &'_ Value| value.as_array().unwrap_or_else(|| panic!("{value} in {answer}")).clone();
    let totals = |of: &Value| Totals {
        admitted: number(&of["admitted"]),
        waited: number(&of["waited"]),
        sum_wait_ms: number(&of["sumWaitMs"]),
        max_wait_ms: number(&of["maxWaitMs"]),
        refused: Refused {
            queue_full: number(&of["refused"]["queueFull"]),
            queue_timeout: number(&of["refused"]["queueTimeout"]),
            paused: number(&of["refused"]["paused"]),
            no_pool_seat: number(&of["refused"]["noPoolSeat"]),
            other: number(&of["refused"]["other"]),
        },
        cancelled: number(&of["cancelled"]),
    };
    let entry = |of: &Value| Entry {
        provider: text(&of["provider"]),
        model: text(&of["model"]),
        active: small(&of["active"]),
        waiting: small(&of["waiting"]),
    };
    let scope = |of: &Value| ScopeStats {
        scope: text(&of["scope"]),
        configured: of["configured"] == true,
        max: of["max"].as_i64().expect("an integer"),
        count_by: if of["countBy"] == "stream" { "stream" } else { "session" },
        occupancy: small(&of["occupancy"]),
        credits: small(&of["credits"]),
        ceiling: None,
        pool_seats: None,
        kept_for: of["keptFor"].as_u64(),
        waiting: small(&of["waiting"]),
        oldest_wait_ms: of["oldestWaitMs"].as_u64(),
        wait_ms: None,
        mean_call_ms: of["meanCallMs"].as_u64(),
        totals: totals(&of["totals"]),
    };
    let run = &answer["totals"];
    Stats {
        now: number(&answer["now"]),
        entries: list(&answer["entries"]).iter().map(entry).collect(),
        scopes: list(&answer["scopes"]).iter().map(scope).collect(),
        holders: Vec::new(),
        waiters: Vec::new(),
        entries_total: small(&answer["entriesTotal"]) as usize,
        scopes_total: small(&answer["scopesTotal"]) as usize,
        holders_total: small(&answer["holdersTotal"]) as usize,
        waiters_total: small(&answer["waitersTotal"]) as usize,
        truncated: answer["truncated"] == true,
        credits: small(&answer["credits"]) as usize,
        wait_ms: None,
        totals: RunTotals {
            since: number(&run["since"]),
            submitted: number(&run["submitted"]),
            live: number(&run["live"]),
            waiting: number(&run["waiting"]),
            spawned: number(&run["spawned"]),
            finished: number(&run["finished"]),
            totals: totals(run),
        },
    }
}

fn route(route: Route) -> runtime_types::Route {
    runtime_types::Route { provider: route.provider, model: route.model }
}

fn verdict(verdict: runtime_types::Verdict) -> Verdict {
    match verdict {
        runtime_types::Verdict::Admit => Verdict::Admit,
        runtime_types::Verdict::Wait { deadline, seniority } => Verdict::Wait { deadline, seniority },
        runtime_types::Verdict::Deny(refused) => Verdict::Deny(refusal(refused)),
    }
}

fn refusal(refusal: runtime_types::Refusal) -> Refusal {
    use runtime_types::RefusalReason;
    let ended = |end: runtime_types::WaitEnded| WaitEnded {
        scope: end.scope,
        waited_ms: end.waited_ms,
        occupancy: end.occupancy,
        limit: end.limit,
    };
    let reason = match refusal.reason {
        RefusalReason::QueueFull(full) => {
            Reason::QueueFull { scope: full.scope, waiting: full.waiting, bound: full.bound }
        }
        RefusalReason::QueueTimeout(end) => Reason::QueueTimeout(ended(end)),
        RefusalReason::Paused(end) => Reason::Paused(ended(end)),
        RefusalReason::NoPoolSeat(end) => Reason::NoPoolSeat(ended(end)),
        RefusalReason::Other(words) => Reason::Other(words),
    };
    Refusal { reason, message: refusal.message }
}

fn config(cases: u32) -> Config {
    Config {
        cases,
        max_shrink_iters: 20_000,
        failure_persistence: Some(Box::new(FileFailurePersistence::Direct("tests/histories.regressions"))),
        ..Config::default()
    }
}

proptest! {
    #![proptest_config(config(47_000))]

    #[test]
    fn the_component_answers_as_the_rules_say((world, steps) in history(40, false)) {
        drive(Hosted::of(&world), &world, &steps, false);
        prop_assert!(true);
    }

    #[test]
    fn the_component_answers_as_the_rules_say_in_as_many_others((world, steps) in history(40, false)) {
        drive(Hosted::of(&world), &world, &steps, false);
        prop_assert!(true);
    }
}

/// Traps come in the middle of whatever is done, and nobody can tell.
#[test]
fn long_histories_with_traps_go_as_the_rules_say() {
    for seed in 0..4 {
        let plan = Plan { steps: 20_000, upheaval: 2_000, ..Plan::large(seed) };
        let (waited, subject) = long(Hosted::fragile(), plan);
        let traps = subject.plugin.map_or(0, |plugin| plugin.status().restarts);
        assert!(waited > plan.steps / 5, "few waited: {waited}");
        assert!(traps > 5, "few trapped: {traps}");
    }
}
