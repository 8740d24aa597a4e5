//! Prepares the launch of a vendor's CLI from its preset: argv, files, environment and dialogue.

use super::acp::{Acp, SessionStart};
use super::codex::{self, Codex};
use super::config_home::AttemptHome;
use super::dialogue::Dialogue;
use super::pi::{self, Pi};
use super::placeholders::fill;
use super::plain::{self, PROMPT_ARG_BYTES_MAX};
use super::{GateAccess, Input, Launch, LogSource, OwnTools, ReaderConfig, StartRefusal};
use crate::preset::{Driver, GateForm, ModelForm, Preset, Profile, PromptForm};
use crate::process::start::SELF_EXE;
use crate::protocol::{AttemptDir, Order, WorkerAccess};
use crate::view::codes;
use adjutant_core::Permissions;
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::PathBuf;

/// Prepares the launch of a vendor's CLI, which is offered `own_tools`.
pub(super) fn launch(
    order: &Order,
    dir: &AttemptDir,
    access: &WorkerAccess,
    gate: Option<GateAccess<'_>>,
    own_tools: OwnTools,
) -> Result<Launch, StartRefusal> {
    let Some(preset) = &order.preset else {
        return Err(invalid(order, "has no preset"));
    };
    let new_session_prompt = in_new_session(order, preset);
    let order = new_session_prompt.as_ref().unwrap_or(order);
    let program = plain::program(order)?;
    let settings = Settings {
        order,
        preset,
        profile: preset.permissions.of(&order.permissions),
        dir,
        model: preset.model.as_ref().zip(order.model.as_deref()),
        gate: preset.gate.as_ref().zip(gate),
        values: Values::new(order, preset, dir, access)?,
    };
    let permissions = settings.permissions()?;
    let mut argv = settings.argv()?;
    let mut env = settings.env()?;
    let mut env_override = settings.env_override()?;
    let files = settings.files()?;
    let (attempt_home_env, attempt_home) = AttemptHome::of(order, preset, dir).unzip();
    if let (Some(name), Some(AttemptHome { at, .. })) = (attempt_home_env, &attempt_home) {
        env_override.push((name, at.display().to_string()));
    }
    let own_log = settings.own_log();
    if let (Some(name), Some(LogSource::Pipe(pipe))) = (&preset.log_env, &own_log) {
        env.push((name.clone(), pipe.display().to_string()));
    }
    let temporary = (own_log.is_some() || settings.names_temporary_dir()).then(|| dir.temporary());
    let mut dialogue = new_dialogue(order, preset, dir, access, own_tools, permissions);
    let stream = (preset.driver != Driver::Plain).then(|| ReaderConfig {
        stream: preset.stream.clone(),
        answers_after: match &dialogue {
            Some(Dialogue::Acp(acp)) => Some(acp.answers_after()),
            _ => None,
        },
    });
    let input = match &mut dialogue {
        Some(dialogue) => Input::Open(dialogue.opening(&order.prompt)),
        None => prompt(order, preset, &mut argv)?,
    };
    Ok(Launch {
        program,
        argv,
        input,
        env,
        env_override,
        files,
        temporary,
        own_log,
        attempt_home,
        dialogue,
        stream,
        interrupt: preset.stop.interrupt,
    })
}

/// What the arguments, the environment and the files of a CLI are made of.
struct Settings<'a> {
    order: &'a Order,
    preset: &'a Preset,
    /// The profile of the run's permissions.
    profile: &'a Profile,
    dir: &'a AttemptDir,
    /// How the CLI takes the name of its model, and the name.
    model: Option<(&'a ModelForm, &'a str)>,
    /// How the CLI is configured to use the gate, and the gate.
    gate: Option<(&'a GateForm, GateAccess<'a>)>,
    values: Values,
}

