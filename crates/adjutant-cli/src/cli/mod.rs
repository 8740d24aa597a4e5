//! The command line: a thin layer over the hub's calls. It does not read the store and keeps no
//! state. Data goes to stdout, everything else to stderr.

mod age;
mod alert;
mod answering;
mod args;
mod argv;
mod commands;
mod complete;
mod context;
mod details;
mod exit;
mod field_list;
mod follow;
mod json_fields;
mod keys;
mod log_text;
mod next_step;
mod out;
mod overview;
mod pager;
mod problem_list;
mod prompt;
mod run_end;
mod run_state;
mod secret;
mod style;
mod symbols;
mod table;
mod topic_page;
mod wait_line;
mod waiting;

use crate::config::{Home, text_variable};
use crate::remote::Trust;
use crate::text;
use args::{Cli, Command, Global};
use clap::{CommandFactory, Parser};
use commands::{
    adopt, agents, approve, board, budget, cancel, chat, clean, comment, config, demo, diff,
    discard, doctor, events, grants, help, inbox, init, install, logs, merge, next, open, peer,
    policy, pools, ps, reply, resume, run, search, send, show, stats, stop, store, token, top, ui,
    undo, uninstall, update, wait, webhooks, welcome,
};
use context::Context;
use exit::Exit;
use field_list::JsonFields;
use out::{CommandResult, Failure, Out};
use std::ffi::OsString;
use std::io::IsTerminal;
use std::os::fd::AsFd;
use std::process::ExitCode;
use style::{ColorEnv, Paint};

/// Returns the grammar, for the generated reference.
#[must_use]
pub fn grammar() -> clap::Command {
    Cli::command()
}

/// Returns the general help, for the generated reference.
#[must_use]
pub fn overview(columns: usize) -> String {
    overview::help(columns)
}

/// Returns every exit code, for the generated reference.
#[must_use]
pub fn exit_codes() -> &'static [exit::Row] {
    &exit::TABLE
}

/// Runs the command line and returns its exit code.
#[must_use]
pub fn main(args: Vec<OsString>) -> ExitCode {
    if complete::complete(&args) {
        return ExitCode::SUCCESS;
    }
    let cli = match Cli::try_parse_from(&args) {
        Ok(cli) => cli,
        Err(error) => return ExitCode::from(help::refused(&error, &args).number()),
    };
    if cli.global.ephemeral {
        crate::config::request_ephemeral();
    }
    match cli.command {
        // These have their own output and exit codes.
        Some(Command::Mcp(passed)) => crate::mcp::main(&passed.args),
        Some(Command::Serve(args)) => match report(
            context::block_on(stop::refuse_second_hub()),
            &output_for(&cli.global),
        ) {
            Exit::Done => {
                let mut options: Vec<OsString> = vec!["--foreground".into()];
                if let Some(address) = args.listen {
                    options.extend(["--listen".into(), address.to_string().into()]);
                }
                crate::program::hub(&options)
            }
            exit => ExitCode::from(exit.number()),
        },
        Some(Command::Runner(args)) => {
            let args::RunnerArgs {
                join,
                token_file,
                pools,
                labels,
                slots,
                ca,
                fingerprint,
                plain,
                idle_exit,
            } = args;
            let trust = match ca {
                Some(file) => Trust::File(file),
                None if fingerprint.is_empty() => Trust::Installed,
                None => Trust::Fingerprints(fingerprint),
            };
            let labels = labels.into_iter().collect();
            crate::runner::main(crate::runner::Options {
                join,
                token_file,
                pools,
                labels,
                slots,
                trust,
                plain,
                idle_exit,
            })
        }
        command => perform(command, cli.global),
    }
}

fn perform(command: Option<Command>, global: Global) -> ExitCode {
    let mut out = output_for(&global);
    let result =
        json_fields::chosen_fields(command.as_ref(), global.json.flatten()).and_then(|fields| {
            out.fields = fields;
            context::block_on(dispatch(command, &out))
        });
    ExitCode::from(report(result, &out).number())
}

