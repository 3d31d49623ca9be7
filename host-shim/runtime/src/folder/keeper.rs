//! What the folder's thread does at each look: which files are to be read now, what becomes of them, what is published.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use sha2::{Digest as _, Sha256};

use crate::engine::hex;
use crate::folder::seen::{self, Seen, Stamp};
use crate::folder::settings::{self, Settings};
use crate::folder::view::{Entry, EntryState, Link, Refused, Standing, View};
use crate::folder::watch::{Sight, Touch, Touched};
use crate::folder::{FolderOptions, PACKAGED};
use crate::{Component, LoadError, Runtime};

/// How long a file is waited for that somebody seems to be writing still, or has not begun to write.
const PATIENCE: Duration = Duration::from_secs(10);

/// A name has at most so many characters.
const MAX_NAME: usize = 64;

/// One folder's files, and what was made of them.
pub(super) struct Keeper {
    runtime: Runtime,
    path: PathBuf,
    options: FolderOptions,
    view: Arc<View>,
    files: BTreeMap<OsString, File>,
    links: BTreeMap<String, Link>,
    standing: Standing,
    /// Something is to be published.
    news: bool,
}

/// A file that matters.
struct File {
    /// As people read it.
    shown: String,
    kind: Kind,
    /// What was last seen under its name; None if there is nothing any more.
    seen: Option<Seen>,
    /// When something last happened to it.
    changed: Instant,
    /// It was whole when it came.
    arrived: bool,
    /// Somebody may be writing still.
    open: bool,
    /// Whether what it was found to be is what it is.
    settled: bool,
    /// What it was found to be.
    found: Found,
}

enum Kind {
    Plugin(String),
    Settings(String),
    /// It has no plugin's name.
    Nameless,
}

enum Found {
    /// Nothing yet.
    Nothing,
    Component(Component),
    Settings(Settings),
    /// It cannot be used; in words that follow its name, why.
    Bad(String),
    /// There are too many.
    Surplus,
}

impl File {
    fn new(name: &OsStr, now: Instant) -> Self {
        let shown: String = name.to_string_lossy().escape_debug().collect();
        Self {
            kind: Kind::of(name.to_str().unwrap_or_default()),
            shown,
            seen: None,
            changed: now,
            arrived: false,
            open: false,
            settled: false,
            found: Found::Nothing,
        }
    }

    /// Something happened to it.
    fn touch(&mut self, touch: Touch, now: Instant) {
        self.settled = false;
        self.changed = now;
        self.arrived = touch.arrived;
        if let Some(open) = touch.open {
            self.open = open;
        }
    }

    /// This is under its name now. Whether that is something else than before.
    fn see(&mut self, seen: Option<Seen>, is_new: bool, settle: Duration, now: Instant) -> bool {
        if self.seen == seen && !is_new {
            return false;
        }
        let old = is_new && matches!(&seen, Some(Seen::Regular(stamp)) if stamp.is_older_than(settle));
        // A rename has been told of before it is seen.
        self.arrived = self.changed == now && self.arrived || old;
        self.changed = if old { now.checked_sub(settle).unwrap_or(now) } else { now };
        self.seen = seen;
        self.settled = false;
        true
    }

    /// When it is to be read, or believed to be gone. None if that has been done.
    fn due(&self, settle: Duration) -> Option<Instant> {
        if self.settled {
            return None;
        }
        let empty = matches!(&self.seen, Some(Seen::Regular(stamp)) if stamp.size == 0);
        let wait = match &self.seen {
            Some(_) if self.open || empty => PATIENCE.max(settle),
            Some(_) if self.arrived => Duration::ZERO,
            _ => settle,
        };
        Some(self.changed + wait)
    }

    fn plugin(&self) -> Option<&str> {
        match &self.kind {
            Kind::Plugin(name) | Kind::Settings(name) => Some(name),
            Kind::Nameless => None,
        }
    }

    /// That it cannot be used and what follows from that, if it cannot.
    fn refused(&self, options: &FolderOptions, consequence: &str) -> Option<Refused> {
        let reason = match &self.found {
            Found::Bad(reason) => reason,
            Found::Surplus => &format!(
                "the folder has {} plugins at work, and no more may be; remove one",
                options.max_plugins
            ),
            Found::Nothing | Found::Component(_) | Found::Settings(_) => return None,
        };
        Some(Refused {
            file: self.shown.clone(),
            of_settings: matches!(self.kind, Kind::Settings(_)),
            reason: format!("{}: {reason}{consequence}", self.shown),
        })
    }
}

