//! `adj chat`: chats with agents and runs.

mod files;
mod open;

use crate::cli::args::{
    ChatArgs, ChatCommand, ChatLsArgs, ChatPostArgs, ChatShareArgs, ChatShowArgs, ChatStartArgs,
    ChatSummariseArgs, SearchIn,
};
use crate::cli::commands::{peer, search};
use crate::cli::context::{Context, text_argument};
use crate::cli::exit::{Exit, cli_codes};
use crate::cli::out::{CommandResult, Failure, fail};
use crate::cli::style::Style;
use crate::cli::table::{Cell, Column, painted, plain, render};
use crate::config;
use crate::present::duration;
use crate::text;
use crate::view::{
    Answers, ArchiveChat, ChatEntryView, ChatFilter, ChatPage, ChatStatus, ChatView, GetChatStats,
    ListChats, MentionView, ParticipantStats, ReadAnswers, ReceiptView, Say, ShowChat, StartChat,
    SummariseChat, TurnStats, unread_text,
};
use adjutant_core::chat::{ChatKind, EntryKind, Receipt};
use std::time::Instant;

const CHATS_SHOWN_MAX: u32 = 100;
/// Messages per page when a whole chat is printed.
const PAGE: u32 = 200;
/// How long one call for new messages waits at the hub, in milliseconds.
const WATCH_WAIT_MS: u64 = 60_000;
/// How long one call for answers waits at the hub, in milliseconds.
const ANSWER_WAIT_MS: u64 = 600_000;
/// Maximum number of flags of a summary.
const FLAGS_BEFORE_MAX: i64 = 20;
const INDENT: &str = "  ";
/// The note for a reader whose messages were lost.
const CHAT_RESET: &str =
    "the database of the hub was set back: messages that you have seen are lost (adj doctor)";

/// Runs `adj chat …`.
pub async fn chat(args: ChatArgs, cx: &Context) -> CommandResult {
    let Some(what) = args.what else {
        return match args.chat {
            Some(chat) => open::open(chat, cx).await,
            None => {
                ls(
                    &ChatLsArgs {
                        all: false,
                        limit: None,
                    },
                    cx,
                )
                .await
            }
        };
    };
    match what {
        ChatCommand::Ls(args) => ls(&args, cx).await,
        ChatCommand::Start(args) => start(args, cx).await,
        ChatCommand::Show(args) => show(&args, cx).await,
        ChatCommand::Post(args) => post(args, cx).await,
        ChatCommand::Watch(args) => watch(args.chat, cx).await,
        ChatCommand::Edit(args) => {
            let text = text_argument(&args.text, "the message")?;
            let posted = cx
                .hub
                .call(&Say {
                    edit_of: Some(args.message),
                    message: Some(text),
                    ..Say::default()
                })
                .await?;
            print_done(&posted, "edited", &posted.message.message_id, cx)
        }
        ChatCommand::Pin(args) => {
            let posted = cx
                .hub
                .call(&Say {
                    edit_of: Some(args.message),
                    pin: Some(!args.undo),
                    ..Say::default()
                })
                .await?;
            print_done(
                &posted,
                if args.undo { "unpinned" } else { "pinned" },
                &posted.message.message_id,
                cx,
            )
        }
        ChatCommand::Branch(args) => {
            let chat = cx
                .hub
                .call(&StartChat {
                    title: args.title,
                    branch_from: Some(args.from),
                    ..StartChat::default()
                })
                .await?;
            print_started(&chat, cx)
        }
        ChatCommand::Search(args) => search::search(args, &[SearchIn::Chats], cx).await,
        ChatCommand::Summarise(args) => summarise(args, cx).await,
        ChatCommand::Export(args) => files::export(&args, cx).await,
        ChatCommand::Import(args) => files::import(&args, cx).await,
        ChatCommand::Share(args) => peer::share(args, true, cx).await,
        ChatCommand::Unshare(args) => {
            peer::share(
                ChatShareArgs {
                    chat: args.chat,
                    peer: args.peer,
                    read_only: false,
                },
                false,
                cx,
            )
            .await
        }
        ChatCommand::Follow(args) => peer::follow(args, cx).await,
        ChatCommand::Unfollow(args) => peer::unfollow(args.chat, cx).await,
        ChatCommand::Stats(args) => stats(args.chat, cx).await,
        ChatCommand::Archive(args) => {
            let call = ArchiveChat {
                chat_id: args.chat,
                archived: !args.undo,
                cwd: working_directory()?,
                env: config::dispatch_env(),
            };
            let chat = cx.hub.call(&call).await?;
            print_done(
                &chat,
                if args.undo { "restored" } else { "archived" },
                &args.chat.to_string(),
                cx,
            )
        }
    }
}

