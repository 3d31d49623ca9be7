//! What `generate!` makes of `wit/`: the macro and nothing else.

#![allow(
    missing_docs,
    clippy::all,
    clippy::pedantic,
    reason = "generated from wit/, where every item is documented"
)]

wit_bindgen::generate!({
    path: "../../../../wit",
    world: "plugin",
    pub_export_macro: true,
    default_bindings_module: "crate::bindings",
});
