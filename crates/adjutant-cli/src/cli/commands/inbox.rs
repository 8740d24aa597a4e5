//! `adj inbox`: lists requests, runs and messages that need the person.

use crate::cli::args::InboxArgs;
use crate::cli::context::{Context, now};
use crate::cli::exit::Exit;
use crate::cli::out::{CommandResult, Failure};
use crate::cli::style::Style;
use crate::cli::table::{Cell, Column, painted, plain, render};
use crate::cli::{details, next_step, run_state};
use crate::present::{asked_for, not_kept};
use crate::text;
use crate::view::{AttentionList, ListAttention, ListRequests, RequestView, unread_text};
use adjutant_core::RequestStateKind;
use adjutant_core::chat::EntryKind;

/// The indent before what a decision allows.
const PART_INDENT: &str = "    ";
/// Maximum number of characters of one part, and of parts of one kind.
const PART_CHARS_MAX: usize = 300;
const PARTS_MAX: usize = 5;
/// Maximum width of a chat title in front of a message.
const TITLE_COLUMNS_MAX: usize = 24;

/// Lists what needs the person: requests, oldest first, stopped and failed runs, messages in chats.
pub(crate) async fn inbox(args: &InboxArgs, cx: &Context) -> CommandResult {
    let mut list = cx
        .hub
        .call(&ListAttention {
            run: args.run.clone(),
            ..ListAttention::default()
        })
        .await?;
    let first = next_step::first_command(&list);
    if args.all {
        let all = cx
            .hub
            .call(&ListRequests {
                run: args.run.clone(),
                all: true,
                limit: None,
            })
            .await?;
        (list.requests, list.requests_more) = (all.requests, all.more);
    }
    if cx.out.json {
        cx.out.print_json_inbox(&list)?;
        return Ok(Exit::Done);
    }
    if let Some(set_back) = &list.set_back {
        cx.out.print_message(&text::line(&set_back.summary()))?;
    }
    if let Some(change) = &list.policy_change {
        cx.out.print_message(&text::line(&change.summary()))?;
    } else if list.total() == 0 {
        cx.out.print_message("nothing needs you")?;
        return Ok(Exit::Done);
    }
    if !list.requests.is_empty() {
        print_requests(&list, cx)?;
    }
    if !list.runs.is_empty() {
        print_runs(&list, cx)?;
    }
    if !list.mentions.is_empty() {
        print_mentions(&list, cx)?;
    }
    match first {
        Some(_) if cx.out.interactive && list.total() > 0 => cx.out.suggest("adj next")?,
        Some(command) => cx.out.suggest(&command)?,
        None => {}
    }
    Ok(Exit::Done)
}

/// Prints the runs that need the person, one line each.
fn print_runs(list: &AttentionList, cx: &Context) -> Result<(), Failure> {
    let since = if cx.out.terminal { "AGE" } else { "AT" };
    let rows: Vec<Vec<Cell>> = list
        .runs
        .iter()
        .map(|run| {
            let label = run_state::label(run, now());
            let mut what = run_state::need_text(run).unwrap_or_default();
            if let Some(why) = &run.changes.snapshot_problem {
                what.push_str(&format!("; {}", not_kept(why)));
            }
            vec![
                painted(&run.identity.name, Style::Strong),
                plain(&run.identity.agent),
                painted(&label.text, label.style),
                plain(&cx.time(run.times.ended_at.as_ref().unwrap_or(&run.times.updated_at))),
                plain(&text::line(&what)),
            ]
        })
        .collect();
    let columns = [
        Column::always("RUN"),
        Column::optional("AGENT", 2),
        Column::optional("STATE", 0),
        Column::optional(since, 1),
        Column::always("WHAT"),
    ];
    cx.out
        .print_text(&render(&columns, &rows, cx.out.columns, cx.out.paint))?;
    if list.runs_more > 0 {
        cx.out
            .print_message(&format!("… {} more runs", list.runs_more))?;
    }
    Ok(())
}

