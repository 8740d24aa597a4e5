//! Completion in a shell: the shell's script starts `adj` at each press of the key, with the words
//! typed so far.
//!
//! Names of runs, requests, chats and pools come from the running hub. Without one nothing is
//! started, and nothing is completed. Nothing is ever printed to standard error, where it would
//! damage the line being typed.

use super::args::Cli;
use super::context::{block_on, now};
use super::run_state;
use crate::config::{BUILT_IN, Config, Home, Setting, request_ephemeral, text_variable};
use crate::hub_client::Client;
use crate::integrations::on_path;
use crate::text;
use crate::view::{
    GrantView, ListChats, ListGrants, ListPools, ListRequests, ListRuns, RequestView, RunView,
};
use adjutant_core::{RequestKind, RunStateKind, WorkspaceState};
use clap::{Command, CommandFactory};
use clap_complete::engine::{ArgValueCandidates, CompletionCandidate};
use clap_complete::env::{EnvCompleter, Shells};
use std::ffi::OsString;
use std::io::Write;
use std::time::Duration;

/// The variable with the shell's name in calls of the completion scripts.
const VARIABLE: &str = "_ADJ_COMPLETE";

/// How long the hub may take to answer.
const HUB_LIMIT: Duration = Duration::from_millis(200);

/// Maximum number of names of one kind.
const NAMES_MAX: u32 = 100;

/// Maximum width of a description, in columns.
const DESCRIPTION_COLUMNS_MAX: usize = 60;

const SHELLS: Shells<'static> = Shells::builtins();

/// What an argument names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    AnyRun,
    LiveRun,
    EndedRun,
    /// A run whose changes are in a workspace, neither merged nor discarded.
    MergeableRun,
    /// A run that has ended or stopped and may have changed files.
    UndoableRun,
    /// A request, or a run that has one.
    Request,
    Question,
    /// A request that is approved or denied.
    Approval,
    /// A setting of the configuration file.
    Setting,
    Agent,
    Chat,
    /// The destination of a message: a chat, an agent or a run.
    Correspondent,
    Pool,
    Grant,
    Topic,
}

/// Returns what an argument of a command names. An argument with one of these names is completed in
/// every command.
fn kind_of(command: &str, argument: &str) -> Option<Kind> {
    match (command, argument) {
        ("cancel" | "pause" | "send" | "wait", "run" | "runs") => Some(Kind::LiveRun),
        ("rm", "runs") => Some(Kind::EndedRun),
        ("merge" | "discard", "run" | "runs") => Some(Kind::MergeableRun),
        ("undo", "run") => Some(Kind::UndoableRun),
        (_, "run" | "runs" | "after") => Some(Kind::AnyRun),
        ("post", "to") => Some(Kind::Correspondent),
        ("reply", "to") => Some(Kind::Question),
        ("approve" | "deny", "to" | "requests") => Some(Kind::Approval),
        (_, "to") | ("next", "of") => Some(Kind::Request),
        ("get" | "set" | "unset", "key") => Some(Kind::Setting),
        (_, "agent" | "resolve_with" | "participants") | ("agents" | "test", "name") => {
            Some(Kind::Agent)
        }
        (_, "chat" | "from") => Some(Kind::Chat),
        (_, "pool") => Some(Kind::Pool),
        (_, "grant") => Some(Kind::Grant),
        ("help", "topic") => Some(Kind::Topic),
        _ => None,
    }
}

/// Completes the words of a call by a completion script. Returns whether this is such a call.
pub(super) fn complete(args: &[OsString]) -> bool {
    let words = match args {
        [_, separator, words @ ..] if separator == "--" && !words.is_empty() => words,
        _ => return false,
    };
    let Some(shell) = text_variable(VARIABLE).and_then(|name| shell(&name)) else {
        return false;
    };
    if words.iter().any(|word| word == "--ephemeral") {
        request_ephemeral();
    }
    let mut found = Vec::new();
    let dir = std::env::current_dir().ok();
    // Fails for words that no command takes: then there is nothing to complete.
    if shell
        .write_complete(
            &mut with_names(Cli::command()),
            words.to_vec(),
            dir.as_deref(),
            &mut found,
        )
        .is_ok()
    {
        // A shell that does not read any more needs no completion.
        let written = std::io::stdout().write_all(&found);
        drop(written);
    }
    true
}

/// Returns the script that registers completion in a shell.
pub(super) fn script(shell_name: &str) -> std::io::Result<String> {
    let mut script = Vec::new();
    let shell = shell(shell_name)
        .ok_or_else(|| std::io::Error::other(format!("no completion for {shell_name}")))?;
    shell.write_registration(VARIABLE, "adj", "adj", "adj", &mut script)?;
    Ok(String::from_utf8_lossy(&script).into_owned())
}

fn shell(name: &str) -> Option<&'static dyn EnvCompleter> {
    SHELLS.0.iter().copied().find(|shell| shell.is(name))
}

