//! The demo's chat: the person, a run, and an agent that answers when mentioned.

use crate::cli::context::Context;
use crate::cli::exit::cli_codes;
use crate::cli::out::{Failure, fail};
use crate::cli::style::Style;
use crate::text;
use crate::view::{ChatEntryView, ChatPage, ErrorView, EventView, GetRun, ShowChat};
use adjutant_core::EventKind;
use adjutant_core::chat::EntryKind;
use std::collections::BTreeSet;
use std::pin::Pin;

/// The number of the only chat in the temporary home.
pub(super) const CHAT: i64 = 1;
/// The agent that answers, from the configuration of the temporary home.
pub(super) const ANSWERS: &str = "reviewer";
/// The configuration of the temporary home: the agent and its answers.
pub(super) const CONFIG: &str = "\
[agents.reviewer]
harness = \"echo\"
description = \"Answers in the demo's chat\"

[chats.templates.port]
participants = [\"reviewer\"]
instructions = '''
say Keep their names: blame finds tests by name.
say The newer one: it covers escapes.
'''
";
/// The person's first command.
pub(crate) const START: [&str; 5] = ["chat", "start", "Parser tests", "--template", "port"];
pub(crate) const OPENING: [&str; 5] = [
    "chat",
    "post",
    "--detach",
    "1",
    "What matters when these move?",
];
/// Messages and answers of the complete chat.
const ENTRIES: usize = 5;
const ANSWERING_RUNS: usize = 2;
const POLL_WAIT_MS: u64 = 30_000;

/// The chat so far.
pub(crate) struct DemoChat {
    pub page: Pin<Box<dyn Future<Output = Result<Box<ChatPage>, ErrorView>>>>,
    pub entries: Vec<ChatEntryView>,
    /// Runs that answer, and how many of them ended.
    answering: BTreeSet<String>,
    ended: usize,
}

impl DemoChat {
    pub(super) fn new() -> Self {
        Self {
            page: Box::pin(std::future::pending()),
            entries: Vec::new(),
            answering: BTreeSet::new(),
            ended: 0,
        }
    }

    /// Starts to wait for entries after the known ones.
    pub(super) fn poll(&mut self, cx: &Context) {
        let (hub, after) = (
            cx.hub.clone(),
            self.entries.last().map_or(0, |entry| entry.seq),
        );
        let call = ShowChat {
            chat_id: CHAT,
            after: Some(after),
            wait_ms: POLL_WAIT_MS,
            ..ShowChat::default()
        };
        self.page = Box::pin(async move { hub.call(&call).await.map(Box::new) });
    }

    pub(super) fn is_over(&self) -> bool {
        self.entries.len() >= ENTRIES && self.ended >= ANSWERING_RUNS
    }

    /// Returns whether an event is about an answering run, and counts its end.
    pub(super) async fn observe(
        &mut self,
        event: &EventView,
        cx: &Context,
    ) -> Result<bool, Failure> {
        if event.kind == EventKind::RunStarted
            && cx
                .hub
                .call(&GetRun {
                    run: event.run_id.clone(),
                    ..GetRun::default()
                })
                .await?
                .identity
                .agent
                == ANSWERS
        {
            self.answering.insert(event.run_id.clone());
        }
        let is_answering = self.answering.contains(&event.run_id);
        self.ended += usize::from(is_answering && event.kind == EventKind::RunFinished);
        Ok(is_answering)
    }

    /// Checks that the chat is complete.
    pub(super) fn check(&self) -> Result<(), Failure> {
        let answers = self
            .entries
            .iter()
            .filter(|entry| entry.kind == EntryKind::Answer && entry.name == ANSWERS)
            .count();
        if self.entries.len() == ENTRIES && answers == ANSWERING_RUNS {
            return Ok(());
        }
        let entries: Vec<String> = self.entries.iter().map(line).collect();
        Err(fail(
            cli_codes::RUN_FAILED,
            format!("unexpected chat: {}", entries.join(" / ")),
        ))
    }
}

pub(super) fn line(entry: &ChatEntryView) -> String {
    format!("{}: {}", text::line(&entry.name), text::line(&entry.text))
}

pub(super) fn style(entry: &ChatEntryView) -> Style {
    match entry.kind.known() {
        Some(EntryKind::Answer) => Style::Good,
        Some(EntryKind::Failure) => Style::Bad,
        _ => Style::Plain,
    }
}
