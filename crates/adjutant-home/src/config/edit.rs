//! Appends an agent to the text of the configuration file. The existing content stays unchanged.

use super::{Config, ConfigError};
use adjutant_core::AgentName;
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
    #[error(
        "{path}: cannot append to this file (for example because of agents = {{ … }}); add this to it:\n{text}"
    )]
    ByHand { path: PathBuf, text: String },
}

impl NewAgent {
    /// Returns the agent's lines in the file.
    #[must_use]
    pub(crate) fn to_toml(&self) -> String {
        let quoted = |text: &str| toml::Value::from(text).to_string();
        let list = |texts: &[String]| {
            texts
                .iter()
                .map(|text| quoted(text))
                .collect::<Vec<_>>()
                .join(", ")
        };
        let mut text = format!(
            "[agents.{}]\nharness = {}\ncommand = [{}]\n",
            self.name,
            quoted(&self.harness),
            list(&self.command)
        );
        if !self.env_pass.is_empty() {
            text.push_str(&format!("env_pass = [{}]\n", list(&self.env_pass)));
        }
        if !self.description.is_empty() {
            text.push_str(&format!("description = {}\n", quoted(&self.description)));
        }
        text
    }
}

/// Returns the text of a configuration file with one more agent. The other content stays unchanged.
///
/// # Errors
/// The file already has an agent of this name, or cannot be used.
pub fn with_agent(path: &Path, text: &str, agent: &NewAgent) -> Result<String, AddError> {
    let path = path.to_owned();
    let before = Config::parse(path.clone(), text, true)?;
    if let Some(entry) = before.agents.get(&agent.name) {
        let whose = if entry.source == super::BUILT_IN {
            "built in".to_owned()
        } else {
            format!("declared in {}", path.display())
        };
        return Err(AddError::Exists {
            name: agent.name.clone(),
            whose,
        });
    }
    let added = agent.to_toml();
    let gap = match text {
        "" => "",
        text if text.ends_with("\n\n") => "",
        text if text.ends_with('\n') => "\n",
        _ => "\n\n",
    };
    let whole = format!("{text}{gap}{added}");
    let by_hand = || AddError::ByHand {
        path: path.clone(),
        text: added.clone(),
    };
    if !is_only_added(text, &whole, &agent.name) {
        return Err(by_hand());
    }
    Config::parse(path, &whole, true)?;
    Ok(whole)
}

/// Returns whether the only difference between two texts is one more agent.
fn is_only_added(before: &str, after: &str, name: &AgentName) -> bool {
    let (Ok(before), Ok(mut after)) = (before.parse::<toml::Table>(), after.parse::<toml::Table>())
    else {
        return false;
    };
    let removed = after
        .get_mut("agents")
        .and_then(toml::Value::as_table_mut)
        .and_then(|agents| agents.remove(name.as_str()));
    if !before.contains_key("agents") {
        after.remove("agents");
    }
    removed.is_some() && before == after
}

#[cfg(test)]
mod tests {
    use super::*;

    fn agent(name: &str) -> NewAgent {
        NewAgent {
            name: AgentName::parse(name).expect("a name"),
            harness: "acp".to_owned(),
            command: vec!["/opt/my \"agent\"".to_owned(), "--acp".to_owned()],
            env_pass: vec!["MY_KEY".to_owned()],
            description: String::new(),
        }
    }

    fn added(before: &str, name: &str) -> Result<String, AddError> {
        with_agent(Path::new("config.toml"), before, &agent(name))
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
            let after = added(before, "mine").unwrap_or_else(|error| panic!("{before:?}: {error}"));
            assert!(after.starts_with(before), "{after}");
            let config = Config::parse(PathBuf::from("config.toml"), &after, true)
                .expect("a valid configuration");
            let entry = &config.agents[&agent("mine").name];
            assert_eq!(
                (&entry.spec.command, &entry.spec.env_pass),
                (&agent("mine").command, &agent("mine").env_pass)
            );
        }
    }

    #[test]
    fn unusable_file_is_refused() {
        for before in [
            "agents = { other = { harness = \"echo\" } }\n",
            "colour = 1\n",
            "[agents.mine]\nharness = \"echo\"\n",
            "[agents",
        ] {
            assert!(added(before, "mine").is_err(), "{before}");
        }
        assert!(matches!(added("", "claude"), Err(AddError::Exists { .. })));
    }
}
