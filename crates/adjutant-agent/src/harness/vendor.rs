//! Prepares the launch of a vendor's CLI from its preset: argv, files, environment and dialogue.

use super::acp::{Acp, SessionStart};
use super::codex::{self, Codex};
use super::config_home::AttemptHome;
use super::dialogue::Dialogue;
use super::pi::{self, Pi};
use super::plain::{self, PROMPT_ARG_BYTES_MAX};
use super::{GateAccess, Input, Launch, LogSource, OwnTools, ReaderConfig, Refusal};
use crate::link::{AttemptDir, Order, WorkerAccess};
use crate::preset::{Driver, Preset, PromptForm};
use crate::process::start::SELF_EXE;
use crate::view::codes;
use adjutant_core::Permissions;
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::PathBuf;

/// Prepares the launch of a vendor's CLI, which is offered `own_tools`.
pub fn launch(
    order: &Order,
    dir: &AttemptDir,
    access: &WorkerAccess,
    gate: Option<GateAccess<'_>>,
    own_tools: OwnTools,
) -> Result<Launch, Refusal> {
    let Some(preset) = &order.preset else {
        return Err(invalid(order, "has no preset"));
    };
    let new_session_prompt = in_new_session(order, preset);
    let order = new_session_prompt.as_ref().unwrap_or(order);
    let program = plain::program(order)?;
    let values = Values::new(order, preset, dir, access)?;
    let Some(permissions) = Permissions::from_word(&order.permissions) else {
        return Err(invalid(
            order,
            &format!(
                "was ordered with unknown permissions: {:?}",
                order.permissions
            ),
        ));
    };
    let profile = preset.permissions.of(&order.permissions);
    if let Some(why) = &profile.unsupported {
        let message = format!(
            "agent {} cannot be run with {}: {why}",
            order.agent, order.permissions
        );
        return Err(Refusal {
            code: codes::UNSUPPORTED_PROFILE,
            message,
        });
    }
    let (begin, behind) = match order.session {
        Some(_) => (&preset.resume_args, None),
        None => (&preset.args, Some(&preset.new_args)),
    };
    let trust = if order.trust_repo {
        &preset.trusted_args
    } else {
        &preset.untrusted_args
    };
    let model = preset.model.as_ref().zip(order.model.as_ref());
    let of_model = |name: &str| {
        model
            .filter(|_| name == "model")
            .map(|(_, model)| model.clone())
    };
    let mut argv: Vec<OsString> = order.argv.iter().map(OsString::from).collect();
    for arg in begin.iter().chain(&profile.args).chain(trust) {
        argv.push(values.fill(order, arg)?.into());
    }
    // Placeholders are not replaced in the user's own arguments.
    argv.extend(order.args.iter().map(OsString::from));
    for arg in model.iter().flat_map(|(form, _)| &form.args) {
        argv.push(
            fill(arg, &of_model)
                .map_err(|problem| invalid(order, &problem))?
                .into(),
        );
    }
    argv.extend(order.last_args.iter().map(OsString::from));
    for arg in behind.into_iter().flatten() {
        argv.push(values.fill(order, arg)?.into());
    }
    let mut env = Vec::new();
    for (name, value) in &preset.env {
        env.push((name.clone(), values.fill_secret(order, value)?));
    }
    let untrusted = (!order.trust_repo).then_some(&preset.untrusted_env);
    let mut env_override = Vec::new();
    for (name, value) in profile.env.iter().chain(untrusted.into_iter().flatten()) {
        env_override.push((name.clone(), values.fill_secret(order, value)?));
    }
    for (name, value) in model.iter().flat_map(|(form, _)| &form.env) {
        let value = fill(value, &of_model).map_err(|problem| invalid(order, &problem))?;
        add_override(&mut env_override, name, value);
    }
    if let Some((form, gate)) = preset.gate.as_ref().zip(gate) {
        let of_url = |name: &str| (name == "gate_url").then(|| gate.url.to_owned());
        let of_both = |name: &str| {
            if name == "gate_token" {
                Some(gate.token.to_owned())
            } else {
                of_url(name)
            }
        };
        for arg in &form.args {
            argv.push(
                fill(arg, &of_url)
                    .map_err(|problem| invalid(order, &problem))?
                    .into(),
            );
        }
        for (name, value) in &form.env {
            let value = fill(value, &of_both).map_err(|problem| invalid(order, &problem))?;
            add_override(&mut env_override, name, value);
        }
    }
    let mut files = Vec::new();
    for (name, text) in &preset.files {
        files.push((file(dir, name), values.fill_secret(order, text)?));
    }
    let (attempt_home_env, attempt_home) = AttemptHome::of(order, preset, dir).unzip();
    if let (Some(name), Some(AttemptHome { at, .. })) = (attempt_home_env, &attempt_home) {
        env_override.push((name, at.display().to_string()));
    }
    let texts = preset
        .args
        .iter()
        .chain(&profile.args)
        .chain(preset.env.values())
        .chain(profile.env.values())
        .chain(preset.files.values());
    let own_log = match (&preset.log_env, &preset.log_files) {
        (Some(name), _) => {
            let pipe = dir.temporary().join("log");
            env.push((name.clone(), pipe.display().to_string()));
            Some(LogSource::Pipe(pipe))
        }
        (None, Some(files)) => log_files(order, preset, dir, files),
        (None, None) => None,
    };
    let temporary = (own_log.is_some() || texts.into_iter().any(|text| text.contains("{tmp")))
        .then(|| dir.temporary());
    let mut dialogue = new_dialogue(order, preset, dir, access, own_tools, permissions);
    let answers_after = if let Some(Dialogue::Acp(acp)) = &dialogue {
        Some(acp.answers_after())
    } else {
        None
    };
    let input = match &mut dialogue {
        Some(dialogue) => Input::Open(dialogue.opening(&order.prompt)),
        None => prompt(order, preset, &mut argv)?,
    };
    let stream = (preset.driver != Driver::Plain).then(|| ReaderConfig {
        stream: preset.stream.clone(),
        answers_after,
    });
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

fn prompt(order: &Order, preset: &Preset, argv: &mut Vec<OsString>) -> Result<Input, Refusal> {
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

fn invalid(order: &Order, problem: &str) -> Refusal {
    Refusal {
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
    ) -> Result<Self, Refusal> {
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

    fn fill(&self, order: &Order, text: &str) -> Result<String, Refusal> {
        fill(text, &|name| self.open.get(name).cloned()).map_err(|problem| invalid(order, &problem))
    }

    fn fill_secret(&self, order: &Order, text: &str) -> Result<String, Refusal> {
        let value = |name: &str| {
            if name == "mcp_token" {
                Some(self.token.clone())
            } else {
                self.open.get(name).cloned()
            }
        };
        fill(text, &value).map_err(|problem| invalid(order, &problem))
    }
}

/// Sets a variable. An object in JSON is added to the one that is set already.
fn add_override(env: &mut Vec<(String, String)>, name: &str, value: String) {
    match env.iter_mut().find(|(above, _)| above == name) {
        Some((_, above)) => *above = combined(above, &value),
        None => env.push((name.to_owned(), value)),
    }
}

/// Adds the fields of the gate's or the model's object to those of the profile's, so that neither undoes the other. Another value replaces.
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

/// Replaces the placeholders in a text. Other braces stay unchanged.
fn fill(text: &str, value: &dyn Fn(&str) -> Option<String>) -> Result<String, String> {
    let mut filled = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find('{') {
        filled.push_str(&rest[..at]);
        rest = &rest[at..];
        let inner = rest[1..]
            .find(['{', '}'])
            .filter(|end| rest.as_bytes()[end + 1] == b'}')
            .map(|end| &rest[1..=end]);
        let is_name = |name: &str| {
            name.starts_with(|c: char| c.is_ascii_lowercase())
                && name
                    .bytes()
                    .all(|b| b.is_ascii_alphanumeric() || b"_:.-".contains(&b))
        };
        let Some(inner) = inner.filter(|inner| is_name(inner)) else {
            filled.push('{');
            rest = &rest[1..];
            continue;
        };
        let (name, as_json) = inner
            .strip_suffix(":json")
            .map_or((inner, false), |name| (name, true));
        let Some(value) = value(name) else {
            return Err(format!(
                "has a preset with an unknown placeholder {{{inner}}} in {text:?}"
            ));
        };
        if as_json {
            filled.push_str(&serde_json::Value::String(value).to_string());
        } else {
            filled.push_str(&value);
        }
        rest = &rest[inner.len() + 2..];
    }
    filled.push_str(rest);
    Ok(filled)
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

    #[test]
    fn placeholders_are_replaced_and_other_braces_stay() {
        let value = |name: &str| (name == "cwd").then(|| "/a \"b\"".to_owned());
        assert_eq!(
            fill(r#"projects={ {cwd:json} = { level = "x" } } {cwd}"#, &value),
            Ok(r#"projects={ "/a \"b\"" = { level = "x" } } /a "b""#.to_owned())
        );
        assert_eq!(
            fill(r#"{"a":{"b":1}}"#, &value),
            Ok(r#"{"a":{"b":1}}"#.to_owned())
        );
        assert!(fill("{mcp_token}", &value).is_err());
    }
}
