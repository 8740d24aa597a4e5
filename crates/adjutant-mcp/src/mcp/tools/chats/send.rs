//! Sending, editing and pinning messages, and archiving a chat.

use super::labels::label_of;
use super::render::{TITLE_CHARS_MAX, entry_brief, entry_text, share, shown_text};
use crate::config;
use crate::mcp::caller::{McpCaller, wait_ms};
use crate::mcp::refusal::ToolRefusal;
use crate::mcp::reply::{ToolResult, reply};
use crate::mcp::session::{McpSession, Role};
use crate::mcp::show::Shown;
use crate::mcp::text::{line, quoted};
use crate::view::{
    Answers, ArchiveChat, CancelAnswers, ChatEntryView, PostedMessage, ReadAnswers, ReceiptView,
    Say, StartChat,
};
use adjutant_core::chat::{EntryKind, Receipt};
use adjutant_core::{hex, words};
use serde::Deserialize;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use std::time::Duration;

/// The arguments of `send_chat_message`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(in crate::mcp) struct SendChatMessageArgs {
    chat_id: Option<i64>,
    #[serde(default)]
    to: Vec<String>,
    message: Option<String>,
    reply_to: Option<String>,
    edit_of: Option<String>,
    pin: Option<bool>,
    key: Option<String>,
    expect: Option<u64>,
    archive: Option<bool>,
    wait_s: Option<u64>,
    idempotency_key: Option<String>,
    agent_name: Option<String>,
    include_history: Option<bool>,
    model: Option<String>,
}

pub(in crate::mcp) async fn send_message(
    session: &McpSession,
    caller: &McpCaller,
    mut args: SendChatMessageArgs,
) -> ToolResult {
    check_original(&args)?;
    let wait = caller.bounded(args.wait_s, caller.cap);
    if let Some(archived) = args.archive {
        return archive(session, &args, archived).await;
    }
    let asks = caller
        .alias
        .as_deref()
        .is_some_and(|alias| alias.starts_with("ask"));
    if asks {
        address_original(session, &mut args).await?;
    }
    // A message to a run is a note, unless the caller wants to wait for the reply.
    let waits_for_replies = args.wait_s.is_some();
    let posted = post(session, args).await?;
    let answers = if wait.is_zero() {
        first_answers(&posted)
    } else {
        wait_for_answers(session, caller, &posted, wait, waits_for_replies).await?
    };
    reply(describe_post(&posted, &answers))
}

/// Addresses a message of an original tool, which names neither an agent nor a chat: one of its own
/// is started then.
async fn address_original(
    session: &McpSession,
    args: &mut SendChatMessageArgs,
) -> Result<(), ToolRefusal> {
    args.chat_id = args.chat_id.filter(|id| *id != 0);
    if args.to.is_empty() {
        args.to.push("gemini".to_owned());
    }
    if args.chat_id.is_some() {
        return Ok(());
    }
    let start = StartChat {
        title: title_of(args.message.as_deref().unwrap_or_default()),
        participants: args.to.clone(),
        ..StartChat::default()
    };
    // With a derived key, so that a repeated call finds the same chat.
    let started = match args.idempotency_key.as_deref() {
        Some(key) => {
            session
                .client()
                .call_with_key(&start, &chat_key(key))
                .await?
        }
        None => session.client().call(&start).await?,
    };
    args.chat_id = Some(started.chat_id);
    Ok(())
}

/// Returns the title of a chat that begins with a message: its first line.
fn title_of(message: &str) -> String {
    message
        .trim()
        .lines()
        .next()
        .unwrap_or_default()
        .chars()
        .filter(|c| !c.is_control())
        .take(TITLE_CHARS_MAX)
        .collect()
}

/// Stores a message.
async fn post(
    session: &McpSession,
    args: SendChatMessageArgs,
) -> Result<PostedMessage, ToolRefusal> {
    let is_parent = session.role().await == Role::Parent;
    let say = Say {
        chat_id: args.chat_id,
        to: args.to,
        message: args.message,
        reply_to: args.reply_to,
        edit_of: args.edit_of,
        pin: args.pin,
        label: args.agent_name.clone(),
        key: args.key,
        expect: args
            .expect
            .map(|expect| u32::try_from(expect).unwrap_or(u32::MAX)),
        board_of: None,
        default_responder: session.compat(),
        cwd: if is_parent {
            session.directory_text()?
        } else {
            String::new()
        },
        env: if is_parent {
            config::dispatch_env()
        } else {
            Default::default()
        },
    };
    let posted = match args.idempotency_key.as_deref() {
        Some(key) => session.client().call_with_key(&say, key).await?,
        None => session.client().call(&say).await?,
    };
    if let Some(label) = label_of(session, args.agent_name.as_deref()) {
        session
            .labels()
            .note_posted(&label, posted.chat_id, &posted.message);
    }
    Ok(posted)
}

