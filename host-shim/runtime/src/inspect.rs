//! Reads the names a file imports and exports, and refuses it by them before anything is compiled.
//!
//! Compiling takes tenths of a second and answers with the vocabulary of a linker. The names alone, read in microseconds, are
//! enough for a sentence that says what the file is, what it should be and what to do: not WebAssembly, a core module, cut
//! short, built for WASI, of another version. Only what has the right names is worth a compiler's time.

use std::collections::BTreeSet;
use std::fmt;
use std::fs::File;
use std::io::{self, Read as _};
use std::path::Path;

use sha2::{Digest as _, Sha256};
use wasmparser::{Encoding, KnownCustom, Parser, Payload};

use crate::LoadError;
use crate::engine::hex;
use crate::error::quoted;

/// A component file may have so many bytes; the limiter's has a few hundred thousand, one with an interpreter in it some tens of
/// millions.
pub(crate) const MAX_FILE_BYTES: u64 = 64 << 20;

/// The contract's package.
const PACKAGE: &str = "dsh:plugin";
/// The contract's version.
const VERSION: &str = "0.1.0";
/// Versions that differ only behind this are compatible.
const SERIES: &str = "0.1.";

/// What a plugin may import; `types` has no functions.
const LENT: [&str; 5] = ["log", "models", "sessions", "settings", "types"];
const LENT_TEXT: &str = "dsh:plugin/{log, models, sessions, settings}";

/// What the world `hooks` exports.
const HOOKS: [&str; 3] = ["lifecycle", "llm-stream", "tool-pre-execute"];
/// What the world `plugin` exports.
const PLUGIN: [&str; 5] = ["lifecycle", "llm-stream", "pools", "routes", "tool-pre-execute"];

/// Which of the two worlds a component is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum World {
    /// It decides.
    Hooks,
    /// It decides, answers requests and shares limits.
    Plugin,
}

impl fmt::Display for World {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Hooks => "hooks",
            Self::Plugin => "plugin",
        })
    }
}

/// What can be read off a component's bytes. Nothing of it has been compiled or run.
#[derive(Clone, Debug)]
pub struct Inspection {
    /// Digest of the file, in hexadecimal.
    pub sha256: String,
    /// Size of the file, in bytes.
    pub size: usize,
    /// The interfaces it wants from its host.
    pub imports: Vec<String>,
    /// The interfaces it offers.
    pub exports: Vec<String>,
    /// What it was made with: for each part, such as `processed-by`, names and versions.
    pub producers: Vec<(String, String)>,
}

impl Inspection {
    /// Reads a component.
    ///
    /// # Errors
    ///
    /// If the bytes are not a component, or too many.
    ///
    /// ```
    /// use gen_limit_runtime::Inspection;
    ///
    /// let error = Inspection::of(b"#!/bin/sh").unwrap_err();
    /// assert_eq!(error.to_string(), r"the file is not WebAssembly: it begins with `#!/bin/s`, expected `\0asm`");
    /// ```
    pub fn of(bytes: &[u8]) -> Result<Self, LoadError> {
        let names = read(bytes)?;
        let sha256 = hex(&Sha256::digest(bytes));
        Ok(Self {
            sha256,
            size: bytes.len(),
            imports: names.imports,
            exports: names.exports,
            producers: names.producers.into_iter().collect(),
        })
    }

    /// [`of`](Self::of) a file.
    ///
    /// # Errors
    ///
    /// If the file cannot be read or is not a component, or too large.
    pub fn of_file(path: &Path) -> Result<Self, LoadError> {
        Self::of(&read_file(path)?)
    }

    /// The world it is of.
    ///
    /// # Errors
    ///
    /// If it is of neither, of another version, or wants what is not lent. What may still go wrong is the type of a function
    /// behind one of the names.
    pub fn world(&self) -> Result<World, LoadError> {
        world(&self.imports, &self.exports)
    }
}

/// The bytes of a file, unless they are more than a component may have.
///
/// Whoever can put something into a folder can put anything there: a pipe, on which nobody ever writes, is not waited for, and
/// of a file that grows while it is read no more is read than a component may have.
pub(crate) fn read_file(path: &Path) -> Result<Vec<u8>, LoadError> {
    let unreadable = |source| LoadError::Unreadable { path: path.to_owned(), source };
    let file = open(path).map_err(unreadable)?;
    let found = file.metadata().map_err(unreadable)?;
    if !found.is_file() {
        let what = if found.is_dir() { "it is a folder" } else { "it is no regular file" };
        return Err(unreadable(io::Error::other(what)));
    }
    let too_large = |size| LoadError::TooLarge { size, bound: MAX_FILE_BYTES };
    if found.len() > MAX_FILE_BYTES {
        return Err(too_large(found.len()));
    }
    let mut bytes = Vec::with_capacity(found.len() as usize);
    let size = file.take(MAX_FILE_BYTES + 1).read_to_end(&mut bytes).map_err(unreadable)? as u64;
    if size > MAX_FILE_BYTES { Err(too_large(size)) } else { Ok(bytes) }
}

