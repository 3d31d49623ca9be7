//! Builds the component and proves its world.

use std::path::{Path, PathBuf};

use anyhow::bail;

/// Which component.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Variant {
    /// What ships.
    Release,
    /// With faults on demand, for tests.
    Chaos,
}

/// Builds one variant; gives the path of the `.wasm`.
pub fn build(_root: &Path, _variant: Variant) -> anyhow::Result<PathBuf> {
    bail!("the component cannot be built yet")
}
