//! What `docs/write-a-plugin.md` tells to write is built as it tells, and does what it says.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use component_tests::{Host, ROUTE, denied, is_admitted, runtime};
use gen_limit_runtime::World;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// The one block of a language in a page.
fn block<'a>(page: &'a str, language: &str) -> &'a str {
    let mut blocks = page.split("\n```").filter_map(|block| block.strip_prefix(language)?.strip_prefix('\n'));
    let found = blocks.next().expect("a block of that language");
    assert!(blocks.next().is_none(), "one block of {language} alone");
    found
}

fn build() -> PathBuf {
    let page = fs::read_to_string(root().join("docs/write-a-plugin.md")).expect("the page");
    let folder = root().join("target/tutorial/allow-list");
    for part in ["src", "wit"] {
        fs::create_dir_all(folder.join(part)).expect("a folder");
    }
    fs::write(folder.join("Cargo.toml"), block(&page, "toml")).expect("written");
    fs::write(folder.join("src/lib.rs"), block(&page, "rust")).expect("written");
    for file in fs::read_dir(root().join("wit")).expect("wit") {
        let file = file.expect("a file");
        fs::copy(file.path(), folder.join("wit").join(file.file_name())).expect("copied");
    }
    // The versions that everything else is tested with.
    fs::copy(root().join("Cargo.lock"), folder.join("Cargo.lock")).expect("copied");
    let built = Command::new(env!("CARGO"))
        .args(["run", "--quiet", "--package", "xtask", "--", "plugin"])
        .arg(&folder)
        .current_dir(root())
        .output()
        .expect("cargo");
    assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
    String::from_utf8(built.stdout).expect("a path").trim().into()
}

#[test]
fn the_plugin_of_the_page_is_built_and_decides() {
    let component = runtime().load_file(&build()).expect("a component");
    assert_eq!(component.world(), World::Hooks);
    let (provider, model) = ROUTE;
    for (config, passes) in [
        ("{}".to_owned(), true),
        (r#"{"allow":[]}"#.to_owned(), false),
        (format!(r#"{{"allow":["{provider}/{model}"]}}"#), true),
        (format!(r#"{{"allow":["{provider}/*"]}}"#), true),
        (format!(r#"{{"allow":["{provider}/other"]}}"#), false),
    ] {
        let mut host = Host::new(component.clone(), &config);
        let started = host.stream("s");
        if passes {
            assert!(is_admitted(&started), "{config}");
        } else {
            assert_eq!(denied(&started).code, "NOT_ALLOWED", "{config}");
        }
    }
}
