//! Child processes.

use std::env;
use std::ffi::OsStr;
use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context as _, bail};

/// A command that works in `root` and reads nothing from the terminal.
pub fn command(program: impl AsRef<OsStr>, root: &Path) -> Command {
    let mut command = Command::new(program);
    command.current_dir(root).stdin(Stdio::null());
    command
}

/// The cargo that runs this task.
pub fn cargo(root: &Path) -> Command {
    command(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()), root)
}

/// Runs to the end, with the child's output on stderr: a task's stdout is its answer.
pub fn run(command: &mut Command) -> anyhow::Result<()> {
    let told = command.stdout(std::io::stderr()).status().with_context(|| describe(command))?;
    if !told.success() {
        bail!("{} ended with {told}", describe(command));
    }
    Ok(())
}

/// Runs to the end; what the child says is shown only if it fails.
pub fn quietly(command: &mut Command) -> anyhow::Result<()> {
    let output = command.output().with_context(|| describe(command))?;
    if !output.status.success() {
        let said = [output.stdout, output.stderr].concat();
        bail!("{} ended with {}\n{}", describe(command), output.status, String::from_utf8_lossy(&said));
    }
    Ok(())
}

/// Runs to the end; gives what the child prints, while its complaints are shown.
pub fn answer(command: &mut Command) -> anyhow::Result<String> {
    let output = command.stderr(Stdio::inherit()).output().with_context(|| describe(command))?;
    if !output.status.success() {
        bail!("{} ended with {}", describe(command), output.status);
    }
    Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

/// What the command prints, or nothing if it cannot be run or fails.
pub fn ask(command: &mut Command) -> Option<String> {
    let output = command.stderr(Stdio::null()).output().ok()?;
    output.status.success().then(|| String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

/// Runs to the end, showing each line of stdout and handing it on; tells whether the command succeeded.
pub fn follow(command: &mut Command, mut line: impl FnMut(&str)) -> anyhow::Result<bool> {
    let mut child = command.stdout(Stdio::piped()).spawn().with_context(|| describe(command))?;
    let stdout = child.stdout.take().context("stdout is piped")?;
    for text in BufReader::new(stdout).lines() {
        let text = text.with_context(|| describe(command))?;
        println!("{text}");
        line(&text);
    }
    Ok(child.wait()?.success())
}

fn describe(command: &Command) -> String {
    let words = std::iter::once(command.get_program()).chain(command.get_args());
    words.map(|word| word.to_string_lossy()).collect::<Vec<_>>().join(" ")
}
