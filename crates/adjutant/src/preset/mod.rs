//! What is known about a vendor's CLI, as data: how it is started, fed, listened to, stopped and
//! resumed. The built-in ones lie beside the harnesses; a user's configuration can declare more.
//!
//! Texts may hold placeholders: `{cwd}`, `{session}`, `{dir}` (the attempt's own directory, 0700),
//! `{tmp}` (a directory of the attempt for temporary files), `{file:NAME}` (a file of `files`), `{adj}`,
//! `{access}` (for `adj mcp --token-file`), `{mcp_url}`, `{mcp_token}` (in files and environment only:
//! never in an argument), `{pi_extension}` (the source of Adjutant). `:json` behind a name writes it as a
//! JSON (and TOML) string, quotes included.

mod about;
mod built_in;
mod profile;
mod promise;
mod registry;
#[cfg(test)]
mod stream_tests;
mod version;

pub use about::{About, Capabilities, VersionMin};
pub use adjutant_stream::format::{End, FailedMessage, PlainText, Rule, StderrRetry, Stream, SubagentPaths, UsagePaths};
pub use built_in::{ACP, acp, all, builtin, is_vendors_variable, names};
pub use profile::{Profile, Profiles};
pub use promise::{Action, ActionOutcome, Exception, Promise};
pub use registry::{RegisteredAgent, Registry, registry};
pub use version::{TestedVersions, Version};

use adjutant_core::{Permissions, words};
use built_in::ACP_STREAM;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// How one CLI is driven.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Preset {
    /// Its own name, set by the reader of the file.
    #[serde(default)]
    pub name: String,
    /// The product's name, for people.
    #[serde(default)]
    pub title: String,
    pub driver: Driver,
    /// The program and what always comes first.
    pub command: Vec<String>,
    #[serde(default)]
    pub args: Vec<String>,
    /// Behind `args`, for a new session.
    #[serde(default)]
    pub new_args: Vec<String>,
    /// Instead of `args` and `new_args`, to go on in a session. Empty: it cannot be resumed so.
    #[serde(default)]
    pub resume_args: Vec<String>,
    /// Added unless the directory is trusted: what keeps its configuration from being honoured.
    #[serde(default)]
    pub untrusted_args: Vec<String>,
    /// Set unless the directory is trusted. Overrides the dispatcher and the configuration.
    #[serde(default)]
    pub untrusted_env: BTreeMap<String, String>,
    /// Added where it is trusted: what makes its configuration honoured.
    #[serde(default)]
    pub trusted_args: Vec<String>,
    /// How the prompt goes in; a protocol's driver has its own way.
    #[serde(default)]
    pub prompt: PromptForm,
    /// With `prompt = "arg"`: the arguments that carry it, with `{prompt}`.
    #[serde(default)]
    pub prompt_args: Vec<String>,
    /// Set for the agent.
    #[serde(default)]
    pub env: BTreeMap<String, String>,
    /// Variables of the dispatcher that the agent gets; a name may end in `*`.
    #[serde(default)]
    pub env_pass: Vec<String>,
    /// Written into the attempt's directory, 0600.
    #[serde(default)]
    pub files: BTreeMap<String, String>,
    #[serde(default)]
    pub permissions: Profiles,
    /// Where it keeps its state, which a fence leaves writable: `~/DIR/` (made where it is missing), `~/FILE`, or
    /// `$VARIABLE/DIR/`; of alternatives between `|` the first one counts whose variable is set.
    #[serde(default)]
    pub state: Vec<String>,
    /// Its home, where its configuration file is what holds it to a profile.
    #[serde(default)]
    pub config_home: Option<ConfigHome>,
    #[serde(default)]
    pub acp: Acp,
    #[serde(default)]
    pub stop: StopForm,
    #[serde(default)]
    pub stream: Stream,
    /// What its text says beside its answer, for one that prints text.
    #[serde(default)]
    pub text: PlainText,
    /// Where its sessions are, for a CLI that fails when its session is gone: it is restarted
    /// then.
    #[serde(default)]
    pub sessions: Option<Sessions>,
    /// What a failure's text means; the first that matches counts.
    #[serde(default)]
    pub failures: Vec<FailurePattern>,
    #[serde(default)]
    pub can: Capabilities,
    #[serde(default)]
    pub about: About,
}

/// The code that speaks with it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Driver {
    /// Stream-json in both directions.
    Claude,
    /// Codex's app server.
    Codex,
    /// The Agent Client Protocol.
    Acp,
    /// pi's RPC mode, with an extension of Adjutant.
    Pi,
    /// It writes one JSON object a line, and is only listened to.
    Jsonl,
    /// Text.
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

