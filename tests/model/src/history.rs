//! Random worlds and histories.

use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use serde_json::{Value, json};

/// A configuration, as JSON text.
pub type World = String;

/// One step of a history. What it refers to is picked by number among what there is, so that histories shrink well.
#[derive(Clone, Debug)]
pub enum Step {
    /// A model call of one of a few sessions, or of none.
    Stream {
        /// Which session; `None` is a call without one.
        session: Option<u8>,
        /// Which route.
        route: u8,
        /// The session's first call.
        first: bool,
        /// Which outstanding spawn made the session.
        spawn: Option<u8>,
    },
    /// A spawn for one of the routes, or for an unknown one.
    Spawn {
        /// Which session spawns.
        session: Option<u8>,
        /// Which route.
        route: Option<u8>,
    },
    /// The n-th of all calls so far ends; it may have ended before.
    Finish(u8, bool),
    /// Time passes and the host ticks.
    Tick(u16),
    /// Another configuration.
    Configure(World),
    /// The pool gives seats for the n-th pooled scope, for some time, and says whether others wait for seats.
    Capacity(u8, u8, Option<u16>, bool),
    /// The state is lost and restored in portions of this size.
    Rebuild(u8),
}

/// The routes of the world: two providers with two models.
pub const ROUTES: [(&str, &str); 4] = [("p", "a"), ("p", "b"), ("q", "a"), ("q", "c")];

fn max() -> impl Strategy<Value = i64> {
    prop_oneof![1 => Just(-1i64), 1 => Just(0), 4 => Just(1), 3 => Just(2), 2 => Just(3)]
}

fn limit(fields: Value, pools: bool) -> impl Strategy<Value = Option<Value>> {
    let pool = if pools { option::weighted(0.4, Just("shared")).boxed() } else { Just(None).boxed() };
    option::weighted(0.35, (max(), option::weighted(0.2, Just("stream")), pool)).prop_map(move |limit| {
        let (max, count_by, pool) = limit?;
        let mut row = fields.clone();
        row["max"] = json!(max);
        if let Some(count_by) = count_by {
            row["countBy"] = json!(count_by);
        }
        if let Some(pool) = pool {
            row["pool"] = json!(pool);
        }
        Some(row)
    })
}

/// Any configuration over the routes of the world.
pub fn world(pools: bool) -> impl Strategy<Value = World> {
    let mut rows = Vec::new();
    for (provider, model) in ROUTES.into_iter().chain([("p", "*"), ("q", "*"), ("*", "*")]) {
        rows.push(limit(json!({ "provider": provider, "model": model }), pools).boxed());
    }
    let route = |at: usize| json!({ "provider": ROUTES[at].0, "model": ROUTES[at].1 });
    let whole = json!({ "provider": "q", "model": "*" });
    let groups = [
        json!({ "name": "g1", "routes": [route(0), route(2)] }),
        json!({ "name": "g2", "routes": [route(1), whole] }),
        json!({ "name": "g0", "routes": [route(0), route(1), route(3)] }),
    ];
    let groups: Vec<_> = groups.into_iter().map(|group| limit(group, pools).boxed()).collect();
    let mut ceilings = Vec::new();
    for (provider, model) in
        [("p", "a"), ("q", "c"), ("p", "*"), ("*", "*")].into_iter().take(if pools { 4 } else { 0 })
    {
        ceilings.push(limit(json!({ "provider": provider, "model": model }), false).boxed());
    }
    let knobs = (
        prop_oneof![Just(0u32), Just(60), Just(300)],
        prop_oneof![1 => Just(0u32), 1 => Just(1), 2 => Just(3), 3 => Just(64)],
        prop_oneof![1 => Just(3u32), 4 => Just(50)],
        prop_oneof![3 => Just(0u32), 1 => Just(4)],
        prop_oneof![Just(0u32), Just(1), Just(3), Just(64)],
        prop_oneof![Just(1u32), Just(40), Just(100)],
    );
    (rows, groups, ceilings, knobs).prop_map(|(limits, groups, ceilings, knobs)| {
        let (timeout, queued, waiting, head_start, overtakes, grace) = knobs;
        json!({
            "limits": limits.into_iter().flatten().collect::<Vec<_>>(),
            "groups": groups.into_iter().flatten().collect::<Vec<_>>(),
            "ceilings": ceilings.into_iter().flatten().collect::<Vec<_>>(),
            "queueTimeoutMs": timeout,
            "maxQueued": queued,
            "maxWaiting": waiting,
            "headStart": head_start,
            "maxOvertakes": overtakes,
            "spawnGraceMs": grace,
        })
        .to_string()
    })
}

fn step(pools: bool) -> impl Strategy<Value = Step> {
    let stream = (option::weighted(0.8, 0..4u8), 0..4u8, any::<bool>(), option::weighted(0.4, any::<u8>()))
        .prop_map(|(session, route, first, spawn)| Step::Stream { session, route, first, spawn });
    let spawn = (option::of(0..4u8), option::weighted(0.9, 0..4u8))
        .prop_map(|(session, route)| Step::Spawn { session, route });
    let capacity = (any::<u8>(), 0..4u8, option::weighted(0.3, 0..120u16), any::<bool>())
        .prop_map(|(at, n, ms, contended)| Step::Capacity(at, n, ms, contended));
    prop_oneof![
        12 => stream,
        5 => spawn,
        12 => (any::<u8>(), prop::bool::weighted(0.7)).prop_map(|(at, completed)| Step::Finish(at, completed)),
        4 => (0..80u16).prop_map(Step::Tick),
        1 => world(pools).prop_map(Step::Configure),
        if pools { 3 } else { 0 } => capacity,
        1 => (1..6u8).prop_map(Step::Rebuild),
    ]
}

/// Any history of up to `longest` steps in any world.
pub fn history(longest: usize, pools: bool) -> impl Strategy<Value = (World, Vec<Step>)> {
    (world(pools), vec(step(pools), 1..=longest))
}

/// A history in which nobody's wait runs out and few may overtake, and what arrives after it: for [`starve`](crate::starve).
pub fn fair_history() -> impl Strategy<Value = (World, Vec<Step>, Vec<(u8, bool)>)> {
    let patient = |world: World| {
        let mut world: Value = serde_json::from_str(&world).unwrap_or_else(|e| panic!("{e} in {world}"));
        world["queueTimeoutMs"] = json!(0);
        world["maxQueued"] = json!(4);
        world["maxWaiting"] = json!(50);
        world["headStart"] = json!(0);
        world["maxOvertakes"] = json!(world["maxOvertakes"].as_u64().unwrap_or(0).min(3));
        world.to_string()
    };
    let calm =
        |steps: Vec<Step>| steps.into_iter().filter(|step| !matches!(step, Step::Configure(_))).collect();
    let arrivals = vec((0..4u8, prop::bool::weighted(0.4)), 1..8);
    (world(false).prop_map(patient), vec(step(false), 5..25).prop_map(calm), arrivals)
}
