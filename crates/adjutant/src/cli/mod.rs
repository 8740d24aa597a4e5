//! The command line: a thin layer over the hub's calls. It reads no store, keeps no state, and
//! prints data on stdout and everything else on stderr.

mod age;
mod args;
mod exit;
mod help;
mod out;
mod style;
mod table;

use crate::config::text_variable;
use args::{Cli, Command};
use clap::Parser;
use exit::Exit;
use out::{Ended, Out, Stop, fail};
use std::ffi::OsString;
use std::io::IsTerminal;
use std::process::ExitCode;
use style::{ColorEnv, Paint};

/// Runs the command line and returns its exit code.
#[must_use]
pub fn main(args: Vec<OsString>) -> ExitCode {
    let cli = match Cli::try_parse_from(&args) {
        Ok(cli) => cli,
        Err(error) => return ExitCode::from(help::refused(&error, &args).number()),
    };
    let out = out_for(&cli);
    let exit = match perform(cli, &out) {
        Ok(exit) | Err(Stop::Quiet(exit)) => exit,
        Err(Stop::ReaderGone) => Exit::Done,
        Err(Stop::Error(error)) => match out.error(&error) {
            Ok(()) => Exit::of(&error.code),
            Err(_) => Exit::Failed,
        },
    };
    ExitCode::from(exit.number())
}

fn out_for(cli: &Cli) -> Out {
    let set = |name: &str| text_variable(name).is_some();
    let env = ColorEnv {
        no_color: set("NO_COLOR"),
        force: text_variable("CLICOLOR_FORCE").is_some_and(|value| value != "0"),
        dumb: text_variable("TERM").as_deref() == Some("dumb"),
    };
    let stdout_terminal = std::io::stdout().is_terminal();
    let agent_mode = text_variable("CLAUDECODE").as_deref() == Some("1") || text_variable("ADJ_AGENT_MODE").as_deref() == Some("1");
    let terminal = stdout_terminal && !agent_mode;
    Out {
        json: cli.global.json,
        terminal,
        interactive: terminal && std::io::stdin().is_terminal() && !cli.global.no_input && !cli.global.json,
        columns: terminal.then(columns),
        paint: Paint::decide(cli.global.color, env, terminal),
        paint_err: Paint::decide(cli.global.color, env, std::io::stderr().is_terminal() && !agent_mode),
    }
}

/// The terminal's width; 80 where it does not say.
fn columns() -> usize {
    match rustix::termios::tcgetwinsize(std::io::stdout()) {
        Ok(size) if size.ws_col > 0 => usize::from(size.ws_col),
        _ => 80,
    }
}

fn perform(cli: Cli, out: &Out) -> Ended {
    match cli.command {
        Some(Command::Help { topic }) => help::print(&topic, out),
        Some(Command::Completions { shell }) => help::completions(shell, out),
        _ => Err(fail(crate::view::codes::INTERNAL, "this command is not built yet")),
    }
}
