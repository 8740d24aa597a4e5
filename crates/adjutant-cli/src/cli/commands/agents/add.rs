//! `adj agents add`: starts an agent that speaks the Agent Client Protocol once, prints what it
//! supports, and writes it to the configuration file.

use crate::cli::args::AgentAddArgs;
use crate::cli::commands::config::change::unusable;
use crate::cli::context::Context;
use crate::cli::exit::{Exit, cli_codes};
use crate::cli::out::{CommandResult, Failure, fail, fail_hint};
use crate::config::{AddError, BUILT_IN, Config, NewAgent, check_env_pass, env_for, with_agent};
use crate::harness::acp::handshake::{Handshake, Next, Offer};
use crate::hub_client::random_hex;
use crate::integrations::ClientFile;
use crate::process::probe::{Conversation, Probe, ProbeReply, converse};
use crate::view::codes;
use crate::{preset, text};
use adjutant_core::units::duration;
use adjutant_core::{AgentName, Permissions, shorten};
use serde_json::{Map, Value, json};
use std::fs::DirBuilder;
use std::io;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::{Path, PathBuf};
use tokio::signal::unix::{SignalKind, signal};

/// Maximum output of an agent before it has started a session, in bytes.
const OUTPUT_BYTES_MAX: usize = 4 * 1024 * 1024;
/// Maximum number of characters of its last error output that are printed.
const STDERR_CHARS_MAX: usize = 300;

/// Adds an agent.
pub(super) async fn add(args: &AgentAddArgs, cx: &Context) -> CommandResult {
    let name = AgentName::parse(&args.name)
        .map_err(|error| fail(codes::INVALID, format!("{:?} is {error}", args.name)))?;
    check_env_pass(&args.env_pass)
        .map_err(|problem| fail(codes::INVALID, format!("--env-pass: {problem}")))?;
    let config = crate::cli::commands::config::load(&cx.home)?;
    // Checked before anything is started, and again when it is written.
    if let Some(entry) = config.agents.get(&name) {
        let whose = if entry.source == BUILT_IN {
            "built in".to_owned()
        } else {
            format!("declared in {}", entry.source)
        };
        return Err(agent_exists(&name, &whose));
    }
    let (program, command) = find_program(&command_of(args)?)?;
    if let Some(preset) = preset_of(&program, &command) {
        let message = format!(
            "note: {preset} has a preset, which knows more about it than any ACP client: use -a {preset}, or harness = \"{preset}\""
        );
        cx.out.print_message(&message)?;
    }
    let (shown, limit) = (program.display().to_string(), duration::of(args.timeout));
    cx.out.print_message(&format!(
        "starting {}; it has {limit} to start a session",
        text::line(&shown)
    ))?;
    let offer = probe_agent(args, &program, &command).await?;
    let new = NewAgent {
        name,
        harness: preset::ACP.to_owned(),
        command,
        env_pass: args.env_pass.clone(),
        description: args.description.clone(),
    };
    let file = ClientFile::read(&config.path, false).map_err(|error| unusable(&error))?;
    let text = with_agent(&file.target, file.text.as_deref().unwrap_or_default(), &new)
        .map_err(add_failure)?;
    file.write(&text).map_err(|error| unusable(&error))?;
    print_offer(cx, &new, &offer, &config)
}

/// Programs that run a package, which their first argument without a dash names.
const PACKAGE_RUNNERS: [&str; 5] = ["npx", "bunx", "pnpx", "uvx", "pipx"];
/// Their subcommands before it.
const RUN_COMMANDS: [&str; 2] = ["run", "exec"];

/// Returns the name of the built-in preset whose program a command starts: by its file name,
/// through a link, or as a package.
fn preset_of(program: &Path, command: &[String]) -> Option<&'static str> {
    let of_program = |file: &str| {
        preset::all().iter().find(|preset| {
            preset
                .command
                .first()
                .is_some_and(|command| command == file)
        })
    };
    let name = program.file_name()?.to_str()?;
    if PACKAGE_RUNNERS.contains(&name) {
        let package = command
            .iter()
            .skip(1)
            .find(|arg| !arg.starts_with('-') && !RUN_COMMANDS.contains(&arg.as_str()))?;
        let package = without_version(package);
        let installs = |preset: &&preset::Preset| {
            preset
                .about
                .install
                .split_whitespace()
                .next_back()
                .is_some_and(|last| without_version(last) == package)
        };
        return preset::all()
            .iter()
            .find(installs)
            .map(|preset| preset.name.as_str());
    }
    // A link can have another name than the program. One that leads nowhere has been found by its
    // own.
    let target = program.canonicalize().ok();
    let target = target
        .as_deref()
        .and_then(Path::file_name)
        .and_then(std::ffi::OsStr::to_str);
    let found = of_program(name).or_else(|| target.and_then(of_program));
    found.map(|preset| preset.name.as_str())
}

