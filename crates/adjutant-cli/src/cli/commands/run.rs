//! `adj run`: starts a run, then follows it, waits for it, or returns.

use crate::cli::alert::{Alert, asked, ended};
use crate::cli::args::{AfterStart, RunArgs};
use crate::cli::context::{Context, read_text, text_argument, words_argument};
use crate::cli::exit::{Exit, cli_codes};
use crate::cli::follow::{Follow, Scope};
use crate::cli::out::{CommandResult, Failure, fail, fail_hint};
use crate::cli::waiting::wait_for_runs;
use crate::cli::{details, next_step, run_end, run_state, waiting};
use crate::config::{Config, dispatch_env, text_variable};
use crate::text;
use crate::view::{
    Dispatch, GetRun, ListAgents, ReadEvents, RunView, WaitUntil, Waited, Word, codes,
};
use adjutant_core::Isolation;
use adjutant_core::units::duration;
use rustix::fs::FileType;
use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

/// Starts a run.
pub(crate) async fn run(args: &RunArgs, cx: &Context) -> CommandResult {
    // Without a task before `--`, what follows it is the task.
    let (words, agent_args): (&[String], &[String]) =
        if args.prompt.is_empty() && args.file.is_none() {
            (&args.args, &[])
        } else {
            (&args.prompt, &args.args)
        };
    let prompt = prompt_of(words, args.file.as_deref())?;
    let agent = match &args.agent {
        Some(agent) => agent.clone(),
        // The hub chooses one of the pool.
        None if args.pool.is_some() => String::new(),
        None => default_agent(cx).await?,
    };
    let dispatch = Dispatch {
        agent,
        prompt,
        cwd: resolve_directory(args.cwd.as_deref())?,
        name: args.name.clone(),
        timeout_s: args
            .timeout
            .map(|limit| u64::try_from(limit.as_millis().div_ceil(1000)).unwrap_or(u64::MAX)),
        criteria: args.criteria.clone(),
        accept: args
            .accept
            .as_deref()
            .map(split_command)
            .transpose()?
            .unwrap_or_default(),
        permissions: args.permissions.as_deref().map(Word::read),
        isolation: if args.clone {
            Some(Isolation::Clone.into())
        } else {
            args.isolation.as_deref().map(Word::read)
        },
        fence: args.fence.as_deref().map(Word::read),
        with_changes: args.with_changes,
        trust_repo: args.trust_repo,
        no_auto_resume: args.no_auto_resume,
        pool: args.pool.clone(),
        priority: args
            .priority
            .as_deref()
            .map(|word| Word::read(&word.to_uppercase())),
        after: args.after.clone(),
        after_failed: args.after_failed.as_deref().map(Word::read),
        budget: args.budget.clone(),
        env: dispatch_env(),
        model: args.model.clone(),
        args: agent_args.to_vec(),
        set_env: variables(&args.set_env)?,
    };
    let run = cx.hub.call(&dispatch).await?;
    for budget in run
        .cost
        .budgets
        .iter()
        .filter(|budget| budget.unknown.is_some())
    {
        let why = budget.unknown.as_deref().unwrap_or_default();
        cx.out.print_message(&text::line(&format!(
            "the budget of {} for {} cannot be enforced: {why}",
            budget.kind, run.identity.name
        )))?;
    }
    proceed(run, 0, &args.after_start, cx).await
}

impl AfterStart {
    /// Returns whether the run is followed on the terminal.
    pub(crate) fn follows(&self, cx: &Context) -> bool {
        !self.wait && !self.detach && !cx.out.json && cx.out.terminal
    }
}

/// Follows a run that was started, waits for it, or prints its name, as the options and the
/// terminal say. Its log is followed from this position.
pub(crate) async fn proceed(
    run: RunView,
    log_at: u64,
    after_start: &AfterStart,
    cx: &Context,
) -> CommandResult {
    if after_start.wait {
        let mut alert = Alert::on_stderr(cx);
        let (waited, run, not_kept) = alert
            .during(
                &format!("adj: {}", run.identity.name),
                wait_for_end(&run, cx),
            )
            .await?;
        return report_end(&waited, &run, not_kept.as_deref(), &mut alert, cx).await;
    }
    if !after_start.follows(cx) {
        return print_started(&run, cx);
    }
    cx.out.print_message(&format!(
        "{}. Ctrl-C detaches; the run continues.",
        run_state::start_text(&run)
    ))?;
    if let Some(step) = next_step::queue_step(&run) {
        cx.out.suggest(&step)?;
    }
    print_shared_directory(&run, cx)?;
    Follow::new(cx, run, Scope::Everything { after: log_at })?
        .run()
        .await
}

