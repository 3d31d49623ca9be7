//! What things cost: `cargo run --release --package component-tests --example cost`.

use std::time::{Duration, Instant};

use component_tests::{Host, is_waiting, limit, release, runtime};
use gen_limit_runtime::ProcessPool;

fn main() {
    let bytes = std::fs::read(component_tests::release_path()).expect("run `cargo xtask component`");
    let (took, _) = timed(|| runtime().load(&bytes).expect("it is a component"));
    println!("component: {} bytes, load and compile {took:?}", bytes.len());

    let component = release();
    let (took, ()) = timed(|| {
        for _ in 0..200 {
            drop(Host::new(component.clone(), &limit(1, "")));
        }
    });
    println!("a plugin from a compiled component: {:?}", took / 200);

    let mut host = Host::new(component.clone(), &limit(2, ""));
    host.stream("somebody");
    println!(
        "start and finish, admitted: {:?}",
        each(200_000, || {
            let id = host.stream("session").id;
            host.end(id);
        })
    );

    let mut host = Host::new(component.clone(), &limit(1, ""));
    let mut running = host.stream("first").id;
    let mut sessions = ["even", "odd"].into_iter().cycle();
    println!(
        "start, wait, settle and finish: {:?}",
        each(100_000, || {
            let next = host.stream(sessions.next().unwrap_or_default()).id;
            host.end(running);
            assert_eq!(host.admitted(), [next]);
            running = next;
        })
    );

    let ceiling =
        |ceiling: u32| format!(r#"{{"ceilings":[{{"provider":"p","model":"m","max":{ceiling}}}]}}"#);
    let pool = ProcessPool::shared();
    let mut tenants: Vec<Host> = (0..2).map(|_| Host::new(component.clone(), &ceiling(1))).collect();
    for host in &mut tenants {
        host.plugin.join(pool.clone(), "tenant", host.now);
    }
    println!(
        "start and finish under a ceiling that nobody else wants: {:?}",
        each(200_000, || {
            let id = tenants[0].stream("session").id;
            tenants[0].end(id);
        })
    );
    // Who asks gets what comes free elsewhere: a turn each.
    let spread = |tenants: &mut [Host]| {
        // Not within the loop: the lock would be held while they take theirs.
        let news = pool.lock().expect("no panic").news();
        for member in news {
            let host = tenants.iter_mut().find(|host| host.plugin.member() == Some(member));
            if let Some(host) = host {
                host.plugin.collect_grants(host.now);
            }
        }
    };
    let mut running = (0, tenants[0].stream("session").id);
    println!(
        "start, wait for another tenant's seat, settle and finish: {:?}",
        each(20_000, || {
            let (of, id) = running;
            let next = tenants[1 - of].stream("session").id;
            spread(&mut tenants);
            tenants[of].end(id);
            spread(&mut tenants);
            assert_eq!(tenants[1 - of].admitted(), [next]);
            running = (1 - of, next);
        })
    );

    for waiters in [1_000, 10_000, 100_000, 200_000] {
        let config = limit(0, &format!(r#","maxWaiting":{waiters},"maxQueued":{waiters}"#));
        let mut host = Host::new(component.clone(), &config);
        let (arrived, ()) = timed(|| {
            for n in 0..waiters {
                assert!(is_waiting(&host.stream(&format!("session-{n:032}"))));
            }
        });
        let memory = host.plugin.status().memory_bytes >> 20;
        let (rebuilt, result) = timed(|| host.plugin.replace(component.clone(), host.now));
        result.expect("the same component again");
        assert_eq!(host.plugin.status().waiting, waiters);
        let (released, ()) = timed(|| host.plugin.release_all(host.now));
        println!(
            "{waiters} waiters: {memory} MiB, {:?} to arrive each, rebuilt in {rebuilt:?}, released in {released:?}",
            arrived / waiters as u32
        );
    }
}

fn timed<T>(run: impl FnOnce() -> T) -> (Duration, T) {
    let start = Instant::now();
    let result = run();
    (start.elapsed(), result)
}

fn each(times: u32, mut run: impl FnMut()) -> Duration {
    timed(|| (0..times).for_each(|_| run())).0 / times
}
