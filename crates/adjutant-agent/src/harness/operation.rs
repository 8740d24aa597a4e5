//! The operation of a CLI's permission request, as policies see it. Only statements of the CLI
//! itself count; a title can contain a model's text.

use adjutant_core::hex;
use adjutant_core::policy::{Operation, StatedPath, absolute, directory_changes};
use serde_json::Value;
use sha2::{Digest, Sha256};
use std::collections::BTreeSet;
use std::path::Path;

/// Fields of a command's input that do not change what it does.
const DESCRIPTIVE: [&str; 7] = [
    "description",
    "timeout",
    "timeout_ms",
    "timeoutMs",
    "purpose",
    "reason",
    "explanation",
];
/// Fields of a command's input that name its working directory.
const DIRECTORIES: [&str; 6] = [
    "cwd",
    "directory",
    "dir_path",
    "workdir",
    "working_directory",
    "workingDirectory",
];
/// Fields of an input with the content or the part of the files that other fields name.
const CONTENTS: [&str; 34] = [
    "content",
    "contents",
    "text",
    "old_string",
    "new_string",
    "oldString",
    "newString",
    "old_str",
    "new_str",
    "oldText",
    "newText",
    "old_text",
    "new_text",
    "replace_all",
    "replaceAll",
    "expected_replacements",
    "expectedReplacements",
    "edits",
    "insert_line",
    "insertLine",
    "insert_text",
    "new_source",
    "cell_id",
    "cell_number",
    "cell_type",
    "edit_mode",
    "offset",
    "limit",
    "pages",
    "line",
    "start_line",
    "end_line",
    "view_range",
    "instruction",
];
/// Maximum length of a command, and maximum number of paths, that policies examine.
const COMMAND_BYTES_MAX: usize = 64 * 1024;
const PATHS_MAX: usize = 200;
/// Maximum number of directories that are kept of a lasting shell.
const DIRECTORIES_MAX: usize = 32;
/// Shells that Codex wraps each command in.
const SHELLS: [&str; 8] = [
    "bash",
    "sh",
    "zsh",
    "/bin/bash",
    "/bin/sh",
    "/bin/zsh",
    "/usr/bin/bash",
    "/usr/bin/zsh",
];

/// Returns a hash of a call, independent of the order of fields. `ignored`: top-level fields that
/// are left out.
pub(super) fn digest(tool: &str, input: &Value, ignored: &[&str]) -> String {
    fn add(hash: &mut Sha256, value: &Value, ignored: &[&str]) {
        match value {
            Value::Object(fields) => {
                let mut names: Vec<&String> = fields
                    .keys()
                    .filter(|name| !ignored.contains(&name.as_str()))
                    .collect();
                names.sort();
                hash.update(b"{");
                for name in names {
                    hash.update(Value::String(name.clone()).to_string());
                    hash.update(b":");
                    add(hash, &fields[name], &[]);
                    hash.update(b",");
                }
                hash.update(b"}");
            }
            Value::Array(items) => {
                hash.update(b"[");
                for item in items {
                    add(hash, item, &[]);
                    hash.update(b",");
                }
                hash.update(b"]");
            }
            plain => hash.update(plain.to_string()),
        }
    }
    let mut hash = Sha256::new();
    hash.update(Value::String(tool.to_owned()).to_string());
    add(&mut hash, input, ignored);
    hex(hash.finalize())
}

/// Returns an operation with only its tool and a hash of the call.
pub(super) fn opaque(tool: &str, input: &Value) -> Operation {
    Operation {
        tool: tool.to_owned(),
        digest: Some(digest(tool, input, &[])),
        ..Operation::default()
    }
}

/// Returns an absolute path as it is stated. `None`: its meaning depends on more than the
/// directory.
fn absolute_path(cwd: &Path, file: &str) -> Option<StatedPath> {
    let is_plain = !file.is_empty() && !file.starts_with('~') && !file.contains('\0');
    is_plain.then(|| StatedPath {
        stated: cwd.join(file).display().to_string(),
        real: None,
    })
}

fn has_only(input: &Value, known: &[&[&str]]) -> bool {
    input.as_object().is_some_and(|fields| {
        fields
            .keys()
            .all(|name| known.iter().any(|names| names.contains(&name.as_str())))
    })
}

