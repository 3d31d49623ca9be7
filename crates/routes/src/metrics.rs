//! Numbers as Prometheus reads them, in text format 0.0.4.
//!
//! Labels are scopes and reasons, never sessions: what is scraped every few seconds must not grow with what was ever run.
//! What a scope was seen to do is told of configured scopes only, since others are forgotten when they are idle and a counter
//! that comes and goes counts nothing. At most [`PAGE`](limiter::PAGE) scopes are told, configured ones first.

use std::fmt::{self, Display, Write as _};

use limiter::{ScopeStats, Stats, StatsQuery, Totals, Waits};
use serde_json::Value;

use crate::request::parameters;
use crate::response::Answer;
use crate::{Host, Request, Response};

const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

pub fn read(host: &impl Host, request: &Request) -> Answer {
    let [] = parameters(&request.query, [])?;
    let stats = host.look(|limiter| limiter.stats(&StatsQuery::default(), 0));
    let of_host = serde_json::from_str(&request.host_status).unwrap_or_default();
    Ok(Response::new(200, CONTENT_TYPE, render(&stats, &of_host).into_bytes()))
}

fn render(stats: &Stats, of_host: &Value) -> String {
    let mut page = Page(String::new());
    host(&mut page, of_host);
    whole(&mut page, stats);
    scopes(&mut page, &stats.scopes);
    page.0
}

/// The component, as its host sees it.
fn host(page: &mut Page, status: &Value) {
    let component = status["component"].as_str().unwrap_or_default();
    let build = [("version", env!("CARGO_PKG_VERSION")), ("component", component)];
    page.family("build_info", "gauge", "The version of the plugin and the digest of its component.");
    page.sample("build_info", &build, 1);
    page.family("component_restarts_total", "counter", "Instances of the component built after faults.");
    page.sample("component_restarts_total", &[], status["restarts"].as_u64().unwrap_or(0));
    page.family("component_memory_bytes", "gauge", "Memory of the component.");
    page.sample("component_memory_bytes", &[], status["memoryBytes"].as_u64().unwrap_or(0));
    page.family("configuration_problems", "gauge", "What is wrong with the configuration, in places.");
    page.sample("configuration_problems", &[], status["problems"].as_array().map_or(0, Vec::len));
}

/// Everything together.
fn whole(page: &mut Page, stats: &Stats) {
    let totals = &stats.totals;
    page.family("live_calls", "gauge", "Model calls that run.");
    page.sample("live_calls", &[], totals.live);
    page.family("waiting_calls", "gauge", "Calls and spawns that wait.");
    page.sample("waiting_calls", &[], totals.waiting);
    page.family("spawn_credits", "gauge", "Spawns let through whose child has not called yet.");
    page.sample("spawn_credits", &[], stats.credits);
    page.family("scopes", "gauge", "Scopes that are configured or busy.");
    page.sample("scopes", &[], stats.scopes_total);
    page.family("scopes_unlisted", "gauge", "Those of them that are too many to be told of here.");
    page.sample("scopes_unlisted", &[], stats.scopes_total.saturating_sub(stats.scopes.len()));
    seen(page, "", &[(&[], &totals.totals, stats.wait_ms)]);
}

