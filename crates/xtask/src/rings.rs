//! The test rings, cheap first, and one count over all of them.
//!
//! A ring is one or more test runners. What they report is shown as it comes and added up; a runner that fails without
//! naming a failed test, does not build, or runs no test at all, counts as one failure. What cannot run for want of its
//! tools, a ring or one of the harnesses, is skipped, and a line before the count says so and why.

use std::fs;
use std::path::Path;
use std::process::{Command, ExitCode};

use anyhow::bail;

use crate::browser::Browser;
use crate::cases::Cases;
use crate::harness::{self, Harness};
use crate::tools::Tools;
use crate::{addon, component, pack, schemathesis, shell, tools};

/// One ring.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Ring {
    /// The state machine, its model, and these tasks.
    Limiter,
    /// The built component under wasmtime.
    Component,
    /// The runtime library.
    Runtime,
    /// The addon and the plugin in Node, on real Cordis; what of the settings card needs no page.
    Addon,
    /// A real harness and a model server.
    Dsh,
    /// The routes in a real harness against their description, by Schemathesis.
    Api,
    /// The settings card in a real browser, on a real harness.
    Browser,
    /// What takes minutes because the world's own times are waited for. Runs only by name.
    Slow,
}

/// The rings that run when none is named, in their order.
pub const ALL: [Ring; 7] =
    [Ring::Limiter, Ring::Component, Ring::Runtime, Ring::Addon, Ring::Dsh, Ring::Api, Ring::Browser];

const NAMED: [Ring; 8] = [
    Ring::Limiter,
    Ring::Component,
    Ring::Runtime,
    Ring::Addon,
    Ring::Dsh,
    Ring::Api,
    Ring::Browser,
    Ring::Slow,
];

/// How long one test of Node's may take.
const TEST_TIMEOUT: &str = "--test-timeout=240000";

/// Has no tests of its own, but features that its dependencies are to be compiled with: named beside other packages, they all
/// use one wasmtime.
const ADDON: &str = "gen-limit-node";

/// Where programs find the user's caches: what is compiled for tests is no business of the user's own.
pub const CACHES: &str = "XDG_CACHE_HOME";

impl Ring {
    /// The ring of that name.
    pub fn named(name: &str) -> anyhow::Result<Self> {
        let Some(ring) = NAMED.into_iter().find(|ring| ring.name() == name) else {
            bail!("no ring is called {name}; there are {}", NAMED.map(Ring::name).join(", "));
        };
        Ok(ring)
    }

