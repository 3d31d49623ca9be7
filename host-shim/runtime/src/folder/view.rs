//! What the folder's thread has published, and what of it was taken.
//!
//! Two states are kept, of now and of what was last told; changes are their difference. So whatever happens in between, each
//! that is taken leads from what the owner knows to what is.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::folder::{PACKAGED, Settings};
use crate::{Component, World};

/// Something is different in a folder.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Change {
    /// This is to be at work under that name from now on: it is new, or its file or its settings were replaced. Also told when
    /// a refusal has been put right, even if nothing changed by that.
    Loaded {
        /// The plugin.
        name: String,
        /// What is to run.
        component: Component,
        /// How.
        settings: Settings,
        /// What of it is new.
        changed: Changed,
    },
    /// Of `gen-limit` only, while its component is not in the folder: the settings that the host's own one is to have. Those of
    /// a file that is gone are the default ones.
    Settings {
        /// The plugin.
        name: String,
        /// How it is to run.
        settings: Settings,
    },
    /// Nothing of that name is there any more, neither at work nor refused. If it is `gen-limit` and its settings stay, they
    /// follow.
    Removed {
        /// The plugin, or the file if it had no plugin's name.
        name: String,
    },
    /// A file cannot be used. What was loaded under its name before stays at work as it was, and a successor that can be used
    /// makes a [`Loaded`](Self::Loaded).
    Refused {
        /// The plugin, or the file if it has no plugin's name.
        name: String,
        /// The file.
        file: String,
        /// One sentence: the file, what is wrong with it, what was expected, what happens now.
        reason: String,
    },
}

/// What of a plugin is new.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Changed {
    /// The component.
    pub component: bool,
    /// The settings.
    pub settings: bool,
}

/// A folder as it is.
#[derive(Clone, Debug, Default)]
pub struct Standing {
    /// Where.
    pub path: PathBuf,
    /// Whether all that lay there at first has been looked at: it is at work, or refused.
    pub seen: bool,
    /// Whether there is a folder.
    pub exists: bool,
    /// Why it cannot be read or watched as it should be, if so. What was loaded stays at work.
    pub trouble: Option<String>,
    /// Its files, by name.
    pub entries: Vec<Entry>,
}

impl Standing {
    /// Whether whoever tells of it tells the same: a file that is being written is no news.
    fn is_like(&self, other: &Self) -> bool {
        let told = |standing: &Self| -> Vec<(String, EntryState)> {
            let entries =
                standing.entries.iter().filter(|entry| !matches!(entry.state, EntryState::Waiting(_)));
            entries.map(|entry| (entry.file.clone(), entry.state.clone())).collect()
        };
        self.seen == other.seen && self.trouble == other.trouble && told(self) == told(other)
    }
}

/// A file of a folder.
#[derive(Clone, Debug)]
pub struct Entry {
    /// Its name.
    pub file: String,
    /// The plugin it is of, if it has a plugin's name.
    pub plugin: Option<String>,
    /// Its size in bytes, if it is a file at all.
    pub size: Option<u64>,
    /// How it stands.
    pub state: EntryState,
}

/// How a file of a folder stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EntryState {
    /// It is at work.
    Loaded {
        /// Its digest, in hexadecimal.
        sha256: String,
        /// Its world.
        world: World,
    },
    /// Its settings are in force.
    Applied,
    /// It is not used yet; in words, why.
    Waiting(String),
    /// There is nothing to use it for; in words, why.
    Idle(String),
    /// It cannot be used; in words, why.
    Refused(String),
}

/// What is told of one name.
#[derive(Clone, Debug, Default)]
pub(super) struct Link {
    /// Whether there is a file that is, or should be, a component.
    pub(super) present: bool,
    /// What is at work.
    pub(super) work: Option<(Component, Settings)>,
    /// Of [`PACKAGED`]: the settings of the host's own, while there is nothing at work.
    pub(super) own: Option<Settings>,
    /// Its files that cannot be used.
    pub(super) refused: Vec<Refused>,
}

/// A file that cannot be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Refused {
    pub(super) file: String,
    /// Whether it is one with settings.
    pub(super) of_settings: bool,
    pub(super) reason: String,
}

