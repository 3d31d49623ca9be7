//! Between the contract's shapes and the limiter's.

use crate::bindings::dsh::plugin::types;
use crate::bindings::exports::dsh::plugin::{lifecycle, pools, routes};

/// The key of `extra` that names the live call whose stream awaits this one.
const WITHIN: &str = "within";

pub fn route(route: types::Route) -> limiter::Route {
    limiter::Route { provider: route.provider, model: route.model }
}

pub fn stream(call: types::StreamCall) -> limiter::StreamCall {
    limiter::StreamCall {
        route: route(call.route),
        session: call.session,
        first: call.first,
        spawn: call.spawn,
        within: call.extra.iter().find(|(key, _)| key == WITHIN).and_then(|(_, id)| id.parse().ok()),
    }
}

pub fn spawn(call: types::ToolCall) -> limiter::SpawnCall {
    limiter::SpawnCall { tool: call.tool, session: call.session, route: call.route.map(route) }
}

pub fn outcome(outcome: &types::Outcome) -> limiter::Outcome {
    match outcome {
        types::Outcome::Completed => limiter::Outcome::Completed,
        types::Outcome::Cancelled => limiter::Outcome::Cancelled,
        types::Outcome::Failed(_) => limiter::Outcome::Failed,
    }
}

pub fn mode(mode: lifecycle::Mode) -> limiter::config::Mode {
    match mode {
        lifecycle::Mode::Strict => limiter::config::Mode::Strict,
        lifecycle::Mode::Lenient => limiter::config::Mode::Lenient,
    }
}

pub fn problems(problems: Vec<limiter::config::Problem>) -> Vec<lifecycle::Problem> {
    problems.into_iter().map(|p| lifecycle::Problem { path: p.path, message: p.message }).collect()
}

fn call(call: lifecycle::RestoredCall) -> limiter::AnyCall {
    match call {
        lifecycle::RestoredCall::Model(call) => limiter::AnyCall::Stream(stream(call)),
        lifecycle::RestoredCall::Tool(call) => limiter::AnyCall::Spawn(spawn(call)),
    }
}

pub fn live(live: lifecycle::LiveCall) -> limiter::LiveCall {
    let ended = live.ended.map(|end| limiter::SpawnEnd { at: end.at, completed: end.completed });
    limiter::LiveCall { id: live.id, call: call(live.call), since: live.since, ended }
}

pub fn waiting(waiting: lifecycle::WaitingCall) -> limiter::WaitingCall {
    limiter::WaitingCall {
        id: waiting.id,
        call: call(waiting.call),
        since: waiting.since,
        seniority: waiting.seniority,
    }
}

pub fn need(need: limiter::Need) -> pools::Need {
    let limiter::Need { scope, pool, max, ceiling, held, occupied, wanted } = need;
    pools::Need { scope, pool, max, ceiling, held, occupied, wanted }
}

pub fn grant(grant: pools::Grant) -> limiter::Grant {
    let pools::Grant { scope, seats, until, contended } = grant;
    limiter::Grant { scope, seats, until, contended }
}

pub fn refusal(refusal: limiter::Refusal) -> types::Refusal {
    use limiter::Reason;
    let reason = match refusal.reason {
        Reason::QueueFull { scope, waiting, bound } => {
            types::RefusalReason::QueueFull(types::LineFull { scope, waiting, bound })
        }
        Reason::QueueTimeout(end) => types::RefusalReason::QueueTimeout(wait_ended(end)),
        Reason::Paused(end) => types::RefusalReason::Paused(wait_ended(end)),
        Reason::NoPoolSeat(end) => types::RefusalReason::NoPoolSeat(wait_ended(end)),
        Reason::Other(words) => types::RefusalReason::Other(words),
    };
    types::Refusal { code: limiter::CODE.into(), reason, message: refusal.message }
}

fn wait_ended(end: limiter::WaitEnded) -> types::WaitEnded {
    let limiter::WaitEnded { scope, waited_ms, occupancy, limit } = end;
    types::WaitEnded { scope, waited_ms, occupancy, limit }
}

pub fn request(request: routes::Request) -> ::routes::Request {
    let routes::Request { method, path, query, headers, body, host_status } = request;
    ::routes::Request { method, path, query, headers, body, host_status }
}

pub fn response(response: ::routes::Response) -> routes::Response {
    let ::routes::Response { status, headers, body } = response;
    routes::Response { status, headers, body }
}
