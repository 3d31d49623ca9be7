//! A Python with pip: what comes from the Python package index is fetched with it. Nothing of the product needs one.

use std::path::Path;
use std::process::Command;

use anyhow::Context as _;

use crate::shell::{self, ask, command};

/// The ways to have one: the system's, or one that uv makes.
const WAYS: [&[&str]; 3] =
    [&["python3"], &["python"], &["uv", "run", "--no-project", "--with", "pip", "python"]];

/// One that was found.
#[derive(Clone, Copy)]
pub struct Python(&'static [&'static str]);

impl Python {
    /// Looks for one.
    pub fn find(root: &Path) -> anyhow::Result<Self> {
        let mut all = WAYS.into_iter().map(Self);
        all.find(|python| ask(python.pip(root).arg("--version")).is_some())
            .context("neither Python with pip nor uv is on the path to fetch it")
    }

    /// `python`, in a folder.
    pub fn command(self, folder: &Path) -> Command {
        let (program, before) = self.0.split_first().unwrap_or((&"python3", &[]));
        let mut python = command(program, folder);
        python.args(before);
        python
    }

    /// Runs `pip` with these arguments; an error is the last thing it said.
    pub fn run_pip(self, folder: &Path, arguments: &[&str]) -> anyhow::Result<()> {
        let mut pip = self.pip(folder);
        pip.args(arguments).args(["--quiet", "--disable-pip-version-check", "--retries=1"]);
        shell::quietly(&mut pip)
            .map_err(|error| anyhow::anyhow!("pip could not fetch it: {}", last_line(&error.to_string())))
    }

    fn pip(self, folder: &Path) -> Command {
        let mut pip = self.command(folder);
        pip.args(["-m", "pip"]);
        pip
    }
}

/// The last thing that was said.
fn last_line(text: &str) -> &str {
    text.lines().rev().map(str::trim).find(|line| !line.is_empty()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_what_was_said_the_last_counts() {
        assert_eq!(last_line("a\nERROR: no matching distribution\n\n"), "ERROR: no matching distribution");
    }
}
