//! What wakes the thread of a machine pool: a folder in which something came free, or somebody of this process.

use std::collections::BTreeSet;
use std::io;
use std::path::PathBuf;
use std::time::Duration;

pub(super) use system::{Bell, Ringer, bell};

/// What the thread is to be woken for: a file that is moved in, removed, or closed by who could write to it.
pub(super) type Watched = BTreeSet<PathBuf>;

#[cfg(target_os = "linux")]
mod system {
    use std::collections::BTreeMap;
    use std::io::{Read as _, Write as _};
    use std::os::fd::AsRawFd as _;
    use std::os::unix::net::UnixStream;

    use inotify::{Inotify, WatchDescriptor, WatchMask};

    use super::{Duration, PathBuf, Watched, io};

    pub(in super::super) struct Bell {
        inotify: Inotify,
        ear: UnixStream,
        watched: BTreeMap<PathBuf, WatchDescriptor>,
    }

    pub(in super::super) struct Ringer(UnixStream);

    pub(in super::super) fn bell() -> io::Result<(Bell, Ringer)> {
        let (ringer, ear) = UnixStream::pair()?;
        ear.set_nonblocking(true)?;
        ringer.set_nonblocking(true)?;
        Ok((Bell { inotify: Inotify::init()?, ear, watched: BTreeMap::new() }, Ringer(ringer)))
    }

    impl Ringer {
        pub(in super::super) fn ring(&self) {
            // If it is full, it has been rung.
            let _ = (&self.0).write(&[0]);
        }
    }

    impl Bell {
        /// Watches these folders and no others; `true` if any is new, so that what happened there before has to be looked at.
        pub(in super::super) fn watch(&mut self, folders: &Watched) -> bool {
            let gone: Vec<PathBuf> =
                self.watched.keys().filter(|path| !folders.contains(*path)).cloned().collect();
            for path in gone {
                if let Some(watch) = self.watched.remove(&path) {
                    // A folder that was removed has taken its watch with it.
                    let _ = self.inotify.watches().remove(watch);
                }
            }
            let mut is_new = false;
            for path in folders {
                if self.watched.contains_key(path) {
                    continue;
                }
                let mask = WatchMask::CLOSE_WRITE | WatchMask::MOVED_TO | WatchMask::DELETE;
                // Without a watch it is looked at from time to time.
                if let Ok(watch) = self.inotify.watches().add(path, mask) {
                    self.watched.insert(path.clone(), watch);
                    is_new = true;
                }
            }
            is_new
        }

        /// Waits until it is rung or something happened there; `false` if the time is over.
        pub(in super::super) fn wait(&mut self, time: Option<Duration>) -> bool {
            let entry = |fd| libc::pollfd { fd, events: libc::POLLIN, revents: 0 };
            let mut fds = [entry(self.inotify.as_raw_fd()), entry(self.ear.as_raw_fd())];
            // Rounded up: to come a little early is to come twice.
            let ms = time.map_or(-1, |time| i32::try_from(time.as_millis() + 1).unwrap_or(i32::MAX));
            // SAFETY: two entries, which live until it returns. Whatever it returns, what is there is read below.
            unsafe { libc::poll(fds.as_mut_ptr(), 2, ms) };
            let mut rung = false;
            let mut buffer = [0; 4096];
            while self.inotify.read_events(&mut buffer).is_ok_and(|mut events| events.next().is_some()) {
                rung = true;
            }
            while (&self.ear).read(&mut buffer).is_ok_and(|read| read > 0) {
                rung = true;
            }
            rung
        }
    }
}

#[cfg(not(target_os = "linux"))]
mod system {
    use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

    use super::{Duration, Watched, io};

    /// How often folders are looked at where nothing tells of changes.
    const LOOK: Duration = Duration::from_millis(25);

    pub(in super::super) struct Bell {
        ear: Receiver<()>,
        is_watching: bool,
    }

    pub(in super::super) struct Ringer(SyncSender<()>);

    pub(in super::super) fn bell() -> io::Result<(Bell, Ringer)> {
        let (ringer, ear) = sync_channel(1);
        Ok((Bell { ear, is_watching: false }, Ringer(ringer)))
    }

    impl Ringer {
        pub(in super::super) fn ring(&self) {
            let _ = self.0.try_send(());
        }
    }

    impl Bell {
        pub(in super::super) fn watch(&mut self, folders: &Watched) -> bool {
            self.is_watching = !folders.is_empty();
            false
        }

        pub(in super::super) fn wait(&mut self, time: Option<Duration>) -> bool {
            let time = if self.is_watching { Some(time.map_or(LOOK, |time| time.min(LOOK))) } else { time };
            match time {
                Some(time) => self.ear.recv_timeout(time).is_ok(),
                None => self.ear.recv().is_ok(),
            }
        }
    }
}
