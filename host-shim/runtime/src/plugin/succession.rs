//! One instance in another's place.
//!
//! A new instance is configured and told everything the [table](crate::table) holds, in portions that stay far below the
//! deadline of a call. So it is after a fault, and so where a component, its limits or what the table holds are changed on
//! purpose; an instance that is replaced on purpose still [answers](super::requests) what it was asked before.

use std::mem;

use crate::bindings::exports::dsh::plugin::pools::Need;
use crate::config::Config;
use crate::instance::Instance;
use crate::plugin::configuration::{check_size, whole_text};
use crate::plugin::{PORTION, Plugin, Role, Work};
use crate::share::endow;
use crate::{Component, Fault, Instant, Limits, Mode, Problem, Runtime, StartError, Verdict};

/// What is to be put to work, in the place of what is there or where nothing is.
pub(crate) struct Incoming {
    pub(crate) component: Component,
    pub(crate) limits: Limits,
    /// Without one what is in force stays, or `{}` is.
    pub(crate) config: Option<(String, Mode)>,
}

/// What an instance said about itself once it was configured.
#[derive(Clone, Default)]
pub(super) struct Facts {
    pub(super) problems: Vec<Problem>,
    pub(super) tools: Vec<String>,
    pub(super) paths: Vec<String>,
    /// What its pooled scopes need, all of them, as it was then.
    pub(super) needs: Vec<Need>,
}

/// A configured instance that has been told of no call.
pub(super) struct Fresh {
    pub(super) instance: Box<Instance>,
    pub(super) facts: Facts,
}

impl Fresh {
    pub(super) fn new(
        runtime: &Runtime,
        role: &Role,
        component: &Component,
        limits: &Limits,
        config: &Config,
        now: Instant,
    ) -> Result<Self, StartError> {
        let mut instance = Box::new(Instance::new(runtime, component, limits).map_err(Fault::from)?);
        match Facts::of(&mut instance, role, config, 0, now)? {
            Ok(facts) => Ok(Self { instance, facts }),
            Err(problems) => Err(StartError::Config { problems }),
        }
    }
}

impl Facts {
    /// Configures an instance that knows of so many calls, and asks what follows from it. The inner error is its refusal.
    pub(super) fn of(
        instance: &mut Instance,
        role: &Role,
        config: &Config,
        calls: usize,
        now: Instant,
    ) -> Result<Result<Self, Vec<Problem>>, Fault> {
        let problems = match instance.configure(&config.json, config.mode, calls, now)? {
            Ok(problems) => problems,
            Err(problems) => return Ok(Err(problems)),
        };
        let needs = instance.demand()?;
        let paths = instance.paths()?;
        if let Some(objection) = paths.iter().find_map(|path| role.objection(path)) {
            return Ok(Err(vec![whole_text(objection)]));
        }
        Ok(Ok(Self { problems, tools: instance.tools()?, paths, needs }))
    }

    /// The scopes that name a pool, and which.
    fn named(&self) -> Vec<(&str, &str)> {
        self.needs.iter().filter_map(|need| Some((need.scope.as_str(), need.pool.as_deref()?))).collect()
    }
}

impl Plugin {
    /// Puts another component in this one's place. Calls, lines and seniority carry over; open requests are still
    /// answered by the old one.
    ///
    /// # Errors
    ///
    /// If the new one cannot be brought to work; the old one goes on.
    pub fn replace(&mut self, component: Component, now: Instant) -> Result<(), StartError> {
        let limits = self.limits.clone();
        self.replace_under(Incoming { component, limits, config: None }, now)
    }

    /// The same under other limits and, if one is given, another configuration.
    pub(crate) fn replace_under(&mut self, incoming: Incoming, now: Instant) -> Result<(), StartError> {
        let Incoming { component, limits, config } = incoming;
        self.prepare(now);
        let is_brought = config.is_some();
        let config = match config {
            Some((json, mode)) => {
                check_size(&json, &limits).map_err(|problems| StartError::Config { problems })?;
                Config::new(json, mode)
            }
            None => self.config.clone(),
        };
        let fresh = Fresh::new(&self.runtime, &self.role, &component, &limits, &config, now)?;
        let before = mem::replace(&mut self.limits, limits);
        if let Err(fault) = self.take_over(fresh, now) {
            self.limits = before;
            self.recover_uncharged(fault.clone(), now);
            return Err(fault.into());
        }
        self.component = component;
        self.config = config;
        self.out.set_lines_per_second(self.limits.log_lines_per_second);
        self.faults.forgive();
        if is_brought {
            self.refused.clear();
        }
        self.exchange(now);
        Ok(())
    }

