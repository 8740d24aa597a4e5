//! The grammar of the commands for the installation.

use clap::{Args, Subcommand};
use std::ffi::OsString;

#[derive(Debug, Args)]
pub struct ConfigArgs {
    #[command(subcommand)]
    pub what: Option<ConfigWhat>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Subcommand)]
pub enum ConfigWhat {
    /// Where the configuration file and the home are
    Path,
    /// The configuration in effect
    Show,
}

#[derive(Debug, Args)]
pub struct WebhooksArgs {
    #[command(subcommand)]
    pub what: Option<WebhooksWhat>,
}

#[derive(Debug, Subcommand)]
pub enum WebhooksWhat {
    /// Send again what failed too often, and at once what waits for its next try
    Retry {
        /// Only of this webhook: its address, or the beginning of it; all when left out
        url: Option<String>,
    },
}

#[derive(Debug, Args)]
pub struct DemoArgs {
    /// Play in the home that the environment names (the demo starts itself so)
    #[arg(long, hide = true)]
    pub within: bool,
}

/// Arguments that another module reads.
#[derive(Debug, Args)]
#[command(disable_help_flag = true)]
pub struct PassedOn {
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "OPTIONS")]
    pub args: Vec<OsString>,
}
