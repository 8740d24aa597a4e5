//! Presets describe vendors' CLIs as data: how to start one, pass it a prompt, read its output,
//! stop it and resume it. The built-in presets are in `builtin/`; a user's configuration can
//! declare more.
//!
//! Texts may contain placeholders: `{cwd}`, `{session}`, `{dir}` (the attempt's own directory,
//! 0700), `{tmp}` (a directory of the attempt for temporary files), `{file:NAME}` (a file of
//! `files`), `{adj}`, `{access}` (for `adj mcp --token-file`), `{mcp_url}`, `{mcp_token}` (in files
//! and environment only: never in an argument), `{gate_url}` and `{gate_token}` (in `gate` only),
//! `{model}` (in `model` only), `{pi_extension}` (the source of Adjutant's extension). `:json`
//! after a name writes the value as a JSON (and TOML) string, including quotes.

mod about;
mod built_in;
mod gate;
mod model;
mod profile;
mod promise;
mod registry;
#[cfg(test)]
mod stream_tests;
mod version;

pub use about::{About, Capabilities, VersionMin};
pub use adjutant_stream::format::{
    End, FailedMessage, PlainText, Rule, StderrRetry, Stream, SubagentPaths, UsagePaths,
};
pub use built_in::{ACP, acp, all, builtin, is_vendors_variable, names};
pub use gate::GateForm;
pub use model::ModelForm;
pub use profile::{Profile, Profiles};
pub use promise::{Action, ActionOutcome, Exception, Promise};
pub use registry::{RegisteredAgent, Registry, registry};
pub use version::{TestedVersions, Version};

use adjutant_core::{Permissions, words};
use built_in::ACP_STREAM;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// How to drive one CLI.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Preset {
    /// The preset's name, set when the file is read.
    #[serde(default)]
    pub name: String,
    /// The product's name, for people.
    #[serde(default)]
    pub title: String,
    pub driver: Driver,
    /// The program and its first arguments.
    pub command: Vec<String>,
    #[serde(default)]
    pub args: Vec<String>,
    /// Added after `args` for a new session.
    #[serde(default)]
    pub new_args: Vec<String>,
    /// Replaces `args` and `new_args` to resume a session. Empty: the CLI cannot resume a session.
    #[serde(default)]
    pub resume_args: Vec<String>,
    /// Added unless the directory is trusted: arguments that make the CLI ignore its configuration.
    #[serde(default)]
    pub untrusted_args: Vec<String>,
    /// Set unless the directory is trusted. Overrides the dispatcher's environment and the
    /// configuration.
    #[serde(default)]
    pub untrusted_env: BTreeMap<String, String>,
    /// Added if the directory is trusted: arguments that make the CLI use its configuration.
    #[serde(default)]
    pub trusted_args: Vec<String>,
    /// How the prompt is passed. Drivers of a protocol ignore this.
    #[serde(default)]
    pub prompt: PromptForm,
    /// With `prompt = "arg"`: the arguments that contain the prompt, as `{prompt}`.
    #[serde(default)]
    pub prompt_args: Vec<String>,
    /// Environment variables of the agent.
    #[serde(default)]
    pub env: BTreeMap<String, String>,
    /// Variables of the dispatcher that are passed to the agent. A name may end in `*`.
    #[serde(default)]
    pub env_pass: Vec<String>,
    /// The variable that names a file for the CLI's own log. The log is only searched for
    /// `stream.stderr_retries` and not kept. A value of the dispatcher takes precedence.
    #[serde(default)]
    pub log_env: Option<String>,
    /// Where the CLI writes its own log, for one that takes no file for it: `{tmp}/NAME` or
    /// `~/PATH`, in which a component may be `*`, begin with `*`, or contain `{session}`. It is
    /// searched in the same way.
    #[serde(default)]
    pub log_files: Option<String>,
    /// Files to write into the attempt's directory, 0600.
    #[serde(default)]
    pub files: BTreeMap<String, String>,
    #[serde(default)]
    pub permissions: Profiles,
    /// Where the CLI keeps its state, which a fence leaves writable: `~/DIR/` (created if missing),
    /// `~/FILE`, or `$VARIABLE/DIR/`. Of alternatives separated by `|`, the first one whose
    /// variable is set applies.
    #[serde(default)]
    pub state: Vec<String>,
    /// The CLI's home, if profiles are enforced by its configuration file.
    #[serde(default)]
    pub config_home: Option<ConfigHome>,
    #[serde(default)]
    pub acp: Acp,
    #[serde(default)]
    pub stop: StopForm,
    #[serde(default)]
    pub stream: Stream,
    /// The parts of its output that are not the answer, for a CLI that prints text.
    #[serde(default)]
    pub text: PlainText,
    /// Where the CLI keeps its sessions, for one that fails if a session is missing. The run then
    /// starts a new session.
    #[serde(default)]
    pub sessions: Option<Sessions>,
    /// Patterns of error messages. The first that matches decides.
    #[serde(default)]
    pub failures: Vec<FailurePattern>,
    /// How the CLI receives the name of its model. `None`: it takes none, or this is unknown.
    #[serde(default)]
    pub model: Option<ModelForm>,
    /// How the CLI is configured to use the gate. `None`: it cannot, or this is unknown.
    #[serde(default)]
    pub gate: Option<GateForm>,
    #[serde(default)]
    pub can: Capabilities,
    #[serde(default)]
    pub about: About,
}