/// Reads `NAME=VALUE`, or `NAME` with the value from this environment.
fn variables(given: &[String]) -> Result<BTreeMap<String, String>, Failure> {
    let read = |text: &String| match text.split_once('=') {
        Some(("", _)) => Err(fail_hint(
            cli_codes::USAGE,
            "--env without a name",
            "--env NAME=VALUE, or --env NAME to pass on yours",
        )),
        Some((name, value)) => Ok((name.to_owned(), value.to_owned())),
        None => match text_variable(text) {
            Some(value) => Ok((text.clone(), value)),
            None => Err(fail_hint(
                cli_codes::USAGE,
                format!("{} is not set in your environment", text::line(text)),
                format!("--env {}=VALUE", text::line(text)),
            )),
        },
    };
    given.iter().map(read).collect()
}

/// Splits a command at spaces. Single or double quotes keep spaces; nothing is expanded.
fn split_command(command: &str) -> Result<Vec<String>, Failure> {
    let mut found = Vec::new();
    let mut word: Option<String> = None;
    let mut quote: Option<char> = None;
    // The unquoted part of the current word.
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
        let message = format!(
            "--accept runs without a shell, so {} would be an argument",
            text::line(&operator)
        );
        return Err(fail_hint(
            cli_codes::USAGE,
            message,
            "to use a shell: --accept \"sh -c '…'\"; to pass it as an argument, quote it: '|'",
        ));
    }
    if quote.is_some() {
        return Err(fail_hint(
            cli_codes::USAGE,
            format!("unclosed quote in {}", text::line(command)),
            "close the quote: --accept \"cargo test 'a name'\"",
        ));
    }
    found.extend(word);
    if found.is_empty() {
        return Err(fail_hint(
            cli_codes::USAGE,
            "--accept is empty",
            "give a command, or omit --accept",
        ));
    }
    Ok(found)
}

/// Returns whether an unquoted word has a meaning only in a shell: a pipe, a list, a redirection, a
/// substitution.
fn is_shell_syntax(word: &str) -> bool {
    let redirects = word.trim_start_matches(|c: char| c.is_ascii_digit() || c == '&');
    matches!(word, "|" | "||" | "|&" | "&" | "&&" | ";" | ";;")
        || redirects.starts_with(['<', '>'])
        || word.contains("$(")
        || word.contains('`')
}

fn print_started(run: &RunView, cx: &Context) -> CommandResult {
    if cx.out.json {
        cx.out.print_json(run)?;
        return Ok(Exit::Done);
    }
    cx.out.print_line(&text::line(&run.identity.name))?;
    print_shared_directory(run, cx)?;
    if run.in_queue.queue.is_some() {
        cx.out.print_message(&run_state::start_text(run))?;
    }
    if let Some(step) = next_step::queue_step(run) {
        return cx.out.suggest(&step).map(|()| Exit::Done);
    }
    cx.out.suggest(&format!(
        "adj wait {name}   or   adj logs {name}",
        name = text::line(&run.identity.name)
    ))?;
    Ok(Exit::Done)
}

/// Other runs of a directory that are named.
const SHARING_SHOWN_MAX: usize = 3;

fn print_shared_directory(run: &RunView, cx: &Context) -> Result<(), Failure> {
    if run.place.shares_directory_with.is_empty() {
        return Ok(());
    }
    let all = &run.place.shares_directory_with;
    let named = text::line(
        &all.iter()
            .take(SHARING_SHOWN_MAX)
            .map(String::as_str)
            .collect::<Vec<_>>()
            .join(", "),
    );
    let more = match (
        all.len().saturating_sub(SHARING_SHOWN_MAX),
        run.place.shares_directory_more,
    ) {
        (0, false) => String::new(),
        (0, true) => " and more".to_owned(),
        (more, is_cut) => format!(" and {more}{} more", if is_cut { "+" } else { "" }),
    };
    cx.out.print_message(&format!("note: also working in this directory: {named}{more} (in a git repository, --clone keeps runs apart)"))
}

