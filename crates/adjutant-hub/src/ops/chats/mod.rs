//! Chats. The author comes from the connection; access rules are in the core.

mod answers;
mod archive;
mod board;
mod caller;
mod direct;
mod entry;
mod followed;
mod list;
mod mentions;
mod presence;
mod publish;
mod render;
mod say;
mod show;
mod start;
mod stats;
mod summary;
mod team;
mod transfer;
mod turns;
mod wake;
mod work_context;

pub(super) use caller::ChatCaller;
pub(crate) use followed::FollowedStates;
pub(super) use followed::{followed_view, share_views, storable};
pub(super) use mentions::mentions_for;
pub(super) use presence::Presence;
pub(super) use render::{entry as shown_entry, full as shown_chat};
pub(super) use stats::Tally;
