//! Code that was compiled when the program was, and is delivered beside the component.
//!
//! # What is trusted
//!
//! Like a [`Cache`](crate::Cache), this hands the engine code that it takes at its word. What vouches for it here is not the
//! folder but the program itself: it knows the digests of one component and of the code that was made of it, from when it was
//! built. The file is read whole, and what was verified is what is loaded. So whoever can write to the file but not to the
//! program gets it compiled anew, and nothing else; so does whoever puts another component in its place, or the code of another
//! version of this program.
//!
//! # For which machine
//!
//! [`precompile`] is told the target, and makes code for any machine of it: nothing that only the processor at hand can do is
//! used, which an engine would do by itself.

use std::path::{Path, PathBuf};
use std::{fs, io};

use sha2::{Digest as _, Sha256};
use wasmtime::Engine;

use crate::cache::{DIGEST_BYTES, MAX_FILE_BYTES};
use crate::engine::{self, hex};
use crate::{LoadError, inspect};

/// Where compiled code is, and which it has to be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Precompiled {
    path: PathBuf,
    component: [u8; DIGEST_BYTES],
    code: [u8; DIGEST_BYTES],
}

impl Precompiled {
    /// The code in a file, if it is what the seal says: two sha256 in hexadecimal with a space between, of the component and of
    /// the code that was made of it. None if that is no seal.
    pub fn new(path: impl Into<PathBuf>, seal: &str) -> Option<Self> {
        let (component, code) = seal.split_once(' ')?;
        Some(Self { path: path.into(), component: digest(component)?, code: digest(code)? })
    }

    /// The seal of a component and the code that was made of it.
    pub fn seal(component: &[u8], code: &[u8]) -> String {
        format!("{} {}", hex(&Sha256::digest(component)), hex(&Sha256::digest(code)))
    }

    /// Whether it was made of the component with this digest.
    pub(crate) fn is_of(&self, component: &[u8]) -> bool {
        self.component == component
    }

    /// The code.
    ///
    /// # Errors
    ///
    /// What was found instead.
    pub(crate) fn read(&self) -> Result<Vec<u8>, String> {
        let code = read(&self.path).map_err(|error| format!("cannot be read ({error})"))?;
        let found = Sha256::digest(&code);
        if found.as_slice() == self.code {
            Ok(code)
        } else {
            Err(format!("has the sha256 {}, expected {}", hex(&found), hex(&self.code)))
        }
    }

    /// Says that it is not used, and why.
    pub(crate) fn notice(&self, found: &str) -> String {
        format!(
            "{}: {found}; the component works without this file, but starts slower; install the package again",
            self.path.display()
        )
    }
}

/// The bytes of a file. Opening anything else may take for ever, so it is not.
fn read(path: &Path) -> io::Result<Vec<u8>> {
    let file = path.metadata()?;
    if !file.is_file() || file.len() > MAX_FILE_BYTES {
        return Err(io::Error::other("expected a file, and not a huge one"));
    }
    fs::read(path)
}

fn digest(text: &str) -> Option<[u8; DIGEST_BYTES]> {
    if text.len() != 2 * DIGEST_BYTES || !text.is_ascii() {
        return None;
    }
    let mut digest = [0; DIGEST_BYTES];
    for (byte, at) in digest.iter_mut().zip((0..).step_by(2)) {
        *byte = u8::from_str_radix(&text[at..at + 2], 16).ok()?;
    }
    Some(digest)
}

/// Compiles a component for any machine of a target, such as `x86_64-unknown-linux-gnu`. The code is for the engine of this
/// version of the crate alone.
///
/// # Errors
///
/// If the bytes are not a component of this contract by their names, or there is no compiler for the target.
pub fn precompile(component: &[u8], target: &str) -> Result<Vec<u8>, PrecompileError> {
    inspect::inspect(component)?;
    let unknown =
        |e: wasmtime::Error| PrecompileError::Target { target: target.into(), reason: format!("{e:#}") };
    let mut settings = engine::settings();
    settings.target(target).map_err(unknown)?;
    let engine = Engine::new(&settings).map_err(unknown)?;
    engine.precompile_component(component).map_err(|e| LoadError::Invalid { reason: format!("{e:#}") }.into())
}

/// A component that cannot be compiled ahead.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PrecompileError {
    /// The component cannot be used.
    #[error(transparent)]
    Component(#[from] LoadError),
    /// There is no compiler for the target.
    #[error("code cannot be made for {target}: {reason}")]
    Target {
        /// For which.
        target: String,
        /// Why not.
        reason: String,
    },
}
