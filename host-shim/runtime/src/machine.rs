//! The pool of one machine: seats that processes share, kept by locks of files.
//!
//! Nothing has to be installed and no clock is involved: a process that ends, however it does, has let go of its seats when
//! the kernel has cleaned up after it. [`files`] says what lies where.
//!
//! # Rules
//!
//! * Seat `i` may be taken if `i` is less than the least `max` of all members, and fewer than that are held.
//! * Whoever finds no seat goes to the end of a line. Its oldest takes what comes free, one seat while others wait behind it, and
//!   goes to the end for the next. So each of `n` members that wait gets every `n`th seat, however many calls it has.
//! * While anybody waits, a seat that comes free goes back, whoever waits in this process.
//! * Who stands before others and does not move although a seat is free, because its process was stopped, is passed over.
//!
//! # What happens where
//!
//! What is free is taken by whoever needs it, at once, on his thread: some files are opened, which takes microseconds. One
//! thread of the process does the waiting: it sleeps until something happens in the folders it has a reason to watch, and from time
//! to time looks by itself, in case it was not told. A member that neither holds nor waits is woken for nothing.

mod bell;
mod files;
#[cfg(test)]
mod tests;

use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::time::{Duration, Instant};

use bell::{Bell, Ringer, Watched, bell};
use files::{Files, Locked, Seat, holds_locks, private_folder};

/// The first look after something happened. The kernel tells of a file's closing a little before it lets go of its lock.
const FIRST_LOOK: Duration = Duration::from_millis(1);
/// Who waits looks as often at least, give or take a quarter.
const WAITING_LOOK: Duration = Duration::from_millis(256);
/// Who stands before others has so long to take a seat that is free.
const PATIENCE: Duration = Duration::from_millis(300);
/// Who holds seats looks whether they are still there.
const HOLDING_LOOK: Duration = Duration::from_secs(1);

/// The seats of a machine that a process may draw from. Cheap to clone; the last to go ends its thread.
#[derive(Clone)]
pub struct Machine(Arc<Owner>);

struct Owner {
    base: PathBuf,
    wake: Arc<dyn Fn() + Send + Sync>,
    shared: OnceLock<Result<Arc<Shared>, String>>,
}

struct Shared {
    claims: Mutex<Vec<Weak<Mutex<State>>>>,
    ringer: Ringer,
    wake: Arc<dyn Fn() + Send + Sync>,
    has_news: AtomicBool,
    is_over: AtomicBool,
}

impl Machine {
    /// The machine's pools in a folder, which has to be the user's alone and is made if need be. Nothing is made, and no
    /// thread runs, before the first seat is asked for. `wake` is called on another thread when there are seats for this
    /// process, others wait for those it holds, or something is wrong: then [tick](crate::Pool::tick) the pool.
    pub fn new(base: PathBuf, wake: impl Fn() + Send + Sync + 'static) -> Self {
        Self(Arc::new(Owner { base, wake: Arc::new(wake), shared: OnceLock::new() }))
    }

    /// Where this user's pools are unless somebody says otherwise: `$XDG_RUNTIME_DIR/dsh-gen-limit`, or a folder of the
    /// system's temporary one with the user's number in its name.
    pub fn of_user() -> PathBuf {
        match std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from).filter(|path| path.is_absolute()) {
            Some(folder) => folder.join("dsh-gen-limit"),
            None => std::env::temp_dir().join(format!("dsh-gen-limit{}", user_suffix())),
        }
    }

    /// Whether there has been news for any claim since somebody asked last.
    pub(crate) fn take_news(&self) -> bool {
        self.0
            .shared
            .get()
            .is_some_and(|shared| shared.as_ref().is_ok_and(|shared| shared.has_news.swap(false, SeqCst)))
    }

    /// A part in the seats of the pool with this key. Nothing is written before a seat is wanted.
    pub(crate) fn claim(&self, key: &str) -> Claim {
        Claim { owner: self.0.clone(), key: key.to_owned(), part: None, error: None }
    }
}

