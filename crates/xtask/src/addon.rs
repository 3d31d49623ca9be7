//! The Node addon: built by cargo, placed where Node loads it.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Context as _;

use crate::progress::step;
use crate::shell::{self, cargo};

/// How the addon is compiled.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Profile {
    /// Quick to rebuild; dependencies are optimised all the same.
    Dev,
    /// What ships.
    Release,
}

/// Builds the addon; gives the path of the `.node` file.
pub fn build(root: &Path, profile: Profile) -> anyhow::Result<PathBuf> {
    let mut command = cargo(root);
    command.args(["build", "--package", "gen-limit-node"]);
    if profile == Profile::Release {
        command.arg("--release");
    }
    step("building the addon", || shell::run(&mut command))?;
    let folder = if profile == Profile::Release { "release" } else { "debug" };
    let library = format!("{}gen_limit_node{}", std::env::consts::DLL_PREFIX, std::env::consts::DLL_SUFFIX);
    let built = root.join("target").join(folder).join(library);
    let addon = root.join("host-shim/node/gen-limit.node");
    replace(&built, &addon)?;
    Ok(addon)
}

/// Copies by way of a new file: a process that has the old one mapped keeps it whole.
fn replace(from: &Path, to: &Path) -> anyhow::Result<()> {
    let next = to.with_extension("node.next");
    fs::copy(from, &next).with_context(|| format!("copying {}", from.display()))?;
    fs::rename(&next, to).with_context(|| format!("writing {}", to.display()))
}
