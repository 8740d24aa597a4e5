//! The text of `adj config show`, in the syntax of the file.

use super::agents::settings;
use super::pools;
use super::tables::{
    chats, delegation, pressure, rate_limits, repository, template, workspace_settings,
};
use super::webhooks::{notify, webhook};
use crate::cli::out::{Failure, Out};
use crate::config::{AgentEntry, BUILT_IN, Config};
use crate::text;
use adjutant_core::AgentName;
use adjutant_core::units::duration;
use serde_json::Value;

/// Prints a configuration.
pub(super) struct ConfigListing<'a> {
    config: &'a Config,
    out: &'a Out,
}

impl<'a> ConfigListing<'a> {
    pub(super) fn new(config: &'a Config, out: &'a Out) -> Self {
        Self { config, out }
    }

    /// Prints the whole configuration with its defaults.
    pub(super) fn print(&self) -> Result<(), Failure> {
        self.file()?;
        for (field, value) in general(self.config) {
            self.setting(field, &value)?;
        }
        self.limits()?;
        self.chats()?;
        self.workspaces()?;
        self.agents()?;
        self.receivers()
    }

    fn file(&self) -> Result<(), Failure> {
        let note = if self.config.exists {
            ""
        } else {
            " (does not exist; defaults apply)"
        };
        let path = text::line(&self.config.path.display().to_string());
        self.out.print_line(&format!("# {path}{note}"))
    }

    fn limits(&self) -> Result<(), Failure> {
        let config = self.config;
        self.section("delegation", &delegation(config))?;
        self.section("rate_limits", &rate_limits(config))?;
        self.section("pressure", &pressure(config))?;
        for (name, pool) in &config.pools {
            self.section(&format!("pools.{name}"), &pools::settings(pool))?;
        }
        Ok(())
    }

    fn chats(&self) -> Result<(), Failure> {
        self.section("chats", &chats(self.config))?;
        for (name, settings) in self.config.chats.templates() {
            self.section(&format!("chats.templates.{name}"), &template(settings))?;
        }
        Ok(())
    }

    fn workspaces(&self) -> Result<(), Failure> {
        let workspaces = &self.config.workspaces;
        self.section(
            "workspaces",
            &workspace_settings(workspaces.isolation, &workspaces.general),
        )?;
        for entry in &workspaces.repositories {
            self.out.print_line("\n[[workspaces.repositories]]")?;
            for (field, value) in repository(entry).as_object().into_iter().flatten() {
                self.setting(field, &toml_value(value))?;
            }
        }
        Ok(())
    }

    /// Prints the agents. A built-in agent with its defaults takes a dozen lines, most of which are
    /// the same for all: these are only named.
    fn agents(&self) -> Result<(), Failure> {
        let (declared, plain): (Vec<_>, Vec<_>) = self
            .config
            .agents
            .iter()
            .partition(|(_, entry)| has_settings(entry));
        if !plain.is_empty() {
            let names: Vec<&str> = plain.iter().map(|(name, _)| name.as_str()).collect();
            let line = format!(
                "built-in agents with their defaults: {} (adj agents NAME shows one)",
                names.join(", ")
            );
            self.out
                .print_text(&format!("\n{}", self.out.indent("# ", &line)))?;
        }
        declared
            .into_iter()
            .try_for_each(|(name, entry)| self.agent(name, entry))
    }

    fn agent(&self, name: &AgentName, entry: &AgentEntry) -> Result<(), Failure> {
        self.out.print_line(&format!(
            "\n[agents.{name}]   # {}",
            text::line(&entry.source)
        ))?;
        if let Some(pool) = &entry.pool {
            self.setting("pool", &format!("\"{pool}\""))?;
        }
        for (field, value) in settings(entry) {
            if value.is_empty() {
                self.out
                    .print_line(&format!("# {field} is not set: no limit"))?;
            } else {
                self.setting(field, &value)?;
            }
        }
        Ok(())
    }

    /// Prints who is notified: the person here, and webhooks.
    fn receivers(&self) -> Result<(), Failure> {
        self.section("notify", &notify(self.config))?;
        for hook in self.config.webhooks.iter().filter_map(webhook) {
            self.out.print_line("\n[[webhooks]]")?;
            for (field, value) in hook.as_object().into_iter().flatten() {
                self.setting(field, &value.to_string())?;
            }
        }
        Ok(())
    }

    /// Prints a table, without the fields that are not set.
    fn section(&self, name: &str, fields: &Value) -> Result<(), Failure> {
        self.out.print_line(&format!("\n[{}]", text::line(name)))?;
        fields
            .as_object()
            .into_iter()
            .flatten()
            .filter(|(_, value)| !value.is_null())
            .try_for_each(|(field, value)| self.setting(field, &toml_value(value)))
    }

