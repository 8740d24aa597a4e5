//! Checks the allowed dependencies between modules, and what only one module may do.

mod circles;
mod users;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

/// The modules that each module may use. A module that is not listed fails the test, because its
/// place is a design decision. Each line names only modules of lines above it, so there can be no
/// cycle.
const LAYERS: &[(&str, &[&str])] = &[
    // The contract of both ends of every connection.
    ("view", &[]),
    // Vendors' CLIs, as data.
    ("preset", &[]),
    ("protocol", &["view", "preset"]),
    ("failpoint", &[]),
    ("text", &[]),
    ("clock", &["failpoint"]),
    ("ports", &[]),
    // Opening files that another party could have replaced.
    ("files", &[]),
    // The outside world.
    (
        "config",
        &["failpoint", "view", "files", "protocol", "preset"],
    ),
    ("trace", &["files", "config"]),
    ("tls", &["clock", "failpoint", "files"]),
    ("tcp", &[]),
    // Requests to other machines.
    ("http_client", &["tcp"]),
    // The object store of a provider, or a directory.
    ("objects", &["config", "http_client", "tls"]),
    // Where the output of an attempt is stored, for its writer and its readers.
    ("logs", &["files", "protocol", "view", "clock", "objects"]),
    // The files of an attempt without processes, for the hub or the runner that reports its end.
    ("leftovers", &["files", "protocol", "logs"]),
    ("signal", &[]),
    ("process", &["failpoint", "files"]),
    ("sock", &["process"]),
    // Which processes belong to an attempt.
    (
        "attempt_processes",
        &["files", "config", "protocol", "process"],
    ),
    // Replacing files of the user next to their programs.
    ("user_files", &["failpoint", "process"]),
    // Which versions the programs of agents have.
    (
        "versions",
        &["preset", "files", "config", "protocol", "process"],
    ),
    // The only user of the git program.
    // The files of MCP clients.
    ("integrations", &["files", "config", "user_files"]),
    ("git", &["files", "process", "failpoint", "user_files"]),
    ("named_locks", &[]),
    ("connection_tasks", &[]),
    // Large bodies between the network and git.
    ("spool", &["files"]),
    (
        "store",
        &[
            "files",
            "config",
            "clock",
            "failpoint",
            "sock",
            "tcp",
            "tls",
            "trace",
        ],
    ),
    // Calls of other hubs.
    ("peer", &["protocol", "http_client", "tls"]),
    (
        "remote",
        &[
            "protocol",
            "spool",
            "tcp",
            "http_client",
            "tls",
            "connection_tasks",
        ],
    ),
    (
        "webhook",
        &["files", "config", "http_client", "tls", "text", "process"],
    ),
    // The proxy to a model's API, beside the agent.
    ("gate", &["clock", "sock", "http_client", "tls"]),
    // Calls to the hub.
    (
        "hub_client",
        &[
            "view", "text", "clock", "sock", "files", "protocol", "config", "process",
        ],
    ),
    // Beside the agent.
    (
        "guard",
        &[
            "view",
            "text",
            "sock",
            "protocol",
            "config",
            "attempt_processes",
            "process",
            "failpoint",
        ],
    ),
    (
        "harness",
        &[
            "view", "preset", "text", "sock", "protocol", "config", "process",
        ],
    ),
    // The use cases.
    (
        "ops",
        &[
            "failpoint",
            "view",
            "preset",
            "signal",
            "files",
            "protocol",
            "leftovers",
            "config",
            "clock",
            "logs",
            "objects",
            "store",
            "hub_client",
            "webhook",
            "peer",
            "git",
            "user_files",
            "named_locks",
            "spool",
            "ports",
            "versions",
        ],
    ),
    // Presentation for all interfaces.
    ("present", &["view", "text"]),
    // The interfaces.
    (
        "mcp",
        &[
            "failpoint",
            "present",
            "view",
            "text",
            "clock",
            "sock",
            "protocol",
            "config",
            "trace",
            "hub_client",
        ],
    ),
    (
        "hub",
        &[
            "view",
            "present",
            "text",
            "sock",
            "files",
            "spool",
            "protocol",
            "config",
            "clock",
            "trace",
            "store",
            "attempt_processes",
            "process",
            "hub_client",
            "ops",
            "webhook",
            "peer",
            "remote",
            "connection_tasks",
            "tls",
            "versions",
            "logs",
            "objects",
            "failpoint",
        ],
    ),
    // The hub's part on another machine, without a store.
    (
        "runner",
        &[
            "view",
            "sock",
            "failpoint",
            "files",
            "protocol",
            "logs",
            "git",
            "named_locks",
            "spool",
            "clock",
            "leftovers",
            "config",
            "trace",
            "attempt_processes",
            "process",
            "hub_client",
            "remote",
            "versions",
        ],
    ),
    (
        "supervisor",
        &[
            "view",
            "preset",
            "signal",
            "text",
            "clock",
            "trace",
            "logs",
            "sock",
            "files",
            "protocol",
            "config",
            "attempt_processes",
            "process",
            "git",
            "hub_client",
            "gate",
            "harness",
            "guard",
            "failpoint",
        ],
    ),
    // Gives the hub and the supervisor their MCP servers.
    (
        "program",
        &[
            "hub_client",
            "harness",
            "hub",
            "mcp",
            "supervisor",
            "failpoint",
        ],
    ),
    ("echo", &["view", "protocol", "hub_client"]),
    (
        "cli",
        &[
            "present",
            "view",
            "preset",
            "text",
            "clock",
            "sock",
            "protocol",
            "config",
            "attempt_processes",
            "process",
            "integrations",
            "hub_client",
            "mcp",
            "hub",
            "runner",
            "remote",
            "guard",
            "supervisor",
            "harness",
            "echo",
            "ops",
            "failpoint",
            "program",
        ],
    ),
];

