//! Describes an item of `adj top` in full.

use super::board::Item;
use super::look::{Line, Look};
use crate::cli::out::Out;
use crate::cli::style::Style as Role;
use crate::cli::{details, run_state};
use crate::present::not_kept;
use crate::text;
use crate::view::{InterruptedUndoView, MentionView, RunView};

/// Describes an item in full, wrapped.
pub(super) fn item_lines(item: Item<'_>, look: Look, columns: u16) -> Vec<Line> {
    let output = Look::output(columns);
    let block = match item {
        Item::Request(request) => details::request_text(request, look.now, &output)
            .unwrap_or_else(|_| text::line(&request.number)),
        Item::Run(run) => run_text(run, look, &output),
        Item::Mention(mention) => mention_text(mention, look, &output),
    };
    let mut lines: Vec<Line> = Vec::new();
    for line in block.lines() {
        let role = if lines.is_empty() {
            Role::Attention
        } else {
            Role::Plain
        };
        lines.extend(
            text::wrap(line, usize::from(columns))
                .into_iter()
                .map(|line| (role, line)),
        );
    }
    if let Some(first) = lines
        .first_mut()
        .filter(|_| !matches!(item, Item::Request(_)))
    {
        first.0 = Role::Strong;
    }
    lines
}

fn run_text(run: &RunView, look: Look, output: &Out) -> String {
    let mut out = text::line(&format!(
        "{} ({}): {}",
        run.name,
        run.agent,
        run_state::label(run, look.now).text
    )) + "\n";
    let mut part = |label: &str, text: &str| {
        if !text.trim().is_empty() {
            out.push_str(&output.indent(
                details::INDENT,
                &if label.is_empty() {
                    text.to_owned()
                } else {
                    format!("{label}: {text}")
                },
            ));
        }
    };
    if let Some(attention) = &run.attention {
        part("", &attention.details);
        part("needs", attention.needs.as_deref().unwrap_or_default());
    }
    part(
        "undo",
        &run.undo_interrupted
            .as_ref()
            .map(InterruptedUndoView::line)
            .unwrap_or_default(),
    );
    part(
        "files",
        &run.snapshot_problem
            .as_deref()
            .map(not_kept)
            .unwrap_or_default(),
    );
    part("task", &run.task);
    let percent = run
        .percent
        .filter(|_| !run_state::is_over(run))
        .map(|percent| format!("{percent} % "))
        .unwrap_or_default();
    part(
        "progress",
        &format!(
            "{percent}{}",
            run.progress
                .as_deref()
                .filter(|_| !run_state::is_over(run))
                .unwrap_or_default()
        ),
    );
    part(
        "queue",
        run.queue
            .as_ref()
            .map(|queue| queue.why.as_str())
            .unwrap_or_default(),
    );
    if run.attention.is_none() {
        part("reason", run.reason.as_deref().unwrap_or_default());
    }
    part(
        "result",
        run.summary
            .as_deref()
            .or(run.result.as_deref())
            .unwrap_or_default(),
    );
    part("directory", &run.cwd);
    part(
        "changed",
        &run.changed_files
            .as_ref()
            .map(|files| text::count(files.len() as u64, "file", "files"))
            .unwrap_or_default(),
    );
    part(
        "cost",
        &run.usage
            .as_ref()
            .and_then(|usage| usage.cost_usd)
            .map(|cost| format!("${cost:.2}"))
            .unwrap_or_default(),
    );
    out
}

fn mention_text(mention: &MentionView, look: Look, output: &Out) -> String {
    let message = &mention.message;
    let head = format!(
        "{} in chat {} ({}), {} ago",
        message.name,
        mention.chat_id,
        mention.title,
        look.age(&message.at)
    );
    text::line(&head) + "\n" + &output.indent(details::INDENT, &message.text)
}
