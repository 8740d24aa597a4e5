//! One module for each command, or for the few that belong together.

pub mod adopt;
pub mod agents;
pub mod approve;
pub mod cancel;
pub mod chat;
pub mod clean;
pub mod config;
pub mod demo;
pub mod doctor;
pub mod events;
pub mod help;
pub mod inbox;
pub mod logs;
pub mod next;
pub mod ps;
pub mod reply;
pub mod resume;
pub mod run;
pub mod search;
pub mod send;
pub mod show;
pub mod stop;
pub mod wait;
pub mod webhooks;
pub mod welcome;
