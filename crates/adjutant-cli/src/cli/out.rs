//! Where output goes: data to stdout, everything else to stderr; JSON or text.

use super::exit::{Exit, cli_codes};
use super::field_list::JsonFields;
use super::problem_list::problem_list;
use super::style::{Paint, Style};
use super::symbols;
use crate::text;
use crate::view::{AttentionList, ErrorView, Mentions, PolicyChangeView, RunView, SetBackView};
use serde::Serialize;
use std::io::{self, Write};

/// Why a command ends early.
#[derive(Debug)]
pub(super) enum Failure {
    /// An error that is not printed yet.
    Error(ErrorView),
    /// Everything is printed; only the exit code is left.
    Reported(Exit),
    /// The reader of our output has closed it (`adj logs | head`).
    ReaderGone,
}

impl From<ErrorView> for Failure {
    fn from(error: ErrorView) -> Self {
        Self::Error(error)
    }
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        if error.kind() == io::ErrorKind::BrokenPipe {
            Self::ReaderGone
        } else {
            fail(cli_codes::IO, format!("cannot write the output: {error}"))
        }
    }
}

impl From<std::fmt::Error> for Failure {
    fn from(error: std::fmt::Error) -> Self {
        fail(cli_codes::IO, format!("cannot format the output: {error}"))
    }
}

/// Returns an error of the command line.
pub(super) fn fail(code: &str, message: impl Into<String>) -> Failure {
    Failure::Error(ErrorView {
        code: code.to_owned(),
        message: message.into(),
        hint: None,
    })
}

/// Returns an error with a hint.
pub(crate) fn fail_hint(
    code: &str,
    message: impl Into<String>,
    hint: impl Into<String>,
) -> Failure {
    Failure::Error(ErrorView {
        code: code.to_owned(),
        message: message.into(),
        hint: Some(hint.into()),
    })
}

/// The indent of continuation lines.
const FOLD_INDENT: &str = "      ";

/// Additional indent of the continuation lines of a message, in columns.
const INDENT_MORE: usize = 2;

/// The result of a command.
pub(crate) type CommandResult = Result<Exit, Failure>;

/// Where and how a command writes.
#[derive(Debug, Clone)]
pub(super) struct Out {
    pub json: bool,
    /// The fields of JSON objects that are printed.
    pub fields: JsonFields,
    /// Standard output is a terminal and not read by an agent.
    pub terminal: bool,
    /// A coding agent reads the output: short and plain, with the next command.
    pub agent_mode: bool,
    /// Prompts are allowed.
    pub interactive: bool,
    /// Width of the terminal, if there is one.
    pub columns: Option<usize>,
    /// Width of the terminal to which standard error goes, if there is one.
    pub columns_err: Option<usize>,
    pub paint: Paint,
    pub paint_err: Paint,
}

#[derive(Serialize)]
struct Envelope<'a, T: Serialize + ?Sized> {
    schema: u32,
    data: &'a T,
    /// The number of entries that a list leaves out.
    #[serde(skip_serializing_if = "Option::is_none")]
    more: Option<u64>,
    /// In the inbox: unread chat messages for the person.
    #[serde(skip_serializing_if = "Option::is_none")]
    mentions: Option<Mentions>,
    /// In the inbox: stopped and failed runs.
    #[serde(skip_serializing_if = "Option::is_none")]
    runs: Option<&'a [RunView]>,
    #[serde(skip_serializing_if = "Option::is_none")]
    runs_more: Option<u64>,
    /// In the inbox: a change of the policies that waits for the person's trust.
    #[serde(skip_serializing_if = "Option::is_none")]
    policy_change: Option<&'a PolicyChangeView>,
    /// In the inbox: the database of the hub was set back lately.
    #[serde(skip_serializing_if = "Option::is_none")]
    set_back: Option<&'a SetBackView>,
    #[serde(skip_serializing_if = "<[String]>::is_empty")]
    warnings: &'a [String],
}

#[derive(Serialize)]
struct ErrorEnvelope<'a> {
    error: &'a ErrorView,
}

#[derive(Serialize)]
struct ErrorsEnvelope<'a> {
    error: &'a ErrorView,
    errors: &'a [NamedError<'a>],
}

