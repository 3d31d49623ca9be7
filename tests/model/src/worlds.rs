//! The small worlds that are explored.

use std::sync::Arc;

use limiter::Route;
use serde_json::{Value, json};

use crate::drive::Configured;
use crate::exhaustive::World;

/// Limits from low to high; -1 is none.
const LADDER: [i64; 4] = [0, 1, 2, -1];

/// Every combination of these limits on these scopes; from each to those that differ in one scope by one rung.
fn lattice(scopes: &[Value], ladder: &[i64], knobs: &Value) -> (Vec<Arc<Configured>>, Vec<Vec<usize>>) {
    let count = ladder.len().pow(scopes.len() as u32);
    let rung = |config: usize, scope: usize| config / ladder.len().pow(scope as u32) % ladder.len();
    let configs = (0..count).map(|config| {
        let limits = (0..scopes.len()).map(|scope| ladder[rung(config, scope)]).collect::<Vec<_>>();
        configured(scopes, &limits, knobs)
    });
    let changes = (0..count).map(|config| {
        let apart = |to: &usize| {
            (0..scopes.len()).map(|s| rung(config, s).abs_diff(rung(*to, s))).sum::<usize>() == 1
        };
        (0..count).filter(apart).collect()
    });
    (configs.collect(), changes.collect())
}

/// A configuration of these scopes with these limits.
fn configured(scopes: &[Value], limits: &[i64], knobs: &Value) -> Arc<Configured> {
    let mut config = knobs.clone();
    for (scope, &max) in scopes.iter().zip(limits) {
        let mut row = scope.clone();
        let list = if row.get("name").is_some() {
            "groups"
        } else if row.get("ceiling").is_some() {
            "ceilings"
        } else {
            "limits"
        };
        row.as_object_mut().expect("rows are objects").remove("ceiling");
        if max >= 0 || list != "groups" {
            row["max"] = json!(max);
            match config.get_mut(list).and_then(Value::as_array_mut) {
                Some(rows) => rows.push(row),
                None => config[list] = json!([row]),
            }
        }
    }
    Configured::new(&config.to_string())
}

fn row(provider: &str, model: &str) -> Value {
    json!({ "provider": provider, "model": model })
}

fn group(name: &str, routes: &[(&str, &str)]) -> Value {
    let routes: Vec<Value> = routes.iter().map(|(provider, model)| row(provider, model)).collect();
    json!({ "name": name, "routes": routes })
}

fn routes(routes: &[(&str, &str)]) -> Vec<Route> {
    routes.iter().map(|(provider, model)| Route::new(*provider, *model)).collect()
}

fn knobs(line: u32, overtakes: u64) -> Value {
    json!({ "maxWaiting": line, "maxQueued": 64, "maxOvertakes": overtakes, "queueTimeoutMs": 0, "spawnGraceMs": 10 })
}

/// Sessions and calls, two routes and a group of both, nothing else.
fn plain(name: &'static str, sessions: usize, ladder: &[i64], line: u32, overtakes: u64) -> World {
    let scopes = [row("p", "a"), row("p", "b"), group("g", &[("p", "a"), ("p", "b")])];
    let (configs, changes) = lattice(&scopes, ladder, &knobs(line, overtakes));
    World {
        name,
        configs,
        changes,
        routes: routes(&[("p", "a"), ("p", "b")]),
        sessions,
        calls: (2, 1),
        nameless: 0,
        spawns: 0,
        tick: None,
        seats: None,
        rebuilds: true,
    }
}

/// 3 sessions × 2 routes and a group of both × limits 0 to 2 and none × a line of 3: all 64 configurations, and every change
/// of one limit by one rung.
pub fn base() -> World {
    plain("3 sessions, 2 routes, a group, limits 0 to 2 and none, a line of 3", 3, &LADDER, 3, 1)
}

/// What is explored within seconds.
pub fn small() -> Vec<World> {
    vec![plain("2 sessions, 2 routes, a group, limits 0 to 2, a line of 2", 2, &[0, 1, 2], 2, 0)]
}

/// What is explored in two minutes.
pub fn all() -> Vec<World> {
    vec![base()]
}