impl Link {
    pub(super) fn is_empty(&self) -> bool {
        self.work.is_none() && self.own.is_none() && self.refused.is_empty()
    }

    /// Adds what leads from `before` to this. In the order in which it is to be applied.
    fn since(&self, before: &Self, plugin: &str, changes: &mut Vec<Change>) {
        let name = || plugin.to_owned();
        let righted = !before.refused.is_empty() && self.refused.is_empty();
        let is_own = plugin == PACKAGED;
        if let Some((component, settings)) = &self.work {
            let is_other = before.work.as_ref().map_or(
                Changed { component: true, settings: true },
                |(old, old_settings)| Changed {
                    component: old.sha256() != component.sha256(),
                    settings: old_settings != settings,
                },
            );
            if righted || is_other != Changed::default() {
                let (component, settings) = (component.clone(), settings.clone());
                changes.push(Change::Loaded { name: name(), component, settings, changed: is_other });
            }
        } else {
            // The settings of the host's own plugin are refused, and put right, without a component.
            let known = before.refused.iter().any(|refused| !is_own || !refused.of_settings);
            if before.work.is_some() || known && !self.present {
                changes.push(Change::Removed { name: name() });
            }
        }
        if self.work.is_none() && is_own {
            let own = self.own.clone().unwrap_or_default();
            // Without a component of the folder's the host's own has these; after one it has the default ones.
            let known = if before.work.is_some() { None } else { before.own.clone() };
            let settings_righted = righted && before.refused.iter().any(|refused| refused.of_settings);
            if own != known.unwrap_or_default() || settings_righted {
                changes.push(Change::Settings { name: name(), settings: own });
            }
        }
        for Refused { file, reason, .. } in self.refused.iter().filter(|new| !before.refused.contains(new)) {
            changes.push(Change::Refused { name: name(), file: file.clone(), reason: reason.clone() });
        }
    }
}

type Links = BTreeMap<String, Link>;

/// What is published.
pub(super) struct View(Mutex<Published>);

#[derive(Default)]
struct Published {
    now: Links,
    told: Links,
    standing: Standing,
}

impl View {
    pub(super) fn of(path: &Path) -> Self {
        let standing = Standing { path: path.to_owned(), ..Standing::default() };
        Self(Mutex::new(Published { standing, ..Published::default() }))
    }

    /// Never held while anything waits.
    fn published(&self) -> MutexGuard<'_, Published> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Publishes a state; whether there is something to take now, or the folder or a file of it stands otherwise.
    pub(super) fn publish(&self, links: Links, standing: Standing) -> bool {
        let mut published = self.published();
        let old = std::mem::replace(&mut published.standing, standing);
        let otherwise = !old.is_like(&published.standing);
        // What is let go of is dropped outside.
        let before = std::mem::replace(&mut published.now, links);
        let news = otherwise || !changes(&published.told, &published.now).is_empty();
        drop(published);
        drop((before, old));
        news
    }

    pub(super) fn take_changes(&self) -> Vec<Change> {
        let mut published = self.published();
        let changes = changes(&published.told, &published.now);
        let now = published.now.clone();
        let before = std::mem::replace(&mut published.told, now);
        drop(published);
        drop(before);
        changes
    }

    pub(super) fn standing(&self) -> Standing {
        self.published().standing.clone()
    }
}

fn changes(told: &Links, now: &Links) -> Vec<Change> {
    let mut changes = Vec::new();
    let empty = Link::default();
    for name in told.keys().chain(now.keys().filter(|name| !told.contains_key(*name))) {
        let [before, after] = [told, now].map(|links| links.get(name).unwrap_or(&empty));
        after.since(before, name, &mut changes);
    }
    // Each name's own changes stay in their order, and what makes room comes first.
    let order = |change: &Change| (!matches!(change, Change::Removed { .. }), change.name().to_owned());
    changes.sort_by_cached_key(order);
    changes
}

impl Change {
    /// The plugin it is of, or the file that has no plugin's name.
    pub fn name(&self) -> &str {
        match self {
            Self::Loaded { name, .. }
            | Self::Settings { name, .. }
            | Self::Removed { name }
            | Self::Refused { name, .. } => name,
        }
    }
}