/// Prints how a command ended, unless that was printed before.
fn report(result: Result<CommandResult, Failure>, out: &Out) -> Exit {
    match result.and_then(|result| result) {
        Ok(exit) | Err(Failure::Reported(exit)) => exit,
        Err(Failure::ReaderGone) => Exit::Done,
        Err(Failure::Error(error)) => match out.print_error(&error) {
            Ok(()) => Exit::of(&error.code),
            Err(_) => Exit::Failed,
        },
    }
}

fn output_for(global: &Global) -> Out {
    let set = |name: &str| text_variable(name).is_some();
    let is = |name: &str, value: &str| text_variable(name).as_deref() == Some(value);
    let env = ColorEnv {
        // FORCE_COLOR=0 disables colours, as in other tools.
        no_color: set("NO_COLOR") || is("FORCE_COLOR", "0") || is("FORCE_COLOR", "false"),
        force: ["CLICOLOR_FORCE", "FORCE_COLOR"]
            .iter()
            .any(|name| set(name) && !is(name, "0") && !is(name, "false")),
        off: is("CLICOLOR", "0"),
        dumb: is("TERM", "dumb"),
    };
    let stdout_terminal = std::io::stdout().is_terminal();
    let agent_mode = text_variable("CLAUDECODE").as_deref() == Some("1")
        || text_variable("ADJ_AGENT_MODE").as_deref() == Some("1");
    let terminal = stdout_terminal && !agent_mode;
    Out {
        json: global.json.is_some(),
        fields: JsonFields::default(),
        terminal,
        agent_mode,
        interactive: terminal
            && std::io::stdin().is_terminal()
            && !global.no_input
            && global.json.is_none(),
        columns: terminal.then(columns),
        columns_err: (std::io::stderr().is_terminal() && !agent_mode)
            .then(|| columns_of(std::io::stderr())),
        paint: Paint::decide(global.color, env, terminal),
        paint_err: Paint::decide(
            global.color,
            env,
            std::io::stderr().is_terminal() && !agent_mode,
        ),
    }
}

/// Returns the width of the terminal of standard output, or 80 if unknown.
fn columns() -> usize {
    columns_of(std::io::stdout())
}

fn columns_of(terminal: impl AsFd) -> usize {
    match rustix::termios::tcgetwinsize(terminal) {
        Ok(size) if size.ws_col > 0 => usize::from(size.ws_col),
        _ => 80,
    }
}

async fn dispatch(command: Option<Command>, out: &Out) -> CommandResult {
    match command {
        Some(Command::Config(args)) => {
            config::config(args.what.unwrap_or(args::ConfigCommand::Show), out).await
        }
        Some(Command::Completions { shell }) => help::completions(shell, out),
        Some(Command::Help { topic }) => help::print(&topic, out).await,
        Some(Command::Demo(args)) => demo::demo(&args, out).await,
        Some(Command::Init(args)) => init::init(&args, out).await,
        Some(Command::Install(args)) => install::install(&args, out).await,
        Some(Command::Update(args)) => update::update(&args, out).await,
        command => {
            if let (Some(Command::Doctor(_)), Err(problem)) = (&command, Home::from_env()) {
                return doctor::check_without_home(&problem, out).await;
            }
            let cx = Context::new(out)?;
            let reports_it = matches!(command, Some(Command::Doctor(_)));
            let result = dispatch_with_hub(command, &cx).await;
            if let Some(problem) = cx
                .hub
                .config_problem()
                .filter(|problem| !reports_it && !is_reported(&result, problem))
            {
                let effect = "live and queued runs keep the last valid one, or the defaults; no new run can be dispatched until it is fixed";
                print_config_problem(&problem, effect, &cx.out)?;
            }
            if let Some(names) = cx.hub.without_report() {
                cx.out.print_message(&format!(
                    "note: the hub has just started and has no report yet of {}: its state may be old",
                    text::line(&names)
                ))?;
            }
            result
        }
    }
}

