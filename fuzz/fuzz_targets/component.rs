//! Whatever lies in a file: what it is is said in words or found out, and what can be brought to work is harmless.
#![no_main]

use std::sync::LazyLock;

use gen_limit_runtime::{
    Inspection, Limits, Mode, Options, Outcome, Plugin, Request, Route, Runtime, StreamCall,
};
use libfuzzer_sys::fuzz_target;

static RUNTIME: LazyLock<Runtime> = LazyLock::new(|| Runtime::new().expect("an engine"));

/// A refusal is a sentence, however long the names in the file are.
fn is_a_sentence(error: &dyn std::error::Error) {
    let words = error.to_string();
    assert!(!words.is_empty() && words.len() < 4_096 && !words.contains('\0'), "{words}");
}

fuzz_target!(|bytes: &[u8]| {
    let world = match Inspection::of(bytes) {
        Ok(inspection) => {
            assert_eq!((inspection.size, inspection.sha256.len()), (bytes.len(), 64));
            inspection.world()
        }
        Err(error) => Err(error),
    };
    let world = match world {
        Ok(world) => world,
        Err(error) => return is_a_sentence(&error),
    };
    // Only what has the right names is worth a compiler's time.
    let component = match RUNTIME.load(bytes) {
        Ok(component) => component,
        Err(error) => return is_a_sentence(&error),
    };
    assert_eq!(component.world(), world);
    let options = Options { limits: Limits::foreign(), config: "{}".into(), mode: Mode::Strict };
    let mut plugin = match Plugin::new(&RUNTIME, component, options, 1) {
        Ok((plugin, _)) => plugin,
        Err(error) => return is_a_sentence(&error),
    };
    let call = StreamCall {
        route: Route { provider: "p".into(), model: "m".into() },
        session: Some("s".into()),
        root: None,
        parent: None,
        first: true,
        spawn: None,
        purpose: "conversation".into(),
        extra: Vec::new(),
    };
    let ids = [plugin.start_stream(call.clone(), 2).id, plugin.start_stream(call, 3).id];
    if let Some(path) = plugin.paths().first().cloned() {
        plugin.request(Request { method: "GET".into(), path, ..Request::default() }, 4);
        plugin.turn(5);
    }
    plugin.tick(6);
    for id in ids {
        plugin.finish(id, Outcome::Completed, 7);
    }
    let status = plugin.status();
    assert_eq!((status.live, status.waiting), (0, 0));
    assert!(plugin.take_settled().is_empty());
});
