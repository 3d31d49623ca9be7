//! Links against Node, and has `napi-derive` write what it exports where `types.mjs` finds it.

use std::path::Path;
use std::{env, fs};

fn main() {
    napi_build::setup();
    let out = env::var("OUT_DIR").expect("cargo sets OUT_DIR");
    // OUT_DIR is target/<profile>/build/<crate>-<hash>/out; the folder beside the profiles has a name one can know.
    if let Some(target) = Path::new(&out).ancestors().nth(4) {
        let types = target.join("napi-types");
        if fs::create_dir_all(&types).is_ok() {
            println!("cargo::rustc-env=NAPI_TYPE_DEF_TMP_FOLDER={}", types.display());
        }
    }
}
