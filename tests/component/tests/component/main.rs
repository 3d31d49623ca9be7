//! The built component under wasmtime, without Node.

mod budget;
mod cache;
mod carry;
mod faults;
mod files;
mod gate;
mod histories;
mod hostile;
mod routes;
mod world;
