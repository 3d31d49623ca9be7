//! What a component asks of the harness, and how it is answered.
//!
//! A component asks in the middle of a call, when its store is borrowed and nobody else may be called. So it gets a future at
//! once, the question is queued, and whoever owns the plugin [takes](crate::Plugin::take_asks) it and
//! [answers](crate::Plugin::answer) whenever there is something to say. Questions of an instance that has died answer nobody;
//! their ids are never used again.
//!
//! # Bounds
//!
//! Questions and answers are kept on both sides until they are taken, so both are bounded: a component that asks too much at
//! once ([`Limits`]) is told so instead, and an answer is cut to what an instance can hold.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use futures_channel::oneshot;

use crate::bindings::dsh::plugin::{models, sessions, settings};
use crate::{Limits, bound};

pub use models::Model;
pub use sessions::Info as SessionInfo;
pub use settings::{Section, WriteError as SettingsError};

/// Names a question; never used twice in the life of the process.
pub type AskId = u64;

/// Entries of a list in an answer, at most.
const MAX_ENTRIES: usize = 10_000;
/// Bytes of the texts of a section, at most.
const MAX_SECTION_BYTES: usize = 8 << 20;

/// A question to the harness.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ask {
    /// For the answer.
    pub id: AskId,
    /// What is asked.
    pub question: Question,
}

/// What a component can ask.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Question {
    /// The plugin's own section of the settings, as it is now. Answered by [`Answer::Settings`].
    ReadSettings,
    /// To change that section. Answered by [`Answer::Settings`].
    UpdateSettings {
        /// The patch, a JSON object: absent keys stay, lists are replaced whole.
        json: String,
        /// The state it is meant for; any, if there is none.
        revision: Option<String>,
    },
    /// The providers there are. Answered by [`Answer::Providers`].
    ListProviders,
    /// What one provider offers. Answered by [`Answer::Models`].
    ListModels {
        /// Its id.
        provider: String,
    },
    /// What people call these sessions. Answered by [`Answer::Sessions`].
    DescribeSessions {
        /// Their ids.
        ids: Vec<String>,
    },
}

/// An answer.
#[derive(Debug)]
pub enum Answer {
    /// The section as it is now, or why not.
    Settings(Result<Section, SettingsError>),
    /// The providers.
    Providers(Vec<Model>),
    /// The models of the provider, or why there are none.
    Models(Result<Vec<Model>, String>),
    /// The sessions that are known.
    Sessions(Vec<SessionInfo>),
    /// To any question: there is no harness, or none of its services, to ask.
    Unavailable,
}

/// Questions of one store.
pub(crate) struct Asks {
    most: usize,
    most_bytes: usize,
    queue: Vec<Ask>,
    open: BTreeMap<AskId, Open>,
    bytes: usize,
}

struct Open {
    reply: Reply,
    bytes: usize,
}

/// Where an answer goes.
enum Reply {
    Settings(oneshot::Sender<Result<Section, SettingsError>>),
    Providers(oneshot::Sender<Vec<Model>>),
    Models(oneshot::Sender<Result<Vec<Model>, String>>),
    Sessions(oneshot::Sender<Vec<SessionInfo>>),
}

impl Asks {
    pub(crate) fn new(limits: &Limits) -> Self {
        Self {
            most: limits.asks,
            most_bytes: limits.ask_bytes,
            queue: Vec::new(),
            open: BTreeMap::new(),
            bytes: 0,
        }
    }

    pub(crate) fn read_settings(&mut self) -> oneshot::Receiver<Result<Section, SettingsError>> {
        self.ask(Question::ReadSettings, 0, Reply::Settings)
    }

    pub(crate) fn update_settings(
        &mut self,
        json: String,
        revision: Option<String>,
    ) -> oneshot::Receiver<Result<Section, SettingsError>> {
        let bytes = json.len() + revision.as_ref().map_or(0, String::len);
        self.ask(Question::UpdateSettings { json, revision }, bytes, Reply::Settings)
    }

    pub(crate) fn providers(&mut self) -> oneshot::Receiver<Vec<Model>> {
        self.ask(Question::ListProviders, 0, Reply::Providers)
    }

    pub(crate) fn models(&mut self, provider: String) -> oneshot::Receiver<Result<Vec<Model>, String>> {
        let bytes = provider.len();
        self.ask(Question::ListModels { provider }, bytes, Reply::Models)
    }

