//! `adj chat CHAT`: a chat on the terminal. New messages appear above the line that is typed, which
//! stays whole.
//!
//! One event is selected, then applied to completion.

use super::directory::working_directory;
use super::entries::{INDENT, entries_text, receipt_text};
use super::{PAGE, WATCH_WAIT_MS, chat_head, unread_before_text};
use crate::cli::context::Context;
use crate::cli::exit::{Exit, cli_codes};
use crate::cli::keys::{edit, paste, read_keys};
use crate::cli::out::{CommandResult, Failure, fail, fail_hint};
use crate::cli::prompt::discard_typed_input;
use crate::cli::style::Style;
use crate::cli::{columns, symbols};
use crate::view::{ChatPage, ErrorView, PostedMessage, Say, ShowChat, codes};
use crate::{config, text};
use crossterm::event::{
    DisableBracketedPaste, EnableBracketedPaste, Event, KeyCode, KeyEvent, KeyEventKind,
    KeyModifiers,
};
use crossterm::execute;
use crossterm::terminal::{disable_raw_mode, enable_raw_mode};
use std::collections::VecDeque;
use std::io::{self, Write};
use std::pin::Pin;
use tokio::sync::mpsc;

/// Messages printed at first.
const ENTRIES_FIRST: u32 = 20;
/// Longest message that can be typed, in characters.
const TYPED_CHARS_MAX: usize = 16_000;
/// Maximum number of messages that wait to be sent.
const UNSENT_MAX: usize = 32;
const PROMPT: &str = "> ";
const QUIT: &str = "/quit";
const HELP: &str = "/help";

type Pending<T> = Pin<Box<dyn Future<Output = Result<T, ErrorView>>>>;

enum ChatEvent {
    Key(Option<io::Result<Event>>),
    Page(Result<ChatPage, ErrorView>),
    Posted(Result<PostedMessage, ErrorView>),
}

/// Shows a chat and posts each typed line, until the person leaves.
pub(super) async fn open(chat: i64, cx: &Context) -> CommandResult {
    if !cx.out.interactive {
        let hint =
            format!("adj chat show {chat}, adj chat watch {chat} or adj chat post {chat} \"…\"");
        return Err(fail_hint(
            cli_codes::USAGE,
            "a chat is opened on a terminal, without --json and --no-input",
            hint,
        ));
    }
    let page = cx
        .hub
        .call(&ShowChat {
            chat_id: chat,
            limit: Some(ENTRIES_FIRST),
            ..ShowChat::default()
        })
        .await?;
    cx.out.print_text(&chat_head(&page, cx))?;
    if let Some(unread) = unread_before_text(&page) {
        cx.out.print_message(&unread)?;
    }
    cx.out.print_text(&entries_text(&page.messages, None, cx))?;
    cx.out
        .print_message(&cx.out.paint_err.apply(Style::Dim, &help()))?;
    let raw = RawMode::enter()
        .map_err(|e| fail(cli_codes::IO, format!("cannot set up the terminal: {e}")))?;
    let left = OpenChat::new(chat, &page, cx)?.run().await;
    drop(raw);
    left
}

fn help() -> String {
    format!("type a message and press Enter; {QUIT} or Ctrl-D leaves")
}

/// A chat that is open on the terminal.
struct OpenChat<'a> {
    chat: i64,
    cx: &'a Context,
    keys: mpsc::Receiver<io::Result<Event>>,
    typed: String,
    after: i64,
    changes: i64,
    page: Pending<ChatPage>,
    /// The first unsent message is being sent, if there is one.
    unsent: VecDeque<String>,
    posting: Pending<PostedMessage>,
    cwd: String,
    /// The person leaves when all messages are sent.
    leaving: bool,
}

/// What follows a key.
enum AfterKey {
    Stay,
    LeaveWhenSent,
    LeaveNow,
}

impl<'a> OpenChat<'a> {
    fn new(chat: i64, page: &ChatPage, cx: &'a Context) -> Result<Self, Failure> {
        let mut open = Self {
            chat,
            cx,
            keys: read_keys(),
            typed: String::new(),
            after: page.cursor,
            changes: page.changes,
            page: Box::pin(std::future::pending()),
            unsent: VecDeque::new(),
            posting: Box::pin(std::future::pending()),
            cwd: working_directory()?,
            leaving: false,
        };
        open.poll();
        Ok(open)
    }

