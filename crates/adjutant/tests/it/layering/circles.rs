//! Checks that the files of a module do not depend on each other in a cycle. A path counts for the
//! file that defines what it names, also if another one re-exports it. A call of a method counts
//! for the file that has the method, for types whose methods are in several files.

use super::{crate_dir, crates, sources};
use regex::Regex;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::OnceLock;

/// The circles that are left: the root, the module, and its children that use each other. It may
/// only become shorter.
const CIRCLES: &[(&str, &str, &[&str])] = &[
    (
        "adjutant-net",
        "hub_client",
        &["connection", "failure", "presence"],
    ),
    (
        "adjutant-git",
        "git",
        &[
            "contents",
            "copied",
            "diff",
            "line_ends",
            "merge_tree",
            "scratch",
            "whole",
        ],
    ),
    ("adjutant-git", "git", &["error", "refusal"]),
    ("adjutant-git", "git", &["exchange", "workspace"]),
    (
        "adjutant-git",
        "git",
        &["restore", "submodule_commits", "submodules"],
    ),
    ("adjutant-agent", "harness::acp", &["permission", "update"]),
    (
        "adjutant-store",
        "store",
        &[
            "chats",
            "events",
            "messages",
            "peers",
            "queue",
            "requests",
            "runs",
            "search",
            "tokens",
            "tx",
            "wake_ups",
            "webhooks",
            "workspaces",
        ],
    ),
    (
        "adjutant-agent",
        "supervisor::attempt",
        &["finish", "input", "statements"],
    ),
    ("adjutant-stream", "reader", &["message", "retries"]),
    ("xtask", "bench", &["gate", "http"]),
];

/// How many re-exports lead to a definition at most.
const REEXPORTS_MAX: usize = 8;

/// A module's path below the crate's root: `["mcp", "lines"]`.
type Module = Vec<String>;

#[test]
fn siblings_use_each_other_in_one_direction() {
    let mut found = BTreeSet::new();
    for (name, dir) in crates()
        .into_iter()
        .chain([("xtask".to_owned(), crate_dir().join("../../xtask"))])
    {
        let circles = circles_below(&dir.join("src"));
        found.extend(
            circles
                .into_iter()
                .map(|(room, members)| (name.clone(), room, members)),
        );
    }
    let known: BTreeSet<(String, String, Vec<String>)> = CIRCLES
        .iter()
        .map(|(root, room, members)| {
            (
                (*root).to_owned(),
                (*room).to_owned(),
                members.iter().map(|one| (*one).to_owned()).collect(),
            )
        })
        .collect();
    let listed = |circles: Vec<&(String, String, Vec<String>)>| {
        circles
            .iter()
            .map(|(root, room, members)| format!("{root} {room}: {}", members.join(", ")))
            .collect::<Vec<_>>()
    };
    let (new, gone) = (
        listed(found.difference(&known).collect()),
        listed(known.difference(&found).collect()),
    );
    assert!(
        new.is_empty(),
        "new circles:\n{}\nnot any more:\n{}",
        new.join("\n"),
        gone.join("\n")
    );
    assert!(
        gone.is_empty(),
        "remove these from CIRCLES:\n{}",
        gone.join("\n")
    );
}

/// Returns each group of siblings that use each other in a cycle, with their module.
fn circles_below(root: &Path) -> BTreeSet<(String, Vec<String>)> {
    let files = Files::new(
        sources(root)
            .into_iter()
            .map(|(_, file, code)| (module(&file), code))
            .collect(),
    );
    let uses: BTreeMap<&Module, BTreeSet<Module>> = files
        .code
        .keys()
        .map(|from| (from, files.used(from)))
        .collect();
    let parents: BTreeSet<&[String]> = files
        .code
        .keys()
        .flat_map(|file| (0..file.len()).map(|depth| &file[..depth]))
        .collect();
    // The root only declares modules; LAYERS has their directions.
    let rooms = parents.into_iter().filter(|room| !room.is_empty());
    rooms
        .flat_map(|room| {
            circles(&siblings(room, &uses))
                .into_iter()
                .map(|members| (room.join("::"), members))
                .collect::<Vec<_>>()
        })
        .collect()
}

fn module(file: &Path) -> Module {
    let mut parts: Module = file
        .with_extension("")
        .iter()
        .map(|part| part.to_string_lossy().into_owned())
        .collect();
    if parts.last().is_some_and(|last| last == "mod") {
        parts.pop();
    }
    parts
}

