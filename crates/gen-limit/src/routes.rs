//! Answers to requests: who runs, who waits, why.

use limiter::StatsQuery;

use crate::bindings::exports::dsh::plugin::routes::{Request, Response};
use crate::gate::look;

const STATS: &str = "/api/dsh-gen-limit/stats";

pub fn paths() -> Vec<String> {
    vec![STATS.into()]
}

pub fn handle(request: &Request) -> Response {
    match (request.path.as_str(), request.method.as_str()) {
        (STATS, "GET") => match query(&request.query) {
            Ok(query) => stats(&query, &request.host_status),
            Err(problem) => error(400, &problem),
        },
        (STATS, _) => {
            let mut response = error(405, "this path answers GET only");
            response.headers.push(("allow".into(), "GET".into()));
            response
        }
        (path, _) => error(404, &format!("nothing is served at {path}")),
    }
}

/// The host has ticked before it asked, so the limiter's own last instant is now.
fn stats(query: &StatsQuery, host_status: &str) -> Response {
    let stats = look(|limiter| limiter.stats(query, 0));
    match serde_json::to_string(&stats) {
        Ok(mut json) => {
            // The host's own object goes in as it came, as the last field.
            json.truncate(json.len() - 1);
            respond(200, format!("{json},\"host\":{host_status}}}"))
        }
        Err(problem) => error(500, &problem.to_string()),
    }
}

fn query(text: &str) -> Result<StatsQuery, String> {
    let mut query = StatsQuery::default();
    for pair in text.split('&').filter(|pair| !pair.is_empty()) {
        let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
        let value = decode(value).ok_or_else(|| format!("`{key}` is not percent-encoded UTF-8"))?;
        match key {
            "scope" => query.scope = Some(value),
            "offset" => {
                let number = value.parse();
                query.offset =
                    number.map_err(|_| format!("`offset` is `{value}`, expected a whole number"))?;
            }
            _ => return Err(format!("`{key}` is unknown, expected `scope` or `offset`")),
        }
    }
    Ok(query)
}

fn decode(text: &str) -> Option<String> {
    let mut bytes = text.bytes();
    let mut decoded = Vec::with_capacity(text.len());
    while let Some(byte) = bytes.next() {
        decoded.push(match byte {
            b'+' => b' ',
            b'%' => {
                let mut digit = || char::from(bytes.next()?).to_digit(16);
                (digit()? * 16 + digit()?) as u8
            }
            other => other,
        });
    }
    String::from_utf8(decoded).ok()
}

fn error(status: u16, message: &str) -> Response {
    respond(status, serde_json::json!({ "error": message }).to_string())
}

fn respond(status: u16, json: String) -> Response {
    let headers = vec![
        ("content-type".into(), "application/json; charset=utf-8".into()),
        ("cache-control".into(), "no-store".into()),
    ];
    Response { status, headers, body: json.into_bytes() }
}
