//! `adj board`: the boards that runs share.

use crate::cli::args::BoardArgs;
use crate::cli::context::{Context, text_argument};
use crate::cli::exit::Exit;
use crate::cli::out::CommandResult;
use crate::cli::style::Style;
use crate::text;
use crate::view::{BoardEntryView, ReadBoard, Say};

const INDENT: &str = "  ";

/// Prints the boards merged, or posts an entry.
pub(crate) async fn board(args: BoardArgs, cx: &Context) -> CommandResult {
    match args.post {
        Some(entry) => post(args.run, &entry, args.key, args.expect, cx).await,
        None => {
            print(
                ReadBoard {
                    run: args.run,
                    limit: args.limit,
                },
                cx,
            )
            .await
        }
    }
}

async fn post(
    run: Option<String>,
    entry: &str,
    key: Option<String>,
    expect: Option<u32>,
    cx: &Context,
) -> CommandResult {
    let to = if run.is_some() { "root-board" } else { "board" };
    let message = Some(text_argument(entry, "the entry")?);
    let posted = cx
        .hub
        .call(&Say {
            to: vec![to.to_owned()],
            board_of: run,
            message,
            key,
            expect,
            ..Say::default()
        })
        .await?;
    if cx.out.json {
        cx.out.print_json(&posted)?;
        return Ok(Exit::Done);
    }
    let version = posted.message.key.as_ref().map_or_else(String::new, |key| {
        format!(
            ", key {} version {}",
            text::line(key),
            posted.message.revision + 1
        )
    });
    cx.out.print_message(&format!(
        "{} on {}{version}",
        posted.message.message_id,
        text::line(&posted.title)
    ))?;
    Ok(Exit::Done)
}

async fn print(call: ReadBoard, cx: &Context) -> CommandResult {
    let board = cx.hub.call(&call).await?;
    if cx.out.json {
        cx.out
            .print_json_list(&board.entries, u64::from(board.more), &[])?;
        return Ok(Exit::Done);
    }
    if board.entries.is_empty() {
        cx.out.print_message("no entries yet")?;
        cx.out
            .suggest("adj board --post '{\"step\": 1}' --key plan")?;
        return Ok(Exit::Done);
    }
    if board.more {
        cx.out.print_message("older entries: adj board -n N")?;
    }
    for entry in &board.entries {
        print_entry(entry, cx)?;
    }
    Ok(Exit::Done)
}

fn print_entry(entry: &BoardEntryView, cx: &Context) -> Result<(), crate::cli::out::Failure> {
    let key = entry
        .key
        .as_ref()
        .map(|key| format!("key {}, version {}", text::line(key), entry.version));
    let notes: Vec<String> = [text::line(&entry.board)]
        .into_iter()
        .chain(key)
        .chain([cx.time(&entry.at)])
        .collect();
    let (id, name, notes, paint) = (
        &entry.message_id,
        text::line(&entry.name),
        notes.join(", "),
        cx.out.paint,
    );
    let painted = format!(
        "{} {}  {}",
        paint.apply(Style::Dim, id),
        paint.apply(Style::Strong, &name),
        paint.apply(Style::Dim, &notes)
    );
    let value = entry
        .value
        .as_str()
        .map_or_else(|| entry.value.to_string(), str::to_owned);
    cx.out.print_text(
        &(cx.out.fold(&format!("{id} {name}  {notes}"), &painted) + &cx.out.indent(INDENT, &value)),
    )
}
