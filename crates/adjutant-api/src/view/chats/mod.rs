//! Chats: conversations between the person, clients, runs and agents.

mod answers;
mod board;
mod carried;
mod chat;
mod entries;
mod mentions;
mod stats;

pub use answers::*;
pub use board::*;
pub use carried::*;
pub use chat::*;
pub use entries::*;
pub use mentions::*;
pub use stats::*;