impl Kind {
    fn of(file: &str) -> Self {
        let named = |name: &str| is_name(name).then(|| name.to_owned());
        let plugin = file.strip_suffix(".wasm").and_then(named).map(Self::Plugin);
        plugin
            .or_else(|| file.strip_suffix(".json").and_then(named).map(Self::Settings))
            .unwrap_or(Self::Nameless)
    }
}

/// Whether a plugin may be called so.
fn is_name(name: &str) -> bool {
    let letter = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    name.len() <= MAX_NAME
        && name.bytes().next().is_some_and(letter)
        && name.bytes().all(|byte| letter(byte) || byte == b'-')
}

impl Keeper {
    pub(super) fn new(runtime: Runtime, path: PathBuf, options: FolderOptions, view: Arc<View>) -> Self {
        let standing = Standing { path: path.clone(), ..Standing::default() };
        Self {
            runtime,
            path,
            options,
            view,
            files: BTreeMap::new(),
            links: BTreeMap::new(),
            standing,
            news: true,
        }
    }

    fn settle(&self) -> Duration {
        Duration::from_millis(self.options.settle_ms)
    }

    /// Looks at the folder, reads what is to be read, publishes. When to look again at the latest.
    pub(super) fn pass(
        &mut self,
        touched: &Touched,
        sight: Sight,
        wake: &impl Fn(),
        stopped: &impl Fn() -> bool,
    ) -> Instant {
        let now = Instant::now();
        self.look(touched, sight.blind, now);
        let publish = |keeper: &mut Self| {
            let seen = keeper.standing.seen || keeper.files.values().all(|file| file.settled);
            keeper.news |= seen != keeper.standing.seen;
            keeper.standing.seen = seen;
            if !std::mem::take(&mut keeper.news) {
                return;
            }
            keeper.relink();
            if keeper.view.publish(keeper.links.clone(), keeper.standing.clone()) {
                wake();
            }
        };
        publish(self);
        // Settings first: they take no time, and who waits for them is a component.
        for of_settings in [true, false] {
            let is_due = |file: &File| file.due(self.settle()).is_some_and(|due| due <= now);
            let names: Vec<OsString> = self
                .files
                .iter()
                .filter(|(_, file)| matches!(file.kind, Kind::Settings(_)) == of_settings && is_due(file))
                .map(|(name, _)| name.clone())
                .collect();
            for name in names {
                if stopped() {
                    return now;
                }
                self.judge(&name, now);
                publish(self);
            }
        }
        let usual = sight.soon.unwrap_or(Duration::from_millis(self.options.rescan_ms));
        let due = self.files.values().filter_map(|file| file.due(self.settle())).min();
        due.into_iter().fold(now + usual, Instant::min)
    }

    /// Sees what is there now.
    fn look(&mut self, touched: &Touched, blind: Option<String>, now: Instant) {
        let mut trouble = blind
            .map(|why| format!("the system tells nothing of changes ({why}), so it is looked at instead"));
        match seen::list(&self.path, |name| self.files.contains_key(name)) {
            Ok(listed) => {
                let exists = listed.is_some();
                let (names, more) = listed.unwrap_or_default();
                if more {
                    trouble = Some(format!("only {} of its files are looked at, remove some", names.len()));
                }
                self.see(&names, touched, now);
                self.news |= exists != self.standing.exists;
                self.standing.exists = exists;
                if !exists && std::fs::metadata(&self.path).is_ok_and(|found| !found.is_dir()) {
                    trouble = Some("it is no folder, so nothing is loaded from it; expected a folder".into());
                }
            }
            // Nothing is known, so nothing is gone.
            Err(error) => {
                trouble = Some(format!("the folder cannot be read ({error}), what was loaded stays at work"));
            }
        }
        let trouble = trouble.map(|what| format!("{}: {what}", self.path.display()));
        self.news |= trouble != self.standing.trouble;
        self.standing.trouble = trouble;
    }

    /// These are the files now.
    fn see(&mut self, names: &[OsString], touched: &Touched, now: Instant) {
        let settle = self.settle();
        for name in names {
            let is_new = !self.files.contains_key(name);
            let seen = Seen::at(&self.path.join(name));
            if is_new && seen.is_none() {
                continue;
            }
            let file = self.files.entry(name.clone()).or_insert_with(|| File::new(name, now));
            if let Some(&touch) = touched.get(name) {
                file.touch(touch, now);
                self.news = true;
            }
            self.news |= file.see(seen, is_new, settle, now);
        }
        for (name, file) in &mut self.files {
            if names.binary_search(name).is_err() {
                self.news |= file.see(None, false, settle, now);
            }
        }
        let before = self.files.len();
        self.files.retain(|_, file| file.seen.is_some() || file.due(settle).is_some_and(|due| due > now));
        self.news |= self.files.len() < before;
        if self.files.len() < before {
            self.relink();
            self.admit_surplus(now);
        }
    }

