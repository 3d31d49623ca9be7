//! What the host lends, as the routes see it.

use std::cell::RefCell;

use limiter::Limiter;
use routes::{Host, Kin, Model, Section, SessionInfo, SettingsError};

use crate::bindings::dsh::plugin::log::{Level, log};
use crate::bindings::dsh::plugin::{models, sessions, settings};
use crate::gate;

thread_local! {
    static KIN: RefCell<Kin> = RefCell::default();
}

pub struct Lent;

impl Host for Lent {
    fn look<R>(&self, at: impl FnOnce(&Limiter) -> R) -> R {
        gate::look(at)
    }

    fn kin<R>(&self, at: impl FnOnce(&mut Kin, &Limiter) -> R) -> R {
        KIN.with_borrow_mut(|kin| gate::look(|limiter| at(kin, limiter)))
    }

    fn warn(&self, line: &str) {
        log(Level::Warn, line);
    }

    async fn read_settings(&self) -> Result<Section, SettingsError> {
        settings::read().await.map(section).map_err(settings_error)
    }

    async fn update_settings(
        &self,
        patch: String,
        revision: Option<String>,
    ) -> Result<Section, SettingsError> {
        settings::update(&patch, revision.as_deref()).await.map(section).map_err(settings_error)
    }

    async fn providers(&self) -> Vec<Model> {
        list(models::providers().await)
    }

    async fn models(&self, provider: String) -> Result<Vec<Model>, String> {
        models::list_models(&provider).await.map(list)
    }

    async fn describe(&self, sessions: Vec<String>) -> Vec<SessionInfo> {
        let known = sessions::describe(&sessions).await.into_iter();
        known
            .map(|sessions::Info { id, label, parent, root }| SessionInfo { id, label, parent, root })
            .collect()
    }
}

fn list(models: Vec<models::Model>) -> Vec<Model> {
    models.into_iter().map(|models::Model { id, name }| Model { id, name }).collect()
}

fn section(section: settings::Section) -> Section {
    let settings::Section { value, base, user, in_force, writable, revision } = section;
    Section { value, base, user, in_force, writable, revision }
}

fn settings_error(error: settings::WriteError) -> SettingsError {
    match error {
        settings::WriteError::Conflict(now) => SettingsError::Conflict(section(now)),
        settings::WriteError::ReadOnly => SettingsError::ReadOnly,
        settings::WriteError::Unavailable => SettingsError::Unavailable,
        settings::WriteError::Invalid(words) => SettingsError::Invalid(words),
        settings::WriteError::Other(words) => SettingsError::Other(words),
    }
}
