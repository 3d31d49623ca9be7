//! The exports: each one an operation on the limiter.

use crate::bindings::dsh::plugin::types::{CallId, Instant, Outcome, StreamCall, ToolCall, Verdict};
use crate::bindings::exports::dsh::plugin::lifecycle::{LiveCall, Mode, Problem, WaitingCall};
use crate::bindings::exports::dsh::plugin::pools::{Grant, Need};
use crate::bindings::exports::dsh::plugin::routes::{Request, Response};
use crate::bindings::exports::dsh::plugin::{lifecycle, llm_stream, pools, routes, tool_pre_execute};
use crate::convert;
use crate::gate::{look, operate};
use crate::lent::Lent;

pub struct Component;

impl llm_stream::Guest for Component {
    fn start(id: CallId, call: StreamCall, now: Instant) -> Verdict {
        operate(|gate| {
            let verdict = gate.limiter.start_stream(id, convert::stream(call), now);
            gate.verdict(id, verdict)
        })
    }

    fn finish(id: CallId, outcome: Outcome, now: Instant) {
        finish(id, &outcome, now);
    }
}

impl tool_pre_execute::Guest for Component {
    fn tools() -> Vec<String> {
        look(|limiter| limiter.tools().to_vec())
    }

    fn start(id: CallId, call: ToolCall, now: Instant) -> Verdict {
        operate(|gate| {
            let verdict = gate.limiter.start_spawn(id, convert::spawn(call), now);
            gate.verdict(id, verdict)
        })
    }

    fn finish(id: CallId, outcome: Outcome, now: Instant) {
        finish(id, &outcome, now);
    }
}

/// Calls of both hooks share one space of ids.
fn finish(id: CallId, outcome: &Outcome, now: Instant) {
    operate(|gate| {
        gate.limiter.finish(id, convert::outcome(outcome), now);
        gate.withdraw(id);
    });
}

impl lifecycle::Guest for Component {
    fn configure(json: String, mode: Mode, now: Instant) -> Result<Vec<Problem>, Vec<Problem>> {
        let (config, problems) =
            limiter::config::parse(&json, convert::mode(mode)).map_err(convert::problems)?;
        operate(|gate| gate.limiter.configure(config, now));
        Ok(convert::problems(problems))
    }

    fn tick(now: Instant) -> Option<Instant> {
        operate(|gate| gate.limiter.tick(now))
    }

    fn restore(live: Vec<LiveCall>, waiting: Vec<WaitingCall>, now: Instant) -> Vec<(CallId, Verdict)> {
        let live = live.into_iter().map(convert::live).collect();
        let waiting = waiting.into_iter().map(convert::waiting).collect();
        operate(|gate| {
            let verdicts = gate.limiter.restore(live, waiting, now);
            verdicts.into_iter().map(|(id, verdict)| (id, gate.verdict(id, verdict))).collect()
        })
    }
}

impl pools::Guest for Component {
    fn demand() -> Vec<Need> {
        operate(|gate| gate.limiter.demand().into_iter().map(convert::need).collect())
    }

    fn capacity(grant: Grant, now: Instant) {
        operate(|gate| gate.limiter.capacity(&convert::grant(grant), now));
    }
}

impl routes::Guest for Component {
    fn paths() -> Vec<String> {
        ::routes::PATHS.map(str::to_owned).into()
    }

    async fn handle(request: Request) -> Response {
        convert::response(::routes::handle(&Lent, &convert::request(request)).await)
    }
}
