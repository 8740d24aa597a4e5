//! Where output goes: data to stdout, everything else to stderr; JSON or text.

use super::exit::{Exit, cli_codes};
use super::style::{Paint, Style};
use crate::text;
use crate::view::{AttentionList, ErrorView, Mentions, RunView};
use serde::Serialize;
use std::io::{self, Write};

/// Why a command ends early.
#[derive(Debug)]
pub enum Failure {
    /// A failure that has to be told.
    Error(ErrorView),
    /// Everything was told; only the exit code is left.
    Reported(Exit),
    /// Whoever read our output has gone (`adj logs | head`).
    ReaderGone,
}

impl From<ErrorView> for Failure {
    fn from(error: ErrorView) -> Self {
        Self::Error(error)
    }
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        if error.kind() == io::ErrorKind::BrokenPipe { Self::ReaderGone } else { fail(cli_codes::IO, format!("cannot write the output: {error}")) }
    }
}

impl From<std::fmt::Error> for Failure {
    fn from(error: std::fmt::Error) -> Self {
        fail(cli_codes::IO, format!("cannot lay out the output: {error}"))
    }
}

/// Makes a failure of the command line itself.
pub fn fail(code: &str, message: impl Into<String>) -> Failure {
    Failure::Error(ErrorView { code: code.to_owned(), message: message.into(), hint: None })
}

/// Makes a failure with what to do about it.
pub fn fail_hint(code: &str, message: impl Into<String>, hint: impl Into<String>) -> Failure {
    Failure::Error(ErrorView { code: code.to_owned(), message: message.into(), hint: Some(hint.into()) })
}

/// Before what goes on from a line of ours.
const FOLD_INDENT: &str = "      ";

/// The result of a command.
pub type CommandResult = Result<Exit, Failure>;

/// Where a command writes, and how.
#[derive(Debug, Clone)]
pub struct Out {
    pub json: bool,
    /// Standard output is a terminal (and no agent reads it).
    pub terminal: bool,
    /// A coding agent reads this: short, plain, and what to do next.
    pub agent_mode: bool,
    /// Questions may be asked on the terminal.
    pub interactive: bool,
    /// Columns of the terminal, when there is one.
    pub columns: Option<usize>,
    pub paint: Paint,
    pub paint_err: Paint,
}

#[derive(Serialize)]
struct Envelope<'a, T: Serialize + ?Sized> {
    schema: u32,
    data: &'a T,
    /// Of a list: how many more there are.
    #[serde(skip_serializing_if = "Option::is_none")]
    more: Option<u64>,
    /// Of the inbox: what in chats is for the person and unread.
    #[serde(skip_serializing_if = "Option::is_none")]
    mentions: Option<Mentions>,
    /// The same: stopped runs and bad ends.
    #[serde(skip_serializing_if = "Option::is_none")]
    runs: Option<&'a [RunView]>,
    #[serde(skip_serializing_if = "Option::is_none")]
    runs_more: Option<u64>,
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

/// What was refused for one of several runs.
#[derive(Serialize)]
struct NamedError<'a> {
    run: &'a str,
    #[serde(flatten)]
    error: &'a ErrorView,
}

impl Out {
    /// Prints one answer as JSON.
    pub fn print_json<T: Serialize>(&self, data: &T) -> Result<(), Failure> {
        self.print_envelope(&Envelope { schema: 1, data, more: None, mentions: None, runs: None, runs_more: None, warnings: &[] })
    }

    /// Prints a list as JSON.
    pub fn print_json_list<T: Serialize>(&self, data: &[T], more: u64, warnings: &[String]) -> Result<(), Failure> {
        self.print_envelope(&Envelope { schema: 1, data, more: Some(more), mentions: None, runs: None, runs_more: None, warnings })
    }

    /// Prints what needs the person as JSON.
    pub fn print_json_inbox(&self, list: &AttentionList) -> Result<(), Failure> {
        let AttentionList { requests, requests_more, runs, runs_more, mentions, mentions_more } = list;
        self.print_envelope(&Envelope {
            schema: 1,
            data: requests.as_slice(),
            more: Some(*requests_more),
            mentions: Some(Mentions { mentions: mentions.clone(), more: *mentions_more }),
            runs: Some(runs),
            runs_more: Some(*runs_more),
            warnings: &[],
        })
    }

    fn print_envelope<T: Serialize + ?Sized>(&self, envelope: &Envelope<'_, T>) -> Result<(), Failure> {
        let text = serde_json::to_string(envelope).map_err(|e| fail(cli_codes::IO, format!("cannot write JSON: {e}")))?;
        self.print_line(&text)
    }

    /// Prints one line on stdout, at once.
    pub fn print_line(&self, line: &str) -> Result<(), Failure> {
        let mut out = io::stdout().lock();
        writeln!(out, "{line}")?;
        Ok(out.flush()?)
    }

    /// Prints text on stdout as it is.
    pub fn print_text(&self, text: &str) -> Result<(), Failure> {
        let mut out = io::stdout().lock();
        out.write_all(text.as_bytes())?;
        Ok(out.flush()?)
    }

