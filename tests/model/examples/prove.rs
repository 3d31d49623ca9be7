//! The proofs that take longer than a test may: `cargo xtask prove`.

use model::{Native, all, explore};

fn main() {
    for world in all() {
        match explore(&world, Native::default()) {
            Ok(covered) => println!("{}: {covered:?}", world.name),
            Err(violation) => println!("{}: {violation}", world.name),
        }
    }
}
