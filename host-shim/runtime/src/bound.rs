//! Texts from the harness and refusals from components, bounded before anybody else sees them.
//!
//! A session's or model's id is whatever the harness, or whoever drives it, says. It is kept for as long as the call lives, is
//! told to every successor and may be quoted in an answer; so megabytes of it would break the bounds of one call, again and
//! again. A text longer than [`MAX_TEXT_BYTES`] is replaced by its beginning and its digest: two that differ stay different.
//! What a component says when it refuses a call is kept until somebody takes it, ten thousand times if it likes; so that is
//! bounded as well. So is what it finds wrong with its configuration, which everybody who looks is told.

use std::fmt::Write as _;

use sha2::{Digest, Sha256};

use crate::{Outcome, Problem, Refusal, RefusalReason, Route, StreamCall, ToolCall};

/// The greatest length of a text, in bytes; also of what replaces a longer one.
pub(crate) const MAX_TEXT_BYTES: usize = 1 << 10;

/// Texts of a refusal are cut after so many bytes: they quote a few of ours, each in the longest way it can be written.
const MAX_MESSAGE_BYTES: usize = 16 << 10;

/// Texts of all the problems with one configuration together; those that come after are counted.
const MAX_PROBLEMS_BYTES: usize = 64 << 10;

const MARK: &str = "…sha256:";

pub(crate) fn stream(mut call: StreamCall) -> StreamCall {
    let StreamCall { route, session, root, parent, first: _, spawn: _, purpose, extra } = &mut call;
    bound_route(route);
    [session, root, parent].into_iter().flatten().for_each(text);
    text(purpose);
    bound_extra(extra);
    call
}

pub(crate) fn tool(mut call: ToolCall) -> ToolCall {
    let ToolCall { tool, session, route, extra } = &mut call;
    text(tool);
    session.iter_mut().for_each(text);
    route.iter_mut().for_each(bound_route);
    bound_extra(extra);
    call
}

pub(crate) fn outcome(mut outcome: Outcome) -> Outcome {
    if let Outcome::Failed(failure) = &mut outcome {
        text(&mut failure.code);
    }
    outcome
}

fn bound_route(route: &mut Route) {
    text(&mut route.provider);
    text(&mut route.model);
}

fn bound_extra(extra: &mut [(String, String)]) {
    for (key, value) in extra {
        text(key);
        text(value);
    }
}

/// What a component says when it refuses.
pub(crate) fn refusal(refusal: &mut Refusal) {
    let Refusal { code, reason, message } = refusal;
    text(code);
    cut(message);
    match reason {
        RefusalReason::QueueFull(full) => cut(&mut full.scope),
        RefusalReason::QueueTimeout(end) | RefusalReason::Paused(end) | RefusalReason::NoPoolSeat(end) => {
            cut(&mut end.scope);
        }
        RefusalReason::Other(words) => words.iter_mut().for_each(cut),
    }
}

/// What a component finds wrong with a configuration.
pub(crate) fn problems(problems: &mut Vec<Problem>) {
    let mut bytes = 0;
    for Problem { path, message } in &mut *problems {
        text(path);
        cut(message);
    }
    let fits = |problem: &&Problem| {
        bytes += problem.path.len() + problem.message.len();
        bytes <= MAX_PROBLEMS_BYTES
    };
    let (found, kept) = (problems.len(), problems.iter().take_while(fits).count());
    if kept < found {
        problems.truncate(kept);
        problems
            .push(Problem { path: String::new(), message: format!("and {} more problems", found - kept) });
    }
}

pub(crate) fn cut(text: &mut String) {
    if text.len() > MAX_MESSAGE_BYTES {
        text.truncate(text.floor_char_boundary(MAX_MESSAGE_BYTES));
        text.push('…');
    }
}