/// Returns the name of a package without its version: `@google/gemini-cli@0.61.0`,
/// `aider-chat==0.86.2`.
fn without_version(package: &str) -> &str {
    let package = package.split("==").next().unwrap_or(package);
    match package.rfind('@') {
        Some(at) if at > 0 => &package[..at],
        _ => package,
    }
}

fn agent_exists(name: &AgentName, whose: &str) -> Failure {
    fail_hint(
        codes::CONFLICT,
        format!("agent {name} is already {whose}"),
        format!("choose another name, or see adj agents {name}"),
    )
}

fn add_failure(error: AddError) -> Failure {
    match error {
        AddError::Exists { name, whose } => agent_exists(&name, &whose),
        AddError::Config(error) => fail(codes::INVALID, error.to_string()),
        error @ AddError::ByHand { .. } => fail(cli_codes::IO, error.to_string()),
    }
}

/// Returns the given command, or the one in the registry for the name.
fn command_of(args: &AgentAddArgs) -> Result<Vec<String>, Failure> {
    if !args.command.is_empty() {
        return Ok(args.command.clone());
    }
    let preset::Registry { date, agents } = preset::registry();
    let known = agents
        .iter()
        .find(|agent| agent.name == args.name)
        .map(|agent| agent.command.clone());
    known.ok_or_else(|| {
        let names: Vec<&str> = agents.iter().map(|agent| agent.name.as_str()).collect();
        let message = format!(
            "no command given, and the ACP registry of {date} has no agent {:?}; it has {}",
            args.name,
            names.join(", ")
        );
        fail_hint(
            codes::INVALID,
            message,
            "give the command: adj agents add NAME -- COMMAND…",
        )
    })
}

/// Returns the agents of the registry that are installed and not configured.
pub(super) fn offered(config: &Config) -> Vec<&'static str> {
    let is_here = |command: &[String]| find_program(command).is_ok();
    let is_taken = |agent: &preset::RegisteredAgent| {
        config.agents.iter().any(|(name, entry)| {
            name.as_str() == agent.name || entry.spec.command.first() == agent.command.first()
        })
    };
    let agents = preset::registry().agents.iter();
    agents
        .filter(|agent| !is_taken(agent) && is_here(&agent.command))
        .map(|agent| agent.name.as_str())
        .collect()
}

/// Finds the program: a bare name on `PATH`, a path relative to the current directory. Returns its
/// path and the command to write.
fn find_program(command: &[String]) -> Result<(PathBuf, Vec<String>), Failure> {
    let [first, rest @ ..] = command else {
        return Err(fail(codes::INVALID, "no command given"));
    };
    let is_program = |path: &Path| {
        path.metadata()
            .is_ok_and(|meta| meta.is_file() && meta.permissions().mode() & 0o111 != 0)
    };
    if first.contains('/') {
        let path = std::path::absolute(first)
            .map_err(|error| fail(cli_codes::IO, format!("{first}: {error}")))?;
        return match path.metadata() {
            Err(error) => Err(fail(
                codes::AGENT_NOT_FOUND,
                format!("{}: {error}", path.display()),
            )),
            Ok(_) if !is_program(&path) => Err(fail_hint(
                codes::AGENT_NOT_EXECUTABLE,
                format!("{} is not executable", path.display()),
                "make it executable with chmod +x",
            )),
            Ok(_) => {
                let command = std::iter::once(path.display().to_string())
                    .chain(rest.iter().cloned())
                    .collect();
                Ok((path, command))
            }
        };
    }
    let path = crate::config::text_variable("PATH").unwrap_or_default();
    let found = path
        .split(':')
        .filter(|dir| dir.starts_with('/'))
        .map(|dir| Path::new(dir).join(first))
        .find(|path| is_program(path));
    match found {
        Some(path) => Ok((path, command.to_vec())),
        None => Err(fail_hint(
            codes::AGENT_NOT_FOUND,
            format!("program {first:?} not found on PATH"),
            "install it, or give its path",
        )),
    }
}

