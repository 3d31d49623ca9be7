//! Proofs that are not ordinary tests, because they take minutes: every interleaving in small worlds, long random histories,
//! and whether the tests notice a change of the limiter. What was covered goes to stdout. Smaller ones run in the rings.
//!
//! `docs/proof.md` says what each of them shows.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, bail};

use crate::progress::step;
use crate::shell;

const MUTANTS: &str = "cargo-mutants@27.1.0";

/// One proof.
struct Proof {
    name: &'static str,
    run: fn(&Path, &[&str]) -> anyhow::Result<()>,
}

const PROOFS: [Proof; 3] = [
    Proof { name: "exhaustive", run: |root, options| model(root, "exhaustive", options) },
    Proof { name: "random", run: |root, options| model(root, "random", options) },
    Proof { name: "mutants", run: mutants },
];

/// Runs the proof that is named first, with what options it takes, or all but the mutants, which take hours.
pub fn run(root: &Path, options: &[&str]) -> anyhow::Result<()> {
    let Some((name, options)) = options.split_first() else {
        return PROOFS
            .iter()
            .filter(|proof| proof.name != "mutants")
            .try_for_each(|proof| (proof.run)(root, &[]));
    };
    let Some(proof) = PROOFS.iter().find(|proof| proof.name == *name) else {
        bail!("no proof is called {name}; there are {}", PROOFS.map(|proof| proof.name).join(", "));
    };
    (proof.run)(root, options)
}

/// `tests/model/examples/prove.rs`.
fn model(root: &Path, what: &str, options: &[&str]) -> anyhow::Result<()> {
    let mut build = shell::cargo(root);
    build.args(["build", "--profile", "prove", "--package", "model", "--example", "prove"]);
    step("building the proofs", || shell::run(&mut build))?;
    let mut prove = shell::command(root.join("target/prove/examples/prove"), root);
    if !prove.arg(what).args(options).status()?.success() {
        bail!("{what}: not proven");
    }
    Ok(())
}

/// Changes the limiter in every way that cargo-mutants knows, and tells which of those no test of its own notices.
fn mutants(root: &Path, options: &[&str]) -> anyhow::Result<()> {
    let program = installed(root)?;
    let home = root.join("target/mutants");
    std::fs::create_dir_all(home.join("tmp"))?;
    let mut mutants = Command::new(program);
    mutants.current_dir(root).env("TMPDIR", home.join("tmp"));
    // Settings and what is left out, with the reasons, are in .cargo/mutants.toml.
    mutants.args(["mutants", "--package", "limiter", "--jobs", "1", "--no-shuffle"]).args(options);
    if !mutants.status().context("cargo-mutants")?.success() {
        bail!("some changes went unnoticed; they are listed in target/mutants/mutants.out/missed.txt");
    }
    Ok(())
}

fn installed(root: &Path) -> anyhow::Result<PathBuf> {
    let home = root.join("target/tools").join(MUTANTS);
    let program = home.join("bin/cargo-mutants");
    if !program.exists() {
        let mut install = shell::cargo(root);
        install.args(["install", "--locked", "--quiet", "--root"]).arg(&home).arg(MUTANTS);
        // Built there, so that nothing of it is left elsewhere.
        install.arg("--target-dir").arg(home.join("build"));
        step(&format!("installing {MUTANTS}"), || shell::run(&mut install))?;
        std::fs::remove_dir_all(home.join("build"))?;
    }
    Ok(program)
}
