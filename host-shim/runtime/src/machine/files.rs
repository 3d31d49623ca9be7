//! The files of one machine pool, and what each of them means.
//!
//! | file | locked by | means |
//! |---|---|---|
//! | `seats/I` | whoever holds seat I | nobody else may use it |
//! | `line/TIME-PID-N` | whoever waits there | its turn comes when all older ones are gone |
//! | `members/PID-N.MAX` | a member | so many seats there are at most, as it says; the least of all living ones holds |
//! | `key` | nobody | what the folder is about, for people |
//!
//! Only the lock counts, never that a file exists: the kernel lets go of a lock when its holder ends, however it ends. What is
//! found without one is what a dead process left, and is taken away by whoever finds it. Whatever has to be locked from the
//! moment it can be seen is made under a name that begins with a dot, and renamed when it is.
//!
//! A lock belongs to an open file, not to a name. So after a seat has been locked, and from time to time while it is held,
//! file and name are compared: a seat whose file was renamed or removed is lost, since somebody else can make a new one.
//!
//! Files of others are looked at through descriptors that cannot write, so that "closed after a write" means the end of
//! somebody who held something.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, ErrorKind, Write as _};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use sha2::{Digest as _, Sha256};

use crate::clock::boottime_ns;
use crate::engine::hex;

/// The folder of one pool.
#[derive(Debug)]
pub(super) struct Files {
    folder: PathBuf,
}

impl Files {
    /// The folder of the pool with this key, made if need be.
    pub(super) fn open(base: &Path, key: &str) -> io::Result<Self> {
        let files = Self { folder: base.join(hex(&Sha256::digest(key)[..16])) };
        files.make(key)?;
        Ok(files)
    }

    fn make(&self, key: &str) -> io::Result<()> {
        for folder in [self.seats(), self.line(), self.members()] {
            private_folder(&folder)?;
        }
        fs::write(self.folder.join("key"), key)
    }

    pub(super) fn seats(&self) -> PathBuf {
        self.folder.join("seats")
    }

    pub(super) fn line(&self) -> PathBuf {
        self.folder.join("line")
    }

    pub(super) fn members(&self) -> PathBuf {
        self.folder.join("members")
    }

    /// Says that there is a member, according to which there are at most so many seats.
    pub(super) fn join(&self, max: u32) -> io::Result<Locked> {
        Locked::new(&self.members(), &format!("{}.{max}", unique()))
    }

    /// The least `max` of the living members other than this one, and of it.
    pub(super) fn least(&self, mine: u32) -> io::Result<u32> {
        let mut least = mine;
        for name in names(&self.members())? {
            let max = name.rsplit_once('.').and_then(|(_, max)| max.parse().ok());
            if let Some(max) = max.filter(|&max| max < least)
                && is_locked(&self.members().join(&name))?
            {
                least = max;
            }
        }
        Ok(least)
    }

    /// Takes up to `wanted` seats of those that are free, where there are `max` in all, none of which is `held`.
    pub(super) fn take(&self, wanted: u32, max: u32, held: &[Seat]) -> io::Result<Vec<Seat>> {
        let mut taken = Vec::new();
        let is_mine = |index: u32| held.iter().any(|seat| seat.index == index);
        // A limit that was lowered: what is held beyond it counts, so that nobody new comes in its stead.
        let beyond = self.held_from(max)?;
        let mut used = beyond;
        let mut free = Vec::new();
        for index in 0..max {
            if beyond == 0 && free.len() as u32 >= wanted {
                break;
            }
            if is_mine(index) || is_locked_or_new(&self.seat(index))? {
                used += 1;
            } else {
                free.push(index);
            }
        }
        let room = max.saturating_sub(used).min(wanted) as usize;
        for index in free {
            if taken.len() == room {
                break;
            }
            if let Some(lock) = Locked::existing(self.seat(index))? {
                taken.push(Seat { index, lock });
            }
        }
        Ok(taken)
    }

