//! A whole request, to a host that has everything: there is an answer, it is well-formed, and reading changes nothing.
//!
//! The input is a request as on the wire: a line `METHOD path?query`, lines `name: value`, an empty line, the body.
#![no_main]

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::future::Future;
use std::pin::pin;
use std::task::{Context, Poll, Waker};

use libfuzzer_sys::fuzz_target;
use limiter::config::{Mode, parse};
use limiter::{Limiter, Route, StreamCall};
use routes::{Host, Kin, Model, Request, Response, Section, SessionInfo, SettingsError, handle};
use serde_json::value::RawValue;

/// A host whose settings hold whatever was posted last.
struct Fake {
    limiter: Limiter,
    kin: RefCell<Kin>,
    value: RefCell<String>,
}

impl Fake {
    fn new() -> Self {
        let config = r#"{"limits":[{"provider":"p","model":"m","max":1}]}"#;
        let mut limiter = Limiter::new();
        limiter.configure(parse(config, Mode::Strict).expect("it is one").0, 1);
        for (id, session) in (1..).zip(["a", "b"]) {
            let call = StreamCall {
                route: Route::new("p", "m"),
                session: Some(session.into()),
                first: true,
                spawn: None,
                within: None,
            };
            limiter.start_stream(id, call, 2);
        }
        Self { limiter, kin: RefCell::default(), value: RefCell::new(config.into()) }
    }

    fn section(&self) -> Section {
        let value = self.value.borrow().clone();
        Section {
            base: "{}".into(),
            user: value.clone(),
            value,
            in_force: true,
            writable: true,
            revision: Some("1".into()),
        }
    }
}

impl Host for Fake {
    fn look<R>(&self, at: impl FnOnce(&Limiter) -> R) -> R {
        at(&self.limiter)
    }

    fn kin<R>(&self, at: impl FnOnce(&mut Kin, &Limiter) -> R) -> R {
        at(&mut self.kin.borrow_mut(), &self.limiter)
    }

    fn warn(&self, _: &str) {}

    async fn read_settings(&self) -> Result<Section, SettingsError> {
        Ok(self.section())
    }

    async fn update_settings(
        &self,
        patch: String,
        revision: Option<String>,
    ) -> Result<Section, SettingsError> {
        match revision.as_deref() {
            None | Some("1") => {
                self.value.replace(patch);
                Ok(self.section())
            }
            Some("read-only") => Err(SettingsError::ReadOnly),
            Some("invalid") => Err(SettingsError::Invalid(patch)),
            Some("other") => Err(SettingsError::Other(Some(patch))),
            Some(_) => Err(SettingsError::Conflict(self.section())),
        }
    }

    async fn providers(&self) -> Vec<Model> {
        ["p", "q"].map(|id| Model { id: id.into(), name: id.into() }).into()
    }

    async fn models(&self, provider: String) -> Result<Vec<Model>, String> {
        if provider == "p" { Err("is down".into()) } else { Ok(Vec::new()) }
    }

    async fn describe(&self, sessions: Vec<String>) -> Vec<SessionInfo> {
        let about = |id| SessionInfo { id, label: Some("title".into()), parent: None, root: None };
        sessions.into_iter().map(about).collect()
    }
}

fn request(input: &[u8]) -> Request {
    let end = input.windows(2).position(|pair| pair == b"\n\n").unwrap_or(input.len());
    let head = String::from_utf8_lossy(&input[..end]);
    let mut lines = head.lines();
    let (method, target) = lines.next().unwrap_or_default().split_once(' ').unwrap_or_default();
    let (path, query) = target.split_once('?').unwrap_or((target, ""));
    let header = |line: &str| {
        let (name, value) = line.split_once(':')?;
        Some((name.to_lowercase(), value.trim().to_owned()))
    };
    Request {
        method: method.into(),
        path: format!("/api/dsh-gen-limit/{path}"),
        query: query.into(),
        headers: lines.filter_map(header).collect(),
        body: input.get(end + 2..).unwrap_or_default().to_vec(),
        host_status: r#"{"state":"running"}"#.into(),
    }
}

fn answer(host: &Fake, request: &Request) -> Response {
    match pin!(handle(host, request)).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(response) => response,
        Poll::Pending => panic!("everybody has answered"),
    }
}

fuzz_target!(|input: &[u8]| {
    let (host, request) = (Fake::new(), request(input));
    let before = host.section();
    let response = answer(&host, &request);
    let is =
        |name: &str| response.headers.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_str());
    match is("content-type") {
        Some("application/json; charset=utf-8") => {
            let body: BTreeMap<String, &RawValue> =
                serde_json::from_slice(&response.body).expect("an object");
            assert_eq!(body.contains_key("error"), response.status != 200, "{body:?}");
        }
        Some("text/plain; version=0.0.4; charset=utf-8") => {
            assert!(response.body.ends_with(b"\n") && str::from_utf8(&response.body).is_ok());
        }
        other => panic!("{other:?}"),
    }
    assert_eq!(is("allow").is_some(), response.status == 405);
    if request.method != "POST" || response.status != 200 {
        assert_eq!(host.section(), before, "nothing was written");
    } else {
        assert!(parse(&host.section().value, Mode::Strict).is_ok(), "nothing wrong was written");
    }
    if response.status == 500 {
        assert!(request.method == "POST" && host.section() == before);
    }
});