/// The code that communicates with the CLI.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Driver {
    /// Stream-json in both directions.
    Claude,
    /// Codex's app server.
    Codex,
    /// The Agent Client Protocol.
    Acp,
    /// pi's RPC mode, with Adjutant's extension.
    Pi,
    /// JSON lines on standard output; nothing is sent to the CLI after its prompt.
    Jsonl,
    /// Plain text on standard output.
    Plain,
}

words!(Driver { Claude = "claude", Codex = "codex", Acp = "acp", Pi = "pi", Jsonl = "jsonl", Plain = "plain" });

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PromptForm {
    #[default]
    Stdin,
    Arg,
}

/// Differences among agents that speak ACP.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Acp {
    /// The method to `authenticate` with, if the agent requires one.
    #[serde(default)]
    pub authenticate: Option<String>,
    /// Prefixes of the titles of edits, for an agent whose permission requests do not mark edits
    /// otherwise.
    #[serde(default)]
    pub edit_titles: Vec<String>,
    /// The agent reports a call's input as JSON text in its content, and as `rawInput` only once
    /// the call runs.
    #[serde(default)]
    pub input_in_content: bool,
    /// A call's title is the name of its tool, `: ` and the beginning of its input. Only for an
    /// agent that chooses the titles itself.
    #[serde(default)]
    pub input_in_titles: bool,
}

/// How the CLI is stopped if cancelling over its protocol has not stopped it.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StopForm {
    /// Send INT to the agent first. Some CLIs leave their child processes running on TERM.
    #[serde(default)]
    pub interrupt: bool,
}

/// Where a CLI keeps its sessions: `<home>/<under>/<any directory>/<file>`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Sessions {
    /// The variable that names the CLI's home. If unset, the home is `home` below the user's.
    pub home_env: String,
    pub home: String,
    pub under: String,
    /// The file name, with `{session}`.
    pub file: String,
}

/// A CLI's home. A run whose profile has `settings` gets its own home: links to the files in the
/// user's, and a copy of the configuration file with the settings.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ConfigHome {
    /// The variable that names it. If unset, it is `home` below the user's.
    pub env: String,
    pub home: String,
    /// The configuration, in TOML.
    pub file: String,
    /// Directories to create in the user's home if missing, so that what the CLI writes there is
    /// kept.
    #[serde(default)]
    pub dirs: Vec<String>,
}

/// Maps error messages to a cause and a hint.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FailurePattern {
    /// Substrings in lower case, of which the message contains at least one.
    pub any: Vec<String>,
    /// The stable word of a cause.
    pub cause: String,
    pub hint: String,
}

