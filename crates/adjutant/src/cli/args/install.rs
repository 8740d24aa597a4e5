//! The grammar of `adj install`.

use crate::clients::client_ids;
use clap::Args;
use clap::builder::PossibleValuesParser;

#[derive(Debug, Default, Args)]
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
    /// The changes were shown before.
    #[arg(skip)]
    pub is_shown: bool,
    /// The caller prints what was done.
    #[arg(skip)]
    pub is_silent: bool,
}

#[derive(Debug, Args)]
pub struct InitArgs {
    /// Connect the clients and set the default agent without asking
    #[arg(short, long)]
    pub yes: bool,
}

#[derive(Debug, Args)]
pub struct DoctorArgs {
    /// Repair what can be repaired: entries of clients that start another program or lack a field
    #[arg(long)]
    pub fix: bool,
    /// Do not ask before repairing
    #[arg(short, long, requires = "fix")]
    pub yes: bool,
}