/// Returns what is known of the answers to a message that was just posted.
fn first_answers(posted: &PostedMessage) -> Answers {
    Answers {
        waiting: posted.answering.clone(),
        ..Answers::default()
    }
}

/// Waits until the agents that answer a message have done so. `for_replies`: or until the runs that
/// receive it have replied.
async fn wait_for_answers(
    session: &McpSession,
    caller: &McpCaller,
    posted: &PostedMessage,
    wait: Duration,
    for_replies: bool,
) -> Result<Answers, ToolRefusal> {
    let replies = for_replies && posted.answering.is_empty() && !posted.receipts.is_empty();
    if posted.answering.is_empty() && !replies {
        return Ok(first_answers(posted));
    }
    let read = ReadAnswers {
        chat_id: posted.chat_id,
        seq: posted.message.seq,
        turn: None,
        wait_ms: wait_ms(wait),
        replies,
    };
    match caller
        .wait_with_progress("waiting for the answer", session.client().call(&read))
        .await
    {
        Ok(Ok(read)) => Ok(read),
        // The message is stored, however the wait ends.
        Ok(Err(error)) => {
            tracing::warn!(%error, "the wait for an answer failed");
            Ok(first_answers(posted))
        }
        Err(refusal) => {
            if caller.was_cancelled() && !replies {
                session
                    .client()
                    .call(&CancelAnswers {
                        chat_id: posted.chat_id,
                        seq: posted.message.seq,
                    })
                    .await?;
            }
            Err(refusal)
        }
    }
}

/// Archives or restores a chat.
async fn archive(session: &McpSession, args: &SendChatMessageArgs, archived: bool) -> ToolResult {
    if args.message.is_some() || !args.to.is_empty() {
        return Err(ToolRefusal::invalid(
            "`archive` takes only `chat_id`",
            "send the message first",
        ));
    }
    let Some(chat_id) = args.chat_id else {
        return Err(ToolRefusal::invalid(
            "`chat_id` is missing",
            "pass it; list_chats shows the chats",
        ));
    };
    let env = if session.role().await == Role::Parent {
        config::dispatch_env()
    } else {
        Default::default()
    };
    let call = ArchiveChat {
        chat_id,
        archived,
        cwd: session.directory_text()?,
        env,
    };
    let chat = session.client().call(&call).await?;
    let what = if archived { "archived" } else { "active again" };
    let shown = Shown::new(
        json!({"chat_id": chat.chat_id, "message_id": "", "seq": chat.last_seq, "status": chat.status}),
    );
    let shown = shown.line(format!(
        "chat {} {} is {what}",
        chat.chat_id,
        quoted(&chat.title, 200)
    ));
    reply(shown.next(if archived {
        "list_chats status=archived still finds it"
    } else {
        "send_chat_message or show_chat"
    }))
}

/// Refuses arguments of the original tools that have no effect here.
fn check_original(args: &SendChatMessageArgs) -> Result<(), ToolRefusal> {
    if args.include_history == Some(false) {
        let why =
            "`includeHistory` cannot be false: an answering agent always receives the history";
        return Err(ToolRefusal::invalid(
            why,
            "omit it; start_chat opens a chat without history",
        ));
    }
    if args.model.is_some() {
        let hint = "omit it, or have the user declare an agent with args = [\"--model\", …] in the configuration and send to that one";
        return Err(ToolRefusal::invalid(
            "`model` cannot be set by a message: an agent's model is part of its configuration",
            hint,
        ));
    }
    Ok(())
}

/// Derives the key for starting the chat from the key of the call. Hashed, because the call's key
/// may have the maximum length.
fn chat_key(key: &str) -> String {
    format!("chat-{}", hex(Sha256::digest(key)))
}

/// The status of a posted message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum PostStatus {
    /// No agent answers it.
    Sent,
    Answering,
    Answered,
    /// An agent could not answer it.
    Failed,
}

words!(PostStatus { Sent = "sent", Answering = "answering", Answered = "answered", Failed = "failed" });

impl PostStatus {
    fn of(answers: &Answers) -> Self {
        let Answers {
            waiting, answers, ..
        } = answers;
        let is_failure = |answer: &ChatEntryView| answer.kind == EntryKind::Failure;
        if !waiting.is_empty() {
            Self::Answering
        } else if answers.is_empty() {
            Self::Sent
        } else if answers.iter().any(is_failure) {
            Self::Failed
        } else {
            Self::Answered
        }
    }
}