/// Why the files of a CLI's own log cannot be found.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LogFilesProblem {
    #[error("{0:?} is elsewhere: write {{tmp}}/NAME or ~/PATH")]
    Elsewhere(String),
    #[error("{name:?} in {files:?} is not a name: * may only be its beginning")]
    NotAName { name: String, files: String },
    #[error("goes without log_env, which names the file to the CLI")]
    WithVariable,
}

impl Preset {
    /// Reads a preset from the form in which it is stored with a run.
    #[must_use]
    pub fn from_text(text: &str) -> Option<Self> {
        serde_json::from_str(text).ok()
    }

    /// Returns whether the CLI states what its work has cost.
    #[must_use]
    pub fn states_cost(&self) -> bool {
        self.stream.rules.iter().any(|rule| {
            rule.usage
                .as_ref()
                .is_some_and(|usage| usage.cost_usd.is_some())
        })
    }

    /// Returns the form in which a preset is stored with a run.
    #[must_use]
    pub fn to_text(&self) -> String {
        serde_json::to_string(self).expect("a preset is plain data")
    }

    /// Fills in missing keys of a declared preset: the capabilities of its driver, and the defaults
    /// of ACP agents. `has_key` returns whether a key is declared.
    #[must_use]
    pub fn with_defaults(mut self, has_key: &dyn Fn(&str) -> bool) -> Self {
        let like = match self.driver {
            Driver::Acp => Some(acp()),
            Driver::Claude | Driver::Codex | Driver::Pi => all()
                .iter()
                .find(|preset| preset.name == self.driver.word()),
            Driver::Jsonl | Driver::Plain => None,
        };
        let Some(like) = like else { return self };
        if !has_key("can") {
            self.can = like.can;
        }
        if self.driver == Driver::Acp {
            if !has_key("permissions") {
                self.permissions.clone_from(&like.permissions);
            }
            if !has_key("failures") {
                self.failures.clone_from(&like.failures);
            }
            if !has_key("about") {
                self.about.clone_from(&like.about);
            }
        }
        self
    }

    /// Sets a preset's name, and the rules and arguments that its protocol implies.
    #[must_use]
    pub fn complete(mut self, name: &str) -> Self {
        name.clone_into(&mut self.name);
        if self.title.is_empty() {
            name.clone_into(&mut self.title);
        }
        // New and resumed ACP sessions use the same command.
        if self.driver == Driver::Acp && self.resume_args.is_empty() && self.can.resume {
            self.resume_args.clone_from(&self.args);
        }
        if self.driver == Driver::Acp && self.stream.rules.is_empty() {
            let protocol: Stream =
                toml::from_str(ACP_STREAM).expect("the built-in ACP rules are valid");
            let Stream {
                rules,
                end_is_stated,
                usage_of_session,
                cached_in_input,
                usage_of_last_call: _,
                success_needs_answer: _,
                failed_results: _,
                retry_notes: _,
                remarks: _,
                failed_messages: _,
                stderr_retries: _,
                speaker: _,
            } = protocol;
            self.stream = Stream {
                rules,
                end_is_stated,
                usage_of_session,
                cached_in_input,
                ..self.stream
            };
        }
        self
    }

    /// Returns whether a profile is enforced: by a protocol with permission requests, or by the
    /// profile's settings for the CLI.
    #[must_use]
    pub fn enforces(&self, permissions: Permissions) -> bool {
        let asks = matches!(
            self.driver,
            Driver::Claude | Driver::Codex | Driver::Acp | Driver::Pi
        );
        permissions == Permissions::Full
            || asks
            || !self.permissions.of(permissions.word()).is_empty()
    }