impl Owner {
    fn shared(&self) -> Result<Arc<Shared>, String> {
        let open = || {
            self.open().map_err(|error| {
                format!("{}: {error}; its limit holds for this process alone", self.base.display())
            })
        };
        self.shared.get_or_init(open).clone()
    }

    fn open(&self) -> io::Result<Arc<Shared>> {
        private_folder(&self.base)?;
        if !holds_locks(&self.base)? {
            return Err(io::Error::other("locks do not hold there"));
        }
        let (bell, ringer) = bell()?;
        let shared = Arc::new(Shared {
            claims: Mutex::default(),
            ringer,
            wake: self.wake.clone(),
            has_news: AtomicBool::new(false),
            is_over: AtomicBool::new(false),
        });
        let run = shared.clone();
        std::thread::Builder::new().name("gen-limit-seats".into()).spawn(move || run.run(bell))?;
        Ok(shared)
    }
}

#[cfg(unix)]
fn user_suffix() -> String {
    // SAFETY: takes nothing and cannot fail.
    format!("-{}", unsafe { libc::geteuid() })
}

#[cfg(not(unix))]
fn user_suffix() -> String {
    String::new()
}

impl Drop for Owner {
    fn drop(&mut self) {
        if let Some(Ok(shared)) = self.shared.get() {
            shared.is_over.store(true, SeqCst);
            shared.ringer.ring();
        }
    }
}

/// One scope's part in the seats of a pool.
pub(crate) struct Claim {
    owner: Arc<Owner>,
    key: String,
    part: Option<(Arc<Mutex<State>>, Arc<Shared>)>,
    /// Why this process has all seats for itself.
    error: Option<String>,
}

/// How it stands.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Standing {
    /// Seats held.
    pub(crate) seats: u32,
    /// Of these, those that came since it was settled last: they are for who waits here.
    pub(crate) fresh: u32,
    /// Whether another process waits.
    pub(crate) is_contended: bool,
    /// Seats that were lost while they were held, since somebody removed their files.
    pub(crate) lost: u64,
    /// Why there are no seats to be had, or why this process has all for itself.
    pub(crate) error: Option<String>,
}

impl Claim {
    pub(crate) fn standing(&self) -> Standing {
        let Some((state, _)) = &self.part else {
            let seats = if self.error.is_some() { u32::MAX } else { 0 };
            return Standing { seats, error: self.error.clone(), ..Standing::default() };
        };
        let state = locked(state);
        Standing {
            seats: state.seats.len() as u32,
            fresh: state.fresh,
            is_contended: state.is_contended,
            lost: state.lost,
            error: state.error.clone(),
        }
    }

    /// Whether something has changed that was not asked for, since it was settled last.
    pub(crate) fn has_news(&self) -> bool {
        self.part.as_ref().is_some_and(|(state, _)| locked(state).has_news)
    }

    /// Takes what is free, gives back what is not used if others wait or it has been idle, and goes into the line for the rest.
    /// Answers whether there are more seats than were `seen`.
    pub(crate) fn settle(&mut self, use_: Use, seen: &Standing) -> bool {
        if self.part.is_none() && use_.wanted > 0 && self.error.is_none() {
            match self.owner.shared() {
                Ok(shared) => self.part = Some(shared.part(&self.owner.base, &self.key)),
                Err(error) => {
                    self.error = Some(error);
                    (self.owner.wake)();
                }
            }
        }
        let Some((state, shared)) = &self.part else { return self.standing().seats > seen.seats };
        let mut state = locked(state);
        let watches = |state: &State| (state.place.is_some(), !state.seats.is_empty());
        let before = watches(&state);
        let error = state.error.clone();
        state.settle(use_, seen.fresh);
        if error != state.error {
            (shared.wake)();
        }
        if before != watches(&state) {
            shared.ringer.ring();
        }
        state.seats.len() as u32 > seen.seats
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        if let Some((state, shared)) = self.part.take() {
            // At once, also if the thread is about to look at it.
            locked(&state).leave();
            // There is less to watch.
            shared.ringer.ring();
        }
    }
}

