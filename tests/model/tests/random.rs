//! Long random histories: a million steps, in parts. `cargo xtask prove random` goes ten times as far.

use model::{Native, Plan, long};

fn histories(seeds: std::ops::Range<u64>) {
    for seed in seeds {
        let plan = Plan { steps: 50_000, ..Plan::large(seed) };
        let (waited, _) = long(Native::default(), plan);
        assert!(waited > plan.steps / 5, "few waited: {waited}");
    }
}

#[test]
fn long_histories_go_as_the_rules_say() {
    histories(0..10);
}

#[test]
fn other_long_histories_go_as_the_rules_say() {
    histories(10..20);
}