    /// Checks that the CLI's own log can be found.
    ///
    /// # Errors
    /// The problem of `log_files`.
    pub fn check_log_files(&self) -> Result<(), LogFilesProblem> {
        let Some(files) = &self.log_files else {
            return Ok(());
        };
        let Some(names) = files
            .strip_prefix("{tmp}/")
            .or_else(|| files.strip_prefix("~/"))
        else {
            return Err(LogFilesProblem::Elsewhere(files.clone()));
        };
        let is_usable = |name: &str| {
            !matches!(name, "" | "." | "..")
                && !name.get(1..).is_some_and(|rest| rest.contains('*'))
        };
        match names.split('/').find(|name| !is_usable(name)) {
            Some(name) => Err(LogFilesProblem::NotAName {
                name: name.to_owned(),
                files: files.clone(),
            }),
            None if self.log_env.is_some() => Err(LogFilesProblem::WithVariable),
            None => Ok(()),
        }
    }

    /// Returns whether this variable of the dispatcher is passed to the agent.
    #[must_use]
    pub fn passes(&self, name: &str) -> bool {
        passes(&self.env_pass, name)
    }
}

/// Returns whether one of the patterns matches a variable: its name, or a prefix and `*`.
#[must_use]
pub fn passes(patterns: &[impl AsRef<str>], name: &str) -> bool {
    patterns
        .iter()
        .map(AsRef::as_ref)
        .any(|pattern| match pattern.strip_suffix('*') {
            Some(beginning) => name.starts_with(beginning),
            None => name == pattern,
        })
}

#[cfg(test)]
mod tests {
    use super::*;
    use adjutant_core::Cause;

    #[test]
    fn log_files_that_cannot_be_found_are_refused() {
        let copilot = builtin("copilot").expect("it is there");
        for files in [
            "/var/log/x/*.log",
            "x.log",
            "~/",
            "~/a//b.log",
            "{tmp}/../x.log",
            "~/a*.log",
            "~/**/x.log",
        ] {
            let preset = Preset {
                log_files: Some(files.to_owned()),
                ..copilot.clone()
            };
            assert!(preset.check_log_files().is_err(), "{files}");
        }
        assert!(
            Preset {
                log_env: Some("LOG".to_owned()),
                ..copilot.clone()
            }
            .check_log_files()
            .is_err()
        );
    }

    #[test]
    fn built_in_presets_are_valid() {
        for name in names() {
            let preset = builtin(name).expect("it is there");
            assert_eq!(
                Preset::from_text(&preset.to_text()).as_ref(),
                Some(&preset),
                "{name}"
            );
            assert!(!preset.command.is_empty(), "{name}");
            assert_eq!(preset.check_log_files(), Ok(()), "{name}");
            for pattern in &preset.failures {
                assert!(
                    Cause::from_word(&pattern.cause).is_some(),
                    "{name}: {}",
                    pattern.cause
                );
                assert!(
                    pattern.any.iter().all(|text| *text == text.to_lowercase()),
                    "{name}: patterns are lower case"
                );
            }
            let args = [
                &preset.args,
                &preset.new_args,
                &preset.resume_args,
                &preset.untrusted_args,
                &preset.trusted_args,
                &preset.prompt_args,
            ];
            assert!(
                !args
                    .into_iter()
                    .flatten()
                    .any(|arg| arg.contains("{mcp_token")),
                "{name}: no token in an argument"
            );
            assert_eq!(preset.can.resume, !preset.resume_args.is_empty(), "{name}");
            let About {
                versions_tried,
                version_min,
                version_args,
                sign_in_files,
                tools,
                directory,
                resumes,
                ..
            } = &preset.about;
            let is_valid = |min: &VersionMin| {
                Version::find(&min.version).is_some()
                    && !min.why.is_empty()
                    && !version_args.is_empty()
            };
            assert!(
                version_min.as_ref().is_none_or(is_valid),
                "{name}: {version_min:?}"
            );
            assert!(
                versions_tried.is_empty() || preset.about.tested_versions().is_some(),
                "{name}: {versions_tried}"
            );
            assert!(
                sign_in_files
                    .iter()
                    .all(|file| file.starts_with("~/")
                        || file.starts_with('$') && file.contains('/')),
                "{name}: {sign_in_files:?}"
            );
            assert!(
                [tools, directory, resumes]
                    .into_iter()
                    .all(|text| !text.is_empty()),
                "{name}: its page would have holes"
            );
        }
    }

