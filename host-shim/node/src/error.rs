//! The codes JavaScript sees. They are stable: programs match on them, people read the message.

/// Why a call into the addon failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Code {
    /// An argument is missing, of the wrong type or out of range.
    BadArgument,
    /// The component's file cannot be used.
    Load,
    /// The component cannot be brought to work.
    Start,
    /// A configuration that is wrong in places, or a component that failed over it.
    Config,
    /// A bug in the addon; the object it happened in refuses every later call.
    Panic,
}

impl AsRef<str> for Code {
    fn as_ref(&self) -> &str {
        match self {
            Self::BadArgument => "GEN_LIMIT_BAD_ARGUMENT",
            Self::Load => "GEN_LIMIT_LOAD",
            Self::Start => "GEN_LIMIT_START",
            Self::Config => "GEN_LIMIT_CONFIG",
            Self::Panic => "GEN_LIMIT_PANIC",
        }
    }
}

/// A failure with one of our codes.
pub type Error = napi::Error<Code>;
/// The result of everything JavaScript calls.
pub type Result<T> = std::result::Result<T, Error>;

/// The words of a panic.
pub fn panic_text(panic: &(dyn std::any::Any + Send)) -> String {
    let words =
        panic.downcast_ref::<&str>().copied().or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    format!("the addon panicked: {}", words.unwrap_or("no message"))
}
