//! Numbers and kinds of entries.

use crate::store::{Chat, ChatEntry, NewEntry, StoreError, Tx, entry_by_seq};
use adjutant_core::Denied;
use adjutant_core::chat::{EntryKind, Participant};

/// Parses `17` or `3.17` as an entry of a chat.
pub(super) fn entry_no(
    field: &'static str,
    chat: Option<i64>,
    given: &str,
) -> Result<(i64, i64), Denied> {
    let wrong = || {
        Denied::invalid(
            field,
            if chat.is_some() {
                "use a message's number, such as 17 or 3.17"
            } else {
                "use a message's number with its chat's, such as 3.17"
            },
        )
    };
    let number = |text: &str| text.parse::<i64>().ok().filter(|number| *number > 0);
    match given.trim().split_once('.') {
        Some((of, seq)) => {
            let (of, seq) = number(of).zip(number(seq)).ok_or_else(wrong)?;
            if chat.is_some_and(|chat| chat != of) {
                return Err(Denied::invalid(
                    field,
                    format!("{of}.{seq} is in another chat"),
                ));
            }
            Ok((of, seq))
        }
        None => chat.zip(number(given.trim())).ok_or_else(wrong),
    }
}

/// Creates a note from the hub.
pub(super) fn note(text: String) -> NewEntry {
    NewEntry {
        kind: EntryKind::Note,
        author: Participant::Hub,
        name: "hub".to_owned(),
        label: None,
        text,
        reply_to: None,
        hops: 0,
        pinned: false,
        key: None,
    }
}

pub(super) fn found(tx: &Tx<'_>, chat: &Chat, seq: i64) -> Result<ChatEntry, StoreError> {
    entry_by_seq(tx.connection(), chat.id, seq)?
        .ok_or_else(|| Denied::not_found("message", &format!("{}.{seq}", chat.id)).into())
}