pub(crate) fn text(text: &mut String) {
    if text.len() <= MAX_TEXT_BYTES {
        return;
    }
    let digest = Sha256::digest(text.as_bytes());
    let kept = MAX_TEXT_BYTES - MARK.len() - 2 * digest.len();
    let mut short = String::with_capacity(MAX_TEXT_BYTES);
    short.push_str(&text[..text.floor_char_boundary(kept)]);
    short.push_str(MARK);
    for byte in digest {
        // A string takes whatever is written.
        let _ = write!(short, "{byte:02x}");
    }
    *text = short;
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bounded(long: &str) -> String {
        let mut short = long.to_owned();
        text(&mut short);
        short
    }

    #[test]
    fn a_text_of_the_greatest_length_is_left_alone_and_one_more_byte_is_not() {
        let greatest = "x".repeat(MAX_TEXT_BYTES);
        assert_eq!(bounded(&greatest), greatest);
        let replaced = bounded(&format!("{greatest}x"));
        assert!(replaced.starts_with("xxx") && replaced.contains(MARK), "{replaced}");
        assert_eq!(replaced.len(), MAX_TEXT_BYTES);
    }

    #[test]
    fn long_texts_that_differ_anywhere_stay_different_and_equal_ones_equal() {
        let long = "\u{202e}".repeat(500_000);
        let texts = [long.clone(), format!("{long}a"), format!("{long}b"), format!("a{long}")];
        for (a, left) in texts.iter().enumerate() {
            for (b, right) in texts.iter().enumerate() {
                assert_eq!(bounded(left) == bounded(right), a == b);
            }
            assert!(bounded(left).len() <= MAX_TEXT_BYTES);
        }
    }

    #[test]
    fn nothing_that_a_component_says_when_it_refuses_is_longer_than_it_may_be() {
        use crate::{LineFull, WaitEnded};
        let long = || "\u{202e}".repeat(100_000);
        let end = || WaitEnded { scope: long(), waited_ms: 1, occupancy: 1, limit: 1 };
        for reason in [
            RefusalReason::QueueFull(LineFull { scope: long(), waiting: 1, bound: 1 }),
            RefusalReason::QueueTimeout(end()),
            RefusalReason::Paused(end()),
            RefusalReason::NoPoolSeat(end()),
            RefusalReason::Other(Some(long())),
        ] {
            let mut refused = Refusal { code: long(), reason, message: long() };
            refusal(&mut refused);
            let size = format!("{refused:?}").len();
            // A character of three bytes is written in eight.
            assert!(size < 8 * MAX_MESSAGE_BYTES, "{size}");
        }
    }

    #[test]
    fn problems_are_told_as_long_as_they_fit_and_then_counted() {
        let problem = |n: usize| Problem { path: format!("limits[{n}]"), message: "x".repeat(100) };
        let mut few: Vec<_> = (0..100).map(problem).collect();
        let whole = format!("{few:?}");
        problems(&mut few);
        assert_eq!(format!("{few:?}"), whole);
        let mut many: Vec<_> = (0..10_000).map(problem).collect();
        many[1].message = "\u{202e}".repeat(100_000);
        many[2].path = "x".repeat(100_000);
        problems(&mut many);
        let size: usize = many.iter().map(|problem| problem.path.len() + problem.message.len()).sum();
        assert!(size <= MAX_PROBLEMS_BYTES + 100, "{size}");
        let rest = 10_000 - (many.len() - 1);
        assert_eq!(many.last().map(|last| last.message.clone()), Some(format!("and {rest} more problems")));
    }

    #[test]
    fn no_text_of_a_call_is_left_out() {
        let long = || "x".repeat(MAX_TEXT_BYTES + 1);
        let route = || Route { provider: long(), model: long() };
        let extra = || vec![(long(), long())];
        let call = stream(StreamCall {
            route: route(),
            session: Some(long()),
            root: Some(long()),
            parent: Some(long()),
            first: true,
            spawn: None,
            purpose: long(),
            extra: extra(),
        });
        assert!(!format!("{call:?}").contains(&long()), "{call:?}");
        let call =
            tool(ToolCall { tool: long(), session: Some(long()), route: Some(route()), extra: extra() });
        assert!(!format!("{call:?}").contains(&long()), "{call:?}");
    }
}
