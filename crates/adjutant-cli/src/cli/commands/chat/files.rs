//! Chat export and import: Markdown for people, lossless JSON lines.

use crate::cli::args::{ChatExportArgs, ChatFormat, ChatImportArgs};
use crate::cli::context::Context;
use crate::cli::exit::{Exit, cli_codes};
use crate::cli::out::{CommandResult, Failure, fail};
use crate::text;
use crate::view::{CarriedChat, CarriedEntry, ChatView, ExportChat, ImportChat, ShowChat, codes};
use adjutant_core::chat::{EntryKind, FileCheck};
use adjutant_core::{Denied, hex};
use serde::de::DeserializeOwned;
use sha2::{Digest, Sha256};
use std::io::Read;

/// Maximum number of entries and bytes of text in one part of an import.
const PART: usize = 500;
const PART_BYTES_MAX: usize = 4 * 1024 * 1024;

/// Prints a whole chat.
pub(super) async fn export(args: &ChatExportArgs, cx: &Context) -> CommandResult {
    match args.format {
        ChatFormat::Md => markdown(args.chat, cx).await,
        ChatFormat::Jsonl => lines(args.chat, cx).await,
    }
}

async fn lines(chat_id: i64, cx: &Context) -> CommandResult {
    let mut after = 0;
    loop {
        let part = cx.hub.call(&ExportChat { chat_id, after }).await?;
        if let Some(head) = &part.head {
            cx.out.print_data(&json(head)?)?;
        }
        for entry in &part.entries {
            cx.out.print_data(&json(entry)?)?;
        }
        match part.next {
            Some(next) => after = next,
            None => return Ok(Exit::Done),
        }
    }
}

fn json<T: serde::Serialize>(value: &T) -> Result<String, Failure> {
    let line = serde_json::to_string(value)
        .map_err(|error| fail(cli_codes::IO, format!("cannot write JSON: {error}")))?;
    Ok(line + "\n")
}

async fn markdown(chat_id: i64, cx: &Context) -> CommandResult {
    let chat = chat(chat_id, cx).await?;
    let names: Vec<String> = chat
        .participants
        .iter()
        .map(|one| text::line(&one.name))
        .collect();
    let (title, by) = (text::line(&chat.title), text::line(&chat.started_by));
    cx.out.print_data(&format!(
        "# {title}\n\nChat {chat_id}, started {} by {by}. With {}.\n",
        chat.started_at,
        names.join(", ")
    ))?;
    // A branch starts with the messages that it continues from, as answering agents see them.
    let mut before = Vec::new();
    let mut branch = branch_point(&chat);
    while let Some((id, last)) = branch {
        let parent = self::chat(id, cx).await?;
        branch = branch_point(&parent).filter(|(older, _)| *older < id);
        before.push((parent, last));
    }
    for (parent, last) in before.iter().rev() {
        cx.out.print_line(&format!(
            "\nFrom chat {}, {}:",
            parent.chat_id,
            text::line(&parent.title)
        ))?;
        entries(parent.chat_id, *last, cx).await?;
    }
    if !before.is_empty() {
        cx.out.print_line(&format!("\nChat {chat_id}:"))?;
    }
    entries(chat_id, i64::MAX, cx).await?;
    Ok(Exit::Done)
}

/// Reads a chat without its messages.
async fn chat(chat_id: i64, cx: &Context) -> Result<ChatView, Failure> {
    Ok(cx
        .hub
        .call(&ShowChat {
            chat_id,
            limit: Some(1),
            peek: true,
            ..ShowChat::default()
        })
        .await?
        .chat)
}

/// Returns the chat that a branch continues from, and the last shared message.
fn branch_point(chat: &ChatView) -> Option<(i64, i64)> {
    let (id, seq) = chat.branch_of.as_deref()?.split_once('.')?;
    Some((id.parse().ok()?, seq.parse().ok()?))
}