    pub(crate) fn sessions(&mut self, ids: Vec<String>) -> oneshot::Receiver<Vec<SessionInfo>> {
        let bytes = ids.iter().map(|id| id.len() + size_of::<String>()).sum();
        self.ask(Question::DescribeSessions { ids }, bytes, Reply::Sessions)
    }

    fn ask<T>(
        &mut self,
        question: Question,
        bytes: usize,
        reply: impl FnOnce(oneshot::Sender<T>) -> Reply,
    ) -> oneshot::Receiver<T> {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        let (sender, receiver) = oneshot::channel();
        let reply = reply(sender);
        if self.open.len() >= self.most || self.bytes.saturating_add(bytes) > self.most_bytes {
            reply.decline("the plugin asks too much at once");
            return receiver;
        }
        let id = NEXT.fetch_add(1, Relaxed);
        self.bytes += bytes;
        self.open.insert(id, Open { reply, bytes });
        self.queue.push(Ask { id, question });
        receiver
    }

    pub(crate) fn is_queued(&self) -> bool {
        !self.queue.is_empty()
    }

    pub(crate) fn take(&mut self) -> Vec<Ask> {
        std::mem::take(&mut self.queue)
    }

    pub(crate) fn is_open(&self, id: AskId) -> bool {
        self.open.contains_key(&id)
    }

    /// Whether there was a question of that id and kind.
    pub(crate) fn answer(&mut self, id: AskId, answer: Answer) -> bool {
        let Some(Open { reply, bytes }) = self.open.remove(&id) else { return false };
        match reply.give(answer) {
            Ok(()) => {
                self.bytes -= bytes;
                true
            }
            Err(reply) => {
                self.open.insert(id, Open { reply, bytes });
                false
            }
        }
    }
}

impl Reply {
    /// Gives an answer of its kind, or itself back. One that nobody waits for any more is lost.
    fn give(self, answer: Answer) -> Result<(), Self> {
        match (self, answer) {
            (Self::Settings(reply), Answer::Settings(result)) => drop(reply.send(bounded_section(result))),
            (Self::Providers(reply), Answer::Providers(providers)) => {
                drop(reply.send(bounded_models(providers)));
            }
            (Self::Models(reply), Answer::Models(result)) => {
                drop(reply.send(result.map(bounded_models).map_err(bounded_text)));
            }
            (Self::Sessions(reply), Answer::Sessions(sessions)) => {
                drop(reply.send(bounded_sessions(sessions)));
            }
            (reply, Answer::Unavailable) => reply.decline("this host has no llm service"),
            (reply, _) => return Err(reply),
        }
        Ok(())
    }

    fn decline(self, why: &str) {
        match self {
            Self::Settings(reply) => drop(reply.send(Err(SettingsError::Unavailable))),
            Self::Providers(reply) => drop(reply.send(Vec::new())),
            Self::Models(reply) => drop(reply.send(Err(why.into()))),
            Self::Sessions(reply) => drop(reply.send(Vec::new())),
        }
    }
}

fn bounded_section(result: Result<Section, SettingsError>) -> Result<Section, SettingsError> {
    match result {
        Ok(section) => check_section(section),
        Err(SettingsError::Conflict(section)) => {
            check_section(section).and_then(|s| Err(SettingsError::Conflict(s)))
        }
        Err(SettingsError::Invalid(why)) => Err(SettingsError::Invalid(bounded_text(why))),
        Err(SettingsError::Other(why)) => Err(SettingsError::Other(why.map(bounded_text))),
        Err(error @ (SettingsError::ReadOnly | SettingsError::Unavailable)) => Err(error),
    }
}

fn check_section(section: Section) -> Result<Section, SettingsError> {
    let Section { value, base, user, in_force: _, writable: _, revision } = &section;
    let size = value.len() + base.len() + user.len() + revision.as_ref().map_or(0, String::len);
    if size > MAX_SECTION_BYTES {
        return Err(SettingsError::Other(Some(format!(
            "the section has {size} bytes, more than the {MAX_SECTION_BYTES} that are looked at"
        ))));
    }
    Ok(section)
}

fn bounded_models(mut models: Vec<Model>) -> Vec<Model> {
    models.truncate(MAX_ENTRIES);
    for Model { id, name } in &mut models {
        bound::text(id);
        bound::text(name);
    }
    models
}

