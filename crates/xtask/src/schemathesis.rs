//! Schemathesis, which makes requests out of a description of routes and judges the answers by it.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::harness::{self, Harness};
use crate::progress::step;
use crate::python::Python;
use crate::tools::Tools;

const PACKAGE: &str = "schemathesis==4.32.5";

/// What it does the same in every run.
const OPTIONS: [&str; 4] = ["--seed=1", "--max-examples=60", "--workers=1", "--no-shrink"];

/// The installed program.
pub struct Schemathesis(PathBuf);

/// Fetches it if it is not there; an error says why it cannot be had.
pub fn install(root: &Path) -> anyhow::Result<Schemathesis> {
    let home = root.join("target/tools").join(PACKAGE);
    if !home.exists() {
        let python = Python::find(root)?;
        let partial = home.with_extension("partial");
        if partial.exists() {
            fs::remove_dir_all(&partial)?;
        }
        fs::create_dir_all(&partial)?;
        step(&format!("installing {PACKAGE}"), || {
            python.run_pip(&partial, &["install", "--target=.", PACKAGE])
        })?;
        fs::rename(&partial, &home)?;
    }
    Ok(Schemathesis(home))
}

impl Schemathesis {
    /// A run on the plugin in a harness of its own.
    pub fn run(&self, tools: &Tools, harness: Harness) -> Command {
        let mut run = tools.node();
        run.arg("tests/e2e/api.ts").args(OPTIONS);
        run.env(harness::VARIABLE, harness.version);
        run.env("SCHEMATHESIS", self.0.join("bin/schemathesis")).env("PYTHONPATH", &self.0);
        run
    }
}