/// Prints a chat's messages up to a number.
async fn entries(chat_id: i64, last: i64, cx: &Context) -> Result<(), Failure> {
    let mut after = 0;
    loop {
        let page = cx
            .hub
            .call(&ShowChat {
                chat_id,
                after: Some(after),
                limit: Some(500),
                peek: true,
                ..ShowChat::default()
            })
            .await?;
        for entry in page.messages.iter().filter(|entry| entry.seq <= last) {
            let mut head = format!(
                "\n## {}.{} {}, {}",
                entry.chat_id,
                entry.seq,
                text::line(&entry.name),
                entry.at
            );
            if entry.kind != EntryKind::Message {
                head.push_str(&format!(" ({})", text::line(entry.kind.as_str())));
            }
            if let Some(seq) = entry.reply_to {
                head.push_str(&format!(", to {chat_id}.{seq}"));
            }
            cx.out.print_data(&format!("{head}\n\n"))?;
            // Quoted, so that a heading in a message cannot look like ours.
            let columns = cx
                .out
                .columns
                .map_or(usize::MAX, |columns| columns.saturating_sub(2));
            for line in text::block(&entry.text)
                .lines()
                .flat_map(|line| text::wrap(line, columns))
            {
                cx.out
                    .print_data(&format!("{}\n", format!("> {line}").trim_end()))?;
            }
        }
        if page.more == 0 || page.messages.is_empty() || page.cursor >= last {
            return Ok(());
        }
        after = page.cursor;
    }
}

/// Creates a chat from exported lines. The whole file is validated first; the chat becomes visible
/// when it is complete; a repeated import continues where it was interrupted.
pub(super) async fn import(args: &ChatImportArgs, cx: &Context) -> CommandResult {
    let name = args.file.display().to_string();
    let broken = |error: std::io::Error| fail(cli_codes::IO, format!("{name}: {error}"));
    let mut input: Box<dyn Read> = if name == "-" {
        Box::new(std::io::stdin())
    } else {
        Box::new(std::fs::File::open(&args.file).map_err(broken)?)
    };
    let mut text = String::new();
    input.read_to_string(&mut text).map_err(broken)?;
    let hash = hex(Sha256::digest(&text));
    let mut lines = text.lines().enumerate();
    let Some((_, first)) = lines.next() else {
        return Err(fail(codes::INVALID, format!("{name} is empty")));
    };
    let unusable = |number: usize, denied: Denied| {
        fail(
            codes::INVALID,
            format!("{name}, line {}: {denied}", number + 1),
        )
    };
    let head: CarriedChat = parse_line(&name, 0, first)?;
    let mut check = FileCheck::head(&head.parts()).map_err(|denied| unusable(0, denied))?;
    let mut parts = vec![ImportChat {
        head: Some(head),
        ..ImportChat::default()
    }];
    let mut bytes = 0;
    for (number, line) in lines {
        let entry: CarriedEntry = parse_line(&name, number, line)?;
        check
            .entry(&entry.parts())
            .map_err(|denied| unusable(number, denied))?;
        bytes += line.len();
        match parts.last_mut() {
            Some(part)
                if part.entries.len() < PART
                    && (bytes <= PART_BYTES_MAX || part.entries.is_empty()) =>
            {
                part.entries.push(entry)
            }
            _ => {
                parts.push(ImportChat {
                    entries: vec![entry],
                    ..ImportChat::default()
                });
                bytes = line.len();
            }
        }
    }
    drop(text);
    let mut chat: Option<ChatView> = None;
    let last = parts.len() - 1;
    for (number, mut part) in parts.into_iter().enumerate() {
        part.chat_id = chat.as_ref().map(|chat| chat.chat_id);
        part.more = number < last;
        let into = part
            .chat_id
            .map_or_else(|| "new".to_owned(), |id| id.to_string());
        chat = Some(
            cx.hub
                .call_with_key(&part, &format!("import-{hash}-{into}-{number}"))
                .await?,
        );
    }
    let Some(chat) = chat else {
        return Err(fail(codes::INTERNAL, "nothing was imported"));
    };
    if cx.out.json {
        cx.out.print_json(&chat)?;
    } else {
        cx.out.print_line(&chat.chat_id.to_string())?;
        cx.out.suggest(&format!("adj chat show {}", chat.chat_id))?;
    }
    Ok(Exit::Done)
}

fn parse_line<T: DeserializeOwned>(name: &str, number: usize, line: &str) -> Result<T, Failure> {
    serde_json::from_slice(line.as_bytes()).map_err(|error| {
        fail(
            codes::INVALID,
            format!("{name}, line {}: {error}", number + 1),
        )
    })
}
