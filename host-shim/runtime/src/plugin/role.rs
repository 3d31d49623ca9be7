//! As what a plugin is spoken of, and where it may serve.

/// As what a plugin is spoken of, and where it may serve.
#[derive(Clone, Debug)]
pub(crate) enum Role {
    /// The one the host itself brings: the limiter, whose paths are its own affair.
    Own,
    /// One that somebody added under this name.
    Added(String),
}

impl Role {
    pub(super) fn subject(&self) -> String {
        match self {
            Self::Own => "the limiter".into(),
            Self::Added(name) => format!("the plugin {name}"),
        }
    }

    /// What becomes of calls without it, if they pass.
    pub(super) fn without(&self) -> &'static str {
        match self {
            Self::Own => "open: calls pass WITHOUT LIMITS",
            Self::Added(_) => "open: calls pass without being asked about there",
        }
    }

    /// What is so again when it is back.
    pub(super) fn again(&self) -> &'static str {
        match self {
            Self::Own => "limits hold again",
            Self::Added(_) => "it decides again",
        }
    }

    /// Why it may not serve a path.
    pub(super) fn objection(&self, path: &str) -> Option<String> {
        let Self::Added(name) = self else { return None };
        let own = format!("/api/{name}/");
        let is_own = path
            .strip_prefix(&own)
            .is_some_and(|rest| !rest.is_empty() && !rest.split('/').any(|part| part == ".."));
        (!is_own).then(|| {
            format!("the plugin wants to serve {path:?}; a plugin of this name serves below {own} alone")
        })
    }
}