fn print_done<T: serde::Serialize>(
    data: &T,
    what: &str,
    which: &str,
    cx: &Context,
) -> CommandResult {
    if cx.out.json {
        cx.out.print_json(data)?;
    } else {
        cx.out
            .print_message(&format!("{what}: {}", text::line(which)))?;
    }
    Ok(Exit::Done)
}

async fn ls(args: &ChatLsArgs, cx: &Context) -> CommandResult {
    let status = args.all.then(|| ChatFilter::All.into());
    let list = cx
        .hub
        .call(&ListChats {
            status,
            limit: Some(args.limit.unwrap_or(CHATS_SHOWN_MAX)),
            wait_ms: 0,
        })
        .await?;
    if cx.out.json {
        cx.out
            .print_json_list(&list.chats, u64::from(list.more), &[])?;
        return Ok(Exit::Done);
    }
    if list.chats.is_empty() {
        cx.out.print_message("no chats yet")?;
        cx.out.suggest("adj chat start \"TITLE\" --with AGENT")?;
        return Ok(Exit::Done);
    }
    let rows: Vec<Vec<Cell>> = list.chats.iter().map(|chat| row(chat, cx)).collect();
    let since = if cx.out.terminal { "AGE" } else { "LAST" };
    let columns = [
        Column::always("CHAT"),
        Column::optional("WITH", 3),
        Column::optional("MESSAGES", 2),
        Column::optional("UNREAD", 0),
        Column::optional(since, 1),
        Column::always("TITLE"),
    ];
    cx.out
        .print_text(&render(&columns, &rows, cx.out.columns, cx.out.paint))?;
    if list.more {
        cx.out
            .print_message("… and older chats: adj chat ls -n N")?;
    }
    Ok(Exit::Done)
}

fn row(chat: &ChatView, cx: &Context) -> Vec<Cell> {
    let unread = match (chat.unread, chat.mentioned) {
        (0, _) => plain(""),
        (unread, true) => painted(
            &format!("{}, mentions you", unread_text(unread)),
            Style::Attention,
        ),
        (unread, false) => plain(&unread_text(unread)),
    };
    let labels = [
        (chat.imported, "imported"),
        (chat.private, "private"),
        (chat.status == ChatStatus::Archived, "archived"),
        (chat.kind != ChatKind::Chat, chat.kind.as_str()),
    ];
    let labels: Vec<&str> = labels
        .iter()
        .filter(|(is, _)| *is)
        .map(|(_, word)| *word)
        .collect();
    let title = if labels.is_empty() {
        chat.title.clone()
    } else {
        format!("{} ({})", chat.title, labels.join(", "))
    };
    vec![
        painted(&chat.chat_id.to_string(), Style::Strong),
        plain(&chat.participant_count.to_string()),
        plain(&chat.last_seq.to_string()),
        unread,
        plain(&cx.time(&chat.last_at)),
        plain(&title),
    ]
}

async fn start(args: ChatStartArgs, cx: &Context) -> CommandResult {
    let ChatStartArgs {
        title,
        participants,
        private,
        template,
        instructions,
    } = args;
    let chat = cx
        .hub
        .call(&StartChat {
            title,
            participants,
            private,
            template,
            instructions,
            branch_from: None,
        })
        .await?;
    print_started(&chat, cx)
}

