//! Requests to a component's paths.
//!
//! `handle` is the one export that may wait. It runs as a task of the store, beside which hooks go on as ever, and moves only
//! inside a turn. When the store dies its tasks die silently, so whoever opened a request answers for it.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use wasmtime::component::{Accessor, AccessorTask, TypedFunc};

use crate::bindings::exports::dsh::plugin::routes;
use crate::host::State;

pub use routes::Response;

/// Names a request; never used twice in the life of the process.
pub type RequestId = u64;

/// A name for a request.
pub(crate) fn mint() -> RequestId {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    NEXT.fetch_add(1, Relaxed)
}

/// A request to one of the plugin's [paths](crate::Plugin::paths).
#[derive(Clone, Debug, Default)]
pub struct Request {
    /// The method, in capitals.
    pub method: String,
    /// The path, without the query.
    pub path: String,
    /// What follows the `?`, still encoded; empty if there is none.
    pub query: String,
    /// Header names in lower case, with their values.
    pub headers: Vec<(String, String)>,
    /// The body, whole.
    pub body: Vec<u8>,
}

impl Request {
    /// Bytes of everything that was sent.
    pub(crate) fn size(&self) -> usize {
        let Self { method, path, query, headers, body } = self;
        method.len() + path.len() + query.len() + size_of(headers) + body.len()
    }

    pub(crate) fn with_status(self, host_status: String) -> routes::Request {
        let Self { method, path, query, headers, body } = self;
        routes::Request { method, path, query, headers, body, host_status }
    }
}

fn size_of(headers: &[(String, String)]) -> usize {
    headers.iter().map(|(name, value)| name.len() + value.len()).sum()
}

/// What the host answers by itself.
pub(crate) fn refusal(status: u16, error: &str) -> Response {
    Response {
        status,
        headers: vec![("content-type".into(), "application/json".into())],
        body: serde_json::json!({ "error": error }).to_string().into_bytes(),
    }
}

/// What no web server could send, or nobody wants to keep.
fn fault_of(response: &Response, most: usize) -> Option<String> {
    let size = response.body.len() + size_of(&response.headers);
    if size > most {
        return Some(format!("{size} bytes, more than the {most} a response may have"));
    }
    if !(200..=599).contains(&response.status) {
        return Some(format!("the status {}", response.status));
    }
    let is_token = |name: &str| {
        !name.is_empty()
            && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte))
    };
    let is_value = |value: &str| value.bytes().all(|byte| matches!(byte, b'\t' | b' '..=b'~'));
    let bad = response.headers.iter().find(|(name, value)| !is_token(name) || !is_value(value));
    bad.map(|(name, _)| format!("the header `{}`", name.escape_debug()))
}

/// One open request.
pub(crate) struct Handling {
    pub(crate) id: RequestId,
    pub(crate) handle: TypedFunc<(routes::Request,), (Response,)>,
    pub(crate) request: routes::Request,
}

impl AccessorTask<State> for Handling {
    async fn run(self, accessor: &Accessor<State>) -> wasmtime::Result<()> {
        let (response,) = self.handle.call_concurrent(accessor, (self.request,)).await?;
        accessor.with(|mut access| {
            let state = access.get();
            let response = match fault_of(&response, state.response_bytes) {
                None => response,
                Some(fault) => refusal(502, &format!("the component answered with {fault}")),
            };
            state.open.retain(|&(open, _)| open != self.id);
            state.responses.push((self.id, response));
        });
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn response(name: &str, value: &str) -> Response {
        Response { status: 200, headers: vec![(name.into(), value.into())], body: Vec::new() }
    }

    #[test]
    fn a_header_that_would_split_the_response_is_not_passed_on() {
        for (name, value) in [
            ("", "x"),
            ("a b", "x"),
            ("a:", "x"),
            ("a\r\nb", "x"),
            ("a", "x\r\nb: y"),
            ("a", "\0"),
            ("a", "ä"),
        ] {
            assert!(fault_of(&response(name, value), 1_000).is_some(), "{name:?}: {value:?}");
        }
        assert_eq!(fault_of(&response("content-type", "text/plain;\tq=\"1\""), 1_000), None);
    }
}
