//! What it costs, on this machine, of what ships.
//!
//! A section is a program that measures and prints: a table, or with `--json` one JSON document. Everything is built as it is
//! packed for users. Nothing here judges: aims stand beside what was measured.

use std::path::Path;
use std::process::Command;

use anyhow::bail;

use crate::progress::step;
use crate::tools::{self, Tools};
use crate::{addon, component, pack, shell};

/// One section.
struct Section {
    name: &'static str,
    what: &'static str,
    command: fn(&Path, &Tools) -> anyhow::Result<Command>,
}

const SECTIONS: [Section; 2] = [
    Section {
        name: "startup",
        what: "from the mounting of the plugin to limits that hold",
        command: |_, tools| {
            let mut node = tools.node();
            node.arg("host-shim/dsh/bench/startup.ts");
            Ok(node)
        },
    },
    Section {
        name: "tenants",
        what: "a thousand tenants in one process, and what one of them feels of the others",
        command: |root, _| {
            let mut build = shell::cargo(root);
            // With the addon, so that both have one wasmtime.
            build.args(["build", "--release", "--package", "gen-limit-node", "--package", "component-tests"]);
            step("building the tenants", || shell::run(build.args(["--example", "tenants"])))?;
            Ok(shell::command(root.join("target/release/examples/tenants"), root))
        },
    },
];

/// Runs the sections that are named, or all.
pub fn run(root: &Path, options: &[&str]) -> anyhow::Result<()> {
    let json = options.contains(&"--json");
    let names: Vec<&str> = options.iter().copied().filter(|option| *option != "--json").collect();
    if let Some(unknown) = names.iter().find(|name| SECTIONS.iter().all(|section| section.name != **name)) {
        bail!(
            "no section is called {unknown}; there are {}",
            SECTIONS.map(|section| section.name).join(", ")
        );
    }
    let tools = tools::install(root)?;
    pack::build(root, addon::Profile::Release)?;
    component::build(root, component::Variant::Budget)?;
    let mut documents = Vec::new();
    for section in SECTIONS.iter().filter(|section| names.is_empty() || names.contains(&section.name)) {
        let mut command = (section.command)(root, &tools)?;
        if json {
            documents.push(format!("\"{}\": {}", section.name, shell::answer(command.arg("--json"))?));
        } else {
            println!("{}: {}\n{}\n", section.name, section.what, shell::answer(&mut command)?);
        }
    }
    if json {
        println!("{{{}}}", documents.join(",\n"));
    }
    Ok(())
}
