//! Long histories with thousands of sessions and routes, under limits that change, with the state lost now and then.
//!
//! Every verdict and everything that is told afterwards is compared with the rules, at every step. The rules are worked out
//! from scratch for every decision, which is quadratic in who is there; so of the thousands some twenty are there at once,
//! now and then a few hundred.

use std::thread;

use limiter::{CallId, Route, SpawnCall, StreamCall};
use serde_json::{Value, json};

use crate::drive::{Configured, Subject};
use crate::run::Run;

/// How long a history is, and how large its world.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// What the history is made from.
    pub seed: u64,
    /// How many steps.
    pub steps: u64,
    /// How many sessions there are in all.
    pub sessions: u64,
    /// How many routes.
    pub routes: u64,
    /// About how many steps there are from one change of the configuration to the next, and between losses of the state.
    pub upheaval: u64,
}

impl Plan {
    /// Thousands of both.
    pub fn large(seed: u64) -> Self {
        Self { seed, steps: 100_000, sessions: 5_000, routes: 2_000, upheaval: 5_000 }
    }
}

/// Random numbers (splitmix64).
#[derive(Clone, Debug)]
struct Dice(u64);

impl Dice {
    fn roll(&mut self, below: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % below
    }

    fn one_in(&mut self, n: u64) -> bool {
        self.roll(n) == 0
    }
}

/// Says where it was if it comes to a bad end.
struct At(Plan, u64);

impl Drop for At {
    fn drop(&mut self) {
        if thread::panicking() {
            eprintln!("in step {} of {:?}", self.1, self.0);
        }
    }
}

/// Goes through one history, and in the end everybody goes; panics where the subject and the rules differ. The answer is
/// how many waited, and the subject.
pub fn long<S: Subject>(subject: S, plan: Plan) -> (u64, S) {
    let mut dice = Dice(plan.seed);
    let mut at = At(plan, 0);
    let mut run = Run::new(subject, &configuration(plan, &mut dice), false);
    let mut recent: Vec<CallId> = Vec::new();
    let mut waited = 0;
    for step in 0..plan.steps {
        at.1 = step;
        let tables = &run.model.tables;
        let there = (tables.live.len() + tables.waiting.len()) as u64;
        // Now and then a crowd comes.
        let crowd = if step % 20_000 < 400 { 200 } else { 16 };
        let before = tables.waiting.len();
        match dice.roll(100) {
            0..4 => _ = run.advance(dice.roll(400)),
            4..12 => {
                let spawn =
                    SpawnCall { tool: "subagent".into(), session: None, route: route(plan, &mut dice) };
                recent.push(run.spawn(spawn));
            }
            _ if dice.roll(2 * crowd) >= there => {
                // A child, somebody who is there already, anybody, or nobody in particular.
                let spawns = &tables.spawns;
                let pick = |dice: &mut Dice, count: usize| dice.roll(count as u64) as usize;
                let spawn = (!spawns.is_empty() && dice.one_in(6))
                    .then(|| spawns[pick(&mut dice, spawns.len())].call.id);
                let session = match dice.roll(10) {
                    0 => None,
                    1..3 => Some(dice.roll(plan.sessions.min(12))),
                    _ => Some(dice.roll(plan.sessions)),
                };
                let Some(route) = route(plan, &mut dice) else { continue };
                let first = spawn.is_some() || dice.one_in(3);
                let session = session.map(|n| format!("session-{n}"));
                recent.push(run.stream(StreamCall { route, session, first, spawn, within: None }));
            }
            roll => {
                // Mostly somebody who is there; now and then one who was.
                let live =
                    tables.live.iter().chain(&tables.waiting).chain(tables.spawns.iter().map(|s| &s.call));
                let there: Vec<CallId> = live.map(|call| call.id).collect();
                let from = if there.is_empty() || roll < 16 { &recent } else { &there };
                if let Some(&id) = from.get(dice.roll(from.len().max(1) as u64) as usize) {
                    run.finish(id, !dice.one_in(4));
                }
            }
        }
        waited += u64::from(run.model.tables.waiting.len() > before);
        if recent.len() > 100 {
            recent.drain(..50);
        }
        if dice.one_in(plan.upheaval) {
            run.configure(Configured::new(&configuration(plan, &mut dice)));
        }
        if dice.one_in(plan.upheaval / 10) {
            let edited = edited(&run.config.json, &mut dice);
            run.configure(Configured::new(&edited));
        }
        if dice.one_in(plan.upheaval) {
            run.rebuild(1 + dice.roll(40) as usize);
        }
        if dice.one_in(plan.upheaval) {
            run.subject.trap_after(dice.roll(6));
        }
        if step % 100 == 0 {
            run.check_audit();
        }
        if step % 1_000 == 0 {
            run.check("now and then");
        }
    }
    run.wind_down();
    let there: Vec<CallId> = run.model.tables.waiting.iter().map(|call| call.id).collect();
    for id in there {
        run.finish(id, false);
    }
    run.check_empty();
    (waited, run.subject)
}

