//! The operation for which an agent asks approval, as its CLI describes it.

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

/// An action of an agent. Policies and grants decide about it; people see the request's text and preview.
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
    /// Directories in which it may happen instead, by name: the agent's shell may have changed to them. If there are any,
    /// no directory is certain.
    pub possible_directories: Vec<String>,
    /// The run's directory, with all links resolved. `None`: it could not be determined.
    pub run_directory: Option<String>,
    /// Command, paths and addresses state everything that it does.
    pub is_complete: bool,
    /// A hash of the whole call. `None`: the call is not fully known, so nothing is identical to it.
    pub digest: Option<String>,
}

impl Operation {
    /// Returns what identifies the operation: two operations are the same action if these are equal. `None`: it is not
    /// fully known.
    #[must_use]
    pub fn identity(&self) -> Option<Vec<String>> {
        let Self { tool, command, paths, urls, directory, possible_directories, run_directory, is_complete: _, digest } = self;
        if !possible_directories.is_empty() {
            return None;
        }
        let (digest, run_directory) = (digest.as_ref()?, run_directory.as_ref()?);
        let path = |StatedPath { stated, real }: &StatedPath| Some([stated.clone(), real.clone()?]);
        let directory = match directory {
            Some(directory) => path(directory)?.concat(),
            None => run_directory.clone(),
        };
        let mut parts = vec![tool.clone(), run_directory.clone(), directory, digest.clone()];
        parts.push(command.clone().unwrap_or_default());
        parts.push(paths.len().to_string());
        for stated in paths {
            parts.extend(path(stated)?);
        }
        parts.extend(urls.iter().cloned());
        Some(parts)
    }

    /// Returns whether anything but the tool is known of what it does.
    #[must_use]
    pub fn has_content(&self) -> bool {
        self.command.is_some() || !self.paths.is_empty() || !self.urls.is_empty()
    }

    /// Returns the operation in one line for people.
    #[must_use]
    pub fn summary(&self) -> String {
        let Self { tool, command, paths, urls, .. } = self;
        let paths: Vec<&str> = paths.iter().map(|path| path.stated.as_str()).collect();
        let what = command.clone().or_else(|| (!paths.is_empty()).then(|| paths.join(" "))).or_else(|| (!urls.is_empty()).then(|| urls.join(" ")));
        match what {
            Some(what) => format!("{tool}: {what}"),
            None => tool.clone(),
        }
    }
}
