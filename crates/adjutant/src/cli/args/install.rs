//! The grammar of `adj install`.

use crate::clients::client_ids;
use clap::Args;
use clap::builder::PossibleValuesParser;

#[derive(Debug, Args)]
pub struct InstallArgs {
    /// The clients to connect; default: those that are found
    #[arg(value_name = "CLIENT", value_parser = PossibleValuesParser::new(client_ids()), hide_possible_values = true)]
    pub clients: Vec<String>,
    /// Do not ask before changing files
    #[arg(short, long)]
    pub yes: bool,
    /// Only show the changes
    #[arg(long)]
    pub dry_run: bool,
    /// Connect the clients in this directory only, with their files for a project
    #[arg(long)]
    pub project: bool,
    /// Remove the entries
    #[arg(long)]
    pub undo: bool,
    /// Print the entry of a client, to add it by hand, and change nothing
    #[arg(long, requires = "clients", conflicts_with_all = ["undo", "project", "dry_run", "yes"])]
    pub print: bool,
}