/// Each scope.
fn scopes(page: &mut Page, scopes: &[ScopeStats]) {
    let labels: Vec<[Label; 1]> = scopes.iter().map(|scope| [("scope", scope.scope.as_str())]).collect();
    let each = || scopes.iter().zip(&labels);

    page.family("scope_seats_limit", "gauge", "The limit of the scope's own row; +Inf without one.");
    for (scope, labels) in each() {
        match u64::try_from(scope.max) {
            Ok(max) => page.sample("scope_seats_limit", labels, max),
            Err(_) => page.sample("scope_seats_limit", labels, "+Inf"),
        }
    }
    page.family("scope_seats_ceiling", "gauge", "What all tenants together may not exceed.");
    for (scope, labels) in each() {
        if let Some(ceiling) = scope.ceiling {
            page.sample("scope_seats_ceiling", labels, ceiling);
        }
    }
    page.family("scope_seats_occupied", "gauge", "Seats that are held.");
    for (scope, labels) in each() {
        page.sample("scope_seats_occupied", labels, scope.occupancy);
    }
    page.family("scope_pool_seats", "gauge", "Seats that are held of the scope's pool, or of the ceiling.");
    for (scope, labels) in each() {
        if let Some(seats) = scope.pool_seats {
            page.sample("scope_pool_seats", labels, seats);
        }
    }
    page.family("scope_spawn_credits", "gauge", "Spawns let through whose child has not called yet.");
    for (scope, labels) in each() {
        page.sample("scope_spawn_credits", labels, scope.credits);
    }
    page.family("scope_waiting_calls", "gauge", "Calls and spawns that wait.");
    for (scope, labels) in each() {
        page.sample("scope_waiting_calls", labels, scope.waiting);
    }
    page.family("scope_oldest_wait_seconds", "gauge", "How long the oldest of them has waited.");
    for (scope, labels) in each() {
        page.sample("scope_oldest_wait_seconds", labels, Seconds(scope.oldest_wait_ms.unwrap_or(0)));
    }
    page.family("scope_call_duration_mean_seconds", "gauge", "Mean duration of the last 64 calls.");
    for (scope, labels) in each() {
        if let Some(ms) = scope.mean_call_ms {
            page.sample("scope_call_duration_mean_seconds", labels, Seconds(ms));
        }
    }
    let configured = each().filter(|(scope, _)| scope.configured);
    let configured: Vec<Seen> =
        configured.map(|(scope, labels)| (labels.as_slice(), &scope.totals, scope.wait_ms)).collect();
    seen(page, "scope_", &configured);
}

type Label<'a> = (&'a str, &'a str);
type Seen<'a> = (&'a [Label<'a>], &'a Totals, Option<Waits>);

/// What has happened so far.
fn seen(page: &mut Page, of: &str, rows: &[Seen]) {
    let name = format!("{of}admitted_calls_total");
    page.family(&name, "counter", "Calls and spawns admitted, at once or after a wait.");
    for (labels, totals, _) in rows {
        page.sample(&name, labels, totals.admitted);
    }
    let name = format!("{of}delayed_calls_total");
    page.family(&name, "counter", "Calls and spawns admitted after a wait.");
    for (labels, totals, _) in rows {
        page.sample(&name, labels, totals.waited);
    }
    let name = format!("{of}refused_calls_total");
    page.family(&name, "counter", "Calls and spawns refused.");
    for (labels, totals, _) in rows {
        for (reason, count) in totals.refused.by_reason() {
            page.sample(&name, &[labels, [("reason", reason)].as_slice()].concat(), count);
        }
    }
    let name = format!("{of}cancelled_calls_total");
    page.family(&name, "counter", "Calls and spawns withdrawn while they waited.");
    for (labels, totals, _) in rows {
        page.sample(&name, labels, totals.cancelled);
    }
    let name = format!("{of}wait_seconds");
    page.family(&name, "summary", "Waits that ended in admission; quantiles of the last 1024.");
    for (labels, totals, waits) in rows {
        for (quantile, ms) in waits.iter().flat_map(|w| [("0.5", w.p50), ("0.95", w.p95), ("1", w.max)]) {
            page.sample(&name, &[labels, [("quantile", quantile)].as_slice()].concat(), Seconds(ms));
        }
        page.sample(&format!("{name}_sum"), labels, Seconds(totals.sum_wait_ms));
        page.sample(&format!("{name}_count"), labels, totals.admitted);
    }
}

struct Page(String);

impl Page {
    fn family(&mut self, name: &str, kind: &str, help: &str) {
        // A string takes whatever is written, here and below.
        let _ = writeln!(self.0, "# HELP gen_limit_{name} {help}\n# TYPE gen_limit_{name} {kind}");
    }

    fn sample(&mut self, name: &str, labels: &[Label], value: impl Display) {
        let _ = write!(self.0, "gen_limit_{name}");
        for (at, (key, text)) in labels.iter().enumerate() {
            let _ = write!(self.0, "{}{key}=\"{}\"", if at == 0 { '{' } else { ',' }, Escaped(text));
        }
        let _ = writeln!(self.0, "{} {value}", if labels.is_empty() { "" } else { "}" });
    }
}

/// A label's value.
struct Escaped<'a>(&'a str);

impl Display for Escaped<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.chars().try_for_each(|c| match c {
            '\\' => f.write_str("\\\\"),
            '"' => f.write_str("\\\""),
            '\n' => f.write_str("\\n"),
            c => f.write_char(c),
        })
    }
}

/// Milliseconds in the unit of metrics.
struct Seconds(u64);

impl Display for Seconds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{:03}", self.0 / 1_000, self.0 % 1_000)
    }
}
