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

/// Changes from every configuration to every other.
fn complete(configs: Vec<Arc<Configured>>) -> (Vec<Arc<Configured>>, Vec<Vec<usize>>) {
    let count = configs.len();
    (configs, (0..count).map(|from| (0..count).filter(|to| *to != from).collect()).collect())
}

/// How large a world is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Size {
    /// Seconds for all.
    Small,
    /// Two minutes for all.
    Whole,
}

impl Size {
    fn of<T>(self, small: T, whole: T) -> T {
        if self == Self::Small { small } else { whole }
    }
}

fn world(name: &'static str, (configs, changes): (Vec<Arc<Configured>>, Vec<Vec<usize>>)) -> World {
    World {
        name,
        configs,
        changes,
        routes: routes(&[("p", "a"), ("p", "b")]),
        sessions: 0,
        calls: (2, 1),
        nameless: 0,
        spawns: 0,
        tick: None,
        seats: None,
        rebuilds: true,
    }
}

/// Two routes and a group of both under all combinations of limits; every change of one limit by one rung.
pub fn plain(size: Size) -> World {
    let both = [("p", "a"), ("p", "b")];
    let scopes = [row("p", "a"), row("p", "b"), group("g", &both)];
    let ladder = size.of(&LADDER[..3], &LADDER);
    let lattice = lattice(&scopes, ladder, &knobs(size.of(2, 3), size.of(0, 1)));
    World { sessions: size.of(2, 3), ..world("limits", lattice) }
}

fn overlap() -> [Value; 4] {
    [
        group("g", &[("p", "a"), ("q", "b")]),
        group("h", &[("q", "b"), ("q", "c")]),
        row("q", "*"),
        row("*", "*"),
    ]
}

/// Groups that overlap, a provider and everything, under all combinations of limits.
fn overlapping(size: Size) -> World {
    let scopes = overlap();
    let lattice = lattice(&scopes[..size.of(2, 4)], &LADDER[..3], &knobs(size.of(2, 4), size.of(0, 1)));
    World {
        routes: routes(&[("p", "a"), ("q", "b"), ("q", "c")]),
        sessions: size.of(3, 4),
        calls: (1, 1),
        ..world("overlapping groups", lattice)
    }
}

/// Sessions that hold a part of what their next call needs.
fn holdings(size: Size) -> World {
    let limits: &[[i64; 4]] = size.of(&[[1, 1, -1, -1]], &[[1, 1, -1, 3], [1, 0, 2, 2]]);
    let knobs = knobs(size.of(2, 4), size.of(0, 1));
    let configs = limits.iter().map(|limits| configured(&overlap(), limits, &knobs)).collect();
    World {
        routes: routes(&[("p", "a"), ("q", "b"), ("q", "c")]),
        sessions: size.of(2, 3),
        ..world("seats held in part", complete(configs))
    }
}

/// Rows and groups that come, go and count otherwise: everybody is counted again.
fn recounts(size: Size) -> World {
    let knobs = knobs(size.of(2, 3), 1);
    let mut stream = row("p", "a");
    stream["countBy"] = json!("stream");
    let all = [("p", "a"), ("p", "b")];
    let configs = vec![
        configured(&[row("p", "a"), group("g", &all)], &[1, 2], &knobs),
        configured(&[stream, group("g", &all[..1]), row("p", "*")], &[2, 1, 2], &knobs),
        configured(&[group("g", &all[1..]), group("f", &all)], &[1, 1], &knobs),
        configured(&[row("*", "*")], &[1], &knobs),
        configured(&[], &[], &knobs),
    ];
    World {
        sessions: size.of(2, 3),
        calls: size.of((2, 1), (2, 2)),
        nameless: size.of(0, 1),
        ..world("rows and groups come and go", complete(configs))
    }
}

/// Spawns, their credits and their children; graces that run out, tool calls that fail.
fn spawns(size: Size) -> World {
    let scopes = [row("p", "a"), group("g", &[("p", "a"), ("p", "b")])];
    let lattice = lattice(&scopes, size.of(&LADDER[1..3], &LADDER[..3]), &knobs(2, size.of(0, 1)));
    World { nameless: 2, spawns: size.of(1, 2), tick: Some(10), ..world("spawns", lattice) }
}

/// Spawns in a burst, sessions that hold on, no change of limits.
fn bursts(size: Size) -> World {
    let scopes = [row("p", "a"), row("p", "*")];
    let knobs = knobs(3, size.of(0, 1));
    let configs = vec![configured(&scopes, &[1, 2], &knobs)];
    World {
        routes: routes(&[("p", "a"), ("p", "b")]),
        sessions: 1,
        nameless: 1,
        spawns: size.of(1, 3),
        ..world("bursts of spawns", complete(configs))
    }
}

/// Waits that run out, lines that are full, head starts.
fn times(size: Size) -> World {
    let scopes = [row("p", "a"), group("g", &[("p", "a"), ("p", "b")])];
    let mut knobs = knobs(3, 1);
    (knobs["queueTimeoutMs"], knobs["maxQueued"], knobs["headStart"]) = (json!(20), json!(2), json!(1));
    let mut patient = knobs.clone();
    (patient["queueTimeoutMs"], patient["maxQueued"]) = (json!(0), json!(1));
    let configs = vec![configured(&scopes, &[1, 2], &knobs), configured(&scopes, &[0, 1], &patient)];
    World {
        sessions: 2,
        spawns: size.of(0, 1),
        tick: Some(10),
        ..world("timeouts, full lines, head starts", complete(configs))
    }
}

/// A pool, a ceiling, a limit of its own: seats come and go, while others wait or not.
fn pools(size: Size) -> World {
    let mut pooled = row("p", "a");
    pooled["pool"] = json!("x");
    let mut ceiling = row("p", "*");
    ceiling["ceiling"] = json!(true);
    let scopes = [pooled, row("p", "b"), ceiling];
    let knobs = knobs(2, 1);
    let limits: &[&[i64]] = size.of(&[&[2, 1]], &[&[2, 1, 2], &[1, -1, 2]]);
    let configs = limits.iter().map(|limits| configured(&scopes, limits, &knobs)).collect();
    World {
        sessions: 2,
        calls: size.of((2, 1), (1, 1)),
        spawns: size.of(0, 1),
        seats: Some(2),
        ..world("pools and ceilings", complete(configs))
    }
}

/// All of them.
pub fn worlds(size: Size) -> Vec<World> {
    [plain, overlapping, holdings, recounts, spawns, bursts, times, pools].map(|world| world(size)).into()
}

/// A world whose rules starve: nothing is ever kept for anybody.
pub fn unfair() -> World {
    let scopes = [group("g", &[("p", "a"), ("p", "b")]), group("h", &[("p", "b"), ("p", "c")])];
    let configs = vec![configured(&scopes, &[1, 1], &knobs(3, u64::from(u32::MAX)))];
    World {
        routes: routes(&[("p", "a"), ("p", "b"), ("p", "c")]),
        sessions: 3,
        ..world("nothing is kept", complete(configs))
    }
}
