//! Who runs, who waits, and why.
//!
//! The numbers are all of one look, at the instant of the request; who belongs to a session is found out before, if the answer is
//! to be of one session. What people call the sessions is asked for afterwards, once for all of them, and not at all where
//! nobody is named: then the answer is there at once.

use std::collections::{BTreeMap, BTreeSet};

use limiter::{About, Stats, StatsQuery};
use serde::Serialize;
use serde_json::value::RawValue;

use crate::kin;
use crate::request::{brief, parameters};
use crate::response::Answer;
use crate::{Host, Request, Response};

#[derive(Serialize)]
struct Answered<'a> {
    #[serde(flatten)]
    stats: &'a Stats,
    /// The host's own status, as it came.
    host: Option<&'a RawValue>,
}

pub async fn read(host: &impl Host, request: &Request) -> Answer {
    let [scope, session, offset, describe] =
        parameters(&request.query, ["scope", "session", "offset", "describe"])?;
    let offset = offset.as_deref().map_or(Ok(0), whole)?;
    let describe = describe.as_deref().map_or(Ok(true), flag)?;
    let family = match session {
        Some(session) => Some(kin::family(host, &session).await),
        None => None,
    };
    let (sessions, whole) = family.map_or((None, true), |family| (Some(family.sessions), family.whole));
    let mut stats = host.look(|limiter| limiter.stats(&StatsQuery { scope, sessions, offset }, 0));
    stats.truncated |= !whole;
    if describe {
        name(host, &mut stats).await;
    }
    let host = serde_json::from_str(&request.host_status).ok();
    Ok(Response::json(200, &Answered { stats: &stats, host }))
}

/// Adds what people call the sessions.
async fn name(host: &impl Host, stats: &mut Stats) {
    let Stats { holders, waiters, .. } = stats;
    let holders = holders.iter_mut().map(|row| (&row.session, &mut row.about));
    let waiters = waiters.iter_mut().map(|row| (&row.session, &mut row.about));
    let mut rows: Vec<(&String, &mut About)> =
        holders.chain(waiters).filter_map(|(session, about)| Some((session.as_ref()?, about))).collect();
    let sessions: BTreeSet<&String> = rows.iter().map(|(session, _)| *session).collect();
    if sessions.is_empty() {
        return;
    }
    let known = host.describe(sessions.into_iter().cloned().collect()).await;
    let known: BTreeMap<String, About> = known
        .into_iter()
        .map(|info| (info.id, About { label: info.label, parent: info.parent, root: info.root }))
        .collect();
    for (session, about) in &mut rows {
        if let Some(known) = known.get(*session) {
            **about = known.clone();
        }
    }
}

fn whole(text: &str) -> Result<usize, Response> {
    // `parse` alone would take a sign.
    let number = text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse::<u32>().ok()).flatten();
    number
        .map(|number| number as usize)
        .ok_or_else(|| wrong("offset", text, "a whole number up to 4294967295"))
}

fn flag(text: &str) -> Result<bool, Response> {
    text.parse().map_err(|_| wrong("describe", text, "`true` or `false`"))
}

fn wrong(name: &str, found: &str, expected: &str) -> Response {
    Response::error(400, &format!("`{name}` is `{}`, expected {expected}", brief(found)))
}