/// Starts the agent in an empty directory and lets it start a session.
async fn probe_agent(
    args: &AgentAddArgs,
    program: &Path,
    command: &[String],
) -> Result<Offer, Failure> {
    let dir = std::env::temp_dir().join(format!("adj-add-{}", random_hex::<8>()));
    DirBuilder::new()
        .mode(0o700)
        .create(&dir)
        .map_err(|error| fail(cli_codes::IO, format!("{}: {error}", dir.display())))?;
    let probe = Probe {
        program: program.to_owned(),
        args: command[1..].to_vec(),
        env: env_for(&args.env_pass)
            .into_iter()
            .map(|(name, value)| (name.into(), value.into()))
            .collect(),
        limit: args.timeout,
        output_bytes_max: OUTPUT_BYTES_MAX,
    };
    let (mut handshake, opening) = Handshake::new(&dir.display().to_string());
    let mut refused = None;
    let mut on_line = |line: &str| match handshake.receive(line) {
        Next::Write(bytes) => ProbeReply::Write(bytes),
        Next::Wait => ProbeReply::Listen,
        Next::Done => ProbeReply::Enough,
        Next::Failed(why) => {
            refused = Some(why);
            ProbeReply::Enough
        }
    };
    let (mut interrupts, mut terminations) = (
        signal(SignalKind::interrupt())?,
        signal(SignalKind::terminate())?,
    );
    let conversation = tokio::select! {
        conversation = converse(probe, &dir, opening, &mut on_line) => Some(conversation),
        _ = interrupts.recv() => None,
        _ = terminations.recv() => None,
    };
    let removed = std::fs::remove_dir_all(&dir);
    let Some(conversation) = conversation else {
        return Err(Failure::Reported(Exit::Interrupted));
    };
    let conversation = conversation.map_err(|error| not_started(program, args, &error))?;
    removed.map_err(|error| fail(cli_codes::IO, format!("{}: {error}", dir.display())))?;
    let hint = "nothing was written; sign in with its own command first, or pass its API key with --env-pass";
    if let Some(why) = refused {
        return Err(fail_hint(
            cli_codes::NOT_STARTED,
            format!("{}: {why}", program.display()),
            hint,
        ));
    }
    if !conversation.is_enough {
        return Err(fail_hint(
            cli_codes::NOT_STARTED,
            end_reason(program, &conversation),
            "nothing was written; check that it speaks ACP with these arguments",
        ));
    }
    Ok(handshake.into_offer())
}

fn not_started(program: &Path, args: &AgentAddArgs, error: &io::Error) -> Failure {
    let program = program.display();
    match error.kind() {
        io::ErrorKind::TimedOut => fail_hint(
            cli_codes::NOT_STARTED,
            format!(
                "{program} did not start a session within {}",
                duration::of(args.timeout)
            ),
            "nothing was written; check that it speaks ACP with these arguments, or allow more time with --timeout",
        ),
        _ => fail(cli_codes::NOT_STARTED, format!("{program}: {error}")),
    }
}

fn end_reason(program: &Path, conversation: &Conversation) -> String {
    let how = conversation
        .exit_code
        .map_or_else(String::new, |code| format!(" with exit code {code}"));
    let stderr_end = String::from_utf8_lossy(&conversation.stderr_end);
    let last = stderr_end
        .lines()
        .map(str::trim)
        .rfind(|line| !line.is_empty())
        .unwrap_or_default();
    let last = text::line(last);
    let last = shorten::to_chars(&last, STDERR_CHARS_MAX);
    let last_words = if last.is_empty() {
        String::new()
    } else {
        format!(": {last}")
    };
    format!(
        "{} ended{how} before it started a session{last_words}",
        program.display()
    )
}

