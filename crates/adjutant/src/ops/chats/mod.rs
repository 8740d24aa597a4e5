//! Chats: starting, finding, reading them. Who speaks comes from the connection; what exists for
//! whom is decided in the core.

mod answers;
mod archive;
mod carry;
mod direct;
mod entry;
mod ground;
mod list;
mod mentions;
mod presence;
mod publish;
mod render;
mod say;
mod seat;
mod show;
mod start;
mod stats;
mod summary;
mod team;
mod turns;
mod wake;

pub(super) use mentions::mentions_for;
pub use presence::Presence;
pub(super) use render::entry as shown_entry;
pub(super) use seat::{Seat, name_of};
pub use stats::Tally;
pub use turns::Uncounted;
