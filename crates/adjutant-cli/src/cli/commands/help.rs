//! Help, completion scripts, and errors about wrong usage.

use crate::cli::args::Cli;
use crate::cli::exit::{Exit, TABLE, cli_codes};
use crate::cli::field_list::JsonFields;
use crate::cli::out::{CommandResult, Out, fail};
use crate::cli::style::Paint;
use crate::cli::{columns, complete, overview, pager, symbols, topic_page};
use crate::view::{ErrorView, codes};
use clap::CommandFactory;
use clap::error::{ContextKind, ContextValue, ErrorKind};
use std::borrow::Cow;
use std::ffi::OsString;
use std::io::{IsTerminal, Write};

/// Prints help, the version, or a usage error.
pub(crate) fn refused(error: &clap::Error, args: &[OsString]) -> Exit {
    let json = args.iter().any(|arg| {
        arg.to_str()
            .is_some_and(|arg| arg == "--json" || arg.starts_with("--json="))
    });
    let out = Out {
        json,
        fields: JsonFields::default(),
        terminal: false,
        agent_mode: false,
        interactive: false,
        columns: None,
        columns_err: None,
        paint: Paint::OFF,
        paint_err: Paint::OFF,
    };
    if error.kind() == ErrorKind::DisplayHelp && command_of(args).1.is_empty() {
        return if out.print_text(&overview::help(terminal_columns())).is_ok() {
            Exit::Done
        } else {
            Exit::Failed
        };
    }
    if matches!(
        error.kind(),
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion
    ) {
        return if print_rendered(error).is_ok() {
            Exit::Done
        } else {
            Exit::Failed
        };
    }
    // A subcommand is missing: the help lists them.
    if error.kind() == ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand && !json {
        return if print_rendered(error).is_ok() {
            Exit::Usage
        } else {
            Exit::Failed
        };
    }
    match out.print_error(&usage(error, args)) {
        Ok(()) => Exit::Usage,
        Err(_) => Exit::Failed,
    }
}

/// Prints help, or the version.
fn print_rendered(error: &clap::Error) -> std::io::Result<()> {
    let plain = error.render().to_string();
    match symbols::shown(&plain, None) {
        // With the styles of the terminal.
        Cow::Borrowed(_) => error.print(),
        Cow::Owned(plain) if error.use_stderr() => write!(std::io::stderr().lock(), "{plain}"),
        Cow::Owned(plain) => write!(std::io::stdout().lock(), "{plain}"),
    }
}

/// Commands of other tools, and Adjutant's equivalents. None of the suggested commands ends or
/// removes anything.
const SYNONYMS: [(&str, &str); 16] = [
    ("answer", "reply"),
    ("connect", "install"),
    ("history", "ps -a"),
    ("jobs", "ps"),
    ("list", "ps"),
    ("log", "logs"),
    ("message", "send"),
    ("new", "run"),
    ("reject", "deny"),
    ("restart", "retry"),
    ("setup", "init"),
    ("start", "run"),
    ("status", "ps"),
    ("tail", "logs -f"),
    ("tree", "ps"),
    ("watch", "logs -f"),
];
/// Commands that are never suggested for a typing error, since they end or remove something.
const NEVER_SUGGESTED: [&str; 6] = ["cancel", "clean", "kill", "rm", "stop", "uninstall"];
/// Maximum number of single-character edits between a typed word and a suggested command.
const EDITS_MAX: usize = 2;

/// Converts a usage error to Adjutant's form: what is wrong, then what to do.
fn usage(error: &clap::Error, args: &[OsString]) -> ErrorView {
    let context = |kind| match error.get(kind) {
        Some(ContextValue::String(text)) => Some(text.as_str()),
        _ => None,
    };
    let (command, path) = command_of(args);
    let known = match (
        error.kind(),
        context(ContextKind::InvalidSubcommand),
        context(ContextKind::InvalidArg),
    ) {
        (ErrorKind::InvalidSubcommand, Some(word), _) => Some((
            format!("no command {word:?}"),
            unknown_command_hint(&command, &path, word),
        )),
        (ErrorKind::UnknownArgument, _, Some(word))
            if path == ["stop"] && !word.starts_with('-') =>
        {
            Some((
                "adj stop stops the hub and takes no run".to_owned(),
                format!("to end a run: adj cancel {word}"),
            ))
        }
        _ => None,
    };
    if let Some((message, hint)) = known {
        return ErrorView {
            code: cli_codes::USAGE.to_owned(),
            message,
            hint: Some(hint),
        };
    }
    let rendered = error.render().to_string();
    let mut paragraphs =
        rendered
            .trim()
            .split("\n\n")
            .map(|paragraph| match paragraph.strip_prefix("Usage: ") {
                Some(forms) => format!(
                    "Usage: {}",
                    forms
                        .lines()
                        .map(str::trim)
                        .collect::<Vec<_>>()
                        .join("   or   ")
                ),
                None => paragraph.split_whitespace().collect::<Vec<_>>().join(" "),
            });
    let message = paragraphs
        .next()
        .unwrap_or_default()
        .trim_start_matches("error: ")
        .to_owned();
    let hint: Vec<String> = paragraphs
        .map(|p| {
            p.trim_start_matches("tip: ")
                .replace("For more information, try '--help'.", "try --help")
        })
        .collect();
    ErrorView {
        code: cli_codes::USAGE.to_owned(),
        message,
        hint: Some(hint.join(" · ")).filter(|h| !h.is_empty()),
    }
}