    fn name(self) -> &'static str {
        match self {
            Self::Limiter => "limiter",
            Self::Component => "component",
            Self::Runtime => "runtime",
            Self::Addon => "addon",
            Self::Dsh => "dsh",
            Self::Api => "api",
            Self::Browser => "browser",
            Self::Slow => "slow",
        }
    }

    fn missing(self, root: &Path) -> Option<String> {
        match self {
            Self::Limiter | Self::Component | Self::Runtime => None,
            Self::Addon | Self::Dsh | Self::Api | Self::Browser | Self::Slow => tools::missing(root),
        }
    }

    fn run(self, root: &Path, skipped: &mut Vec<String>) -> anyhow::Result<Count> {
        let components = || component::build_all(root);
        match self {
            Self::Limiter => cargo_test(root, &["limiter", "routes", "model", "xtask"]),
            Self::Component => {
                components()?;
                let tests = cargo_test(root, &["component-tests", ADDON])?;
                Ok(tests.and(example(root, "component-tests", "layers")?))
            }
            Self::Runtime => {
                components()?;
                let tests = cargo_test(root, &["gen-limit-runtime", ADDON])?;
                Ok(tests.and(example(root, "gen-limit-runtime", "embed")?))
            }
            Self::Addon => {
                let tools = tools::install(root)?;
                components()?;
                addon::build(root, addon::Profile::Dev)?;
                let tests = ["host-shim/node/test", "host-shim/dsh/test", "web/test"];
                let files = tests.map(|folder| format!("{folder}/*.test.ts"));
                let [addon, plugin, web] = files.each_ref().map(String::as_str);
                node_test(root, &mut tools.node(), &[TEST_TIMEOUT, addon, plugin, web])
            }
            Self::Dsh => {
                let tools = tools::install(root)?;
                components()?;
                pack::build(root, addon::Profile::Dev)?;
                // Each file keeps a harness or two running; more at once only wait for the processor.
                let files = [TEST_TIMEOUT, "--test-concurrency=3", "tests/e2e/*.test.ts"];
                on_each_harness(root, &tools, &Harness::wanted()?, &files, skipped, |_, _| Ok(()))
            }
            Self::Slow => {
                let tools = tools::install(root)?;
                pack::build(root, addon::Profile::Dev)?;
                let files = ["--test-timeout=900000", "tests/e2e/slow/*.test.ts"];
                on_each_harness(root, &tools, &Harness::wanted()?, &files, skipped, |_, _| Ok(()))
            }
            Self::Browser => {
                let browser = match Browser::find(root) {
                    Ok(browser) => browser,
                    Err(why) => {
                        skipped.push(format!("{}: {why:#}", self.name()));
                        return Ok(Count::default());
                    }
                };
                let tools = tools::install(root)?;
                components()?;
                pack::build(root, addon::Profile::Dev)?;
                let tell = |harness, tests: &mut Command| browser.tell(root, &tools, harness, tests);
                let wanted = Harness::wanted()?;
                let (first, others): (Vec<Harness>, Vec<Harness>) =
                    wanted.into_iter().partition(|harness| *harness == harness::ALL[0]);
                let on = |harnesses: &[Harness], files: &str, at_once: &str, skipped: &mut Vec<String>| {
                    let concurrency = format!("--test-concurrency={at_once}");
                    on_each_harness(
                        root,
                        &tools,
                        harnesses,
                        &[TEST_TIMEOUT, &concurrency, files],
                        skipped,
                        tell,
                    )
                };
                let all = on(&first, "tests/browser/!(load).test.ts", "3", skipped)?;
                // The card itself is the same in every harness: there, what it has to do with the harness.
                let seams = on(&others, "tests/browser/!(load|now|queueing|states).test.ts", "3", skipped)?;
                // What is measured has the machine for itself.
                let load = on(&first, "tests/browser/load.test.ts", "1", skipped)?;
                Ok(all.and(seams).and(load))
            }
            Self::Api => {
                let schemathesis = match schemathesis::install(root) {
                    Ok(schemathesis) => schemathesis,
                    Err(why) => {
                        skipped.push(format!("{}: {why:#}", self.name()));
                        return Ok(Count::default());
                    }
                };
                let tools = tools::install(root)?;
                pack::build(root, addon::Profile::Dev)?;
                let mut total = Count::default();
                for harness in Harness::wanted()? {
                    // That it cannot be had has been said by the ring before.
                    if harness.install(root).is_ok() {
                        println!("── on dsh {}", harness.version);
                        total = total.and(one(&mut schemathesis.run(&tools, harness))?);
                    }
                }
                Ok(total)
            }
        }
    }
}