    fn poll(&mut self) {
        let call = ShowChat {
            chat_id: self.chat,
            after: Some(self.after),
            changes: Some(self.changes),
            limit: Some(PAGE),
            wait_ms: WATCH_WAIT_MS,
            peek: false,
        };
        let hub = self.cx.hub.clone();
        self.page = Box::pin(async move { hub.call(&call).await });
    }

    async fn run(mut self) -> CommandResult {
        let left = self.follow().await;
        self.leave(left)
    }

    /// Follows the chat until the person leaves.
    async fn follow(&mut self) -> Result<(), Failure> {
        self.print("")?;
        loop {
            let event = tokio::select! {
                biased;
                key = self.keys.recv() => ChatEvent::Key(key),
                posted = &mut self.posting => ChatEvent::Posted(posted),
                page = &mut self.page => ChatEvent::Page(page),
            };
            match event {
                ChatEvent::Key(Some(key)) => {
                    let key = key.map_err(|e| {
                        fail(cli_codes::IO, format!("cannot read the terminal: {e}"))
                    })?;
                    match self.apply(key)? {
                        AfterKey::Stay => {}
                        AfterKey::LeaveWhenSent => self.leaving = true,
                        AfterKey::LeaveNow => return Ok(()),
                    }
                }
                ChatEvent::Key(None) => return Ok(()),
                ChatEvent::Page(page) => {
                    let page = page?;
                    let shown = entries_text(&page.changed, Some("changed"), self.cx)
                        + &entries_text(&page.messages, None, self.cx);
                    (self.after, self.changes) = (page.cursor, page.changes);
                    self.print(&shown)?;
                    self.poll();
                }
                ChatEvent::Posted(posted) => {
                    let message = self.unsent.pop_front().unwrap_or_default();
                    self.post_next();
                    self.report(&message, posted)?;
                }
            }
            if self.leaving && self.unsent.is_empty() {
                return Ok(());
            }
        }
    }

    /// Applies a key.
    fn apply(&mut self, event: Event) -> Result<AfterKey, Failure> {
        match event {
            Event::Key(KeyEvent {
                code,
                modifiers,
                kind,
                ..
            }) if kind != KeyEventKind::Release => {
                let has_control = modifiers.contains(KeyModifiers::CONTROL);
                match code {
                    KeyCode::Char('c') if has_control => return Ok(AfterKey::LeaveNow),
                    _ if self.leaving => return Ok(AfterKey::Stay),
                    KeyCode::Char('d') if has_control => {
                        return Ok(if self.typed.is_empty() {
                            AfterKey::LeaveWhenSent
                        } else {
                            AfterKey::Stay
                        });
                    }
                    KeyCode::Enter => return self.enter(),
                    code => edit(&mut self.typed, code, has_control, TYPED_CHARS_MAX),
                }
            }
            Event::Paste(pasted) if !self.leaving => {
                paste(&mut self.typed, &pasted, TYPED_CHARS_MAX)
            }
            _ => {}
        }
        self.print("")?;
        Ok(AfterKey::Stay)
    }

    /// Sends the typed line, unless it is one of the two commands.
    fn enter(&mut self) -> Result<AfterKey, Failure> {
        let line = self.typed.trim().to_owned();
        if line == QUIT {
            return Ok(AfterKey::LeaveWhenSent);
        }
        if line == HELP {
            self.typed.clear();
            self.print(&self.note(&help()))?;
            return Ok(AfterKey::Stay);
        }
        if self.unsent.len() >= UNSENT_MAX {
            self.print(&self.note("the earlier messages are not sent yet"))?;
            return Ok(AfterKey::Stay);
        }
        self.typed.clear();
        if !line.is_empty() {
            self.unsent.push_back(line);
            if self.unsent.len() == 1 {
                self.post_next();
            }
        }
        self.print("")?;
        Ok(AfterKey::Stay)
    }