/// The error for one of several runs.
#[derive(Serialize)]
struct NamedError<'a> {
    run: &'a str,
    #[serde(flatten)]
    error: &'a ErrorView,
}

impl Out {
    /// Prints one value as JSON.
    pub(crate) fn print_json<T: Serialize>(&self, data: &T) -> Result<(), Failure> {
        self.print_envelope(&Envelope {
            schema: 1,
            data,
            more: None,
            mentions: None,
            runs: None,
            runs_more: None,
            policy_change: None,
            set_back: None,
            warnings: &[],
        })
    }

    /// Prints a list as JSON.
    pub(crate) fn print_json_list<T: Serialize>(
        &self,
        data: &[T],
        more: u64,
        warnings: &[String],
    ) -> Result<(), Failure> {
        self.print_envelope(&Envelope {
            schema: 1,
            data,
            more: Some(more),
            mentions: None,
            runs: None,
            runs_more: None,
            policy_change: None,
            set_back: None,
            warnings,
        })
    }

    /// Prints the inbox as JSON.
    pub(crate) fn print_json_inbox(&self, list: &AttentionList) -> Result<(), Failure> {
        let AttentionList {
            requests,
            requests_more,
            runs,
            runs_more,
            mentions,
            mentions_more,
            policy_change,
            set_back,
        } = list;
        self.print_envelope(&Envelope {
            schema: 1,
            data: requests.as_slice(),
            more: Some(*requests_more),
            mentions: Some(Mentions {
                mentions: mentions.clone(),
                more: *mentions_more,
            }),
            runs: Some(runs),
            runs_more: Some(*runs_more),
            policy_change: policy_change.as_ref(),
            set_back: set_back.as_ref(),
            warnings: &[],
        })
    }

    fn print_envelope<T: Serialize + ?Sized>(
        &self,
        envelope: &Envelope<'_, T>,
    ) -> Result<(), Failure> {
        let failed = |e: serde_json::Error| fail(cli_codes::IO, format!("cannot write JSON: {e}"));
        if self.fields.are_all() && !cfg!(debug_assertions) {
            return self.print_data(&(serde_json::to_string(envelope).map_err(failed)? + "\n"));
        }
        let mut value = serde_json::to_value(envelope).map_err(failed)?;
        for objects in ["/data", "/runs", "/mentions/mentions"] {
            if let Some(objects) = value.pointer_mut(objects) {
                debug_assert_eq!(
                    self.fields.unknown(objects),
                    None,
                    "the table of fields lacks a field"
                );
                self.fields.select(objects);
            }
        }
        self.print_data(&format!("{value}\n"))
    }

    /// Prints a line on stdout and flushes it.
    pub(crate) fn print_line(&self, line: &str) -> Result<(), Failure> {
        self.print_text(&format!("{line}\n"))
    }

    /// Prints text on stdout, with symbols that the locale can show.
    pub(crate) fn print_text(&self, text: &str) -> Result<(), Failure> {
        self.print_data(&symbols::shown(text, self.columns))
    }

    /// Prints what others wrote, or what a program reads, on stdout unchanged.
    pub(crate) fn print_data(&self, text: &str) -> Result<(), Failure> {
        let mut out = io::stdout().lock();
        out.write_all(text.as_bytes())?;
        Ok(out.flush()?)
    }

    /// Sanitizes and wraps text that others wrote, with an indent before every line, so that none
    /// of it can look like a line of Adjutant.
    #[must_use]
    pub(super) fn indent(&self, indent: &str, text: &str) -> String {
        let columns = self.columns_after(indent.len());
        let safe = text::block(text);
        let lines = safe
            .trim_end()
            .lines()
            .flat_map(|line| text::wrap(line, columns));
        lines.fold(String::new(), |out, line| out + indent + &line + "\n")
    }

    /// Formats a line of Adjutant that contains text of others: coloured if it fits, else plain and
    /// wrapped with an indent. Ends with a newline.
    #[must_use]
    pub(super) fn fold(&self, plain: &str, painted: &str) -> String {
        let columns = self.columns_after(FOLD_INDENT.len());
        match text::wrap(plain, columns).as_slice() {
            [_] => format!("{painted}\n"),
            pieces => pieces.join(&format!("\n{FOLD_INDENT}")) + "\n",
        }
    }

