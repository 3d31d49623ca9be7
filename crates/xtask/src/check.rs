//! What a change has to satisfy besides its tests: formatting, lints, documentation, types, licences, generated files.

use std::path::Path;
use std::process::{Command, ExitCode};

use crate::progress::step;
use crate::shell::{self, ask, cargo};
use crate::{component, tools};

/// Runs every check, also after one has failed.
pub fn run(root: &Path) -> anyhow::Result<ExitCode> {
    let tools = tools::install(root)?;
    // The packages that embed the component do not compile without it.
    component::build(root, component::Variant::Release)?;
    let mut checks: Vec<(&str, Command)> = Vec::new();
    let mut fmt = cargo(root);
    fmt.args(["fmt", "--all", "--check"]);
    checks.push(("formatting", fmt));
    let mut fmt = cargo(root);
    fmt.args(["fmt", "--manifest-path", "fuzz/Cargo.toml", "--check"]);
    checks.push(("formatting of the fuzz targets", fmt));
    let mut clippy = cargo(root);
    clippy.args(["clippy", "--workspace", "--all-targets", "--", "-D", "warnings"]);
    checks.push(("lints", clippy));
    let mut docs = cargo(root);
    docs.args(["doc", "--workspace", "--no-deps"]).env("RUSTDOCFLAGS", "-D warnings");
    checks.push(("documentation", docs));
    for (what, project) in [
        ("types of the plugin", "host-shim/dsh"),
        ("types of the browser half", "web"),
        ("types of the end-to-end tests", "tests/e2e"),
        ("types of the browser tests", "tests/browser"),
    ] {
        let mut tsc = tools.workspace_bin("tsc");
        tsc.args(["--project", project]);
        checks.push((what, tsc));
    }
    let mut generated = tools.node();
    generated.args(["host-shim/node/types.mjs", "--check"]);
    checks.push(("generated files", generated));
    if ask(cargo(root).args(["deny", "--version"])).is_some() {
        let mut deny = cargo(root);
        deny.args(["deny", "check", "bans", "licenses", "sources"]);
        checks.push(("licences and sources", deny));
    } else {
        eprintln!("SKIPPED licences and sources: cargo-deny is not installed");
    }
    let failed = checks.into_iter().filter_map(|(what, mut command)| {
        step(what, || shell::run(&mut command)).err().map(|error| eprintln!("error: {error:#}"))
    });
    Ok(if failed.count() == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