    fn post_next(&mut self) {
        let Some(message) = self.unsent.front() else {
            self.posting = Box::pin(std::future::pending());
            return;
        };
        let (chat_id, message, cwd) = (Some(self.chat), Some(message.clone()), self.cwd.clone());
        let say = Say {
            chat_id,
            message,
            cwd,
            env: config::dispatch_env(),
            ..Say::default()
        };
        let hub = self.cx.hub.clone();
        self.posting = Box::pin(async move { hub.call(&say).await });
    }

    /// Prints what the hub says about a message. The message itself arrives like those of others.
    fn report(
        &mut self,
        message: &str,
        posted: Result<PostedMessage, ErrorView>,
    ) -> Result<(), Failure> {
        let lines: Vec<String> = match posted {
            Ok(posted) => {
                let waits = (!posted.answering.is_empty())
                    .then(|| format!("waiting for {}", posted.answering.join(", ")));
                posted
                    .notes
                    .iter()
                    .map(|note| format!("note: {note}"))
                    .chain(posted.receipts.iter().map(receipt_text))
                    .chain(waits)
                    .collect()
            }
            Err(error) => {
                let hint = error.hint.iter().map(|hint| format!("hint: {hint}"));
                // Without a reply, it may be posted nevertheless.
                let what = if error.code == codes::UNREACHABLE {
                    "not confirmed"
                } else {
                    "not sent"
                };
                std::iter::once(format!("{what}: {message}"))
                    .chain([error.message.clone()])
                    .chain(hint)
                    .collect()
            }
        };
        let shown: String = lines.iter().map(|line| self.note(line)).collect();
        self.print(&shown)
    }

    /// Formats a line of Adjutant.
    fn note(&self, line: &str) -> String {
        let line = format!("{INDENT}· {}", text::line(line));
        self.cx
            .out
            .fold(&line, &self.cx.out.paint.apply(Style::Dim, &line))
    }

    /// Prints whole lines above the typed one, and that one again.
    fn print(&self, lines: &str) -> Result<(), Failure> {
        // The end of the line is in view, and the cursor stays in its row.
        let room = columns().saturating_sub(PROMPT.len() + 1);
        let typed = text::line(&self.typed);
        let mut used = 0;
        let in_view = |&(at, c): &(usize, char)| {
            used += text::width_max(&typed[at..at + c.len_utf8()]);
            used <= room
        };
        let start = typed
            .char_indices()
            .rev()
            .take_while(in_view)
            .last()
            .map_or(typed.len(), |(at, _)| at);
        let cut = &typed[start..];
        let shown = format!("\r\u{1b}[K{}{PROMPT}{cut}", lines.replace('\n', "\r\n"));
        let mut out = io::stdout().lock();
        out.write_all(symbols::shown(&shown, Some(columns())).as_bytes())?;
        Ok(out.flush()?)
    }

    /// Clears the line, and names messages that are lost to this terminal.
    fn leave(&self, left: Result<(), Failure>) -> CommandResult {
        let mut out = io::stdout().lock();
        out.write_all(b"\r\x1b[K")?;
        out.flush()?;
        drop(out);
        if let Some(line) = self.unsent.front() {
            let more = self.unsent.len() - 1;
            let others = if more == 0 {
                String::new()
            } else {
                format!(", and {more} more")
            };
            let problem = format!("the hub has not confirmed: {}{others}", text::line(line));
            if left.is_ok() {
                return Err(fail(cli_codes::IO, problem));
            }
            self.cx.out.print_message(&problem)?;
        }
        left.map(|()| Exit::Done)
    }
}

/// The terminal passes each key on. Dropping it restores the terminal.
struct RawMode;

impl RawMode {
    fn enter() -> io::Result<Self> {
        enable_raw_mode()?;
        let raw = Self;
        // What was typed before the chat was on the screen is not a message.
        discard_typed_input();
        execute!(io::stdout(), EnableBracketedPaste)?;
        Ok(raw)
    }
}

impl Drop for RawMode {
    fn drop(&mut self) {
        let left = execute!(io::stdout(), DisableBracketedPaste);
        if let Err(error) = disable_raw_mode().and(left) {
            tracing::debug!(%error, "the terminal is gone");
        }
    }
}
