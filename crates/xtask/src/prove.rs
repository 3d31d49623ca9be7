//! Proofs that are not ordinary tests, because they take minutes: every interleaving in small worlds, long random histories,
//! whether the tests notice a change of the limiter, and a real harness at work for half an hour. What was covered goes to stdout.
//! Smaller ones run in the rings.
//!
//! `docs/proof.md` says what each of them shows.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, bail};

use crate::harness::{self, Harness};
use crate::progress::step;
use crate::{addon, component, pack, rings, shell, tools};

const MUTANTS: &str = "cargo-mutants@27.1.0";

/// One proof.
struct Proof {
    name: &'static str,
    /// Takes so long that it runs only by name.
    is_long: bool,
    run: fn(&Path, &[&str]) -> anyhow::Result<()>,
}

const PROOFS: [Proof; 4] = [
    Proof { name: "exhaustive", is_long: false, run: |root, options| model(root, "exhaustive", options) },
    Proof { name: "random", is_long: false, run: |root, options| model(root, "random", options) },
    Proof { name: "mutants", is_long: true, run: mutants },
    Proof { name: "soak", is_long: true, run: soak },
];

/// Runs the proof that is named first, with what options it takes, or all that are not long.
pub fn run(root: &Path, options: &[&str]) -> anyhow::Result<()> {
    let Some((name, options)) = options.split_first() else {
        return PROOFS.iter().filter(|proof| !proof.is_long).try_for_each(|proof| (proof.run)(root, &[]));
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

/// `tests/e2e/soak.test.ts`, for so many seconds from some seed, on the oldest harness or the one that the environment names.
fn soak(root: &Path, options: &[&str]) -> anyhow::Result<()> {
    let (seconds, seed) = match options {
        [] => ("1800", "1"),
        [seconds] => (*seconds, "1"),
        [seconds, seed] => (*seconds, *seed),
        _ => bail!("a soak takes seconds and a seed"),
    };
    let harness = Harness::wanted()?[0];
    harness.install(root).with_context(|| format!("dsh {}", harness.version))?;
    let tools = tools::install(root)?;
    component::build_all(root)?;
    pack::build(root, addon::Profile::Dev)?;
    let mut node = tools.node();
    node.args(["--test", "--test-reporter=spec", "--test-name-pattern=^a soak", "tests/e2e/soak.test.ts"])
        .env(rings::CACHES, root.join("target/cache"))
        .env(harness::VARIABLE, harness.version)
        .env("GEN_LIMIT_SOAK_SECONDS", seconds)
        .env("GEN_LIMIT_SOAK_SEED", seed);
    if !node.status().context("node")?.success() {
        bail!("soak: not proven");
    }
    Ok(())
}

/// Changes the limiter in every way that cargo-mutants knows, and tells which of those no test notices. Its own tests take a second
/// each time; what they do not notice is shown to those of the routes and to the small worlds.
fn mutants(root: &Path, options: &[&str]) -> anyhow::Result<()> {
    let program = installed(root)?;
    let home = root.join("target/mutants");
    std::fs::create_dir_all(home.join("tmp"))?;
    let rings: [(&[&str], &[&str]); 3] = [
        (&[], &[]),
        (&["--iterate", "--test-package", "routes"], &[]),
        (&["--iterate", "--test-package", "model"], &["--", "--", "nothing_that_can_happen"]),
    ];
    let listed = |name: &str| -> anyhow::Result<BTreeSet<String>> {
        let list = home.join("mutants.out").join(name);
        let text = std::fs::read_to_string(&list).with_context(|| list.display().to_string())?;
        Ok(text.lines().map(str::to_owned).collect())
    };
    // What a ring does not come to the end of has been noticed by it, though the next is asked again.
    let mut hung = BTreeSet::new();
    for (before, after) in rings {
        let mut mutants = Command::new(&program);
        mutants.current_dir(root).env("TMPDIR", home.join("tmp"));
        // Settings and what is left out, with the reasons, are in .cargo/mutants.toml.
        mutants
            .args(["mutants", "--package", "limiter", "--no-shuffle"])
            .args(before)
            .args(options)
            .args(after);
        let status = mutants.status().context("cargo-mutants")?;
        // All were noticed, some were not, some ran into the timeout; anything else means that it has not come to that.
        if !matches!(status.code(), Some(0 | 2 | 3)) {
            bail!("cargo-mutants: {status}");
        }
        hung.append(&mut listed("timeout.txt")?);
        if listed("missed.txt")?.is_subset(&hung) {
            return Ok(());
        }
    }
    let missed = listed("missed.txt")?;
    let missed: Vec<&str> = missed.difference(&hung).map(String::as_str).collect();
    bail!("these changes went unnoticed:\n{}", missed.join("\n"));
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