/// What a process does with its seats.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Use {
    /// Seats it uses.
    pub(crate) used: u32,
    /// Seats it would use.
    pub(crate) wanted: u32,
    /// How many there are at most, as it says.
    pub(crate) max: u32,
    /// What it does not use, it has not used for a while.
    pub(crate) is_idle: bool,
}

impl Shared {
    fn run(&self, mut bell: Bell) {
        let mut look = FIRST_LOOK;
        let mut wait = None;
        loop {
            if bell.wait(wait) {
                look = FIRST_LOOK;
            }
            if self.is_over.load(SeqCst) {
                return;
            }
            let mut watched = Watched::new();
            let (mut holds, mut waits, mut has_news) = (false, false, false);
            for state in self.states() {
                let mut state = locked(&state);
                has_news |= state.look();
                holds |= !state.seats.is_empty();
                waits |= state.place.is_some();
                state.watch(&mut watched);
            }
            if has_news {
                self.has_news.store(true, SeqCst);
                (self.wake)();
            }
            wait = if bell.watch(&watched) {
                Some(Duration::ZERO)
            } else if waits {
                look = WAITING_LOOK.min(2 * look);
                Some(jittered(look))
            } else {
                holds.then_some(HOLDING_LOOK)
            };
        }
    }

    fn part(self: Arc<Self>, base: &Path, key: &str) -> (Arc<Mutex<State>>, Arc<Self>) {
        let state = Arc::new(Mutex::new(State::new(base.to_owned(), key.to_owned())));
        locked(&self.claims).push(Arc::downgrade(&state));
        (state, self)
    }

    /// Those that are still there.
    fn states(&self) -> Vec<Arc<Mutex<State>>> {
        let mut claims = locked(&self.claims);
        claims.retain(|claim| claim.strong_count() > 0);
        claims.iter().filter_map(Weak::upgrade).collect()
    }
}

/// A quarter more or less, so that processes do not look all at once.
fn jittered(time: Duration) -> Duration {
    let dice = crate::clock::boottime_ns() / 64 % 512;
    time * (768 + dice as u32) / 1024
}

/// Whoever panicked has left nothing half done that a lock of a file does not say.
fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

struct State {
    base: PathBuf,
    key: String,
    files: Option<Files>,
    member: Option<Locked>,
    max: u32,
    seats: Vec<Seat>,
    /// Where it stands in line.
    place: Option<Locked>,
    /// How many seats it waits for.
    lacking: u32,
    is_first: bool,
    is_contended: bool,
    fresh: u32,
    /// Since when a seat has been free that those before it did not take.
    free_since: Option<Instant>,
    has_news: bool,
    lost: u64,
    error: Option<String>,
}

impl State {
    fn new(base: PathBuf, key: String) -> Self {
        Self {
            base,
            key,
            files: None,
            member: None,
            max: 0,
            seats: Vec::new(),
            place: None,
            lacking: 0,
            is_first: false,
            is_contended: false,
            fresh: 0,
            free_since: None,
            has_news: false,
            lost: 0,
            error: None,
        }
    }

    fn leave(&mut self) {
        (self.member, self.place) = (None, None);
        self.seats.clear();
    }

    fn settle(&mut self, use_: Use, seen: u32) {
        self.has_news = false;
        self.fresh -= seen.min(self.fresh);
        let settled = self.try_settle(use_);
        self.note(settled);
    }

    fn note(&mut self, result: io::Result<()>) {
        self.error = result.err().map(|error| {
            format!("{}: {error}; nobody new gets a seat before that is mended", self.base.display())
        });
    }

    fn try_settle(&mut self, Use { used, wanted, max, is_idle }: Use) -> io::Result<()> {
        self.publish(max)?;
        self.is_contended = self.is_anybody(false)?;
        if self.is_contended || is_idle {
            self.keep(used.saturating_add(self.fresh));
        }
        self.lacking = wanted.saturating_sub(self.seats.len() as u32);
        if self.lacking == 0 {
            self.place = None;
        } else if self.place.is_none() {
            if !self.is_contended {
                self.take(self.lacking)?;
            }
            self.stand()?;
        }
        Ok(())
    }

