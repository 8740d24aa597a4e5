//! Events and messages.

use crate::clock::rfc3339;
use crate::store::{Event, EventSubject, Message};
use crate::view::{EventView, MessageView, Word};

pub(in crate::ops) fn event(event: &Event) -> EventView {
    let (run_id, run_name, pool) = match &event.about {
        EventSubject::Run { id, name } => (id.to_string(), name.clone(), None),
        EventSubject::Pool(pool) => (String::new(), String::new(), Some(pool.clone())),
    };
    EventView {
        seq: event.seq.0,
        at: rfc3339(event.at),
        kind: event.kind.into(),
        run_id,
        run_name,
        pool,
        request_id: event.request.map(|id| id.to_string()),
        by: event.by.clone(),
        text: event.text.clone(),
        signal: event
            .signal
            .as_deref()
            .filter(|signal| !signal.is_empty())
            .map(Word::read),
        source: event.source.as_deref().map(Word::read),
    }
}

pub(in crate::ops) fn message(message: &Message, run_name: &str) -> MessageView {
    MessageView {
        message_id: message.id.clone(),
        run_id: message.run.to_string(),
        run_name: run_name.to_owned(),
        from: message.sender.clone(),
        text: message.text.clone(),
        sent_at: rfc3339(message.sent_at),
        delivery: Word::read(&message.delivery),
        delivered_at: message.delivered_at.map(rfc3339),
    }
}
