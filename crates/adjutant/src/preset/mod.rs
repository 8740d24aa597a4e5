//! What is known about a vendor's CLI, as data: how it is started, fed, listened to, stopped and
//! resumed. The built-in ones lie beside the harnesses; a user's configuration can declare more.
//!
//! Texts may hold placeholders: `{cwd}`, `{session}`, `{dir}` (the attempt's own directory, 0700),
//! `{tmp}` (a directory of the attempt for temporary files), `{file:NAME}` (a file of `files`), `{adj}`,
//! `{access}` (for `adj mcp --token-file`), `{mcp_url}`, `{mcp_token}` (in files and environment only:
//! never in an argument), `{pi_extension}` (the source of ours). `:json` behind a name writes it as a
//! JSON (and TOML) string, quotes included.

mod promise;
mod version;

use adjutant_core::words;
pub use promise::{Act, Exception, Fate, Promise};
pub use version::{Tried, Version};

use adjutant_core::Permissions;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::sync::LazyLock;

/// How one CLI is driven.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Preset {
    /// Its own name: set by whoever reads it.
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
    /// Set unless the directory is trusted, whatever the dispatcher or the configuration sets.
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
    #[serde(default)]
    pub acp: Acp,
    #[serde(default)]
    pub stop: StopForm,
    #[serde(default)]
    pub stream: Stream,
    /// What its text says beside its answer, for one that prints text.
    #[serde(default)]
    pub text: PlainText,
    /// Where its sessions lie, for one that fails when the session to go on in is gone: it is begun anew
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
    /// pi's RPC mode, with an extension of ours.
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

/// What each profile of permissions adds.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Profiles {
    #[serde(default)]
    pub read: Profile,
    #[serde(default)]
    pub edit: Profile,
    #[serde(default)]
    pub full: Profile,
}

impl Profiles {
    /// Returns the profile of a word.
    #[must_use]
    pub fn of(&self, word: &str) -> &Profile {
        match word {
            "read" => &self.read,
            "full" => &self.full,
            _ => &self.edit,
        }
    }
}

#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Profile {
    /// What the agent may do then without being asked, and what becomes of the rest, for people.
    #[serde(default)]
    pub about: String,
    #[serde(default)]
    pub args: Vec<String>,
    /// Set whatever the dispatcher or the configuration sets.
    #[serde(default)]
    pub env: BTreeMap<String, String>,
    /// ACP's session mode; Codex's sandbox.
    #[serde(default)]
    pub mode: Option<String>,
    /// Why the CLI cannot be held to this profile: no run is started with it.
    #[serde(default)]
    pub unsupported: Option<String>,
    /// What the CLI does otherwise than this profile promises of all.
    #[serde(default)]
    pub exceptions: Vec<Exception>,
}

impl Profile {
    /// Tells whether the CLI is told anything.
    fn is_empty(&self) -> bool {
        self.args.is_empty() && self.env.is_empty() && self.mode.is_none()
    }
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

/// What a text says beside the agent's answer.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PlainText {
    /// How the lines begin that it prints before its answer.
    #[serde(default)]
    pub banner: Vec<String>,
    /// How a line begins after which it tries again: what it said before is no answer, and no failure.
    #[serde(default)]
    pub retries: Vec<String>,
}

impl PlainText {
    /// Returns the answer in a text that it has printed.
    #[must_use]
    pub fn answer<'a>(&self, text: &'a str) -> &'a str {
        let begins = |line: &str, with: &[String]| with.iter().any(|beginning| line.starts_with(beginning.as_str()));
        let (mut at, mut from, mut is_banner) = (0, 0, !self.banner.is_empty());
        for line in text.split_inclusive('\n') {
            at += line.len();
            is_banner &= line.trim().is_empty() || begins(line, &self.banner);
            if is_banner || begins(line, &self.retries) {
                from = at;
            }
        }
        &text[from..]
    }
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

/// What its lines mean.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Stream {
    #[serde(default)]
    pub rules: Vec<Rule>,
    /// Success has to be stated by an event. Otherwise the exit status decides, unless an event
    /// stated a failure.
    #[serde(default)]
    pub end_is_stated: bool,
    /// The usage that it states is that of the whole session, resumed ones included.
    #[serde(default)]
    pub usage_of_session: bool,
    /// It states success all the same when its model could not be used: how the lines of such a result
    /// begin.
    #[serde(default)]
    pub failed_results: Vec<String>,
    /// Messages of its own about a failed try that it repeats: they are no words of its model.
    #[serde(default)]
    pub retry_notes: Vec<String>,
    /// How messages of its own begin that are no words of its model: they are logged, and no result.
    #[serde(default)]
    pub remarks: Vec<String>,
    /// It states success all the same when its model could not be used: what the whole last message is then.
    #[serde(default)]
    pub failed_messages: Vec<Ends>,
    /// Where a line names the session or sub-agent that it belongs to. One that names another than the run's own
    /// is a sub-agent's: its words, results and end are not the run's.
    #[serde(default)]
    pub speaker: Option<String>,
    /// Lines of standard error about a failed try that it repeats.
    #[serde(default)]
    pub stderr_retries: Vec<StderrRetry>,
}