/// Runs the rings; the last line of stdout is the count.
pub fn run(root: &Path, rings: &[Ring]) -> ExitCode {
    let mut total = Count::default();
    let mut skipped = Vec::new();
    for &ring in rings {
        let name = ring.name();
        println!("── ring: {name}");
        if let Some(why) = ring.missing(root) {
            skipped.push(format!("{name}: {why}"));
            continue;
        }
        match ring.run(root, &mut skipped) {
            Ok(count) => total = total.and(count),
            Err(error) => {
                println!("FAILED {name}: {error:#}");
                total.failed += 1;
            }
        }
    }
    for what in skipped {
        println!("SKIPPED {what}");
    }
    println!("{} passed, {} failed", total.passed, total.failed);
    if total.failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Tests that ran.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
struct Count {
    passed: u64,
    failed: u64,
}

impl Count {
    fn and(self, other: Self) -> Self {
        Self { passed: self.passed + other.passed, failed: self.failed + other.failed }
    }
}

fn cargo_test(root: &Path, packages: &[&str]) -> anyhow::Result<Count> {
    let mut command = shell::cargo(root);
    command.args(["test", "--no-fail-fast"]);
    for package in packages {
        command.args(["--package", package]);
    }
    runner(&mut command, cargo_line)
}

/// Runs an example, which fails if what it shows does not hold.
fn example(root: &Path, package: &str, name: &str) -> anyhow::Result<Count> {
    let mut build = shell::cargo(root);
    shell::run(build.args(["build", "--package", ADDON, "--package", package, "--example", name]))?;
    let mut example = shell::command(root.join("target/debug/examples").join(name), root);
    one(example.env(CACHES, root.join("target/cache")))
}

/// Runs what counts as one test and says how it went by its exit alone.
fn one(command: &mut Command) -> anyhow::Result<Count> {
    let succeeded = shell::follow(command, |_| ())?;
    Ok(Count { passed: u64::from(succeeded), failed: u64::from(!succeeded) })
}

/// Runs end-to-end tests on each of the harnesses that can be had, and sets what became of them side by side. `tell` tells a test
/// process of what it needs besides; an error of it says why that harness cannot be had.
fn on_each_harness(
    root: &Path,
    tools: &Tools,
    harnesses: &[Harness],
    what: &[&str],
    skipped: &mut Vec<String>,
    tell: impl Fn(Harness, &mut Command) -> anyhow::Result<()>,
) -> anyhow::Result<Count> {
    let mut total = Count::default();
    let mut cases = Cases::default();
    for &harness in harnesses {
        let version = harness.version;
        let mut node = tools.node();
        node.env(harness::VARIABLE, version);
        if let Err(why) = harness.install(root).and_then(|()| tell(harness, &mut node)) {
            let line = format!("dsh-{version}: {why:#}");
            if !skipped.contains(&line) {
                skipped.push(line);
            }
            continue;
        }
        println!("── on dsh {version}");
        let report = root.join("target/e2e").join(format!("cases-{version}.tsv"));
        fs::create_dir_all(root.join("target/e2e"))?;
        let reporters = [
            "--test-reporter-destination=stdout".to_owned(),
            "--test-reporter=./tests/e2e/cases.ts".to_owned(),
            format!("--test-reporter-destination={}", report.display()),
        ];
        let options: Vec<&str> = reporters.iter().map(String::as_str).chain(what.iter().copied()).collect();
        total = total.and(node_test(root, &mut node, &options)?);
        cases.add(version, &fs::read_to_string(report)?);
    }
    print!("\n{}", cases.table());
    Ok(total)
}

fn node_test(root: &Path, node: &mut Command, what: &[&str]) -> anyhow::Result<Count> {
    node.env(CACHES, root.join("target/cache"));
    node.args(["--test", "--test-reporter=spec"]).args(what);
    runner(node, node_line)
}

/// Runs one test runner and reads its counts; an end that no count explains is a failure of its own.
fn runner(command: &mut Command, read: fn(&str) -> Count) -> anyhow::Result<Count> {
    let mut count = Count::default();
    let succeeded = shell::follow(command, |line| count = count.and(read(line)))?;
    if count == Count::default() {
        bail!("no test ran");
    }
    if !succeeded && count.failed == 0 {
        count.failed = 1;
    }
    Ok(count)
}

/// `test result: ok. 3 passed; 0 failed; 1 ignored; …`
fn cargo_line(line: &str) -> Count {
    let Some(counts) = line.strip_prefix("test result: ") else { return Count::default() };
    let words: Vec<&str> = counts.split_whitespace().collect();
    let of = |kind: &str| {
        words
            .windows(2)
            .find(|pair| pair[1].trim_end_matches(';') == kind)
            .and_then(|pair| pair[0].parse().ok())
    };
    Count { passed: of("passed").unwrap_or(0), failed: of("failed").unwrap_or(0) }
}

/// `ℹ pass 3`, `ℹ fail 0`, `ℹ cancelled 0`
fn node_line(line: &str) -> Count {
    let mut words = line.split_whitespace();
    let (Some("ℹ"), Some(kind), Some(Ok(number)), None) =
        (words.next(), words.next(), words.next().map(str::parse), words.next())
    else {
        return Count::default();
    };
    match kind {
        "pass" => Count { passed: number, failed: 0 },
        "fail" | "cancelled" => Count { passed: 0, failed: number },
        _ => Count::default(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cargo_counts_are_read() {
        let line = "test result: FAILED. 12 passed; 2 failed; 1 ignored; 0 measured; 0 filtered out; finished in 0.1s";
        assert_eq!(cargo_line(line), Count { passed: 12, failed: 2 });
        assert_eq!(cargo_line("test limits::raise_serves_the_line ... ok"), Count::default());
    }

    #[test]
    fn node_counts_are_read() {
        assert_eq!(node_line("ℹ pass 7"), Count { passed: 7, failed: 0 });
        assert_eq!(node_line("ℹ cancelled 1"), Count { passed: 0, failed: 1 });
        assert_eq!(node_line("ℹ tests 9"), Count::default());
        assert_eq!(node_line("ℹ pass 7 of 9"), Count::default());
    }

    #[test]
    fn a_silent_runner_is_a_failure() {
        assert!(runner(&mut Command::new("true"), cargo_line).is_err());
    }

    #[test]
    fn a_runner_that_fails_without_a_failed_test_counts_as_one() -> anyhow::Result<()> {
        let mut script = Command::new("sh");
        script.args(["-c", "echo 'test result: ok. 1 passed; 0 failed; 0 ignored'; exit 1"]);
        assert_eq!(runner(&mut script, cargo_line)?, Count { passed: 1, failed: 1 });
        Ok(())
    }

    #[test]
    fn every_ring_is_found_by_its_name() -> anyhow::Result<()> {
        for ring in NAMED {
            assert_eq!(Ring::named(ring.name())?, ring);
        }
        assert!(Ring::named("browsers").is_err());
        Ok(())
    }
}
