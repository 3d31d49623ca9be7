//! A whole host, small enough to be read: what a Rust program does to put its model calls under a limit, and under whatever
//! plugins somebody drops into a folder.
//!
//! `cargo xtask component`, then `cargo run --package gen-limit-runtime --example embed [FOLDER]`, where FOLDER has the built
//! components, by default `target/component`.
//!
//! # What a host has to do, in seven steps
//!
//! 1. **One [`Runtime`] for the process.** It is the engine and its clock. Clones are the same one.
//! 2. **Load the component that the program brings, with a [`Cache`].** Compiling takes tenths of a second the first time on a
//!    machine, so a program that has something else to do meanwhile does this on a worker. A [`Component`] is cheap to clone: one
//!    serves all tenants.
//! 3. **A [`Chain`] for each tenant**, on the thread that decides. Every chain has instances, counts, lines and limits of its own.
//! 4. **Watch the [`Folder`]** and apply its changes to the chain. It reads and compiles on a thread of its own, and `wake` says
//!    that there is something to take; here that is one more event. Several chains get the same changes.
//! 5. **Bring every call before it starts, and tell of its end**, once, however it ended; also that of a call that was given up
//!    while it waited. `now` is the host's: one clock that only moves forward.
//! 6. **After every operation take what there is**: waits that ended, and lines of the log. Whoever serves the paths of a
//!    [`Chain`] on a web server of its own also takes responses and questions.
//! 7. **Sleep until something happens or [`Chain::next_tick`] is due**, then tick. Nothing here has a timer of its own, and nothing
//!    calls back.
//!
//! One thread owns the chain and its loop; those who want to call are elsewhere and talk to it through a channel. In a program
//! with an event loop that loop is the one.
//!
//! # What is seen here
//!
//! Nine tasks want the same model at once. A budget of two calls a minute has been dropped into the folder, so two of them work
//! and seven wait for a later minute. Then somebody takes the budget out: the seven go on to the limiter, which lets three work
//! at a time. A task works until three do, so all of them get through only if both were as told. Beside that a file is dropped in
//! that is no plugin, and it changes nothing.

use std::collections::HashMap;
use std::error::Error;
use std::fs;
use std::mem;
use std::path::{Path, PathBuf};
use std::process;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::sync::{Arc, Barrier};
use std::thread;
use std::time::{Duration, Instant};

use gen_limit_runtime::{
    Cache, CallId, Chain, Change, Component, Folder, FolderOptions, Limits, Mode, Options, Outcome, Route,
    Runtime, Settings, StartError, StreamCall, Verdict, boottime_ms,
};

/// The plugin that the program brings. It is the last of the chain, and a file of this name in the folder takes its place.
const OWN: &str = "gen-limit";

const TASKS: usize = 9;
const LIMIT: usize = 3;
const BUDGET: usize = 2;

/// Nothing here takes longer.
const PATIENCE: Duration = Duration::from_mins(1);

/// What happens to the thread that owns the chain.
enum Event {
    /// A task wants to start; it listens for whether it may.
    Ready { task: usize, answer: Answer },
    /// Its call is over.
    Done(CallId),
    /// The folder has changes.
    Folder,
}

/// Under which id a task may start, or why it may not.
type Answer = Sender<Result<CallId, String>>;

/// The host: the chain, what may change it, and who waits.
struct Host {
    chain: Chain,
    /// What the program brings, for when nothing of that name is in the folder any more.
    own: Component,
    folder: Folder,
    inbox: Receiver<Event>,
    waiting: HashMap<CallId, Answer>,
    running: usize,
    done: usize,
    /// Sentences about what could not be used.
    refused: Vec<String>,
}

