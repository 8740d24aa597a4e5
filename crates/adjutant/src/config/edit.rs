//! Appends an agent to the configuration file. The existing content stays unchanged.

use super::{Config, ConfigError, FILE_BYTES_MAX};
use crate::files;
use adjutant_core::AgentName;
use rustix::fs::{FlockOperation, Mode, OFlags};
use std::io;
use std::path::{Path, PathBuf};

/// The fields of a new agent.
#[derive(Debug, Clone)]
pub struct NewAgent {
    pub name: AgentName,
    pub harness: String,
    pub command: Vec<String>,
    pub env_pass: Vec<String>,
    pub description: String,
}

/// Why an agent was not added.
#[derive(Debug, thiserror::Error)]
pub enum AddError {
    #[error(transparent)]
    Config(#[from] ConfigError),
    #[error("an agent {name} is {whose} already")]
    Exists { name: AgentName, whose: String },
    #[error("{path}: {source}")]
    Io { path: PathBuf, source: io::Error },
    #[error("{path}: another command is changing it")]
    Busy { path: PathBuf },
    #[error("{path}: cannot append to this file (for example because of agents = {{ … }}); add this to it:\n{text}")]
    ByHand { path: PathBuf, text: String },
}

impl NewAgent {
    /// Returns the agent's lines in the file.
    #[must_use]
    pub fn to_toml(&self) -> String {
        let quoted = |text: &str| toml::Value::from(text).to_string();
        let list = |texts: &[String]| texts.iter().map(|text| quoted(text)).collect::<Vec<_>>().join(", ");
        let mut text = format!("[agents.{}]\nharness = {}\ncommand = [{}]\n", self.name, quoted(&self.harness), list(&self.command));
        if !self.env_pass.is_empty() {
            text.push_str(&format!("env_pass = [{}]\n", list(&self.env_pass)));
        }
        if !self.description.is_empty() {
            text.push_str(&format!("description = {}\n", quoted(&self.description)));
        }
        text
    }
}

/// Adds an agent to a configuration file, which is created if missing. The other content stays unchanged, and the file
/// is replaced atomically.
///
/// # Errors
/// The file already has an agent of this name, or cannot be used or written. It is then unchanged.
pub fn add_agent(path: &Path, agent: &NewAgent) -> Result<(), AddError> {
    let io_error = |source| AddError::Io { path: path.to_owned(), source };
    // Keep a symbolic link, and change its target.
    let path = &match path.canonicalize() {
        Ok(real) => real,
        Err(error) if error.kind() == io::ErrorKind::NotFound => path.to_owned(),
        Err(error) => return Err(io_error(error)),
    };
    let dir = path.parent().unwrap_or(path);
    std::fs::create_dir_all(dir).map_err(io_error)?;
    let lock = rustix::fs::open(dir, OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty()).map_err(|error| io_error(error.into()))?;
    match rustix::fs::flock(&lock, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => {}
        Err(rustix::io::Errno::WOULDBLOCK) => return Err(AddError::Busy { path: path.clone() }),
        Err(error) => return Err(io_error(error.into())),
    }
    let (text, mode) = match files::read_named(path, FILE_BYTES_MAX) {
        Ok(bytes) => {
            let text = String::from_utf8(bytes).map_err(|error| io_error(io::Error::other(error)))?;
            (text, std::fs::metadata(path).map_err(io_error)?.permissions())
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => (String::new(), std::os::unix::fs::PermissionsExt::from_mode(0o600)),
        Err(error) => return Err(io_error(error)),
    };
    let before = Config::parse(path.clone(), &text, true)?;
    if let Some(entry) = before.agents.get(&agent.name) {
        let whose = if entry.source == super::BUILT_IN { "built in".to_owned() } else { format!("declared in {}", path.display()) };
        return Err(AddError::Exists { name: agent.name.clone(), whose });
    }
    let added = agent.to_toml();
    let gap = match text.as_str() {
        "" => "",
        text if text.ends_with("\n\n") => "",
        text if text.ends_with('\n') => "\n",
        _ => "\n\n",
    };
    let whole = format!("{text}{gap}{added}");
    let by_hand = || AddError::ByHand { path: path.clone(), text: added.clone() };
    if !is_only_added(&text, &whole, &agent.name) {
        return Err(by_hand());
    }
    Config::parse(path.clone(), &whole, true)?;
    files::write_atomically(dir, path, whole.as_bytes()).map_err(io_error)?;
    std::fs::set_permissions(path, mode).map_err(io_error)?;
    files::open_named(path).and_then(|file| file.sync_all()).map_err(io_error)?;
    rustix::fs::fsync(&lock).map_err(|error| io_error(error.into()))
}

/// Returns whether the only difference between two texts is one more agent.
fn is_only_added(before: &str, after: &str, name: &AgentName) -> bool {
    let (Ok(before), Ok(mut after)) = (before.parse::<toml::Table>(), after.parse::<toml::Table>()) else { return false };
    let removed = after.get_mut("agents").and_then(toml::Value::as_table_mut).and_then(|agents| agents.remove(name.as_str()));
    if !before.contains_key("agents") {
        after.remove("agents");
    }
    removed.is_some() && before == after
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{PermissionsExt, symlink};

    fn agent(name: &str) -> NewAgent {
        NewAgent {
            name: AgentName::parse(name).expect("a name"),
            harness: "acp".to_owned(),
            command: vec!["/opt/my \"agent\"".to_owned(), "--acp".to_owned()],
            env_pass: vec!["MY_KEY".to_owned()],
            description: String::new(),
        }
    }

    fn written(before: &str) -> (tempfile::TempDir, PathBuf, Result<(), AddError>) {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("config.toml");
        std::fs::write(&path, before).expect("a file");
        let added = add_agent(&path, &agent("mine"));
        (dir, path, added)
    }

    #[test]
    fn other_content_of_the_file_is_unchanged() {
        for before in [
            "",
            "# mine\n",
            "live_runs_max = 3 # three\r\n\n\n[agents.other]  # x\nharness = \"plain\"\ncommand = [\n  \"/bin/true\", # yes\n]",
            "agents.other.harness = \"echo\"\n",
            "[delegation]\ndepth_max = 2\n",
        ] {
            let (_dir, path, added) = written(before);
            added.unwrap_or_else(|error| panic!("{before:?}: {error}"));
            let after = std::fs::read_to_string(&path).expect("a file");
            assert!(after.starts_with(before), "{after}");
            let config = Config::parse(path, &after, true).expect("a valid configuration");
            let entry = &config.agents[&agent("mine").name];
            assert_eq!((&entry.spec.command, &entry.spec.env_pass), (&agent("mine").command, &agent("mine").env_pass));
        }
    }

    #[test]
    fn unusable_file_is_unchanged() {
        for before in ["agents = { other = { harness = \"echo\" } }\n", "colour = 1\n", "[agents.mine]\nharness = \"echo\"\n", "[agents"] {
            let (_dir, path, added) = written(before);
            assert!(added.is_err(), "{before}");
            assert_eq!(std::fs::read_to_string(&path).expect("a file"), before);
        }
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("config.toml");
        assert!(matches!(add_agent(&path, &agent("claude")), Err(AddError::Exists { .. })));
        assert!(!path.exists());
    }

    #[test]
    fn links_and_modes_are_kept() {
        let dir = tempfile::tempdir().expect("a directory");
        let (real, path) = (dir.path().join("real.toml"), dir.path().join("config.toml"));
        std::fs::write(&real, "# x\n").expect("a file");
        std::fs::set_permissions(&real, PermissionsExt::from_mode(0o640)).expect("a mode");
        symlink("real.toml", &path).expect("a link");
        add_agent(&path, &agent("mine")).expect("added");
        assert!(path.is_symlink());
        let meta = std::fs::metadata(&path).expect("a file");
        assert_eq!(meta.permissions().mode() & 0o777, 0o640);
        // A new file is private.
        let path = dir.path().join("new/config.toml");
        add_agent(&path, &agent("mine")).expect("added");
        assert_eq!(std::fs::metadata(&path).expect("a file").permissions().mode() & 0o777, 0o600);
    }
}
