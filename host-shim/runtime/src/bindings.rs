//! What `bindgen!` makes of `wit/`: the macro and nothing else.

#![allow(
    missing_docs,
    clippy::all,
    clippy::pedantic,
    reason = "generated from wit/, where every item is documented"
)]

wasmtime::component::bindgen!({
    path: "../../wit",
    world: "plugin",
    imports: {
        "dsh:plugin/settings": store | trappable,
        "dsh:plugin/sessions": store | trappable,
        "dsh:plugin/models": store | trappable,
    },
});
