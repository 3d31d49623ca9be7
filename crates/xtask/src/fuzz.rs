//! Fuzzing: libFuzzer on everything that reads what comes from outside, and on histories of hooks.
//!
//! The targets are in `fuzz/`, a workspace of its own. They are built by the pinned compiler: coverage is a pass of LLVM's that
//! every compiler has, and sanitizers, which only a nightly one has, would find nothing in code that is all safe. Only our own
//! crates are watched (`fuzz/watch`): what steers the fuzzer is where an input gets in them, and everything else is what
//! the tests have compiled already, down to most of wasmtime.
//!
//! Every target starts from its committed seeds; what it finds worth keeping stays in `target/fuzz`, so that the next run goes
//! on from there.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, ExitCode, Stdio};

use anyhow::{Context as _, bail};

use crate::component;
use crate::progress::step;
use crate::shell::{ask, cargo, command, run as run_command};

/// A target.
#[derive(Clone, Copy)]
struct Target {
    name: &'static str,
    /// The most bytes that an input has.
    most: u32,
    /// What inputs are made of.
    dictionary: &'static str,
}

const TARGETS: [Target; 5] = [
    Target { name: "configuration", most: 16 << 10, dictionary: "words.dict" },
    Target { name: "change", most: 16 << 10, dictionary: "words.dict" },
    Target { name: "request", most: 16 << 10, dictionary: "words.dict" },
    Target { name: "history", most: 1 << 10, dictionary: "words.dict" },
    Target { name: "component", most: 128 << 10, dictionary: "component.dict" },
];

/// How long, if nobody says.
pub const SECONDS: u64 = 600;

/// Runs all targets side by side for so many seconds. The exit code tells whether any found something.
pub fn run(root: &Path, seconds: u64) -> anyhow::Result<ExitCode> {
    component::build_all(root)?;
    let programs = build(root)?;
    let runs = TARGETS.map(|target| Run::begin(root, &programs, target, seconds));
    let mut found = false;
    for run in runs {
        found |= run?.end()?;
    }
    Ok(if found { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

/// Builds the targets; gives the folder they are in.
fn build(root: &Path) -> anyhow::Result<PathBuf> {
    if ask(command("c++", root).arg("--version")).is_none() {
        bail!("libFuzzer is C++: a compiler called `c++` has to be on the path");
    }
    let fuzz = root.join("fuzz");
    let target = root.join("target");
    step("building the fuzz targets", || {
        let mut build = cargo(&fuzz);
        build.args(["build", "--quiet", "--locked", "--target-dir"]).arg(&target);
        run_command(build.env("RUSTC_WRAPPER", fuzz.join("watch")))
    })?;
    Ok(target.join("debug"))
}

/// One target at work.
struct Run {
    name: &'static str,
    child: Child,
    log: PathBuf,
    findings: PathBuf,
}

impl Run {
    fn begin(root: &Path, programs: &Path, target: Target, seconds: u64) -> anyhow::Result<Self> {
        let Target { name, most, dictionary } = target;
        let (fuzz, home) = (root.join("fuzz"), root.join("target/fuzz"));
        let (corpus, findings) = (home.join("corpus").join(name), home.join("findings").join(name));
        for folder in [&corpus, &findings] {
            fs::create_dir_all(folder)?;
        }
        let log = home.join(name).with_extension("log");
        let mut run = command(programs.join(name), root);
        run.arg(format!("-max_total_time={seconds}"))
            .arg(format!("-artifact_prefix={}/", findings.display()))
            .arg(format!("-dict={}", fuzz.join(dictionary).display()))
            .arg(format!("-max_len={most}"))
            .args(["-timeout=60", "-report_slow_units=60", "-print_final_stats=1"])
            .arg(&corpus)
            .arg(fuzz.join("seeds").join(name));
        if name == "component" {
            // What is built is where most of a component's shapes are.
            run.arg(root.join("target/component"));
        }
        let child = run.stdout(Stdio::null()).stderr(fs::File::create(&log)?).spawn();
        Ok(Self { name, child: child.with_context(|| format!("starting the target {name}"))?, log, findings })
    }

    /// Waits for its end; tells whether it found something.
    fn end(mut self) -> anyhow::Result<bool> {
        let status = self.child.wait()?;
        let said = String::from_utf8_lossy(&fs::read(&self.log)?).into_owned();
        if status.success() {
            let inputs = said.lines().find_map(|line| line.strip_prefix("stat::number_of_executed_units:"));
            println!("{}: nothing found in {} inputs", self.name, inputs.unwrap_or("?").trim());
            return Ok(false);
        }
        let from = said.find("panicked at").or_else(|| said.find("ERROR: libFuzzer")).unwrap_or(0);
        let told: Vec<&str> = said[from..].lines().take(20).collect();
        println!("{}: FOUND, ended with {status}\n{}", self.name, told.join("\n"));
        println!("the inputs are in {}, the whole log is {}", self.findings.display(), self.log.display());
        Ok(true)
    }
}