/// Returns the edges between the children of `room`, each with everything below it.
fn siblings<'a>(
    room: &[String],
    uses: &'a BTreeMap<&Module, BTreeSet<Module>>,
) -> BTreeMap<&'a str, BTreeSet<&'a str>> {
    let child = |module: &'a Module| {
        (module.len() > room.len() && module.starts_with(room)).then(|| module[room.len()].as_str())
    };
    let mut edges: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for (from, all) in uses {
        let Some(from) = child(from) else { continue };
        edges
            .entry(from)
            .or_default()
            .extend(all.iter().filter_map(child).filter(|to| *to != from));
    }
    edges
}

/// Returns the groups whose members reach each other.
fn circles(edges: &BTreeMap<&str, BTreeSet<&str>>) -> BTreeSet<Vec<String>> {
    let reached: BTreeMap<&str, BTreeSet<&str>> = edges
        .keys()
        .map(|from| (*from, reached(edges, from)))
        .collect();
    let members = |one: &str| {
        let others = reached
            .iter()
            .filter(|(other, all)| reached[one].contains(*other) && all.contains(one));
        others.map(|(other, _)| (*other).to_owned()).collect()
    };
    reached
        .keys()
        .filter(|one| reached[*one].contains(*one))
        .map(|one| members(one))
        .collect()
}

fn reached<'a>(edges: &BTreeMap<&'a str, BTreeSet<&'a str>>, from: &'a str) -> BTreeSet<&'a str> {
    let (mut seen, mut todo) = (BTreeSet::new(), vec![from]);
    while let Some(at) = todo.pop() {
        todo.extend(
            edges
                .get(at)
                .into_iter()
                .flatten()
                .copied()
                .filter(|to| seen.insert(*to)),
        );
    }
    seen
}

/// The files of a crate, and what they define.
struct Files {
    code: BTreeMap<Module, String>,
    /// The names that each file imports, with their paths. A child may name them as if they were
    /// its parent's.
    imports: BTreeMap<Module, BTreeMap<String, Vec<String>>>,
    /// The modules of which each file imports everything.
    globs: BTreeMap<Module, Vec<Vec<String>>>,
    /// The items that each file defines.
    items: BTreeMap<Module, BTreeSet<String>>,
    spread: Vec<Spread>,
    path: Regex,
    call: Regex,
}

/// A type whose methods are in several files, and the methods in each.
struct Spread {
    name: String,
    files: BTreeMap<Module, BTreeSet<String>>,
}

impl Files {
    fn new(code: BTreeMap<Module, String>) -> Self {
        let item = Regex::new(r"\b(?:fn|struct|enum|union|trait|type|const|static|mod)\s+(\w+)")
            .expect("a pattern");
        let (mut named, mut globs, mut items) = (BTreeMap::new(), BTreeMap::new(), BTreeMap::new());
        for (module, code) in &code {
            let all = imports(code)
                .into_iter()
                .map(|import| (import.path, import.name));
            let (all, everything): (Vec<_>, Vec<_>) = all.partition(|(_, name)| name != "*");
            named.insert(
                module.clone(),
                all.into_iter().map(|(path, name)| (name, path)).collect(),
            );
            globs.insert(
                module.clone(),
                everything
                    .into_iter()
                    .map(|(path, _)| path[..path.len() - 1].to_vec())
                    .collect(),
            );
            items.insert(
                module.clone(),
                item.captures_iter(code)
                    .map(|found| found[1].to_owned())
                    .collect(),
            );
        }
        let spread = spread(&code);
        let path = Regex::new(r"\b[A-Za-z_]\w*(?:::\w+)+").expect("a pattern");
        let call = Regex::new(r"\b(self|tx|ops)\s*\.(\w+)(?:::<[^()]*>)?\(").expect("a pattern");
        Self {
            code,
            imports: named,
            globs,
            items,
            spread,
            path,
            call,
        }
    }

    /// Returns the modules that a file uses.
    fn used(&self, from: &Module) -> BTreeSet<Module> {
        let code = &self.code[from];
        let mut paths: Vec<Vec<String>> = imports(code)
            .into_iter()
            .map(|import| import.path)
            .collect();
        let rest = import_pattern().replace_all(code, "");
        paths.extend(
            self.path
                .find_iter(&rest)
                .map(|found| found.as_str().split("::").map(str::to_owned).collect()),
        );
        let mut used: BTreeSet<Module> = paths
            .iter()
            .filter_map(|path| self.target(from, path, REEXPORTS_MAX))
            .collect();
        let functions = paths
            .iter()
            .filter(|path| path.len() == 2)
            .map(|path| (path[0].clone(), path[1].clone()));
        let calls = self
            .call
            .captures_iter(&rest)
            .map(|call| (call[1].to_owned(), call[2].to_owned()));
        for (receiver, method) in functions.chain(calls) {
            let is_of = |spread: &&Spread| match receiver.as_str() {
                "self" | "Self" => spread.files.contains_key(from),
                // By convention.
                "tx" => spread.name == "Tx",
                "ops" => spread.name == "Ops",
                name => spread.name == name,
            };
            let files = self
                .spread
                .iter()
                .filter(is_of)
                .flat_map(|spread| &spread.files);
            used.extend(
                files
                    .filter(|(_, methods)| methods.contains(&method))
                    .map(|(module, _)| module.clone()),
            );
        }
        used.remove(from);
        used
    }