/// Warns that the configuration cannot be used, with a line for each problem of the file.
fn print_config_problem(problem: &str, effect: &str, out: &Out) -> Result<(), Failure> {
    let problem = text::line(problem);
    let warning = "warning: the configuration cannot be used:";
    let Some((head, problems)) = problem_list::problem_list(&problem) else {
        return out.print_message(&format!("{warning} {problem} ({effect})"));
    };
    out.print_message(&format!("{warning} {head}"))?;
    for problem in problems {
        out.print_message(&format!("  {problem}"))?;
    }
    out.print_message(&format!("  ({effect})"))
}

/// Returns whether a command fails with this problem, and so prints it.
fn is_reported(result: &CommandResult, problem: &str) -> bool {
    matches!(result, Err(Failure::Error(error)) if error.message.contains(problem))
}

async fn dispatch_with_hub(command: Option<Command>, cx: &Context) -> CommandResult {
    let Some(command) = command else {
        return welcome::greet(cx).await;
    };
    match command {
        Command::Run(args) => run::run(&args, cx).await,
        Command::Ps(args) => ps::ps(&args, cx).await,
        Command::Show(args) => show::show(&args, cx).await,
        Command::Logs(args) => logs::logs(&args, cx).await,
        Command::Attach(args) => logs::logs(&args::LogsArgs::follow(args.run), cx).await,
        Command::Wait(args) => wait::wait(&args, cx).await,
        Command::Inbox(args) => inbox::inbox(&args, cx).await,
        Command::Reply(args) => reply::reply(&args, cx).await,
        Command::Approve(args) => approve::approve(&args, cx).await,
        Command::Deny(args) => approve::deny(&args, cx).await,
        Command::Next(args) => next::next(&args, cx).await,
        Command::Diff(args) => diff::diff(&args, cx).await,
        Command::Undo(args) => undo::undo(&args, cx).await,
        Command::Merge(args) => merge::merge(&args, cx).await,
        Command::Open(args) => open::open(&args, cx).await,
        Command::Comment(args) => comment::comment(&args, cx).await,
        Command::Discard(args) => discard::discard(&args, cx).await,
        Command::Cancel(args) => cancel::cancel(&args, cx).await,
        Command::Pause(args) => resume::pause(&args, cx).await,
        Command::Resume(args) => resume::resume(&args, cx).await,
        Command::Retry(args) => resume::retry(&args, cx).await,
        Command::Send(args) => send::send(&args, cx).await,
        Command::Chat(args) => chat::chat(args, cx).await,
        Command::Board(args) => board::board(args, cx).await,
        Command::Search(args) => search::search(args.what, &args.within, cx).await,
        Command::Agents(args) => agents::agents(&args, cx).await,
        Command::Budget(args) => budget::budget(&args, cx).await,
        Command::Pools(args) => pools::pools(args.what, cx).await,
        Command::Stats(args) => stats::stats(&args, cx).await,
        Command::Adopt(args) => adopt::adopt(&args, cx).await,
        Command::Events(args) => events::events(&args, cx).await,
        Command::Stop => stop::stop(cx).await,
        Command::Store(args) => store::store(&args.what, cx),
        Command::Rm(args) => clean::remove(&args, cx).await,
        Command::Clean(args) => clean::clean(&args, cx).await,
        Command::Grants(args) => grants::grants(&args, cx).await,
        Command::Policy(args) => policy::policy(args.what.as_ref(), cx).await,
        Command::Webhooks(args) => webhooks::webhooks(args.what, cx).await,
        Command::Peer(args) => peer::peer(args.what, cx).await,
        Command::Token(args) => token::token(&args.what, cx).await,
        Command::Top => top::top(cx).await,
        Command::Ui(args) => ui::ui(&args, cx).await,
        Command::Doctor(args) => doctor::doctor(&args, cx).await,
        Command::Uninstall(args) => uninstall::uninstall(&args, cx).await,
        Command::Config(_)
        | Command::Completions { .. }
        | Command::Help { .. }
        | Command::Demo(_)
        | Command::Init(_)
        | Command::Install(_)
        | Command::Update(_)
        | Command::Serve(_)
        | Command::Runner(_)
        | Command::Mcp(_) => {
            unreachable!("handled before")
        }
    }
}