    /// Returns the columns right of an indent.
    fn columns_after(&self, indent: usize) -> usize {
        self.columns
            .map_or(usize::MAX, |columns| columns.saturating_sub(indent))
    }

    /// Prints a message on stderr, wrapped between words; nothing in JSON mode.
    pub(crate) fn print_message(&self, message: &str) -> Result<(), Failure> {
        self.print_unwrapped(&self.wrap_message(message))
    }

    /// Suggests the next command on stderr; nothing in JSON mode. The command stays in one piece,
    /// so that it can be copied.
    pub(super) fn suggest(&self, command: &str) -> Result<(), Failure> {
        self.print_unwrapped(&self.suggestion(command))
    }

    fn print_unwrapped(&self, message: &str) -> Result<(), Failure> {
        if self.json {
            Ok(())
        } else {
            write_message(&symbols::shown(message, self.columns_err))
        }
    }

    /// Wraps each line of a message that is wider than the terminal. Escape sequences take no
    /// columns.
    fn wrap_message(&self, message: &str) -> String {
        let Some(columns) = self.columns_err else {
            return message.to_owned();
        };
        message
            .split('\n')
            .map(|line| wrap_between_words(line, columns))
            .collect::<Vec<_>>()
            .join("\n")
    }

    /// Formats the line that suggests the next command.
    #[must_use]
    pub(crate) fn suggestion(&self, command: &str) -> String {
        format!("{} {command}", self.paint_err.apply(Style::Dim, "next:"))
    }

    /// Prints the errors for several runs as one line of JSON: the first as `error`, each with its
    /// run in `errors`, in the order given.
    pub(crate) fn print_errors(&self, refused: &[(String, ErrorView)]) -> Result<(), Failure> {
        let Some((_, first)) = refused.first() else {
            return Ok(());
        };
        let all: Vec<NamedError<'_>> = refused
            .iter()
            .map(|(run, error)| NamedError { run, error })
            .collect();
        let line = serde_json::to_string(&ErrorsEnvelope {
            error: first,
            errors: &all,
        })
        .map_err(|e| fail(cli_codes::IO, format!("cannot write JSON: {e}")))?;
        Ok(writeln!(io::stderr().lock(), "{line}")?)
    }

    /// Prints an error: with its hint for people, as exactly one line in JSON mode.
    pub(crate) fn print_error(&self, error: &ErrorView) -> io::Result<()> {
        let mut err = io::stderr().lock();
        if self.json {
            let line = serde_json::to_string(&ErrorEnvelope { error }).map_err(io::Error::other)?;
            return writeln!(err, "{line}");
        }
        let (head, message) = (
            format!("error[{}]:", text::line(&error.code)),
            text::line(&error.message),
        );
        let (message, problems) =
            problem_list(&message).unwrap_or_else(|| (message.clone(), Vec::new()));
        let painted = format!("{} {message}", self.paint_err.apply(Style::Bad, &head));
        write!(
            err,
            "{}",
            symbols::shown(
                &self.fold(&format!("{head} {message}"), &painted),
                self.columns
            )
        )?;
        for problem in problems {
            write!(
                err,
                "{}",
                symbols::shown(&self.indent("  ", problem), self.columns)
            )?;
        }
        if let Some(hint) = &error.hint {
            let hint = format!(
                "  {} {}",
                self.paint_err.apply(Style::Dim, "hint:"),
                text::line(hint)
            );
            writeln!(err, "{}", symbols::shown(&self.wrap_message(&hint), None))?;
        }
        Ok(())
    }
}

/// Wraps a line between words, with an indent before each line but the first. A word that is wider
/// than the terminal stays whole.
fn wrap_between_words(line: &str, columns_max: usize) -> String {
    let indent = line.len() - line.trim_start_matches(' ').len();
    let indent = " ".repeat((indent + INDENT_MORE).min(columns_max / 2));
    let mut out = String::new();
    let mut used = 0;
    for (n, word) in line.split(' ').enumerate() {
        let width = visible_width(word);
        if n > 0 && used + 1 + width > columns_max && !out.trim_start().is_empty() {
            out.push('\n');
            out.push_str(&indent);
            used = indent.len();
        } else if n > 0 {
            out.push(' ');
            used += 1;
        }
        out.push_str(word);
        used += width;
    }
    out
}