fn print_offer(cx: &Context, new: &NewAgent, offer: &Offer, config: &Config) -> CommandResult {
    if cx.out.json {
        cx.out.print_json(&offer_view(new, offer, config))?;
        return Ok(Exit::Done);
    }
    for (label, value) in offer_lines(offer) {
        cx.out
            .print_line(&format!("{label:<11} {}", text::line(&value)))?;
    }
    cx.out.print_message(&format!(
        "added agent {} to {}",
        new.name,
        text::line(&config.path.display().to_string())
    ))?;
    cx.out.suggest(&format!("adj agents test {}", new.name))?;
    Ok(Exit::Done)
}

fn offer_view(new: &NewAgent, offer: &Offer, config: &Config) -> Value {
    let Offer {
        name,
        version,
        http,
        sse,
        loads,
        resumes,
        sign_in,
        modes,
        profiles,
    } = offer;
    let profiles: Map<String, Value> = profiles
        .iter()
        .map(|(profile, chosen)| {
            let mode = match chosen {
                Ok(mode) => json!({ "mode": mode }),
                Err(why) => json!({ "unsupported": why.to_string() }),
            };
            (profile.word().to_owned(), mode)
        })
        .collect();
    json!({
        "agent": new.name.as_str(), "config": config.path, "command": new.command, "name": name, "version": version, "mcp_http": http, "mcp_sse": sse,
        "load_session": loads, "resume_session": resumes, "sign_in": sign_in, "modes": modes, "profiles": profiles,
    })
}

/// Returns what an agent says about itself, and the mode of each profile.
fn offer_lines(offer: &Offer) -> Vec<(&'static str, String)> {
    let or = |text: String, other: &str| {
        if text.is_empty() {
            other.to_owned()
        } else {
            text
        }
    };
    let who = [&offer.name, &offer.version]
        .into_iter()
        .flatten()
        .map(String::as_str)
        .collect::<Vec<_>>()
        .join(" ");
    let transports = [(offer.http, "http"), (offer.sse, "sse"), (true, "stdio")]
        .iter()
        .filter(|(can, _)| *can)
        .map(|(_, what)| *what)
        .collect::<Vec<_>>()
        .join(", ");
    let used = if offer.http { "http" } else { "stdio" };
    let resumes = match (offer.loads, offer.resumes) {
        (true, _) => "its own session (session/load)",
        (false, true) => "its own session (session/resume)",
        (false, false) => "with a new session (it cannot load one)",
    };
    let mut lines = vec![
        ("agent", or(who, "unnamed")),
        (
            "our tools",
            format!("over {used} (it supports {transports})"),
        ),
        ("resumes", resumes.to_owned()),
        ("modes", or(offer.modes.join(", "), "none")),
    ];
    for (profile, chosen) in &offer.profiles {
        let promise = match profile {
            Permissions::Full => "; every request is allowed",
            Permissions::Read | Permissions::Edit => "; what it does without asking is unknown",
        };
        let mode = match chosen {
            Ok(Some(mode)) => format!("mode {mode}{promise}"),
            Ok(None) => format!("default mode{promise}"),
            Err(why) => format!("not supported: {why}"),
        };
        lines.push((profile.word(), mode));
    }
    if !offer.sign_in.is_empty() {
        lines.push(("sign-in", offer.sign_in.join("; ")));
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn program_of_a_preset_is_recognized() {
        let of = |command: &[&str]| {
            preset_of(
                Path::new(command[0]),
                &command
                    .iter()
                    .map(|word| (*word).to_owned())
                    .collect::<Vec<_>>(),
            )
        };
        for (command, preset) in [
            (&["/usr/bin/gemini", "--acp"][..], Some("gemini")),
            (&["/x/droid"], Some("droid")),
            (
                &["/usr/bin/npx", "-y", "@google/gemini-cli@0.61.0", "--acp"],
                Some("gemini"),
            ),
            (
                &["/usr/bin/npx", "@qwen-code/qwen-code", "--acp"],
                Some("qwen"),
            ),
            (&["/usr/bin/bunx", "opencode-ai", "acp"], Some("opencode")),
            (&["/usr/bin/vibe-acp"], None),
            (
                &[
                    "/usr/bin/npx",
                    "-y",
                    "@agentclientprotocol/claude-agent-acp",
                ],
                None,
            ),
            (&["/usr/bin/npx", "install"], None),
            (&["/usr/bin/npx"], None),
            (&["/usr/bin/node", "gemini"], None),
        ] {
            assert_eq!(of(command), preset, "{command:?}");
        }
    }
}