fn bounded_sessions(mut sessions: Vec<SessionInfo>) -> Vec<SessionInfo> {
    sessions.truncate(MAX_ENTRIES);
    for SessionInfo { id, label, parent, root } in &mut sessions {
        bound::text(id);
        [label, parent, root].into_iter().flatten().for_each(bound::text);
    }
    sessions
}

fn bounded_text(mut text: String) -> String {
    bound::text(&mut text);
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    const MOST: usize = 100;
    const MOST_BYTES: usize = 4_000;

    fn limited() -> Asks {
        Asks::new(&Limits { asks: MOST, ask_bytes: MOST_BYTES, ..Limits::default() })
    }

    fn ids(asks: &mut Asks) -> Vec<AskId> {
        asks.take().into_iter().map(|ask| ask.id).collect()
    }

    #[test]
    fn an_answer_of_another_kind_leaves_the_question_open() {
        let mut asks = limited();
        let mut models = asks.models("box".into());
        let [id] = ids(&mut asks)[..] else { panic!("one question") };
        assert!(!asks.answer(id, Answer::Sessions(Vec::new())));
        assert!(matches!(models.try_recv(), Ok(None)));
        assert!(asks.answer(id, Answer::Models(Err("down".into()))));
        assert!(matches!(models.try_recv(), Ok(Some(Err(why))) if why == "down"));
        assert!(!asks.answer(id, Answer::Models(Err("again".into()))));
    }

    #[test]
    fn every_kind_of_question_can_be_declined() {
        let mut asks = limited();
        let mut section = asks.read_settings();
        let mut updated = asks.update_settings("{}".into(), None);
        let (mut providers, mut models) = (asks.providers(), asks.models("box".into()));
        let mut sessions = asks.sessions(vec!["s".into()]);
        for id in ids(&mut asks) {
            assert!(asks.answer(id, Answer::Unavailable));
        }
        assert!(matches!(section.try_recv(), Ok(Some(Err(SettingsError::Unavailable)))));
        assert!(matches!(updated.try_recv(), Ok(Some(Err(SettingsError::Unavailable)))));
        assert_eq!(providers.try_recv().map(|p| p.map(|p| p.len())), Ok(Some(0)));
        assert!(matches!(models.try_recv(), Ok(Some(Err(why))) if why.contains("no llm service")));
        assert_eq!(sessions.try_recv().map(|s| s.map(|s| s.len())), Ok(Some(0)));
        assert!(asks.open.is_empty() && asks.bytes == 0);
    }

    #[test]
    fn whoever_asks_too_much_at_once_is_told_so_and_nothing_is_queued_for_it() {
        let mut asks = limited();
        let big = "x".repeat(MOST_BYTES / 4);
        let mut open: Vec<_> = (0..4).map(|_| asks.update_settings(big.clone(), None)).collect();
        let mut declined = asks.models("box".into());
        assert!(matches!(declined.try_recv(), Ok(Some(Err(why))) if why.contains("too much")));
        assert_eq!(asks.take().len(), open.len());
        assert!(open.iter_mut().all(|one| matches!(one.try_recv(), Ok(None))));

        let mut asks = limited();
        let open: Vec<_> = (0..MOST).map(|_| asks.providers()).collect();
        assert!(matches!(asks.providers().try_recv(), Ok(Some(providers)) if providers.is_empty()));
        assert_eq!(asks.take().len(), open.len());
    }

    #[test]
    fn answers_are_cut_to_what_an_instance_can_hold() {
        let long = "x".repeat(1 << 20);
        let many = vec![Model { id: long.clone(), name: long.clone() }; 3];
        for Model { id, name } in bounded_models(many) {
            assert!(id.len() <= bound::MAX_TEXT_BYTES && name.len() <= bound::MAX_TEXT_BYTES);
        }
        assert_eq!(
            bounded_models(vec![Model { id: "m".into(), name: "M".into() }; MAX_ENTRIES + 1]).len(),
            MAX_ENTRIES
        );
        let section = Section {
            value: "x".repeat(MAX_SECTION_BYTES + 1),
            base: String::new(),
            user: String::new(),
            in_force: true,
            writable: true,
            revision: None,
        };
        assert!(
            matches!(bounded_section(Ok(section)), Err(SettingsError::Other(Some(why))) if why.contains("bytes"))
        );
    }
}