fn print_started(chat: &ChatView, cx: &Context) -> CommandResult {
    if cx.out.json {
        cx.out.print_json(chat)?;
        return Ok(Exit::Done);
    }
    cx.out.print_line(&chat.chat_id.to_string())?;
    cx.out.suggest(&format!(
        "adj chat {id}   or   adj chat post {id} \"…\"",
        id = chat.chat_id
    ))?;
    Ok(Exit::Done)
}

async fn show(args: &ChatShowArgs, cx: &Context) -> CommandResult {
    let mut call = ShowChat {
        chat_id: args.chat,
        after: args.after,
        changes: None,
        limit: Some(
            args.limit
                .unwrap_or(if args.after.is_some() { PAGE } else { 50 }),
        ),
        wait_ms: 0,
        peek: false,
    };
    let mut page = cx.hub.call(&call).await?;
    // A page is limited; --after without -n prints everything that follows.
    while args.after.is_some() && args.limit.is_none() && page.more > 0 {
        call.after = Some(page.cursor);
        let mut next = cx.hub.call(&call).await?;
        page.messages.append(&mut next.messages);
        (page.cursor, page.more, page.chat) = (next.cursor, next.more, next.chat);
    }
    if cx.out.json {
        cx.out.print_json(&page)?;
        return Ok(Exit::Done);
    }
    cx.out.print_text(&chat_head(&page, cx))?;
    if page.reset {
        cx.out.print_message(CHAT_RESET)?;
    }
    print_unread_before(&page, cx)?;
    print_entries(&page.messages, cx)?;
    for post in &page.chat.outgoing {
        let problem = post
            .problem
            .as_deref()
            .map(|problem| format!(": {}", text::line(problem)))
            .unwrap_or_default();
        cx.out.print_line(&format!(
            "{} {}  {}{problem}",
            text::line(&post.id),
            text::line(&post.name),
            text::line(&post.state)
        ))?;
        cx.out.print_text(&cx.out.indent(INDENT, &post.text))?;
    }
    let id = page.chat.chat_id;
    if page.more > 0 {
        cx.out
            .suggest(&format!("adj chat show {id} --after {}", page.cursor))?;
    } else {
        cx.out
            .suggest(&format!("adj chat {id}   or   adj chat post {id} \"…\""))?;
    }
    Ok(Exit::Done)
}

/// Prints the unread messages of a chat, which marks them as read.
pub async fn show_unread(mention: &MentionView, cx: &Context) -> Result<(), Failure> {
    let last = mention.message.seq;
    let before = (last - mention.unread).max(0);
    show(
        &ChatShowArgs {
            chat: mention.chat_id,
            after: Some(before),
            limit: None,
        },
        cx,
    )
    .await
    .map(|_| ())
}

/// Posts a reply to a message without waiting for answers.
pub async fn reply(mention: &MentionView, text: String, cx: &Context) -> Result<(), Failure> {
    let reply_to = Some(mention.message.message_id.clone());
    let (to, detach) = (mention.chat_id.to_string(), true);
    post(
        ChatPostArgs {
            to,
            text,
            reply_to,
            at: Vec::new(),
            pin: false,
            detach,
            wait: None,
            cwd: None,
        },
        cx,
    )
    .await
    .map(|_| ())
}

/// Prints how many unread messages come before a page.
fn print_unread_before(page: &ChatPage, cx: &Context) -> Result<(), Failure> {
    unread_before_text(page).map_or(Ok(()), |unread| cx.out.print_message(&unread))
}

fn unread_before_text(page: &ChatPage) -> Option<String> {
    let unread = Some(page.unread_before).filter(|unread| *unread > 0)?;
    Some(format!(
        "{} earlier unread: adj chat show {} --after {}",
        unread_text(unread),
        page.chat.chat_id,
        page.read_to
    ))
}

