//! What the browser ring needs besides the harnesses: a Chromium, and a newer harness that has a page.
//!
//! Debian's Chromium is taken where none is on the path and this is the machine's own root; anybody else is told what to
//! install. The newer harness serves its page only from the unpacked files of its executable.

use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, bail};

use crate::harness::Harness;
use crate::progress::step;
use crate::shell::{self, ask, command};
use crate::tools::Tools;

/// The environment variables by which the tests are told where Chromium is, and where the unpacked harness.
const CHROMIUM: &str = "GEN_LIMIT_CHROMIUM";
const TREE: &str = "GEN_LIMIT_DSH_TREE";

/// By what names Chromium goes.
const NAMES: [&str; 3] = ["chromium", "chromium-browser", "google-chrome"];

/// Debian's packages: the browser, and letters for the Chinese of the card.
const PACKAGES: [&str; 2] = ["chromium", "fonts-noto-cjk"];

/// A browser that was found.
pub struct Browser(PathBuf);

impl Browser {
    /// Looks for one and installs it where that can be done; an error says what to install.
    pub fn find(root: &Path) -> anyhow::Result<Self> {
        if let Some(found) = on_path() {
            return Ok(Self(found));
        }
        let names = NAMES.join(", ");
        let debian = ask(command("apt-get", root).arg("--version")).is_some();
        if !debian || ask(command("id", root).arg("-u")).as_deref() != Some("0") {
            bail!("none of {names} is on the path; install Chromium");
        }
        step("installing Chromium", || install(root))
            .map_err(|error| anyhow::anyhow!("none of {names} is on the path, and apt-get: {error:#}"))?;
        on_path().map(Self).with_context(|| format!("apt-get left none of {names} on the path"))
    }

    /// Tells a test process of the browser and of the harness; an error says why that harness has no page.
    pub fn tell(
        &self,
        root: &Path,
        tools: &Tools,
        harness: Harness,
        tests: &mut Command,
    ) -> anyhow::Result<()> {
        tests.env(CHROMIUM, &self.0);
        if let Some(executable) = harness.executable(root) {
            tests.env(TREE, unpacked(root, tools, harness, &executable)?);
        }
        Ok(())
    }
}

fn on_path() -> Option<PathBuf> {
    let path = env::var_os("PATH")?;
    let folders: Vec<PathBuf> = env::split_paths(&path).collect();
    NAMES
        .iter()
        .flat_map(|name| folders.iter().map(move |folder| folder.join(name)))
        .find(|program| program.is_file())
}

fn install(root: &Path) -> anyhow::Result<()> {
    let apt = |arguments: &[&str]| {
        let mut apt = command("apt-get", root);
        shell::quietly(apt.args(["-qq", "-y"]).args(arguments).env("DEBIAN_FRONTEND", "noninteractive"))
    };
    apt(&["update"])?;
    apt(&[["install", "--no-install-recommends"].as_slice(), &PACKAGES].concat())
}

/// The files of an executable, beside the folder that it was fetched into.
fn unpacked(root: &Path, tools: &Tools, harness: Harness, executable: &Path) -> anyhow::Result<PathBuf> {
    let tree = root.join("target/tools").join(format!("dsh-{}-tree", harness.version));
    if !tree.exists() {
        let mut unpack = tools.node();
        unpack.arg("tests/browser/unpack.ts").arg(executable).arg(&tree);
        step(&format!("unpacking dsh {}", harness.version), || shell::quietly(&mut unpack))?;
    }
    Ok(tree)
}
