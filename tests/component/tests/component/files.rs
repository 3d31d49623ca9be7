//! Files that are no component of this contract: each is refused with a sentence that says what it is and what to do.

use std::path::{Path, PathBuf};

use component_tests::{release_path, runtime};
use gen_limit_runtime::{Inspection, LoadError, World};
use wit_parser::{ManglingAndAbi, Resolve};

fn bytes() -> Vec<u8> {
    std::fs::read(release_path()).expect("run `cargo xtask component`")
}

fn refused(bytes: &[u8]) -> LoadError {
    runtime().load(bytes).expect_err("it is not of this contract")
}

/// The component with one text in place of another of the same length, everywhere.
fn patched(from: &str, to: &str) -> Vec<u8> {
    assert_eq!(from.len(), to.len());
    let mut bytes = bytes();
    let mut at = 0;
    let mut count = 0;
    while let Some(found) = bytes[at..].windows(from.len()).position(|window| window == from.as_bytes()) {
        at += found;
        bytes[at..at + to.len()].copy_from_slice(to.as_bytes());
        count += 1;
    }
    assert!(count > 0, "{from} is in the file");
    bytes
}

#[test]
fn a_missing_file_is_named() {
    let error = runtime().load_file(Path::new("/nowhere/gen-limit.wasm")).expect_err("it is missing");
    assert!(matches!(error, LoadError::Unreadable { .. }));
    assert!(error.to_string().contains("/nowhere/gen-limit.wasm"), "{error}");
}

#[test]
fn a_foreign_file_is_shown_by_its_beginning() {
    for (bytes, beginning) in [(&b""[..], "empty"), (b"<html>oh", "<html>oh"), (b"\x7fELF\x02", "\\x7fELF")] {
        let error = refused(bytes);
        assert!(matches!(error, LoadError::Foreign { .. }), "{error:?}");
        assert!(error.to_string().contains(beginning), "{error}");
    }
}

#[test]
fn a_core_module_is_called_one() {
    let error = refused(b"\0asm\x01\0\0\0");
    assert!(matches!(error, LoadError::CoreModule), "{error:?}");
    assert!(error.to_string().contains("core module"), "{error}");
}

#[test]
fn a_truncated_file_is_refused_wherever_it_ends() {
    let bytes = bytes();
    let step = bytes.len() / 400;
    for length in (8..bytes.len()).step_by(step).chain(bytes.len() - 40..bytes.len()) {
        let error = refused(&bytes[..length]);
        let told = matches!(error, LoadError::Invalid { .. } | LoadError::WrongExports { .. });
        assert!(told, "cut after {length} bytes: {error:?}");
    }
}

#[test]
fn an_oversized_file_is_refused_by_its_size() {
    let error = refused(&vec![0; (64 << 20) + 1]);
    assert!(matches!(error, LoadError::TooLarge { .. }), "{error:?}");
}

/// A folder of a test's own, removed with it.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("gen-limit-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&path).expect("a folder for this test");
        Self(path)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

#[test]
fn a_file_of_200_mb_is_refused_without_being_read() {
    let folder = Folder::new("large");
    let path = folder.0.join("large.wasm");
    // A hole, so that it takes no room.
    std::fs::File::create(&path).and_then(|file| file.set_len(200_000_000)).expect("a large file");
    for error in [
        runtime().load_file(&path).expect_err("it is too large"),
        Inspection::of_file(&path).expect_err("it is too large"),
    ] {
        assert!(matches!(error, LoadError::TooLarge { size: 200_000_000, .. }), "{error:?}");
    }
}

#[test]
fn what_is_no_file_is_called_so_and_not_waited_for() {
    let folder = Folder::new("odd");
    let pipe = folder.0.join("pipe.wasm");
    let made = std::process::Command::new("mkfifo").arg(&pipe).status().expect("mkfifo is there");
    assert!(made.success());
    for (path, words) in [
        (pipe.as_path(), "no regular file"),
        (folder.0.as_path(), "it is a folder"),
        (Path::new("/dev/zero"), "no regular file"),
    ] {
        let error = runtime().load_file(path).expect_err("it is no file");
        let text = error.to_string();
        assert!(text.contains(words) && text.contains(&path.display().to_string()), "{text}");
    }
}