/// Waits until the run ends or needs the person. Says at once that not all files are kept, and
/// returns why.
async fn wait_for_end(
    run: &RunView,
    cx: &Context,
) -> Result<(Waited, RunView, Option<String>), Failure> {
    cx.out.print_message(&format!(
        "{}; waiting (Ctrl-C stops waiting, the run continues)",
        run_state::start_text(run)
    ))?;
    if let Some(step) = next_step::queue_step(run) {
        cx.out.suggest(&step)?;
    }
    wait_for_start(run, cx).await?;
    let (mut since, mut not_kept) = (None, None);
    let waited = loop {
        let waited = wait_for_runs(
            vec![run.identity.run_id.clone()],
            WaitUntil::Attention,
            since,
            None,
            cx,
        )
        .await?;
        since = Some(waited.cursor);
        if !waited.needs.is_empty()
            || !waited.stopped.is_empty()
            || !waited.ended.is_empty()
            || waited.working.is_empty()
        {
            break waited;
        }
        for run in waited.working.iter().filter(|known| {
            known.identity.run_id == run.identity.run_id && known.changes.snapshot_problem.is_some()
        }) {
            if not_kept != run.changes.snapshot_problem {
                run_end::warn_not_kept(run, cx)?;
                not_kept.clone_from(&run.changes.snapshot_problem);
            }
        }
        // A silent or retrying run can still continue.
        for run in waited
            .working
            .iter()
            .filter(|run| waiting::has_condition(run))
        {
            waiting::print_condition(run, cx)?;
        }
    };
    let run = cx
        .hub
        .call(&GetRun {
            run: run.identity.run_id.clone(),
            ..GetRun::default()
        })
        .await?;
    Ok((waited, run, not_kept))
}

/// Prints the whole result of a success on stdout, and every state on stderr. `not_kept`: why not
/// all files are kept, if that was printed. Returns the run's exit code.
async fn report_end(
    waited: &Waited,
    run: &RunView,
    not_kept: Option<&str>,
    alert: &mut Alert,
    cx: &Context,
) -> CommandResult {
    if cx.out.json {
        cx.out.print_json(run)?;
    } else if run_state::exit_of(run) == Exit::Done {
        run_end::print_result(&run.identity.run_id, cx).await?;
        cx.out.print_message(&run_end::state_line(run, cx))?;
    } else {
        cx.out.print_message(&run_end::end_line(run, cx))?;
    }
    if run.changes.snapshot_problem.as_deref() != not_kept {
        run_end::warn_not_kept(run, cx)?;
    }
    run_end::print_note(run, cx)?;
    alert.notify(&waited.needs.first().map_or_else(|| ended(run), asked));
    run_end::confirm_run_notified(run, cx).await?;
    if let Some(open) = waited.needs.first() {
        if !cx.out.json {
            cx.out
                .print_message(details::request_block(open, cx)?.trim_end())?;
        }
        return run_end::end_needing_input(open, cx);
    }
    // A child run that it waits for can be stopped.
    let stopped = waited
        .stopped
        .iter()
        .find(|other| other.identity.run_id != run.identity.run_id)
        .filter(|_| !run.is_over());
    if let (Some(stopped), false) = (stopped, cx.out.json) {
        cx.out.print_message(&run_end::end_line(stopped, cx))?;
    }
    run_end::end_with_run(stopped.unwrap_or(run), cx)
}

