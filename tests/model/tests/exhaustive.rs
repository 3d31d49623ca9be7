//! The small worlds, a size smaller than `cargo xtask prove exhaustive` explores them, and that the explorer finds what is wrong.

use std::sync::Arc;

use limiter::{Audit, CallId, Grant, Instant, Need, Outcome, Settled, SpawnCall, Stats, StreamCall, Verdict};
use model::{Configured, Known, Native, Size, Subject, explore, unfair, worlds};
use serde_json::{Value, json};

#[test]
fn nothing_that_can_happen_in_a_small_world_breaks_a_promise() {
    for world in worlds(Size::Small) {
        match explore(&world, Native::default()) {
            Ok(covered) => println!("{}: {covered:?}", world.name),
            Err(violation) => panic!("{}: {violation}", world.name),
        }
    }
}

/// Three sessions, two routes and a group of both, every combination of the limits 0 to 2 and none, lines of three.
#[test]
fn nothing_that_can_happen_within_the_stated_bound_does() {
    let world = worlds(Size::Whole).swap_remove(0);
    let covered = explore(&world, Native::default()).unwrap_or_else(|violation| panic!("{violation}"));
    assert!(covered.states > 40_000, "{covered:?}");
}

#[test]
fn starvation_is_found_where_no_seat_is_kept() {
    let violation = explore(&unfair(), Native::default()).expect_err("a world that starves");
    assert!(violation.what.starts_with("L2"), "{violation}");
}

/// What a limiter does wrong.
#[derive(Clone, Copy, Debug)]
enum Fault {
    /// It admits one more than the limit.
    OneTooMany,
    /// It keeps no seat for anybody.
    KeepsNothing,
    /// It forgets that a call has ended.
    ForgetsAnEnd,
    /// It takes two neighbours in line the other way round.
    Reorders,
    /// It loses somebody who waits when the state is restored.
    LosesAWaiter,
    /// It loses a live call when the state is restored.
    LosesACall,
    /// A spawn that was let through counts for nothing.
    NoCredits,
    /// A wait never runs out.
    NoTimeout,
    /// It does not serve the line when a limit is raised.
    RaisesInSilence,
    /// Whoever cannot be served at once is refused.
    RefusesAll,
}

/// A limiter that does one thing wrong.
#[derive(Clone)]
struct Broken(Native, Fault);

impl Broken {
    /// Two neighbours in the order of ids change places.
    fn id(&self, id: CallId) -> CallId {
        if matches!(self.1, Fault::Reorders) { id ^ 1 } else { id }
    }

    /// The configuration with one setting changed by force.
    fn force(config: &Configured, change: impl Fn(&mut Value)) -> Arc<Configured> {
        let mut json = serde_json::from_str(&config.json).expect("it was read before");
        change(&mut json);
        Configured::new(&json.to_string())
    }
}

impl Subject for Broken {
    fn configure(&mut self, config: &Configured, now: Instant) {
        let forced = match self.1 {
            Fault::OneTooMany => Self::force(config, |json| {
                for row in json["limits"].as_array_mut().into_iter().flatten() {
                    if row["max"] == 1 {
                        row["max"] = json!(2);
                    }
                }
            }),
            Fault::KeepsNothing => Self::force(config, |json| json["maxOvertakes"] = json!(1_000)),
            Fault::NoTimeout => Self::force(config, |json| json["queueTimeoutMs"] = json!(0)),
            Fault::RefusesAll => Self::force(config, |json| json["maxQueued"] = json!(0)),
            Fault::NoCredits => Self::force(config, |json| json["spawnGraceMs"] = json!(0)),
            _ => Self::force(config, |_| ()),
        };
        self.0.configure(&forced, now);
        if matches!(self.1, Fault::RaisesInSilence) {
            self.0.settled();
        }
    }

    fn start_stream(&mut self, id: CallId, call: StreamCall, now: Instant) -> Verdict {
        self.0.start_stream(self.id(id), call, now)
    }

    fn start_spawn(&mut self, id: CallId, call: SpawnCall, now: Instant) -> Verdict {
        self.0.start_spawn(self.id(id), call, now)
    }

    fn finish(&mut self, id: CallId, outcome: Outcome, now: Instant) {
        if !(matches!(self.1, Fault::ForgetsAnEnd) && id.is_multiple_of(3)) {
            self.0.finish(self.id(id), outcome, now);
        }
    }

    fn tick(&mut self, now: Instant) -> Option<Instant> {
        self.0.tick(now)
    }

    fn capacity(&mut self, grant: &Grant, now: Instant) {
        self.0.capacity(grant, now);
    }

    fn demand(&mut self) -> Vec<Need> {
        self.0.demand()
    }

    fn rebuild(&mut self, mut known: Known, now: Instant) {
        match self.1 {
            Fault::LosesAWaiter => _ = known.waiting.pop(),
            Fault::LosesACall => _ = known.live.pop(),
            _ => {}
        }
        self.0.rebuild(known, now);
    }

    fn settled(&mut self) -> Vec<Settled> {
        let settled = self.0.settled().into_iter();
        settled.map(|(id, result)| (self.id(id), result)).collect()
    }

    fn stats(&mut self, now: Instant) -> Option<Stats> {
        self.0.stats(now)
    }

    /// It looks well inside.
    fn audit(&self) -> Option<Audit> {
        None
    }
}

#[test]
fn whatever_a_limiter_does_wrong_is_found() {
    use Fault::{
        ForgetsAnEnd, KeepsNothing, LosesACall, LosesAWaiter, NoCredits, NoTimeout, OneTooMany,
        RaisesInSilence, RefusesAll, Reorders,
    };
    for fault in [
        OneTooMany,
        KeepsNothing,
        ForgetsAnEnd,
        Reorders,
        LosesAWaiter,
        LosesACall,
        NoCredits,
        NoTimeout,
        RaisesInSilence,
        RefusesAll,
    ] {
        let mut worlds = worlds(Size::Small).into_iter();
        let found = worlds.find_map(|world| explore(&world, Broken(Native::default(), fault)).err());
        let violation =
            found.unwrap_or_else(|| panic!("a limiter that is broken so was found right: {fault:?}"));
        println!("{fault:?}: {violation}");
    }
}
