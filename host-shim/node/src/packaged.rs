//! The compiled code that ships in the package, beside the component and this addon.
//!
//! The build compiles the component before the addon, and tells the addon by an environment variable what it has made: the seal
//! of the component and its code. An addon that was built without it has no such code, and compiles.

use std::path::Path;

use gen_limit_runtime::Precompiled;

/// What the build has made, if it has.
const SEAL: Option<&str> = option_env!("GEN_LIMIT_SEAL");

/// The code that ships, if a component in this file is the one it was made of: `gen-limit.cwasm` beside `gen-limit.wasm`.
pub fn code_beside(component: &Path) -> Option<Precompiled> {
    Precompiled::new(component.with_extension("cwasm"), SEAL?)
}