impl Settings<'_> {
    /// Returns the run's permissions, which the CLI must be able to enforce.
    fn permissions(&self) -> Result<Permissions, StartRefusal> {
        let word = &self.order.permissions;
        let Some(permissions) = Permissions::from_word(word) else {
            let problem = format!("was ordered with unknown permissions: {word:?}");
            return Err(invalid(self.order, &problem));
        };
        if let Some(why) = &self.profile.unsupported {
            let message = format!(
                "agent {} cannot be run with {word}: {why}",
                self.order.agent
            );
            return Err(StartRefusal {
                code: codes::UNSUPPORTED_PROFILE,
                message,
            });
        }
        Ok(permissions)
    }

    /// Returns the program's name and its arguments.
    fn argv(&self) -> Result<Vec<OsString>, StartRefusal> {
        let Self { order, preset, .. } = self;
        let (begin, behind) = match order.session {
            Some(_) => (&preset.resume_args, None),
            None => (&preset.args, Some(&preset.new_args)),
        };
        let trust = if order.trust_repo {
            &preset.trusted_args
        } else {
            &preset.untrusted_args
        };
        let mut argv: Vec<OsString> = order.argv.iter().map(OsString::from).collect();
        for arg in begin.iter().chain(&self.profile.args).chain(trust) {
            argv.push(self.fill(arg)?.into());
        }
        // Placeholders are not replaced in the user's own arguments.
        argv.extend(order.args.iter().map(OsString::from));
        if let Some((form, model)) = &self.model {
            for arg in &form.args {
                argv.push(self.fill_with(arg, &of_model(model))?.into());
            }
        }
        argv.extend(order.last_args.iter().map(OsString::from));
        for arg in behind.into_iter().flatten() {
            argv.push(self.fill(arg)?.into());
        }
        if let Some((form, gate)) = &self.gate {
            for arg in &form.args {
                argv.push(self.fill_with(arg, &of_gate_url(gate))?.into());
            }
        }
        Ok(argv)
    }

    /// Returns the variables that the order's environment overrides.
    fn env(&self) -> Result<Vec<(String, String)>, StartRefusal> {
        self.fill_secrets(&self.preset.env)
    }

    /// Returns the variables that override the order's environment.
    fn env_override(&self) -> Result<Vec<(String, String)>, StartRefusal> {
        let mut env = self.fill_secrets(&self.profile.env)?;
        if !self.order.trust_repo {
            env.extend(self.fill_secrets(&self.preset.untrusted_env)?);
        }
        if let Some((form, model)) = &self.model {
            for (name, value) in &form.env {
                add_override(&mut env, name, self.fill_with(value, &of_model(model))?);
            }
        }
        if let Some((form, gate)) = &self.gate {
            for (name, value) in &form.env {
                add_override(&mut env, name, self.fill_with(value, &of_gate(gate))?);
            }
        }
        Ok(env)
    }

    /// Returns the files to write for the CLI.
    fn files(&self) -> Result<Vec<(PathBuf, String)>, StartRefusal> {
        let mut files = Vec::new();
        for (name, text) in self.fill_secrets(&self.preset.files)? {
            files.push((file(self.dir, &name), text));
        }
        Ok(files)
    }

    /// Returns where the CLI writes a log of its own.
    fn own_log(&self) -> Option<LogSource> {
        match (&self.preset.log_env, &self.preset.log_files) {
            (Some(_), _) => Some(LogSource::Pipe(self.dir.temporary().join("log"))),
            (None, Some(files)) => log_files(self.order, self.preset, self.dir, files),
            (None, None) => None,
        }
    }

    /// Returns whether a text of the preset names the directory for temporary files.
    fn names_temporary_dir(&self) -> bool {
        let Self {
            preset, profile, ..
        } = self;
        preset
            .args
            .iter()
            .chain(&profile.args)
            .chain(preset.env.values())
            .chain(profile.env.values())
            .chain(preset.files.values())
            .any(|text| text.contains("{tmp"))
    }

    fn fill(&self, text: &str) -> Result<String, StartRefusal> {
        self.fill_with(text, &|name| self.values.open(name))
    }

    /// Fills the values of a table, in which the token of the attempt may be named.
    fn fill_secrets(
        &self,
        table: &BTreeMap<String, String>,
    ) -> Result<Vec<(String, String)>, StartRefusal> {
        table
            .iter()
            .map(|(name, text)| {
                let filled = self.fill_with(text, &|name| self.values.with_token(name))?;
                Ok((name.clone(), filled))
            })
            .collect()
    }

    fn fill_with(
        &self,
        text: &str,
        value: &dyn Fn(&str) -> Option<String>,
    ) -> Result<String, StartRefusal> {
        fill(text, value).map_err(|unknown| invalid(self.order, &unknown.to_string()))
    }
}

fn of_model(model: &str) -> impl Fn(&str) -> Option<String> {
    move |name| (name == "model").then(|| model.to_owned())
}

/// Returns the value of a placeholder in an argument, which must not contain the token.
fn of_gate_url(gate: &GateAccess<'_>) -> impl Fn(&str) -> Option<String> {
    move |name| (name == "gate_url").then(|| gate.url.to_owned())
}