    /// Goes to the end of the line, if it lacks seats.
    fn stand(&mut self) -> io::Result<()> {
        self.free_since = None;
        self.place = if self.lacking > 0 { Some(self.files()?.stand()?) } else { None };
        Ok(())
    }

    /// Whether others stand in line.
    fn is_anybody(&mut self, only_before: bool) -> io::Result<bool> {
        let place = self.place.take();
        let is_anybody = self.files().and_then(|files| files.is_anybody(place.as_ref(), only_before));
        self.place = place;
        is_anybody
    }

    fn files(&mut self) -> io::Result<&Files> {
        let files = match self.files.take() {
            Some(files) => files,
            None => Files::open(&self.base, &self.key)?,
        };
        Ok(self.files.insert(files))
    }

    /// Says how many seats there are, where everybody can read it.
    fn publish(&mut self, max: u32) -> io::Result<()> {
        match &mut self.member {
            Some(member) if member.is_there() => {
                if self.max != max {
                    member.rename_ending(&max.to_string())?;
                }
            }
            member => {
                *member = None;
                // The folder may have been taken away, with everything in it.
                self.files = None;
                self.member = Some(self.files()?.join(max)?);
            }
        }
        self.max = max;
        Ok(())
    }

    /// Gives back all but so many; first those with the greatest numbers, for a limit that was lowered.
    fn keep(&mut self, used: u32) {
        self.seats.sort_by_key(|seat| seat.index);
        self.seats.truncate(used as usize);
    }

    /// Takes up to so many of the seats that are free.
    fn take(&mut self, wanted: u32) -> io::Result<u32> {
        let max = self.max;
        let held = std::mem::take(&mut self.seats);
        let taken = self.files().and_then(|files| files.take(wanted, files.least(max)?, &held));
        self.seats = held;
        let taken = taken?;
        let count = taken.len() as u32;
        self.seats.extend(taken);
        self.lacking -= count;
        Ok(count)
    }

    /// What the thread does when something may have happened. Answers whether that is news.
    fn look(&mut self) -> bool {
        let before = (self.seats.len(), self.is_contended, self.error.clone());
        let looked = self.try_look();
        self.note(looked);
        let is_news = before != (self.seats.len(), self.is_contended, self.error.clone());
        self.has_news |= is_news;
        is_news
    }

    fn try_look(&mut self) -> io::Result<()> {
        let held = self.seats.len();
        self.seats.retain(Seat::is_mine);
        self.lost += (held - self.seats.len()) as u64;
        if self.seats.is_empty() && self.place.is_none() {
            return Ok(());
        }
        self.publish(self.max)?;
        if self.place.as_ref().is_some_and(|place| !place.is_there()) {
            // Somebody has removed what is nobody else's business.
            self.stand()?;
        }
        self.is_contended = self.is_anybody(false)?;
        self.is_first = self.place.is_some() && !(self.is_contended && self.is_anybody(true)?);
        if self.place.is_none() || !(self.is_first || self.is_ignored()?) {
            return Ok(());
        }
        let taken = self.take(if self.is_contended { 1 } else { self.lacking })?;
        self.fresh += taken;
        if taken > 0 {
            self.stand()?;
        }
        Ok(())
    }

    /// Whether a seat has been free for a while that those before it do not take.
    fn is_ignored(&mut self) -> io::Result<bool> {
        let max = self.max;
        let files = self.files()?;
        if !files.is_any_free(files.least(max)?)? {
            self.free_since = None;
            return Ok(false);
        }
        Ok(self.free_since.get_or_insert_with(Instant::now).elapsed() >= PATIENCE)
    }

    /// What it has to be told of: those who come to wait or stop waiting, and if it is next, whatever comes free.
    fn watch(&self, watched: &mut Watched) {
        let Some(files) = &self.files else { return };
        if self.place.is_some() || !self.seats.is_empty() {
            watched.insert(files.line());
        }
        if self.place.is_some() && self.is_first {
            watched.extend([files.seats(), files.members()]);
        }
    }
}