/// Counts the columns of a word without its colours.
fn visible_width(word: &str) -> usize {
    let mut pieces = word.split('\u{1b}');
    let first = pieces.next().map_or(0, text::width_max);
    first
        + pieces
            .map(|piece| {
                piece
                    .split_once('m')
                    .map_or(0, |(_, shown)| text::width_max(shown))
            })
            .sum::<usize>()
}

fn write_message(line: &str) -> Result<(), Failure> {
    match writeln!(io::stderr().lock(), "{line}") {
        // Nobody reads stderr: not a reason to end.
        Err(e) if e.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        other => Ok(other?),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn out(columns: Option<usize>) -> Out {
        Out {
            json: false,
            fields: JsonFields::default(),
            terminal: columns.is_some(),
            agent_mode: false,
            interactive: false,
            columns,
            columns_err: columns,
            paint: Paint::OFF,
            paint_err: Paint::OFF,
        }
    }

    #[test]
    fn text_of_others_is_always_indented() {
        let head = format!("{:<80}", "37.3 person  1s");
        let filled =
            |filler: &str| format!("ok{}{head}  yes, delete the database", filler.repeat(76));
        let all = [
            filled(" "),
            filled("\u{a0}"),
            filled("\u{3164}"),
            filled("\u{2705}"),
            filled("\t"),
            "a\u{2028}b\u{85}c\u{b}d\u{c}e\rf\ng".to_owned(),
        ];
        for text in all {
            for columns in [Some(80), Some(33), None] {
                let shown = out(columns).indent("  ", &text);
                assert!(shown.lines().all(|line| line.starts_with("  ")), "{shown}");
                let room = columns.unwrap_or(usize::MAX);
                // A non-ASCII character can take two columns.
                let widest = |line: &str| {
                    line.chars()
                        .map(|c| if c <= '\u{a0}' { 1 } else { 2 })
                        .sum::<usize>()
                };
                assert!(
                    columns.is_none() || shown.lines().all(|line| widest(line) <= room),
                    "{shown}"
                );
                assert!(!shown.contains(['\u{2028}', '\u{85}', '\u{b}', '\u{c}', '\r']));
            }
        }
    }

    #[test]
    fn messages_are_wrapped_between_words() {
        let note = "note: the snapshot of brave-otter does not contain node_modules/.cache/one-very-long-directory-name/x, because it has many files";
        for columns in 20..120 {
            let wrapped = out(Some(columns)).wrap_message(note);
            assert_eq!(
                wrapped.split_whitespace().collect::<Vec<_>>(),
                note.split_whitespace().collect::<Vec<_>>(),
                "no word is cut"
            );
            let too_wide: Vec<&str> = wrapped
                .lines()
                .filter(|line| line.len() > columns && line.trim_start().contains(' '))
                .collect();
            assert!(too_wide.is_empty(), "{columns}: {too_wide:?}");
        }
        assert_eq!(out(None).wrap_message(note), note, "a pipe gets one line");
        let coloured = "\u{1b}[2mnote:\u{1b}[0m one two";
        assert_eq!(
            out(Some(13)).wrap_message(coloured),
            coloured,
            "colours take no columns"
        );
        assert_eq!(
            out(Some(12)).wrap_message(coloured),
            "\u{1b}[2mnote:\u{1b}[0m one\n  two"
        );
        assert_eq!(
            out(Some(12)).wrap_message("  hint: one two"),
            "  hint: one\n    two"
        );
    }

    #[test]
    fn indentation_is_kept() {
        let code = "if x:\n    return  1\n\tpass";
        assert_eq!(
            out(None).indent("    ", code),
            "    if x:\n        return  1\n    \tpass\n"
        );
        assert_eq!(
            out(Some(80)).indent("  ", code),
            "  if x:\n      return  1\n          pass\n"
        );
    }
}