/// Prints the chats with messages for the person, one line each.
fn print_mentions(list: &AttentionList, cx: &Context) -> Result<(), Failure> {
    let since = if cx.out.terminal { "AGE" } else { "AT" };
    let rows: Vec<Vec<Cell>> = list
        .mentions
        .iter()
        .map(|mention| {
            let message = &mention.message;
            let what = if message.kind == EntryKind::Flag {
                format!("flag: {}", message.text)
            } else {
                message.text.clone()
            };
            let unread = if mention.unread > 1 {
                format!("{} unread", unread_text(mention.unread))
            } else {
                String::new()
            };
            let number = painted(&message.message_id, Style::Attention);
            vec![
                number,
                painted(&message.name, Style::Strong),
                plain(&text::cut(&text::line(&mention.title), TITLE_COLUMNS_MAX)),
                plain(&unread),
                plain(&cx.time(&message.at)),
                plain(&what),
            ]
        })
        .collect();
    let columns = [
        Column::always("MESSAGE"),
        Column::optional("FROM", 0),
        Column::optional("CHAT", 2),
        Column::optional("", 3),
        Column::optional(since, 1),
        Column::always("WHAT"),
    ];
    cx.out
        .print_text(&render(&columns, &rows, cx.out.columns, cx.out.paint))?;
    if list.mentions_more {
        cx.out.print_message("… and more: adj chat ls")?;
    }
    Ok(())
}

/// Returns the status of a request, and for an open one to whom it was escalated last.
fn escalation_text(request: &RequestView) -> String {
    let last = request
        .escalated
        .last()
        .filter(|_| request.status == RequestStateKind::Pending);
    last.map_or_else(
        || details::status_word(request).to_owned(),
        |last| format!("with {}", text::line(&last.to)),
    )
}

fn print_requests(list: &AttentionList, cx: &Context) -> Result<(), Failure> {
    let since = if cx.out.terminal { "WAITS" } else { "ASKED" };
    let rows: Vec<Vec<Cell>> = list
        .requests
        .iter()
        .map(|request| {
            let number = painted(&request.number, Style::Attention);
            let run = painted(&request.run_name, Style::Strong);
            vec![
                number,
                run,
                plain(request.kind.as_str()),
                plain(&escalation_text(request)),
                plain(&cx.time(&request.times.asked_at)),
                plain(&request_summary(request)),
            ]
        })
        .collect();
    let columns = [
        Column::always("NO"),
        Column::optional("RUN", 0),
        Column::optional("KIND", 2),
        Column::optional("STATUS", 3),
        Column::optional(since, 1),
        Column::always("WHAT"),
    ];
    // What a decision allows is never cut away at the edge of the terminal.
    let table = render(&columns, &rows, cx.out.columns, cx.out.paint);
    let mut lines = table.lines();
    let mut shown = lines
        .next()
        .map(|head| format!("{head}\n"))
        .unwrap_or_default();
    for (line, request) in lines.zip(&list.requests) {
        shown.push_str(line);
        shown.push('\n');
        let (parts, is_whole) = asked_for(request).part_lines(PART_CHARS_MAX, PARTS_MAX);
        for part in parts {
            shown.push_str(&cx.out.indent(PART_INDENT, &text::line(&part)));
        }
        if !is_whole {
            shown.push_str(&cx.out.indent(
                PART_INDENT,
                &format!("all of it: adj show {}", text::line(&request.run_name)),
            ));
        }
    }
    cx.out.print_text(&shown)?;
    if list.requests_more > 0 {
        cx.out
            .print_message(&format!("… {} more", list.requests_more))?;
    }
    Ok(())
}

fn request_summary(request: &RequestView) -> String {
    let options: Vec<String> = request
        .content
        .options
        .iter()
        .enumerate()
        .map(|(n, option)| format!("{}) {option}", n + 1))
        .collect();
    let of = request
        .group
        .as_ref()
        .map(|group| format!("({} of {}) ", group.place, group.size))
        .unwrap_or_default();
    let outcome = match details::request_outcome(request) {
        outcome if outcome.is_empty() => String::new(),
        outcome => format!("→ {outcome}  "),
    };
    [
        format!("{outcome}{of}{}", asked_for(request).text),
        options.join(" "),
    ]
    .join("  ")
    .trim_end()
    .to_owned()
}
