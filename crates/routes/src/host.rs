//! What the routes ask of their host. The shapes are those of `wit/`, without wasm.

use std::future::Future;

use limiter::Limiter;

use crate::Kin;

/// Whoever has the limiter and can reach the harness.
///
/// Every question may take its time; deadlines are the host's.
pub trait Host {
    /// A look at the limiter, which changes nothing.
    fn look<R>(&self, at: impl FnOnce(&Limiter) -> R) -> R;

    /// A look at what is known of the parents of sessions, beside the limiter. Kept from request to request.
    fn kin<R>(&self, at: impl FnOnce(&mut Kin, &Limiter) -> R) -> R;

    /// Writes a line that somebody should see.
    fn warn(&self, line: &str);

    /// The plugin's own section of the settings, as it is now.
    fn read_settings(&self) -> impl Future<Output = Result<Section, SettingsError>>;

    /// Changes that section: absent keys stay, lists are replaced whole. Ready after the new configuration is in force.
    fn update_settings(
        &self,
        patch: String,
        revision: Option<String>,
    ) -> impl Future<Output = Result<Section, SettingsError>>;

    /// The providers there are.
    fn providers(&self) -> impl Future<Output = Vec<Model>>;

    /// What one provider offers, or why that cannot be told.
    fn models(&self, provider: String) -> impl Future<Output = Result<Vec<Model>, String>>;

    /// What people call these sessions; unknown ones are left out.
    fn describe(&self, sessions: Vec<String>) -> impl Future<Output = Vec<SessionInfo>>;
}

/// The plugin's section of the settings.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Section {
    /// What the user stored over what the row seeds, JSON; what is wrong in it is not in force.
    pub value: String,
    /// What the plugin's row seeds, JSON.
    pub base: String,
    /// What the user stored, JSON.
    pub user: String,
    /// Whether what is valid of `value` is in force; otherwise an earlier one is, until this one is put right.
    pub in_force: bool,
    /// Whether it can be changed at all.
    pub writable: bool,
    /// Names this state of the section; opaque.
    pub revision: Option<String>,
}

/// Why the section cannot be read or changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SettingsError {
    /// Somebody else wrote since the given revision; the section as it is now.
    Conflict(Section),
    /// The deployment does not let it be changed.
    ReadOnly,
    /// There is no settings service here.
    Unavailable,
    /// The harness refuses the values, and says why.
    Invalid(String),
    /// Anything else, in words if there are any.
    Other(Option<String>),
}

/// A provider or one of its models.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct Model {
    /// Its id, as routes use it.
    pub id: String,
    /// What people call it.
    pub name: String,
}

/// What is known about a session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SessionInfo {
    /// Its id.
    pub id: String,
    /// What people call it.
    pub label: Option<String>,
    /// The session that spawned it.
    pub parent: Option<String>,
    /// The root of its tree.
    pub root: Option<String>,
}