/// Adds the completion of names to the arguments of a command and of those below it.
fn with_names(command: Command) -> Command {
    let name = command.get_name().to_owned();
    // Of a command and its aliases, the engine lists the first by the alphabet, so `ls` instead of
    // `ps`. A hidden alias is still completed if nothing else begins as it does. The grammar has
    // static names, and the process ends after the completion.
    let aliases: Vec<&'static str> = command
        .get_all_aliases()
        .map(|alias| &*alias.to_owned().leak())
        .collect();
    let command = if aliases.is_empty() {
        command
    } else {
        command.alias(None::<&'static str>).aliases(aliases)
    };
    let command = command.mut_args(|arg| match kind_of(&name, arg.get_id().as_str()) {
        Some(kind) => arg.add(ArgValueCandidates::new(move || names(kind))),
        None => arg,
    });
    command.mut_subcommands(with_names)
}

/// Returns the names of a kind, and nothing if they cannot be determined in time.
fn names(kind: Kind) -> Vec<CompletionCandidate> {
    match kind {
        Kind::Agent => return agents(),
        Kind::Topic => return topics(),
        Kind::Setting => return settings(),
        _ => {}
    }
    let Ok(home) = Home::from_env() else {
        return Vec::new();
    };
    let hub = Client::running_hub(&home);
    let asked = block_on(async {
        tokio::time::timeout(HUB_LIMIT, names_at_hub(kind, &hub))
            .await
            .ok()
            .flatten()
    });
    let mut names = asked.ok().flatten().unwrap_or_default();
    if kind == Kind::Correspondent {
        names.extend(agents());
    }
    names
}

async fn names_at_hub(kind: Kind, hub: &Client) -> Option<Vec<CompletionCandidate>> {
    Some(match kind {
        Kind::AnyRun => runs(hub, true, |_| true).await?,
        Kind::LiveRun => runs(hub, false, |run| run.condition.outcome.is_none()).await?,
        Kind::EndedRun => runs(hub, true, |run| run.condition.outcome.is_some()).await?,
        Kind::MergeableRun => runs(hub, true, is_mergeable).await?,
        Kind::UndoableRun => {
            runs(hub, true, |run| !is_active(run) && may_have_changed(run)).await?
        }
        Kind::Request => requests(hub, |_| true).await?,
        Kind::Question => requests(hub, |request| request.kind == RequestKind::Question).await?,
        Kind::Approval => requests(hub, |request| request.kind != RequestKind::Question).await?,
        Kind::Chat => chats(hub).await?,
        Kind::Correspondent => {
            let mut all = chats(hub).await?;
            all.extend(runs(hub, false, |run| run.condition.outcome.is_none()).await?);
            all
        }
        Kind::Pool => hub
            .call(&ListPools {})
            .await
            .ok()?
            .pools
            .iter()
            .filter_map(|pool| candidate(&pool.name, ""))
            .collect(),
        Kind::Grant => {
            let list = hub.call(&ListGrants::default()).await.ok()?;
            list.grants
                .iter()
                .filter_map(|GrantView { number, what, .. }| candidate(number, what))
                .collect()
        }
        Kind::Agent | Kind::Topic | Kind::Setting => Vec::new(),
    })
}

async fn runs(
    hub: &Client,
    all: bool,
    is_wanted: impl Fn(&RunView) -> bool,
) -> Option<Vec<CompletionCandidate>> {
    let list = hub
        .call(&ListRuns {
            all,
            limit: Some(NAMES_MAX),
            before: None,
        })
        .await
        .ok()?;
    let wanted = list.runs.iter().filter(|run| is_wanted(run));
    let now = now();
    Some(
        wanted
            .filter_map(|run| {
                candidate(
                    &run.identity.name,
                    &format!(
                        "{}, {}: {}",
                        run_state::label(run, now).text,
                        run.identity.agent,
                        run.identity.task
                    ),
                )
            })
            .collect(),
    )
}

/// Returns whether an attempt of the run works or will start, so that its changes are not final.
fn is_active(run: &RunView) -> bool {
    !matches!(
        run.condition.state.known(),
        Some(RunStateKind::Stopped | RunStateKind::Finished)
    )
}

/// Returns whether nothing says that a run has changed no files.
fn may_have_changed(run: &RunView) -> bool {
    run.changes
        .changed_files
        .as_ref()
        .is_none_or(|files| !files.is_empty())
}

fn is_mergeable(run: &RunView) -> bool {
    let is_open = run
        .place
        .workspace
        .as_ref()
        .is_some_and(|workspace| workspace.state == WorkspaceState::Ready);
    is_open && !is_active(run) && may_have_changed(run)
}

async fn requests(
    hub: &Client,
    is_wanted: impl Fn(&RequestView) -> bool,
) -> Option<Vec<CompletionCandidate>> {
    let list = hub
        .call(&ListRequests {
            limit: Some(NAMES_MAX),
            ..ListRequests::default()
        })
        .await
        .ok()?;
    let wanted = list.requests.iter().filter(|request| is_wanted(request));
    Some(
        wanted
            .filter_map(|one| {
                candidate(
                    &one.number,
                    &format!("{}: {}", one.run_name, one.content.question),
                )
            })
            .collect(),
    )
}

/// Returns the settings that `adj config set` can change: those outside of lists. Settings of an
/// entry whose name the user chooses are left out.
fn settings() -> Vec<CompletionCandidate> {
    let mut names = Vec::new();
    let file = Setting::file();
    file.walk(&mut Vec::new(), &mut |path, setting| {
        let is_value = !matches!(setting, Setting::Table(_) | Setting::Named(_))
            && !matches!(setting, Setting::List(entry) if matches!(**entry, Setting::Table(_)));
        let is_fixed =
            (1..path.len()).all(|len| matches!(file.find(&path[..len]), Some(Setting::Table(_))));
        if is_value && is_fixed {
            names.push(path.join("."));
        }
    });
    names
        .iter()
        .filter_map(|name| candidate(name, ""))
        .collect()
}

async fn chats(hub: &Client) -> Option<Vec<CompletionCandidate>> {
    let list = hub
        .call(&ListChats {
            limit: Some(NAMES_MAX),
            ..ListChats::default()
        })
        .await
        .ok()?;
    Some(
        list.chats
            .iter()
            .filter_map(|chat| candidate(&chat.chat_id.to_string(), &chat.title))
            .collect(),
    )
}

/// Returns the agents that can be used: those that the user declared, and the others if their
/// program is installed.
fn agents() -> Vec<CompletionCandidate> {
    let Some(config) = Home::from_env()
        .ok()
        .and_then(|home| Config::load(&home).ok())
    else {
        return Vec::new();
    };
    let path = text_variable("PATH").unwrap_or_default();
    let is_usable = |source: &str, command: &[String]| {
        source != BUILT_IN
            || command
                .first()
                .is_none_or(|program| on_path(program, &path).is_some())
    };
    let usable = config
        .agents
        .iter()
        .filter(|(_, entry)| is_usable(&entry.source, &entry.spec.command));
    usable
        .filter_map(|(name, entry)| candidate(name.as_str(), &entry.spec.description))
        .collect()
}

fn topics() -> Vec<CompletionCandidate> {
    let command = Cli::command();
    let visible = command
        .get_subcommands()
        .filter(|below| !below.is_hide_set());
    let commands = visible.filter_map(|below| {
        candidate(
            below.get_name(),
            &below
                .get_about()
                .map(ToString::to_string)
                .unwrap_or_default(),
        )
    });
    let own = [("exit-codes", "the exit codes")].into_iter();
    commands
        .chain(
            own.chain(super::overview::topic_names())
                .filter_map(|(name, about)| candidate(name, about)),
        )
        .collect()
}

/// Returns a candidate with a description. A name with characters that a shell treats specially is
/// left out: bash expands what a script returns.
fn candidate(name: &str, description: &str) -> Option<CompletionCandidate> {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-' | '@' | '/');
    if name.is_empty() || !name.chars().all(is_plain) {
        return None;
    }
    let description = text::cut(&text::line(description), DESCRIPTION_COLUMNS_MAX);
    Some(CompletionCandidate::new(name).help((!description.is_empty()).then(|| description.into())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_argument_that_names_something_is_completed() {
        fn check(command: &Command, path: &str, missing: &mut Vec<String>) {
            for arg in command.get_arguments() {
                let is_about = arg.get_help().map(ToString::to_string).unwrap_or_default();
                let names_one = [
                    "A run:",
                    "Runs:",
                    "The agent (",
                    "The pool",
                    "The chat's number",
                    "A request (",
                    "A question (",
                ];
                if names_one.iter().any(|start| is_about.starts_with(start))
                    && kind_of(command.get_name(), arg.get_id().as_str()).is_none()
                {
                    missing.push(format!("{path} {}", arg.get_id()));
                }
            }
            command
                .get_subcommands()
                .for_each(|below| check(below, &format!("{path} {}", below.get_name()), missing));
        }
        let mut missing = Vec::new();
        check(&Cli::command(), "adj", &mut missing);
        assert!(missing.is_empty(), "{missing:?}");
    }

    #[test]
    fn grammar_with_names_is_valid() {
        with_names(Cli::command()).debug_assert();
    }

    #[test]
    fn name_that_a_shell_would_expand_is_left_out() {
        for name in ["*", "$(id)", "a b", "a\nb", "a;b", "", "\u{1b}[2J", "é"] {
            assert!(candidate(name, "").is_none(), "{name:?}");
        }
        let shown = candidate("w1", "a\u{1b}[2J\nb").expect("a candidate");
        let help = shown.get_help().expect("a description").to_string();
        assert!(!help.contains(['\u{1b}', '\n']), "{help:?}");
    }
}