/// Opens without waiting for anybody at the other end.
fn open(path: &Path) -> io::Result<File> {
    let mut options = File::options();
    options.read(true);
    #[cfg(unix)]
    {
        use std::os::unix::fs::OpenOptionsExt as _;
        options.custom_flags(libc::O_NONBLOCK);
    }
    options.open(path)
}

/// The world of a component's bytes.
pub(crate) fn inspect(bytes: &[u8]) -> Result<World, LoadError> {
    let names = read(bytes)?;
    world(&names.imports, &names.exports)
}

fn read(bytes: &[u8]) -> Result<Names, LoadError> {
    if bytes.len() as u64 > MAX_FILE_BYTES {
        return Err(LoadError::TooLarge { size: bytes.len() as u64, bound: MAX_FILE_BYTES });
    }
    if !bytes.starts_with(b"\0asm") {
        return Err(LoadError::Foreign { found: beginning(bytes) });
    }
    Names::read(bytes)
}

fn world(imports: &[String], names: &[String]) -> Result<World, LoadError> {
    for import in imports {
        let hint = if import.starts_with("wasi:") {
            "; it was built for a WASI target, build it for wasm32-unknown-unknown"
        } else {
            ""
        };
        let foreign = || LoadError::ForeignImport { import: quoted(import), lent: LENT_TEXT, hint };
        let interface = ours(import)?.ok_or_else(foreign)?;
        if !LENT.contains(&interface) {
            return Err(foreign());
        }
    }

    let mut exports = BTreeSet::new();
    for export in names {
        exports.insert(ours(export)?.unwrap_or(export));
    }
    if exports.iter().eq(&PLUGIN) {
        Ok(World::Plugin)
    } else if exports.iter().eq(&HOOKS) {
        Ok(World::Hooks)
    } else {
        Err(LoadError::WrongExports {
            found: quoted(&text(exports)),
            hooks: text(HOOKS),
            plugin: text(PLUGIN),
        })
    }
}

/// The interface's own name if the full name is one of our package and of a version we speak.
fn ours(name: &str) -> Result<Option<&str>, LoadError> {
    let Some((package, rest)) = name.split_once('/') else { return Ok(None) };
    if package != PACKAGE {
        return Ok(None);
    }
    match rest.split_once('@') {
        Some((interface, version)) if version.starts_with(SERIES) => Ok(Some(interface)),
        _ => Err(LoadError::WrongVersion { found: quoted(name), expected: VERSION }),
    }
}

fn text<'a>(names: impl IntoIterator<Item = &'a str>) -> String {
    let names: Vec<&str> = names.into_iter().collect();
    if names.is_empty() { "nothing".into() } else { names.join(", ") }
}

fn beginning(bytes: &[u8]) -> String {
    match bytes {
        [] => "nothing, the file is empty".into(),
        _ => format!("`{}`", bytes[..bytes.len().min(8)].escape_ascii()),
    }
}

/// The names of the outermost component, and what made any part of it.
#[derive(Default)]
struct Names {
    imports: Vec<String>,
    exports: Vec<String>,
    producers: BTreeSet<(String, String)>,
}

impl Names {
    fn read(bytes: &[u8]) -> Result<Self, LoadError> {
        let invalid =
            |e: wasmparser::BinaryReaderError| LoadError::Invalid { reason: quoted(&e.to_string()) };
        let mut names = Self::default();
        let mut depth = 0usize;
        for payload in Parser::new(0).parse_all(bytes) {
            match payload.map_err(invalid)? {
                Payload::Version { encoding: Encoding::Module, .. } if depth == 0 => {
                    return Err(LoadError::CoreModule);
                }
                Payload::ModuleSection { .. } | Payload::ComponentSection { .. } => depth += 1,
                Payload::End(_) => depth = depth.saturating_sub(1),
                Payload::ComponentImportSection(section) if depth == 0 => {
                    for import in section {
                        names.imports.push(import.map_err(invalid)?.name.name.to_owned());
                    }
                }
                Payload::ComponentExportSection(section) if depth == 0 => {
                    for export in section {
                        names.exports.push(export.map_err(invalid)?.name.name.to_owned());
                    }
                }
                Payload::CustomSection(section) => {
                    if let KnownCustom::Producers(fields) = section.as_known() {
                        names.note_producers(fields);
                    }
                }
                _ => {}
            }
        }
        Ok(names)
    }

    /// Notes what made a part. What cannot be read is passed over: no tool needs it.
    fn note_producers(&mut self, fields: wasmparser::ProducersSectionReader<'_>) {
        for field in fields.into_iter().flatten() {
            for value in field.values.into_iter().flatten() {
                self.producers.insert((
                    field.name.to_owned(),
                    format!("{} {}", value.name, value.version).trim_end().to_owned(),
                ));
            }
        }
    }
}
