//! Compiled code that is kept: it is loaded if it is whole and of this component, and compiled anew otherwise.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Instant;

use component_tests::{Host, budget_path, is_admitted, is_waiting, limit, release_path, runtime, spoilt};
use gen_limit_runtime::{Cache, Component};

/// A folder of this test's own, which goes with it.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("gen-limit-cache-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&path);
        Self(path)
    }

    fn cache(&self) -> Cache {
        Cache::in_folder(&self.0)
    }

    fn files(&self) -> Vec<PathBuf> {
        fs::read_dir(&self.0).map_or_else(
            |_| Vec::new(),
            |entries| entries.map(|entry| entry.expect("an entry").path()).collect(),
        )
    }

    /// The file with the code, which is the largest.
    fn the_file(&self) -> PathBuf {
        self.files()
            .into_iter()
            .max_by_key(|path| fs::metadata(path).map_or(0, |file| file.len()))
            .expect("a file")
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn bytes(path: &Path) -> Vec<u8> {
    fs::read(path).expect("run `cargo xtask component`")
}

/// The smaller one: it is compiled often here.
fn load(folder: &Folder) -> Component {
    runtime().load_cached(&bytes(&budget_path()), &folder.cache()).expect("it loads, whatever the cache")
}

#[test]
fn what_was_compiled_once_is_loaded_the_next_time_and_works_the_same() {
    let folder = Folder::new("once");
    let bytes = bytes(&release_path());
    let load = || {
        let begun = Instant::now();
        (runtime().load_cached(&bytes, &folder.cache()).expect("it loads"), begun.elapsed())
    };
    let (first, compiling) = load();
    let (second, loading) = load();
    println!("compiled in {compiling:?}, loaded in {loading:?}");
    assert!(!first.was_cached() && second.was_cached());
    assert_eq!((first.sha256(), first.size()), (second.sha256(), second.size()));
    assert!(loading * 4 < compiling, "{loading:?} against {compiling:?}");
    let mut host = Host::new(second, &limit(1, ""));
    let running = host.stream("a");
    let waiting = host.stream("b");
    assert!(is_admitted(&running) && is_waiting(&waiting));
    host.end(running.id);
    assert_eq!(host.admitted(), [waiting.id]);
}

#[test]
fn a_file_that_is_not_whole_is_not_loaded_and_is_written_anew() {
    let folder = Folder::new("whole");
    assert!(!load(&folder).was_cached());
    let path = folder.the_file();
    let whole = bytes(&path);
    // It ends within the digest, or is spoilt anywhere: in the digest, the header of the code, the code.
    for content in spoilt(&whole, 20).into_iter().chain([whole[..31].to_vec()]) {
        fs::write(&path, &content).expect("written");
        assert!(!load(&folder).was_cached(), "{} bytes", content.len());
        assert_eq!(bytes(&path).len(), whole.len(), "it is whole again");
        assert!(load(&folder).was_cached());
    }
}

#[test]
fn code_of_another_component_is_not_loaded() {
    let folder = Folder::new("other");
    load(&folder);
    let of_budget = folder.the_file();
    runtime().load_cached(&bytes(&release_path()), &folder.cache()).expect("it loads");
    let of_release = folder.files().into_iter().find(|path| *path != of_budget).expect("two files");
    fs::copy(&of_release, &of_budget).expect("copied");
    assert!(!load(&folder).was_cached());
}

#[cfg(unix)]
#[test]
fn a_folder_that_others_can_enter_is_not_used() {
    use std::os::unix::fs::{PermissionsExt as _, symlink};
    let folder = Folder::new("open");
    load(&folder);
    let mode = |path: &Path| fs::metadata(path).expect("there").permissions().mode() & 0o777;
    assert_eq!((mode(&folder.0), mode(&folder.the_file())), (0o700, 0o600));
    for open in [0o755, 0o701, 0o770] {
        fs::set_permissions(&folder.0, fs::Permissions::from_mode(open)).expect("changed");
        assert!(!load(&folder).was_cached(), "{open:o}");
    }
    fs::set_permissions(&folder.0, fs::Permissions::from_mode(0o700)).expect("changed");
    assert!(load(&folder).was_cached());
    // Nor one that is somewhere else than it says.
    let link = Folder::new("link");
    symlink(&folder.0, &link.0).expect("linked");
    assert!(!load(&link).was_cached());
    fs::remove_file(&link.0).expect("removed");
}

#[test]
fn where_nothing_can_be_written_it_is_compiled() {
    let nowhere = Cache::in_folder("/proc/nowhere/cache");
    let bytes = bytes(&budget_path());
    for _ in 0..2 {
        assert!(!runtime().load_cached(&bytes, &nowhere).expect("it loads").was_cached());
    }
}

#[test]
fn few_files_are_kept_and_no_half_one() {
    let folder = Folder::new("few");
    load(&folder);
    for n in 0..100 {
        fs::write(folder.0.join(format!("{n}.cwasm")), "old").expect("written");
    }
    fs::write(folder.the_file(), "broken").expect("written");
    load(&folder);
    assert!(folder.files().len() <= 32, "{}", folder.files().len());
    assert!(load(&folder).was_cached(), "the newest stays");
    assert!(folder.files().iter().all(|path| path.extension().is_some_and(|extension| extension == "cwasm")));
}
