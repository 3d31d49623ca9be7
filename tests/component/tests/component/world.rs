//! The built component is of the contract's world and of no other.

use std::collections::BTreeSet;
use std::path::Path;

use component_tests::{release_path, runtime};
use gen_limit_runtime::{Limits, Mode, Options, Plugin, StartError};
use wit_component::DecodedWasm;
use wit_parser::{ManglingAndAbi, Resolve, WorldId};

fn contract(world: &str) -> (Resolve, WorldId) {
    let mut resolve = Resolve::default();
    let wit = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../wit");
    let (package, _) = resolve.push_dir(wit).expect("the contract parses");
    let world = resolve.select_world(&[package], Some(world)).expect("the world is there");
    (resolve, world)
}

fn names(resolve: &Resolve, world: WorldId) -> (BTreeSet<String>, BTreeSet<String>) {
    let world = &resolve.worlds[world];
    let name = |key| resolve.name_world_key(key);
    (world.imports.keys().map(name).collect(), world.exports.keys().map(name).collect())
}

#[test]
fn exports_equal_the_world_and_imports_are_among_its_own() {
    let bytes = std::fs::read(release_path()).expect("run `cargo xtask component`");
    let DecodedWasm::Component(found, root) = wit_component::decode(&bytes).expect("it decodes") else {
        panic!("not a component");
    };
    let (resolve, world) = contract("plugin");
    let ((imports, exports), (lent, expected)) = (names(&found, root), names(&resolve, world));
    assert_eq!(exports, expected);
    assert!(imports.is_subset(&lent), "{imports:?}");
    assert!(!imports.iter().any(|name| name.starts_with("wasi:")), "{imports:?}");
    wit_component::targets(&resolve, world, &bytes).expect("every type fits");
}

#[test]
fn a_component_of_the_smaller_world_is_accepted_and_its_fault_is_told() {
    let (resolve, world) = contract("hooks");
    let mut module = wit_component::dummy_module(&resolve, world, ManglingAndAbi::Standard32);
    wit_component::embed_component_metadata(
        &mut module,
        &resolve,
        world,
        wit_component::StringEncoding::UTF8,
    )
    .expect("it embeds");
    let mut encoder = wit_component::ComponentEncoder::default();
    let bytes =
        encoder.module(&module).and_then(wit_component::ComponentEncoder::encode).expect("it encodes");

    let component = runtime().load(&bytes).expect("`hooks` is one of the two worlds");
    let options = Options { limits: Limits::default(), config: "{}".into(), mode: Mode::Strict };
    let Err(StartError::Fault(fault)) = Plugin::new(runtime(), component, options, 0) else {
        panic!("there is only a trap behind every export");
    };
    assert!(fault.to_string().contains("unreachable"), "{fault}");
}

#[test]
fn every_item_of_the_contract_is_documented_and_begins_with_a_sentence() {
    let (resolve, _) = contract("plugin");
    let mut bare = Vec::new();
    let mut check = |what: String, docs: &wit_parser::Docs| {
        let first = docs.contents.as_deref().and_then(|text| text.split("\n\n").next()).unwrap_or_default();
        if !first.trim_end().ends_with(['.', ';']) && !first.trim_end().ends_with(':') {
            bare.push(what);
        }
    };
    for (_, interface) in &resolve.interfaces {
        let name = interface.name.clone().unwrap_or_default();
        check(name.clone(), &interface.docs);
        for function in interface.functions.values() {
            check(format!("{name}.{}", function.name), &function.docs);
        }
    }
    for (_, ty) in &resolve.types {
        let Some(name) = ty.name.clone() else { continue };
        // A `use` of another interface's type has its documentation there.
        if matches!(ty.kind, wit_parser::TypeDefKind::Type(wit_parser::Type::Id(_))) {
            continue;
        }
        check(name.clone(), &ty.docs);
        let mut parts = |docs: Vec<(&String, &wit_parser::Docs)>| {
            for (part, docs) in docs {
                check(format!("{name}.{part}"), docs);
            }
        };
        match &ty.kind {
            wit_parser::TypeDefKind::Record(record) => {
                parts(record.fields.iter().map(|f| (&f.name, &f.docs)).collect());
            }
            wit_parser::TypeDefKind::Variant(variant) => {
                parts(variant.cases.iter().map(|c| (&c.name, &c.docs)).collect());
            }
            wit_parser::TypeDefKind::Enum(cases) => {
                parts(cases.cases.iter().map(|c| (&c.name, &c.docs)).collect());
            }
            _ => {}
        }
    }
    for (_, world) in &resolve.worlds {
        check(world.name.clone(), &world.docs);
    }
    assert!(bare.is_empty(), "without a first sentence: {bare:?}");
}