fn chat_head(page: &ChatPage, cx: &Context) -> String {
    let chat = &page.chat;
    let (id, title) = (format!("chat {}", chat.chat_id), text::line(&chat.title));
    let mut out = cx.out.fold(
        &format!("{id}  {title}"),
        &format!("{}  {title}", cx.out.paint.apply(Style::Strong, &id)),
    );
    let present = chat
        .participants
        .iter()
        .map(|one| match one.presence.as_str() {
            "" => text::line(&one.name),
            presence => format!("{} ({})", text::line(&one.name), text::line(presence)),
        });
    out.push_str(&cx.out.indent(
        INDENT,
        &format!("with {}", present.collect::<Vec<_>>().join(", ")),
    ));
    if chat.status == ChatStatus::Archived {
        out.push_str(&format!(
            "{INDENT}archived (restore: adj chat archive --undo {})\n",
            chat.chat_id
        ));
    }
    if chat.imported {
        out.push_str(&format!(
            "{INDENT}imported from a file: its authors are not verified\n"
        ));
    }
    if let Some(from) = &chat.branch_of {
        out.push_str(&format!("{INDENT}continues from {}\n", text::line(from)));
    }
    if !chat.shared_with.is_empty() {
        let names = chat.shared_with.iter().map(|share| {
            format!(
                "{}{}",
                text::line(&share.peer),
                if share.read_only { " (read only)" } else { "" }
            )
        });
        out.push_str(&format!(
            "{INDENT}shared with {}\n",
            names.collect::<Vec<_>>().join(", ")
        ));
    }
    if let Some(followed) = &chat.followed {
        let problem = followed
            .problem
            .as_deref()
            .map(|problem| format!(": {}", text::line(problem)))
            .unwrap_or_default();
        let state = if followed.ended {
            "a copy, no longer updated, of"
        } else {
            "follows"
        };
        out.push_str(&cx.out.indent(
            INDENT,
            &format!(
                "{state} chat {} on {}{problem}",
                followed.chat,
                text::line(&followed.peer)
            ),
        ));
    }
    if !chat.branches.is_empty() {
        let branches: Vec<String> = chat.branches.iter().map(ToString::to_string).collect();
        out.push_str(&format!("{INDENT}branches: {}\n", branches.join(", ")));
    }
    out
}

/// Prints entries: a heading each, and the indented text.
fn print_entries(entries: &[ChatEntryView], cx: &Context) -> Result<(), Failure> {
    print_entries_with(entries, None, cx)
}

fn print_entries_with(
    entries: &[ChatEntryView],
    note: Option<&str>,
    cx: &Context,
) -> Result<(), Failure> {
    if cx.out.json {
        return entries
            .iter()
            .try_for_each(|entry| cx.out.print_json(entry));
    }
    cx.out.print_text(&entries_text(entries, note, cx))
}

/// Formats entries: a heading each, and the indented text.
fn entries_text(entries: &[ChatEntryView], note: Option<&str>, cx: &Context) -> String {
    let mut shown = String::new();
    for entry in entries {
        let (id, name) = (
            format!("{}.{}", entry.chat_id, entry.seq),
            text::line(&entry.name),
        );
        let mut notes: Vec<String> = note.map(str::to_owned).into_iter().collect();
        if entry.kind != EntryKind::Message && entry.kind != EntryKind::Answer {
            notes.push(text::line(entry.kind.as_str()));
        }
        notes.extend(entry.reply_to.map(|seq| format!("reply to {seq}")));
        notes.extend(
            entry
                .key
                .as_ref()
                .map(|key| format!("key {}, version {}", text::line(key), entry.revision + 1)),
        );
        for (is, what) in [
            (entry.pinned, "pinned"),
            (entry.revision > 0 && entry.key.is_none(), "edited"),
        ] {
            if is {
                notes.push(what.to_owned());
            }
        }
        notes.extend(entry.receipts.iter().map(receipt_text));
        notes.push(cx.time(&entry.at));
        let notes = notes.join(", ");
        let paint = cx.out.paint;
        let painted = format!(
            "{} {}  {}",
            paint.apply(Style::Dim, &id),
            paint.apply(Style::Strong, &name),
            paint.apply(Style::Dim, &notes)
        );
        shown.push_str(&cx.out.fold(&format!("{id} {name}  {notes}"), &painted));
        shown.push_str(&cx.out.indent(INDENT, &entry.text));
    }
    shown
}

