//! Compiles a component for any machine of a target, and prints the seal that [`Precompiled`] takes.
//!
//! `cargo run --package gen-limit-runtime --example precompile TARGET COMPONENT CODE`, as `cargo xtask pack` does.
//!
//! [`Precompiled`]: gen_limit_runtime::Precompiled

use std::fs;
use std::process::ExitCode;

use gen_limit_runtime::{Precompiled, precompile};

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [target, component, code] = arguments.as_slice() else {
        eprintln!("which target, which component, and where is the code to go?");
        return ExitCode::from(2);
    };
    match run(target, component, code) {
        Ok(seal) => {
            println!("{seal}");
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("{component}: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(target: &str, component: &str, code: &str) -> Result<String, Box<dyn std::error::Error>> {
    let component = fs::read(component)?;
    let made = precompile(&component, target)?;
    // By way of a new file: whoever reads the old one meanwhile reads it whole.
    let next = format!("{code}.next");
    fs::write(&next, &made)?;
    fs::rename(&next, code)?;
    Ok(Precompiled::seal(&component, &made))
}
