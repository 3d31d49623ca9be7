//! Another configuration for a plugin at work.
//!
//! A new text comes from outside, so it is tried first on an instance of its own: one that is refused, or that a component does
//! not survive, costs nobody anything. What still goes wrong with it at the instance at work is not charged to `maxRestarts`:
//! three wrong edits of a row must not lift its limits. What was wrong with the last text is kept for whoever asks, whatever
//! is in force instead.

use crate::config::Config;
use crate::plugin::succession::Facts;
use crate::plugin::{ATTEMPTS, Plugin, Work};
use crate::share::endow;
use crate::{ConfigureError, Fault, Instant, Limits, Mode, Problem, StartError};

impl Plugin {
    /// Replaces the whole configuration, for those who wait too. Answers with the problems of [`Mode::Lenient`].
    ///
    /// While the component has failed this is an attempt to bring it back under the new configuration.
    ///
    /// [`Status::problems`](crate::Status::problems) speaks of the configuration brought last. Whoever falls back to an
    /// older one after a refusal, and wants the refused one listed as long as that is in force, brings the refused one once more.
    ///
    /// # Errors
    ///
    /// If its text is too long, or the component refuses it or fails over it; that is not charged to `maxRestarts`. What was in
    /// force still is; but `onFailure` and `maxRestarts` are taken over while there is no component to judge the rest.
    pub fn configure(
        &mut self,
        json: &str,
        mode: Mode,
        now: Instant,
    ) -> Result<Vec<Problem>, ConfigureError> {
        self.prepare(now);
        let result = self.bring(json, mode, now);
        self.refused = match &result {
            Ok(_) => Vec::new(),
            Err(ConfigureError::Refused { problems }) => problems.clone(),
            Err(error @ ConfigureError::Fault(_)) => vec![whole_text(error.to_string())],
        };
        result
    }

    fn bring(&mut self, json: &str, mode: Mode, now: Instant) -> Result<Vec<Problem>, ConfigureError> {
        check_size(json, &self.limits).map_err(|problems| ConfigureError::Refused { problems })?;
        let config = Config::new(json, mode);
        let facts = match self.work {
            Work::Running { .. } => self.configure_in_place(&config, now)?,
            Work::Failed { .. } => self.configure_by_rebuild(&config, now)?,
        };
        self.config = config;
        self.learn(facts);
        self.begin();
        self.advance(now);
        self.exchange(now);
        Ok(self.facts.problems.clone())
    }

    fn configure_in_place(&mut self, config: &Config, now: Instant) -> Result<Facts, ConfigureError> {
        self.fresh(config, now)?;
        let mut attempts = ATTEMPTS;
        loop {
            let Work::Running { instance, .. } = &mut self.work else {
                return Err(ConfigureError::Fault(self.last_fault()));
            };
            let configured =
                Facts::of(instance, &self.role, config, self.table.len(), now).and_then(|answer| {
                    if let Ok(facts) = &answer {
                        endow(instance, &facts.needs, self.share.as_ref(), now)?;
                    }
                    Ok(answer)
                });
            match configured {
                Ok(Ok(facts)) => {
                    self.out.collect(instance.state(), &mut self.table, now);
                    return Ok(facts);
                }
                Ok(Err(problems)) => return Err(ConfigureError::Refused { problems }),
                Err(fault) => {
                    attempts -= 1;
                    // Whom it let pass under what is not in force waits on.
                    instance.state().settled.clear();
                    self.recover_uncharged(fault.clone(), now);
                    if attempts == 0 || matches!(fault, Fault::Deadline { .. }) {
                        return Err(ConfigureError::Fault(fault));
                    }
                }
            }
        }
    }

    fn configure_by_rebuild(&mut self, config: &Config, now: Instant) -> Result<Facts, ConfigureError> {
        let failed = matches!(self.work, Work::Failed { given_up: true, .. });
        let fresh = match self.fresh(config, now) {
            Ok(fresh) => fresh,
            Err(error) => {
                if failed && matches!(error, StartError::Fault(_)) {
                    self.config.on_failure = config.on_failure;
                    self.config.max_restarts = config.max_restarts;
                }
                return Err(error.into());
            }
        };
        let facts = fresh.facts.clone();
        self.take_over(fresh, now).inspect_err(|fault| self.recover_uncharged(fault.clone(), now))?;
        if failed {
            self.back();
        }
        Ok(facts)
    }
}

/// Refuses a configuration that is too long to be brought to anybody.
pub(super) fn check_size(json: &str, limits: &Limits) -> Result<(), Vec<Problem>> {
    let (size, most) = (json.len(), limits.config_bytes);
    if size <= most {
        return Ok(());
    }
    Err(vec![whole_text(format!("has {size} bytes, more than the {most} a configuration may have"))])
}

/// A problem with a configuration as a whole.
pub(super) fn whole_text(message: String) -> Problem {
    Problem { path: String::new(), message }
}
