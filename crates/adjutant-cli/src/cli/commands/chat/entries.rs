//! How the entries of a chat are printed.

use crate::cli::context::Context;
use crate::cli::out::Failure;
use crate::cli::style::Style;
use crate::text;
use crate::view::{ChatEntryView, ReceiptView};
use adjutant_core::chat::{EntryKind, Receipt};

pub(super) const INDENT: &str = "  ";

/// Prints entries: a heading each, and the indented text.
pub(super) fn print_entries(entries: &[ChatEntryView], cx: &Context) -> Result<(), Failure> {
    print_entries_with(entries, None, cx)
}

pub(super) fn print_entries_with(
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
pub(super) fn entries_text(entries: &[ChatEntryView], note: Option<&str>, cx: &Context) -> String {
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
pub(super) fn receipt_text(receipt: &ReceiptView) -> String {
    let known = receipt.receipt.known().map(Receipt::label);
    let word = known.unwrap_or_else(|| receipt.receipt.as_str());
    format!("{}: {}", text::line(&receipt.run_name), text::line(word))
}
