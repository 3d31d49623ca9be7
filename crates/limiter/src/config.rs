//! The configuration: read by hand from JSON, so that every error names its row and field.
//!
//! A typo never becomes "unlimited" or "blocked": whatever is not exactly understood is a [`Problem`]. In
//! [`Mode::Strict`] one problem refuses the whole text; in [`Mode::Lenient`], for when there is no last good
//! configuration, what is valid is taken and the rest is listed.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use serde::de::{MapAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::value::RawValue;

use crate::call::Route;
use crate::scope::{CountBy, ScopeKey};

/// The greatest `maxWaiting`: every waiter costs a handle, and a host's table of handles is bounded.
pub const GREATEST_MAX_WAITING: u32 = 200_000;

/// The greatest number of milliseconds, the last integer that JSON numbers carry exactly in every host.
pub const GREATEST_MS: u64 = (1 << 53) - 1;

/// The longest id, in bytes. Hosts shorten what is longer before the limiter sees it.
pub const GREATEST_ID_BYTES: usize = 1_024;

/// The longest text of a configuration, in bytes.
pub const GREATEST_BYTES: usize = 1 << 20;

/// How many values a configuration may have, lists and rows included: about what the longest text full of rows has.
pub const GREATEST_VALUES: usize = 100_000;

/// The keys of a configuration, for sentences.
pub const KEYS: &str = "limits, groups, ceilings, tenant, queueTimeoutMs, maxQueued, maxWaiting, countBy, headStart, \
                        maxOvertakes, spawnTools, spawnGraceMs, onFailure, maxRestarts";

/// What is wrong with one place of the configuration.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Problem {
    /// Where: `limits[2].max`; empty for the whole text.
    pub path: String,
    /// What was expected and what was found.
    pub message: String,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.path.is_empty() {
            f.write_str(&self.message)
        } else {
            write!(f, "{}: {}", self.path, self.message)
        }
    }
}

/// What to do about problems.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// All or nothing.
    Strict,
    /// Take what is valid, list the rest. Fails only on what is not a JSON object.
    Lenient,
}

/// One limit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limit {
    /// The row's own `max`; `None` is unlimited, 0 is paused.
    pub max: Option<u32>,
    /// What a seat is given to: where the row and a ceiling differ, every call, so that neither is exceeded.
    pub count_by: CountBy,
    /// The pool that its seats come from, if others draw from it too.
    pub pool: Option<String>,
    /// What all tenants together may not exceed, if the operator says.
    pub ceiling: Option<u32>,
}

impl Limit {
    /// What holds here: the least of the row's `max` and the ceiling.
    pub fn least(&self) -> Option<u32> {
        self.max.into_iter().chain(self.ceiling).min()
    }

    /// Whether seats have to be asked for. What is unlimited needs none.
    pub fn is_pooled(&self) -> bool {
        self.pool().is_some() || self.ceiling.is_some()
    }

    /// The named pool that seats have to be asked of.
    pub fn pool(&self) -> Option<&str> {
        self.pool.as_deref().filter(|_| self.max.is_some())
    }
}

/// A whole, valid configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// The limited scopes.
    pub limits: BTreeMap<ScopeKey, Limit>,
    /// For each group, what it holds; a model of `*` is the whole provider.
    pub groups: BTreeMap<String, BTreeSet<Route>>,
    /// Bounds one wait, from arrival, in milliseconds; 0 waits for ever.
    pub queue_timeout_ms: u64,
    /// Bounds those who wait for one route; 0 lets nobody wait.
    pub max_queued: u32,
    /// Bounds all waiters together.
    pub max_waiting: u32,
    /// By how many arrivals a later call of a session that has begun counts as older.
    pub head_start: u64,
    /// How many arrivals younger one may be to take the seat that is kept for an older waiter.
    pub max_overtakes: u64,
    /// The tools that spawn.
    pub spawn_tools: Vec<String>,
    /// How long a spawn's credit waits for its child, in milliseconds.
    pub spawn_grace_ms: u64,
    /// Reverse index of `groups`.
    membership: BTreeMap<Route, Vec<String>>,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            limits: BTreeMap::new(),
            groups: BTreeMap::new(),
            queue_timeout_ms: 120_000,
            max_queued: 64,
            max_waiting: 50_000,
            head_start: 0,
            max_overtakes: 64,
            spawn_tools: vec!["subagent".into(), "subagent_fork".into()],
            spawn_grace_ms: 10_000,
            membership: BTreeMap::new(),
        }
    }
}

