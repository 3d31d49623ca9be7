//! Random histories through the native limiter.

use model::{Native, drive, fair_history, history, starve};
use proptest::proptest;
use proptest::test_runner::{Config, FileFailurePersistence};

fn config(cases: u32) -> Config {
    Config {
        cases,
        max_shrink_iters: 20_000,
        failure_persistence: Some(Box::new(FileFailurePersistence::Direct("tests/limiter.regressions"))),
        ..Config::default()
    }
}

proptest! {
    #![proptest_config(config(20_000))]

    #[test]
    fn every_history_goes_as_the_rules_say((world, steps) in history(40, false)) {
        drive(Native::default(), &world, &steps, false);
    }
}

proptest! {
    #![proptest_config(config(13_000))]

    #[test]
    fn every_history_with_pools_goes_as_the_rules_say((world, steps) in history(40, true)) {
        drive(Native::default(), &world, &steps, true);
    }
}

proptest! {
    #![proptest_config(config(3_000))]

    #[test]
    fn nobody_starves_while_holdings_end((world, steps, arrivals) in fair_history()) {
        starve(Native::default(), &world, &steps, &arrivals);
    }
}
