//! The grammar of `adj install`.

use crate::integrations::client_ids;
use clap::builder::PossibleValuesParser;
use clap::{Args, ValueEnum};

#[derive(Debug, Default, Args)]
pub(crate) struct InstallArgs {
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
    /// Remove the entries and skills
    #[arg(long)]
    pub undo: bool,
    /// Whether to add the skill, a file that tells the client's model when to delegate
    #[arg(long, value_enum, value_name = "WHICH", default_value_t)]
    pub skill: WithSkill,
    /// Print the entry of a client (or with --skill only its skill), to add it by hand, and change
    /// nothing
    #[arg(long, requires = "clients", conflicts_with_all = ["undo", "project", "dry_run", "yes"])]
    pub print: bool,
    /// The changes were shown before.
    #[arg(skip)]
    pub is_shown: bool,
    /// Prints a line for each file instead of its changes.
    #[arg(skip)]
    pub is_summary: bool,
    /// The caller prints what was done.
    #[arg(skip)]
    pub is_silent: bool,
    /// Skills that are missing stay missing.
    #[arg(skip)]
    pub is_repair: bool,
}

/// What `adj install` changes for a client.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum WithSkill {
    /// The entry and the skill
    #[default]
    Yes,
    /// Only the entry
    No,
    /// Only the skill
    Only,
}

#[derive(Debug, Args)]
pub(crate) struct InitArgs {
    /// Connect the clients and set the default agent without asking
    #[arg(short, long)]
    pub yes: bool,
}

#[derive(Debug, Args)]
pub(crate) struct UpdateArgs {
    /// Check and print the commands, which is also the default (adj does not update itself)
    #[arg(long)]
    pub check: bool,
}

#[derive(Debug, Args)]
pub(crate) struct UninstallArgs {
    /// Also remove the home: runs, logs, chats and workspaces
    #[arg(long)]
    pub home: bool,
    /// Only show what is installed
    #[arg(long)]
    pub dry_run: bool,
    /// Do not ask before removing
    #[arg(short, long, conflicts_with = "dry_run")]
    pub yes: bool,
}

#[derive(Debug, Args)]
pub(crate) struct DoctorArgs {
    /// Repair what can be repaired: entries of clients that start another program or lack a field,
    /// and outdated skills
    #[arg(long)]
    pub fix: bool,
    /// Do not ask before repairing
    #[arg(short, long, requires = "fix")]
    pub yes: bool,
}