impl Config {
    /// Whether everybody is counted in the same scopes as under the other, needs seats in the same and may hold what was
    /// given of the same pools: the limits differ in their numbers only, and the same are 0.
    pub(crate) fn counts_like(&self, other: &Self) -> bool {
        let alike = |a: &Limit, b: &Limit| {
            a.count_by == b.count_by
                && a.pool == b.pool
                && a.max.is_some() == b.max.is_some()
                && a.ceiling.is_some() == b.ceiling.is_some()
                && (a.least() == Some(0)) == (b.least() == Some(0))
        };
        let mut rows = self.limits.iter().zip(&other.limits);
        self.groups == other.groups
            && self.limits.len() == other.limits.len()
            && rows.all(|((key, limit), (other_key, other))| key == other_key && alike(limit, other))
    }

    /// The groups that contain a route, by name.
    pub(crate) fn groups_of(&self, route: &Route) -> Vec<String> {
        let whole = Route::new(route.provider.as_str(), "*");
        // A route whose model really is `*` lies where its provider lies.
        let mut names: Vec<String> =
            [route, &whole].iter().filter_map(|key| self.membership.get(key)).flatten().cloned().collect();
        names.sort();
        names.dedup();
        names
    }
}

/// Parses a configuration.
///
/// # Errors
/// [`Mode::Strict`]: every problem there is. [`Mode::Lenient`]: only that the text is no JSON object.
pub fn parse(json: &str, mode: Mode) -> Result<(Config, Vec<Problem>), Vec<Problem>> {
    let fatal = |message: String| vec![Problem { path: String::new(), message }];
    check_size(json).map_err(fatal)?;
    let not_json = |error: serde_json::Error| fatal(format!("not JSON: {error}"));
    let value: Json = serde_json::from_str(json).map_err(not_json)?;
    if !value.get().starts_with('{') {
        return Err(fatal(format!("expected an object, found {}", describe(value))));
    }
    let object = serde_json::from_str(value.get()).map_err(not_json)?;
    let mut reader = Reader::default();
    let config = reader.config(object);
    let problems = reader.problems();
    match mode {
        Mode::Strict if !problems.is_empty() => Err(problems),
        _ => Ok((config, problems)),
    }
}

/// What is judged in one step has to be bounded, also when it is nonsense.
fn check_size(json: &str) -> Result<(), String> {
    let bytes = json.len();
    if bytes > GREATEST_BYTES {
        return Err(format!("has {bytes} bytes, more than the {GREATEST_BYTES} a configuration may have"));
    }
    // Each value but the first comes after one of these. Those in strings are counted too: they are few, or nonsense.
    let values = json.bytes().filter(|byte| matches!(byte, b',' | b'[' | b'{')).count();
    if values > GREATEST_VALUES {
        return Err(format!("has {values} values, more than the {GREATEST_VALUES} a configuration may have"));
    }
    Ok(())
}

/// A value as it was written. Only what the configuration has a place for is read further: a number keeps its digits, nothing
/// else is built, and no depth costs a stack.
type Json<'a> = &'a RawValue;
type Fields<'a> = BTreeMap<String, Json<'a>>;

/// An object as it was written.
#[derive(Default)]
pub struct Object<'a> {
    /// Its keys; of one that is repeated, the last value.
    pub fields: BTreeMap<String, &'a RawValue>,
    /// The keys that it has more than once: nobody can tell which value is meant.
    pub repeated: BTreeSet<String>,
}

impl Object<'_> {
    /// What is wrong with a key that is repeated.
    pub const REPEATED: &'static str = "given more than once; keep one";
}

