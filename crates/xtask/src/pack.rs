//! The npm package: plugin, browser half, component, its compiled code and addon in one tarball.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Context as _;

use crate::addon::Profile;
use crate::progress::step;
use crate::{addon, shell, tools};

/// Builds everything the package holds and packs it; gives the path of the tarball.
pub fn build(root: &Path, profile: Profile) -> anyhow::Result<PathBuf> {
    let tools = tools::install(root)?;
    let built = addon::build(root, profile)?;
    let plugin = root.join("host-shim/dsh");
    step("packing", || {
        for package in ["./host-shim/dsh", "./web"] {
            shell::quietly(tools.pnpm().args(["--filter", package, "run", "build"]))?;
        }
        let stage = root.join("target/package/stage");
        if stage.exists() {
            fs::remove_dir_all(&stage)?;
        }
        fs::create_dir_all(stage.join("dist"))?;
        let place = |from: PathBuf, to: &str| {
            fs::copy(&from, stage.join(to)).with_context(|| format!("copying {}", from.display())).map(drop)
        };
        for name in ["package.json", "cordis.patch.yml", "dist/index.js", "dist/cli.js", "dist/client.js"] {
            place(plugin.join(name), name)?;
        }
        place(built.component, "gen-limit.wasm")?;
        place(built.code, "gen-limit.cwasm")?;
        place(built.addon, "gen-limit.node")?;
        place(root.join("README.md"), "README.md")?;
        place(root.join("LICENSE"), "LICENSE")?;
        let tarball = root.join("target/package/creait-dsh-gen-limit.tgz");
        shell::quietly(tools.pnpm().current_dir(&stage).args(["pack", "--out"]).arg(&tarball))?;
        Ok(tarball)
    })
}