    /// There is room again: those that were one too many are tried once more.
    fn admit_surplus(&mut self, now: Instant) {
        if self.components() >= self.options.max_plugins {
            return;
        }
        for file in self.files.values_mut().filter(|file| matches!(file.found, Found::Surplus)) {
            file.touch(Touch { arrived: true, open: None }, now);
        }
    }

    /// Reads a file whose time has come.
    fn judge(&mut self, name: &OsStr, now: Instant) {
        let Some(file) = self.files.get(name) else { return };
        let Some(seen) = file.seen.clone() else { return };
        self.news = true;
        let found = match (&file.kind, seen) {
            (Kind::Nameless, _) => Ok(Found::Bad(format!(
                "a plugin's name is of `a` to `z`, `0` to `9` and `-`, begins with a letter or digit and has at most {MAX_NAME} \
                 characters; rename the file"
            ))),
            (_, Seen::Other(kind)) => Ok(Found::Bad(format!("it is {kind}, expected a regular file"))),
            (_, Seen::Unknown(why)) => {
                Ok(Found::Bad(format!("it cannot be read ({why}); correct that, or remove it")))
            }
            (Kind::Plugin(plugin), Seen::Regular(stamp)) => self.judge_plugin(plugin, name, &stamp),
            (Kind::Settings(plugin), Seen::Regular(stamp)) => self.judge_settings(plugin, name, &stamp),
        };
        let settle = self.settle();
        let Some(file) = self.files.get_mut(name) else { return };
        match found {
            // What has only just come may not have come whole.
            Ok(Found::Bad(_)) if now < file.changed + settle => file.arrived = false,
            Ok(found) => {
                file.found = found;
                file.settled = true;
            }
            Err(Moved) => {
                let seen = Seen::at(&self.path.join(name));
                let replaced = matches!((&seen, &file.seen),
                    (Some(Seen::Regular(new)), Some(Seen::Regular(old))) if new.id != old.id);
                file.arrived &= replaced;
                file.changed = Instant::now();
                file.seen = seen;
            }
        }
    }

    fn judge_plugin(&self, plugin: &str, name: &OsStr, stamp: &Stamp) -> Result<Found, Moved> {
        let at_work = |link: &Link| link.work.as_ref().map(|(component, _)| component.clone());
        let before = self.links.get(plugin).and_then(at_work);
        if before.is_none() && self.components() >= self.options.max_plugins {
            return Ok(Found::Surplus);
        }
        let bound = self.options.max_file_bytes.min(crate::inspect::MAX_FILE_BYTES);
        if stamp.size > bound {
            return Ok(Found::Bad(LoadError::TooLarge { size: stamp.size, bound }.to_string()));
        }
        let bytes = match read(&self.path.join(name), stamp)? {
            Ok(bytes) => bytes,
            Err(reason) => return Ok(Found::Bad(reason)),
        };
        let sha256 = hex(&Sha256::digest(&bytes));
        let known = before.into_iter().chain(self.links.values().filter_map(at_work));
        if let Some(same) = known.into_iter().find(|component| component.sha256() == sha256) {
            return Ok(Found::Component(same));
        }
        let load = || match &self.options.cache {
            Some(cache) => self.runtime.load_cached(&bytes, cache),
            None => self.runtime.load(&bytes),
        };
        // A compiler has bugs as well, and a file can be made to find them.
        Ok(match catch_unwind(AssertUnwindSafe(load)) {
            Ok(Ok(component)) => Found::Component(component),
            Ok(Err(error)) => Found::Bad(error.to_string()),
            Err(_) => {
                Found::Bad("the compiler failed over it; build it with another version of its tools".into())
            }
        })
    }

    fn judge_settings(&self, plugin: &str, name: &OsStr, stamp: &Stamp) -> Result<Found, Moved> {
        if stamp.size > settings::MAX_BYTES {
            let (size, bound) = (stamp.size, settings::MAX_BYTES);
            return Ok(Found::Bad(format!(
                "it has {size} bytes, more than the {bound} that settings may have"
            )));
        }
        let read = read(&self.path.join(name), stamp)?.and_then(|bytes| Settings::read(plugin, &bytes));
        Ok(read.map_or_else(Found::Bad, Found::Settings))
    }

    /// Plugins that are at work, or will be when their settings are right.
    fn components(&self) -> usize {
        let counts = |file: &&File| {
            let at_work = || self.links.get(file.plugin()?)?.work.as_ref();
            matches!(file.kind, Kind::Plugin(_))
                && (matches!(file.found, Found::Component(_)) || at_work().is_some())
        };
        self.files.values().filter(counts).count()
    }