/// A text known by its beginning and its end.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Ends {
    pub begins: String,
    pub ends: String,
}

/// A line of standard error about a failed try.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StderrRetry {
    /// All of these are in the line.
    pub all: Vec<String>,
    /// What went wrong stands behind this.
    pub after: String,
}

impl StderrRetry {
    /// Returns what a line says went wrong. `None`: it is about something else.
    #[must_use]
    pub fn find<'a>(&self, line: &'a str) -> Option<&'a str> {
        let is_meant = self.all.iter().all(|part| line.contains(part.as_str()));
        let (_, words) = line.split_once(self.after.as_str()).filter(|_| is_meant)?;
        Some(words.trim().trim_matches('"'))
    }
}

impl Stream {
    /// Tells whether a message is a remark of the CLI's own.
    #[must_use]
    pub fn is_remark(&self, message: &str) -> bool {
        self.remarks.iter().any(|beginning| message.starts_with(beginning.as_str()))
    }

    /// Tells whether a message is the CLI's own, about a failed try that it repeats.
    #[must_use]
    pub fn is_retry_note(&self, message: &str) -> bool {
        self.retry_notes.iter().any(|note| message.trim() == note)
    }

    /// Returns the part of a result that says that the work failed.
    #[must_use]
    pub fn failed_line<'a>(&self, result: &'a str) -> Option<&'a str> {
        // What its model said before may stand in front.
        let failed_message = |ends: &Ends| result.trim_end().ends_with(ends.ends.as_str()).then(|| result.rfind(ends.begins.as_str())).flatten();
        if let Some(at) = self.failed_messages.iter().find_map(failed_message) {
            return Some(&result[at..]);
        }
        let without_notes = |mut line: &'a str| {
            while let Some(rest) = self.retry_notes.iter().find_map(|note| line.strip_prefix(note.as_str())) {
                line = rest;
            }
            line
        };
        result.lines().map(without_notes).find(|line| self.failed_results.iter().any(|beginning| line.starts_with(beginning.as_str())))
    }
}

/// What one kind of line means. Every path is a row of field names with dots; with `each` it begins
/// at the element, and `$.` in front takes it back to the line.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Rule {
    /// Paths of the line and what has to be there: words separated by `|`, `*` for anything, `-`
    /// for nothing.
    #[serde(default)]
    pub when: BTreeMap<String, String>,
    /// A list in the line: the rule is for each of its elements.
    #[serde(default)]
    pub each: Option<String>,
    /// As `when`, of the element.
    #[serde(default)]
    pub r#where: BTreeMap<String, String>,
    /// The session's id.
    #[serde(default)]
    pub session: Option<String>,
    /// A whole message of the agent.
    #[serde(default)]
    pub text: Option<String>,
    /// A piece of a message.
    #[serde(default)]
    pub delta: Option<String>,
    /// With `delta`: whose pieces belong together.
    #[serde(default)]
    pub delta_of: Option<String>,
    /// A tool's name, as it is called.
    #[serde(default)]
    pub tool: Option<String>,
    #[serde(default)]
    pub input: Option<String>,
    /// With `tool` or `input`: the call's id. It has one line in the log, written once its input is known.
    #[serde(default)]
    pub call: Option<String>,
    /// With `call`: how far the call is (`pending`, `in_progress`, `completed` or `failed`). Without it, what is said
    /// of the call is all of it.
    #[serde(default)]
    pub call_state: Option<String>,
    /// What it is working on now, of a plan.
    #[serde(default)]
    pub step: Option<String>,
    /// What a tool returned.
    #[serde(default)]
    pub output: Option<String>,
    /// The agent's last answer.
    #[serde(default)]
    pub result: Option<String>,
    /// What went wrong, for people; kept for the case that the work fails.
    #[serde(default)]
    pub error: Option<String>,
    /// What the line says of a sub-agent of the CLI's own.
    #[serde(default)]
    pub subagent: Option<SubagentPaths>,
    /// What went wrong with a try that the CLI repeats, for people: one or several paths, separated by blanks.
    #[serde(default)]
    pub retry: Option<String>,
    /// With `retry`: the stable word of its cause, where the line itself is enough to tell. Otherwise
    /// `failures` find it in the words.
    #[serde(default)]
    pub retry_cause: Option<String>,
    /// When a limit ends that was reached, in seconds since the epoch; kept for the case that the work
    /// fails over it.
    #[serde(default)]
    pub again: Option<String>,
    #[serde(default)]
    pub usage: Option<UsagePaths>,
    #[serde(default)]
    pub end: Option<End>,
    /// The driver has to see this line.
    #[serde(default)]
    pub listen: bool,
}

