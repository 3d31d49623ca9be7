//! A watched folder of plugins.
//!
//! The runtime's own thread does all the work. It tells the main thread by one call of a function, which takes what has changed
//! when it gets to it: several calls that nobody has got to yet are one.

use gen_limit_runtime as runtime;
use napi::Unknown;
use napi::bindgen_prelude::Function;
use napi_derive::napi;

use crate::arg::{self, Arg};
use crate::error::{Code, Error, Result};
use crate::inspect::world;
use crate::{Component, catching, engine, waker};

/// How a folder of plugins is watched.
#[napi(object, object_to_js = false)]
#[derive(Default)]
pub struct PluginFolderOptions {
    /// Keep compiled code in the user's cache directory, and take it from there. Default: false.
    pub cached: Option<bool>,
    /// How long a file that was written in place has to be left alone before it is read, in milliseconds. Default: 400.
    pub settle_ms: Option<f64>,
    /// How often the folder is looked at without an event, in milliseconds. Default: 1 000.
    pub rescan_ms: Option<f64>,
    /// The greatest size of a component's file, in bytes. Default: 64 MiB.
    pub max_file_bytes: Option<f64>,
    /// So many plugins are loaded. Default: 32.
    pub max_plugins: Option<f64>,
}

impl PluginFolderOptions {
    fn read(self) -> Result<runtime::FolderOptions> {
        let mut options = runtime::FolderOptions::default();
        if self.cached.unwrap_or(false) {
            options.cache = runtime::Cache::of_user();
        }
        let number = |value: Option<f64>, name| value.map(|value| arg::integer(value, name)).transpose();
        if let Some(ms) = number(self.settle_ms, "options.settleMs")? {
            options.settle_ms = ms;
        }
        if let Some(ms) = number(self.rescan_ms, "options.rescanMs")? {
            options.rescan_ms = ms;
        }
        if let Some(bytes) = number(self.max_file_bytes, "options.maxFileBytes")? {
            options.max_file_bytes = bytes;
        }
        if let Some(most) = number(self.max_plugins, "options.maxPlugins")? {
            options.max_plugins = most as usize;
        }
        Ok(options)
    }
}

/// Something is different in a folder.
#[napi(object, object_from_js = false)]
pub struct PluginChange {
    /// `loaded`: this is to be at work under that name from now on, or a refusal was put right. `settings`: of `gen-limit` only,
    /// while it is not in the folder: how the packaged one is to run. `removed`: nothing of that name is there any more; if it is
    /// `gen-limit` and its settings stay, they follow. `refused`: a file cannot be used, what was loaded stays at work.
    #[napi(ts_type = "'loaded' | 'settings' | 'removed' | 'refused'")]
    pub kind: &'static str,
    /// The plugin, or the file if it has no plugin's name.
    pub name: String,
    /// Of `loaded`: what is to run.
    pub component: Option<Component>,
    /// Of `loaded` and `settings`: its configuration, a JSON object, if the folder has one.
    pub config: Option<String>,
    /// Of `loaded` and `settings`: the limits of its instance, a JSON object, if the folder has any.
    pub limits: Option<String>,
    /// Of `loaded`: whether the component is new.
    pub component_changed: Option<bool>,
    /// Of `loaded`: whether the settings are new.
    pub settings_changed: Option<bool>,
    /// Of `refused`: the file.
    pub file: Option<String>,
    /// Of `refused`: one sentence, that begins with the file.
    pub reason: Option<String>,
}

impl PluginChange {
    fn of(kind: &'static str, name: String) -> Self {
        Self {
            kind,
            name,
            component: None,
            config: None,
            limits: None,
            component_changed: None,
            settings_changed: None,
            file: None,
            reason: None,
        }
    }
}

impl TryFrom<runtime::Change> for PluginChange {
    type Error = ();

    fn try_from(change: runtime::Change) -> std::result::Result<Self, ()> {
        Ok(match change {
            runtime::Change::Loaded { name, component, settings, changed } => Self {
                component: Some(Component(component)),
                config: settings.config,
                limits: settings.limits,
                component_changed: Some(changed.component),
                settings_changed: Some(changed.settings),
                ..Self::of("loaded", name)
            },
            runtime::Change::Settings { name, settings } => {
                Self { config: settings.config, limits: settings.limits, ..Self::of("settings", name) }
            }
            runtime::Change::Removed { name } => Self::of("removed", name),
            runtime::Change::Refused { name, file, reason } => {
                Self { file: Some(file), reason: Some(reason), ..Self::of("refused", name) }
            }
            // A kind that this addon does not know, which it could not tell of either.
            _ => return Err(()),
        })
    }
}

