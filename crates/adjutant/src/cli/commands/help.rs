//! Help, completion scripts, and refusals of what the grammar does not know.

use crate::cli::args::Cli;
use crate::cli::exit::{Exit, TABLE, cli_codes};
use crate::cli::out::{CommandResult, Out, fail_hint};
use crate::cli::style::Paint;
use crate::view::ErrorView;
use clap::CommandFactory;
use clap::error::ErrorKind;
use std::ffi::OsString;

/// Answers a command line that was not taken: help and version are no failure.
pub fn refused(error: &clap::Error, args: &[OsString]) -> Exit {
    if matches!(error.kind(), ErrorKind::DisplayHelp | ErrorKind::DisplayVersion) {
        return if error.print().is_ok() { Exit::Done } else { Exit::Failed };
    }
    let json = args.iter().any(|arg| arg == "--json");
    // A command that needs another word: its help says which.
    if error.kind() == ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand && !json {
        return if error.print().is_ok() { Exit::Usage } else { Exit::Failed };
    }
    let out = Out { json, terminal: false, agent_mode: false, interactive: false, columns: None, paint: Paint::OFF, paint_err: Paint::OFF };
    match out.print_error(&usage(error)) {
        Ok(()) => Exit::Usage,
        Err(_) => Exit::Failed,
    }
}

/// Puts the grammar's words into our form: what is wrong, then what to do.
fn usage(error: &clap::Error) -> ErrorView {
    let rendered = error.render().to_string();
    let mut paragraphs = rendered.trim().split("\n\n").map(|p| p.split_whitespace().collect::<Vec<_>>().join(" "));
    let message = paragraphs.next().unwrap_or_default().trim_start_matches("error: ").to_owned();
    let hint: Vec<String> = paragraphs.map(|p| p.trim_start_matches("tip: ").replace("For more information, try '--help'.", "try --help")).collect();
    ErrorView { code: cli_codes::USAGE.to_owned(), message, hint: Some(hint.join(" · ")).filter(|h| !h.is_empty()) }
}

/// Prints help on nothing, a command, or a topic.
pub fn print(topic: &[String], out: &Out) -> CommandResult {
    if topic == ["exit-codes"] {
        return exit_codes(out);
    }
    if topic == ["mcp"] {
        // Its arguments are read by hand, and so is its help.
        return out.print_text(crate::mcp::command::HELP).map(|()| Exit::Done);
    }
    let mut root = Cli::command();
    root.build();
    let mut command = &mut root;
    for word in topic {
        if command.find_subcommand(word).is_none() {
            return Err(fail_hint(
                cli_codes::USAGE,
                format!("no help on {word}"),
                "adj help lists the commands; adj help exit-codes explains the exit codes",
            ));
        }
        command = command.find_subcommand_mut(word).expect("it was found just now");
    }
    out.print_text(&command.render_long_help().to_string())?;
    Ok(Exit::Done)
}

fn exit_codes(out: &Out) -> CommandResult {
    if out.json {
        let rows: Vec<_> = TABLE.iter().map(|row| serde_json::json!({"exit": row.number, "meaning": row.meaning, "codes": row.codes})).collect();
        out.print_json(&rows)?;
        return Ok(Exit::Done);
    }
    out.print_line("Exit codes of adj, and the error codes (error[code]) that lead to them:\n")?;
    for row in &TABLE {
        out.print_line(&format!("{:>5}  {}", row.number, row.meaning))?;
        if !row.codes.is_empty() {
            out.print_line(&format!("       {}", row.codes.join(", ")))?;
        }
    }
    Ok(Exit::Done)
}

/// Prints a shell's completion script.
pub fn completions(shell: clap_complete::Shell, out: &Out) -> CommandResult {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "adj", &mut script);
    out.print_text(&String::from_utf8_lossy(&script))?;
    Ok(Exit::Done)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_grammar_is_sound() {
        Cli::command().debug_assert();
    }
}
