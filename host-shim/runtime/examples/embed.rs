//! A toy harness: ten tasks want the same model at once, the component lets three run at a time.
//!
//! `cargo xtask component`, then `cargo run --package gen-limit-runtime --example embed [FILE [LIMIT]]`.
//!
//! The shape is that of any host. One thread owns the plugin. It brings calls to it, tells it of their ends, hands decisions on,
//! and sleeps until something happens or the next tick is due.

use std::collections::HashMap;
use std::error::Error;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::mpsc::{self, Sender};
use std::thread;
use std::time::Duration;

use gen_limit_runtime::{
    CallId, Limits, Mode, Options, Outcome, Plugin, Route, Runtime, StreamCall, Verdict, boottime_ms,
};

const TASKS: usize = 10;

/// What tasks say to the thread that owns the plugin.
enum Event {
    /// A task wants to start; it listens for whether it may.
    Ready { task: usize, answer: Sender<Result<CallId, String>> },
    /// Its call is over.
    Done(CallId),
}

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let file = arguments.next().unwrap_or_else(|| "target/component/gen-limit.wasm".into());
    let limit: usize = arguments.next().as_deref().unwrap_or("3").parse()?;

    let runtime = Runtime::new()?;
    let component = runtime.load_file(file.as_ref())?;
    println!("{file}: {} bytes, sha256 {}", component.size(), component.sha256());
    let config = format!(r#"{{"limits":[{{"provider":"toy","model":"model","max":{limit}}}]}}"#);
    let options = Options { limits: Limits::default(), config, mode: Mode::Strict };
    let (mut plugin, _) = Plugin::new(&runtime, component, options, boottime_ms())?;

    let (events, inbox) = mpsc::channel();
    let (running, peak, worked) = (AtomicUsize::new(0), AtomicUsize::new(0), AtomicUsize::new(0));
    thread::scope(|scope| {
        for task in 0..TASKS {
            let (events, running, peak, worked) = (events.clone(), &running, &peak, &worked);
            scope.spawn(move || {
                if run_task(task, &events, running, peak) {
                    worked.fetch_add(1, SeqCst);
                }
            });
        }
        drop(events);

        let mut waiting: HashMap<CallId, Sender<Result<CallId, String>>> = HashMap::new();
        loop {
            let now = boottime_ms();
            let until_tick = plugin.next_tick().map_or(u64::MAX, |due| due.saturating_sub(now));
            match inbox.recv_timeout(Duration::from_millis(until_tick.min(60_000))) {
                Ok(Event::Ready { task, answer }) => {
                    let started = plugin.start_stream(call(task), boottime_ms());
                    match started.verdict {
                        Verdict::Admit => drop(answer.send(Ok(started.id))),
                        Verdict::Deny(refusal) => drop(answer.send(Err(refusal.message))),
                        Verdict::Wait { .. } => drop(waiting.insert(started.id, answer)),
                    }
                }
                Ok(Event::Done(id)) => plugin.finish(id, Outcome::Completed, boottime_ms()),
                Err(mpsc::RecvTimeoutError::Timeout) => plugin.tick(boottime_ms()),
                Err(mpsc::RecvTimeoutError::Disconnected) => break,
            }
            for settled in plugin.take_settled() {
                if let Some(answer) = waiting.remove(&settled.id) {
                    drop(answer.send(settled.result.map(|()| settled.id).map_err(|refusal| refusal.message)));
                }
            }
            for line in plugin.take_log() {
                eprintln!("{:?}: {}", line.level, line.message);
            }
        }
    });

    let (worked, peak) = (worked.load(SeqCst), peak.load(SeqCst));
    println!("{worked} of {TASKS} tasks worked, limit {limit}, peak {peak}");
    if worked != TASKS {
        return Err("a task was not let through".into());
    }
    if peak != limit.min(TASKS) {
        return Err(format!("{peak} tasks ran at once, expected {}", limit.min(TASKS)).into());
    }
    Ok(())
}

/// Waits for its turn, works, says that it is done. Whether it worked.
fn run_task(task: usize, events: &Sender<Event>, running: &AtomicUsize, peak: &AtomicUsize) -> bool {
    let (answer, decision) = mpsc::channel();
    if events.send(Event::Ready { task, answer }).is_err() {
        return false;
    }
    match decision.recv() {
        Ok(Ok(id)) => {
            peak.fetch_max(running.fetch_add(1, SeqCst) + 1, SeqCst);
            println!("task {task} works");
            thread::sleep(Duration::from_millis(50));
            running.fetch_sub(1, SeqCst);
            events.send(Event::Done(id)).is_ok()
        }
        Ok(Err(refusal)) => {
            println!("task {task} may not start: {refusal}");
            false
        }
        Err(_) => {
            println!("task {task} got no answer");
            false
        }
    }
}

fn call(task: usize) -> StreamCall {
    StreamCall {
        route: Route { provider: "toy".into(), model: "model".into() },
        session: Some(format!("task-{task}")),
        root: None,
        parent: None,
        first: true,
        spawn: None,
        purpose: "conversation".into(),
        extra: Vec::new(),
    }
}