    /// Resolves a path to the module that defines what it names, as seen from `from`. `None`:
    /// another crate, or an item of `from`.
    fn target(&self, from: &Module, path: &[String], reexports_max: usize) -> Option<Module> {
        let ups = path.iter().take_while(|part| *part == "super").count();
        let full = match path.first()?.as_str() {
            "crate" => path[1..].to_vec(),
            "super" => [&from[..from.len().checked_sub(ups)?], &path[ups..]].concat(),
            "self" => [from, &path[1..]].concat(),
            _ => [from, path].concat(),
        };
        let is_bare = !["crate", "super", "self"].contains(&path[0].as_str());
        let found = (0..=full.len())
            .rev()
            .map(|len| full[..len].to_vec())
            .find(|module| self.code.contains_key(module))?;
        if is_bare && found.len() <= from.len() {
            return None;
        }
        let rest = &full[found.len()..];
        let Some(name) = rest.first().filter(|name| {
            reexports_max > 0 && found != *from && !self.items[&found].contains(*name)
        }) else {
            return Some(found);
        };
        if let Some(path) = self.imports[&found].get(name) {
            return self.target(&found, &[&path[..], &rest[1..]].concat(), reexports_max - 1);
        }
        let mut globs = self.globs[&found]
            .iter()
            .filter_map(|glob| self.target(&found, glob, reexports_max - 1));
        let defining = globs.find(|module| self.items[module].contains(name));
        Some(defining.unwrap_or(found))
    }
}

/// Returns the types that have inherent methods in several files.
fn spread(code: &BTreeMap<Module, String>) -> Vec<Spread> {
    let block = Regex::new(r"\bimpl(?:<[^{]*?>)?\s+(\w+)(?:<[^{]*?>)?(?:\s+where\s[^{]*)?\s+\{")
        .expect("a pattern");
    let method = Regex::new(r"\bfn (\w+)").expect("a pattern");
    let mut by_type: BTreeMap<(String, String), BTreeMap<Module, BTreeSet<String>>> =
        BTreeMap::new();
    for (module, code) in code {
        // Braces in characters would open or close a block.
        let code = code.replace("'{'", "").replace("'}'", "");
        for found in block.captures_iter(&code) {
            let body = &code[found.get(0).expect("a match").end()..];
            let mut depth = 1;
            let end = body.find(|c: char| {
                depth += i32::from(c == '{') - i32::from(c == '}');
                depth == 0
            });
            let methods = method
                .captures_iter(&body[..end.unwrap_or(body.len())])
                .map(|found| found[1].to_owned());
            // Types of one name in several rooms are different ones.
            let of = (
                module.first().cloned().unwrap_or_default(),
                found[1].to_owned(),
            );
            by_type
                .entry(of)
                .or_default()
                .entry(module.clone())
                .or_default()
                .extend(methods);
        }
    }
    by_type
        .into_iter()
        .filter(|(_, files)| files.len() > 1)
        .map(|((_, name), files)| Spread { name, files })
        .collect()
}

fn import_pattern() -> &'static Regex {
    static PATTERN: OnceLock<Regex> = OnceLock::new();
    // At the beginning of a line: texts for users have this word, too.
    let pattern = r"(?m)^\s*(?:pub(?:\([^)]*\))? )?use ([^;]+);";
    PATTERN.get_or_init(|| Regex::new(pattern).expect("a pattern"))
}

/// What one name of an import stands for.
#[derive(Debug, Clone)]
struct Import {
    path: Vec<String>,
    /// `*`: all that the module exports.
    name: String,
}

/// Returns the imports of a file.
fn imports(code: &str) -> Vec<Import> {
    import_pattern()
        .captures_iter(code)
        .flat_map(|import| tree(&import[1]))
        .collect()
}