impl<'de> Deserialize<'de> for Object<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Keys;
        impl<'de> Visitor<'de> for Keys {
            type Value = Object<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut object = Object::default();
                while let Some((key, value)) = map.next_entry::<String, _>()? {
                    if object.fields.insert(key.clone(), value).is_some() {
                        object.repeated.insert(key);
                    }
                }
                Ok(object)
            }
        }
        deserializer.deserialize_map(Keys)
    }
}

fn read<'a, T: Deserialize<'a>>(value: Json<'a>) -> Option<T> {
    serde_json::from_str(value.get()).ok()
}

/// A place in the configuration, not written down unless there is something to say about it.
type Path<'a> = fmt::Arguments<'a>;

/// Keeps the first problems and counts the rest: a list nobody reads to its end need not be written.
#[derive(Default)]
struct Reader {
    kept: Vec<Problem>,
    found: usize,
}

impl Reader {
    fn config(&mut self, Object { mut fields, repeated }: Object<'_>) -> Config {
        let mut config = Config::default();
        for name in &repeated {
            self.problem(key_text(name), Object::REPEATED);
        }
        let count_by = fields
            .remove("countBy")
            .and_then(|value| self.count_by(format_args!("countBy"), value))
            .unwrap_or_default();
        let limits = self.list(format_args!("limits"), fields.remove("limits"));
        let groups = self.list(format_args!("groups"), fields.remove("groups"));
        let ceilings = self.list(format_args!("ceilings"), fields.remove("ceilings"));
        // Whoever hosts several tenants reads it.
        if let Some(tenant) = fields.remove("tenant") {
            self.tenant(tenant);
        }

        let mut knob = |name: &str, least: u64, greatest: u64, into: &mut dyn FnMut(u64)| {
            if let Some(value) = fields.remove(name) {
                self.integer(format_args!("{name}"), value, least, greatest).map(into);
            }
        };
        knob("queueTimeoutMs", 0, GREATEST_MS, &mut |n| config.queue_timeout_ms = n);
        knob("maxQueued", 0, GREATEST_MAX_WAITING.into(), &mut |n| config.max_queued = n as u32);
        knob("maxWaiting", 0, GREATEST_MAX_WAITING.into(), &mut |n| config.max_waiting = n as u32);
        knob("headStart", 0, u32::MAX.into(), &mut |n| config.head_start = n);
        knob("maxOvertakes", 0, u32::MAX.into(), &mut |n| config.max_overtakes = n);
        knob("spawnGraceMs", 0, GREATEST_MS, &mut |n| config.spawn_grace_ms = n);
        // The host's own knobs: it reads them by itself when there is no component, here they are only checked.
        knob("maxRestarts", 0, u32::MAX.into(), &mut |_| ());
        if let Some(value) = fields.remove("onFailure")
            && !read(value).is_some_and(|text: String| ["open", "closed"].contains(&text.as_str()))
        {
            self.problem(
                "onFailure",
                format_args!("expected \"open\" or \"closed\", found {}", describe(value)),
            );
        }
        if let Some(tools) = fields.remove("spawnTools").and_then(|value| self.spawn_tools(value)) {
            config.spawn_tools = tools;
        }
        for name in fields.keys() {
            self.problem(key_text(name), format_args!("unknown key; known are {KEYS}"));
        }

        for (at, row) in limits.into_iter().enumerate() {
            let path = format_args!("limits[{at}]");
            if let Some((key, limit)) =
                self.limit_row(path, row, "provider, model, max, countBy, pool", count_by)
            {
                match config.limits.entry(key) {
                    Entry::Occupied(row) => {
                        self.problem(path, format_args!("a second row for {}; keep one", row.key()));
                    }
                    Entry::Vacant(row) => _ = row.insert(limit),
                }
            }
        }
        for (at, row) in groups.into_iter().enumerate() {
            let path = format_args!("groups[{at}]");
            if let Some((name, routes, limit)) = self.group_row(path, row, count_by) {
                let key = ScopeKey::Group(name.clone());
                if config.limits.contains_key(&key) {
                    self.problem(
                        format_args!("{path}.name"),
                        format_args!("a second group named {name:?}; keep one"),
                    );
                    continue;
                }
                for route in &routes {
                    config.membership.entry(route.clone()).or_default().push(name.clone());
                }
                config.groups.insert(name, routes);
                config.limits.insert(key, limit);
            }
        }
        let mut seen = BTreeSet::new();
        for (at, row) in ceilings.into_iter().enumerate() {
            let path = format_args!("ceilings[{at}]");
            // It means the same for every tenant, whatever a tenant's own default is.
            let row = self.limit_row(path, row, "provider, model, max, countBy", CountBy::Session);
            let Some((key, Limit { max, count_by, .. })) = row else { continue };
            if !seen.insert(key.clone()) {
                self.problem(path, format_args!("a second row for {key}; keep one"));
            } else if max.is_some() {
                let none = Limit { max: None, count_by, pool: None, ceiling: None };
                let limit = config.limits.entry(key).or_insert(none);
                limit.ceiling = max;
                if count_by == CountBy::Stream {
                    limit.count_by = count_by;
                }
            }
        }
        config
    }

