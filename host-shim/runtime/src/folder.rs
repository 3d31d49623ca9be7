//! A folder of plugins: what is dropped in is inspected and compiled, on a thread of its own.
//!
//! `NAME.wasm` is a plugin called `NAME`, and `NAME.json` beside it, if there is one, says how it is to run:
//! `{"config": {…}, "limits": {…}}`, either may be left out. A name is of lower-case letters, digits and `-`, begins with a letter
//! or digit and has at most 64 characters. Everything else in the folder is ignored, above all what begins with a dot or has
//! another extension: write under such a name, then rename.
//!
//! # When a file is read
//!
//! - Renamed into place, at once: it was whole before it had the name.
//! - Found with an age, as at the start, at once.
//! - Written in place, when nothing has happened to it for [`settle_ms`](FolderOptions::settle_ms). One that somebody still has
//!   open for writing after a write, as far as the system tells, or that is empty, is given more time: a download that stalls
//!   has not ended.
//!
//! So a half-written file is neither loaded nor refused while it grows. A file is read once, and what was inspected is what is
//! compiled; if it changed while it was read, it is read again later. A file that vanishes is gone after the same time, so that
//! one that is moved away for a moment to make place for its successor is replaced and not unloaded.
//!
//! # What a file is refused for
//!
//! For its name, for being no regular file, for its size, for what [`Inspection`](crate::Inspection) finds before anything of it
//! is compiled, for what the compiler says, and for being one too many. The two files of a plugin are taken together or not at
//! all: if one of them is refused, what was loaded before stays at work as it was, and what was never loaded is not.
//!
//! # How changes are seen
//!
//! By the system's events; while the folder does not exist, by those of its parent. Network homes and targets of links give
//! none, so the folder is also looked at every [`rescan_ms`](FolderOptions::rescan_ms), which is how soon a change without an
//! event is seen, and at least every half second where the system gives no events at all or not even the parent exists. That is
//! one listing and one `stat` for each file. A folder that goes and comes again is the same folder.
//!
//! # What waits for what
//!
//! Every access to the file system and every compilation happens on the folder's thread. The caller takes what has been
//! published and waits for nothing: a file system that hangs, hangs that thread alone.

mod keeper;
mod seen;
mod settings;
mod view;
mod watch;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;

pub use settings::Settings;
pub use view::{Change, Changed, Entry, EntryState, Standing};

use crate::folder::keeper::Keeper;
use crate::folder::view::View;
use crate::folder::watch::Eye;
use crate::{Cache, Runtime};

/// The plugin that a host has without any folder. Its configuration is the host's, so its `NAME.json` has limits only, which hold
/// also without a file of that name.
const PACKAGED: &str = "gen-limit";

/// How a folder is watched.
#[derive(Clone, Debug)]
pub struct FolderOptions {
    /// Where compiled code is kept; it is compiled each time, if there is none.
    pub cache: Option<Cache>,
    /// How long a file that was written in place has to be left alone before it is read, in milliseconds.
    pub settle_ms: u64,
    /// How often the folder is looked at without an event, in milliseconds.
    pub rescan_ms: u64,
    /// The greatest size of a component's file, in bytes. More than 64 MiB are never read.
    pub max_file_bytes: u64,
    /// So many plugins are loaded; more are refused.
    pub max_plugins: usize,
}

impl Default for FolderOptions {
    fn default() -> Self {
        Self {
            cache: None,
            settle_ms: 400,
            rescan_ms: 1_000,
            max_file_bytes: crate::inspect::MAX_FILE_BYTES,
            max_plugins: 32,
        }
    }
}

/// No thread could be had for a folder.
#[derive(Debug, thiserror::Error)]
#[error("{}: the folder cannot be watched ({reason})", path.display())]
pub struct FolderError {
    path: PathBuf,
    reason: std::io::Error,
}

/// A watched folder. Dropping it ends its thread, as soon as that is done with the file it is at; nobody waits for it.
pub struct Folder {
    view: Arc<View>,
    watch: Arc<watch::Shared>,
}

impl Folder {
    /// Watches a folder, which need not exist yet. `wake` is called, on the folder's thread, whenever
    /// [`take_changes`](Self::take_changes) has something that it has not been called for, and whenever the folder or a file
    /// of it [stands](Self::standing) otherwise; it may be called once more while the folder is being dropped.
    ///
    /// # Errors
    ///
    /// If the process can have no more threads. What is wrong with the folder itself is told by [`standing`](Self::standing).
    pub fn watch(
        runtime: &Runtime,
        path: impl AsRef<Path>,
        options: FolderOptions,
        wake: impl Fn() + Send + 'static,
    ) -> Result<Self, FolderError> {
        let given = path.as_ref();
        // Only the working directory can be at fault, which then is at fault for every later look as well.
        let path = std::path::absolute(given).unwrap_or_else(|_| given.to_owned());
        let view = Arc::new(View::of(&path));
        let watch = Arc::new(watch::Shared::of(&path));
        let mut eye = Eye::new(path.clone(), watch.clone());
        let mut keeper = Keeper::new(runtime.clone(), path.clone(), options, view.clone());
        let shared = watch.clone();
        thread::Builder::new()
            .name("gen-limit-watch".into())
            // The compiler recurses over what it is given.
            .stack_size(8 << 20)
            .spawn(move || {
                while let Some(touched) = shared.wait() {
                    // First the watch, then the look: what comes after the look makes an event.
                    let state = eye.attend();
                    let due = keeper.pass(&touched, state, &wake, &|| shared.is_stopped());
                    shared.come_again(due);
                }
            })
            .map_err(|reason| FolderError { path, reason })?;
        Ok(Self { view, watch })
    }

    /// What is different from what was taken before, net: what came and went in between is not told of. In the order in
    /// which it is to be applied: what is gone first, the rest by name.
    pub fn take_changes(&self) -> Vec<Change> {
        self.view.take_changes()
    }

    /// Every file of the folder that matters, and how it stands.
    pub fn standing(&self) -> Standing {
        self.view.standing()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        self.watch.stop();
    }
}
