//! `adj search`: finds chat messages, requests and reports.

use crate::cli::args::{SearchArgs, SearchIn};
use crate::cli::context::{Context, now};
use crate::cli::exit::Exit;
use crate::cli::out::CommandResult;
use crate::cli::style::Style;
use crate::text;
use crate::view::{Search, SearchHit};
use std::time::Duration;

/// Searches and prints the matches.
pub(crate) async fn search(args: SearchArgs, within: &[SearchIn], cx: &Context) -> CommandResult {
    let ago = |ago: Option<Duration>| {
        ago.and_then(|ago| now().checked_sub(ago).ok())
            .map(|at| at.to_string())
    };
    let call = Search {
        query: args.words.join(" "),
        within: within
            .iter()
            .map(|source| source.word().to_owned())
            .collect(),
        chat_id: args.chat,
        from: args.from,
        since: ago(args.since),
        until: ago(args.until),
        has_question: args.questions,
        best: args.best,
        limit: args.limit,
    };
    let found = cx.hub.call(&call).await?;
    if cx.out.json {
        cx.out.print_json(&found)?;
        return Ok(Exit::Done);
    }
    for hit in &found.hits {
        let what = match (&hit.message_id, &hit.number) {
            (_, Some(number)) => number.clone(),
            (Some(message), None) => message.clone(),
            (None, None) => "report".to_owned(),
        };
        let (what, name) = (text::line(&what), text::line(&hit.name));
        let chat = if hit.chat_id.is_some() {
            format!("  {},", text::line(&hit.title))
        } else {
            " ".to_owned()
        };
        let rest = format!("{chat} {}", cx.time(&hit.at));
        let painted = format!(
            "{} {}{rest}",
            cx.out.paint.apply(Style::Dim, &what),
            cx.out.paint.apply(Style::Strong, &name)
        );
        cx.out
            .print_text(&cx.out.fold(&format!("{what} {name}{rest}"), &painted))?;
        cx.out
            .print_text(&cx.out.indent("  ", &text::line(&hit.snippet)))?;
    }
    if found.incomplete {
        cx.out.print_message(
            "the search stopped early; narrow it with more words, --chat, --from or --since",
        )?;
    }
    match found.hits.first() {
        None => cx.out.print_message("no matches (all words must appear)")?,
        Some(hit) => cx.out.suggest(&next(hit))?,
    }
    Ok(Exit::Done)
}

/// Returns the command that shows a match in its context.
fn next(hit: &SearchHit) -> String {
    match (hit.chat_id, &hit.run_name) {
        (Some(chat), _) => {
            let seq = hit
                .message_id
                .as_deref()
                .and_then(|id| id.split_once('.'))
                .and_then(|(_, seq)| seq.parse::<i64>().ok());
            format!(
                "adj chat show {chat} --after {}",
                seq.map_or(0, |seq| (seq - 3).max(0))
            )
        }
        (None, Some(run)) if hit.number.is_some() => format!("adj inbox --all {}", text::line(run)),
        (None, run) => format!(
            "adj show {}",
            text::line(run.as_deref().unwrap_or_default())
        ),
    }
}