/// Waits until a queued run starts, is held or ends, and says so. Prints why it still waits when
/// that changes.
async fn wait_for_start(run: &RunView, cx: &Context) -> Result<(), Failure> {
    let (mut run, mut after) = (run.clone(), run.cursor);
    while run.in_queue.queue.is_some() && !run.is_held() {
        let page = cx
            .hub
            .call(&ReadEvents {
                run: Some(run.identity.run_id.clone()),
                after,
                limit: None,
                wait_ms: QUEUE_WAIT_MS,
            })
            .await?;
        after = page.cursor;
        if page.events.is_empty() {
            continue;
        }
        let now = cx
            .hub
            .call(&GetRun {
                run: run.identity.run_id.clone(),
                ..GetRun::default()
            })
            .await?;
        let is_new = now.in_queue.queue.as_ref().is_none_or(|queue| {
            run.in_queue
                .queue
                .as_ref()
                .is_none_or(|before| before.why != queue.why)
        });
        if is_new && (now.times.started_at.is_some() || !now.is_over()) {
            cx.out.print_message(&run_state::start_text(&now))?;
        }
        run = now;
    }
    Ok(())
}

/// How long one call waits for a change of a queued run, in milliseconds; the next call follows at
/// once.
const QUEUE_WAIT_MS: u64 = 30_000;

/// Returns the task: from the words or the file, with the piped input appended; or the piped input
/// alone.
fn prompt_of(words: &[String], file: Option<&Path>) -> Result<String, Failure> {
    if !words.is_empty() || file.is_some() {
        return append_input(read_prompt(words, file)?, words, file);
    }
    match piped_input()?.filter(|input| !input.trim().is_empty()) {
        Some(input) => Ok(input),
        None => read_prompt(words, file),
    }
}

fn read_prompt(words: &[String], file: Option<&Path>) -> Result<String, Failure> {
    if let Some(path) = file {
        if path == Path::new("-") {
            return text_argument("-", "the task");
        }
        let file = std::fs::File::open(path).map_err(|e| {
            fail(
                cli_codes::USAGE,
                format!("cannot read the task: {}: {e}", path.display()),
            )
        })?;
        return read_text(file, "the task", &path.display().to_string());
    }
    match words_argument(words, "the task")? {
        Some(prompt) => Ok(prompt),
        None => Err(fail_hint(
            cli_codes::USAGE,
            "no task given",
            "adj run -a AGENT \"TASK\", or -f FILE, or - to read standard input",
        )),
    }
}

/// How long to wait for the first byte of a pipe.
const PIPE_WAIT: Duration = Duration::from_secs(5);
/// The same for a socket: some programs leave one open to their children that never carries data.
const SOCKET_WAIT: Duration = Duration::from_millis(500);

/// Appends piped input to the task, inside a fence that the input cannot close.
fn append_input(prompt: String, words: &[String], file: Option<&Path>) -> Result<String, Failure> {
    if words == ["-"] || file == Some(Path::new("-")) {
        return Ok(prompt);
    }
    let Some(input) = piped_input()? else {
        return Ok(prompt);
    };
    if input.trim().is_empty() {
        return Ok(prompt);
    }
    let longest = input.split(|c| c != '`').map(str::len).max().unwrap_or(0);
    let fence = "`".repeat(longest.max(2) + 1);
    let end = if input.ends_with('\n') { "" } else { "\n" };
    Ok(format!(
        "{prompt}\n\nStandard input ({}):\n\n{fence}\n{input}{end}{fence}\n",
        text::count(input.len() as u64, "byte", "bytes")
    ))
}

/// Reads standard input if it is a file, a pipe or a socket, but not a terminal or `/dev/null`.
fn piped_input() -> Result<Option<String>, Failure> {
    let stdin = std::io::stdin();
    let kind = rustix::fs::fstat(&stdin).map(|stat| FileType::from_raw_mode(stat.st_mode));
    let wait = match kind {
        Ok(FileType::RegularFile | FileType::Directory) => None,
        Ok(FileType::Fifo) => Some(PIPE_WAIT),
        Ok(FileType::Socket) => Some(SOCKET_WAIT),
        Ok(_) => return Ok(None),
        Err(error) => {
            return Err(fail(
                cli_codes::IO,
                format!(
                    "cannot inspect standard input: {}",
                    std::io::Error::from(error)
                ),
            ));
        }
    };
    if let Some(wait) = wait
        && !has_input(&stdin, wait)?
    {
        // Shell pipelines use FIFOs, so input was intended.
        if matches!(kind, Ok(FileType::Fifo)) {
            let message = format!(
                "standard input is a pipe, and nothing arrived within {}",
                duration::of(wait)
            );
            return Err(fail_hint(
                cli_codes::USAGE,
                message,
                "add </dev/null to start without it, or use - to read the whole task from it",
            ));
        }
        return Ok(None);
    }
    read_text(stdin.lock(), "the input", "standard input").map(Some)
}