    /// Puts an instance with other limits in this one's place, the way [`replace`](Self::replace) does.
    ///
    /// # Errors
    ///
    /// If it cannot be brought to work within them; the old one goes on, within the old ones.
    pub fn set_limits(&mut self, limits: Limits, now: Instant) -> Result<(), StartError> {
        let component = self.component.clone();
        self.replace_under(Incoming { component, limits, config: None }, now)
    }

    /// A new instance of what is in force, for a change to the table that it is best told of as a whole.
    pub(super) fn reseat(&mut self, now: Instant) {
        if let Err(fault) = self.try_reseat(now) {
            self.recover(fault, now);
        }
    }

    pub(super) fn try_reseat(&mut self, now: Instant) -> Result<(), Fault> {
        if matches!(self.work, Work::Failed { .. }) {
            return Ok(());
        }
        let fresh = self.fresh(&self.config, now)?;
        self.take_over(fresh, now)
    }

    /// A fresh instance of the component in force, under a configuration that need not be.
    pub(super) fn fresh(&self, config: &Config, now: Instant) -> Result<Fresh, StartError> {
        Fresh::new(&self.runtime, &self.role, &self.component, &self.limits, config, now)
    }

    /// Puts a fresh instance to work in the place of what was there.
    ///
    /// It is told of everything in the table. If it fails before the end, what it has decided on the way is nobody's, and nothing is
    /// at work.
    pub(super) fn take_over(&mut self, fresh: Fresh, now: Instant) -> Result<(), Fault> {
        self.bury(now, |me, mut instance| {
            if !instance.state().open.is_empty() {
                me.retiring.push(*instance);
            }
        });
        let Fresh { mut instance, facts } = fresh;
        let endowed = endow(&mut instance, &facts.needs, self.share.as_ref(), now);
        let due = endowed.and_then(|()| self.restore(&mut instance, now));
        if due.is_err() {
            instance.state().settled.clear();
        }
        self.out.collect(instance.state(), &mut self.table, now);
        self.work = Work::Running { due: due?, instance };
        self.learn(facts);
        Ok(())
    }

    /// Takes note of what an instance said about itself.
    pub(super) fn learn(&mut self, facts: Facts) {
        let named = facts.named();
        if named != self.facts.named() {
            self.names_pools = !named.is_empty();
        }
        if let Some(share) = &mut self.share {
            share.begin(&facts.needs);
        }
        self.facts = facts;
    }

    fn restore(&mut self, instance: &mut Instance, now: Instant) -> Result<Option<Instant>, Fault> {
        // What it burnt while it was configured counts on: it is one operation.
        instance.grant(self.table.len().div_ceil(PORTION) as u64);
        for portion in self.table.running().chunks(PORTION) {
            let live: Vec<_> = portion.iter().filter_map(|&id| self.table.live_call(id)).collect();
            instance.restore(&live, &[], now)?;
        }
        for portion in self.table.line().chunks(PORTION) {
            let waiting: Vec<_> = portion.iter().filter_map(|&id| self.table.waiting_call(id)).collect();
            for (id, verdict) in instance.restore(&[], &waiting, now)? {
                let result = match verdict {
                    Verdict::Admit => Ok(()),
                    Verdict::Deny(refusal) => Err(refusal),
                    Verdict::Wait { .. } => continue,
                };
                instance.state().settled.push((id, result));
            }
            self.out.collect_answers(instance.state(), now);
        }
        instance.tick(now)
    }

    /// Takes the instance at work from its place, and what it has decided.
    pub(super) fn bury(&mut self, now: Instant, remains: impl FnOnce(&mut Self, Box<Instance>)) {
        let nobody = Work::Failed { retry_at: now, given_up: true };
        if let Work::Running { mut instance, .. } = mem::replace(&mut self.work, nobody) {
            self.out.collect(instance.state(), &mut self.table, now);
            remains(self, instance);
        }
    }
}
