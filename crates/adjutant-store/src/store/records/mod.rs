//! The records that several rooms read: each is a type with the columns that it is read from. Nothing
//! here writes.

pub(super) mod chat;
pub(super) mod request;
pub(super) mod run;