    fn setting(&self, field: &str, value: &str) -> Result<(), Failure> {
        self.out
            .print_line(&format!("{field} = {}", text::line(value)))
    }
}

/// Returns whether an agent has settings that are not those of its preset.
fn has_settings(entry: &AgentEntry) -> bool {
    entry.source != BUILT_IN || entry.pool.is_some()
}

/// Returns the settings outside of tables, with their values in the syntax of the file. An optional
/// setting is left out if it is not set.
fn general(config: &Config) -> Vec<(&'static str, String)> {
    let quoted = |value: String| format!("\"{value}\"");
    let length = |ms: i64| quoted(duration::exact(ms));
    let optional_length = |ms: Option<i64>| ms.map_or_else(|| quoted("never".to_owned()), length);
    let switch = |is_on: bool| is_on.then(|| "true".to_owned());
    let http = &config.http;
    let fields = [
        ("live_runs_max", Some(config.live_runs_max.to_string())),
        (
            "idle_exit",
            Some(optional_length(config.times.idle_exit_ms)),
        ),
        (
            "listen",
            config.listen.map(|address| quoted(address.to_string())),
        ),
        ("listen_without_tls", switch(http.without_tls)),
        (
            "public_url",
            http.public_url.as_ref().map(|url| quoted(url.to_string())),
        ),
        (
            "store",
            config
                .store
                .as_ref()
                .map(|address| quoted(address.to_string())),
        ),
        ("store_shared", switch(config.store_shared)),
        (
            "log_store",
            config
                .log_store
                .as_ref()
                .map(|address| quoted(address.to_string())),
        ),
        ("runner_lease", Some(length(config.times.runner_lease_ms))),
        ("expiry", Some(length(config.times.expiry_ms))),
        (
            "stopped_retention",
            Some(length(config.times.stopped_retention_ms)),
        ),
        (
            "finished_retention",
            Some(optional_length(config.times.finished_retention_ms)),
        ),
        ("log_bytes_max", Some(config.log_bytes_max.to_string())),
        (
            "containment",
            Some(quoted(config.containment.word().to_owned())),
        ),
        (
            "refuse_shared_directory",
            Some(config.refuse_shared_directory.to_string()),
        ),
        ("default_agent", config.default_agent.clone().map(quoted)),
    ];
    fields
        .into_iter()
        .filter_map(|(field, value)| Some((field, value?)))
        .collect()
}

fn toml_value(value: &Value) -> String {
    match value.as_object() {
        // An inline table.
        Some(pairs) => format!(
            "{{ {} }}",
            pairs
                .iter()
                .map(|(name, value)| format!("{} = {value}", key(name)))
                .collect::<Vec<_>>()
                .join(", ")
        ),
        None => value.to_string(),
    }
}

/// Returns a key in the syntax of the file.
fn key(name: &str) -> String {
    let is_bare = !name.is_empty()
        && name
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-'));
    if is_bare {
        name.to_owned()
    } else {
        Value::from(name).to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Home;

    fn value(config: &Config, field: &str) -> Option<String> {
        let fields = general(config).into_iter();
        let mut fields = fields.filter(|(name, _)| *name == field);
        fields.next().map(|(_, value)| value)
    }

    #[test]
    fn optional_settings_are_listed_only_if_they_are_set() {
        let mut config = Config::builtin(&Home { dir: "/h".into() });
        for field in ["listen", "store", "store_shared", "default_agent"] {
            assert_eq!(value(&config, field), None, "{field}");
        }
        config.store_shared = true;
        config.default_agent = Some("echo".to_owned());
        assert_eq!(value(&config, "store_shared").as_deref(), Some("true"));
        assert_eq!(value(&config, "default_agent").as_deref(), Some("\"echo\""));
    }

    #[test]
    fn absent_times_are_written_as_never() {
        let mut config = Config::builtin(&Home { dir: "/h".into() });
        config.times.idle_exit_ms = None;
        config.times.finished_retention_ms = Some(90_000);
        assert_eq!(value(&config, "idle_exit").as_deref(), Some("\"never\""));
        assert_eq!(
            value(&config, "finished_retention").as_deref(),
            Some("\"1m30s\"")
        );
    }

    #[test]
    fn tables_within_a_line_are_in_the_syntax_of_the_file() {
        let table = serde_json::json!({"chars": 5, "a b": "x"});
        assert_eq!(toml_value(&table), "{ chars = 5, \"a b\" = \"x\" }");
    }
}
