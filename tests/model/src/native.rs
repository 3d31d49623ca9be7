//! The limiter itself as a [`Subject`].

use limiter::{
    Audit, CallId, Grant, Instant, Limiter, Need, Outcome, Settled, SpawnCall, Stats, StatsQuery, StreamCall,
    Verdict,
};

use crate::drive::{Configured, Known, Subject};

/// The limiter, and what a restore decided.
#[derive(Clone, Default)]
pub struct Native(Limiter, Vec<Settled>);

impl Subject for Native {
    fn configure(&mut self, config: &Configured, now: Instant) {
        self.0.configure(config.config.clone(), now);
    }

    fn start_stream(&mut self, id: CallId, call: StreamCall, now: Instant) -> Verdict {
        self.0.start_stream(id, call, now)
    }

    fn start_spawn(&mut self, id: CallId, call: SpawnCall, now: Instant) -> Verdict {
        self.0.start_spawn(id, call, now)
    }

    fn finish(&mut self, id: CallId, outcome: Outcome, now: Instant) {
        // A host may repeat itself.
        self.0.finish(id, outcome, now);
        self.0.finish(id, outcome, now);
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

    fn rebuild(&mut self, known: Known, now: Instant) {
        self.0 = Limiter::new();
        self.configure(&known.config, now);
        for grant in known.capacity {
            self.0.capacity(&grant, now);
        }
        for portion in known.live.chunks(known.portion) {
            assert!(self.0.restore(portion.to_vec(), vec![], now).is_empty());
        }
        for portion in known.waiting.chunks(known.portion) {
            for (waiting, answer) in portion.iter().zip(self.0.restore(vec![], portion.to_vec(), now)) {
                match answer.1 {
                    Verdict::Admit => self.1.push((answer.0, Ok(()))),
                    Verdict::Deny(refusal) => self.1.push((answer.0, Err(refusal))),
                    Verdict::Wait { seniority, .. } => {
                        assert_eq!(
                            (answer.0, seniority),
                            (waiting.id, waiting.seniority),
                            "nobody loses their place"
                        );
                    }
                }
            }
        }
    }

    fn settled(&mut self) -> Vec<Settled> {
        self.1.drain(..).chain(self.0.settled()).collect()
    }

    fn stats(&mut self, now: Instant) -> Option<Stats> {
        Some(self.0.stats(&StatsQuery::default(), now))
    }

    fn audit(&self) -> Option<Audit> {
        Some(self.0.audit())
    }
}