fn of_gate(gate: &GateAccess<'_>) -> impl Fn(&str) -> Option<String> {
    move |name| match name {
        "gate_token" => Some(gate.token.to_owned()),
        "gate_url" => Some(gate.url.to_owned()),
        _ => None,
    }
}

/// Creates the dialogue with a CLI that is driven by messages. `None`: it only gets its prompt.
fn new_dialogue(
    order: &Order,
    preset: &Preset,
    dir: &AttemptDir,
    access: &WorkerAccess,
    own_tools: OwnTools,
    permissions: Permissions,
) -> Option<Dialogue> {
    let mode = || preset.permissions.of(&order.permissions).mode.clone();
    match preset.driver {
        Driver::Claude => Some(Dialogue::Claude(super::claude::Claude::new(
            own_tools,
            order.cwd.clone(),
        ))),
        Driver::Codex => Some(Dialogue::Codex(Box::new(Codex::new(codex::SessionStart {
            cwd: order.cwd.clone(),
            thread: order.session.clone(),
            new_session_prompt: order.new_session_prompt.clone(),
            sandbox: mode().unwrap_or_else(|| "read-only".to_owned()),
        })))),
        Driver::Acp => Some(Dialogue::Acp(Box::new(Acp::new(SessionStart {
            cwd: order.cwd.clone(),
            session: order.session.clone(),
            new_session_prompt: order.new_session_prompt.clone(),
            mode: mode(),
            permissions,
            authenticate: preset.acp.authenticate.clone(),
            edit_titles: preset.acp.edit_titles.clone(),
            input_in_content: preset.acp.input_in_content,
            input_in_titles: preset.acp.input_in_titles,
            mcp_url: access.mcp_url.clone(),
            mcp_token: access.token.clone(),
            mcp_command: vec![
                own_program(),
                "mcp".to_owned(),
                "--token-file".to_owned(),
                dir.worker_access().display().to_string(),
            ],
            own_tools,
        })))),
        Driver::Pi => {
            let begin = pi::SessionStart {
                cwd: order.cwd.clone(),
                resumes: order.session.is_some(),
                new_session_prompt: order.new_session_prompt.clone(),
            };
            Some(Dialogue::Pi(Pi::new(begin)))
        }
        Driver::Jsonl | Driver::Plain => None,
    }
}

/// Returns the files of the CLI's own log. `None`: the order has no home.
fn log_files(order: &Order, preset: &Preset, dir: &AttemptDir, files: &str) -> Option<LogSource> {
    if let Some(pattern) = files.strip_prefix("{tmp}/") {
        return Some(LogSource::Files {
            base: dir.temporary(),
            pattern: pattern.to_owned(),
        });
    }
    let below_home = files.strip_prefix("~/")?;
    let named = preset.config_home.as_ref().and_then(|home| {
        let pattern = below_home.strip_prefix(&home.home)?.strip_prefix('/')?;
        let base = order.env.get(&home.env).filter(|path| !path.is_empty())?;
        Some((order.cwd.join(base), pattern))
    });
    let (base, pattern) = match named {
        Some(named) => named,
        None => (PathBuf::from(order.env.get("HOME")?), below_home),
    };
    Some(LogSource::Files {
        base,
        pattern: pattern.to_owned(),
    })
}

