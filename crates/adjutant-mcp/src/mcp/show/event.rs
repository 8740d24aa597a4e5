//! Events and messages.

use crate::mcp::text::{line, quoted};
use crate::view::{EventView, MessageView};
use adjutant_core::shorten;
use serde_json::{Value, json};

/// Formats an event as one line.
#[must_use]
pub(crate) fn event_line(event: &EventView) -> String {
    let signal = match (&event.signal, &event.source) {
        (Some(signal), Some(source)) => format!(
            " [{} by {}]",
            line(signal.as_str(), 40),
            line(source.as_str(), 20)
        ),
        (None, Some(source)) => format!(" [by {}]", line(source.as_str(), 20)),
        _ => String::new(),
    };
    format!(
        "{} {} {}{signal} ({}): {}",
        event.seq,
        line(&event.at, 40),
        line(event.kind.as_str(), 40),
        line(&event.by, 80),
        quoted(&event.text, 200)
    )
}

/// Returns an event as structured content of a history.
#[must_use]
pub(crate) fn event_brief(event: &EventView) -> Value {
    json!({"seq": event.seq, "at": event.at, "kind": event.kind, "by": event.by, "text": shorten::counted(&event.text, 200), "signal": event.signal, "source": event.source})
}

/// Formats a parent's message as one line.
#[must_use]
pub(crate) fn message_line(message: &MessageView) -> String {
    format!(
        "message from {} at {}: {}",
        line(&message.from, 80),
        line(&message.sent_at, 40),
        quoted(&message.text, usize::MAX)
    )
}
