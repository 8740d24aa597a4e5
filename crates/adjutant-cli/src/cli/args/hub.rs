//! The grammar of the commands for the installation.

use super::values::{ValueError, positive_duration};
use crate::config::listen_address;
use crate::remote::HubAddress;
use adjutant_core::Fingerprint;
use adjutant_core::pool::is_label_part;
use adjutant_core::token::TokenRole;
use clap::{Args, Subcommand};
use std::ffi::OsString;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

#[derive(Debug, Args)]
pub(crate) struct ConfigArgs {
    #[command(subcommand)]
    pub what: Option<ConfigCommand>,
}

#[derive(Debug, Clone, PartialEq, Eq, Subcommand)]
pub(crate) enum ConfigCommand {
    /// Print the path of the configuration file
    Path,
    /// Print the configuration in effect
    Show,
    /// Open the configuration file in your editor (VISUAL, EDITOR), and replace it if the result is
    /// valid
    Edit,
    /// Print the value of a setting in the configuration file
    Get {
        /// The setting, such as live_runs_max or agents.claude.timeout
        key: String,
    },
    /// Change a setting in the configuration file; comments and all other lines stay
    #[command(
        after_help = "Examples:\n  adj config set live_runs_max 4\n  adj config set agents.claude.timeout 45m"
    )]
    Set {
        /// The setting, such as live_runs_max or agents.claude.timeout
        key: String,
        /// The value: a text without quotes, other values as in the file, such as 4, true or ["a",
        /// "b"]
        #[arg(allow_hyphen_values = true)]
        value: String,
    },
    /// Remove a setting from the configuration file, so that its default applies; comments and all
    /// other lines stay
    #[command(
        after_help = "Examples:\n  adj config unset default_agent\n  adj config unset agents.claude.timeout"
    )]
    Unset {
        /// The setting, such as live_runs_max or agents.claude.timeout
        key: String,
    },
    /// Print a JSON Schema of the configuration file, for editors
    Schema,
}

#[derive(Debug, Args)]
pub(crate) struct WebhooksArgs {
    #[command(subcommand)]
    pub what: Option<WebhooksCommand>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum WebhooksCommand {
    /// Retry failed and waiting deliveries now
    Retry {
        /// Only deliveries to this URL or URL prefix; default: all
        url: Option<String>,
    },
}

#[derive(Debug, Args)]
pub(crate) struct DemoArgs {
    /// Run in the home that the environment names (set by the outer demo process)
    #[arg(long, hide = true)]
    pub within: bool,
    /// Keep the home, with open questions, to try adj top and adj ui
    #[arg(long)]
    pub keep: bool,
    /// End a kept demo: cancel its runs, stop its hub, remove its home
    #[arg(long, value_name = "HOME", conflicts_with = "keep")]
    pub end: Option<PathBuf>,
}

/// The arguments of `adj mcp`, which its own module parses.
#[derive(Debug, Args)]
#[command(disable_help_flag = true)]
pub(crate) struct McpArgs {
    #[arg(
        trailing_var_arg = true,
        allow_hyphen_values = true,
        value_name = "OPTIONS"
    )]
    pub args: Vec<OsString>,
}

#[derive(Debug, Args)]
pub(crate) struct ServeArgs {
    /// Also serve HTTP on this address, such as 127.0.0.1:7317, for callers with a token; addresses
    /// that other machines can reach need [tls]
    #[arg(long, value_name = "ADDRESS", value_parser = listen_address)]
    pub listen: Option<SocketAddr>,
}

#[derive(Debug, Args)]
pub(crate) struct RunnerArgs {
    /// The address of the hub, such as https://adj.example.org:7317; repeatable, for hubs that
    /// share a store
    #[arg(long, value_name = "URL", required = true)]
    pub join: Vec<HubAddress>,
    /// A file with a token of role runner (adj token new NAME --role runner), readable only by you;
    /// "-" reads it from standard input
    #[arg(long, value_name = "FILE")]
    pub token_file: PathBuf,
    /// A pool to serve (repeatable). Default: with --label, all pools that require labels, if this
    /// runner has them; otherwise the pool "default"
    #[arg(long = "pool", value_name = "POOL")]
    pub pools: Vec<String>,
    /// A label of this machine, such as gpu=a100, which a pool can require (repeatable)
    #[arg(long = "label", value_name = "NAME=VALUE", value_parser = label)]
    pub labels: Vec<(String, String)>,
    /// Maximum number of runs at a time
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..))]
    pub slots: u64,
    /// Trust only the CA certificates of this file; default: those of this machine
    #[arg(long, value_name = "FILE", conflicts_with = "fingerprint")]
    pub ca: Option<PathBuf>,
    /// Trust only certificates whose public key has this SHA-256, which adj token new prints;
    /// repeatable, for several hubs or a new key
    #[arg(long, value_name = "SHA256")]
    pub fingerprint: Vec<Fingerprint>,
    /// Accept http to another machine, which sends the token and the data of all runs in plain text
    #[arg(long)]
    pub plain: bool,
    /// Exit after this time without runs, such as 10m
    #[arg(long, value_name = "TIME", value_parser = positive_duration)]
    pub idle_exit: Option<Duration>,
}

#[derive(Debug, Args)]
pub(crate) struct UiArgs {
    /// The address to listen on if the hub does not listen yet; default: 127.0.0.1:7317, or a free
    /// port if it is in use
    #[arg(long, value_name = "ADDRESS", value_parser = listen_address)]
    pub listen: Option<SocketAddr>,
    /// Only print the page's address
    #[arg(long)]
    pub no_open: bool,
}

#[derive(Debug, Args)]
pub(crate) struct TokenArgs {
    #[command(subcommand)]
    pub what: TokenCommand,
}

#[derive(Debug, Subcommand)]
pub(crate) enum TokenCommand {
    /// Make a token and print it, once
    New {
        /// A name for the token
        name: String,
        /// What the token permits: client (act as one client), read-only, person (everything that
        /// you may do), or runner (only adj runner)
        #[arg(long, value_name = "ROLE", value_parser = role, default_value = "client")]
        role: TokenRole,
        /// The client that it acts as, or whose runs it reads: a project directory or a name.
        /// Default for role client: NAME
        #[arg(long, value_name = "CLIENT")]
        client: Option<String>,
    },
    /// List tokens
    List {
        /// Also list revoked tokens
        #[arg(short, long)]
        all: bool,
    },
    /// Revoke a token and close its connections
    Revoke {
        /// The token's name
        name: String,
    },
}

fn role(text: &str) -> Result<TokenRole, ValueError> {
    TokenRole::from_word(text)
        .filter(|role| *role != TokenRole::Peer)
        .ok_or(ValueError::Role)
}

fn label(text: &str) -> Result<(String, String), ValueError> {
    match text.split_once('=') {
        Some((name, value)) if is_label_part(name) && is_label_part(value) => {
            Ok((name.to_owned(), value.to_owned()))
        }
        _ => Err(ValueError::Label),
    }
}
