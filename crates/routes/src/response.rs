//! What is answered.

use limiter::config::Problem;
use serde::Serialize;

/// One answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Response {
    /// The HTTP status.
    pub status: u16,
    /// Header names in lower case, with their values.
    pub headers: Vec<(String, String)>,
    /// The body, whole.
    pub body: Vec<u8>,
}

/// An answer, or one that says why not.
pub type Answer = Result<Response, Response>;

#[derive(Serialize)]
struct Refused<'a> {
    error: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    problems: Option<&'a [Problem]>,
}

impl Response {
    pub(crate) fn new(status: u16, content_type: &str, body: Vec<u8>) -> Self {
        let headers = [("content-type", content_type), ("cache-control", "no-store")];
        Self { status, headers: headers.map(|(name, value)| (name.into(), value.into())).into(), body }
    }

    pub(crate) fn json(status: u16, body: &impl Serialize) -> Self {
        match serde_json::to_vec(body) {
            Ok(body) => Self::new(status, "application/json; charset=utf-8", body),
            Err(error) => Self::error(500, &error.to_string()),
        }
    }

    pub(crate) fn error(status: u16, error: &str) -> Self {
        Self::json(status, &Refused { error, problems: None })
    }

    /// The values that were posted are not what they should be.
    pub(crate) fn refused(problems: &[Problem]) -> Self {
        let error = match problems {
            [] => "refused".to_owned(),
            [only] => only.to_string(),
            [first, rest @ ..] => format!("{first} (and {} more)", rest.len()),
        };
        Self::json(400, &Refused { error: &error, problems: Some(problems) })
    }

    pub(crate) fn not_allowed(allowed: &str) -> Self {
        let mut response = Self::error(405, &format!("this path answers {allowed} only"));
        response.headers.push(("allow".into(), allowed.into()));
        response
    }
}
