//! What it costs, on this machine, of what ships.
//!
//! A section is a program that measures and prints: a table, or with `--json` one JSON document. Everything is built as it is
//! packed for users. Nothing here judges: aims stand beside what was measured.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::bail;

use crate::progress::step;
use crate::tools::{self, Tools};
use crate::{addon, component, pack, shell};

/// One section.
struct Section {
    name: &'static str,
    what: &'static str,
    program: Program,
}

/// What measures.
enum Program {
    /// TypeScript of `host-shim/dsh/bench`.
    Plugin,
    /// An example of `tests/component`.
    Example,
    /// The first, which is told where the second is.
    Both,
}

const SECTIONS: [Section; 6] = [
    Section {
        name: "startup",
        what: "from the mounting of the plugin to limits that hold; what is loaded",
        program: Program::Plugin,
    },
    Section {
        name: "calls",
        what: "a call, a chunk and a tool call, through the harness's own waterfall",
        program: Program::Plugin,
    },
    Section { name: "layers", what: "where the time of a call goes", program: Program::Both },
    Section { name: "waiters", what: "a thousand to a hundred thousand who wait", program: Program::Plugin },
    Section {
        name: "polls",
        what: "looking at 500 who wait and 50 who run, in the harness's own agents",
        program: Program::Plugin,
    },
    Section {
        name: "tenants",
        what: "a thousand tenants in one process, and what one of them feels of the others",
        program: Program::Example,
    },
];

impl Section {
    fn command(&self, root: &Path, tools: &Tools) -> anyhow::Result<Command> {
        let plugin = || {
            let mut node = tools.node();
            node.arg(format!("host-shim/dsh/bench/{}.ts", self.name));
            node
        };
        Ok(match self.program {
            Program::Plugin => plugin(),
            Program::Example => shell::command(self.example(root)?, root),
            Program::Both => {
                let example = self.example(root)?;
                let mut plugin = plugin();
                plugin.arg(example);
                plugin
            }
        })
    }

    fn example(&self, root: &Path) -> anyhow::Result<PathBuf> {
        let mut build = shell::cargo(root);
        // With the addon, so that both have one wasmtime.
        build.args(["build", "--release", "--package", "gen-limit-node", "--package", "component-tests"]);
        step(&format!("building {}", self.name), || shell::run(build.args(["--example", self.name])))?;
        Ok(root.join("target/release/examples").join(self.name))
    }
}

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
    for variant in [component::Variant::Budget, component::Variant::Hostile] {
        component::build(root, variant)?;
    }
    let mut documents = Vec::new();
    for section in SECTIONS.iter().filter(|section| names.is_empty() || names.contains(&section.name)) {
        let mut command = section.command(root, &tools)?;
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