/// Describes the delivery state of a message to a run.
fn receipt_text(receipt: &ReceiptView) -> String {
    let known = receipt.receipt.known().map(Receipt::label);
    let word = known.unwrap_or_else(|| receipt.receipt.as_str());
    format!("{}: {}", text::line(&receipt.run_name), text::line(word))
}

async fn post(args: ChatPostArgs, cx: &Context) -> CommandResult {
    let text = text_argument(&args.text, "the message")?;
    let here = std::env::current_dir().map_err(|error| {
        fail(
            cli_codes::IO,
            format!("cannot find the working directory: {error}"),
        )
    })?;
    let cwd = args.cwd.map_or(here.clone(), |dir| here.join(dir));
    let chat_id = args.to.parse::<i64>().ok();
    let mut to = args.at;
    if chat_id.is_none() {
        to.insert(0, args.to);
    }
    let say = Say {
        chat_id,
        to,
        message: Some(text),
        reply_to: args.reply_to,
        pin: args.pin.then_some(true),
        cwd: cwd
            .to_str()
            .ok_or_else(|| {
                fail(
                    crate::view::codes::INVALID,
                    "the working directory is not UTF-8",
                )
            })?
            .to_owned(),
        env: config::dispatch_env(),
        ..Say::default()
    };
    let posted = cx.hub.call(&say).await?;
    let mut answers = Answers {
        waiting: posted.answering.clone(),
        ..Answers::default()
    };
    let mut printed = 0;
    if !cx.out.json {
        let head = format!(
            "{} in chat {} {}",
            posted.message.message_id,
            posted.chat_id,
            text::line(&posted.title)
        );
        cx.out.print_message(cx.out.fold(&head, &head).trim_end())?;
        for note in &posted.notes {
            cx.out
                .print_message(&format!("note: {}", text::line(note)))?;
        }
        for receipt in &posted.receipts {
            cx.out.print_message(&receipt_text(receipt))?;
        }
        if args.wait.is_some() && posted.receipts.is_empty() && posted.answering.is_empty() {
            cx.out.print_message(
                "note: not waiting: the message is addressed to no run or agent that replies",
            )?;
        }
    }
    // A run may reply late or never, so only a caller that asks for it waits.
    let deadline = args
        .wait
        .filter(|_| !posted.receipts.is_empty())
        .map(|wait| Instant::now() + wait);
    let mut is_waiting = !args.detach && (!answers.waiting.is_empty() || deadline.is_some());
    while is_waiting {
        let left = |end: Instant| {
            u64::try_from(end.saturating_duration_since(Instant::now()).as_millis())
                .unwrap_or(u64::MAX)
        };
        let left = deadline.map_or(ANSWER_WAIT_MS, left).min(ANSWER_WAIT_MS);
        let replies = deadline.is_some();
        answers = cx
            .hub
            .call(&ReadAnswers {
                chat_id: posted.chat_id,
                seq: posted.message.seq,
                turn: None,
                wait_ms: left,
                replies,
            })
            .await?;
        if !cx.out.json {
            print_entries(answers.answers.get(printed..).unwrap_or_default(), cx)?;
            printed = answers.answers.len();
        }
        is_waiting = !answers.waiting.is_empty()
            && !answers.has_messages
            && deadline.is_none_or(|end| Instant::now() < end);
    }
    let failed = answers
        .answers
        .iter()
        .any(|answer| answer.kind == EntryKind::Failure);
    if cx.out.json {
        cx.out.print_json(&serde_json::json!({"said": posted, "answers": answers.answers, "waiting": answers.waiting}))?;
    } else if deadline.is_some() {
        print_unanswered(&answers, cx)?;
    }
    let has_no_reply = deadline.is_some() && answers.answers.is_empty();
    Ok(match (failed, has_no_reply, answers.waiting.is_empty()) {
        // No more replies can arrive.
        (true, ..) | (false, true, true) => Exit::Failed,
        (false, true, false) => Exit::TimedOut,
        (false, false, _) => Exit::Done,
    })
}