fn describe_post(posted: &PostedMessage, answers: &Answers) -> Shown {
    let status = PostStatus::of(answers);
    let receipts = if answers.receipts.is_empty() {
        &posted.receipts
    } else {
        &answers.receipts
    };
    let mut shown = post_data(posted, answers, status);
    if !receipts.is_empty() {
        shown = shown.with("receipts", json!(receipts));
    }
    let responses: Vec<String> = answers
        .answers
        .iter()
        .map(|answer| shown_text(&answer.text, usize::MAX))
        .collect();
    if !responses.is_empty() {
        shown = shown.with("response", responses.join("\n\n"));
    }
    shown
        .line(format!(
            "message {} in chat {} {}",
            line(&posted.message.message_id, 40),
            posted.chat_id,
            quoted(&posted.title, 200)
        ))
        .lines(posted.notes.iter().map(|note| line(note, 1_000)))
        .lines(receipts.iter().map(|one| {
            format!(
                "{}: {}",
                line(&one.run_name, 100),
                line(one.receipt.as_str(), 40)
            )
        }))
        .quotation(
            answers
                .answers
                .iter()
                .map(|answer| entry_text(answer, usize::MAX))
                .collect(),
        )
        .lines(waiting_line(posted, answers))
        .lines(posted.has_no_agent.then(|| {
            "no agent is in this chat, so none answers: name one in `to` (the user can set chats.default_responder for --compat)".to_owned()
        }))
        .next(next_step(posted, answers, status, receipts))
}

/// Returns a posted message and its answers as structured content.
fn post_data(posted: &PostedMessage, answers: &Answers, status: PostStatus) -> Shown {
    let chars_max = share(&answers.answers);
    let entries: Vec<Value> = answers
        .answers
        .iter()
        .map(|answer| entry_brief(answer, chars_max))
        .collect();
    Shown::new(json!({
        "chat_id": posted.chat_id,
        "chatId": posted.chat_id,
        "message_id": posted.message.message_id,
        "messageId": posted.message.message_id,
        "seq": posted.message.seq,
        "status": status.word(),
        "answers": entries,
        "waiting": answers.waiting,
        "notes": posted.notes,
    }))
}

/// Names those who have not answered yet.
fn waiting_line(posted: &PostedMessage, answers: &Answers) -> Option<String> {
    let what = if posted.answering.is_empty() {
        "no reply yet from"
    } else {
        "still answering"
    };
    (!answers.waiting.is_empty())
        .then(|| format!("{what}: {}", line(&answers.waiting.join(", "), 300)))
}

fn next_step(
    posted: &PostedMessage,
    answers: &Answers,
    status: PostStatus,
    receipts: &[ReceiptView],
) -> String {
    let chat_id = posted.chat_id;
    match status {
        PostStatus::Sent if posted.message.key.is_some() => {
            format!("continue; show_chat chat_id={chat_id} shows the board")
        }
        PostStatus::Answered => "continue, using the answer".to_owned(),
        PostStatus::Sent if receipts.iter().any(|one| one.receipt == Receipt::RunEnded) => {
            "do not wait for a reply: the run has ended".to_owned()
        }
        PostStatus::Failed => {
            "your message is kept; send it again to have it answered, or continue without"
                .to_owned()
        }
        PostStatus::Sent | PostStatus::Answering => {
            let seqs = answers.answers.iter().map(|answer| answer.seq);
            let last = seqs.max().unwrap_or(posted.message.seq);
            format!("show_chat chat_id={chat_id} after={last} wait_s=… waits for new messages")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn message_is_answered_when_nobody_is_waited_for() {
        let entry = |kind: EntryKind| ChatEntryView {
            kind: kind.into(),
            ..ChatEntryView::default()
        };
        let of = |waiting: &[&str], answers: Vec<ChatEntryView>| {
            PostStatus::of(&Answers {
                waiting: waiting.iter().map(|name| (*name).to_owned()).collect(),
                answers,
                ..Answers::default()
            })
        };
        let (message, failure) = (entry(EntryKind::Message), entry(EntryKind::Failure));
        assert_eq!(of(&[], Vec::new()), PostStatus::Sent);
        assert_eq!(of(&[], vec![message.clone()]), PostStatus::Answered);
        assert_eq!(
            of(&[], vec![message.clone(), failure.clone()]),
            PostStatus::Failed
        );
        assert_eq!(of(&["codex"], vec![failure]), PostStatus::Answering);
    }

    #[test]
    fn title_of_a_chat_is_the_first_line_without_control_characters() {
        assert_eq!(title_of("\n  Is it\tsafe?\nDetails"), "Is itsafe?");
        assert_eq!(title_of(""), "");
        let long = "x".repeat(TITLE_CHARS_MAX + 1);
        assert_eq!(title_of(&long), long[1..]);
    }
}