impl Host {
    fn new(
        component: &Path,
        plugins: &Path,
        inbox: Receiver<Event>,
        events: Sender<Event>,
    ) -> Result<Self, Box<dyn Error>> {
        // 1. One engine.
        let runtime = Runtime::new()?;

        // 2. The component that the program brings. Where a cache has no place, it is compiled at every start.
        let cache = Cache::of_user();
        let own = match &cache {
            Some(cache) => runtime.load_file_cached(component, cache)?,
            None => runtime.load_file(component)?,
        };
        println!("{}: {} bytes, sha256 {}", component.display(), own.size(), own.sha256());

        // 3. The chain, so far of one.
        let config = format!(r#"{{"limits":[{{"provider":"toy","model":"model","max":{LIMIT}}}]}}"#);
        let options = Options { limits: Limits::default(), config, mode: Mode::Strict };
        let (chain, _) = Chain::new(&runtime, OWN, own.clone(), options, boottime_ms())?;

        // 4. The folder. It need not exist yet. A receiver that has gone needs no wake.
        let options = FolderOptions { cache, settle_ms: 50, ..FolderOptions::default() };
        let folder = Folder::watch(&runtime, plugins, options, move || drop(events.send(Event::Folder)))?;

        Ok(Self {
            chain,
            own,
            folder,
            inbox,
            waiting: HashMap::new(),
            running: 0,
            done: 0,
            refused: Vec::new(),
        })
    }

    /// 4. What is different in the folder.
    fn apply(&mut self, change: Change) {
        let name = change.name().to_owned();
        let applied = match change {
            Change::Loaded { component, settings, .. } => self.put(&name, component, settings),
            // Limits for what the program brings, without a file of that name.
            Change::Settings { settings, .. } => self.put(&name, self.own.clone(), settings),
            Change::Removed { .. } if name == OWN => self.put(&name, self.own.clone(), Settings::default()),
            Change::Removed { .. } => {
                self.chain.remove(&name, boottime_ms());
                Ok(())
            }
            Change::Refused { reason, .. } => {
                eprintln!("{reason}");
                self.refused.push(reason);
                return;
            }
            other => return eprintln!("this host does not know {other:?}"),
        };
        match applied {
            Ok(()) => println!("at work: {}", self.chain.names().collect::<Vec<_>>().join(", ")),
            // What was at work still is.
            Err(error) => eprintln!("{name} is not put to work: {error}"),
        }
    }

    fn put(&mut self, name: &str, component: Component, settings: Settings) -> Result<(), StartError> {
        let limits = Settings::limits_of(name, settings.limits.as_deref())
            .map_err(|problems| StartError::Config { problems })?;
        // The configuration of the program's own plugin is the program's. That of any other is what its file says now: without one
        // it is empty: what is not given leaves the one in force, also one that has been taken out of the file.
        let config = (name != OWN).then(|| (settings.config.unwrap_or_else(|| "{}".into()), Mode::Strict));
        self.chain.put(name, component, limits, config, boottime_ms()).map(drop)
    }

    /// 5. What the tasks say.
    fn handle(&mut self, event: Event) {
        match event {
            Event::Ready { task, answer } => {
                let started = self.chain.start_stream(call(task), boottime_ms());
                match started.verdict {
                    Verdict::Admit => self.let_in(started.id, &answer),
                    Verdict::Wait { .. } => drop(self.waiting.insert(started.id, answer)),
                    Verdict::Deny(refusal) => drop(answer.send(Err(refusal.message))),
                }
            }
            Event::Done(id) => {
                self.chain.finish(id, Outcome::Completed, boottime_ms());
                self.running -= 1;
                self.done += 1;
            }
            Event::Folder => {
                for change in self.folder.take_changes() {
                    self.apply(change);
                }
            }
        }
    }

    fn let_in(&mut self, id: CallId, answer: &Answer) {
        if answer.send(Ok(id)).is_ok() {
            self.running += 1;
        } else {
            // Who asked has gone meanwhile. Its seat must not stay taken.
            self.chain.finish(id, Outcome::Cancelled, boottime_ms());
        }
    }

    /// 6. What came of it.
    fn hand_on(&mut self) {
        for settled in self.chain.take_settled() {
            let Some(answer) = self.waiting.remove(&settled.id) else { continue };
            match settled.result {
                Ok(()) => self.let_in(settled.id, &answer),
                Err(refusal) => drop(answer.send(Err(refusal.message))),
            }
        }
        for line in self.chain.take_log() {
            eprintln!("{:?}: {}", line.level, line.message);
        }
    }

    /// 7. The loop. A host's own runs for ever, this one until something holds.
    fn run_until(&mut self, what: &str, holds: impl Fn(&Self) -> bool) -> Result<(), Box<dyn Error>> {
        let begun = Instant::now();
        while !holds(self) {
            let rest = PATIENCE.checked_sub(begun.elapsed()).ok_or(format!("within a minute: {what}"))?;
            let until_tick = self.chain.next_tick().map_or(u64::MAX, |due| due.saturating_sub(boottime_ms()));
            match self.inbox.recv_timeout(rest.min(Duration::from_millis(until_tick))) {
                Ok(event) => self.handle(event),
                Err(RecvTimeoutError::Timeout) => self.chain.tick(boottime_ms()),
                Err(RecvTimeoutError::Disconnected) => {
                    return Err("nobody is left who could want anything".into());
                }
            }
            self.hand_on();
        }
        println!("{what}: {} work, {} wait, {} are done", self.running, self.waiting.len(), self.done);
        Ok(())
    }

    /// The host ends: who waits is told so, and is never let through.
    fn close(mut self) {
        for (id, answer) in mem::take(&mut self.waiting) {
            self.chain.finish(id, Outcome::Cancelled, boottime_ms());
            drop(answer.send(Err("the host ends".into())));
        }
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let built = std::env::args().nth(1).unwrap_or_else(|| "target/component".into());
    let built = Path::new(&built);
    let place = Place::new()?;
    let (events, inbox) = mpsc::channel();
    let mut host = Host::new(&built.join("gen-limit.wasm"), &place.plugins(), inbox, events.clone())?;

    place.drop_in("budget.json", format!(r#"{{"config":{{"perMinute":{BUDGET}}}}}"#).as_bytes())?;
    place.drop_in("budget.wasm", &fs::read(built.join("budget-guard.wasm"))?)?;
    host.run_until("a budget was dropped in", |host| host.chain.names().eq(["budget", OWN]))?;

    place.drop_in("notes.wasm", b"no plugin")?;
    host.run_until("a file that is no plugin was refused", |host| host.refused.len() == 1)?;

    let toy = Arc::new(Toy::new());
    for task in 0..TASKS {
        let (events, toy) = (events.clone(), toy.clone());
        thread::spawn(move || run_task(task, &events, &toy));
    }
    host.run_until("all tasks have asked", |host| host.running + host.waiting.len() == TASKS)?;
    expect("tasks within the budget", host.running, BUDGET)?;

    place.remove("budget.wasm")?;
    host.run_until("the budget was taken out", |host| host.chain.names().eq([OWN]))?;
    host.run_until("all tasks have worked", |host| host.done == TASKS)?;
    expect("tasks at once", toy.peak.load(SeqCst), LIMIT)?;
    expect("calls that the limiter knows", host.chain.status().live, 0)?;
    host.close();
    Ok(())
}

/// What the tasks work on.
struct Toy {
    running: AtomicUsize,
    peak: AtomicUsize,
    together: Barrier,
}

impl Toy {
    fn new() -> Self {
        Self { running: AtomicUsize::new(0), peak: AtomicUsize::new(0), together: Barrier::new(LIMIT) }
    }
}

/// Waits for its turn, works, says that it is done.
fn run_task(task: usize, events: &Sender<Event>, toy: &Toy) {
    let (answer, decision) = mpsc::channel();
    if events.send(Event::Ready { task, answer }).is_err() {
        return;
    }
    match decision.recv() {
        Ok(Ok(id)) => {
            toy.peak.fetch_max(toy.running.fetch_add(1, SeqCst) + 1, SeqCst);
            toy.together.wait();
            toy.running.fetch_sub(1, SeqCst);
            // A host that has gone need not be told.
            drop(events.send(Event::Done(id)));
        }
        Ok(Err(refusal)) => eprintln!("task {task} may not start: {refusal}"),
        Err(_) => eprintln!("task {task} got no answer"),
    }
}

fn call(task: usize) -> StreamCall {
    StreamCall {
        route: Route { provider: "toy".into(), model: "model".into() },
        session: Some(format!("task-{task}")),
        root: None,
        parent: None,
        first: true,
        spawn: None,
        purpose: "conversation".into(),
        extra: Vec::new(),
    }
}

fn expect(what: &str, found: usize, expected: usize) -> Result<(), String> {
    if found == expected { Ok(()) } else { Err(format!("{what}: {found}, expected {expected}")) }
}

/// A folder of this run's own, which goes with it.
struct Place(PathBuf);

impl Place {
    fn new() -> std::io::Result<Self> {
        let place = Self(std::env::temp_dir().join(format!("gen-limit-embed-{}", process::id())));
        fs::create_dir_all(place.plugins())?;
        Ok(place)
    }

    fn plugins(&self) -> PathBuf {
        self.0.join("wasm-plugins")
    }

    /// Writes a file under another name, then renames it: so it is whole as soon as it is there.
    fn drop_in(&self, name: &str, bytes: &[u8]) -> std::io::Result<()> {
        let next = self.plugins().join(format!("{name}.part"));
        fs::write(&next, bytes)?;
        fs::rename(next, self.plugins().join(name))
    }

    fn remove(&self, name: &str) -> std::io::Result<()> {
        fs::remove_file(self.plugins().join(name))
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        // What cannot be removed is for whoever cleans the system's folder of such things.
        let _ = fs::remove_dir_all(&self.0);
    }
}