    fn problem(&mut self, path: impl fmt::Display, message: impl fmt::Display) {
        self.found += 1;
        if self.found <= MOST_PROBLEMS {
            self.kept.push(Problem { path: path.to_string(), message: message.to_string() });
        }
    }

    fn problems(self) -> Vec<Problem> {
        let Self { mut kept, found } = self;
        if found > kept.len() {
            let message = format!("and {} more problems", found - kept.len());
            kept.push(Problem { path: String::new(), message });
        }
        kept
    }

    fn list<'a>(&mut self, path: Path<'_>, value: Option<Json<'a>>) -> Vec<Json<'a>> {
        let Some(value) = value else { return Vec::new() };
        read(value).unwrap_or_else(|| {
            self.problem(path, format_args!("expected a list, found {}", describe(value)));
            Vec::new()
        })
    }

    fn row<'a>(&mut self, path: Path<'_>, value: Json<'a>, known: &str) -> Option<Fields<'a>> {
        let Some(Object { fields, repeated }) = read(value) else {
            self.problem(path, format_args!("expected a row {{{known}}}, found {}", describe(value)));
            return None;
        };
        for name in &repeated {
            self.problem(format_args!("{path}.{}", key_text(name)), Object::REPEATED);
        }
        for name in fields.keys() {
            if !known.split(", ").any(|k| k == name) {
                self.problem(
                    format_args!("{path}.{}", key_text(name)),
                    format_args!("unknown key; known are {known}"),
                );
            }
        }
        Some(fields)
    }

    fn limit_row(
        &mut self,
        path: Path<'_>,
        row: Json<'_>,
        known: &str,
        count_by: CountBy,
    ) -> Option<(ScopeKey, Limit)> {
        let before = self.found;
        let row = self.row(path, row, known)?;
        let route = self.route(path, &row);
        let limit = self.limit(path, &row, count_by);
        let key = match route? {
            Route { provider, model } if provider == "*" && model == "*" => ScopeKey::Everything,
            Route { provider, .. } if provider == "*" => {
                self.problem(
                    format_args!("{path}.provider"),
                    "\"*\" goes with the model \"*\" only; name the provider, or limit everything",
                );
                return None;
            }
            Route { provider, model } if model == "*" => ScopeKey::Provider(provider),
            route => ScopeKey::Route(route),
        };
        (self.found == before).then_some((key, limit?))
    }

