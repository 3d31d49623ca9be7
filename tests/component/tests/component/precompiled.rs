//! Code that is delivered with a component: it is loaded if it is what the build has made of this component, and nothing else
//! is. What is there instead is named.

use std::fs;
use std::path::PathBuf;

use component_tests::{Host, budget_path, is_admitted, is_waiting, limit, release_path, runtime, spoilt};
use gen_limit_runtime::{Cache, Component, Precompiled, Source, precompile};
use wasmtime::{Config, Engine, ModuleVersionStrategy};

/// Any machine of this one's kind, without what only this one can do.
const TARGET: &str = match (cfg!(target_arch = "x86_64"), cfg!(target_os = "linux")) {
    (true, true) => "x86_64-unknown-linux-gnu",
    (false, true) => "aarch64-unknown-linux-gnu",
    (true, false) => "x86_64-apple-darwin",
    (false, false) => "aarch64-apple-darwin",
};

/// A component and its code, in a folder of this test's own.
struct Delivered {
    folder: PathBuf,
    component: Vec<u8>,
    code: Vec<u8>,
}

impl Delivered {
    /// The smaller component: it is compiled often here.
    fn new(name: &str) -> Self {
        let component = fs::read(budget_path()).expect("run `cargo xtask component`");
        let code = precompile(&component, TARGET).expect("it is a component");
        let folder = std::env::temp_dir().join(format!("gen-limit-code-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&folder);
        fs::create_dir(&folder).expect("made");
        let delivered = Self { folder, component, code };
        delivered.put(&delivered.code);
        delivered
    }

    fn path(&self) -> PathBuf {
        self.folder.join("plugin.cwasm")
    }

    fn put(&self, code: &[u8]) {
        fs::write(self.path(), code).expect("written");
    }

    /// What a program knows that was built with this code.
    fn known(&self, code: &[u8]) -> Precompiled {
        Precompiled::new(self.path(), &Precompiled::seal(&self.component, code)).expect("a seal")
    }

    fn load(&self) -> Component {
        self.load_as(&self.known(&self.code), None)
    }

    fn load_as(&self, known: &Precompiled, cache: Option<&Cache>) -> Component {
        runtime().load_precompiled(&self.component, known, cache).expect("it loads, whatever the code")
    }
}

impl Drop for Delivered {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.folder);
    }
}

fn told(component: &Component) -> (Source, &str) {
    (component.source(), component.notice().unwrap_or_default())
}

#[test]
fn delivered_code_works_like_the_compiler_s() {
    let delivered = Delivered::new("works");
    let component = fs::read(release_path()).expect("run `cargo xtask component`");
    let code = precompile(&component, TARGET).expect("it is a component");
    delivered.put(&code);
    let known = Precompiled::new(delivered.path(), &Precompiled::seal(&component, &code)).expect("a seal");
    let loaded = runtime().load_precompiled(&component, &known, None).expect("it loads");
    assert_eq!(told(&loaded), (Source::Precompiled, ""));
    let mut host = Host::new(loaded, &limit(1, ""));
    let running = host.stream("a");
    let waiting = host.stream("b");
    assert!(is_admitted(&running) && is_waiting(&waiting));
    host.end(running.id);
    assert_eq!(host.admitted(), [waiting.id]);
}

#[test]
fn the_same_component_gives_the_same_code() {
    let delivered = Delivered::new("same");
    assert_eq!(precompile(&delivered.component, TARGET).expect("a component"), delivered.code);
}

#[test]
fn what_is_not_that_very_code_is_not_loaded_and_is_named() {
    let delivered = Delivered::new("very");
    let whole = &delivered.code;
    // So that it is compiled once.
    let cache = Cache::in_folder(delivered.folder.join("cache"));
    let known = delivered.known(whole);
    for code in spoilt(whole, 100).into_iter().chain([delivered.component.clone()]) {
        delivered.put(&code);
        let component = delivered.load_as(&known, Some(&cache));
        let (source, notice) = told(&component);
        assert_ne!(source, Source::Precompiled, "{} bytes", code.len());
        assert!(notice.contains("plugin.cwasm") && notice.contains("has the sha256"), "{notice}");
    }
    delivered.put(whole);
    assert_eq!(told(&delivered.load()), (Source::Precompiled, ""));
}

