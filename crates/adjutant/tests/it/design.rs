//! The pages in docs/design: each guarantee names its tests after `Test:` or `Tests:`, as the test
//! runner prints them, and each path that a page names exists. So do those that CONTRIBUTING.md
//! names.

use regex::Regex;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

static CODE: LazyLock<Regex> = LazyLock::new(|| Regex::new("`([^`\n]+)`").expect("a pattern"));

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Returns the directories of sources with tests. The module path of a test is relative to one of
/// them.
fn sources() -> impl Iterator<Item = PathBuf> {
    let crates = crate::layering::crates()
        .into_iter()
        .flat_map(|(_, dir)| [dir.join("src"), dir.join("tests/it")]);
    crates.chain([root().join("xtask/src")])
}

/// Returns the pages with their names.
fn pages() -> Vec<(String, String)> {
    let entries = std::fs::read_dir(root().join("docs/design"))
        .expect("the pages")
        .map(|entry| entry.expect("an entry").path());
    entries
        .map(|path| {
            (
                path.display().to_string(),
                std::fs::read_to_string(&path).expect("a page"),
            )
        })
        .collect()
}

fn codes(text: &str) -> Vec<&str> {
    CODE.captures_iter(text)
        .map(|code| code.get(1).expect("a group").as_str())
        .collect()
}

/// Returns whether the sources have this test. A module `tests` is a file, or a part of the file
/// above it.
fn has_test(name: &str) -> bool {
    let Some((module, function)) = name.rsplit_once("::") else {
        return false;
    };
    let (path, function) = (module.replace("::", "/"), format!("fn {function}("));
    let paths = [Some(path.as_str()), path.strip_suffix("/tests")];
    let mut files = paths
        .into_iter()
        .flatten()
        .flat_map(|path| [format!("{path}.rs"), format!("{path}/mod.rs")]);
    let has_it =
        |file: PathBuf| std::fs::read_to_string(file).is_ok_and(|text| text.contains(&function));
    files.any(|file| sources().any(|dir| has_it(dir.join(&file))))
}

#[test]
fn guarantees_of_design_pages_name_their_tests() {
    let pages: Vec<(String, String)> = pages()
        .into_iter()
        .filter(|(name, _)| !name.ends_with("README.md"))
        .collect();
    assert!(
        pages.len() >= 8 && !has_test("kills::no_such_test"),
        "{}",
        pages.len()
    );
    for (name, page) in pages {
        let (_, guarantees) = page
            .split_once("\n## Guarantees\n")
            .unwrap_or_else(|| panic!("{name} states no guarantees"));
        let items: Vec<&str> = guarantees
            .split("\n## ")
            .next()
            .unwrap_or_default()
            .split("\n- ")
            .skip(1)
            .collect();
        assert!(items.len() >= 3, "{name}");
        for item in items {
            let tests = item
                .split_once("Test: ")
                .or_else(|| item.split_once("Tests: "))
                .map(|(_, tests)| codes(tests))
                .unwrap_or_default();
            assert!(
                !tests.is_empty() && tests.iter().all(|test| has_test(test)),
                "{name}: a test is missing:\n{item}"
            );
        }
    }
}

#[test]
fn paths_of_design_pages_exist() {
    let pages = pages();
    let named = pages
        .iter()
        .flat_map(|(name, page)| codes(page).into_iter().map(move |code| (name, code)));
    let paths: Vec<(&String, &str)> = named
        .filter(|(_, code)| {
            ["crates/", "xtask/", ".ci/"]
                .iter()
                .any(|start| code.starts_with(*start))
        })
        .collect();
    assert!(paths.len() > 50, "{}", paths.len());
    let wrong: Vec<_> = paths
        .iter()
        .filter(|(_, path)| !root().join(path).exists())
        .collect();
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn tests_and_paths_of_the_recipes_exist() {
    let text = std::fs::read_to_string(root().join("CONTRIBUTING.md")).expect("CONTRIBUTING.md");
    // Names of tests are sentences; other names below modules are shorter.
    let test =
        Regex::new("^[a-z0-9_]+(::[a-z0-9_]+)*::[a-z0-9]+(_[a-z0-9]+){2,}$").expect("a pattern");
    let tests: Vec<&str> = codes(&text)
        .into_iter()
        .filter(|code| test.is_match(code))
        .collect();
    assert!(tests.len() > 20, "{tests:?}");
    let missing: Vec<&&str> = tests.iter().filter(|test| !has_test(test)).collect();
    assert!(missing.is_empty(), "{missing:#?}");
    let commands = codes(&text)
        .into_iter()
        .filter_map(|code| code.split(' ').next());
    let paths: Vec<&str> = commands
        .filter(|path| {
            ["crates/", "xtask/", ".ci/"]
                .iter()
                .any(|start| path.starts_with(start))
        })
        .collect();
    let missing: Vec<&&str> = paths
        .iter()
        .filter(|path| {
            !["NAME", "NOUN"].iter().any(|any| path.contains(any)) && !root().join(path).exists()
        })
        .collect();
    assert!(
        paths.len() > 20 && missing.is_empty(),
        "{} paths, missing: {missing:#?}",
        paths.len()
    );
}
