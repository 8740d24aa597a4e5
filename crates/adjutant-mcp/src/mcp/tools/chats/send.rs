//! Sending, editing and pinning messages, and archiving a chat.

use super::labels::label_of;
use super::render::TITLE_CHARS_MAX;
use super::render::entry_brief;
use super::render::entry_text;
use super::render::share;
use super::render::shown_text;
use crate::config;
use crate::mcp::caller::{Caller, wait_ms};
use crate::mcp::refusal::Refusal;
use crate::mcp::reply::{ToolResult, reply};
use crate::mcp::session::{Role, Session};
use crate::mcp::show::Shown;
use crate::mcp::text::{line, quoted};
use crate::view::{
    Answers, ArchiveChat, CancelAnswers, PostedMessage, ReadAnswers, Say, StartChat,
};
use adjutant_core::chat::{EntryKind, Receipt};
use adjutant_core::words;
use serde::Deserialize;
use serde_json::json;
use sha2::{Digest, Sha256};

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
    session: &Session,
    caller: &Caller,
    args: SendChatMessageArgs,
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
    let mut chat = args.chat_id.filter(|id| !asks || *id != 0);
    let mut to = args.to;
    let message = args.message;
    if asks && to.is_empty() {
        to.push("gemini".to_owned());
    }
    if asks && chat.is_none() {
        let text = message.as_deref().unwrap_or_default().trim();
        let title: String = text
            .lines()
            .next()
            .unwrap_or_default()
            .chars()
            .filter(|c| !c.is_control())
            .take(TITLE_CHARS_MAX)
            .collect();
        let start = StartChat {
            title,
            participants: to.clone(),
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
        chat = Some(started.chat_id);
    }
    let is_parent = session.role().await == Role::Parent;
    let say = Say {
        chat_id: chat,
        to,
        message,
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
    let mut answers = Answers {
        waiting: posted.answering.clone(),
        ..Answers::default()
    };
    // A message to a run is a note, unless the caller wants to wait for the reply.
    let replies =
        args.wait_s.is_some() && posted.answering.is_empty() && !posted.receipts.is_empty();
    if (!posted.answering.is_empty() || replies) && !wait.is_zero() {
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
            Ok(Ok(read)) => answers = read,
            // The message is stored, however the wait ends.
            Ok(Err(error)) => tracing::warn!(%error, "the wait for an answer failed"),
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
                return Err(refusal);
            }
        }
    }
    reply(describe_post(&posted, &answers))
}

/// Archives or restores a chat.
async fn archive(session: &Session, args: &SendChatMessageArgs, archived: bool) -> ToolResult {
    if args.message.is_some() || !args.to.is_empty() {
        return Err(Refusal::invalid(
            "`archive` takes only `chat_id`",
            "send the message first",
        ));
    }
    let Some(chat_id) = args.chat_id else {
        return Err(Refusal::invalid(
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
fn check_original(args: &SendChatMessageArgs) -> Result<(), Refusal> {
    if args.include_history == Some(false) {
        let why =
            "`includeHistory` cannot be false: an answering agent always receives the history";
        return Err(Refusal::invalid(
            why,
            "omit it; start_chat opens a chat without history",
        ));
    }
    if args.model.is_some() {
        let hint = "omit it, or have the user declare an agent with args = [\"--model\", …] in the configuration and send to that one";
        return Err(Refusal::invalid(
            "`model` cannot be set by a message: an agent's model is part of its configuration",
            hint,
        ));
    }
    Ok(())
}

/// Derives the key for starting the chat from the key of the call. Hashed, because the call's key may have the
/// maximum length.
fn chat_key(key: &str) -> String {
    let hash = Sha256::digest(key.as_bytes())
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect::<String>();
    format!("chat-{hash}")
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

fn describe_post(posted: &PostedMessage, answers: &Answers) -> Shown {
    let failed = answers
        .answers
        .iter()
        .any(|answer| answer.kind == EntryKind::Failure);
    let status = match (answers.waiting.is_empty(), answers.answers.is_empty()) {
        (false, _) => PostStatus::Answering,
        (true, true) => PostStatus::Sent,
        (true, false) if failed => PostStatus::Failed,
        (true, false) => PostStatus::Answered,
    };
    let chars_max = share(&answers.answers);
    let receipts = if answers.receipts.is_empty() {
        &posted.receipts
    } else {
        &answers.receipts
    };
    let mut shown = Shown::new(json!({
        "chat_id": posted.chat_id,
        "chatId": posted.chat_id,
        "message_id": posted.message.message_id,
        "messageId": posted.message.message_id,
        "seq": posted.message.seq,
        "status": status.word(),
        "answers": answers.answers.iter().map(|answer| entry_brief(answer, chars_max)).collect::<Vec<_>>(),
        "waiting": answers.waiting,
        "notes": posted.notes,
    }));
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
    shown = shown
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
        );
    if !answers.waiting.is_empty() {
        let what = if posted.answering.is_empty() {
            "no reply yet from"
        } else {
            "still answering"
        };
        shown = shown.line(format!(
            "{what}: {}",
            line(&answers.waiting.join(", "), 300)
        ));
    }
    if posted.has_no_agent {
        shown = shown.line("no agent is in this chat, so none answers: name one in `to` (the user can set chats.default_responder for --compat)");
    }
    let last = answers
        .answers
        .iter()
        .map(|answer| answer.seq)
        .max()
        .unwrap_or(posted.message.seq);
    if posted.message.key.is_some() && status == PostStatus::Sent {
        return shown.next(format!(
            "continue; show_chat chat_id={} shows the board",
            posted.chat_id
        ));
    }
    shown.next(match status {
        PostStatus::Answered => "continue, using the answer".to_owned(),
        PostStatus::Sent if receipts.iter().any(|one| one.receipt == Receipt::RunEnded) => {
            "do not wait for a reply: the run has ended".to_owned()
        }
        PostStatus::Failed => {
            "your message is kept; send it again to have it answered, or continue without"
                .to_owned()
        }
        PostStatus::Sent | PostStatus::Answering => format!(
            "show_chat chat_id={} after={last} wait_s=… waits for new messages",
            posted.chat_id
        ),
    })
}
