//! The operation for which an agent asks approval, as its CLI describes it.

use crate::shorten;

/// A file or directory of an operation.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StatedPath {
    /// The absolute path as the agent states it.
    pub stated: String,
    /// The absolute path with all links resolved. `None`: it could not be determined.
    pub real: Option<String>,
}

/// The tool of an approval that a run asks for by itself, in its own words.
pub const REQUEST_APPROVAL: &str = "request_approval";

/// An action of an agent. Policies and grants decide about it; people see the request's text and
/// preview.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Operation {
    /// The CLI's name for the kind of action (`Bash`, `execute`), never a text of the model.
    pub tool: String,
    /// The command line for a shell.
    pub command: Option<String>,
    /// The files that it reads or changes.
    pub paths: Vec<StatedPath>,
    /// The addresses that it connects to.
    pub urls: Vec<String>,
    /// The directory in which it happens. `None`: the run's.
    pub directory: Option<StatedPath>,
    /// Directories in which it may happen instead, by name: the agent's shell may have changed to
    /// them. If there are any, no directory is certain.
    pub possible_directories: Vec<String>,
    /// The run's directory, with all links resolved. `None`: it could not be determined.
    pub run_directory: Option<String>,
    /// Command, paths and addresses state everything that it does.
    pub is_complete: bool,
    /// A hash of the whole call. `None`: the call is not fully known, so nothing is identical to
    /// it.
    pub digest: Option<String>,
}

impl Operation {
    /// Returns what identifies the operation: two operations are the same action if these are
    /// equal. `None`: it is not fully known.
    #[must_use]
    pub fn identity(&self) -> Option<Vec<String>> {
        let Self {
            tool,
            command,
            paths,
            urls,
            directory,
            possible_directories,
            run_directory,
            is_complete: _,
            digest,
        } = self;
        if !possible_directories.is_empty() {
            return None;
        }
        let (digest, run_directory) = (digest.as_ref()?, run_directory.as_ref()?);
        let path = |StatedPath { stated, real }: &StatedPath| Some([stated.clone(), real.clone()?]);
        let directory = match directory {
            Some(directory) => path(directory)?.concat(),
            None => run_directory.clone(),
        };
        let mut parts = vec![
            tool.clone(),
            run_directory.clone(),
            directory,
            digest.clone(),
        ];
        parts.push(command.clone().unwrap_or_default());
        parts.push(paths.len().to_string());
        for stated in paths {
            parts.extend(path(stated)?);
        }
        parts.extend(urls.iter().cloned());
        Some(parts)
    }

    /// Returns whether anything besides the tool is known.
    #[must_use]
    pub fn has_content(&self) -> bool {
        self.command.is_some() || !self.paths.is_empty() || !self.urls.is_empty()
    }

    /// Returns everything that an approval of the operation allows, in order. The tool is not a
    /// part.
    #[must_use]
    pub fn parts(&self) -> Vec<OperationPart> {
        let Self {
            tool: _,
            command,
            paths,
            urls,
            directory,
            possible_directories,
            run_directory: _,
            is_complete: _,
            digest: _,
        } = self;
        let part = |name, label, text: String| OperationPart { name, label, text };
        let mut parts: Vec<OperationPart> = command
            .iter()
            .map(|command| part("command", "command", command.clone()))
            .collect();
        parts.extend(paths.iter().map(|path| part("paths", "file", path.shown())));
        parts.extend(urls.iter().map(|url| part("urls", "address", url.clone())));
        parts.extend(
            directory
                .iter()
                .map(|directory| part("directory", "in directory", directory.shown())),
        );
        parts.extend(
            possible_directories.iter().map(|directory| {
                part("possible_directories", "or in directory", directory.clone())
            }),
        );
        parts
    }

    /// Returns the operation in one line for people. Long parts are cut.
    #[must_use]
    pub fn summary(&self) -> String {
        parts_line(&self.tool, &self.parts())
    }
}

impl StatedPath {
    /// Returns the path as the agent states it, and where it leads if that is elsewhere.
    #[must_use]
    pub fn shown(&self) -> String {
        match &self.real {
            Some(real) if *real != self.stated => format!("{} -> {real}", self.stated),
            Some(_) | None => self.stated.clone(),
        }
    }
}

/// Something that an approval allows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OperationPart {
    /// The field's name in the contract.
    pub name: &'static str,
    /// The label for people.
    pub label: &'static str,
    pub text: String,
}

/// Returns everything that an approval allows, in addition to its text.
#[must_use]
pub fn approval_parts(operation: Option<&Operation>, preview: Option<&str>) -> Vec<OperationPart> {
    let mut parts = operation.map(Operation::parts).unwrap_or_default();
    // The preview of a CLI's call repeats the call, which complete parts already show. A run's own
    // statement is never complete.
    if !operation.is_some_and(|operation| {
        operation.tool != REQUEST_APPROVAL && operation.is_complete && operation.has_content()
    }) {
        parts.extend(preview.map(|preview| OperationPart {
            name: "preview",
            label: "preview",
            text: preview.to_owned(),
        }));
    }
    parts
}

/// Maximum number of characters of a text in a line.
const LINE_TEXT_CHARS_MAX: usize = 120;
/// Maximum number of parts with the same name in a line.
const LINE_PARTS_MAX: usize = 3;

/// Formats a text and what it is about as one line. Neither a long text nor many parts can hide
/// another part: each is cut by itself, with a mark.
#[must_use]
pub fn parts_line(text: &str, parts: &[OperationPart]) -> String {
    let short = |text: &str| shorten::counted(text.trim(), LINE_TEXT_CHARS_MAX).into_owned();
    let mut line = short(text);
    for (n, part) in parts.iter().enumerate() {
        let before = parts[..n]
            .iter()
            .filter(|other| other.name == part.name)
            .count();
        if before < LINE_PARTS_MAX {
            line.push_str(&format!("; {}: {}", part.label, short(&part.text)));
        } else if before == LINE_PARTS_MAX {
            let more = parts[n..]
                .iter()
                .filter(|other| other.name == part.name)
                .count();
            line.push_str(&format!("; … {more} more of \"{}\"", part.label));
        }
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path(stated: &str, real: Option<&str>) -> StatedPath {
        StatedPath {
            stated: stated.to_owned(),
            real: real.map(str::to_owned),
        }
    }

    #[test]
    fn line_names_command_files_and_addresses() {
        let operation = Operation {
            tool: REQUEST_APPROVAL.to_owned(),
            command: Some("rm -rf /".to_owned()),
            paths: vec![
                path("/etc/passwd", None),
                path("/tmp/x", Some("/etc/shadow")),
            ],
            urls: vec!["https://evil.example".to_owned()],
            ..Operation::default()
        };
        let line = "request_approval; command: rm -rf /; file: /etc/passwd; file: /tmp/x -> /etc/shadow; address: https://evil.example";
        assert_eq!(operation.summary(), line);
    }

    #[test]
    fn long_or_many_parts_hide_no_other() {
        let operation = Operation {
            command: Some(format!("true{}; rm -rf /", " ".repeat(1_000))),
            paths: (0..40).map(|n| path(&format!("/f{n}"), None)).collect(),
            urls: vec!["https://evil.example".to_owned()],
            ..Operation::default()
        };
        let line = parts_line(&"a long story ".repeat(100), &operation.parts());
        for part in [
            "more characters); command: true",
            "(894 more characters); file: /f0; file: /f1; file: /f2; … 37 more of \"file\"; address: https://evil",
        ] {
            assert!(line.contains(part), "{part} in {line}");
        }
        assert!(line.chars().count() < 600, "{line}");
    }
}
