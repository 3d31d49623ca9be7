//! Tells the folder's thread when to look.
//!
//! Events come on a thread of the library's, as many as somebody likes to cause. They are merged into one note for each file
//! that matters, so a flood of them costs no memory.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::fs::{self, Metadata};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use notify::event::{AccessKind, AccessMode, ModifyKind, RenameMode};
use notify::{EventKind, RecommendedWatcher, RecursiveMode, Watcher as _};

use crate::folder::seen::{self, Id};

/// Notes on more files than this are one note: look at everything.
const MOST_NOTES: usize = 2_048;

/// How soon a folder is looked for where no event can tell of it.
const UNWATCHED: Duration = Duration::from_millis(500);

/// What happened to a file since the last look.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Touch {
    /// It was renamed into place, and not written since.
    pub(super) arrived: bool,
    /// Whether somebody who wrote has it open still, as far as is known.
    pub(super) open: Option<bool>,
}

/// What happened since the last look, by file name.
pub(super) type Touched = BTreeMap<OsString, Touch>;

/// What the thread, the events and the owner share.
pub(super) struct Shared {
    /// The folder's own name, as events of its parent call it.
    folder: Option<OsString>,
    note: Mutex<Note>,
    stirred: Condvar,
    /// The folder that was watched is gone, even if there is one of its name.
    lost: AtomicBool,
}

struct Note {
    stopped: bool,
    /// Look now.
    look: bool,
    touched: Touched,
    /// Look then at the latest.
    due: Instant,
}

impl Shared {
    pub(super) fn of(folder: &Path) -> Self {
        let note = Note { stopped: false, look: true, touched: Touched::new(), due: Instant::now() };
        Self {
            folder: folder.file_name().map(OsStr::to_owned),
            note: Mutex::new(note),
            stirred: Condvar::new(),
            lost: AtomicBool::new(false),
        }
    }

    fn note(&self) -> MutexGuard<'_, Note> {
        self.note.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for the next look; none after the end.
    pub(super) fn wait(&self) -> Option<Touched> {
        let mut note = self.note();
        loop {
            if note.stopped {
                return None;
            }
            let left = note.due.saturating_duration_since(Instant::now());
            if note.look || left.is_zero() {
                note.look = false;
                return Some(std::mem::take(&mut note.touched));
            }
            note = self.stirred.wait_timeout(note, left).unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    pub(super) fn come_again(&self, due: Instant) {
        self.note().due = due;
    }

    pub(super) fn stop(&self) {
        self.note().stopped = true;
        self.stirred.notify_all();
    }

    pub(super) fn is_stopped(&self) -> bool {
        self.note().stopped
    }

    /// Takes an event to the note.
    fn hear(&self, event: Result<notify::Event, notify::Error>) {
        let Ok(event) = event else { return self.stir() };
        if event.need_rescan() {
            return self.stir();
        }
        let mut touch = Touch::default();
        match event.kind {
            // Reading is no change, and the looks themselves read.
            EventKind::Access(AccessKind::Close(AccessMode::Write)) => touch.open = Some(false),
            EventKind::Access(_) => return,
            // Only where the end of writing is told of as well.
            EventKind::Modify(ModifyKind::Data(_)) if cfg!(target_os = "linux") => touch.open = Some(true),
            EventKind::Modify(ModifyKind::Name(RenameMode::To | RenameMode::Both | RenameMode::Any)) => {
                touch = Touch { arrived: true, open: Some(false) };
            }
            _ => {}
        }
        // Of a rename, what counts is where it ended.
        let Some(name) = event.paths.last().and_then(|path| path.file_name()) else { return self.stir() };
        if seen::matters(name) {
            let mut note = self.note();
            note.look = true;
            if note.touched.len() >= MOST_NOTES {
                note.touched.clear();
            }
            let before = note.touched.entry(name.to_owned()).or_default();
            before.arrived = touch.arrived || before.arrived && touch.open == Some(false);
            before.open = touch.open.or(before.open);
            drop(note);
            self.stirred.notify_all();
        } else if self.folder.as_deref() == Some(name) {
            if matches!(event.kind, EventKind::Remove(_) | EventKind::Modify(ModifyKind::Name(_))) {
                self.lost.store(true, Relaxed);
            }
            self.stir();
        }
    }

    fn stir(&self) {
        self.note().look = true;
        self.stirred.notify_all();
    }
}

/// What can be seen of the folder, and how.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Sight {
    /// Why there are no events, if there are none.
    pub(super) blind: Option<String>,
    /// Look again after this time even without an event, if it is sooner than usual.
    pub(super) soon: Option<Duration>,
}

/// The watch on the folder, or on its parent while there is no folder.
pub(super) struct Eye {
    folder: PathBuf,
    shared: Arc<Shared>,
    open: Option<Watched>,
}

/// Each folder has a watcher of its own: what is still to be told of the one before cannot end the watch on its successor.
struct Watched {
    path: PathBuf,
    id: Id,
    _watcher: RecommendedWatcher,
}

impl Eye {
    /// Opens at the first [`attend`](Self::attend).
    pub(super) fn new(folder: PathBuf, shared: Arc<Shared>) -> Self {
        Self { folder, shared, open: None }
    }

    /// Watches what there is to be watched now.
    pub(super) fn attend(&mut self) -> Sight {
        if self.shared.lost.swap(false, Relaxed) {
            self.open = None;
        }
        let Some((path, id)) = self.target() else {
            self.open = None;
            return Sight { blind: None, soon: Some(UNWATCHED) };
        };
        if self.open.as_ref().is_some_and(|open| open.path == path && open.id == id) {
            return Sight::default();
        }
        self.open = None;
        let shared = self.shared.clone();
        let watcher = notify::recommended_watcher(move |event| shared.hear(event)).and_then(|mut watcher| {
            watcher.watch(&path, RecursiveMode::NonRecursive)?;
            Ok(watcher)
        });
        match watcher {
            Ok(watcher) => {
                self.open = Some(Watched { path, id, _watcher: watcher });
                Sight::default()
            }
            Err(error) => Sight { blind: Some(error.to_string()), soon: Some(UNWATCHED) },
        }
    }

    fn target(&self) -> Option<(PathBuf, Id)> {
        let folder =
            |path: &Path| fs::metadata(path).ok().filter(Metadata::is_dir).map(|found| Id::of(&found));
        if let Some(id) = folder(&self.folder) {
            return Some((self.folder.clone(), id));
        }
        let parent = self.folder.parent()?;
        Some((parent.to_owned(), folder(parent)?))
    }
}
