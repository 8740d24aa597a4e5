//! `run`: a task, an agent, a directory; then following, waiting, or neither.

use crate::cli::args::RunArgs;
use crate::cli::context::{Context, read_text, text_argument};
use crate::cli::exit::{Exit, cli_codes};
use crate::cli::follow::{Follow, Scope};
use crate::cli::out::{CommandResult, Failure, fail, fail_hint};
use crate::cli::waiting::wait_for_runs;
use crate::cli::{details, run_end, run_state, waiting};
use crate::config::{Config, dispatch_env};
use crate::text;
use crate::view::{Dispatch, GetRun, ListAgents, RunView, WaitUntil, Word, codes};
use rustix::fs::FileType;
use std::path::Path;
use std::time::Duration;

/// Gives a task to an agent.
pub async fn run(args: &RunArgs, cx: &Context) -> CommandResult {
    let prompt = append_input(read_prompt(args)?, args)?;
    let agent = match &args.agent {
        Some(agent) => agent.clone(),
        None => default_agent(cx).await?,
    };
    let dispatch = Dispatch {
        agent,
        prompt,
        cwd: resolve_directory(args.cwd.as_deref())?,
        name: args.name.clone(),
        timeout_s: args.timeout.map(|limit| u64::try_from(limit.as_millis().div_ceil(1000)).unwrap_or(u64::MAX)),
        criteria: args.criteria.clone(),
        accept: args.accept.as_deref().map(split_command).transpose()?.unwrap_or_default(),
        permissions: args.permissions.as_deref().map(Word::read),
        trust_repo: args.trust_repo,
        env: dispatch_env(),
    };
    let run = cx.hub.call(&dispatch).await?;
    if args.wait {
        return wait_for_end(&run, cx).await;
    }
    if args.detach || cx.out.json || !cx.out.terminal {
        return print_started(&run, cx);
    }
    cx.out.print_message(&format!("{} started with {}. Ctrl-C detaches, the run goes on.", text::line(&run.name), text::line(&run.agent)))?;
    print_shared_directory(&run, cx)?;
    Follow::new(cx, run, Scope::Everything)?.run().await
}

/// Splits a command at blanks. Quotes of either kind keep blanks together; nothing is expanded.
fn split_command(command: &str) -> Result<Vec<String>, Failure> {
    let mut found = Vec::new();
    let mut word: Option<String> = None;
    let mut quote: Option<char> = None;
    // The unquoted part of the word that is being read.
    let mut unquoted = String::new();
    let mut shell_word: Option<String> = None;
    for c in command.chars().chain([' ']) {
        match (quote, c) {
            (Some(open), c) if c == open => quote = None,
            (Some(_), c) => word.get_or_insert_default().push(c),
            (None, '\'' | '"') => {
                quote = Some(c);
                word.get_or_insert_default();
            }
            (None, c) if c.is_whitespace() => {
                found.extend(word.take());
                if is_shell_syntax(&unquoted) {
                    shell_word.get_or_insert_with(|| unquoted.clone());
                }
                unquoted.clear();
            }
            (None, c) => {
                word.get_or_insert_default().push(c);
                unquoted.push(c);
            }
        }
    }
    if quote.is_none()
        && let Some(operator) = shell_word
    {
        let message = format!("--accept is run without a shell, and {} would be an argument", text::line(&operator));
        return Err(fail_hint(cli_codes::USAGE, message, "for a shell: --accept \"sh -c '…'\"; for an argument, quote it: '|'"));
    }
    if quote.is_some() {
        return Err(fail_hint(cli_codes::USAGE, format!("a quote is open in {}", text::line(command)), "close it: --accept \"cargo test 'a name'\""));
    }
    found.extend(word);
    if found.is_empty() {
        return Err(fail_hint(cli_codes::USAGE, "--accept is empty", "name the command, or leave --accept out"));
    }
    Ok(found)
}

/// Tells whether an unquoted word means something to a shell only: a pipe, a list, a redirection, a
/// substitution.
fn is_shell_syntax(word: &str) -> bool {
    let redirects = word.trim_start_matches(|c: char| c.is_ascii_digit() || c == '&');
    matches!(word, "|" | "||" | "|&" | "&" | "&&" | ";" | ";;") || redirects.starts_with(['<', '>']) || word.contains("$(") || word.contains('`')
}