/// What differs among those who speak ACP.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Acp {
    /// Begin with this `authenticate` method, where it has to be named.
    #[serde(default)]
    pub authenticate: Option<String>,
    /// It does not say which permissions are about edits: how the titles of those begin.
    #[serde(default)]
    pub edit_titles: Vec<String>,
    /// It writes a call's input as the JSON text of its content, and as `rawInput` only once it runs.
    #[serde(default)]
    pub input_in_content: bool,
}

/// How it is stopped, once its protocol's own way has not helped.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StopForm {
    /// INT first, to the agent itself: with TERM some leave what they started.
    #[serde(default)]
    pub interrupt: bool,
}

/// Where a CLI keeps its sessions: `<home>/<under>/<any directory>/<file>`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Sessions {
    /// The variable that names its home; without it that is `home`, below the user's.
    pub home_env: String,
    pub home: String,
    pub under: String,
    /// With `{session}`.
    pub file: String,
}

/// A CLI's home. A run whose profile has `settings` gets one of its own: links to what is in the user's, and the
/// configuration file with the settings.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ConfigHome {
    /// The variable that names it; without it that is `home`, below the user's.
    pub env: String,
    pub home: String,
    /// The configuration, in TOML.
    pub file: String,
    /// Directories that are made in the user's home where they are missing, so that what the CLI keeps there lasts.
    #[serde(default)]
    pub dirs: Vec<String>,
}

/// A text of a failure and what it means.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FailurePattern {
    /// One of these is in the text, in lower case.
    pub any: Vec<String>,
    /// The stable word of a cause.
    pub cause: String,
    pub hint: String,
}

impl Preset {
    /// Reads a preset as it was written down for a run.
    #[must_use]
    pub fn from_text(text: &str) -> Option<Self> {
        serde_json::from_str(text).ok()
    }

    /// Writes a preset down for a run.
    #[must_use]
    pub fn to_text(&self) -> String {
        serde_json::to_string(self).expect("a preset is plain data")
    }

