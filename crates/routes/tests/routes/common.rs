//! A host that answers as it is told, when it is told to.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::task::{Context, Poll, Waker};

use limiter::config::{Mode, parse};
use limiter::{CallId, Limiter, Route, SpawnCall, StreamCall};
use routes::{Host, Kin, Model, Request, Response, Section, SessionInfo, SettingsError};
use serde_json::Value;

type Settings = Result<Section, SettingsError>;

/// What was asked, in order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Asked {
    Read,
    Update { patch: String, revision: Option<String> },
    Providers,
    Models(String),
    Sessions(Vec<String>),
}

/// A host.
pub struct Fake {
    pub limiter: RefCell<Limiter>,
    /// How reads and writes of the settings end.
    pub settings: Settings,
    /// The providers and what each offers.
    pub catalog: Vec<(&'static str, Result<Vec<&'static str>, &'static str>)>,
    /// The sessions that have a title.
    pub titles: Vec<(&'static str, &'static str)>,
    /// The sessions that the harness knows, and whose child each is.
    pub parents: BTreeMap<String, Option<String>>,
    /// Whether answers come at all.
    pub answers: Cell<bool>,
    /// Whether providers tell what they offer.
    pub offers: Cell<bool>,
    pub asked: RefCell<Vec<Asked>>,
    pub warned: RefCell<Vec<String>>,
    newest: Cell<CallId>,
    kin: RefCell<Kin>,
}

impl Fake {
    pub fn new(config: &str) -> Self {
        let (config, problems) = parse(config, Mode::Strict).expect("a configuration");
        assert!(problems.is_empty(), "{problems:?}");
        let mut limiter = Limiter::new();
        limiter.configure(config, 1_000);
        Self {
            limiter: RefCell::new(limiter),
            settings: Err(SettingsError::Unavailable),
            catalog: Vec::new(),
            titles: Vec::new(),
            parents: BTreeMap::new(),
            answers: Cell::new(true),
            offers: Cell::new(true),
            asked: RefCell::default(),
            warned: RefCell::default(),
            newest: Cell::new(0),
            kin: RefCell::default(),
        }
    }

    /// A host whose settings end so.
    pub fn with_settings(settings: Settings) -> Self {
        Self { settings, ..Self::new("{}") }
    }

    /// A session's call.
    pub fn stream(&self, session: Option<&str>, provider: &str, model: &str, now: u64) -> CallId {
        self.newest.set(self.newest.get() + 1);
        let call = StreamCall {
            route: Route::new(provider, model),
            session: session.map(str::to_owned),
            first: true,
            spawn: None,
            within: None,
        };
        let id = self.newest.get();
        self.limiter.borrow_mut().start_stream(id, call, now);
        id
    }

    /// A session's tool call that starts a session on a route.
    pub fn spawn(&self, parent: &str, provider: &str, model: &str, now: u64) {
        self.newest.set(self.newest.get() + 1);
        let route = Some(Route::new(provider, model));
        let call = SpawnCall { tool: "subagent".into(), session: Some(parent.into()), route };
        self.limiter.borrow_mut().start_spawn(self.newest.get(), call, now);
    }

    async fn ask(&self, asked: Asked) {
        let offer = matches!(asked, Asked::Models(_));
        self.asked.borrow_mut().push(asked);
        let has_come = || self.answers.get() && (self.offers.get() || !offer);
        poll_fn(|_| if has_come() { Poll::Ready(()) } else { Poll::Pending }).await;
        // Hooks go on beside open requests: whoever holds on to the limiter meanwhile would be found out here.
        drop(self.limiter.borrow_mut());
        drop(self.kin.borrow_mut());
    }

    /// The answer, which is there as soon as the host has answered.
    pub fn respond(&self, request: &Request) -> Response {
        match self.poll(request, |_| ()) {
            Poll::Ready(response) => response,
            Poll::Pending => panic!("no answer"),
        }
    }

    /// Polls once, does something, and polls again.
    pub fn poll(&self, request: &Request, meanwhile: impl FnOnce(&Self)) -> Poll<Response> {
        let mut handling = pin!(routes::handle(self, request));
        let mut context = Context::from_waker(Waker::noop());
        if let Poll::Ready(response) = handling.as_mut().poll(&mut context) {
            return Poll::Ready(response);
        }
        meanwhile(self);
        handling.as_mut().poll(&mut context)
    }
}

impl Host for Fake {
    fn look<R>(&self, at: impl FnOnce(&Limiter) -> R) -> R {
        at(&self.limiter.borrow())
    }

    fn kin<R>(&self, at: impl FnOnce(&mut Kin, &Limiter) -> R) -> R {
        at(&mut self.kin.borrow_mut(), &self.limiter.borrow())
    }

    fn warn(&self, line: &str) {
        self.warned.borrow_mut().push(line.into());
    }

    async fn read_settings(&self) -> Settings {
        self.ask(Asked::Read).await;
        self.settings.clone()
    }

    async fn update_settings(&self, patch: String, revision: Option<String>) -> Settings {
        self.ask(Asked::Update { patch, revision }).await;
        self.settings.clone()
    }

    async fn providers(&self) -> Vec<Model> {
        self.ask(Asked::Providers).await;
        self.catalog.iter().map(|(id, _)| model(id)).collect()
    }

    async fn models(&self, provider: String) -> Result<Vec<Model>, String> {
        self.ask(Asked::Models(provider.clone())).await;
        let (_, offer) = self.catalog.iter().find(|(id, _)| *id == provider).expect("it was listed");
        offer.as_ref().map(|ids| ids.iter().copied().map(model).collect()).map_err(|&error| error.to_owned())
    }

    async fn describe(&self, sessions: Vec<String>) -> Vec<SessionInfo> {
        self.ask(Asked::Sessions(sessions.clone())).await;
        let info = |id: String| {
            let title = self.titles.iter().find(|(known, _)| *known == id);
            let parent = self.parents.get(&id);
            (title.is_some() || parent.is_some()).then(|| SessionInfo {
                label: title.map(|(_, title)| (*title).to_owned()),
                parent: parent.cloned().flatten(),
                root: Some("root".into()),
                id,
            })
        };
        sessions.into_iter().filter_map(info).collect()
    }
}

pub fn model(id: &str) -> Model {
    Model { id: id.into(), name: id.to_uppercase() }
}

pub fn section(value: &str) -> Section {
    Section {
        value: value.into(),
        base: "{}".into(),
        user: value.into(),
        in_force: true,
        writable: true,
        revision: Some("boot.7".into()),
    }
}

pub fn get(path: &str, query: &str) -> Request {
    Request {
        method: "GET".into(),
        path: path.into(),
        query: query.into(),
        host_status: r#"{"state":"running"}"#.into(),
        ..Request::default()
    }
}

pub fn post(body: impl Into<Vec<u8>>) -> Request {
    Request {
        method: "POST".into(),
        path: routes::CONFIG.into(),
        headers: vec![("content-type".into(), "application/json".into())],
        body: body.into(),
        ..Request::default()
    }
}

pub fn header<'a>(response: &'a Response, name: &str) -> Option<&'a str> {
    response.headers.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_str())
}

pub fn json(response: &Response) -> Value {
    assert_eq!(header(response, "content-type"), Some("application/json; charset=utf-8"));
    serde_json::from_slice(&response.body)
        .unwrap_or_else(|e| panic!("{e}: {}", String::from_utf8_lossy(&response.body)))
}

/// The sentence of an answer that says why not.
pub fn error(response: &Response) -> String {
    json(response)["error"].as_str().expect("a sentence").to_owned()
}