    /// Whether one of so many seats is held by nobody.
    pub(super) fn is_any_free(&self, max: u32) -> io::Result<bool> {
        for index in 0..max {
            if !is_locked_or_new(&self.seat(index))? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// How many seats with this number or a greater one are held. The files of those that are not go.
    fn held_from(&self, first: u32) -> io::Result<u32> {
        let mut held = 0;
        for name in names(&self.seats())? {
            if name.parse::<u32>().is_ok_and(|index| index >= first) && is_locked(&self.seats().join(&name))?
            {
                held += 1;
            }
        }
        Ok(held)
    }

    fn seat(&self, index: u32) -> PathBuf {
        self.seats().join(index.to_string())
    }

    /// Goes to the end of the line.
    pub(super) fn stand(&self) -> io::Result<Locked> {
        Locked::new(&self.line(), &format!("{:020}-{}", boottime_ns(), unique()))
    }

    /// Whether somebody stands before this place, or anywhere but there.
    pub(super) fn is_anybody(&self, place: Option<&Locked>, only_before: bool) -> io::Result<bool> {
        let mine = place.map(Locked::name).unwrap_or_default();
        let mut line = names(&self.line())?;
        line.sort_unstable();
        for name in line {
            let counts = if only_before { name < mine } else { name != mine };
            if counts && is_locked(&self.line().join(&name))? {
                return Ok(true);
            }
        }
        Ok(false)
    }
}

/// One seat, held until it is dropped.
#[derive(Debug)]
pub(super) struct Seat {
    pub(super) index: u32,
    lock: Locked,
}

impl Seat {
    /// Whether the file that is locked still is the one with that name.
    pub(super) fn is_mine(&self) -> bool {
        is_at(&self.lock.file, &self.lock.path)
    }
}

/// A file that this process has locked, until it is dropped.
#[derive(Debug)]
pub(super) struct Locked {
    file: File,
    path: PathBuf,
    /// Whether the file means nothing without the lock.
    is_brief: bool,
}

impl Locked {
    /// Makes one that nobody sees before it is locked.
    fn new(folder: &Path, name: &str) -> io::Result<Self> {
        let (hidden, path) = (folder.join(format!(".{name}")), folder.join(name));
        let mut file = OpenOptions::new().read(true).write(true).create_new(true).open(&hidden)?;
        // For people who look.
        let _ = writeln!(file, "{}", std::process::id());
        let made = lock(&file).and_then(|_| fs::rename(&hidden, &path));
        if made.is_err() {
            let _ = fs::remove_file(&hidden);
        }
        made.map(|()| Self { file, path, is_brief: true })
    }

    /// Locks one that others may lock too; `None` if one has.
    fn existing(path: PathBuf) -> io::Result<Option<Self>> {
        let file = OpenOptions::new().read(true).write(true).create(true).truncate(false).open(&path)?;
        let is_mine = lock(&file)? && is_at(&file, &path);
        Ok(is_mine.then_some(Self { file, path, is_brief: false }))
    }

    fn name(&self) -> String {
        self.path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default()
    }

    /// Whether it can still be seen under its name.
    pub(super) fn is_there(&self) -> bool {
        is_at(&self.file, &self.path)
    }

    /// Goes by another ending from now on, locked all the while.
    pub(super) fn rename_ending(&mut self, ending: &str) -> io::Result<()> {
        let path = self.path.with_extension(ending);
        fs::rename(&self.path, &path)?;
        self.path = path;
        Ok(())
    }
}

impl Drop for Locked {
    fn drop(&mut self) {
        if self.is_brief && self.is_there() {
            let _ = fs::remove_file(&self.path);
        }
        // Before it is closed: so who is woken by the closing finds it free, and a forked child holds nothing.
        let _ = self.file.unlock();
    }
}

fn lock(file: &File) -> io::Result<bool> {
    match file.try_lock() {
        Ok(()) => Ok(true),
        Err(TryLockError::WouldBlock) => Ok(false),
        Err(TryLockError::Error(error)) => Err(error),
    }
}

/// Whether somebody holds it. One that nobody does is taken away.
fn is_locked(path: &Path) -> io::Result<bool> {
    let Some(file) = found(File::open(path))? else { return Ok(false) };
    match file.try_lock_shared() {
        Ok(()) => {
            // Whoever has opened it meanwhile will see that it is not there any more.
            found(fs::remove_file(path)).map(|_| false)
        }
        Err(TryLockError::WouldBlock) => Ok(true),
        Err(TryLockError::Error(error)) => Err(error),
    }
}

/// Whether somebody holds this seat, which stays where it is.
fn is_locked_or_new(path: &Path) -> io::Result<bool> {
    let Some(file) = found(File::open(path))? else { return Ok(false) };
    match file.try_lock_shared() {
        Ok(()) => Ok(false),
        Err(TryLockError::WouldBlock) => Ok(true),
        Err(TryLockError::Error(error)) => Err(error),
    }
}

fn found<T>(result: io::Result<T>) -> io::Result<Option<T>> {
    match result {
        Ok(value) => Ok(Some(value)),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// The names of what can be seen in a folder.
fn names(folder: &Path) -> io::Result<Vec<String>> {
    let mut names = Vec::new();
    for entry in fs::read_dir(folder)? {
        let name = entry?.file_name().to_string_lossy().into_owned();
        if !name.starts_with('.') {
            names.push(name);
        }
    }
    Ok(names)
}

#[cfg(unix)]
fn is_at(file: &File, path: &Path) -> bool {
    use std::os::unix::fs::MetadataExt as _;
    let id = |metadata: fs::Metadata| (metadata.dev(), metadata.ino());
    file.metadata().is_ok_and(|file| fs::symlink_metadata(path).is_ok_and(|there| id(file) == id(there)))
}

/// What is open can neither be renamed nor removed.
#[cfg(not(unix))]
fn is_at(_file: &File, path: &Path) -> bool {
    path.exists()
}

/// A name that no other process and no other call of this one uses.
fn unique() -> String {
    static LAST: AtomicU64 = AtomicU64::new(0);
    format!("{}-{}", std::process::id(), LAST.fetch_add(1, Relaxed))
}

/// Makes a folder that is its user's alone, or says why an existing one is not.
pub(super) fn private_folder(path: &Path) -> io::Result<()> {
    let mut builder = fs::DirBuilder::new();
    builder.recursive(true);
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.create(path)?;
    #[cfg(unix)]
    {
        use std::os::unix::fs::MetadataExt as _;
        let found = fs::symlink_metadata(path)?;
        // SAFETY: takes nothing and cannot fail.
        let me = unsafe { libc::geteuid() };
        if !found.is_dir() || found.uid() != me || found.mode() & 0o022 != 0 {
            return Err(io::Error::other(format!(
                "{} has to be a folder that belongs to this user and that nobody else can write to",
                path.display()
            )));
        }
    }
    Ok(())
}

/// Whether a lock holds against another open file of this process, as it does where seats can be kept.
pub(super) fn holds_locks(folder: &Path) -> io::Result<bool> {
    let path = folder.join(format!(".probe-{}", unique()));
    let open = || OpenOptions::new().read(true).write(true).create(true).truncate(false).open(&path);
    let probe = || lock(&open()?);
    let held = open()?;
    let holds = lock(&held)? && !probe()?;
    drop(held);
    fs::remove_file(&path)?;
    Ok(holds)
}
