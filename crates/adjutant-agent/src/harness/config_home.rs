//! A home for one attempt, for a CLI whose profile is enforced by its configuration file. It links
//! to the files in the user's home, except for a copy of that file with the profile's settings.

use crate::preset::{ConfigHome, Preset};
use crate::protocol::{AttemptDir, Order};
use std::path::PathBuf;
use toml::Table;

/// A home to create before the agent starts.
#[derive(Debug, PartialEq)]
pub struct AttemptHome {
    /// The user's home of this CLI.
    pub user_home: PathBuf,
    /// The attempt's home, removed at the end of the attempt.
    pub at: PathBuf,
    /// The name of the configuration file in both.
    pub file: String,
    /// Directories to create in the user's home if missing, so that the attempt shares them.
    pub dirs: Vec<String>,
    /// Added to the user's configuration.
    pub settings: Table,
}

impl AttemptHome {
    /// Returns the home that the run's profile requires, and the variable that names it to the CLI.
    pub(super) fn of(order: &Order, preset: &Preset, dir: &AttemptDir) -> Option<(String, Self)> {
        let ConfigHome {
            env,
            home,
            file,
            dirs,
        } = preset.config_home.as_ref()?;
        let settings = &preset.permissions.of(&order.permissions).settings;
        if settings.is_empty() {
            return None;
        }
        let named = order
            .env
            .get(env)
            .filter(|path| !path.is_empty())
            .map(|path| order.cwd.join(path));
        let user_home = named.or_else(|| Some(PathBuf::from(order.env.get("HOME")?).join(home)))?;
        let own = Self {
            user_home,
            at: dir.temporary().join("home"),
            file: file.clone(),
            dirs: dirs.clone(),
            settings: settings.clone(),
        };
        Some((env.clone(), own))
    }

    /// Adds the settings to the user's configuration.
    ///
    /// # Errors
    /// The configuration is not TOML.
    pub fn configuration(&self, user_config: &str) -> Result<String, toml::de::Error> {
        let mut table: Table = user_config.parse()?;
        merge(&mut table, &self.settings);
        Ok(table.to_string())
    }
}

/// Merges settings into a table: tables recursively, missing items are appended to lists, other
/// values are replaced.
fn merge(table: &mut Table, settings: &Table) {
    for (name, setting) in settings {
        match (table.get_mut(name), setting) {
            (Some(toml::Value::Table(old)), toml::Value::Table(new)) => merge(old, new),
            (Some(toml::Value::Array(old)), toml::Value::Array(new)) => {
                let missing: Vec<_> = new
                    .iter()
                    .filter(|value| !old.contains(value))
                    .cloned()
                    .collect();
                old.extend(missing);
            }
            _ => {
                table.insert(name.clone(), setting.clone());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_are_merged_into_the_users_configuration() {
        let settings = "[tools]\ndisabled = [\"Fetch\", \"Agent\"]\nlimit = 1\n"
            .parse()
            .expect("TOML");
        let home = AttemptHome {
            user_home: PathBuf::new(),
            at: PathBuf::new(),
            file: String::new(),
            dirs: Vec::new(),
            settings,
        };
        let user_home = "model = \"x\"\n[tools]\ndisabled = [\"Cron\", \"Agent\"]\nlimit = 9\n[hooks.a]\nb = true\n";
        let merged: Table = home
            .configuration(user_home)
            .expect("it is TOML")
            .parse()
            .expect("TOML");
        let expected = "model = \"x\"\n[tools]\ndisabled = [\"Cron\", \"Agent\", \"Fetch\"]\nlimit = 1\n[hooks.a]\nb = true\n";
        assert_eq!(merged, expected.parse().expect("TOML"));
        assert!(
            home.configuration("")
                .expect("it is TOML")
                .contains("Fetch")
        );
        assert!(home.configuration("model =").is_err());
    }
}