    fn group_row(
        &mut self,
        path: Path<'_>,
        row: Json<'_>,
        count_by: CountBy,
    ) -> Option<(String, BTreeSet<Route>, Limit)> {
        let before = self.found;
        let mut row = self.row(path, row, "name, routes, max, countBy, pool")?;
        let name = self.id(path, &row, "name");
        let limit = self.limit(path, &row, count_by);
        let mut routes = BTreeSet::new();
        let list = row.remove("routes");
        if list.is_none() {
            self.problem(format_args!("{path}.routes"), "missing; expected a list of {provider, model}");
        }
        let list = self.list(format_args!("{path}.routes"), list);
        if list.is_empty() && self.found == before {
            self.problem(format_args!("{path}.routes"), "is empty; a group needs at least one route");
        }
        for (at, item) in list.into_iter().enumerate() {
            let path = format_args!("{path}.routes[{at}]");
            let Some(item) = self.row(path, item, "provider, model") else { continue };
            let Some(route) = self.route(path, &item) else { continue };
            if route.provider == "*" {
                self.problem(
                    format_args!("{path}.provider"),
                    "a group names its providers; \"*\" is for rows of `limits`",
                );
            } else if !routes.insert(route) {
                self.problem(path, "listed twice in this group; keep one");
            }
        }
        let (name, limit) = (name?, limit?);
        (self.found == before).then_some((name, routes, limit))
    }

    fn route(&mut self, path: Path<'_>, row: &Fields<'_>) -> Option<Route> {
        let provider = self.id(path, row, "provider");
        let model = self.id(path, row, "model");
        Some(Route::new(provider?, model?))
    }

    fn limit(&mut self, path: Path<'_>, row: &Fields<'_>, count_by: CountBy) -> Option<Limit> {
        let max = match row.get("max") {
            None => {
                self.problem(format_args!("{path}.max"), format_args!("missing; expected {MAX}"));
                None
            }
            Some(value) => match whole(value) {
                Some(-1) => Some(None),
                Some(n) if (0..=i128::from(u32::MAX)).contains(&n) => Some(Some(n as u32)),
                _ => {
                    self.problem(
                        format_args!("{path}.max"),
                        format_args!("expected {MAX}, found {}", describe(value)),
                    );
                    None
                }
            },
        };
        let count_by = match row.get("countBy") {
            None => Some(count_by),
            Some(value) => self.count_by(format_args!("{path}.countBy"), value),
        };
        let pool = match row.get("pool") {
            None => Some(None),
            Some(_) => self.id(path, row, "pool").map(|name| Some(name).filter(|name| name != "process")),
        };
        Some(Limit { max: max?, count_by: count_by?, pool: pool?, ceiling: None })
    }

    /// Who the row is for. Checked here, so that it is named like everything else; it decides nothing here.
    fn tenant(&mut self, value: Json<'_>) {
        let path = format_args!("tenant");
        let Some(fields) = self.row(path, value, "name, preset, workspace, session") else { return };
        for field in fields.keys() {
            if field == "name" {
                if let Some(name) = self.id(path, &fields, field)
                    && !is_tenant_name(&name)
                {
                    self.problem(
                        format_args!("{path}.name"),
                        format_args!(
                            "expected 1 to {LONGEST_TENANT} letters, digits, '.', '_' or '-', found {}",
                            describe(fields[field])
                        ),
                    );
                }
            } else if ["preset", "workspace", "session"].contains(&field.as_str()) {
                self.id(path, &fields, field);
            }
        }
    }

    fn integer(&mut self, path: Path<'_>, value: Json<'_>, least: u64, greatest: u64) -> Option<u64> {
        match whole(value) {
            Some(n) if (i128::from(least)..=i128::from(greatest)).contains(&n) => Some(n as u64),
            _ => {
                self.problem(
                    path,
                    format_args!("expected an integer from {least} to {greatest}, found {}", describe(value)),
                );
                None
            }
        }
    }

    fn count_by(&mut self, path: Path<'_>, value: Json<'_>) -> Option<CountBy> {
        match read::<String>(value).as_deref() {
            Some("session") => Some(CountBy::Session),
            Some("stream") => Some(CountBy::Stream),
            _ => {
                self.problem(
                    path,
                    format_args!("expected \"session\" or \"stream\", found {}", describe(value)),
                );
                None
            }
        }
    }