/// Prints which runs have not replied, and why the wait has ended.
fn print_unanswered(answers: &Answers, cx: &Context) -> Result<(), Failure> {
    for receipt in answers
        .receipts
        .iter()
        .filter(|receipt| receipt.receipt == Receipt::RunEnded)
    {
        cx.out.print_message(&receipt_text(receipt))?;
    }
    if !answers.waiting.is_empty() {
        cx.out.print_message(&format!(
            "no reply yet from {}",
            text::line(&answers.waiting.join(", "))
        ))?;
    }
    if answers.has_messages {
        cx.out
            .print_message("messages for this run have arrived: adj show prints them")?;
    }
    Ok(())
}

async fn watch(chat: i64, cx: &Context) -> CommandResult {
    let page = cx
        .hub
        .call(&ShowChat {
            chat_id: chat,
            limit: Some(10),
            ..ShowChat::default()
        })
        .await?;
    print_unread_before(&page, cx)?;
    print_entries(&page.messages, cx)?;
    let (mut after, mut changes) = (page.cursor, page.changes);
    loop {
        let call = ShowChat {
            chat_id: chat,
            after: Some(after),
            changes: Some(changes),
            limit: Some(PAGE),
            wait_ms: WATCH_WAIT_MS,
            peek: false,
        };
        let page = cx.hub.call(&call).await?;
        if page.reset {
            cx.out.print_message(CHAT_RESET)?;
        }
        print_entries_with(&page.changed, Some("changed"), cx)?;
        print_entries(&page.messages, cx)?;
        (after, changes) = (page.cursor, page.changes);
    }
}

/// Returns the working directory.
fn working_directory() -> Result<String, Failure> {
    let here = std::env::current_dir().map_err(|error| {
        fail(
            cli_codes::IO,
            format!("cannot find the working directory: {error}"),
        )
    })?;
    here.to_str().map(str::to_owned).ok_or_else(|| {
        fail(
            crate::view::codes::INVALID,
            "the working directory is not UTF-8",
        )
    })
}

async fn summarise(args: ChatSummariseArgs, cx: &Context) -> CommandResult {
    let mut answers = cx
        .hub
        .call(&SummariseChat {
            chat_id: args.chat,
            agent: args.agent,
            cwd: working_directory()?,
            env: config::dispatch_env(),
        })
        .await?;
    while !answers.waiting.is_empty() {
        answers = cx
            .hub
            .call(&ReadAnswers {
                chat_id: args.chat,
                seq: 0,
                turn: answers.turn,
                wait_ms: ANSWER_WAIT_MS,
                replies: false,
            })
            .await?;
    }
    let mut entries = answers.answers;
    // Its flags come right before it.
    if let Some(summary) = entries
        .iter()
        .find(|entry| entry.kind == EntryKind::Summary)
        .map(|entry| entry.seq)
    {
        let after = Some((summary - 1 - FLAGS_BEFORE_MAX).max(0));
        let page = cx
            .hub
            .call(&ShowChat {
                chat_id: args.chat,
                after,
                limit: Some(PAGE),
                peek: true,
                ..ShowChat::default()
            })
            .await?;
        let before = page
            .messages
            .into_iter()
            .rev()
            .skip_while(|entry| entry.seq >= summary);
        let mut flags: Vec<ChatEntryView> = before
            .take_while(|entry| entry.kind == EntryKind::Flag)
            .collect();
        flags.reverse();
        entries.splice(0..0, flags);
    }
    if cx.out.json {
        cx.out.print_json_list(&entries, 0, &[])?;
    } else {
        print_entries(&entries, cx)?;
    }
    Ok(
        if entries.iter().any(|entry| entry.kind == EntryKind::Summary) {
            Exit::Done
        } else {
            Exit::Failed
        },
    )
}