    /// Makes of what the files are what is to be at work.
    fn relink(&mut self) {
        let mut links = std::mem::take(&mut self.links);
        let mut next = BTreeMap::new();
        for plugin in self.files.values().filter_map(File::plugin) {
            if !next.contains_key(plugin) {
                next.insert(plugin.to_owned(), links.remove(plugin).unwrap_or_default());
            }
        }
        for (name, link) in &mut next {
            self.relink_one(name, link);
        }
        for file in self.files.values().filter(|file| matches!(file.kind, Kind::Nameless) && file.settled) {
            let refused = file.refused(&self.options, "").into_iter().collect();
            next.insert(file.shown.clone(), Link { present: true, refused, ..Link::default() });
        }
        next.retain(|_, link| !link.is_empty());
        self.links = next;
        self.standing.entries = self.files.values().filter_map(|file| self.entry(file)).collect();
    }

    fn file(&self, plugin: &str, extension: &str) -> Option<&File> {
        self.files.get(OsStr::new(&format!("{plugin}.{extension}")))
    }

    fn relink_one(&self, plugin: &str, link: &mut Link) {
        let (component, settings) = (self.file(plugin, "wasm"), self.file(plugin, "json"));
        link.present = component.is_some();
        if component.is_none() {
            link.work = None;
            link.refused.retain(|refused| refused.of_settings);
        }
        let given = match settings.map(|file| &file.found) {
            None => Some(Settings::default()),
            Some(Found::Settings(settings)) => Some(settings.clone()),
            Some(_) => None,
        };
        let own = plugin == PACKAGED;
        if component.is_none() && !own {
            link.refused.clear();
            return;
        }
        let changing = |file: Option<&File>| file.is_some_and(|file| !file.settled);
        if changing(component) || changing(settings) {
            return;
        }
        let consequence = if link.work.is_some() {
            "; what was loaded before stays at work as it was"
        } else if component.is_some() {
            "; the plugin is not loaded"
        } else {
            "; the limits before it stay in force"
        };
        let files = [component, settings].into_iter().flatten();
        link.refused = files.filter_map(|file| file.refused(&self.options, consequence)).collect();
        if let (Some(Found::Component(component)), Some(settings)) =
            (component.map(|file| &file.found), given.clone())
        {
            link.work = Some((component.clone(), settings));
        }
        if !own || link.work.is_some() {
            link.own = None;
        } else if let Some(given) = given {
            link.own = settings.map(|_| given);
        }
    }

    fn entry(&self, file: &File) -> Option<Entry> {
        let size = match file.seen.as_ref()? {
            Seen::Regular(stamp) => Some(stamp.size),
            _ => None,
        };
        let link = file.plugin().and_then(|plugin| self.links.get(plugin));
        let refused = link.and_then(|link| link.refused.iter().find(|refused| refused.file == file.shown));
        let sibling = |extension| file.plugin().and_then(|plugin| self.file(plugin, extension));
        let waiting = |text: &str| EntryState::Waiting(text.to_owned());
        let state = if !file.settled {
            waiting("it has only just changed")
        } else if let Some(refused) = refused {
            EntryState::Refused(refused.reason.clone())
        } else {
            match (&file.found, link.and_then(|link| link.work.as_ref())) {
                (Found::Component(found), Some((component, _))) if found.sha256() == component.sha256() => {
                    EntryState::Loaded { sha256: found.sha256().to_owned(), world: found.world() }
                }
                (Found::Component(_), _) => waiting("the settings beside it have to be right first"),
                (Found::Settings(found), Some((_, settings))) if found == settings => EntryState::Applied,
                (Found::Settings(_), None) if link.is_some_and(|link| link.own.is_some()) => {
                    EntryState::Applied
                }
                (Found::Settings(_), _) if sibling("wasm").is_some() => {
                    waiting("the component beside it has to be right first")
                }
                (Found::Bad(_) | Found::Surplus, _)
                    if sibling("wasm").is_some() || file.plugin().is_none() =>
                {
                    EntryState::Refused(file.refused(&self.options, "")?.reason)
                }
                _ => EntryState::Idle(format!("there is no {}.wasm beside it", file.plugin()?)),
            }
        };
        let plugin = file.plugin().map(str::to_owned);
        Some(Entry { file: file.shown.clone(), plugin, size, state })
    }
}

/// The file is not what it was seen as any more.
struct Moved;

/// The content of a file, or why it cannot be had.
fn read(path: &Path, stamp: &Stamp) -> Result<Result<Vec<u8>, String>, Moved> {
    match seen::read(path, stamp) {
        Ok(Some(bytes)) => Ok(Ok(bytes)),
        Ok(None) => Err(Moved),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Err(Moved),
        Err(error) => Ok(Err(format!("it cannot be read ({error}); correct that, or remove it"))),
    }
}
