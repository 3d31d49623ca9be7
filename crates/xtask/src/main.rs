//! Developer tasks: build, demonstrate, test and pack the product.
//!
//! Everything a clean clone lacks is installed into `target/`, once, so that a machine with Rust, any Node and npm is
//! enough. Progress goes to stderr; what a task answers goes to stdout.

mod addon;
mod bench;
mod browser;
mod cases;
mod check;
mod component;
mod fuzz;
mod harness;
mod pack;
mod progress;
mod prove;
mod python;
mod rings;
mod schemathesis;
mod shell;
mod tools;

use std::env;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context as _, bail};

use crate::harness::Harness;

const USAGE: &str = "\
Usage: cargo xtask <task>

  setup                  install what the tasks below need: Node, pnpm, the JavaScript workspace
  component              build the components and check them against wit/
  plugin FOLDER          build the plugin of a crate somewhere else, as docs/write-a-plugin.md tells
  inspect FILE           what a .wasm is and wants, and whether the runtime would load it; nothing of it is run
  addon                  build host-shim/node/gen-limit.node
  pack [--release]       build target/package/creait-dsh-gen-limit.tgz
  demo [options]         a fan-out in a real harness, drawn live (--help lists the options);
                         --harness VERSION: on that one instead of the oldest
  test [--ring NAME]     all test rings, or one: limiter, component, runtime, addon, dsh, api,
                         browser; by name only: slow, which takes 12 minutes
                         GEN_LIMIT_HARNESS=VERSION: those in a harness on that one alone
  fuzz [--seconds N]     everything that reads what comes from outside, at once, for ten minutes or so many seconds
  bench [--json] [SECTION]
                         what it costs on this machine, of a release: startup, calls, layers, waiters, polls, tenants
  prove [exhaustive [WORLD]|random [STEPS SEED]|mutants [OPTIONS]|soak [SECONDS [SEED]]]
                         what docs/proof.md tells of; without a name the first two, five minutes
  check                  formatting, lints, documentation, types, generated files
";

fn main() -> ExitCode {
    let arguments: Vec<String> = env::args().skip(1).collect();
    match run(&arguments) {
        Ok(code) => code,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(arguments: &[String]) -> anyhow::Result<ExitCode> {
    let root = root()?;
    let (task, rest) = arguments.split_first().map_or(("", arguments), |(task, rest)| (task.as_str(), rest));
    let options: Vec<&str> = rest.iter().map(String::as_str).collect();
    match (task, options.as_slice()) {
        ("setup", []) => tools::install(&root).map(drop)?,
        ("component", []) => component::build_all(&root)?,
        ("plugin", [folder]) => {
            let folder = env::current_dir()?.join(folder);
            println!("{}", component::build_foreign(&root, &folder)?.display());
        }
        ("inspect", [file]) => return inspect(&root, file),
        ("addon", []) => println!("{}", addon::build(&root, addon::Profile::Dev)?.addon.display()),
        ("pack", []) => println!("{}", pack::build(&root, addon::Profile::Dev)?.display()),
        ("pack", ["--release"]) => println!("{}", pack::build(&root, addon::Profile::Release)?.display()),
        ("demo", _) => return demo(&root, rest),
        ("test", []) => return Ok(rings::run(&root, &rings::ALL)),
        ("test", ["--ring", name]) => return Ok(rings::run(&root, &[rings::Ring::named(name)?])),
        ("fuzz", []) => return fuzz::run(&root, fuzz::SECONDS),
        ("fuzz", ["--seconds", seconds]) => {
            let seconds = seconds.parse().with_context(|| format!("`{seconds}` is no number of seconds"))?;
            return fuzz::run(&root, seconds);
        }
        ("bench", options) => bench::run(&root, options)?,
        ("prove", options) => prove::run(&root, options)?,
        ("check", []) => return check::run(&root),
        ("" | "help" | "--help", _) => print!("{USAGE}"),
        _ => bail!("not understood: {}\n\n{USAGE}", arguments.join(" ")),
    }
    Ok(ExitCode::SUCCESS)
}

/// Hands over to the runtime, which knows what it takes.
fn inspect(root: &Path, file: &str) -> anyhow::Result<ExitCode> {
    let mut build = shell::cargo(root);
    // Named beside the addon, it uses one wasmtime with it.
    build.args([
        "build",
        "--package",
        "gen-limit-node",
        "--package",
        "gen-limit-runtime",
        "--example",
        "inspect",
    ]);
    shell::run(&mut build)?;
    let mut inspect = shell::command(root.join("target/debug/examples/inspect"), root);
    // A path is meant from where this was called.
    inspect.current_dir(env::current_dir()?).arg(file);
    Ok(if inspect.status().context("cargo")?.success() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Packs the plugin and hands over to the demonstration itself, which is TypeScript beside the end-to-end tests.
fn demo(root: &Path, options: &[String]) -> anyhow::Result<ExitCode> {
    let tools = tools::install(root)?;
    let (harness, options) = chosen(options)?;
    harness.install(root).with_context(|| format!("dsh {}", harness.version))?;
    let plain = ["--no-plugin", "--help"];
    if !options.iter().any(|option| plain.contains(&option.as_str())) {
        pack::build(root, addon::Profile::Dev)?;
    }
    let status = tools
        .node()
        .arg("tests/e2e/demo.ts")
        .args(options)
        .env(harness::VARIABLE, harness.version)
        .status()
        .context("node")?;
    Ok(if status.success() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// The harness that the options name, and the other options.
fn chosen(options: &[String]) -> anyhow::Result<(Harness, Vec<&String>)> {
    let mut rest = Vec::new();
    let mut harness = harness::ALL[0];
    let mut options = options.iter();
    while let Some(option) = options.next() {
        if option == "--harness" {
            harness = Harness::named(options.next().context("--harness needs a version")?)?;
        } else if let Some(version) = option.strip_prefix("--harness=") {
            harness = Harness::named(version)?;
        } else {
            rest.push(option);
        }
    }
    Ok((harness, rest))
}

fn root() -> anyhow::Result<PathBuf> {
    let manifest = Path::new(env!("CARGO_MANIFEST_DIR"));
    let root = manifest.ancestors().nth(2).context("xtask stands two folders below the root")?;
    Ok(root.to_path_buf())
}