    /// Fills in what a declared preset leaves out: what any agent of its driver can, and what holds for one that
    /// speaks ACP. `has_key` tells which keys it has.
    #[must_use]
    pub fn with_defaults(mut self, has_key: &dyn Fn(&str) -> bool) -> Self {
        let like = match self.driver {
            Driver::Acp => Some(acp()),
            Driver::Claude | Driver::Codex | Driver::Pi => all().iter().find(|preset| preset.name == self.driver.word()),
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

    /// Gives a preset its name and what its driver's protocol says anyway.
    #[must_use]
    pub fn complete(mut self, name: &str) -> Self {
        name.clone_into(&mut self.name);
        if self.title.is_empty() {
            name.clone_into(&mut self.title);
        }
        // An ACP session is begun and loaded by the same program.
        if self.driver == Driver::Acp && self.resume_args.is_empty() && self.can.resume {
            self.resume_args.clone_from(&self.args);
        }
        if self.driver == Driver::Acp && self.stream.rules.is_empty() {
            let protocol: Stream = toml::from_str(ACP_STREAM).expect("the built-in rules are good ones");
            let Stream {
                rules,
                end_is_stated,
                usage_of_session,
                usage_of_last_call: _,
                success_needs_answer: _,
                failed_results: _,
                retry_notes: _,
                remarks: _,
                failed_messages: _,
                stderr_retries: _,
                speaker: _,
            } = protocol;
            self.stream = Stream { rules, end_is_stated, usage_of_session, ..self.stream };
        }
        self
    }

    /// Tells whether anything holds the agent to a profile: a protocol by which it asks, or what the profile
    /// tells the CLI.
    #[must_use]
    pub fn enforces(&self, permissions: Permissions) -> bool {
        let asks = matches!(self.driver, Driver::Claude | Driver::Codex | Driver::Acp | Driver::Pi);
        permissions == Permissions::Full || asks || !self.permissions.of(permissions.word()).is_empty()
    }

    /// Tells whether the agent gets this variable of the dispatcher.
    #[must_use]
    pub fn passes(&self, name: &str) -> bool {
        passes(&self.env_pass, name)
    }
}

/// Tells whether one of these patterns names a variable: its name, or the beginning of it and `*`.
#[must_use]
pub fn passes(patterns: &[impl AsRef<str>], name: &str) -> bool {
    patterns.iter().map(AsRef::as_ref).any(|pattern| match pattern.strip_suffix('*') {
        Some(beginning) => name.starts_with(beginning),
        None => name == pattern,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use adjutant_core::Cause;

    #[test]
    fn the_built_in_presets_are_good_ones() {
        for name in names() {
            let preset = builtin(name).expect("it is there");
            assert_eq!(Preset::from_text(&preset.to_text()).as_ref(), Some(&preset), "{name}");
            assert!(!preset.command.is_empty(), "{name}");
            for pattern in &preset.failures {
                assert!(Cause::from_word(&pattern.cause).is_some(), "{name}: {}", pattern.cause);
                assert!(pattern.any.iter().all(|text| *text == text.to_lowercase()), "{name}: patterns are lower case");
            }
            let args = [&preset.args, &preset.new_args, &preset.resume_args, &preset.untrusted_args, &preset.trusted_args, &preset.prompt_args];
            assert!(!args.into_iter().flatten().any(|arg| arg.contains("{mcp_token")), "{name}: no token in an argument");
            assert_eq!(preset.can.resume, !preset.resume_args.is_empty(), "{name}");
            let About { versions_tried, version_min, version_args, sign_in_files, tools, directory, resumes, .. } = &preset.about;
            let can_be_held_to = |min: &VersionMin| Version::find(&min.version).is_some() && !min.why.is_empty() && !version_args.is_empty();
            assert!(version_min.as_ref().is_none_or(can_be_held_to), "{name}: {version_min:?}");
            assert!(versions_tried.is_empty() || preset.about.tested_versions().is_some(), "{name}: {versions_tried}");
            assert!(
                sign_in_files.iter().all(|file| file.starts_with("~/") || file.starts_with('$') && file.contains('/')),
                "{name}: {sign_in_files:?}"
            );
            assert!([tools, directory, resumes].into_iter().all(|text| !text.is_empty()), "{name}: its page would have holes");
        }
    }

    #[test]
    fn preset_promises_only_profiles_that_were_tried() {
        for preset in all() {
            let Profiles { read, edit, full } = &preset.permissions;
            for (name, profile) in [("read", read), ("edit", edit), ("full", full)] {
                let is_tried = preset.about.tested_versions().is_some();
                assert!(is_tried || name == "full" || profile.unsupported.is_some(), "{}: nobody has seen that {name} holds", preset.name);
                assert!(
                    profile.unsupported.is_some() == profile.about.is_empty(),
                    "{}: {name} says what it means, or why it is refused",
                    preset.name
                );
            }
        }
    }

    #[test]
    fn a_version_is_too_old_only_below_the_least_that_is_needed() {
        let claude = builtin("claude").expect("it is there").about;
        let (min, tried) = (claude.version_min.as_ref().expect("it has one"), claude.tested_versions().expect("it was tried"));
        let problem = |version: &str| min.problem(&Version::find(version).expect("a version"));
        assert!(problem("2.1.99").is_some_and(|why| why.starts_with("too old to be started, 2.1.299 is needed: it would read")));
        assert_eq!((problem("2.1.299"), problem("3.0"), min.problem(&tried.lowest)), (None, None, None));
    }

    #[test]
    fn failed_result_is_found_by_how_its_line_begins() {
        let copilot = builtin("copilot").expect("it is there").stream;
        let note = "Info: Request failed due to a transient API error. Retrying...";
        let failed = format!("{note}{note}Error: Authentication failed with provider at http://x (HTTP 401).\n  Check your key");
        assert_eq!(copilot.failed_line(&failed), Some("Error: Authentication failed with provider at http://x (HTTP 401)."));
        assert_eq!(copilot.failed_line(&format!("{note}It is done. I mended \"Error: Authentication failed\".")), None);
        let aider = builtin("aider").expect("it is there");
        let failed = |text| aider.stream.failed_line(aider.text.answer(text));
        assert_eq!(failed("Aider v0.86\nlitellm.AuthenticationError: no key"), Some("litellm.AuthenticationError: no key"));
        assert_eq!(failed("litellm.RateLimitError: 429\nRetrying in 0.2 seconds...\nIt is done."), None);
    }

    #[test]
    fn answer_stands_behind_the_banner() {
        let aider = builtin("aider").expect("it is there").text;
        let banner =
            "Warning: Input is not a terminal (fd=0).\n\nAider v0.86.2\nModel: openai/x\nGit repo: .git with 1 files\nRepo-map: disabled\n\n";
        for answer in ["", "It is done.\nModel: yours\n", "a", "é\n"] {
            assert_eq!(aider.answer(&format!("{banner}{answer}")), answer);
        }
        assert_eq!(PlainText::default().answer("\nModel: x\n"), "\nModel: x\n");
    }

    #[test]
    fn registry_names_no_agent_that_has_a_preset() {
        let Registry { date, agents } = registry();
        assert!(date.len() == 10 && !agents.is_empty());
        for RegisteredAgent { name, title, command } in agents {
            assert!(builtin(name).is_none() && !title.is_empty(), "{name}");
            assert!(all().iter().all(|preset| preset.command.first() != command.first()), "{name}: {command:?}");
            assert!(adjutant_core::AgentName::parse(name).is_ok(), "{name}");
        }
    }

    #[test]
    fn only_the_named_variables_pass() {
        let claude = builtin("claude").expect("it is there");
        assert!(claude.passes("ANTHROPIC_API_KEY") && !claude.passes("AWS_SECRET_ACCESS_KEYS_OF_OTHERS") && !claude.passes("GEMINI_API_KEY"));
    }
}