    fn id(&mut self, path: Path<'_>, row: &Fields<'_>, field: &str) -> Option<String> {
        let path = format_args!("{path}.{field}");
        let Some(&value) = row.get(field) else {
            self.problem(path, "missing; expected text");
            return None;
        };
        match read::<String>(value) {
            Some(text) => match text.trim() {
                "" => self.problem(path, "is empty"),
                id if id.len() > GREATEST_ID_BYTES => {
                    self.problem(path, format_args!("has {} bytes, more than {GREATEST_ID_BYTES}", id.len()));
                }
                id if id.chars().any(char::is_control) => {
                    self.problem(path, format_args!("has a control character: {}", describe(value)));
                }
                id => return Some(id.into()),
            },
            None => self.problem(path, format_args!("expected text, found {}", describe(value))),
        }
        None
    }

    fn spawn_tools(&mut self, value: Json<'_>) -> Option<Vec<String>> {
        let before = self.found;
        let mut tools = Vec::new();
        for (at, item) in self.list(format_args!("spawnTools"), Some(value)).into_iter().enumerate() {
            match read::<String>(item).as_deref().map(str::trim) {
                Some(name) if !name.is_empty() => tools.push(name.to_owned()),
                _ => {
                    let path = format_args!("spawnTools[{at}]");
                    self.problem(path, format_args!("expected a tool's name, found {}", describe(item)));
                }
            }
        }
        (self.found == before).then_some(tools)
    }
}

const MOST_PROBLEMS: usize = 50;
/// The longest name of a tenant: it is part of paths and of files.
const LONGEST_TENANT: usize = 64;

fn is_tenant_name(name: &str) -> bool {
    let fits = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
    name.len() <= LONGEST_TENANT && name.bytes().all(fits)
}

const MAX: &str = "an integer: -1 (unlimited), 0 (paused) or a cap from 1 to 4294967295";

/// The value as a whole number; `3.0` and `3e0` are one, `3.5`, `1e-400`, `1e400` and `"3"` are none. Decided on the digits
/// as they were written: a double would round a fraction away.
fn whole(value: Json<'_>) -> Option<i128> {
    /// More digits than any limit has; 10³⁰ still fits.
    const LONGEST: i64 = 30;
    let text = value.get();
    if !text.starts_with(|first: char| first == '-' || first.is_ascii_digit()) {
        return None;
    }
    let (mantissa, exponent) = text.split_once(['e', 'E']).unwrap_or((text, "0"));
    let (sign, mantissa) = mantissa.strip_prefix('-').map_or((1, mantissa), |rest| (-1, rest));
    let (before, after) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let digits = format!("{before}{after}");
    let significant = digits.trim_end_matches('0');
    if significant.is_empty() {
        return Some(0);
    }
    let count = |text: &str| i64::try_from(text.len()).ok();
    let exponent: i64 = exponent.parse().ok()?;
    let zeros = exponent.checked_add(count(&digits)? - count(significant)? - count(after)?)?;
    let significant = significant.trim_start_matches('0');
    if zeros < 0 || zeros.saturating_add(count(significant)?) > LONGEST {
        return None;
    }
    Some(sign * significant.parse::<i128>().ok()? * 10_i128.pow(zeros as u32))
}

/// An unknown key as a path shows it: printable, and cut.
fn key_text(key: &str) -> Cut<impl fmt::Display> {
    Cut(key.escape_debug())
}

/// The value as found, cut to a length that fits into a sentence.
fn describe(value: Json<'_>) -> Cut<&str> {
    let text = value.get();
    Cut(match text.as_bytes() {
        [b'[', rest @ ..] if rest.trim_ascii_start() == b"]" => "an empty list",
        [b'[', ..] => "a list",
        [b'{', ..] => "an object",
        _ => text,
    })
}

/// A text whose end does not matter.
struct Cut<T>(T);

impl<T: fmt::Display> fmt::Display for Cut<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = self.0.to_string();
        match text.char_indices().nth(60) {
            Some((at, _)) => write!(f, "{}…", &text[..at]),
            None => f.write_str(&text),
        }
    }
}
