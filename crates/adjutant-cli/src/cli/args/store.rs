//! The grammar of the commands for the store.

use clap::{Args, Subcommand};

#[derive(Debug, Args)]
pub(crate) struct StoreArgs {
    #[command(subcommand)]
    pub what: StoreCommand,
}

#[derive(Debug, Subcommand)]
pub(crate) enum StoreCommand {
    /// Copy all runs, requests, chats and their history to an empty store
    #[command(
        after_help = "Stop the hub first: adj stop. The copy does not change the setting; the last line of the output is the command that does.\n\nExamples:\n  adj store copy home postgres://adj@db.example.org/adjutant\n  adj store copy postgres://adj@db.example.org/adjutant home"
    )]
    Copy {
        /// The store to copy: home for the file in the home, or postgres://USER@HOST:PORT/DATABASE
        from: String,
        /// An empty store, in the same form
        to: String,
    },
}
