//! Describes an item of `adj top` in full.

use super::board::Item;
use super::look::{Line, Look};
use crate::cli::out::Out;
use crate::cli::style::Style as Role;
use crate::cli::{details, run_state};
use crate::present::not_kept;
use crate::text;
use crate::view::{InterruptedUndoView, MentionView, RunView};
use adjutant_core::units::money;

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
        run.identity.name,
        run.identity.agent,
        run_state::label(run, look.now).text
    )) + "\n";
    let mut part = |label: &str, text: Option<String>| {
        if let Some(text) = text.filter(|text| !text.trim().is_empty()) {
            out.push_str(&output.indent(details::INDENT, &format!("{label}{text}")));
        }
    };
    if let Some(attention) = &run.condition.attention {
        part("", Some(attention.details.clone()));
        part("needs: ", attention.needs.clone());
    }
    let undo = run.changes.undo_interrupted.as_ref();
    part("undo: ", undo.map(InterruptedUndoView::line));
    part(
        "files: ",
        run.changes.snapshot_problem.as_deref().map(not_kept),
    );
    part("task: ", Some(run.identity.task.clone()));
    let percent = run.activity.percent.map(|percent| format!("{percent} %"));
    let progress = percent.into_iter().chain(run.activity.progress.clone());
    let progress = progress.collect::<Vec<_>>().join(" ");
    part("progress: ", Some(progress).filter(|_| !run.is_over()));
    part(
        "queue: ",
        run.in_queue.queue.as_ref().map(|queue| queue.why.clone()),
    );
    let reason = run.condition.reason.clone();
    part(
        "reason: ",
        reason.filter(|_| run.condition.attention.is_none()),
    );
    part(
        "result: ",
        run.results
            .summary
            .clone()
            .or_else(|| run.results.result.clone()),
    );
    part("directory: ", Some(run.place.cwd.clone()));
    let changed = run
        .changes
        .changed_files
        .as_ref()
        .map(|files| files.len() as u64);
    part(
        "changed: ",
        changed.map(|files| text::count(files, "file", "files")),
    );
    let cost = run.cost.usage.as_ref().and_then(|usage| usage.cost_usd);
    part("cost: ", cost.map(money::of));
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
