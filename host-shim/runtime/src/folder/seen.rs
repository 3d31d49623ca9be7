//! What the file system says, read so that nothing it says can hang or surprise.

use std::ffi::{OsStr, OsString};
use std::fs::{self, File, Metadata, OpenOptions};
use std::io::{self, Read as _};
use std::path::Path;
use std::time::{Duration, SystemTime};

/// More files than this are not looked at.
const MOST_FILES: usize = 1_024;

/// Which file it is, whatever its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Id(u64, u64);

impl Id {
    #[cfg(unix)]
    pub(super) fn of(found: &Metadata) -> Self {
        use std::os::unix::fs::MetadataExt as _;
        Self(found.dev(), found.ino())
    }

    #[cfg(not(unix))]
    pub(super) fn of(found: &Metadata) -> Self {
        let created = found.created().ok().and_then(|at| at.duration_since(SystemTime::UNIX_EPOCH).ok());
        Self(0, created.map_or(0, |at| at.as_nanos() as u64))
    }
}

/// A regular file as it was at some moment. Two that are equal have the same content, unless they are of the same moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Stamp {
    pub(super) id: Id,
    pub(super) size: u64,
    /// When content, or owner, mode or name, changed last.
    changed: [Option<SystemTime>; 2],
}

impl Stamp {
    fn of(found: &Metadata) -> Self {
        Self { id: Id::of(found), size: found.len(), changed: [found.modified().ok(), status_changed(found)] }
    }

    /// Whether nothing happened to it for so long, by the clock of the file system.
    pub(super) fn is_older_than(&self, age: Duration) -> bool {
        let now = SystemTime::now();
        let old = |at: &SystemTime| now.duration_since(*at).is_ok_and(|passed| passed >= age);
        self.changed[0].is_some() && self.changed.iter().flatten().all(old)
    }
}

#[cfg(unix)]
fn status_changed(found: &Metadata) -> Option<SystemTime> {
    use std::os::unix::fs::MetadataExt as _;
    let since = Duration::new(found.ctime().try_into().ok()?, found.ctime_nsec().try_into().ok()?);
    SystemTime::UNIX_EPOCH.checked_add(since)
}

#[cfg(not(unix))]
fn status_changed(_: &Metadata) -> Option<SystemTime> {
    None
}

/// What stands under a name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Seen {
    /// A file, or a link to one.
    Regular(Stamp),
    /// Anything else; in words, what.
    Other(&'static str),
    /// It cannot be told; in words, why.
    Unknown(String),
}

impl Seen {
    /// Looks, following links. None if there is nothing.
    pub(super) fn at(path: &Path) -> Option<Self> {
        match fs::metadata(path) {
            Ok(found) if found.is_file() => Some(Self::Regular(Stamp::of(&found))),
            Ok(found) => Some(Self::Other(kind(&found))),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                fs::symlink_metadata(path).ok().map(|_| Self::Other("a link to nothing"))
            }
            Err(error) => Some(Self::Unknown(error.to_string())),
        }
    }
}

#[cfg(unix)]
fn kind(found: &Metadata) -> &'static str {
    use std::os::unix::fs::FileTypeExt as _;
    let kind = found.file_type();
    if kind.is_dir() {
        "a directory"
    } else if kind.is_fifo() {
        "a pipe"
    } else if kind.is_socket() {
        "a socket"
    } else {
        "a device"
    }
}

#[cfg(not(unix))]
fn kind(found: &Metadata) -> &'static str {
    if found.is_dir() { "a directory" } else { "something else" }
}

/// Whether a file of that name is of the folder's business.
pub(super) fn matters(name: &OsStr) -> bool {
    let bytes = name.as_encoded_bytes();
    !bytes.starts_with(b".") && (bytes.ends_with(b".wasm") || bytes.ends_with(b".json"))
}

/// The names that matter, sorted; if they are too many, those that are `known` rather than others, and whether that is so. None
/// if there is no folder.
pub(super) fn list(
    folder: &Path,
    known: impl Fn(&OsStr) -> bool,
) -> io::Result<Option<(Vec<OsString>, bool)>> {
    let entries = match fs::read_dir(folder) {
        Ok(entries) => entries,
        Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {
            return Ok(None);
        }
        Err(error) => return Err(error),
    };
    let mut names = Vec::new();
    for entry in entries {
        let name = entry?.file_name();
        if matters(&name) {
            names.push(name);
        }
    }
    names.sort_unstable();
    let more = names.len() > MOST_FILES;
    if more {
        names.sort_by_key(|name| !known(name));
        names.truncate(MOST_FILES);
        names.sort_unstable();
    }
    Ok(Some((names, more)))
}

/// The content of a file that is and stays what it was seen as. None if it is not any more.
pub(super) fn read(path: &Path, seen: &Stamp) -> io::Result<Option<Vec<u8>>> {
    let mut file = open(path)?;
    if !is(&file, seen)? {
        return Ok(None);
    }
    let size = usize::try_from(seen.size).map_err(io::Error::other)?;
    let mut bytes = Vec::new();
    bytes.try_reserve_exact(size).map_err(io::Error::other)?;
    // One more shows that it has grown.
    (&mut file).take(seen.size.saturating_add(1)).read_to_end(&mut bytes)?;
    Ok((bytes.len() == size && is(&file, seen)?).then_some(bytes))
}

fn is(file: &File, seen: &Stamp) -> io::Result<bool> {
    let found = file.metadata()?;
    Ok(found.is_file() && Stamp::of(&found) == *seen)
}

/// Opens without waiting for anybody, should it have become a pipe.
#[cfg(unix)]
fn open(path: &Path) -> io::Result<File> {
    use std::os::unix::fs::OpenOptionsExt as _;
    OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK | libc::O_NOCTTY).open(path)
}

#[cfg(not(unix))]
fn open(path: &Path) -> io::Result<File> {
    OpenOptions::new().read(true).open(path)
}
