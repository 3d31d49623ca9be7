//! Fuzzing: libFuzzer on everything that reads what comes from outside.
//!
//! The targets are in `fuzz/`, a workspace of its own. They are built by the pinned compiler: coverage is a pass of LLVM's that
//! every compiler has, and sanitizers, which only a nightly one has, would find nothing in code that is all safe. The layout
//! is that of `cargo fuzz`, which works there as well.
//!
//! Every target starts from its committed seeds; what it finds worth keeping stays in `target/fuzz`, so that the next run goes
//! on from there.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, ExitCode, Stdio};

use anyhow::{Context as _, bail};

use crate::progress::step;
use crate::shell::{ask, cargo, command, run as run_command};

/// The targets, by name.
const TARGETS: [&str; 3] = ["configuration", "change", "request"];

/// How long, if nobody says.
pub const SECONDS: u64 = 600;

/// What makes the compiler count which branches an input takes, and compare what is compared.
const COVERAGE: [&str; 8] = [
    "-Cpasses=sancov-module",
    "-Cllvm-args=-sanitizer-coverage-level=4",
    "-Cllvm-args=-sanitizer-coverage-inline-8bit-counters",
    "-Cllvm-args=-sanitizer-coverage-pc-table",
    "-Cllvm-args=-sanitizer-coverage-trace-compares",
    "-Cllvm-args=-simplifycfg-branch-fold-threshold=0",
    "-Ccodegen-units=1",
    "--cfg=fuzzing",
];

/// Runs all targets side by side for so many seconds. The exit code tells whether any found something.
pub fn run(root: &Path, seconds: u64) -> anyhow::Result<ExitCode> {
    let home = root.join("target/fuzz");
    let programs = build(root, &home)?;
    let runs = TARGETS.map(|target| Run::begin(root, &home, &programs.join(target), target, seconds));
    let mut found = false;
    for run in runs {
        found |= run?.end()?;
    }
    Ok(if found { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

/// Builds the targets; gives the folder they are in.
fn build(root: &Path, home: &Path) -> anyhow::Result<PathBuf> {
    if ask(command("c++", root).arg("--version")).is_none() {
        bail!("libFuzzer is C++: a compiler called `c++` has to be on the path");
    }
    let about = ask(command("rustc", root).arg("-vV")).context("rustc")?;
    let host = about.lines().find_map(|line| line.strip_prefix("host: ")).context("rustc names its host")?;
    step("building the fuzz targets", || {
        let mut build = cargo(&root.join("fuzz"));
        // With a target named, build scripts and macros are left as they are.
        build.args(["build", "--quiet", "--release", "--locked", "--target", host, "--target-dir"]).arg(home);
        run_command(build.env("CARGO_ENCODED_RUSTFLAGS", COVERAGE.join("\u{1f}")))
    })?;
    Ok(home.join(host).join("release"))
}

/// One target at work.
struct Run {
    target: &'static str,
    child: Child,
    log: PathBuf,
    findings: PathBuf,
}

impl Run {
    fn begin(
        root: &Path,
        home: &Path,
        program: &Path,
        target: &'static str,
        seconds: u64,
    ) -> anyhow::Result<Self> {
        let (corpus, findings) = (home.join("corpus").join(target), home.join("findings").join(target));
        for folder in [&corpus, &findings] {
            fs::create_dir_all(folder)?;
        }
        let log = home.join(target).with_extension("log");
        let fuzz = root.join("fuzz");
        let mut run = command(program, root);
        run.arg(format!("-max_total_time={seconds}"))
            .arg(format!("-artifact_prefix={}/", findings.display()))
            .arg(format!("-dict={}", fuzz.join("dictionary").display()))
            .args(["-timeout=10", "-max_len=16384", "-print_final_stats=1"])
            .arg(&corpus)
            .arg(fuzz.join("seeds").join(target))
            .stdout(Stdio::null())
            .stderr(fs::File::create(&log)?);
        let child = run.spawn().with_context(|| format!("starting {}", program.display()))?;
        Ok(Self { target, child, log, findings })
    }

    /// Waits for its end; tells whether it found something.
    fn end(mut self) -> anyhow::Result<bool> {
        let status = self.child.wait()?;
        let said = String::from_utf8_lossy(&fs::read(&self.log)?).into_owned();
        if status.success() {
            let inputs = said.lines().find_map(|line| line.strip_prefix("stat::number_of_executed_units:"));
            println!("{}: nothing found in {} inputs", self.target, inputs.unwrap_or("?").trim());
            return Ok(false);
        }
        let from = said.find("panicked at").or_else(|| said.find("ERROR: libFuzzer")).unwrap_or(0);
        let told: Vec<&str> = said[from..].lines().take(20).collect();
        println!("{}: FOUND, ended with {status}\n{}", self.target, told.join("\n"));
        println!("the inputs are in {}, the whole log is {}", self.findings.display(), self.log.display());
        Ok(true)
    }
}
