//! The configuration: read it, change it.
//!
//! What is posted is judged by itself, for no problem depends on two keys at once: a wrong value that an older version left
//! elsewhere in the document does not keep anybody from mending the rest. It is handed to the settings as it was written,
//! and what the settings hold is shown as they tell it.

use limiter::config::{KEYS, Mode, Object, Problem, parse};
use serde::Serialize;
use serde_json::value::RawValue;

use crate::request::{brief, parameters};
use crate::response::Answer;
use crate::{Host, Request, Response, Section, SettingsError};

/// The section as answers show it.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Shown<'a> {
    status: &'static str,
    value: &'a RawValue,
    base: &'a RawValue,
    user: &'a RawValue,
    writable: bool,
    revision: Option<&'a str>,
    /// Whether what is valid of the document is in force; otherwise an earlier one is, until this one is put right.
    in_force: bool,
    /// What is wrong with the document now.
    problems: Vec<Problem>,
}

#[derive(Serialize)]
struct Unavailable {
    status: &'static str,
}

#[derive(Serialize)]
struct Conflict<'a> {
    error: &'static str,
    section: Shown<'a>,
}

pub async fn read(host: &impl Host, request: &Request) -> Answer {
    let [] = parameters(&request.query, [])?;
    match host.read_settings().await {
        Ok(section) => Ok(Response::json(200, &shown(&section)?)),
        Err(SettingsError::Unavailable) => Ok(Response::json(200, &Unavailable { status: "unavailable" })),
        Err(error) => Err(failed(host, &error)),
    }
}

pub async fn write(host: &impl Host, request: &Request) -> Answer {
    let [] = parameters(&request.query, [])?;
    if !request.is_json() {
        return Err(Response::error(415, "expected a body with the content type application/json"));
    }
    let Patch { json, revision } = patch(&request.body)?;
    match host.update_settings(json, revision).await {
        Ok(section) => Ok(Response::json(200, &shown(&section)?)),
        Err(error) => Err(failed(host, &error)),
    }
}

/// A change that the parser has no objection to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Patch {
    /// A JSON object with the keys to replace, their values as they were written.
    pub json: String,
    /// The state of the settings it is meant for; any, if there is none.
    pub revision: Option<String>,
}

/// Reads a change from the body of a request.
///
/// # Errors
/// An answer of status 400 that names what is wrong, and where.
pub fn patch(body: &[u8]) -> Result<Patch, Response> {
    let bad = |error: &str| Response::error(400, error);
    let text = str::from_utf8(body)
        .map_err(|e| bad(&format!("the body is not UTF-8 from byte {} on", e.valid_up_to())))?;
    let Object { mut fields, repeated } = serde_json::from_str(text)
        .map_err(|e| bad(&format!("the body is no JSON object: {}", brief(&e.to_string()))))?;
    if let Some(key) = repeated.first() {
        return Err(bad(&format!("{}: {}", brief(key), Object::REPEATED)));
    }
    let revision = fields.remove("revision").map_or(Ok(None), |raw| {
        serde_json::from_str(raw.get()).map_err(|_| {
            bad(&format!("revision: expected the text that GET gave, found {}", brief(raw.get())))
        })
    })?;
    if fields.contains_key("tenant") {
        // A row that owns other calls from now on may not be the one that can be changed here any more.
        return Err(bad(
            "tenant: which calls a row owns is said where it stands, and cannot be changed here",
        ));
    }
    if fields.is_empty() {
        return Err(bad(&format!("nothing to change; expected at least one of {KEYS}")));
    }
    let json = serde_json::to_string(&fields).map_err(|e| bad(&e.to_string()))?;
    match parse(&json, Mode::Strict) {
        Ok(_) => Ok(Patch { json, revision }),
        Err(problems) => Err(Response::refused(&problems)),
    }
}

fn shown(section: &Section) -> Result<Shown<'_>, Response> {
    let Section { value, base, user, in_force, writable, revision } = section;
    let (Ok((_, problems)) | Err(problems)) = parse(value, Mode::Lenient);
    Ok(Shown {
        status: "ok",
        value: raw(value)?,
        base: raw(base)?,
        user: raw(user)?,
        writable: *writable,
        revision: revision.as_deref(),
        in_force: *in_force,
        problems,
    })
}

fn raw(json: &str) -> Result<&RawValue, Response> {
    serde_json::from_str(json)
        .map_err(|e| Response::error(500, &format!("the settings service answered with no JSON: {e}")))
}

/// Why nothing was read or written. Where files lie is for the log alone.
fn failed(host: &impl Host, error: &SettingsError) -> Response {
    match error {
        SettingsError::Conflict(section) => {
            let error =
                "somebody else changed the settings meanwhile; look at what they are now, then repeat";
            match shown(section) {
                Ok(section) => Response::json(409, &Conflict { error, section }),
                Err(response) => response,
            }
        }
        SettingsError::ReadOnly => Response::error(503, "the settings cannot be changed here"),
        SettingsError::Unavailable => {
            Response::error(503, "the settings are busy or not there; nothing was stored, try again")
        }
        SettingsError::Invalid(words) => {
            Response::error(400, &format!("the harness refuses it: {}", without_paths(words)))
        }
        SettingsError::Other(words) => {
            let words = words.as_deref().unwrap_or("without a word");
            host.warn(&format!("the settings service failed: {words}"));
            Response::error(500, &format!("the settings service failed: {}", without_paths(words)))
        }
    }
}

/// The words that cannot be part of a path.
fn without_paths(words: &str) -> String {
    let kept = words.split_whitespace().map(|word| if word.contains(['/', '\\']) { "…" } else { word });
    brief(&kept.collect::<Vec<_>>().join(" "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_left_out_of_what_a_failure_says() {
        for (words, told) in [
            (
                "EACCES: permission denied, open '/home/a b/settings.yaml'",
                "EACCES: permission denied, open … …",
            ),
            (r"cannot write C:\Users\me\x.yml", "cannot write …"),
            ("file:///srv/x gone", "… gone"),
            ("no space left", "no space left"),
        ] {
            assert_eq!(without_paths(words), told);
        }
    }
}
