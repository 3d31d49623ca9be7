//! Builds the components and proves their worlds.
//!
//! The guest is a plain core module for `wasm32-unknown-unknown`, so that nothing of WASI gets in, and the `wit-component`
//! crate makes a component of it: nothing has to be installed. The minor version of that crate is the one `wit-bindgen` writes
//! its metadata with; they change together.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};
use sha2::{Digest as _, Sha256};
use wit_component::{ComponentEncoder, DecodedWasm};
use wit_parser::{Resolve, WorldId};

use crate::progress::step;
use crate::shell::{ask, cargo, command, run};

const TARGET: &str = "wasm32-unknown-unknown";
const PROFILE: &str = "guest";

/// Which component.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Variant {
    /// What ships.
    Release,
    /// The same with faults on demand, for tests.
    Chaos,
    /// Another plugin, of the smaller world.
    Budget,
    /// One that does what no plugin should, for tests.
    Hostile,
}

impl Variant {
    fn file(self) -> &'static str {
        match self {
            Self::Release => "gen-limit.wasm",
            Self::Chaos => "gen-limit-chaos.wasm",
            Self::Budget => "budget-guard.wasm",
            Self::Hostile => "hostile.wasm",
        }
    }

    fn package(self) -> &'static str {
        match self {
            Self::Release | Self::Chaos => "gen-limit",
            Self::Budget => "budget-guard",
            Self::Hostile => "hostile",
        }
    }

    fn features(self) -> &'static [&'static str] {
        match self {
            Self::Release | Self::Budget | Self::Hostile => &[],
            Self::Chaos => &["--features", "chaos"],
        }
    }

    fn world(self) -> &'static str {
        match self {
            Self::Release | Self::Chaos | Self::Hostile => "plugin",
            Self::Budget => "hooks",
        }
    }
}

/// Builds all of them.
pub fn build_all(root: &Path) -> anyhow::Result<()> {
    [Variant::Release, Variant::Chaos, Variant::Budget, Variant::Hostile]
        .into_iter()
        .try_for_each(|variant| build(root, variant).map(drop))
}

/// Builds the plugin of somebody else's crate and checks it against `wit/`; gives the path of the `.wasm`, beside its manifest.
pub fn build_foreign(root: &Path, folder: &Path) -> anyhow::Result<PathBuf> {
    let folder = folder.canonicalize().with_context(|| format!("{}", folder.display()))?;
    step(&format!("building {}", folder.display()), || {
        install_target(root)?;
        // Its own settings of cargo count, and its own target folder.
        let mut compile = cargo(&folder);
        compile.args(["build", "--quiet", "--release", "--target", TARGET, "--target-dir", "target"]);
        run(&mut compile)?;
        let built = folder.join("target").join(TARGET).join("release");
        let mut modules: Vec<PathBuf> = fs::read_dir(&built)
            .with_context(|| format!("reading {}", built.display()))?
            .filter_map(|entry| Some(entry.ok()?.path()))
            .filter(|path| path.extension().is_some_and(|extension| extension == "wasm"))
            .collect();
        let (Some(module), true) = (modules.pop(), modules.is_empty()) else {
            bail!(
                "expected one .wasm in {}: is `crate-type = [\"cdylib\"]` set, and was the crate renamed?",
                built.display()
            );
        };
        let name = module.file_stem().context("it has a name")?.to_string_lossy().replace('_', "-");
        let component = componentise(&fs::read(&module)?)?;
        let DecodedWasm::Component(found, world) = wit_component::decode(&component).context("decoding")?
        else {
            bail!("the result is not a component");
        };
        let serves = exports(&found, world).iter().any(|name| name.starts_with("dsh:plugin/routes"));
        check(&component, &root.join("wit"), if serves { "plugin" } else { "hooks" })?;
        let path = folder.join(name).with_extension("wasm");
        replace(&path, &component)?;
        Ok(path)
    })
}

/// Builds one and checks it against `wit/`; gives the path of the `.wasm`.
pub fn build(root: &Path, variant: Variant) -> anyhow::Result<PathBuf> {
    step(&format!("building {}", variant.file()), || {
        install_target(root)?;
        let mut compile = cargo(root);
        compile.args([
            "build",
            "--quiet",
            "--package",
            variant.package(),
            "--target",
            TARGET,
            "--profile",
            PROFILE,
        ]);
        run(compile.args(variant.features()))?;

        let module = root
            .join("target")
            .join(TARGET)
            .join(PROFILE)
            .join(variant.package().replace('-', "_"))
            .with_extension("wasm");
        let module = fs::read(&module).with_context(|| format!("reading {}", module.display()))?;
        let component = componentise(&module)?;
        check(&component, &root.join("wit"), variant.world())?;

        let path = root.join("target/component").join(variant.file());
        replace(&path, &component)?;
        let digest = hex(&Sha256::digest(&component));
        eprintln!("  {}: {} bytes, sha256 {digest}", path.display(), component.len());
        Ok(path)
    })
}

/// Adds the target where rustup manages the toolchain; elsewhere the compiler says what is missing.
fn install_target(root: &Path) -> anyhow::Result<()> {
    match ask(command("rustup", root).args(["target", "list", "--installed"])) {
        Some(installed) if !installed.lines().any(|target| target == TARGET) => {
            run(command("rustup", root).args(["target", "add", TARGET]))
        }
        _ => Ok(()),
    }
}

fn componentise(module: &[u8]) -> anyhow::Result<Vec<u8>> {
    let mut encoder = ComponentEncoder::default();
    encoder.validate(true).module(module).context("reading the module")?;
    encoder.encode().context("making a component of the module")
}

/// The exports are those of the world, the imports are among those of the world, and every type fits.
fn check(component: &[u8], wit: &Path, name: &str) -> anyhow::Result<()> {
    let mut resolve = Resolve::default();
    let (package, _) = resolve.push_dir(wit).with_context(|| format!("reading {}", wit.display()))?;
    let world = resolve.select_world(&[package], Some(name))?;
    let DecodedWasm::Component(found, root) = wit_component::decode(component).context("decoding")? else {
        bail!("the result is not a component");
    };

    let (exports, expected) = (exports(&found, root), exports(&resolve, world));
    if exports != expected {
        bail!("the component exports {exports:?}, world `{name}` has {expected:?}");
    }
    let foreign: Vec<_> = imports(&found, root).difference(&imports(&resolve, world)).cloned().collect();
    if !foreign.is_empty() {
        bail!("the component imports {foreign:?}, which world `{name}` does not have");
    }
    wit_component::targets(&resolve, world, component)
        .with_context(|| format!("the component's types differ from world `{name}`"))
}

fn exports(resolve: &Resolve, world: WorldId) -> BTreeSet<String> {
    resolve.worlds[world].exports.keys().map(|key| resolve.name_world_key(key)).collect()
}

fn imports(resolve: &Resolve, world: WorldId) -> BTreeSet<String> {
    resolve.worlds[world].imports.keys().map(|key| resolve.name_world_key(key)).collect()
}

/// Bytes in lower-case hexadecimal.
pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        // A string takes whatever is written.
        let _ = write!(text, "{byte:02x}");
        text
    })
}

/// Writes by way of a new file: whoever reads the old one meanwhile reads it whole.
fn replace(path: &Path, bytes: &[u8]) -> anyhow::Result<()> {
    fs::create_dir_all(path.parent().context("the path has a folder")?)?;
    let next = path.with_extension("wasm.next");
    fs::write(&next, bytes)?;
    fs::rename(&next, path).with_context(|| format!("writing {}", path.display()))
}
