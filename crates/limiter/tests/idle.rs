//! Routes that nobody is on are kept for the next call, and nothing can be seen of it.

mod common;

use common::{Desk, admits, desk, waits};
use limiter::Stats;

fn scopes(stats: &Stats) -> Vec<&str> {
    stats.scopes.iter().map(|scope| scope.scope.as_str()).collect()
}

#[test]
fn nothing_is_listed_of_a_route_that_nobody_is_on() {
    let mut desk = desk(1);
    let (id, _) = desk.call_on("q/x", "a");
    assert_eq!(scopes(&desk.stats()), ["p/m", "q/x", "q/*", "*/*"]);
    desk.end(id);
    let stats = desk.stats();
    assert_eq!(scopes(&stats), ["p/m"]);
    assert_eq!((stats.scopes_total, stats.entries, stats.entries_total), (1, vec![], 0));
    desk.call_on("q/y", "a");
    assert_eq!(scopes(&desk.stats()), ["p/m", "q/y", "q/*", "*/*"]);
}

#[test]
fn what_a_scope_has_seen_is_forgotten_with_the_last_unless_it_is_configured() {
    let mut desk = desk(1);
    for n in 1..=3 {
        let first = desk.call("a").0;
        let second = desk.call_on("p/x", "b").0;
        desk.pass(10);
        for text in ["p/x", "p/*", "*/*"] {
            let scope = desk.scope(text);
            let admitted = if text == "p/x" { 1 } else { 2 };
            assert_eq!((scope.totals.admitted, scope.mean_call_ms), (admitted, None), "{text}");
        }
        let seen = desk.scope("p/m");
        assert_eq!((seen.totals.admitted, seen.mean_call_ms), (n, (n > 1).then_some(10)));
        // The provider is busy as long as one of its routes is.
        desk.end(first);
        let provider = desk.scope("p/*");
        assert_eq!((provider.totals.admitted, provider.mean_call_ms), (2, Some(10)));
        assert_eq!(provider.wait_ms.map(|waits| waits.of), Some(2));
        desk.end(second);
    }
}

#[test]
fn a_limit_that_comes_while_nobody_is_there_holds_for_the_next() {
    let mut desk = Desk::new("{}");
    let free = |desk: &mut Desk| {
        let ids = [desk.call("a"), desk.call("b")].map(|(id, verdict)| (id, admits(&verdict)));
        for &(id, _) in &ids {
            desk.end(id);
        }
        ids.map(|(_, admitted)| admitted)
    };
    assert_eq!(free(&mut desk), [true, true]);
    for (config, admitted) in [
        (r#"{"limits":[{"provider":"p","model":"m","max":1}]}"#, [true, false]),
        (r#"{"limits":[{"provider":"p","model":"m","max":0}]}"#, [false, false]),
        ("{}", [true, true]),
        (r#"{"groups":[{"name":"g","max":1,"routes":[{"provider":"p","model":"m"}]}]}"#, [true, false]),
        (r#"{"groups":[{"name":"g","max":1,"routes":[{"provider":"p","model":"x"}]}]}"#, [true, true]),
    ] {
        desk.configure(config);
        assert_eq!(free(&mut desk), admitted, "{config}");
        assert_eq!(free(&mut desk), admitted, "{config}, again");
    }
}

#[test]
fn routes_beyond_those_that_are_kept_begin_anew() {
    let mut desk = desk(1);
    let ids: Vec<_> = (0..100).map(|n| desk.call_on(&format!("q{n}/x"), &format!("s{n}")).0).collect();
    assert_eq!(desk.stats().scopes_total, 1 + 100 + 100 + 1);
    for id in ids {
        desk.end(id);
    }
    assert_eq!(scopes(&desk.stats()), ["p/m"]);
    for n in 0..100 {
        let (id, verdict) = desk.call_on(&format!("q{n}/x"), "s");
        assert!(admits(&verdict));
        let totals = desk.scope(&format!("q{n}/*")).totals;
        assert_eq!(totals.admitted, 1, "of {n}");
        desk.end(id);
    }
    desk.call("a");
    assert!(waits(&desk.call("b").1));
}
