//! `adj chat`: chats with agents and runs.

mod directory;
mod entries;
mod files;
mod open;
mod post;
mod stats;

use crate::cli::args::{
    ChatArchiveArgs, ChatArgs, ChatBranchArgs, ChatCommand, ChatEditArgs, ChatLsArgs, ChatPinArgs,
    ChatPostArgs, ChatShareArgs, ChatShowArgs, ChatStartArgs, ChatSummariseArgs, ChatUnshareArgs,
    SearchIn,
};
use crate::cli::commands::{peer, search};
use crate::cli::context::{Context, text_argument};
use crate::cli::exit::Exit;
use crate::cli::out::{CommandResult, Failure};
use crate::cli::style::Style;
use crate::cli::table::{Cell, Column, painted, plain, render};
use crate::view::{
    ArchiveChat, ChatEntryView, ChatFilter, ChatPage, ChatStatus, ChatView, ListChats, MentionView,
    ReadAnswers, Say, ShowChat, StartChat, SummariseChat, unread_text,
};
use crate::{config, text};
use adjutant_core::chat::{ChatKind, EntryKind};
use directory::working_directory;
use entries::{INDENT, print_entries, print_entries_with};

const CHATS_SHOWN_MAX: u32 = 100;
/// Messages per page when a whole chat is printed.
const PAGE: u32 = 200;
/// How long one call for new messages waits at the hub, in milliseconds.
const WATCH_WAIT_MS: u64 = 60_000;
/// How long one call for answers waits at the hub, in milliseconds.
const ANSWER_WAIT_MS: u64 = 600_000;
/// Maximum number of flags of a summary.
const FLAGS_BEFORE_MAX: i64 = 20;
/// The note for a reader whose messages were lost.
const CHAT_RESET: &str =
    "the database of the hub was set back: messages that you have seen are lost (adj doctor)";

/// Runs `adj chat …`.
pub(crate) async fn chat(args: ChatArgs, cx: &Context) -> CommandResult {
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
        ChatCommand::Post(args) => post::post(args, cx).await,
        ChatCommand::Watch(args) => watch(args.chat, cx).await,
        ChatCommand::Edit(args) => edit(args, cx).await,
        ChatCommand::Pin(args) => pin(args, cx).await,
        ChatCommand::Branch(args) => branch(args, cx).await,
        ChatCommand::Search(args) => search::search(args, &[SearchIn::Chats], cx).await,
        ChatCommand::Summarise(args) => summarise(args, cx).await,
        ChatCommand::Export(args) => files::export(&args, cx).await,
        ChatCommand::Import(args) => files::import(&args, cx).await,
        ChatCommand::Share(args) => peer::share(args, true, cx).await,
        ChatCommand::Unshare(ChatUnshareArgs { chat, peer }) => {
            let share = ChatShareArgs {
                chat,
                peer,
                read_only: false,
            };
            peer::share(share, false, cx).await
        }
        ChatCommand::Follow(args) => peer::follow(args, cx).await,
        ChatCommand::Unfollow(args) => peer::unfollow(args.chat, cx).await,
        ChatCommand::Stats(args) => stats::stats(args.chat, cx).await,
        ChatCommand::Archive(args) => archive(&args, cx).await,
    }
}

async fn edit(args: ChatEditArgs, cx: &Context) -> CommandResult {
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

async fn pin(args: ChatPinArgs, cx: &Context) -> CommandResult {
    let posted = cx
        .hub
        .call(&Say {
            edit_of: Some(args.message),
            pin: Some(!args.undo),
            ..Say::default()
        })
        .await?;
    let what = if args.undo { "unpinned" } else { "pinned" };
    print_done(&posted, what, &posted.message.message_id, cx)
}

async fn branch(args: ChatBranchArgs, cx: &Context) -> CommandResult {
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

async fn archive(args: &ChatArchiveArgs, cx: &Context) -> CommandResult {
    let call = ArchiveChat {
        chat_id: args.chat,
        archived: !args.undo,
        cwd: working_directory()?,
        env: config::dispatch_env(),
    };
    let chat = cx.hub.call(&call).await?;
    let what = if args.undo { "restored" } else { "archived" };
    print_done(&chat, what, &args.chat.to_string(), cx)
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
pub(crate) async fn show_unread(mention: &MentionView, cx: &Context) -> Result<(), Failure> {
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
pub(crate) async fn reply(
    mention: &MentionView,
    text: String,
    cx: &Context,
) -> Result<(), Failure> {
    let reply_to = Some(mention.message.message_id.clone());
    let (to, detach) = (mention.chat_id.to_string(), true);
    post::post(
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