async fn stats(chat: Option<i64>, cx: &Context) -> CommandResult {
    let stats = cx.hub.call(&GetChatStats { chat_id: chat }).await?;
    if cx.out.json {
        cx.out.print_json(&stats)?;
        return Ok(Exit::Done);
    }
    let ms = |time: Option<i64>| {
        time.map_or_else(
            || "–".to_owned(),
            |ms| duration(u64::try_from(ms).unwrap_or(0)),
        )
    };
    let us = |time: Option<u64>| time.map_or_else(|| "–".to_owned(), call_time);
    let memory = stats
        .hub_memory_bytes
        .map_or_else(|| "–".to_owned(), text::size);
    let fields = [
        ("chats", stats.chats.to_string()),
        (
            "messages",
            format!(
                "{} ({:.1} per chat)",
                stats.messages, stats.messages_per_chat
            ),
        ),
        ("participants", stats.participants.to_string()),
        (
            "duration",
            format!(
                "{}{}",
                seconds(stats.duration_s),
                if chat.is_none() { " on average" } else { "" }
            ),
        ),
        (
            "answers",
            format!(
                "{} answered, {} failed, {} cancelled, {} open",
                stats.answered, stats.failed, stats.cancelled, stats.open
            ),
        ),
        (
            "answer time",
            format!(
                "p50 {}, p95 {}",
                ms(stats.answer_ms_p50),
                ms(stats.answer_ms_p95)
            ),
        ),
        (
            "calls",
            format!(
                "{} since the hub started, {} failed, {} refused",
                stats.calls, stats.calls_failed, stats.calls_refused
            ),
        ),
        (
            "call time",
            format!(
                "p50 {}, p95 {}, longest {}",
                us(stats.call_us_p50),
                us(stats.call_us_p95),
                us(stats.call_us_max)
            ),
        ),
        (
            "hub",
            format!(
                "up {}, memory {memory}",
                duration(stats.up_s.saturating_mul(1_000))
            ),
        ),
    ];
    for (label, value) in fields {
        cx.out.print_line(&format!(
            "{} {value}",
            cx.out.paint.apply(Style::Dim, &format!("{label:<12}"))
        ))?;
    }
    for (n, participant) in stats.by_participant.iter().enumerate() {
        let label = if n == 0 { "by" } else { "" };
        let line = format!("{label:<12} {}", text::line(&participant_text(participant)));
        cx.out.print_text(&cx.out.fold(&line, &line))?;
    }
    Ok(Exit::Done)
}

fn seconds(seconds: i64) -> String {
    duration(u64::try_from(seconds).unwrap_or(0).saturating_mul(1_000))
}

/// Formats the time of a call, which is often shorter than a millisecond.
fn call_time(us: u64) -> String {
    if us < 10_000 {
        format!("{}.{}ms", us / 1_000, us % 1_000 / 100)
    } else {
        duration(us / 1_000)
    }
}

/// Describes what a participant has contributed in one line.
fn participant_text(of: &ParticipantStats) -> String {
    let messages = text::count(
        u64::try_from(of.messages).unwrap_or(0),
        "message",
        "messages",
    );
    let turns = of.turns.as_ref().map_or_else(String::new, |turns| {
        let TurnStats {
            answered,
            failed,
            cancelled,
            open,
            answer_ms_p50,
        } = turns;
        let others = [
            (*failed, "failed"),
            (*cancelled, "cancelled"),
            (*open, "open"),
        ];
        let others: String = others
            .iter()
            .filter(|(count, _)| *count > 0)
            .map(|(count, word)| format!(", {count} {word}"))
            .collect();
        let time = answer_ms_p50.map_or_else(String::new, |ms| {
            format!(" (median {})", duration(u64::try_from(ms).unwrap_or(0)))
        });
        format!("; {answered} answered{time}{others}")
    });
    format!("{}: {messages}{turns}", of.name)
}