/// Returns whether an input consists of fields that name files and fields with their content.
pub(super) fn states_only_files(input: &Value, names_file: impl Fn(&str) -> bool) -> bool {
    fn is_content(name: &str, value: &Value) -> bool {
        let is_known = CONTENTS.contains(&name) || DESCRIPTIVE.contains(&name);
        is_known
            && match value {
                Value::Object(_) => false,
                Value::Array(items) => items.iter().all(|item| match item {
                    Value::Object(fields) => fields
                        .iter()
                        .all(|(name, value)| !value.is_array() && is_content(name, value)),
                    Value::Array(_) => false,
                    _ => true,
                }),
                _ => true,
            }
    }
    input.as_object().is_some_and(|fields| {
        fields
            .iter()
            .all(|(name, value)| names_file(name) || is_content(name, value))
    })
}

/// Returns whether the values are objects with only these fields.
pub(super) fn have_only<'a>(mut values: impl Iterator<Item = &'a Value>, known: &[&str]) -> bool {
    values.all(|value| has_only(value, &[known]))
}

/// The directories to which the lasting shell of an agent may have changed.
#[derive(Debug, Default)]
pub(super) struct ShellDirectories {
    /// The call that changed it first. What is asked for that call happens before.
    changed_by: Option<String>,
    /// The last recorded call and its command, which agents report repeatedly.
    last: Option<[String; 2]>,
    possible: BTreeSet<String>,
}

impl ShellDirectories {
    /// Records a command that the agent runs in its shell, by the id of the call.
    pub(super) fn record(&mut self, call: &str, command: &str, cwd: &Path) {
        let from = cwd.display().to_string();
        let Some(targets) = directory_changes(command, &from) else {
            return;
        };
        let this = [call.to_owned(), command.to_owned()];
        if self.last.as_ref() == Some(&this) {
            return;
        }
        self.last = Some(this);
        self.changed_by.get_or_insert_with(|| call.to_owned());
        self.possible.insert(from);
        let before: Vec<String> = self.possible.iter().cloned().collect();
        for (directory, target) in before
            .iter()
            .flat_map(|directory| targets.iter().map(move |target| (directory, target)))
        {
            if self.possible.len() < DIRECTORIES_MAX {
                self.possible.insert(absolute(target, directory));
            }
        }
    }

    /// Returns the directories in which a call may happen. Empty: its directory is certain.
    pub(super) fn possible(&self, call: Option<&str>) -> Vec<String> {
        let is_before =
            self.changed_by.is_none() || call.is_some() && call == self.changed_by.as_deref();
        if is_before {
            Vec::new()
        } else {
            self.possible.iter().cloned().collect()
        }
    }

    /// Returns the operation of a command that may run in any of the directories, unless it states
    /// its own.
    pub(super) fn applied(&self, call: Option<&str>, operation: Operation) -> Operation {
        let possible_directories = if operation.directory.is_none() {
            self.possible(call)
        } else {
            Vec::new()
        };
        Operation {
            possible_directories,
            ..operation
        }
    }
}

/// The commands that the input of a call states.
#[derive(Debug)]
pub struct StatedCommands<'a> {
    /// Each once: Copilot states the same command in two fields.
    commands: Vec<&'a str>,
    /// No field for commands has another form.
    is_text: bool,
}

impl<'a> StatedCommands<'a> {
    /// Reads `{"command": …}`, `{"cmd": …}` and `{"commands": […]}`.
    #[must_use]
    pub fn of(input: &'a Value) -> Self {
        let mut stated = Self {
            commands: Vec::new(),
            is_text: true,
        };
        let listed = match &input["commands"] {
            Value::Array(all) => all.iter().collect(),
            Value::Null => Vec::new(),
            other => vec![other],
        };
        stated.is_text &= !matches!(&input["commands"], Value::String(_));
        let fields = ["command", "cmd"]
            .iter()
            .map(|name| &input[*name])
            .filter(|value| !value.is_null());
        for value in fields.chain(listed) {
            match value.as_str() {
                Some(command) if stated.commands.contains(&command) => {}
                Some(command) => stated.commands.push(command),
                None => stated.is_text = false,
            }
        }
        stated
    }

    /// Returns whether the input has no field for commands.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.commands.is_empty() && self.is_text
    }

    /// Returns the command, if it is the only one.
    #[must_use]
    pub fn only(&self) -> Option<&'a str> {
        match self.commands.as_slice() {
            [command] if self.is_text => Some(command),
            _ => None,
        }
    }
}