/// Returns the order with a new session, if its session is missing.
fn in_new_session(order: &Order, preset: &Preset) -> Option<Order> {
    let (session, sessions, prompt) = (
        order.session.as_ref()?,
        preset.sessions.as_ref()?,
        order.new_session_prompt.as_ref()?,
    );
    let home = order
        .env
        .get(&sessions.home_env)
        .map(PathBuf::from)
        .or_else(|| Some(PathBuf::from(order.env.get("HOME")?).join(&sessions.home)))?;
    let is_name = session
        .bytes()
        .all(|byte| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_');
    let file = sessions.file.replace("{session}", session);
    let is_there = is_name
        && std::fs::read_dir(home.join(&sessions.under))
            .is_ok_and(|dirs| dirs.flatten().any(|dir| dir.path().join(&file).exists()));
    (!is_there).then(|| Order {
        session: None,
        prompt: prompt.clone(),
        ..order.clone()
    })
}

fn prompt(order: &Order, preset: &Preset, argv: &mut Vec<OsString>) -> Result<Input, StartRefusal> {
    if preset.prompt == PromptForm::Stdin {
        return Ok(Input::Whole(order.prompt.clone().into_bytes()));
    }
    if order.prompt.len() > PROMPT_ARG_BYTES_MAX {
        return Err(invalid(
            order,
            &format!(
                "takes its prompt as an argument, of {PROMPT_ARG_BYTES_MAX} bytes at most; this one has {}",
                order.prompt.len()
            ),
        ));
    }
    if order.prompt.contains('\0') {
        return Err(invalid(
            order,
            "takes its prompt as an argument, and this one contains a NUL character",
        ));
    }
    argv.extend(
        preset
            .prompt_args
            .iter()
            .map(|arg| OsString::from(arg.replace("{prompt}", &order.prompt))),
    );
    Ok(Input::Nothing)
}

fn invalid(order: &Order, problem: &str) -> StartRefusal {
    StartRefusal {
        code: codes::INVALID,
        message: format!("agent {} {problem}", order.agent),
    }
}

fn file(dir: &AttemptDir, name: &str) -> PathBuf {
    dir.0.join(format!("agent-{name}"))
}

/// Returns the path of this program for other processes.
fn own_program() -> String {
    std::fs::read_link(SELF_EXE)
        .map_or_else(|_| "adj".to_owned(), |path| path.display().to_string())
}

/// The values of the placeholders.
struct Values {
    open: BTreeMap<String, String>,
    token: String,
}

impl Values {
    fn new(
        order: &Order,
        preset: &Preset,
        dir: &AttemptDir,
        access: &WorkerAccess,
    ) -> Result<Self, StartRefusal> {
        let session = match &order.session {
            Some(session) => session.clone(),
            None => {
                let mut random = [0; 16];
                getrandom::fill(&mut random)
                    .map_err(|error| invalid(order, &format!("gets no session id: {error}")))?;
                uuid::Builder::from_random_bytes(random)
                    .into_uuid()
                    .to_string()
            }
        };
        let mut open = BTreeMap::from([
            ("cwd".to_owned(), order.cwd.display().to_string()),
            ("session".to_owned(), session),
            ("dir".to_owned(), dir.0.display().to_string()),
            ("tmp".to_owned(), dir.temporary().display().to_string()),
            ("adj".to_owned(), own_program()),
            (
                "access".to_owned(),
                dir.worker_access().display().to_string(),
            ),
            ("mcp_url".to_owned(), access.mcp_url.clone()),
            ("pi_extension".to_owned(), pi::EXTENSION.to_owned()),
        ]);
        open.extend(preset.files.keys().map(|name| {
            (
                format!("file:{name}"),
                file(dir, name).display().to_string(),
            )
        }));
        Ok(Self {
            open,
            token: access.token.clone(),
        })
    }

    /// Returns the value of a placeholder that may stand anywhere.
    fn open(&self, name: &str) -> Option<String> {
        self.open.get(name).cloned()
    }

    /// Returns the value of a placeholder where only the agent can read it.
    fn with_token(&self, name: &str) -> Option<String> {
        if name == "mcp_token" {
            Some(self.token.clone())
        } else {
            self.open(name)
        }
    }
}

/// Sets a variable. An object in JSON is added to the one that is set already.
fn add_override(env: &mut Vec<(String, String)>, name: &str, value: String) {
    match env.iter_mut().find(|(above, _)| above == name) {
        Some((_, above)) => *above = combined(above, &value),
        None => env.push((name.to_owned(), value)),
    }
}

/// Adds the fields of the gate's or the model's object to those of the profile's, so that neither
/// undoes the other. Another value replaces.
fn combined(profile: &str, gate: &str) -> String {
    type Object = serde_json::Map<String, serde_json::Value>;
    match (
        serde_json::from_str::<Object>(profile),
        serde_json::from_str::<Object>(gate),
    ) {
        (Ok(mut all), Ok(more)) => {
            all.extend(more);
            serde_json::Value::Object(all).to_string()
        }
        _ => gate.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gate_and_profile_share_a_variable() {
        let (profile, gate) = (
            r#"{"permission":{"bash":"ask"}}"#,
            r#"{"provider":{"x":{}}}"#,
        );
        assert_eq!(
            combined(profile, gate),
            r#"{"permission":{"bash":"ask"},"provider":{"x":{}}}"#
        );
        assert_eq!(
            (combined("a", gate), combined(profile, "b")),
            (gate.to_owned(), "b".to_owned())
        );
    }
}
