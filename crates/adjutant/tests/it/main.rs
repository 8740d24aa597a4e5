//! End-to-end tests with the real binary, in one test program.
#![expect(
    clippy::disallowed_methods,
    clippy::print_stderr,
    clippy::unwrap_used,
    reason = "tests start processes, set environments, print what they skip, and may panic on a broken fixture"
)]
#![expect(unreachable_pub, reason = "nothing outside uses a program")]

mod acp;
mod agents;
mod approvals;
mod attention;
mod book;
mod budgets;
mod changes;
mod chats;
mod cli;
mod clocks;
mod commands;
mod completion;
mod conditions;
mod config;
mod conflicts;
mod credentials;
mod delegation;
mod design;
mod doctor;
mod ephemeral;
mod escalation;
mod fence;
mod fields;
mod gate;
mod groups;
mod habits;
mod hostile;
mod identity;
mod init;
mod install;
mod kills;
mod layering;
mod ledger;
mod line_ends;
mod lingering;
mod lists;
mod log_store;
mod main_job;
mod mcp;
mod merge;
mod model;
mod new_hub;
mod peers;
mod policies;
mod policy_changes;
mod pools;
mod postgres;
mod pressure;
mod processes;
mod prompts;
mod protocol;
mod readme;
mod records;
mod reports;
mod resources;
mod results;
mod runner;
mod search;
mod serve;
mod shown;
mod sight;
mod signal_fields;
mod signals;
mod skipped;
mod snapshot_failures;
mod snapshots;
mod speaking;
mod spellings;
mod stall;
mod standby;
mod stats;
mod steps;
mod stops;
mod store_copy;
mod supervise;
mod support;
mod terminal;
mod times;
mod top;
mod uninstall;
mod unsupported;
mod vendors;
mod webhooks;
mod words;
mod workspaces;