/// Returns the operation of a shell tool: `{"command": …}` or `{"commands": [one]}`, with its
/// directory and descriptive fields.
pub(super) fn shell(tool: &str, input: &Value, cwd: &Path, harmless: &[&str]) -> Operation {
    let directories: Vec<&str> = DIRECTORIES
        .iter()
        .filter_map(|name| input[*name].as_str())
        .collect();
    let directory = match directories.as_slice() {
        [] => Some(None),
        [one] => absolute_path(cwd, one).map(Some),
        _ => None,
    };
    // Several commands can be denied by one of them, and are never allowed.
    let stated = StatedCommands::of(input);
    let is_one = stated.only().is_some();
    let command = Some(stated.commands.join("\n"))
        .filter(|text| !text.is_empty() && text.len() <= COMMAND_BYTES_MAX);
    let is_known = has_only(
        input,
        &[
            &["command", "commands"],
            &DESCRIPTIVE,
            &DIRECTORIES,
            harmless,
        ],
    );
    Operation {
        tool: tool.to_owned(),
        is_complete: is_one && command.is_some() && directory.is_some() && is_known,
        command,
        directory: directory.flatten(),
        digest: Some(digest(tool, input, &DESCRIPTIVE)),
        ..Operation::default()
    }
}

/// Returns the operation of a tool on files. `is_complete`: it does nothing else, and all its files
/// are named.
pub(super) fn on_files<'a>(
    tool: &str,
    input: &Value,
    cwd: &Path,
    files: impl IntoIterator<Item = &'a str>,
    is_complete: bool,
) -> Operation {
    let files: Vec<&str> = files.into_iter().collect();
    let mut paths: Vec<StatedPath> = files
        .iter()
        .take(PATHS_MAX)
        .filter_map(|file| absolute_path(cwd, file))
        .collect();
    let is_complete = is_complete && !files.is_empty() && paths.len() == files.len();
    paths.sort();
    paths.dedup();
    Operation {
        tool: tool.to_owned(),
        paths,
        is_complete,
        digest: Some(digest(tool, input, &[])),
        ..Operation::default()
    }
}

/// Returns the operation of a tool that reads an address: `{"url": …}` with a question about its
/// content.
pub(super) fn fetch(tool: &str, input: &Value) -> Operation {
    let url = input["url"].as_str();
    let is_complete =
        url.is_some() && has_only(input, &[&["url", "prompt", "format"], &DESCRIPTIVE]);
    Operation {
        urls: url.map(str::to_owned).into_iter().collect(),
        is_complete,
        ..opaque(tool, input)
    }
}

