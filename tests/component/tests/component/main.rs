//! The built component under wasmtime, without Node.

mod budget;
mod cache;
mod carry;
mod ceilings;
mod chain;
mod faults;
mod files;
mod folder;
mod gate;
mod histories;
mod hostile;
mod precompiled;
mod routes;
mod tutorial;
mod world;