#[test]
fn another_world_is_named_beside_ours() {
    let mut resolve = Resolve::default();
    let wit = "package acme:cron@1.0.0; interface job { run: func(); } world job-world { export job; }";
    let package = resolve.push_str("acme.wit", wit).expect("it parses");
    let world = resolve.select_world(&[package], None).expect("its only world");
    let mut module = wit_component::dummy_module(&resolve, world, ManglingAndAbi::Standard32);
    let encoding = wit_component::StringEncoding::UTF8;
    wit_component::embed_component_metadata(&mut module, &resolve, world, encoding).expect("it embeds");
    let mut encoder = wit_component::ComponentEncoder::default();
    let bytes =
        encoder.module(&module).and_then(wit_component::ComponentEncoder::encode).expect("it encodes");
    let error = refused(&bytes);
    assert!(matches!(error, LoadError::WrongExports { .. }), "{error:?}");
    let text = error.to_string();
    assert!(text.contains("acme:cron/job@1.0.0") && text.contains("llm-stream"), "{text}");
}

#[test]
fn what_a_component_is_and_wants_is_read_off_its_bytes() {
    let found = Inspection::of_file(&release_path()).expect("run `cargo xtask component`");
    assert_eq!(found.world().expect("of this contract"), World::Plugin);
    assert_eq!((found.size, found.sha256.as_str()), (bytes().len(), component_tests::release().sha256()));
    assert!(found.imports.contains(&"dsh:plugin/log@0.1.0".into()), "{found:?}");
    assert!(found.exports.contains(&"dsh:plugin/routes@0.1.0".into()), "{found:?}");
    assert!(
        found
            .producers
            .iter()
            .any(|(part, made)| part == "processed-by" && made.starts_with("wit-component ")),
        "{found:?}"
    );
}

#[test]
fn also_of_one_that_is_refused() {
    let found =
        Inspection::of(&patched("dsh:plugin/log@0.1.0", "wasi:clock/now@0.2.0")).expect("it is a component");
    assert!(found.imports.contains(&"wasi:clock/now@0.2.0".into()), "{found:?}");
    assert!(matches!(found.world(), Err(LoadError::ForeignImport { .. })));
}

#[test]
fn what_wants_wasi_is_told_what_to_be_built_for() {
    let error = refused(&patched("dsh:plugin/log@0.1.0", "wasi:clock/now@0.2.0"));
    assert!(matches!(error, LoadError::ForeignImport { .. }), "{error:?}");
    let text = error.to_string();
    assert!(text.contains("wasi:clock/now@0.2.0") && text.contains("wasm32-unknown-unknown"), "{text}");
}

#[test]
fn what_wants_anything_else_is_told_what_is_lent() {
    let error = refused(&patched("dsh:plugin/log@0.1.0", "dsh:plugin/net@0.1.0"));
    assert!(matches!(error, LoadError::ForeignImport { .. }), "{error:?}");
    assert!(error.to_string().contains("sessions"), "{error}");
}

#[test]
fn another_version_is_named_beside_ours() {
    for other in ["@0.2.0", "@0.9.0", "@1.1.0"] {
        let error = refused(&patched("@0.1.0", other));
        assert!(matches!(error, LoadError::WrongVersion { .. }), "{error:?}");
        let text = error.to_string();
        assert!(text.contains(other) && text.contains("0.1.0"), "{text}");
    }
}

#[test]
fn a_newer_patch_of_our_version_is_accepted() {
    runtime().load(&patched("@0.1.0", "@0.1.7")).expect("patches are compatible");
}

#[test]
fn a_missing_export_is_named() {
    let error = refused(&patched("dsh:plugin/pools@0.1.0", "dsh:plugin/ponds@0.1.0"));
    let LoadError::WrongExports { found, plugin, .. } = &error else { panic!("{error:?}") };
    assert!(found.contains("ponds") && plugin.contains("pools"), "{error}");
}

#[test]
fn a_type_that_differs_is_a_mismatch() {
    let error = refused(&patched("waited-ms", "waited-us"));
    assert!(matches!(error, LoadError::Mismatch { .. }), "{error:?}");
}