#[test]
fn where_there_is_none_the_component_is_compiled() {
    let delivered = Delivered::new("none");
    fs::remove_file(delivered.path()).expect("removed");
    let component = delivered.load();
    let (source, notice) = told(&component);
    assert_eq!(source, Source::Compiled);
    assert!(notice.contains("cannot be read"), "{notice}");
    fs::create_dir(delivered.path()).expect("made");
    let component = delivered.load();
    let (source, notice) = told(&component);
    assert_eq!(source, Source::Compiled);
    assert!(notice.contains("expected a file"), "{notice}");
}

#[test]
fn what_cannot_be_used_is_compiled_once_and_then_comes_from_the_cache() {
    let delivered = Delivered::new("cache");
    delivered.put(b"broken");
    let cache = Cache::in_folder(delivered.folder.join("cache"));
    let known = delivered.known(&delivered.code);
    for source in [Source::Compiled, Source::Cached] {
        let component = delivered.load_as(&known, Some(&cache));
        assert_eq!(component.source(), source);
        assert!(component.notice().is_some());
    }
}

#[test]
fn another_component_has_nothing_to_do_with_the_code() {
    let delivered = Delivered::new("other");
    let known = delivered.known(&delivered.code);
    let other = fs::read(release_path()).expect("run `cargo xtask component`");
    let loaded = runtime().load_precompiled(&other, &known, None).expect("it loads");
    assert_eq!(told(&loaded), (Source::Compiled, ""));
    // Nor has one that differs in what nobody reads.
    let mut twin = delivered.component.clone();
    twin.extend([0, 2, 1, b'x']);
    let loaded = runtime().load_precompiled(&twin, &known, None).expect("a custom section does no harm");
    assert_eq!(told(&loaded), (Source::Compiled, ""));
}

#[test]
fn code_of_another_engine_is_refused_by_ours() {
    let delivered = Delivered::new("engine");
    let mut newer = Config::new();
    newer.module_version(ModuleVersionStrategy::Custom("49".into())).expect("a version");
    let made = |settings: &Config| {
        let engine = Engine::new(settings).expect("an engine");
        engine.precompile_component(&delivered.component).expect("a component")
    };
    let mut foreign = vec![made(&Config::new()), made(&newer)];
    // Compiled for another system, where this processor's compiler can do that.
    foreign.extend(precompile(&delivered.component, "x86_64-pc-windows-msvc"));
    for code in foreign {
        delivered.put(&code);
        let component = delivered.load_as(&delivered.known(&code), None);
        let (source, notice) = told(&component);
        assert_eq!(source, Source::Compiled);
        assert!(notice.contains("this engine does not take it"), "{notice}");
    }
}

#[test]
fn a_target_without_a_compiler_is_named() {
    let component = fs::read(budget_path()).expect("run `cargo xtask component`");
    for target in ["pdp11-unknown-unix", "riscv64gc-unknown-linux-gnu"] {
        let error = precompile(&component, target).expect_err("no compiler for it");
        assert!(error.to_string().contains(target), "{error}");
    }
    assert!(precompile(b"hello", TARGET).is_err());
}

#[test]
fn what_is_no_seal_is_not_taken_for_one() {
    let seal = Precompiled::seal(b"component", b"code");
    assert!(Precompiled::new("code", &seal).is_some());
    for wrong in ["", " ", &seal[1..], &seal.replace(' ', ""), &seal.replace(' ', "  "), &format!("{seal} ")]
    {
        assert!(Precompiled::new("code", wrong).is_none(), "{wrong}");
    }
}
