//! Chats: entries in one total order for each chat, participants, and the last entry that each has
//! read.

mod adopt;
mod board;
mod carry;
mod entries;
mod mentions;
mod read;
mod stats;
#[cfg(test)]
pub(super) mod tests;
mod turns;
mod write;

pub(in crate::store) use adopt::{
    chats_of_tree, is_pair_taken, leave_chats_of_others, moved_pair, replace_member, set_owner,
};
pub use board::{board_entries, board_size, boards};
pub use carry::{Export, Imported, export_of};
pub(in crate::store) use carry::{
    abandoned_import, entries_to_remove, insert_imported, insert_revisions, remove_chat,
    remove_entry, shorten_import,
};
pub use entries::NewEntry;
pub(in crate::store) use entries::{
    entry_of, insert_entry, keep_revision, note_author, note_change, remove_revisions, set_text,
};
pub use mentions::{Mention, mentions_of, newest_mention, newest_mention_elsewhere};
pub(crate) use read::chats_of_others;
#[cfg(test)]
pub(in crate::store) use read::revisions_of;
pub use read::{
    agents_in, branches_of, changes_of, chat_by_id, chat_by_pair, chats_newest, entries_after,
    entries_before, entries_changed, entries_last, entry_by_id, entry_by_key, entry_by_seq, member,
    members, newest_summary, participant_count, past_author, peer_speakers, pinned_entries,
    reply_of, unread, unread_before,
};
pub use stats::{ParticipantRow, Stats, Turns, stats_of};
pub use turns::{
    NewTurn, Turn, TurnState, asked_by, hops_behind, next_turns, open_turns, open_turns_below,
    turn_by_id, turn_of_run, turns_running, turns_to_answer,
};
pub use write::NewChat;
pub(in crate::store) use write::{advance_read_cursor, skip_to};