/// More than half of the calls go to four routes, which is where lines are; the others anywhere.
fn number(plan: Plan, dice: &mut Dice) -> u64 {
    if dice.roll(10) < 6 { dice.roll(4) } else { dice.roll(plan.routes) }
}

fn names(number: u64) -> (String, String) {
    (format!("provider-{}", number % 7), format!("model-{number}"))
}

fn route(plan: Plan, dice: &mut Dice) -> Option<Route> {
    let (provider, model) = names(number(plan, dice));
    (!dice.one_in(200)).then(|| Route::new(provider, model))
}

/// Limits on a part of the routes, on groups of them, on providers and on everything.
fn configuration(plan: Plan, dice: &mut Dice) -> String {
    let limit = |mut row: Value, dice: &mut Dice, few: u64| {
        row["max"] = json!(if dice.one_in(30) { 0 } else { 1 + dice.roll(few) });
        if dice.one_in(6) {
            row["countBy"] = json!("stream");
        }
        row
    };
    let routes: Vec<u64> =
        (0..plan.routes).filter(|&n| if n < 4 { !dice.one_in(4) } else { dice.one_in(8) }).collect();
    let named = |number: u64| {
        let (provider, model) = names(number);
        json!({ "provider": provider, "model": model })
    };
    let mut limits: Vec<Value> = routes.into_iter().map(|n| limit(named(n), dice, 3)).collect();
    for provider in (0..7).filter(|_| dice.one_in(3)).collect::<Vec<_>>() {
        limits.push(limit(json!({ "provider": format!("provider-{provider}"), "model": "*" }), dice, 6));
    }
    if dice.one_in(2) {
        limits.push(limit(json!({ "provider": "*", "model": "*" }), dice, 12));
    }
    let groups: Vec<Value> = (0..5)
        .map(|name| {
            let mut members: Vec<u64> = (0..8).map(|_| number(plan, dice)).collect();
            members.sort_unstable();
            members.dedup();
            let routes: Vec<Value> = members.into_iter().map(named).collect();
            limit(json!({ "name": format!("group-{name}"), "routes": routes }), dice, 5)
        })
        .collect();
    let mut config = json!({
        "limits": limits,
        "groups": groups,
        // Traps are no reason to let everybody through here.
        "maxRestarts": u32::MAX,
    });
    knobs(&mut config, dice);
    config.to_string()
}

fn knobs(config: &mut Value, dice: &mut Dice) {
    let mut pick = |from: &[u64]| json!(from[dice.roll(from.len() as u64) as usize]);
    config["queueTimeoutMs"] = pick(&[0, 2_000, 20_000]);
    config["maxQueued"] = pick(&[3, 10, 64]);
    config["maxWaiting"] = pick(&[30, 300]);
    config["headStart"] = pick(&[0, 0, 5]);
    config["maxOvertakes"] = pick(&[0, 2, 64]);
    config["spawnGraceMs"] = pick(&[300, 3_000]);
}

/// What people change most: numbers of rows that stay, the other settings, or both.
fn edited(config: &str, dice: &mut Dice) -> String {
    let mut config: Value = serde_json::from_str(config).unwrap_or_else(|e| panic!("{e} in {config}"));
    let what = dice.roll(3);
    if what < 2 {
        knobs(&mut config, dice);
    }
    if what > 0 {
        // Seldom what a row is changes too, and then of one kind only.
        let other = dice.roll(12);
        for list in ["limits", "groups"] {
            for row in config[list].as_array_mut().into_iter().flatten() {
                match other {
                    0 if dice.one_in(9) => row["max"] = json!(0),
                    1 if dice.one_in(9) => row["max"] = json!(-1),
                    2 if dice.one_in(9) => {
                        row["countBy"] = json!(if row["countBy"] == "stream" { "session" } else { "stream" });
                    }
                    3 => {
                        let routes = row.get_mut("routes").and_then(Value::as_array_mut);
                        _ = routes.filter(|routes| routes.len() > 1).and_then(Vec::pop);
                    }
                    _ if row["max"].as_i64() > Some(0) && dice.one_in(2) => {
                        row["max"] = json!(1 + dice.roll(5));
                    }
                    _ => {}
                }
            }
        }
    }
    config.to_string()
}
