//! Compiled code, kept so that a component is compiled once on a machine and not at every start.
//!
//! # What is trusted
//!
//! The engine takes compiled code at its word: it checks for which engine, target and settings it was made, and runs most of
//! what has a flipped bit. So a file begins with the digest of everything that follows, and of which component it was made
//! of; it is read whole, and what was verified is what is loaded. That keeps accidents out, and not a person: whoever can write
//! here can have any code run. The folder has to be one that its owner alone can enter, or it is not used.
//!
//! # What is kept
//!
//! One file for each component and engine, by a digest of both, written beside it and renamed. Whatever is wrong with a file or
//! with the folder means compiling, never an error. The files that were written longest ago go first.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::hash::{Hash as _, Hasher};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::process;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::SystemTime;

use sha2::{Digest as _, Sha256};
use wasmtime::Engine;

use crate::engine::hex;

/// So many files are kept.
const MOST_FILES: usize = 32;
/// Length of a digest.
pub(crate) const DIGEST_BYTES: usize = 32;
/// No file of code is longer: it takes a few times what its component does.
pub(crate) const MAX_FILE_BYTES: u64 = 256 << 20;

/// A folder with compiled code.
#[derive(Clone, Debug)]
pub struct Cache {
    folder: PathBuf,
}

impl Cache {
    /// In a folder, which is made when there is something to keep.
    pub fn in_folder(folder: impl Into<PathBuf>) -> Self {
        Self { folder: folder.into() }
    }

    /// In the user's own cache directory: `$XDG_CACHE_HOME/dsh-gen-limit`, else `~/.cache/dsh-gen-limit`. None where there is
    /// no such directory.
    pub fn of_user() -> Option<Self> {
        let named = |name| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
        let caches = named("XDG_CACHE_HOME").or_else(|| Some(named("HOME")?.join(".cache")))?;
        Some(Self::in_folder(caches.join("dsh-gen-limit")))
    }

    /// The code of the component with this digest, if it is here and whole.
    pub(crate) fn read(&self, engine: &Engine, component: &[u8]) -> Option<Vec<u8>> {
        is_private(&self.folder).then_some(())?;
        let path = self.path(engine, component);
        let size = fs::symlink_metadata(&path).ok().filter(fs::Metadata::is_file)?.len();
        if size > MAX_FILE_BYTES {
            return None;
        }
        let mut bytes = fs::read(path).ok()?;
        let (digest, code) = bytes.split_at_checked(DIGEST_BYTES)?;
        if digest != seal(component, code) {
            return None;
        }
        bytes.drain(..DIGEST_BYTES);
        Some(bytes)
    }

    /// Keeps the code of the component with this digest.
    ///
    /// # Errors
    ///
    /// If it could not be written, or the folder is not its owner's alone. Nothing depends on it.
    pub(crate) fn write(&self, engine: &Engine, component: &[u8], code: &[u8]) -> io::Result<()> {
        make_private(&self.folder)?;
        let path = self.path(engine, component);
        let next = self.folder.join(next_name());
        let written = create(&next).and_then(|mut file| {
            file.write_all(&seal(component, code))?;
            file.write_all(code)?;
            file.sync_all()?;
            fs::rename(&next, &path)
        });
        if written.is_err() {
            let _ = fs::remove_file(&next);
        }
        self.prune();
        written
    }

    fn path(&self, engine: &Engine, component: &[u8]) -> PathBuf {
        let mut key = Key(Sha256::new());
        // Version, target and settings.
        engine.precompile_compatibility_hash().hash(&mut key);
        key.write(component);
        self.folder.join(hex(&key.0.finalize())).with_extension("cwasm")
    }

    /// Lets go of the oldest files while there are too many.
    fn prune(&self) {
        let Ok(entries) = fs::read_dir(&self.folder) else { return };
        let mut files: Vec<(SystemTime, PathBuf)> = entries
            .flatten()
            .filter_map(|entry| Some((entry.metadata().ok()?.modified().ok()?, entry.path())))
            .collect();
        files.sort_unstable();
        for (_, path) in files.iter().take(files.len().saturating_sub(MOST_FILES)) {
            let _ = fs::remove_file(path);
        }
    }
}

/// What a file begins with.
fn seal(component: &[u8], code: &[u8]) -> [u8; DIGEST_BYTES] {
    let mut digest = Sha256::new();
    digest.update((component.len() as u64).to_le_bytes());
    digest.update(component);
    digest.update(code);
    digest.finalize().into()
}

/// Takes what is hashed into a digest.
struct Key(Sha256);

impl Hasher for Key {
    fn write(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    fn finish(&self) -> u64 {
        0
    }
}

/// A name that nobody else is writing to.
fn next_name() -> String {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    format!("{}-{}.next", process::id(), NEXT.fetch_add(1, Relaxed))
}

#[cfg(unix)]
fn create(path: &Path) -> io::Result<File> {
    use std::os::unix::fs::OpenOptionsExt as _;
    OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)
}

#[cfg(not(unix))]
fn create(path: &Path) -> io::Result<File> {
    OpenOptions::new().write(true).create_new(true).open(path)
}

fn make_private(folder: &Path) -> io::Result<()> {
    let mut builder = DirBuilder::new();
    builder.recursive(true);
    #[cfg(unix)]
    {
        use std::os::unix::fs::DirBuilderExt as _;
        builder.mode(0o700);
    }
    builder.create(folder)?;
    if is_private(folder) {
        return Ok(());
    }
    Err(io::Error::new(io::ErrorKind::PermissionDenied, "others than its owner can enter the folder"))
}

/// Whether a folder is this user's, and nobody else can write to it or read in it.
#[cfg(unix)]
fn is_private(folder: &Path) -> bool {
    use std::os::unix::fs::MetadataExt as _;
    // SAFETY: it takes nothing, cannot fail and touches no memory.
    let user = unsafe { libc::geteuid() };
    fs::symlink_metadata(folder)
        .is_ok_and(|folder| folder.is_dir() && folder.uid() == user && folder.mode() & 0o777 == 0o700)
}

/// Where permissions are lists, a user's own cache directory is closed to others as it is.
#[cfg(not(unix))]
fn is_private(folder: &Path) -> bool {
    folder.is_dir()
}