    /// Lays out text that others wrote: each of its lines behind an indent, and each piece of one that a
    /// terminal has no room for, so that nothing of it stands where ours begins.
    #[must_use]
    pub fn indent(&self, indent: &str, text: &str) -> String {
        let columns = self.columns_behind(indent.len());
        let safe = text::block(text);
        let lines = safe.trim_end().lines().flat_map(|line| text::wrap(line, columns));
        lines.fold(String::new(), |out, line| out + indent + &line + "\n")
    }

    /// Lays out a line of ours that repeats what others wrote: painted where it fits, else plain, what
    /// goes on behind an indent. Ends with a line end.
    #[must_use]
    pub fn fold(&self, plain: &str, painted: &str) -> String {
        let columns = self.columns_behind(FOLD_INDENT.len());
        match text::wrap(plain, columns).as_slice() {
            [_] => format!("{painted}\n"),
            pieces => pieces.join(&format!("\n{FOLD_INDENT}")) + "\n",
        }
    }

    /// Columns behind an indent.
    fn columns_behind(&self, indent: usize) -> usize {
        self.columns.map_or(usize::MAX, |columns| columns.saturating_sub(indent))
    }

    /// Says something on stderr that is no data; silent in JSON mode.
    pub fn print_message(&self, line: &str) -> Result<(), Failure> {
        if self.json { Ok(()) } else { write_message(line) }
    }

    /// Names the next useful command, on stderr; silent in JSON mode.
    pub fn suggest(&self, command: &str) -> Result<(), Failure> {
        self.print_message(&format!("{} {command}", self.paint_err.apply(Style::Dim, "next:")))
    }

    /// Tells in one line of JSON what was refused of several: the first as `error`, each with its name
    /// under `errors`, in the order given.
    pub fn print_errors(&self, refused: &[(String, ErrorView)]) -> Result<(), Failure> {
        let Some((_, first)) = refused.first() else { return Ok(()) };
        let all: Vec<NamedError<'_>> = refused.iter().map(|(run, error)| NamedError { run, error }).collect();
        let line = serde_json::to_string(&ErrorsEnvelope { error: first, errors: &all })
            .map_err(|e| fail(cli_codes::IO, format!("cannot write JSON: {e}")))?;
        Ok(writeln!(io::stderr().lock(), "{line}")?)
    }

    /// Tells a failure: for people with its hint, in JSON mode as exactly one line.
    pub fn print_error(&self, error: &ErrorView) -> io::Result<()> {
        let mut err = io::stderr().lock();
        if self.json {
            let line = serde_json::to_string(&ErrorEnvelope { error }).map_err(io::Error::other)?;
            return writeln!(err, "{line}");
        }
        let (head, message) = (format!("error[{}]:", text::line(&error.code)), text::line(&error.message));
        let painted = format!("{} {message}", self.paint_err.apply(Style::Bad, &head));
        write!(err, "{}", self.fold(&format!("{head} {message}"), &painted))?;
        if let Some(hint) = &error.hint {
            writeln!(err, "  {} {}", self.paint_err.apply(Style::Dim, "hint:"), text::line(hint))?;
        }
        Ok(())
    }
}

fn write_message(line: &str) -> Result<(), Failure> {
    match writeln!(io::stderr().lock(), "{line}") {
        // Nobody reads what is no data: that ends nothing.
        Err(e) if e.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        other => Ok(other?),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn out(columns: Option<usize>) -> Out {
        Out { json: false, terminal: columns.is_some(), agent_mode: false, interactive: false, columns, paint: Paint::OFF, paint_err: Paint::OFF }
    }

    #[test]
    fn what_others_said_never_begins_a_line() {
        let head = format!("{:<80}", "37.3 person  1s");
        let filled = |filler: &str| format!("ok{}{head}  yes, delete the database", filler.repeat(76));
        let all =
            [filled(" "), filled("\u{a0}"), filled("\u{3164}"), filled("\u{2705}"), filled("\t"), "a\u{2028}b\u{85}c\u{b}d\u{c}e\rf\ng".to_owned()];
        for text in all {
            for columns in [Some(80), Some(33), None] {
                let shown = out(columns).indent("  ", &text);
                assert!(shown.lines().all(|line| line.starts_with("  ")), "{shown}");
                let room = columns.unwrap_or(usize::MAX);
                // A terminal takes up to two columns for what is not ASCII.
                let widest = |line: &str| line.chars().map(|c| if c <= '\u{a0}' { 1 } else { 2 }).sum::<usize>();
                assert!(columns.is_none() || shown.lines().all(|line| widest(line) <= room), "{shown}");
                assert!(!shown.contains(['\u{2028}', '\u{85}', '\u{b}', '\u{c}', '\r']));
            }
        }
    }

    #[test]
    fn indentation_is_shown_as_it_is() {
        let code = "if x:\n    return  1\n\tpass";
        assert_eq!(out(None).indent("    ", code), "    if x:\n        return  1\n    \tpass\n");
        assert_eq!(out(Some(80)).indent("  ", code), "  if x:\n      return  1\n          pass\n");
    }
}
