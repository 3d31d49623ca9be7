//! The proofs that take longer than a test may: `cargo xtask prove`.

use model::{Native, Size, explore, unfair, worlds};

fn main() {
    let filter = std::env::args().nth(1).unwrap_or_default();
    let size = if std::env::args().nth(2).is_some() { Size::Small } else { Size::Whole };
    for world in worlds(size).into_iter().chain([unfair()]).filter(|w| w.name.contains(&filter)) {
        match explore(&world, Native::default()) {
            Ok(covered) => println!("{}: {covered:?}", world.name),
            Err(violation) => println!("{}: {violation}", world.name),
        }
    }
}