/// What a line says of a sub-agent of the CLI's own.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SubagentPaths {
    pub id: String,
    /// It begins with this line; otherwise a line about one that is not known says nothing.
    #[serde(default)]
    pub begins: bool,
    #[serde(default)]
    pub kind: Option<String>,
    #[serde(default)]
    pub about: Option<String>,
    #[serde(default)]
    pub state: Option<String>,
    #[serde(default)]
    pub tokens: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct UsagePaths {
    /// Several paths, separated by blanks, are added up.
    #[serde(default)]
    pub input: Option<String>,
    #[serde(default)]
    pub cached: Option<String>,
    #[serde(default)]
    pub output: Option<String>,
    #[serde(default)]
    pub cost_usd: Option<String>,
    /// Each such event counts by itself; otherwise the last one holds.
    #[serde(default)]
    pub add: bool,
    /// The cost is that of the whole session all the same.
    #[serde(default)]
    pub cost_is_total: bool,
}

/// How the work ended, by the stream's own words.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum End {
    Success,
    Failure,
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

/// What it can do here.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Capabilities {
    /// It has our tools.
    #[serde(default)]
    pub tools: bool,
    /// It goes on in its own session.
    #[serde(default)]
    pub resume: bool,
    /// It takes messages while it works.
    #[serde(default)]
    pub live: bool,
    /// What it may not do by itself becomes an approval request.
    #[serde(default)]
    pub approvals: bool,
    #[serde(default)]
    pub usage: bool,
}

/// What people want to know about it.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct About {
    #[serde(default)]
    pub vendor: String,
    #[serde(default)]
    pub install: String,
    #[serde(default)]
    pub sign_in: String,
    /// Files of which one is there when somebody has signed in; never read. `~/` is the home, `$NAME/`
    /// a directory that a variable names: those count, and those of the home do not, where it is set.
    #[serde(default)]
    pub sign_in_files: Vec<String>,
    /// Variables of which one is set instead.
    #[serde(default)]
    pub sign_in_env: Vec<String>,
    #[serde(default)]
    pub version_args: Vec<String>,
    /// The versions that were tried: `1.2.3`, or the lowest and the highest, `1.2.3 to 1.4.0`. Empty:
    /// all of this is from its documentation only.
    #[serde(default)]
    pub versions_tried: String,
    /// It is not started in an older version, where there is a reason.
    #[serde(default)]
    pub version_min: Option<VersionMin>,
    /// How our tools get in.
    #[serde(default)]
    pub tools: String,
    /// Where a directory can say something about agents that makes them start programs or changes
    /// what they may do: files, and directories with everything in them.
    #[serde(default)]
    pub directory_files: Vec<String>,
    /// That is left out of an attempt that does not trust it.
    #[serde(default)]
    pub kept_out: bool,
    /// What of it is kept out, and how.
    #[serde(default)]
    pub directory: String,
    /// How it goes on after a stop.
    #[serde(default)]
    pub resumes: String,
    #[serde(default)]
    pub notes: Vec<String>,
    /// What does not work, or not as one would think.
    #[serde(default)]
    pub limits: Vec<String>,
}

/// The oldest version that is started.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct VersionMin {
    pub version: String,
    /// What an older one does, for people.
    pub why: String,
}

impl VersionMin {
    /// Says why a version is not started. `None`: it is.
    #[must_use]
    pub fn problem(&self, version: &Version) -> Option<String> {
        let Self { version: least, why } = self;
        let is_older = Version::find(least).is_some_and(|least| *version < least);
        is_older.then(|| format!("too old to be started, {least} is needed: {why}"))
    }

    /// Says the same of all older versions.
    #[must_use]
    pub fn to_limit(&self) -> String {
        let Self { version, why } = self;
        format!("A version before {version} is not started: {why}.")
    }
}

impl About {
    /// The versions that were tried. `None`: none was.
    #[must_use]
    pub fn tried(&self) -> Option<Tried> {
        Tried::parse(&self.versions_tried)
    }