fn print_started(run: &RunView, cx: &Context) -> CommandResult {
    if cx.out.json {
        cx.out.print_json(run)?;
        return Ok(Exit::Done);
    }
    cx.out.print_line(&text::line(&run.name))?;
    print_shared_directory(run, cx)?;
    cx.out.suggest(&format!("adj wait {name}   or   adj logs {name}", name = text::line(&run.name)))?;
    Ok(Exit::Done)
}

fn print_shared_directory(run: &RunView, cx: &Context) -> Result<(), Failure> {
    if run.shares_directory_with.is_empty() {
        return Ok(());
    }
    cx.out.print_message(&format!("note: also at work in this directory: {}", text::line(&run.shares_directory_with.join(", "))))
}

/// Waits until the run has ended or asks something; prints only how it ended.
async fn wait_for_end(run: &RunView, cx: &Context) -> CommandResult {
    cx.out.print_message(&format!("{} started; waiting. Ctrl-C stops the waiting, not the run.", text::line(&run.name)))?;
    let waited = loop {
        let waited = wait_for_runs(vec![run.run_id.clone()], WaitUntil::Attention, None, cx).await?;
        if !waited.needs.is_empty() || !waited.stopped.is_empty() || !waited.ended.is_empty() || waited.working.is_empty() {
            break waited;
        }
        // One that stands still may go on all the same.
        for run in waited.working.iter().filter(|run| waiting::has_condition(run)) {
            waiting::print_condition(run, cx)?;
        }
    };
    let run = cx.hub.call(&GetRun { run: run.run_id.clone() }).await?;
    if cx.out.json {
        cx.out.print_json(&run)?;
    } else {
        cx.out.print_line(&run_end::end_line(&run, cx))?;
    }
    run_end::confirm_run_notified(&run, cx).await?;
    if let Some(open) = waited.needs.first() {
        if !cx.out.json {
            cx.out.print_text(&details::request_block(open, cx)?)?;
        }
        return run_end::end_needing_input(open, cx);
    }
    // What it has delegated may have stopped, and it waits for that.
    let stopped = waited.stopped.iter().find(|other| other.run_id != run.run_id).filter(|_| !run_state::is_over(&run));
    if let (Some(stopped), false) = (stopped, cx.out.json) {
        cx.out.print_line(&run_end::end_line(stopped, cx))?;
    }
    run_end::end_with_run(stopped.unwrap_or(&run), cx)
}

fn read_prompt(args: &RunArgs) -> Result<String, Failure> {
    if let Some(path) = &args.file {
        if path == Path::new("-") {
            return text_argument("-", "the prompt");
        }
        let file = std::fs::File::open(path).map_err(|e| fail(cli_codes::USAGE, format!("cannot read the prompt: {}: {e}", path.display())))?;
        return read_text(file, "the prompt", &path.display().to_string());
    }
    match &args.prompt {
        Some(prompt) => text_argument(prompt, "the prompt"),
        None => Err(fail_hint(cli_codes::USAGE, "there is no prompt", "adj run -a AGENT \"PROMPT\", or -f FILE, or - for standard input")),
    }
}

/// How long a pipe may take to bring its first byte.
const PIPE_WAIT: Duration = Duration::from_secs(5);
/// The same for a socket: programs that start others leave one open that never brings anything.
const SOCKET_WAIT: Duration = Duration::from_millis(500);

/// Appends what is piped into the command to its prompt, between fences that it cannot forge.
fn append_input(prompt: String, args: &RunArgs) -> Result<String, Failure> {
    if args.prompt.as_deref() == Some("-") || args.file.as_deref() == Some(Path::new("-")) {
        return Ok(prompt);
    }
    let Some(input) = piped_input()? else { return Ok(prompt) };
    if input.trim().is_empty() {
        return Ok(prompt);
    }
    let longest = input.split(|c| c != '`').map(str::len).max().unwrap_or(0);
    let fence = "`".repeat(longest.max(2) + 1);
    let end = if input.ends_with('\n') { "" } else { "\n" };
    Ok(format!("{prompt}\n\nStandard input ({}):\n\n{fence}\n{input}{end}{fence}\n", text::count(input.len() as u64, "byte", "bytes")))
}

