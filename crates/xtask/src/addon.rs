//! The Node addon: built by cargo, placed where Node loads it.
//!
//! It knows by digest the compiled code that ships with it, so the component comes first, its code second, the addon last.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

use anyhow::Context as _;

use crate::component;
use crate::progress::step;
use crate::shell::{self, ask, cargo, command};

/// Its package.
const ADDON: &str = "gen-limit-node";

/// How the addon is compiled.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Profile {
    /// Quick to rebuild; dependencies are optimised all the same.
    Dev,
    /// What ships.
    Release,
}

impl Profile {
    /// Adds what cargo has to be told.
    fn tell(self, cargo: &mut Command) {
        if self == Self::Release {
            cargo.arg("--release");
        }
    }

    /// Where cargo puts what it has built.
    fn folder(self, root: &Path) -> PathBuf {
        root.join("target").join(if self == Self::Release { "release" } else { "debug" })
    }
}

/// What belongs together.
pub struct Built {
    /// The addon.
    pub addon: PathBuf,
    /// The component.
    pub component: PathBuf,
    /// Its code for this platform.
    pub code: PathBuf,
}

/// Builds the component, its code, and the addon that knows both.
pub fn build(root: &Path, profile: Profile) -> anyhow::Result<Built> {
    let component = component::build(root, component::Variant::Release)?;
    let code = component.with_extension("cwasm");
    let seal = step("compiling it for this platform", || precompile(root, profile, &component, &code))?;
    let mut command = cargo(root);
    command.args(["build", "--package", ADDON]).env("GEN_LIMIT_SEAL", seal);
    profile.tell(&mut command);
    step("building the addon", || shell::run(&mut command))?;
    let library = format!("{}gen_limit_node{}", env::consts::DLL_PREFIX, env::consts::DLL_SUFFIX);
    let addon = root.join("host-shim/node/gen-limit.node");
    replace(&profile.folder(root).join(library), &addon)?;
    Ok(Built { addon, component, code })
}

/// Has the runtime compile a component, with the very engine that the addon loads it with; gives the seal of both.
fn precompile(root: &Path, profile: Profile, component: &Path, code: &Path) -> anyhow::Result<String> {
    let mut build = cargo(root);
    // Named beside the addon, it uses one wasmtime with it.
    build.args(["build", "--quiet", "--package", ADDON, "--package", "gen-limit-runtime"]);
    build.args(["--example", "precompile"]);
    profile.tell(&mut build);
    shell::run(&mut build)?;
    let mut precompile = command(profile.folder(root).join("examples/precompile"), root);
    shell::answer(precompile.arg(target(root)?).arg(component).arg(code))
}

/// The target that this machine is of.
fn target(root: &Path) -> anyhow::Result<String> {
    let told = ask(command("rustc", root).arg("-vV")).context("rustc does not tell its version")?;
    let host = told.lines().find_map(|line| line.strip_prefix("host: "));
    host.map(str::to_owned).context("rustc does not tell its host")
}

/// Copies by way of a new file: a process that has the old one mapped keeps it whole.
fn replace(from: &Path, to: &Path) -> anyhow::Result<()> {
    let next = to.with_extension("node.next");
    fs::copy(from, &next).with_context(|| format!("copying {}", from.display()))?;
    fs::rename(&next, to).with_context(|| format!("writing {}", to.display()))
}
