//! How a plugin is doing, for whoever looks.

use serde_json::{Map, Value, json};

use crate::config::OnFailure;
use crate::plugin::{Plugin, Work};
use crate::{Fault, Problem};

/// Whether the component decides, or `onFailure` does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// The component decides.
    Running,
    /// It failed too often: calls pass until it is back.
    FailedOpen,
    /// It failed too often: calls are refused until it is back.
    FailedClosed,
}

impl State {
    /// `running`, `failed-open` or `failed-closed`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Running => "running",
            Self::FailedOpen => "failed-open",
            Self::FailedClosed => "failed-closed",
        }
    }
}

/// How a plugin is doing.
#[derive(Clone, Debug)]
pub struct Status {
    /// Who decides.
    pub state: State,
    /// What `onFailure` says of calls that no component can decide.
    pub policy: OnFailure,
    /// Instances built after faults, since the beginning.
    pub restarts: u64,
    /// The last fault, if there was one.
    pub last_error: Option<String>,
    /// Digest of the component's file.
    pub sha256: String,
    /// Calls that run, tool calls included.
    pub live: usize,
    /// Calls that wait.
    pub waiting: usize,
    /// Memory of the instance, in bytes; 0 without one.
    pub memory_bytes: usize,
    /// What is wrong with the last configuration that was brought: if it was refused, why, whatever is in force instead.
    pub problems: Vec<Problem>,
}

impl Status {
    /// What a component is told of its host, and whoever asks for stats.
    pub fn to_object(&self) -> Map<String, Value> {
        let problem = |p: &Problem| json!({ "path": p.path, "message": p.message });
        let members = [
            ("state", json!(self.state.as_str())),
            ("policy", json!(self.policy.as_str())),
            ("restarts", json!(self.restarts)),
            ("lastError", json!(self.last_error)),
            ("component", json!(self.sha256)),
            ("live", json!(self.live)),
            ("waiting", json!(self.waiting)),
            ("memoryBytes", json!(self.memory_bytes)),
            ("problems", self.problems.iter().map(problem).collect()),
        ];
        members.into_iter().map(|(key, value)| (key.to_owned(), value)).collect()
    }
}

impl Plugin {
    /// How it is doing.
    pub fn status(&self) -> Status {
        let (state, memory_bytes) = match &self.work {
            Work::Running { instance, .. } => (State::Running, instance.memory_bytes()),
            Work::Failed { .. } => (
                match self.config.on_failure {
                    OnFailure::Open => State::FailedOpen,
                    OnFailure::Closed => State::FailedClosed,
                },
                0,
            ),
        };
        Status {
            state,
            policy: self.config.on_failure,
            restarts: self.faults.restarts,
            last_error: self.faults.last.as_ref().map(Fault::to_string),
            sha256: self.component.sha256().to_owned(),
            live: self.table.live(),
            waiting: self.table.waiting(),
            memory_bytes,
            problems: if self.refused.is_empty() { &self.facts.problems } else { &self.refused }.clone(),
        }
    }
}