    /// What does not work, or not as one would think, versions that are not started included.
    pub fn all_limits(&self) -> impl Iterator<Item = String> {
        self.version_min.iter().map(VersionMin::to_limit).chain(self.limits.iter().cloned())
    }
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
    /// speaks ACP. `is_said` tells which keys it has.
    #[must_use]
    pub fn with_defaults(mut self, is_said: &dyn Fn(&str) -> bool) -> Self {
        let like = match self.driver {
            Driver::Acp => Some(acp()),
            Driver::Claude | Driver::Codex | Driver::Pi => all().iter().find(|preset| preset.name == self.driver.word()),
            Driver::Jsonl | Driver::Plain => None,
        };
        let Some(like) = like else { return self };
        if !is_said("can") {
            self.can = like.can;
        }
        if self.driver == Driver::Acp {
            if !is_said("permissions") {
                self.permissions.clone_from(&like.permissions);
            }
            if !is_said("failures") {
                self.failures.clone_from(&like.failures);
            }
            if !is_said("about") {
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
pub fn passes(patterns: &[String], name: &str) -> bool {
    patterns.iter().any(|pattern| match pattern.strip_suffix('*') {
        Some(beginning) => name.starts_with(beginning),
        None => name == pattern,
    })
}

/// The built-in presets, by name.
const SOURCES: &[(&str, &str)] = &[
    ("claude", include_str!("builtin/claude.toml")),
    ("codex", include_str!("builtin/codex.toml")),
    ("gemini", include_str!("builtin/gemini.toml")),
    ("goose", include_str!("builtin/goose.toml")),
    ("qwen", include_str!("builtin/qwen.toml")),
    ("opencode", include_str!("builtin/opencode.toml")),
    ("copilot", include_str!("builtin/copilot.toml")),
    ("kimi", include_str!("builtin/kimi.toml")),
    ("q", include_str!("builtin/q.toml")),
    ("cursor-agent", include_str!("builtin/cursor-agent.toml")),
    ("kiro", include_str!("builtin/kiro.toml")),
    ("aider", include_str!("builtin/aider.toml")),
    ("pi", include_str!("builtin/pi.toml")),
    ("amp", include_str!("builtin/amp.toml")),
    ("crush", include_str!("builtin/crush.toml")),
    ("droid", include_str!("builtin/droid.toml")),
];

/// What every agent that speaks ACP says.
const ACP_STREAM: &str = include_str!("builtin/acp.stream.toml");
/// The harness of any agent that speaks ACP.
pub const ACP: &str = "acp";
/// What holds for an agent of which nothing else is known.
const ACP_DEFAULTS: &str = include_str!("builtin/acp.toml");

/// Agents that speak ACP and are known by name only.
const ACP_REGISTRY: &str = include_str!("builtin/acp.registry.toml");

/// Returns the names of the built-in presets.
pub fn names() -> impl Iterator<Item = &'static str> {
    SOURCES.iter().map(|(name, _)| *name)
}

/// Returns the preset of any agent that speaks ACP, which names no program.
#[must_use]
pub fn acp() -> &'static Preset {
    static DEFAULTS: LazyLock<Preset> =
        LazyLock::new(|| toml::from_str::<Preset>(ACP_DEFAULTS).expect("the built-in defaults are good ones").complete(ACP));
    &DEFAULTS
}

/// Agents of the public registry that have no preset here.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Registry {
    /// When the registry was like that.
    pub date: String,
    pub agents: Vec<Registered>,
}

/// One of them.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Registered {
    pub name: String,
    pub title: String,
    pub command: Vec<String>,
}

/// Returns the snapshot of the registry.
#[must_use]
pub fn registry() -> &'static Registry {
    static REGISTRY: LazyLock<Registry> = LazyLock::new(|| toml::from_str(ACP_REGISTRY).expect("the snapshot is a good one"));
    &REGISTRY
}

/// Reads a built-in preset.
#[must_use]
pub fn builtin(name: &str) -> Option<Preset> {
    all().iter().find(|preset| preset.name == name).cloned()
}

/// Returns the built-in presets.
#[must_use]
pub fn all() -> &'static [Preset] {
    static ALL: LazyLock<Vec<Preset>> = LazyLock::new(|| {
        let read = |(name, text): &(&str, &str)| toml::from_str::<Preset>(text).expect("a built-in preset is a good one").complete(name);
        SOURCES.iter().map(read).collect()
    });
    &ALL
}

/// Tells whether a variable belongs to some vendor: only that vendor's CLI gets it.
#[must_use]
pub fn is_vendors_variable(name: &str) -> bool {
    all().iter().any(|preset| preset.passes(name))
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
            assert!(versions_tried.is_empty() || preset.about.tried().is_some(), "{name}: {versions_tried}");
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
                let is_tried = preset.about.tried().is_some();
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
        let (min, tried) = (claude.version_min.as_ref().expect("it has one"), claude.tried().expect("it was tried"));
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
        for Registered { name, title, command } in agents {
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
