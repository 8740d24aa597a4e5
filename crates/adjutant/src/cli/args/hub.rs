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
    /// Print the paths of the configuration file, the home and the logs
    Path,
    /// Print the configuration in effect
    Show,
}

#[derive(Debug, Args)]
pub struct WebhooksArgs {
    #[command(subcommand)]
    pub what: Option<WebhooksWhat>,
}

#[derive(Debug, Subcommand)]
pub enum WebhooksWhat {
    /// Retry failed and waiting deliveries now
    Retry {
        /// Only deliveries to this URL or URL prefix; default: all
        url: Option<String>,
    },
}

#[derive(Debug, Args)]
pub struct DemoArgs {
    /// Run in the home that the environment names (set by the outer demo process)
    #[arg(long, hide = true)]
    pub within: bool,
}

/// The arguments of `adj mcp`, which its own module parses.
#[derive(Debug, Args)]
#[command(disable_help_flag = true)]
pub struct PassedOn {
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "OPTIONS")]
    pub args: Vec<OsString>,
}