/// Identifiers that only the named modules, or files, may use.
const ONLY: &[(&str, &[&str])] = &[
    ("unsafe_code", &["process"]),
    ("unsafe ", &["process"]),
    ("rusqlite", &["store/db/sqlite"]),
    ("tokio_postgres", &["store/db/postgres"]),
    ("Command::new(", &["process", "echo", "store/testing"]),
    // The echo agent stands for a foreign program and reads what such a program is given; the
    // failpoints exist only in builds for tests.
    (
        "env::var",
        &["config", "echo", "failpoint", "store/testing"],
    ),
    ("env::vars", &["config", "echo"]),
    ("rmcp", &["mcp"]),
    ("clap", &["cli"]),
    ("ratatui", &["cli"]),
];

/// The pure crates, and what else each must not use. The core must not depend on a serialization
/// format either.
const PURE: [(&str, &[&str]); 2] = [("adjutant-core", &["serde"]), ("adjutant-stream", &[])];

/// Identifiers that the pure crates must not use.
const NOT_PURE: &[&str] = &[
    "std::fs",
    "std::net",
    "std::env",
    "std::process",
    "std::thread",
    "std::io",
    "SystemTime",
    "Instant::now",
    "tokio",
    "async fn",
];

#[test]
fn modules_use_only_lower_modules() {
    let allowed: BTreeMap<&str, BTreeSet<&str>> = LAYERS
        .iter()
        .map(|(module, uses)| (*module, uses.iter().copied().collect()))
        .collect();
    let mut wrong = Vec::new();
    for (module, file, code) in product() {
        let Some(uses) = allowed.get(module.as_str()) else {
            wrong.push(format!(
                "{}: `{module}` has no place in LAYERS",
                file.display()
            ));
            continue;
        };
        for used in crate_paths(&code) {
            let known = allowed.contains_key(used.as_str());
            if known && used != module && !uses.contains(used.as_str()) {
                wrong.push(format!(
                    "{}: `{module}` may not use `{used}`",
                    file.display()
                ));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// The other tests see only paths that begin with `crate`.
#[test]
fn modules_of_other_crates_are_named_by_their_paths_here() {
    let lower = [
        "adjutant_os::",
        "adjutant_api::",
        "adjutant_home::",
        "adjutant_git::",
        "adjutant_net::",
        "adjutant_mcp::",
        "adjutant_agent::",
        "adjutant_store::",
        "adjutant_ops::",
        "adjutant_hub::",
    ];
    let named: Vec<String> = product()
        .into_iter()
        .filter(|(_, _, code)| {
            lower
                .iter()
                .chain(&["adjutant_stream::signal"])
                .any(|path| has_word(code, path))
        })
        .map(|(_, file, _)| file.display().to_string())
        .collect();
    assert!(
        named.is_empty(),
        "these name a crate; write crate::MODULE: {}",
        named.join(", ")
    );
}

#[test]
fn fixtures_of_other_crates_are_only_for_tests() {
    const FIXTURES: &str = "features = [\"testing\"]";
    let mut users = Vec::new();
    for (name, dir) in crates() {
        let manifest = std::fs::read_to_string(dir.join("Cargo.toml")).expect("a manifest");
        let (product, tests) = manifest
            .split_once("[dev-dependencies]")
            .unwrap_or((&manifest, ""));
        assert!(!product.contains(FIXTURES), "{name} would contain fixtures");
        users.extend(tests.contains(FIXTURES).then_some(name));
    }
    assert_eq!(users, ["adjutant-ops"]);
}

#[test]
fn only_one_crate_may_have_unsafe_code() {
    let mut allowing = Vec::new();
    for (name, dir) in crates() {
        let roots = ["src/lib.rs", "src/main.rs"].map(|root| dir.join(root));
        for root in roots.iter().filter(|root| root.exists()) {
            let text = fs::read_to_string(root).expect("a source file is text");
            if !text.contains("#![forbid(unsafe_code)]") {
                allowing.push(name.clone());
            }
        }
    }
    assert_eq!(allowing, ["adjutant-os"]);
}

#[test]
fn layers_name_only_earlier_rows() {
    let mut seen = BTreeSet::new();
    for (module, uses) in LAYERS {
        for used in *uses {
            assert!(
                seen.contains(used),
                "`{module}` names `{used}`, which comes later: a cycle"
            );
        }
        assert!(seen.insert(*module), "`{module}` is listed twice");
    }
}

#[test]
fn module_with_children_is_a_mod_rs() {
    let mut wrong = Vec::new();
    let tests = [
        crate_dir().join("tests/it"),
        crate_dir().join("../../xtask/src"),
    ];
    for root in crates()
        .into_iter()
        .map(|(_, dir)| dir.join("src"))
        .chain(tests)
    {
        for (_, file, _) in sources(&root) {
            if root.join(&file).with_extension("").is_dir() {
                wrong.push(format!(
                    "{}: move it to {}/mod.rs",
                    file.display(),
                    file.with_extension("").display()
                ));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn restricted_words_stay_in_their_modules() {
    let mut wrong = Vec::new();
    for (module, file, code) in product() {
        for (word, entitled) in ONLY {
            let is_entitled = entitled
                .iter()
                .any(|place| *place == module || file.starts_with(place));
            if !is_entitled && has_word(&code, word) {
                wrong.push(format!(
                    "{}: `{word}` belongs to {entitled:?}",
                    file.display()
                ));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// A decision allows more than a request's text says, so no interface shows the text alone:
/// `present::asked_for` has both.
#[test]
fn interfaces_show_requests_only_through_present() {
    let mut wrong = Vec::new();
    for (module, file, code) in product() {
        // A worker sees its own questions; the trial decides about a known command.
        let is_shown = module == "cli" && !file.starts_with("cli/commands/agents/trial")
            || file.starts_with("mcp/show")
            || file.starts_with("mcp/tools/parent");
        let mut fields = code
            .match_indices("request.question")
            .map(|(at, field)| &code[at + field.len()..]);
        if is_shown && fields.any(|rest| !rest.starts_with('_')) {
            wrong.push(file.display().to_string());
        }
    }
    assert!(
        wrong.is_empty(),
        "these show a request's text without what it allows: {}",
        wrong.join(", ")
    );
}

#[test]
fn core_stream_and_contract_do_no_io() {
    let mut wrong = Vec::new();
    // The contract is not pure, but does no I/O either.
    for (name, more) in PURE.into_iter().chain([("adjutant-api", &[][..])]) {
        for (_, file, code) in sources(&crate_dir().join("..").join(name).join("src")) {
            for word in NOT_PURE.iter().chain(more) {
                if has_word(&code, word) {
                    wrong.push(format!("{}: `{word}` in a pure crate", file.display()));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

fn crate_dir() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

/// Returns each crate below `crates` with its directory.
pub fn crates() -> Vec<(String, PathBuf)> {
    let entries = fs::read_dir(crate_dir().join(".."))
        .expect("the crates")
        .map(|entry| entry.expect("an entry").path());
    let mut found: Vec<(String, PathBuf)> = entries
        .filter(|dir| dir.join("Cargo.toml").is_file())
        .map(|dir| {
            (
                dir.file_name()
                    .unwrap_or_default()
                    .to_string_lossy()
                    .into_owned(),
                dir,
            )
        })
        .collect();
    found.sort();
    assert!(found.len() > PURE.len(), "{found:?}");
    found
}

/// Returns the source files of every crate that is not pure.
fn product() -> Vec<(String, PathBuf, String)> {
    let is_pure = |name: &str| PURE.iter().any(|(pure, _)| *pure == name);
    crates()
        .into_iter()
        .filter(|(name, _)| !is_pure(name))
        .flat_map(|(_, dir)| sources(&dir.join("src")))
        .collect()
}

/// Returns every source file below `root` with its module, without comments, literals and unit
/// tests. `lib.rs` and `main.rs` only combine the modules and are skipped.
fn sources(root: &Path) -> Vec<(String, PathBuf, String)> {
    let mut found = Vec::new();
    let mut todo = vec![root.to_path_buf()];
    while let Some(dir) = todo.pop() {
        for entry in fs::read_dir(&dir).expect("the source directory is there") {
            let path = entry.expect("the source directory can be read").path();
            if path.is_dir() {
                todo.push(path);
                continue;
            }
            let relative = path
                .strip_prefix(root)
                .expect("below the root")
                .to_path_buf();
            let first = relative
                .components()
                .next()
                .expect("a file has a name")
                .as_os_str()
                .to_string_lossy()
                .to_string();
            let module = first.trim_end_matches(".rs").to_string();
            if !first.is_empty()
                && path.extension().is_some_and(|e| e == "rs")
                && !["lib", "main"].contains(&module.as_str())
                && !is_test(&relative)
            {
                let text = fs::read_to_string(&path).expect("a source file is text");
                found.push((module, relative, without_noise(&text)));
            }
        }
    }
    found
}

/// Returns whether a file is compiled for tests only.
fn is_test(relative: &Path) -> bool {
    relative
        .with_extension("")
        .components()
        .any(|part| part.as_os_str() == "tests" || part.as_os_str() == "conformance")
}

/// Removes comments, string contents, and everything from the unit tests on.
fn without_noise(text: &str) -> String {
    let mut out = String::new();
    let mut lines = text.lines().peekable();
    while let Some(line) = lines.next() {
        let tests_follow = lines
            .peek()
            .is_some_and(|next| next.starts_with("mod ") && next.ends_with('{'));
        if line == "#[cfg(test)]" && tests_follow {
            break;
        }
        let mut quoted = false;
        let mut before = ' ';
        let mut chars = line.chars().peekable();
        while let Some(c) = chars.next() {
            if c == '"' && before != '\\' && before != '\'' {
                quoted = !quoted;
            } else if !quoted && c == '/' && chars.peek() == Some(&'/') {
                break;
            } else if !quoted {
                out.push(c);
            }
            before = if before == '\\' { ' ' } else { c };
        }
        out.push('\n');
    }
    out
}

/// Returns the modules named by `crate::a::…` and `crate::{a::…, b}`.
fn crate_paths(code: &str) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    for (at, _) in code.match_indices("crate::") {
        let rest = &code[at + "crate::".len()..];
        if let Some(group) = rest.strip_prefix('{') {
            let mut depth = 0;
            let mut name_next = true;
            let mut name = String::new();
            for c in group.chars() {
                match c {
                    '{' => depth += 1,
                    '}' if depth == 0 => break,
                    '}' => depth -= 1,
                    ',' if depth == 0 => name_next = true,
                    c if depth == 0 && name_next && (c.is_alphanumeric() || c == '_') => {
                        name.push(c)
                    }
                    c if c.is_whitespace() && name.is_empty() => {}
                    _ if name_next => {
                        name_next = false;
                        found.insert(std::mem::take(&mut name));
                    }
                    _ => {}
                }
                if name_next && c == ',' && !name.is_empty() {
                    found.insert(std::mem::take(&mut name));
                }
            }
            found.insert(name);
        } else {
            found.insert(
                rest.chars()
                    .take_while(|c| c.is_alphanumeric() || *c == '_')
                    .collect(),
            );
        }
    }
    found.remove("");
    found
}

fn has_word(code: &str, word: &str) -> bool {
    code.match_indices(word)
        .any(|(at, _)| !code[..at].ends_with(|c: char| c.is_alphanumeric() || c == '_'))
}

#[test]
fn paths_are_found_in_both_forms() {
    let code = "use crate::{config, store::{Row, run}, view::ErrorView};\nlet x = crate::protocol::headers::KEY;";
    let expected: BTreeSet<String> = ["config", "store", "view", "protocol"]
        .iter()
        .map(|s| (*s).to_string())
        .collect();
    assert_eq!(crate_paths(code), expected);
}