/// A file of a folder, and how it stands.
#[napi(object, object_from_js = false)]
pub struct PluginFile {
    /// Its name.
    pub file: String,
    /// The plugin it is of, if it has a plugin's name.
    pub plugin: Option<String>,
    /// Its size in bytes, if it is a file at all.
    pub size: Option<f64>,
    /// A component at work; settings in force; not used yet; nothing to use it for; cannot be used.
    #[napi(ts_type = "'loaded' | 'applied' | 'waiting' | 'idle' | 'refused'")]
    pub state: &'static str,
    /// Of `loaded`: its digest, in hexadecimal.
    pub sha256: Option<String>,
    /// Of `loaded`: its world.
    #[napi(ts_type = "'hooks' | 'plugin'")]
    pub world: Option<&'static str>,
    /// Of `waiting`, `idle` and `refused`: why, in words.
    pub reason: Option<String>,
}

impl From<runtime::Entry> for PluginFile {
    fn from(entry: runtime::Entry) -> Self {
        let (state, loaded, reason) = match entry.state {
            runtime::EntryState::Loaded { sha256, world } => ("loaded", Some((sha256, world)), None),
            runtime::EntryState::Applied => ("applied", None, None),
            runtime::EntryState::Waiting(why) => ("waiting", None, Some(why)),
            runtime::EntryState::Idle(why) => ("idle", None, Some(why)),
            runtime::EntryState::Refused(why) => ("refused", None, Some(why)),
        };
        let (sha256, of) = loaded.unzip();
        Self {
            file: entry.file,
            plugin: entry.plugin,
            size: entry.size.map(|size| size as f64),
            state,
            sha256,
            world: of.map(world),
            reason,
        }
    }
}

/// How a folder stands.
#[napi(object, object_from_js = false)]
pub struct PluginFolderStanding {
    /// Where it is.
    pub path: String,
    /// Whether all that lay there at first has been looked at: it is at work, or refused.
    pub seen: bool,
    /// Whether it exists.
    pub exists: bool,
    /// Why it cannot be read or watched as it should be, if so. What was loaded stays at work.
    pub trouble: Option<String>,
}

/// A folder of plugins, watched until it is closed or collected. It keeps no process alive.
#[napi]
pub struct PluginFolder(Option<runtime::Folder>);

#[napi]
impl PluginFolder {
    /// Watches a folder, which need not exist yet. `onChange` is called whenever `takeChanges()` has something new or `standing()`
    /// is another, and possibly once more after `close()`. Throws `GEN_LIMIT_START` if the process can have no more threads.
    #[napi(constructor, ts_args_type = "path: string, onChange: () => void, options?: PluginFolderOptions")]
    pub fn new(
        path: Arg<String>,
        on_change: Arg<Function<'_, (), Unknown<'static>>>,
        options: Arg<Option<PluginFolderOptions>>,
    ) -> Result<Self> {
        let path = path.get("path")?;
        let options = options.get("options")?.unwrap_or_default().read()?;
        let wake = waker(on_change.get("onChange")?, "onChange")?;
        let folder = catching(|| {
            runtime::Folder::watch(&engine()?, path, options, wake)
                .map_err(|error| Error::new(Code::Start, error))
        })?;
        Ok(Self(Some(folder)))
    }

    /// What is different from what was taken before, in the order in which it is to be applied. Nothing after `close()`.
    #[napi]
    pub fn take_changes(&self) -> Result<Vec<PluginChange>> {
        catching(|| {
            let changes = self.0.as_ref().map(runtime::Folder::take_changes).unwrap_or_default();
            Ok(changes.into_iter().filter_map(|change| change.try_into().ok()).collect())
        })
    }

    /// The files that matter, by name. None after `close()`.
    #[napi]
    pub fn entries(&self) -> Result<Vec<PluginFile>> {
        catching(|| {
            let entries = self.0.as_ref().map(|folder| folder.standing().entries).unwrap_or_default();
            Ok(entries.into_iter().map(PluginFile::from).collect())
        })
    }

    /// How the folder stands. None after `close()`.
    #[napi]
    pub fn standing(&self) -> Result<Option<PluginFolderStanding>> {
        catching(|| {
            Ok(self.0.as_ref().map(|folder| {
                let runtime::Standing { path, seen, exists, trouble, .. } = folder.standing();
                PluginFolderStanding { path: path.display().to_string(), seen, exists, trouble }
            }))
        })
    }

    /// Ends it; nobody waits for its thread. Doing so twice does nothing.
    #[napi]
    pub fn close(&mut self) {
        self.0 = None;
    }
}
