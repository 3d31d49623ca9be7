//! What can go wrong, by phase. Every text says what was found, what was expected and what to do.

use std::path::PathBuf;

use crate::Problem;

/// A component file that cannot be used. Nothing has been run.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LoadError {
    /// The file cannot be read.
    #[error("{}: cannot be read ({source}); expected a component of package dsh:plugin@0.1.0 there", path.display())]
    Unreadable {
        /// Which file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// The file is larger than a component may be.
    #[error("the file has {size} bytes, more than the {bound} a component may have")]
    TooLarge {
        /// Its size.
        size: u64,
        /// The greatest size.
        bound: u64,
    },
    /// The file is not WebAssembly at all.
    #[error("the file is not WebAssembly: it begins with {found}, expected `\\0asm`")]
    Foreign {
        /// Its first bytes.
        found: String,
    },
    /// A core module where a component was expected.
    #[error(
        "the file is a WebAssembly core module, expected a component; make one of it with `cargo xtask plugin FOLDER` or `wasm-tools component new`"
    )]
    CoreModule,
    /// WebAssembly that ends early or breaks the format's rules.
    #[error("the file is not a valid component: {reason}; it may be truncated, fetch or build it again")]
    Invalid {
        /// What the parser says.
        reason: String,
    },
    /// An import that no plugin may have.
    #[error("the component wants `{import}` from its host; this host lends {lent} and nothing else{hint}")]
    ForeignImport {
        /// The import.
        import: String,
        /// What may be imported.
        lent: &'static str,
        /// What to do about it, if it is a known case.
        hint: &'static str,
    },
    /// Built against another version of the contract.
    #[error(
        "the component speaks {found}, this host speaks {expected}; rebuild it against wit/ of this version, or update the host"
    )]
    WrongVersion {
        /// The interface and version found.
        found: String,
        /// The version of this host.
        expected: &'static str,
    },
    /// Exports that are neither of the two worlds.
    #[error(
        "the component exports {found}; expected those of world `plugin` ({plugin}) or of world `hooks` ({hooks})"
    )]
    WrongExports {
        /// The exports found.
        found: String,
        /// Those of the world `hooks`.
        hooks: String,
        /// Those of the world `plugin`.
        plugin: String,
    },
    /// It fails before anybody has asked it anything.
    #[error("the component fails as soon as it is instantiated: {0}")]
    Stillborn(Fault),
    /// The names are right and a type behind one of them is not, or the compiler refuses the code.
    #[error("the component does not fit the contract: {reason}; rebuild it against wit/ of this version")]
    Mismatch {
        /// What the compiler or linker says.
        reason: String,
    },
}

/// A component that cannot be brought to work.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StartError {
    /// It trapped before it could take a call.
    #[error("the component failed while starting: {0}")]
    Fault(#[from] Fault),
    /// It refuses the configuration.
    #[error("the configuration is refused: {}", list(problems))]
    Config {
        /// Row, field and reason of each.
        problems: Vec<Problem>,
    },
}

/// A configuration that is not in force; the one before it still is.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConfigureError {
    /// The component refuses it.
    #[error("the configuration is refused: {}", list(problems))]
    Refused {
        /// Row, field and reason of each.
        problems: Vec<Problem>,
    },
    /// The component failed over it, or there is no working one.
    #[error("the configuration cannot be applied, the component failed: {0}")]
    Fault(#[from] Fault),
}

impl From<StartError> for ConfigureError {
    fn from(error: StartError) -> Self {
        match error {
            StartError::Fault(fault) => Self::Fault(fault),
            StartError::Config { problems } => Self::Refused { problems },
        }
    }
}

/// How an instance died.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Fault {
    /// It ran longer than a call may.
    #[error("stopped: one call ran longer than {ms} ms")]
    Deadline {
        /// How long a call may run.
        ms: u64,
    },
    /// It wanted more memory, or more elements of tables, than it may have.
    #[error("stopped: it {0}")]
    Memory(String),
    /// It said more than it may.
    #[error("stopped: {0}")]
    Exceeded(String),
    /// It trapped.
    #[error("trapped: {0}")]
    Trap(String),
}

/// A configuration that was in force once and is refused by a successor is a fault like any other.
impl From<StartError> for Fault {
    fn from(error: StartError) -> Self {
        match error {
            StartError::Fault(fault) => fault,
            StartError::Config { .. } => Self::Trap(error.to_string()),
        }
    }
}

/// A text out of a file, as a part of one sentence: without line ends, and not longer than somebody reads.
pub(crate) fn quoted(text: &str) -> String {
    const MOST: usize = 400;
    let mut shown: String = text
        .chars()
        .take(MOST)
        .flat_map(|c| if c.is_control() { c.escape_debug().collect() } else { vec![c] })
        .collect();
    if text.chars().nth(MOST).is_some() {
        shown.push('…');
    }
    shown
}

pub(crate) fn list(problems: &[Problem]) -> String {
    let lines: Vec<String> = problems.iter().map(|p| format!("{}: {}", p.path, p.message)).collect();
    lines.join("; ")
}