/// Returns the innermost command that the arguments name, with its path.
fn command_of(args: &[OsString]) -> (clap::Command, Vec<&str>) {
    let mut command = Cli::command();
    let mut path = Vec::new();
    for word in args.iter().skip(1).filter_map(|arg| arg.to_str()) {
        let Some(child) = command.find_subcommand(word) else {
            continue;
        };
        (command, _) = (child.clone(), path.push(word));
    }
    (command, path)
}

fn unknown_command_hint(command: &clap::Command, path: &[&str], word: &str) -> String {
    let prefix = ["adj"]
        .iter()
        .chain(path)
        .copied()
        .collect::<Vec<_>>()
        .join(" ");
    let synonym = SYNONYMS
        .iter()
        .find(|(other, _)| path.is_empty() && *other == word)
        .map(|(_, ours)| *ours);
    let similar = || {
        let names = command
            .get_subcommands()
            .filter(|other| !other.is_hide_set())
            .flat_map(|other| std::iter::once(other.get_name()).chain(other.get_visible_aliases()));
        let near = names
            .filter(|name| !NEVER_SUGGESTED.contains(name))
            .map(|name| (edits(word, name), name));
        near.filter(|(edits, name)| *edits <= EDITS_MAX && *edits < name.len())
            .min()
            .map(|(_, name)| name)
    };
    match synonym.or_else(similar) {
        Some(ours) => format!("did you mean {prefix} {ours}?"),
        None => format!("{prefix} --help lists the commands"),
    }
}

/// Returns the number of single-character edits between two words (Levenshtein).
fn edits(from: &str, to: &str) -> usize {
    let to: Vec<char> = to.chars().collect();
    let mut row: Vec<usize> = (0..=to.len()).collect();
    for (i, a) in from.chars().enumerate() {
        let mut diagonal = std::mem::replace(&mut row[0], i + 1);
        for (j, b) in to.iter().enumerate() {
            let above = row[j + 1];
            row[j + 1] = (diagonal + usize::from(a != *b))
                .min(above + 1)
                .min(row[j] + 1);
            diagonal = above;
        }
    }
    row[to.len()]
}

/// Prints the general help, or the help of a command or topic.
pub(crate) async fn print(topic: &[String], out: &Out) -> CommandResult {
    let first = topic.first().map(String::as_str);
    match (first, topic.len()) {
        (None, _) => {
            return out
                .print_text(&overview::help(terminal_columns()))
                .map(|()| Exit::Done);
        }
        (Some("exit-codes"), 1) => return exit_codes(out),
        (Some("topics"), 1) => return out.print_text(&overview::topics()).map(|()| Exit::Done),
        // Its own module parses its arguments and has its help.
        (Some("mcp"), 1) => {
            return out
                .print_text(crate::mcp::command::HELP)
                .map(|()| Exit::Done);
        }
        _ => {}
    }
    let mut root = Cli::command();
    root.build();
    let mut command = &mut root;
    for word in topic {
        if command.find_subcommand(word).is_none() {
            return match overview::topic_text(word).filter(|_| topic.len() == 1) {
                // Programs get the Markdown.
                Some(text) if !out.terminal => {
                    pager::print(&text, true, out).await.map(|()| Exit::Done)
                }
                Some(text) => {
                    let page = topic_page::render(
                        &text,
                        terminal_columns().min(overview::COLUMNS_MAX),
                        overview::topic_of_page,
                    );
                    pager::print(&page, true, out).await.map(|()| Exit::Done)
                }
                None => Err(overview::unknown_topic(word)),
            };
        }
        command = command.find_subcommand_mut(word).expect("found above");
    }
    out.print_text(&command.render_long_help().to_string())?;
    Ok(Exit::Done)
}

/// Returns the width of the terminal, or the maximum elsewhere.
fn terminal_columns() -> usize {
    if std::io::stdout().is_terminal() {
        columns()
    } else {
        overview::COLUMNS_MAX
    }
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

/// Prints the script that registers completion in a shell.
pub(crate) fn completions(shell: clap_complete::Shell, out: &Out) -> CommandResult {
    let script = complete::script(&shell.to_string())
        .map_err(|error| fail(codes::INTERNAL, error.to_string()))?;
    out.print_data(&script)?;
    Ok(Exit::Done)
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[test]
    fn unknown_command_suggests_only_harmless_commands() {
        let hint = |word: &str| {
            let args: Vec<OsString> = ["adj", word].into_iter().map(OsString::from).collect();
            usage(
                &Cli::try_parse_from(&args).expect_err("no such command"),
                &args,
            )
            .hint
            .expect("a hint")
        };
        for (word, expected) in [
            ("status", "adj ps"),
            ("histroy", "lists the commands"),
            ("shwo", "adj show"),
            ("stp", "adj"),
            ("cancle", "lists"),
        ] {
            assert!(hint(word).contains(expected), "{word}: {}", hint(word));
        }
        for word in ["stp", "clena", "cancl", "kil", "stopp"] {
            assert!(
                NEVER_SUGGESTED
                    .iter()
                    .all(|ends| !hint(word).contains(&format!("adj {ends}"))),
                "{word}: {}",
                hint(word)
            );
        }
        let stop: Vec<OsString> = ["adj", "stop", "w1"]
            .into_iter()
            .map(OsString::from)
            .collect();
        assert_eq!(
            usage(&Cli::try_parse_from(&stop).expect_err("no argument"), &stop)
                .hint
                .as_deref(),
            Some("to end a run: adj cancel w1")
        );
    }

    #[test]
    fn grammar_is_valid() {
        Cli::command().debug_assert();
    }
}