    #[test]
    fn untested_preset_supports_only_full() {
        for preset in all() {
            let Profiles { read, edit, full } = &preset.permissions;
            for (name, profile) in [("read", read), ("edit", edit), ("full", full)] {
                let is_tried = preset.about.tested_versions().is_some();
                assert!(
                    is_tried || name == "full" || profile.unsupported.is_some(),
                    "{}: {name} is not tested",
                    preset.name
                );
                assert!(
                    profile.unsupported.is_some() == profile.about.is_empty(),
                    "{}: {name} has either a description or a reason for its refusal",
                    preset.name
                );
            }
        }
    }

    #[test]
    fn version_below_the_minimum_is_too_old() {
        let claude = builtin("claude").expect("it is there").about;
        let (min, tried) = (
            claude.version_min.as_ref().expect("it has one"),
            claude.tested_versions().expect("it was tried"),
        );
        let problem = |version: &str| min.problem(&Version::find(version).expect("a version"));
        assert!(problem("2.1.99").is_some_and(|why| {
            why.starts_with("too old to be started, 2.1.299 is needed: it would read")
        }));
        assert_eq!(
            (
                problem("2.1.299"),
                problem("3.0"),
                min.problem(&tried.lowest)
            ),
            (None, None, None)
        );
    }

    #[test]
    fn failed_result_is_found_by_its_prefix() {
        let copilot = builtin("copilot").expect("it is there").stream;
        let note = "Info: Request failed due to a transient API error. Retrying...";
        let failed = format!(
            "{note}{note}Error: Authentication failed with provider at http://x (HTTP 401).\n  Check your key"
        );
        assert_eq!(
            copilot.failed_line(&failed),
            Some("Error: Authentication failed with provider at http://x (HTTP 401).")
        );
        assert_eq!(
            copilot.failed_line(&format!(
                "{note}It is done. I fixed \"Error: Authentication failed\"."
            )),
            None
        );
        let aider = builtin("aider").expect("it is there");
        let failed = |text| aider.stream.failed_line(aider.text.answer(text));
        assert_eq!(
            failed("Aider v0.86\nlitellm.AuthenticationError: no key"),
            Some("litellm.AuthenticationError: no key")
        );
        assert_eq!(
            failed("litellm.RateLimitError: 429\nRetrying in 0.2 seconds...\nIt is done."),
            None
        );
    }

    #[test]
    fn answer_follows_the_banner() {
        let aider = builtin("aider").expect("it is there").text;
        let banner = "Warning: Input is not a terminal (fd=0).\n\nAider v0.86.2\nModel: openai/x\nGit repo: .git with 1 files\nRepo-map: disabled\n\n";
        for answer in ["", "It is done.\nModel: yours\n", "a", "é\n"] {
            assert_eq!(aider.answer(&format!("{banner}{answer}")), answer);
        }
        assert_eq!(PlainText::default().answer("\nModel: x\n"), "\nModel: x\n");
    }

    #[test]
    fn registry_lists_no_agent_with_a_preset() {
        let Registry { date, agents } = registry();
        assert!(date.len() == 10 && !agents.is_empty());
        for RegisteredAgent {
            name,
            title,
            command,
        } in agents
        {
            assert!(builtin(name).is_none() && !title.is_empty(), "{name}");
            assert!(
                all()
                    .iter()
                    .all(|preset| preset.command.first() != command.first()),
                "{name}: {command:?}"
            );
            assert!(adjutant_core::AgentName::parse(name).is_ok(), "{name}");
        }
    }

    #[test]
    fn only_listed_variables_are_passed() {
        let claude = builtin("claude").expect("it is there");
        assert!(
            claude.passes("ANTHROPIC_API_KEY")
                && !claude.passes("AWS_SECRET_ACCESS_KEYS_OF_OTHERS")
                && !claude.passes("GEMINI_API_KEY")
        );
    }
}
