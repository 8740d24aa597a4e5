//! The grammar of `adj peer`.

use clap::{Args, Subcommand};
use std::path::PathBuf;

#[derive(Debug, Args)]
pub(crate) struct PeerArgs {
    #[command(subcommand)]
    pub what: PeerCommand,
}

#[derive(Debug, Subcommand)]
pub(crate) enum PeerCommand {
    /// Let another hub connect: print a token for it, once, and the command for its machine
    Invite {
        /// Your name for the other hub: a-z, 0-9 and -
        name: String,
    },
    /// Connect to another hub, with the token that adj peer invite printed there
    #[command(
        after_help = "Example:\n  adj peer add office https://office.example.org:7317 --token-file token.txt"
    )]
    Add {
        /// Your name for the other hub: a-z, 0-9 and -
        name: String,
        /// Its address, such as https://office.example.org:7317
        url: String,
        /// The file with the token; "-" asks for it on a terminal, or reads standard input
        #[arg(long, value_name = "FILE", default_value = "-")]
        token_file: PathBuf,
        /// Trust only certificates whose public key has this SHA-256, such as a self-signed one;
        /// repeatable
        #[arg(long, value_name = "SHA256")]
        fingerprint: Vec<String>,
        /// Accept http to another machine, which sends the token and the chats in plain text
        #[arg(long)]
        plain: bool,
    },
    /// List the other hubs
    List,
    /// Show another hub, and the chats that it shares with you
    Show {
        /// The hub's name
        name: String,
    },
    /// Exchange nothing with another hub until it is unblocked; posts wait
    Block {
        /// The hub's name
        name: String,
    },
    /// Unblock another hub
    Unblock {
        /// The hub's name
        name: String,
    },
    /// Remove another hub: revoke its token, share nothing with it, and keep the copies of its
    /// chats as they are
    Remove {
        /// The hub's name
        name: String,
    },
}
