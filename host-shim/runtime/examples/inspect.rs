//! What a component is and wants, and whether this host would load it. Nothing of it is run.
//!
//! `cargo run --package gen-limit-runtime --example inspect FILE`, or `cargo xtask inspect FILE`.

use std::process::ExitCode;

use gen_limit_runtime::{Inspection, LoadError};

fn main() -> ExitCode {
    let Some(file) = std::env::args().nth(1) else {
        eprintln!("which file?");
        return ExitCode::from(2);
    };
    let found = match Inspection::of_file(file.as_ref()) {
        Ok(found) => found,
        Err(error) => {
            complain(&file, &error);
            return ExitCode::FAILURE;
        }
    };
    let world = found.world();
    println!("file         {file}");
    println!("sha256       {}", found.sha256);
    println!("size         {} bytes", found.size);
    println!(
        "world        {}",
        world
            .as_ref()
            .map_or_else(|_| "none that this host knows".into(), |world| format!("dsh:plugin/{world}"))
    );
    let lent = if world.is_ok() { " (host interfaces only, no WASI)" } else { "" };
    println!("imports      {}{lent}", listed(&found.imports));
    println!("exports      {}", listed(&found.exports));
    for (part, made) in &found.producers {
        println!("{part:<12} {made}");
    }
    match world {
        Ok(_) => ExitCode::SUCCESS,
        Err(error) => {
            complain(&file, &error);
            ExitCode::FAILURE
        }
    }
}

/// Says what is wrong with a file, which an error of reading names by itself.
fn complain(file: &str, error: &LoadError) {
    let text = error.to_string();
    if text.starts_with(file) {
        eprintln!("{text}");
    } else {
        eprintln!("{file}: {text}");
    }
}

fn listed(names: &[String]) -> String {
    if names.is_empty() { "nothing".into() } else { names.join(", ") }
}
