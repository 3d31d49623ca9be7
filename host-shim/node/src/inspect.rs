//! What can be read off a component's file, before anything of it is compiled.

use std::path::PathBuf;

use gen_limit_runtime as runtime;
use napi::bindgen_prelude::AsyncTask;
use napi::{Env, JsError, Task};
use napi_derive::napi;

use crate::arg::Arg;
use crate::catching;
use crate::error::{Code, Error, Result};

/// What a component's file is.
#[napi(object, object_from_js = false)]
pub struct Inspected {
    /// The file.
    pub file: String,
    /// Its digest, in hexadecimal.
    pub sha256: String,
    /// Its size, in bytes.
    pub size: f64,
    /// The world it is of.
    #[napi(ts_type = "'hooks' | 'plugin'")]
    pub world: &'static str,
    /// The interfaces it wants from its host.
    pub imports: Vec<String>,
    /// The interfaces it offers.
    pub exports: Vec<String>,
    /// What it was made with: part, and name with version.
    #[napi(ts_type = "Array<[string, string]>")]
    pub producers: Vec<Vec<String>>,
}

/// Reads a file on a worker thread.
pub struct Inspect(PathBuf);

impl Task for Inspect {
    type Output = Result<Inspected>;
    type JsValue = Inspected;

    fn compute(&mut self) -> napi::Result<Self::Output> {
        let file = self.0.display().to_string();
        let inspect = || {
            let refused = |error: runtime::LoadError| {
                let text = error.to_string();
                // An error of reading names the file by itself.
                let text = if text.starts_with(&file) { text } else { format!("{file}: {text}") };
                Error::new(Code::Load, text)
            };
            let found = runtime::Inspection::of_file(&self.0).map_err(refused)?;
            let world = world(found.world().map_err(refused)?);
            let runtime::Inspection { sha256, size, imports, exports, producers } = found;
            let producers = producers.into_iter().map(|(part, made)| vec![part, made]).collect();
            let (file, size) = (file.clone(), size as f64);
            Ok(Inspected { file, sha256, size, world, imports, exports, producers })
        };
        Ok(catching(inspect))
    }

    fn resolve(&mut self, env: Env, output: Self::Output) -> napi::Result<Self::JsValue> {
        output.map_err(|error| JsError::from(error).into_unknown(env).into())
    }
}

/// Reads what a component's file is, wants and offers, on a worker thread; nothing of it is compiled or run. Rejects with
/// `GEN_LIMIT_LOAD` and one sentence that names the file, if this host could not run it.
#[napi(ts_args_type = "path: string", ts_return_type = "Promise<Inspected>")]
pub fn inspect(path: Arg<String>) -> Result<AsyncTask<Inspect>> {
    Ok(AsyncTask::new(Inspect(path.get("path")?.into())))
}

/// The world's name.
pub fn world(world: runtime::World) -> &'static str {
    match world {
        runtime::World::Hooks => "hooks",
        runtime::World::Plugin => "plugin",
    }
}
