//! Checks that the files of a module do not depend on each other in a cycle.

use super::{crate_dir, sources};
use regex::Regex;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// A module's path below the crate's root: `["mcp", "lines"]`.
type Module = Vec<String>;

#[test]
fn siblings_use_each_other_in_one_direction() {
    let mut circles = Vec::new();
    for root in ["src", "../adjutant-core/src", "../adjutant-stream/src", "../../xtask/src"] {
        circles.extend(circles_below(&crate_dir().join(root)));
    }
    assert!(circles.is_empty(), "{}", circles.join("\n"));
}

/// Returns each group of siblings that use each other in a cycle, with the edges.
fn circles_below(root: &Path) -> Vec<String> {
    let files: BTreeMap<Module, String> = sources(root).into_iter().map(|(_, file, code)| (module(&file), code)).collect();
    let uses: BTreeMap<&Module, BTreeSet<Module>> = files.iter().map(|(from, code)| (from, used(from, code, &files))).collect();
    let parents: BTreeSet<&[String]> = files.keys().flat_map(|file| (0..file.len()).map(|depth| &file[..depth])).collect();
    // The root only declares modules; LAYERS has their directions.
    let rooms = parents.into_iter().filter(|room| !room.is_empty());
    rooms.filter_map(|room| circle(&siblings(room, &uses)).map(|edges| format!("{}: {edges}", room.join("::")))).collect()
}

fn module(file: &Path) -> Module {
    let mut parts: Module = file.with_extension("").iter().map(|part| part.to_string_lossy().into_owned()).collect();
    if parts.last().is_some_and(|last| last == "mod") {
        parts.pop();
    }
    parts
}

/// Returns the edges between the children of `room`, each with everything below it.
fn siblings<'a>(room: &[String], uses: &'a BTreeMap<&Module, BTreeSet<Module>>) -> BTreeMap<&'a str, BTreeSet<&'a str>> {
    let child = |module: &'a Module| (module.len() > room.len() && module.starts_with(room)).then(|| module[room.len()].as_str());
    let mut edges: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for (from, all) in uses {
        let Some(from) = child(from) else { continue };
        edges.entry(from).or_default().extend(all.iter().filter_map(child).filter(|to| *to != from));
    }
    edges
}

/// Repeatedly removes modules that use none of the remaining ones. What is left contains a cycle.
fn circle(edges: &BTreeMap<&str, BTreeSet<&str>>) -> Option<String> {
    let mut left = edges.clone();
    loop {
        let names: BTreeSet<&str> = left.keys().copied().collect();
        left.values_mut().for_each(|to| to.retain(|to| names.contains(to)));
        let before = left.len();
        left.retain(|_, to| !to.is_empty());
        if left.is_empty() {
            return None;
        }
        if left.len() == before {
            let one = |(from, to): (&&str, &BTreeSet<&str>)| format!("{from} -> {}", to.iter().copied().collect::<Vec<_>>().join(", "));
            return Some(left.iter().map(one).collect::<Vec<_>>().join("; "));
        }
    }
}

/// Returns the modules that the code of `from` names.
fn used(from: &Module, code: &str, files: &BTreeMap<Module, String>) -> BTreeSet<Module> {
    let imports = Regex::new(r"\buse ([^;]+);").expect("a pattern");
    let mut paths: Vec<Vec<String>> = imports.captures_iter(code).flat_map(|import| tree(&import[1])).collect();
    let rest = imports.replace_all(code, "");
    let path = Regex::new(r"\b[a-z_]\w*(?:::\w+)+").expect("a pattern");
    paths.extend(path.find_iter(&rest).map(|found| found.as_str().split("::").map(str::to_owned).collect()));
    paths.iter().filter_map(|path| target(from, path, files)).filter(|to| to != from).collect()
}

/// Returns the paths of an import: `a::{b, c::d}` is `a::b` and `a::c::d`.
fn tree(text: &str) -> Vec<Vec<String>> {
    let text: String = text.split_whitespace().collect::<Vec<_>>().join(" ");
    let Some((prefix, group)) = text.split_once('{') else {
        let path = text.split(" as ").next().expect("a path");
        return vec![path.split("::").map(|part| part.trim().to_owned()).collect()];
    };
    let prefix: Vec<String> = prefix.split("::").map(str::trim).filter(|part| !part.is_empty()).map(str::to_owned).collect();
    let group = group.trim_end().strip_suffix('}').expect("a closed group");
    let mut depth = 0;
    let parts = group.split(|c: char| {
        depth += i32::from(c == '{') - i32::from(c == '}');
        c == ',' && depth == 0
    });
    let parts = parts.map(str::trim).filter(|part| !part.is_empty());
    parts.flat_map(|part| tree(part).into_iter().map(|rest| [prefix.clone(), rest].concat())).collect()
}

/// Resolves a path to a module, as seen from `from`. `None`: another crate, or an item of `from`.
fn target(from: &Module, path: &[String], files: &BTreeMap<Module, String>) -> Option<Module> {
    let ups = path.iter().take_while(|part| *part == "super").count();
    let full = match path.first()?.as_str() {
        "crate" => path[1..].to_vec(),
        "super" => [&from[..from.len().checked_sub(ups)?], &path[ups..]].concat(),
        "self" => [from, &path[1..]].concat(),
        _ => [from, path].concat(),
    };
    let bare = !["crate", "super", "self"].contains(&path[0].as_str());
    let found = (1..=full.len()).rev().map(|len| full[..len].to_vec()).find(|module| files.contains_key(module))?;
    (!bare || found.len() > from.len()).then_some(found)
}

#[test]
fn circle_through_a_group_and_a_path_is_found() {
    let root = tempfile::tempdir().expect("a directory");
    for (file, code) in [
        ("room/mod.rs", "mod a;\nmod b;\n"),
        ("room/a.rs", "use super::{\n    b::{x, y as z},\n};\n"),
        ("room/b.rs", "fn f() { super::c::deep::g() }\n"),
        ("room/c/mod.rs", "pub mod deep;\n"),
        ("room/c/deep.rs", "use crate::room::a;\n"),
        ("room/d.rs", "use super::a::x;\n"),
    ] {
        let path = root.path().join(file);
        std::fs::create_dir_all(path.parent().expect("a directory")).expect("a directory");
        std::fs::write(path, code).expect("a file");
    }
    let found = circles_below(root.path());
    assert_eq!(found.len(), 1, "{found:?}");
    for edge in ["a -> b", "b -> c", "c -> a"] {
        assert!(found[0].contains(edge), "{edge}: {found:?}");
    }
    std::fs::write(root.path().join("room/c/deep.rs"), "").expect("a file");
    assert_eq!(circles_below(root.path()), [""; 0]);
}