/// Reads standard input where something is piped or redirected into it: a file, a pipe, a socket. A terminal
/// and `/dev/null` are none of these.
fn piped_input() -> Result<Option<String>, Failure> {
    let stdin = std::io::stdin();
    let kind = rustix::fs::fstat(&stdin).map(|stat| FileType::from_raw_mode(stat.st_mode));
    let wait = match kind {
        Ok(FileType::RegularFile | FileType::Directory) => None,
        Ok(FileType::Fifo) => Some(PIPE_WAIT),
        Ok(FileType::Socket) => Some(SOCKET_WAIT),
        Ok(_) => return Ok(None),
        Err(error) => return Err(fail(cli_codes::IO, format!("cannot look at standard input: {}", std::io::Error::from(error)))),
    };
    if let Some(wait) = wait
        && !has_input(&stdin, wait)?
    {
        // A shell makes its pipes of these, so somebody meant something to come.
        if matches!(kind, Ok(FileType::Fifo)) {
            let message = format!("standard input is a pipe that has brought nothing within {} s", wait.as_secs());
            return Err(fail_hint(cli_codes::USAGE, message, "add </dev/null to start without it; or let - read the whole prompt from it"));
        }
        return Ok(None);
    }
    read_text(stdin.lock(), "what is added to the prompt", "standard input").map(Some)
}

/// Waits until standard input has something to read or has ended; `false` when the time is over.
fn has_input(stdin: &std::io::Stdin, wait: Duration) -> Result<bool, Failure> {
    use rustix::event::{PollFd, PollFlags, Timespec, poll};
    let limit = Timespec::try_from(wait).map_err(|e| fail(cli_codes::IO, e.to_string()))?;
    loop {
        match poll(&mut [PollFd::new(stdin, PollFlags::IN)], Some(&limit)) {
            Ok(ready) => return Ok(ready > 0),
            Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(fail(cli_codes::IO, format!("cannot wait for standard input: {}", std::io::Error::from(error)))),
        }
    }
}

/// The agent when none is named: the configured one, else the only one beside the scripted one.
async fn default_agent(cx: &Context) -> Result<String, Failure> {
    let config = Config::load(&cx.home).map_err(|e| fail_hint(codes::INVALID, e.to_string(), "adj config path says which file it is"))?;
    if let Some(agent) = config.default_agent {
        return Ok(agent);
    }
    let agents = cx.hub.call(&ListAgents { env: dispatch_env(), ..ListAgents::default() }).await?.agents;
    let real: Vec<&str> = agents.iter().filter(|a| a.found && a.harness != "echo").map(|a| a.name.as_str()).collect();
    match real.as_slice() {
        [one] => Ok((*one).to_owned()),
        [] => Err(fail_hint(
            cli_codes::USAGE,
            "no agent is configured or found",
            "adj agents lists them; -a echo is the scripted one; adj config path says where to add yours",
        )),
        several => Err(fail_hint(
            cli_codes::USAGE,
            "several agents could take this",
            format!("name one with -a: {} (or set default_agent in the configuration)", several.join(", ")),
        )),
    }
}

/// The agent's working directory, absolute.
pub fn resolve_directory(given: Option<&Path>) -> Result<String, Failure> {
    let dir = given.unwrap_or(Path::new("."));
    let absolute = std::path::absolute(dir).map_err(|e| fail(codes::INVALID, format!("{}: {e}", dir.display())))?;
    let absolute = match absolute.canonicalize() {
        Ok(real) => real,
        Err(e) => {
            return Err(fail_hint(codes::INVALID, format!("working directory {}: {e}", absolute.display()), "give an existing directory with -C"));
        }
    };
    match absolute.to_str() {
        Some(text) => Ok(text.to_owned()),
        None => {
            Err(fail_hint(codes::INVALID, format!("working directory {} is not UTF-8", absolute.display()), "use a directory whose name is UTF-8"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_is_split_at_blanks_and_nothing_is_expanded() {
        let split = |text| split_command(text).expect("closed quotes");
        assert_eq!(split("cargo test  'a b' \"c 'd'\" $HOME *"), ["cargo", "test", "a b", "c 'd'", "$HOME", "*"]);
        assert_eq!(split("x --name='a b' ''"), ["x", "--name=a b", ""]);
        assert_eq!(split("grep 'a|b' '|' ';' a|b -- $HOME"), ["grep", "a|b", "|", ";", "a|b", "--", "$HOME"]);
        for shell in ["ls | wc -l", "make && ./x", "a; b ; c", "x > out", "x 2>&1", "x <in", "test $(ls)", "test `ls`"] {
            assert!(split_command(shell).is_err(), "{shell}");
        }
        assert!(split_command("  ").is_err());
        assert!(split_command("x 'y").is_err());
    }
}