/// Waits until standard input is readable or closed; `false` after the time limit.
fn has_input(stdin: &std::io::Stdin, wait: Duration) -> Result<bool, Failure> {
    use rustix::event::{PollFd, PollFlags, Timespec, poll};
    let limit = Timespec::try_from(wait).map_err(|e| fail(cli_codes::IO, e.to_string()))?;
    loop {
        match poll(&mut [PollFd::new(stdin, PollFlags::IN)], Some(&limit)) {
            Ok(ready) => return Ok(ready > 0),
            Err(rustix::io::Errno::INTR) => {}
            Err(error) => {
                return Err(fail(
                    cli_codes::IO,
                    format!(
                        "cannot wait for standard input: {}",
                        std::io::Error::from(error)
                    ),
                ));
            }
        }
    }
}

/// Returns the default agent: the configured one, or the only real one that was found.
async fn default_agent(cx: &Context) -> Result<String, Failure> {
    let config = Config::load(&cx.home).map_err(|e| {
        fail_hint(
            codes::INVALID,
            e.to_string(),
            "adj config path prints the location of the file",
        )
    })?;
    if let Some(agent) = config.default_agent {
        return Ok(agent);
    }
    let agents = cx
        .hub
        .call(&ListAgents {
            env: dispatch_env(),
            ..ListAgents::default()
        })
        .await?
        .agents;
    let real: Vec<&str> = agents
        .iter()
        .filter(|a| a.found && a.harness != "echo")
        .map(|a| a.name.as_str())
        .collect();
    match real.as_slice() {
        [one] => Ok((*one).to_owned()),
        [] => Err(fail_hint(
            cli_codes::USAGE,
            "no coding agent was found, only the echo demo agent",
            "install one (claude, codex, gemini, …; see adj agents), or try -a echo",
        )),
        several => Err(fail_hint(
            cli_codes::USAGE,
            "no agent given, and there are several",
            format!(
                "choose one with -a: {} (or set default_agent in the configuration)",
                several.join(", ")
            ),
        )),
    }
}

/// Returns the absolute working directory of a run.
pub(crate) fn resolve_directory(given: Option<&Path>) -> Result<String, Failure> {
    let dir = given.unwrap_or(Path::new("."));
    let absolute = std::path::absolute(dir)
        .map_err(|e| fail(codes::INVALID, format!("{}: {e}", dir.display())))?;
    let absolute = match absolute.canonicalize() {
        Ok(real) => real,
        Err(e) => {
            return Err(fail_hint(
                codes::INVALID,
                format!("working directory {}: {e}", absolute.display()),
                "use -C with an existing directory",
            ));
        }
    };
    match absolute.to_str() {
        Some(text) => Ok(text.to_owned()),
        None => Err(fail_hint(
            codes::INVALID,
            format!("working directory {} is not UTF-8", absolute.display()),
            "use a directory whose name is UTF-8",
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn command_is_split_at_spaces_without_expansion() {
        let split = |text| split_command(text).expect("closed quotes");
        assert_eq!(
            split("cargo test  'a b' \"c 'd'\" $HOME *"),
            ["cargo", "test", "a b", "c 'd'", "$HOME", "*"]
        );
        assert_eq!(split("x --name='a b' ''"), ["x", "--name=a b", ""]);
        assert_eq!(
            split("grep 'a|b' '|' ';' a|b -- $HOME"),
            ["grep", "a|b", "|", ";", "a|b", "--", "$HOME"]
        );
        for shell in [
            "ls | wc -l",
            "make && ./x",
            "a; b ; c",
            "x > out",
            "x 2>&1",
            "x <in",
            "test $(ls)",
            "test `ls`",
        ] {
            assert!(split_command(shell).is_err(), "{shell}");
        }
        assert!(split_command("  ").is_err());
        assert!(split_command("x 'y").is_err());
    }
}
