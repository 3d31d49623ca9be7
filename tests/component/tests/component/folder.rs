//! A watched folder of plugins, with real files: what is dropped in is loaded when it is whole, refused with a sentence when it
//! cannot be used, replaced and let go of, and told of once.
//!
//! `--nocapture` prints how long it took.

use std::collections::BTreeMap;
use std::fs::{self, OpenOptions};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use component_tests::{Host, budget_path, is_admitted, release_path, runtime};
use gen_limit_runtime::{
    Cache, Change, Changed, EntryState, Folder, FolderOptions, Inspection, Settings, Standing, World,
};

/// However busy the machine is, what is to come has come by then.
const DEADLINE: Duration = Duration::from_mins(1);

/// Longer than a file takes to settle, and to be looked at without an event.
const QUIET: Duration = Duration::from_millis(1_500);

/// For what takes a test two steps: on a busy machine there may be some time between them.
const PATIENT: FolderOptions = FolderOptions {
    cache: None,
    settle_ms: 3_000,
    rescan_ms: 1_000,
    max_file_bytes: 1 << 20,
    max_plugins: 32,
};

const BOTH: Changed = Changed { component: true, settings: true };
const COMPONENT: Changed = Changed { component: true, settings: false };
const SETTINGS: Changed = Changed { component: false, settings: true };

fn budget() -> &'static [u8] {
    static BYTES: LazyLock<Vec<u8>> =
        LazyLock::new(|| fs::read(budget_path()).expect("run `cargo xtask component`"));
    &BYTES
}

/// The same component as another file: with a custom section that says so.
fn variant(n: u32) -> Vec<u8> {
    let mut bytes = budget().to_vec();
    bytes.extend([0, 9, 4]);
    bytes.extend(b"test");
    bytes.extend(n.to_le_bytes());
    bytes
}

/// A folder of this test's own, which goes with it.
struct Place(PathBuf);

impl Place {
    fn new(name: &str) -> Self {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/folder").join(name);
        let _ = fs::remove_dir_all(&path);
        fs::create_dir_all(path.join("plugins")).expect("a folder");
        Self(path)
    }

    fn plugins(&self) -> PathBuf {
        self.0.join("plugins")
    }

    fn file(&self, name: &str) -> PathBuf {
        self.plugins().join(name)
    }

    /// Written elsewhere, then renamed into place.
    fn place(&self, name: &str, bytes: &[u8]) {
        let next = self.0.join("next");
        fs::write(&next, bytes).expect("written");
        fs::rename(next, self.file(name)).expect("renamed");
    }

    /// Written in place.
    fn write(&self, name: &str, bytes: impl AsRef<[u8]>) {
        fs::write(self.file(name), bytes).expect("written");
    }