/// Returns the script of a command that only starts a shell for it, otherwise the command.
pub(super) fn unwrapped(command: &str) -> String {
    match adjutant_core::policy::simple_command(command).as_deref() {
        Some([shell, flag, script])
            if SHELLS.contains(&shell.as_str()) && matches!(flag.as_str(), "-c" | "-lc") =>
        {
            script.clone()
        }
        _ => command.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn digest_is_that_of_the_call() {
        let same =
            |a: Value, b: Value| digest("x", &a, &DESCRIPTIVE) == digest("x", &b, &DESCRIPTIVE);
        assert!(same(
            json!({"a": 1, "b": {"c": 2, "d": 3}}),
            json!({"b": {"d": 3, "c": 2}, "a": 1})
        ));
        assert!(same(
            json!({"command": "x", "description": "one"}),
            json!({"command": "x", "timeout": 5})
        ));
        assert!(!same(
            json!({"a": {"description": "one"}}),
            json!({"a": {"description": "two"}})
        ));
        assert!(
            !same(json!({"a": "1"}), json!({"a": 1}))
                && !same(json!(["a", "b"]), json!(["ab"]))
                && !same(json!({}), Value::Null)
        );
        assert!(digest("x", &json!({}), &[]) != digest("y", &json!({}), &[]));
    }

    #[test]
    fn unknown_fields_make_a_command_incomplete() {
        let shell = |input: Value| shell("Bash", &input, Path::new("/w"), &["run_in_background"]);
        let known =
            shell(json!({"command": "ls", "description": "list", "run_in_background": true}));
        assert!(
            known.is_complete
                && known.command.as_deref() == Some("ls")
                && known.directory.is_none()
        );
        let within = shell(json!({"command": "ls", "cwd": "sub"}));
        assert!(
            within.is_complete
                && within
                    .directory
                    .is_some_and(|directory| directory.stated == "/w/sub")
        );
        let listed = shell(json!({"commands": ["ls -l"]}));
        assert!(listed.is_complete && listed.command.as_deref() == Some("ls -l"));
        let both = shell(json!({"command": "ls -l", "commands": ["ls -l"]}));
        assert!(both.is_complete && both.command.as_deref() == Some("ls -l"));
        // A policy can deny one of them, and a command in a field that is not known for it.
        assert_eq!(
            shell(json!({"cmd": "rm -rf /"})).command.as_deref(),
            Some("rm -rf /")
        );
        for several in [
            json!({"commands": ["ls", "rm -rf /"]}),
            json!({"command": "ls", "commands": ["rm -rf /"]}),
            json!({"command": "ls", "cmd": "rm -rf /"}),
        ] {
            assert_eq!(shell(several).command.as_deref(), Some("ls\nrm -rf /"));
        }
        for input in [
            json!({"commands": []}),
            json!({"commands": ["ls", "rm -rf /"]}),
            json!({"commands": [{"command": "ls"}]}),
            json!({"command": "ls", "commands": ["rm -rf /"]}),
            json!({"command": "ls", "commands": "rm -rf /"}),
            json!({"command": "ls", "dangerouslyDisableSandbox": true}),
            json!({"command": ["ls"]}),
            json!({"cmd": "ls"}),
            json!("ls"),
            json!({"command": "ls", "cwd": "~"}),
            json!({"command": "ls", "cwd": "/w", "workdir": "/x"}),
            json!({"command": "x".repeat(COMMAND_BYTES_MAX + 1)}),
        ] {
            assert!(!shell(input.clone()).is_complete, "{input}");
        }
    }

    #[test]
    fn changed_shell_makes_later_directories_uncertain() {
        let mut shell = ShellDirectories::default();
        let cwd = Path::new("/w");
        for (call, command) in [
            ("1", "make"),
            ("2", "cd /w && make"),
            ("3", "ls . | head"),
            ("4", "cd \"/w\"; x"),
        ] {
            shell.record(call, command, cwd);
            assert!(shell.possible(Some("9")).is_empty(), "{command}");
        }
        shell.record("5", "cd secrets && ls", cwd);
        shell.record("6", "cd deep", cwd);
        assert!(
            shell.possible(Some("5")).is_empty(),
            "its own request was before"
        );
        assert_eq!(
            shell.possible(None),
            ["/w", "/w/deep", "/w/secrets", "/w/secrets/deep"]
        );
        let plain = Operation {
            command: Some("ls".to_owned()),
            ..Operation::default()
        };
        assert_eq!(
            shell
                .applied(Some("7"), plain.clone())
                .possible_directories
                .len(),
            4
        );
        let stated = Operation {
            directory: absolute_path(cwd, "sub"),
            ..plain
        };
        assert!(
            shell
                .applied(Some("7"), stated)
                .possible_directories
                .is_empty()
        );
        for count in 0..100 {
            shell.record("8", &format!("cd d{count}"), cwd);
        }
        assert_eq!(shell.possible(None).len(), DIRECTORIES_MAX);
    }

    #[test]
    fn only_a_shell_around_one_script_is_removed() {
        assert_eq!(unwrapped("/bin/bash -lc 'git status; x'"), "git status; x");
        for kept in [
            "bash -lc 'a' b",
            "./bash -c 'a'",
            "bash -x 'a'",
            "bash -lc \"$x\"",
            "git status",
            "env bash -c 'a'",
        ] {
            assert_eq!(unwrapped(kept), kept);
        }
    }

    #[test]
    fn files_that_cannot_be_named_make_an_operation_incomplete() {
        let on = |files: &[&str]| {
            on_files(
                "Edit",
                &json!({}),
                Path::new("/w"),
                files.iter().copied(),
                true,
            )
        };
        assert!(on(&["a", "/b"]).is_complete && on(&["a"]).paths[0].stated == "/w/a");
        assert!(
            !on(&[]).is_complete && !on(&["a", "~/b"]).is_complete && !on(&["a\0"]).is_complete
        );
        assert!(
            !on_files(
                "Edit",
                &json!({}),
                Path::new("/w"),
                vec!["a"; PATHS_MAX + 1],
                true
            )
            .is_complete
        );
        let only = |input: Value| states_only_files(&input, |name| name == "path");
        assert!(
            only(
                json!({"path": "a", "edits": [{"old_string": "x", "new_string": "y"}], "replace_all": true})
            ) && only(json!({"path": "a"}))
        );
        for input in [
            json!({"path": "a", "mode": "0777"}),
            json!({"path": "a", "edits": [{"path": "/etc/passwd"}]}),
            json!({"path": "a", "content": {"command": "x"}}),
            json!({"path": "a", "edits": [["x"]]}),
            json!("a"),
        ] {
            assert!(!only(input.clone()), "{input}");
        }
        let fetched = |input: Value| fetch("WebFetch", &input).is_complete;
        assert!(
            fetched(json!({"url": "https://x.org", "prompt": "?"}))
                && !fetched(json!({"url": "https://x.org", "headers": {}}))
        );
    }
}