/// Returns what an import names: `a::{b, c::d as e}` is `a::b` and `a::c::d`, which is known as
/// `e`.
fn tree(text: &str) -> Vec<Import> {
    let text: String = text.split_whitespace().collect::<Vec<_>>().join(" ");
    let parts = |path: &str| {
        path.split("::")
            .map(str::trim)
            .filter(|part| !part.is_empty())
            .map(str::to_owned)
            .collect::<Vec<_>>()
    };
    let Some((prefix, group)) = text.split_once('{') else {
        let (path, alias) = text
            .split_once(" as ")
            .map_or((text.as_str(), None), |(path, alias)| {
                (path, Some(alias.trim().to_owned()))
            });
        let mut path = parts(path);
        // `a::{self}` is `a`.
        if path.len() > 1 && path.last().is_some_and(|last| last == "self") {
            path.pop();
        }
        let name = alias.or_else(|| path.last().cloned()).unwrap_or_default();
        return vec![Import { path, name }];
    };
    let prefix = parts(prefix);
    let group = group.trim_end().strip_suffix('}').expect("a closed group");
    let mut depth = 0;
    let members = group.split(|c: char| {
        depth += i32::from(c == '{') - i32::from(c == '}');
        c == ',' && depth == 0
    });
    let with_prefix = |import: Import| {
        let path = [prefix.clone(), import.path].concat();
        if path.last().is_some_and(|last| last == "self") {
            let name = if import.name == "self" {
                prefix.last().cloned().unwrap_or_default()
            } else {
                import.name
            };
            return Import {
                path: prefix.clone(),
                name,
            };
        }
        Import {
            path,
            name: import.name,
        }
    };
    members
        .map(str::trim)
        .filter(|part| !part.is_empty())
        .flat_map(tree)
        .map(with_prefix)
        .collect()
}

/// Writes files, and returns the circles among them.
fn circles_of(files: &[(&str, &str)]) -> Vec<(String, Vec<String>)> {
    let root = tempfile::tempdir().expect("a directory");
    for (file, code) in files {
        let path = root.path().join(file);
        std::fs::create_dir_all(path.parent().expect("a directory")).expect("a directory");
        std::fs::write(path, code).expect("a file");
    }
    circles_below(root.path()).into_iter().collect()
}

fn circle(members: &[&str]) -> [(String, Vec<String>); 1] {
    [(
        "room".to_owned(),
        members.iter().map(|one| (*one).to_owned()).collect(),
    )]
}

#[test]
fn circle_through_a_group_and_a_path_is_found() {
    let mut files = [
        ("room/mod.rs", "mod a;\nmod b;\n"),
        ("room/a.rs", "use super::{\n    b::{x, y as z},\n};\n"),
        ("room/b.rs", "fn f() { super::c::deep::g() }\n"),
        ("room/c/mod.rs", "pub mod deep;\n"),
        ("room/c/deep.rs", "use crate::room::a;\n"),
        ("room/d.rs", "use super::a::x;\n"),
    ];
    assert_eq!(circles_of(&files), circle(&["a", "b", "c"]));
    files[4].1 = "";
    assert_eq!(circles_of(&files), []);
}

#[test]
fn circle_through_a_reexport_is_found() {
    let mut files = [
        (
            "room/mod.rs",
            "mod a;\nmod b;\npub use a::{One, Other as Another};\npub(crate) use b::*;\n",
        ),
        (
            "room/a.rs",
            "use super::f;\npub struct One;\npub struct Other;\n",
        ),
        ("room/b.rs", "use crate::room::Another;\npub fn f() {}\n"),
        ("room/c.rs", "use super::One;\n"),
    ];
    assert_eq!(circles_of(&files), circle(&["a", "b"]));
    files[2].1 = "pub fn f() {}\n";
    assert_eq!(circles_of(&files), []);
}

#[test]
fn circle_through_methods_is_found() {
    let mut files = [
        ("room/mod.rs", "mod a;\nmod b;\npub struct Ops;\n"),
        (
            "room/a.rs",
            "use super::Ops;\nimpl Ops {\n    fn one(&self) { self.two() }\n}\n",
        ),
        (
            "room/b.rs",
            "use super::Ops;\nimpl<'a> Ops<'a> {\n    fn two(&self) { let c = '{'; self.three(c) }\n    fn three(&self, _: char) {}\n}\n",
        ),
        ("room/c.rs", "fn f(ops: &super::Ops) { ops.three('x') }\n"),
    ];
    assert_eq!(circles_of(&files), []);
    files[2].1 = "use super::Ops;\nimpl<'a> Ops<'a> {\n    fn two(&self) { self.one() }\n}\n";
    assert_eq!(circles_of(&files), circle(&["a", "b"]));
    files[2].1 = "use super::Ops;\nimpl<'a> Ops<'a>\nwhere\n    Self: Send,\n{\n    fn two(&self) {\n        self\n            .one()\n    }\n}\n";
    assert_eq!(circles_of(&files), circle(&["a", "b"]));
}