    fn remove(&self, name: &str) {
        fs::remove_file(self.file(name)).expect("removed");
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// A watched folder, and what is known of it.
struct Watched {
    folder: Folder,
    woken: Receiver<()>,
    changes: Vec<Change>,
}

impl Watched {
    fn new(place: &Place) -> Self {
        Self::with(place, FolderOptions::default())
    }

    fn with(place: &Place, options: FolderOptions) -> Self {
        let (wake, woken) = channel();
        let folder = Folder::watch(runtime(), place.plugins(), options, move || {
            let _ = wake.send(());
        })
        .expect("a thread");
        Self { folder, woken, changes: Vec::new() }
    }

    /// The next change.
    fn next(&mut self) -> Change {
        let begun = Instant::now();
        loop {
            self.changes.append(&mut self.folder.take_changes());
            if !self.changes.is_empty() {
                return self.changes.remove(0);
            }
            let left = DEADLINE.saturating_sub(begun.elapsed());
            self.woken
                .recv_timeout(left)
                .unwrap_or_else(|_| panic!("no change: {:?}", self.folder.standing()));
        }
    }

    /// The next change is that this is loaded; its digest.
    fn loaded(&mut self, plugin: &str, what: Changed) -> (String, Settings) {
        match self.next() {
            Change::Loaded { name, component, settings, changed } => {
                assert_eq!((name.as_str(), changed), (plugin, what));
                (component.sha256().to_owned(), settings)
            }
            other => panic!("expected {plugin} to be loaded: {other:?}"),
        }
    }

    /// The next change is that this is refused; why.
    fn refused(&mut self, plugin: &str) -> String {
        match self.next() {
            Change::Refused { name, file, reason } => {
                assert_eq!(name, plugin, "{reason}");
                assert!(reason.starts_with(&format!("{file}: ")), "{reason}");
                assert!(!reason.contains('\n'), "{reason}");
                println!("{reason}");
                reason
            }
            other => panic!("expected {plugin} to be refused: {other:?}"),
        }
    }

    fn removed(&mut self, plugin: &str) {
        match self.next() {
            Change::Removed { name } => assert_eq!(name, plugin),
            other => panic!("expected {plugin} to be removed: {other:?}"),
        }
    }

    /// Nothing changes for a while.
    fn quiet(&mut self) {
        let begun = Instant::now();
        assert!(self.changes.is_empty(), "{:?}", self.changes);
        loop {
            let changes = self.folder.take_changes();
            assert!(changes.is_empty(), "{changes:?}");
            match self.woken.recv_timeout(QUIET.saturating_sub(begun.elapsed())) {
                Ok(()) => {}
                Err(RecvTimeoutError::Timeout) => return,
                Err(RecvTimeoutError::Disconnected) => panic!("its thread has ended"),
            }
        }
    }

    fn standing(&self) -> Standing {
        self.folder.standing()
    }

    fn state(&self, file: &str) -> EntryState {
        let standing = self.standing();
        let entry = standing.entries.iter().find(|entry| entry.file == file);
        entry.unwrap_or_else(|| panic!("{file}: {standing:?}")).state.clone()
    }
}

fn digest(bytes: &[u8]) -> String {
    Inspection::of(bytes).expect("a component").sha256
}

#[test]
fn what_is_renamed_into_place_is_loaded_and_works() {
    let place = Place::new("rename");
    let mut folder = Watched::new(&place);
    folder.quiet();
    assert!(folder.standing().exists);
    let begun = Instant::now();
    place.place("budget.wasm", budget());
    let change = folder.next();
    println!("from the rename to the change, compiled: {:?}", begun.elapsed());
    let Change::Loaded { component, settings, changed, .. } = change else { panic!("{change:?}") };
    assert_eq!(
        (component.sha256(), &settings, changed),
        (digest(budget()).as_str(), &Settings::default(), BOTH)
    );
    let EntryState::Loaded { world, sha256 } = folder.state("budget.wasm") else { panic!("it is loaded") };
    assert_eq!((world, sha256.as_str()), (World::Hooks, component.sha256()));
    let mut host = Host::new(component, "{}");
    assert!(is_admitted(&host.stream("a")));
}

#[test]
fn the_second_time_it_comes_out_of_the_cache() {
    let place = Place::new("cache");
    let options =
        || FolderOptions { cache: Some(Cache::in_folder(place.0.join("cache"))), ..FolderOptions::default() };
    place.place("budget.wasm", budget());
    Watched::with(&place, options()).loaded("budget", BOTH);
    place.remove("budget.wasm");
    let mut folder = Watched::with(&place, options());
    folder.quiet();
    let begun = Instant::now();
    place.place("budget.wasm", budget());
    let change = folder.next();
    println!("from the rename to the change, cached: {:?}", begun.elapsed());
    assert!(matches!(change, Change::Loaded { component, .. } if component.was_cached()));
}

#[test]
fn what_is_written_in_place_is_loaded_when_it_is_left_alone() {
    let place = Place::new("in-place");
    let mut folder = Watched::new(&place);
    folder.quiet();
    let begun = Instant::now();
    place.write("budget.wasm", budget());
    folder.loaded("budget", BOTH);
    let took = begun.elapsed();
    println!("from the write to the change: {took:?}");
    assert!(took >= Duration::from_millis(400), "{took:?}");
}

#[test]
fn what_is_there_at_the_start_is_loaded_in_the_order_of_names() {
    let place = Place::new("start");
    place.write("b.wasm", variant(2));
    place.write("a.wasm", variant(1));
    place.write("a.json", r#"{"config": {"perMinute": 3}}"#);
    place.write("readme.md", "not a plugin");
    place.write(".c.wasm", variant(3));
    place.write("c.wasm.part", variant(3));
    let mut folder = Watched::new(&place);
    let (a, settings) = folder.loaded("a", BOTH);
    assert_eq!((a, settings.config.as_deref()), (digest(&variant(1)), Some(r#"{"perMinute": 3}"#)));
    assert_eq!(folder.loaded("b", BOTH).0, digest(&variant(2)));
    folder.quiet();
    let files: Vec<String> = folder.standing().entries.into_iter().map(|entry| entry.file).collect();
    assert_eq!(files, ["a.json", "a.wasm", "b.wasm"]);
    assert!(matches!(folder.state("a.json"), EntryState::Applied));
}

#[test]
fn a_half_written_file_is_neither_loaded_nor_refused() {
    let place = Place::new("half");
    let mut folder = Watched::new(&place);
    folder.quiet();
    let bytes = budget();
    let third = bytes.len() / 3;
    // A writer that keeps it open, and stalls for longer than a file takes to settle.
    let mut file = fs::File::create(place.file("budget.wasm")).expect("created");
    folder.quiet();
    for piece in [&bytes[..third], &bytes[third..2 * third]] {
        file.write_all(piece).expect("written");
        file.sync_all().expect("flushed");
        folder.quiet();
        assert!(matches!(folder.state("budget.wasm"), EntryState::Waiting(_)));
    }
    file.write_all(&bytes[2 * third..]).expect("written");
    drop(file);
    assert_eq!(folder.loaded("budget", BOTH).0, digest(bytes));
    folder.quiet();
}

#[test]
fn pieces_that_are_appended_in_quick_succession_are_one_file() {
    let place = Place::new("pieces");
    let mut folder = Watched::with(&place, PATIENT);
    folder.quiet();
    let mut pieces = budget().chunks(budget().len() / 8 + 1);
    place.write("budget.wasm", pieces.next().expect("a piece"));
    for piece in pieces {
        // Each is closed; the next comes before it would have settled.
        let early = folder.woken.recv_timeout(Duration::from_millis(100));
        assert_eq!(early, Err(RecvTimeoutError::Timeout), "{:?}", folder.standing());
        let mut file = OpenOptions::new().append(true).open(place.file("budget.wasm")).expect("opened");
        file.write_all(piece).expect("written");
    }
    assert_eq!(folder.loaded("budget", BOTH).0, digest(budget()));
}

#[test]
fn what_is_cut_short_is_refused_and_loaded_when_it_is_whole() {
    let place = Place::new("cut");
    let mut folder = Watched::new(&place);
    place.place("budget.wasm", &budget()[..budget().len() / 2]);
    let reason = folder.refused("budget");
    assert!(reason.contains("truncated") && reason.contains("not loaded"), "{reason}");
    assert!(matches!(folder.state("budget.wasm"), EntryState::Refused(why) if why == reason));
    place.place("budget.wasm", budget());
    folder.loaded("budget", BOTH);
    // A bad successor leaves it at work, and a good one is none if it is the same.
    place.write("budget.wasm", "<html>404</html>");
    let reason = folder.refused("budget");
    assert!(reason.contains("<html>40") && reason.contains("stays at work"), "{reason}");
    place.write("budget.wasm", budget());
    folder.loaded("budget", Changed::default());
    folder.quiet();
    place.write("budget.wasm", "<html>404</html>");
    folder.refused("budget");
    place.remove("budget.wasm");
    folder.removed("budget");
    folder.quiet();
}

#[test]
fn a_refused_file_that_goes_is_told_of() {
    let place = Place::new("gone");
    let mut folder = Watched::new(&place);
    place.write("budget.wasm", "nonsense");
    folder.refused("budget");
    place.remove("budget.wasm");
    folder.removed("budget");
    assert!(folder.standing().entries.is_empty());
}

#[test]
fn replaced_removed_and_dropped_again() {
    let place = Place::new("replace");
    let mut folder = Watched::new(&place);
    place.place("budget.wasm", &variant(1));
    assert_eq!(folder.loaded("budget", BOTH).0, digest(&variant(1)));
    place.place("budget.wasm", &variant(2));
    assert_eq!(folder.loaded("budget", COMPONENT).0, digest(&variant(2)));
    let begun = Instant::now();
    place.remove("budget.wasm");
    folder.removed("budget");
    println!("from the removal to the change: {:?}", begun.elapsed());
    place.place("budget.wasm", &variant(2));
    folder.loaded("budget", BOTH);
    folder.quiet();
}

#[test]
fn what_is_moved_away_to_make_place_is_replaced() {
    let place = Place::new("away");
    let mut folder = Watched::with(&place, PATIENT);
    place.place("budget.wasm", &variant(2));
    folder.loaded("budget", BOTH);
    fs::rename(place.file("budget.wasm"), place.file("old.bak")).expect("renamed");
    place.place("budget.wasm", &variant(3));
    assert_eq!(folder.loaded("budget", COMPONENT).0, digest(&variant(3)));
    folder.quiet();
}

#[test]
fn what_is_only_touched_is_no_change() {
    let place = Place::new("touch");
    let mut folder = Watched::new(&place);
    place.write("budget.json", r#"{"config": {"perMinute": 3}}"#);
    place.write("budget.wasm", budget());
    folder.loaded("budget", BOTH);
    place.write("budget.wasm", budget());
    place.write("budget.json", r#" { "config": {"perMinute": 3}, "limits": {} } "#);
    // Another text of the limits is one.
    folder.loaded("budget", SETTINGS);
    place.place("budget.wasm", budget());
    place.place("budget.json", br#"{"limits": {}, "config": {"perMinute": 3}}"#);
    let now = std::time::SystemTime::now();
    fs::File::open(place.file("budget.wasm")).expect("opened").set_modified(now).expect("touched");
    folder.quiet();
}

#[test]
fn settings_change_alone_and_wrong_ones_leave_what_was() {
    let place = Place::new("settings");
    let mut folder = Watched::new(&place);
    place.write("budget.wasm", budget());
    let sha256 = folder.loaded("budget", BOTH).0;
    place.place("budget.json", br#"{"config": {"perMinute": 3}}"#);
    let (same, settings) = folder.loaded("budget", SETTINGS);
    assert_eq!((same, settings.config.as_deref()), (sha256, Some(r#"{"perMinute": 3}"#)));
    for (wrong, named) in [
        (&b"{\"cofnig\": {}}"[..], "`cofnig`"),
        (b"[]", "object"),
        (b"{\"config\": 3}", "`config`"),
        (b"{\"limits\": null}", "`limits`"),
        (b"{\"config\": {}, \"config\": {}}", "`config`"),
        (b"{\"config\": ", "JSON"),
        (b"\xff\xfe{}", "UTF-8"),
    ] {
        place.place("budget.json", wrong);
        let reason = folder.refused("budget");
        assert!(reason.contains(named) && reason.contains("stays at work"), "{reason}");
    }
    // While they are wrong, a new component waits: it may be meant for the settings that are to come.
    place.place("budget.wasm", &variant(1));
    folder.quiet();
    assert!(matches!(folder.state("budget.wasm"), EntryState::Waiting(_)));
    place.place("budget.json", br#"{"config": {"perMinute": 4}}"#);
    assert_eq!(folder.loaded("budget", BOTH).0, digest(&variant(1)));
    place.remove("budget.json");
    assert_eq!(folder.loaded("budget", SETTINGS).1, Settings::default());
    place.place("budget.json", &vec![b' '; 3 << 20]);
    assert!(folder.refused("budget").contains("bytes"));
}

#[test]
fn wrong_settings_keep_a_new_plugin_out() {
    let place = Place::new("settings-first");
    place.write("budget.json", r#"{"config": true}"#);
    let mut folder = Watched::new(&place);
    folder.quiet();
    assert!(matches!(folder.state("budget.json"), EntryState::Idle(why) if why.contains("budget.wasm")));
    place.place("budget.wasm", budget());
    let reason = folder.refused("budget");
    assert!(reason.starts_with("budget.json: ") && reason.contains("not loaded"), "{reason}");
    place.write("budget.json", r#"{"config": {}}"#);
    folder.loaded("budget", BOTH);
}

#[test]
fn the_limits_of_the_packaged_plugin_hold_without_a_file_of_it() {
    let place = Place::new("packaged");
    let mut folder = Watched::new(&place);
    let settings = |folder: &mut Watched| match folder.next() {
        Change::Settings { name, settings } if name == "gen-limit" => settings,
        other => panic!("expected settings: {other:?}"),
    };
    place.write("gen-limit.json", r#"{"limits": {"memoryBytes": 67108864}}"#);
    assert_eq!(settings(&mut folder).limits.as_deref(), Some(r#"{"memoryBytes": 67108864}"#));
    assert!(matches!(folder.state("gen-limit.json"), EntryState::Applied));
    place.write("gen-limit.json", r#"{"config": {}}"#);
    let reason = folder.refused("gen-limit");
    assert!(reason.contains("`config`") && reason.contains("stay in force"), "{reason}");
    place.write("gen-limit.json", r#"{"limits": {"memoryBytes": 67108864}}"#);
    settings(&mut folder);
    // A component of that name takes them over, and leaves them when it goes.
    let release = fs::read(release_path()).expect("run `cargo xtask component`");
    place.place("gen-limit.wasm", &release);
    assert!(folder.loaded("gen-limit", BOTH).1.limits.is_some());
    place.remove("gen-limit.wasm");
    folder.removed("gen-limit");
    assert!(settings(&mut folder).limits.is_some());
    place.remove("gen-limit.json");
    assert_eq!(settings(&mut folder), Settings::default());
    folder.quiet();
}

#[test]
fn a_folder_is_waited_for_and_survives_its_end() {
    let place = Place::new("folder");
    fs::remove_dir_all(&place.0).expect("removed");
    let mut folder = Watched::new(&place);
    folder.quiet();
    assert!(!folder.standing().exists);
    for n in 0..3 {
        // Also its parent is missing.
        let begun = Instant::now();
        fs::create_dir_all(place.plugins()).expect("a folder");
        place.place("budget.wasm", &variant(n));
        assert_eq!(folder.loaded("budget", BOTH).0, digest(&variant(n)));
        println!("from the folder's creation to the change: {:?}", begun.elapsed());
        // Events are heard, whichever folder of that name it is.
        let begun = Instant::now();
        place.place("budget.wasm", &variant(n + 10));
        folder.loaded("budget", COMPONENT);
        println!("from a rename in it: {:?}", begun.elapsed());
        fs::remove_dir_all(if n == 0 { place.plugins() } else { place.0.clone() }).expect("removed");
        folder.removed("budget");
    }
}

#[test]
fn a_folder_that_is_replaced_at_once_is_the_same_folder() {
    let place = Place::new("swap");
    let mut folder = Watched::with(&place, PATIENT);
    for n in 0..5 {
        // Beside it, then in its place: what was in the old one is not told to be gone.
        let next = place.0.join("plugins.next");
        fs::create_dir(&next).expect("a folder");
        fs::write(next.join("budget.wasm"), variant(n)).expect("written");
        let _ = fs::rename(place.plugins(), place.0.join(format!("old-{n}")));
        fs::rename(&next, place.plugins()).expect("renamed");
        folder.loaded("budget", if n == 0 { BOTH } else { COMPONENT });
        let begun = Instant::now();
        place.place("budget.wasm", &variant(n + 100));
        assert_eq!(folder.loaded("budget", COMPONENT).0, digest(&variant(n + 100)));
        println!("from a rename in its successor: {:?}", begun.elapsed());
    }
}

#[cfg(unix)]
#[test]
fn what_is_no_regular_file_is_refused_and_hangs_nobody() {
    use std::os::unix::fs::symlink;
    let place = Place::new("irregular");
    let mut folder = Watched::new(&place);
    let made = std::process::Command::new("mkfifo").arg(place.file("pipe.wasm")).status().expect("mkfifo");
    assert!(made.success());
    assert!(folder.refused("pipe").contains("a pipe"));
    fs::create_dir(place.file("directory.wasm")).expect("made");
    assert!(folder.refused("directory").contains("a directory"));
    symlink("nowhere", place.file("dangling.wasm")).expect("linked");
    assert!(folder.refused("dangling").contains("a link to nothing"));
    symlink("/dev/zero", place.file("device.wasm")).expect("linked");
    assert!(folder.refused("device").contains("a device"));
    symlink("loop.wasm", place.file("loop.wasm")).expect("linked");
    assert!(folder.refused("loop").contains("cannot be read"));
    // A link to a file is as good as the file, also when that is replaced.
    let elsewhere = place.0.join("elsewhere");
    fs::write(&elsewhere, variant(1)).expect("written");
    symlink(&elsewhere, place.file("link.wasm")).expect("linked");
    assert_eq!(folder.loaded("link", BOTH).0, digest(&variant(1)));
    fs::write(&elsewhere, variant(2)).expect("written");
    assert_eq!(folder.loaded("link", COMPONENT).0, digest(&variant(2)));
    fs::remove_file(place.file("pipe.wasm")).expect("removed");
    folder.removed("pipe");
}

#[test]
fn a_huge_file_is_refused_unread() {
    let place = Place::new("huge");
    let mut folder = Watched::new(&place);
    let file = fs::File::create(place.0.join("next")).expect("created");
    file.set_len(200_000_000).expect("made long");
    fs::rename(place.0.join("next"), place.file("huge.wasm")).expect("renamed");
    let reason = folder.refused("huge");
    assert!(reason.contains("200000000") && reason.contains("67108864"), "{reason}");
}

#[test]
fn a_file_without_a_plugins_name_is_refused_by_name() {
    let place = Place::new("names");
    let mut folder = Watched::new(&place);
    let long = format!("{}.wasm", "a".repeat(65));
    for name in [
        "Budget.wasm",
        "-budget.wasm",
        "bud_get.wasm",
        "büdget.wasm",
        "a.b.wasm",
        " .wasm",
        &long,
        "Budget.json",
    ] {
        place.write(name, budget());
        let reason = folder.refused(name);
        assert!(reason.contains("rename"), "{reason}");
        assert!(matches!(folder.state(name), EntryState::Refused(_)));
        place.remove(name);
        folder.removed(name);
    }
    place.write("two\nlines.wasm", budget());
    folder.refused("two\\nlines.wasm");
    let longest = "a".repeat(64);
    place.place(&format!("{longest}.wasm"), budget());
    folder.loaded(&longest, BOTH);
    place.place("0-.wasm", budget());
    folder.loaded("0-", BOTH);
}

#[test]
fn what_is_not_of_this_contract_is_refused_by_what_it_wants_and_what_there_is() {
    let patched = |from: &str, to: &str| {
        let mut bytes = budget().to_vec();
        let at: Vec<usize> =
            (0..bytes.len() - from.len()).filter(|&at| bytes[at..].starts_with(from.as_bytes())).collect();
        assert!(!at.is_empty() && from.len() == to.len());
        for at in at {
            bytes[at..at + to.len()].copy_from_slice(to.as_bytes());
        }
        bytes
    };
    let cases: BTreeMap<&str, (Vec<u8>, [&str; 2])> = [
        (
            "wasi",
            (
                patched("dsh:plugin/types@0.1.0", "wasi:clocks/now@0.2.00"),
                ["wasi:clocks/now@0.2.00", "models"],
            ),
        ),
        (
            "net",
            (patched("dsh:plugin/types@0.1.0", "dsh:plugin/files@0.1.0"), ["dsh:plugin/files", "sessions"]),
        ),
        ("newer", (patched("@0.1.0", "@0.2.0"), ["@0.2.0", "0.1.0"])),
        ("world", (patched("dsh:plugin/lifecycle", "dsh:plugin/lifecykle"), ["lifecykle", "llm-stream"])),
        ("module", (b"\0asm\x01\0\0\0".to_vec(), ["core module", "component"])),
        ("text", (b"(module)".to_vec(), ["(module)", "\\0asm"])),
        ("empty", (b"\0asm\x0d\0\x01\0".to_vec(), ["nothing", "llm-stream"])),
    ]
    .into();
    let place = Place::new("contract");
    let mut folder = Watched::new(&place);
    for (name, (bytes, named)) in cases {
        place.place(&format!("{name}.wasm"), &bytes);
        let reason = folder.refused(name);
        assert!(named.iter().all(|part| reason.contains(part)), "{reason}");
    }
    place.place("patch.wasm", &patched("@0.1.0", "@0.1.7"));
    folder.loaded("patch", BOTH);
}

#[test]
fn more_plugins_than_may_be_are_refused_until_there_is_room() {
    let place = Place::new("many");
    let mut folder = Watched::with(&place, FolderOptions { max_plugins: 3, ..FolderOptions::default() });
    for name in ["b", "c", "d"] {
        place.place(&format!("{name}.wasm"), budget());
        folder.loaded(name, BOTH);
    }
    place.place("a.wasm", budget());
    let reason = folder.refused("a");
    assert!(reason.contains("3 plugins"), "{reason}");
    // Those that are at work can be replaced all the same.
    place.place("c.wasm", &variant(1));
    folder.loaded("c", COMPONENT);
    place.remove("b.wasm");
    folder.removed("b");
    folder.loaded("a", BOTH);
    folder.quiet();
}

#[test]
fn after_many_quick_replacements_the_last_is_at_work() {
    const TIMES: u32 = 500;
    let place = Place::new("storm");
    let mut folder = Watched::new(&place);
    let begun = Instant::now();
    for n in 0..TIMES {
        place.place("budget.wasm", &variant(n));
    }
    let last = digest(&variant(TIMES - 1));
    let mut told = 0;
    loop {
        let Change::Loaded { component, .. } = folder.next() else { panic!("none is refused") };
        told += 1;
        if component.sha256() == last {
            break;
        }
    }
    println!("{TIMES} replacements: {told} were told of, the last after {:?}", begun.elapsed());
    folder.quiet();
}

#[test]
fn what_is_not_taken_is_told_of_net() {
    let place = Place::new("net");
    let folder = Watched::new(&place);
    let at_work = |digest: Option<String>| {
        let begun = Instant::now();
        loop {
            let entries = folder.standing().entries;
            let found = entries.iter().find_map(|entry| match &entry.state {
                EntryState::Loaded { sha256, .. } => Some(sha256.clone()),
                _ => None,
            });
            if found == digest {
                return;
            }
            assert!(begun.elapsed() < DEADLINE, "{entries:?}");
            std::thread::yield_now();
        }
    };
    place.place("budget.wasm", &variant(1));
    at_work(Some(digest(&variant(1))));
    place.place("budget.wasm", &variant(2));
    at_work(Some(digest(&variant(2))));
    let changes = folder.folder.take_changes();
    assert!(
        matches!(&changes[..], [Change::Loaded { component, .. }] if component.sha256() == digest(&variant(2))),
        "{changes:?}"
    );
}

#[test]
fn its_thread_ends_with_it() {
    let place = Place::new("end");
    let Watched { folder, woken, .. } = Watched::new(&place);
    drop(folder);
    let begun = Instant::now();
    while let Ok(()) = woken.recv_timeout(DEADLINE) {}
    assert!(begun.elapsed() < DEADLINE, "what was to be called is gone with the thread");
}

#[test]
fn where_there_can_be_no_folder_nothing_happens() {
    let place = Place::new("nowhere");
    fs::remove_dir(place.plugins()).expect("removed");
    fs::write(place.plugins(), "a file").expect("written");
    let mut folder = Watched::new(&place);
    folder.quiet();
    assert!(!folder.standing().exists && folder.standing().seen);
    fs::remove_file(place.plugins()).expect("removed");
    fs::create_dir(place.plugins()).expect("a folder");
    place.place("budget.wasm", budget());
    folder.loaded("budget", BOTH);
}
