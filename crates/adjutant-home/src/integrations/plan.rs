//! What an installation changes in a client's file, and its execution.

use super::entry::{NAME, disabled_by, entry_update, is_as_installed, program_of, wanted_entry};
use super::file::{ClientFile, FileError};
use super::format::{self, Edit, FormatError};
use super::place::{OwnProgram, Scope, file_of};
use super::table::{CLIENTS, McpClient};
use serde_json::{Map, Value};
use std::path::PathBuf;

/// Why a client cannot be connected or disconnected. Its file is unchanged.
#[derive(Debug, thiserror::Error)]
pub enum PlanError {
    #[error("{} has no file that can be edited", .client.name)]
    NoFile { client: &'static McpClient },
    #[error("{} has no file for a project", .client.name)]
    NoProjectFile { client: &'static McpClient },
    #[error("{} has no skills in files", .client.name)]
    NoSkill { client: &'static McpClient },
    #[error("{path} cannot be edited: {error}")]
    Format { path: PathBuf, error: FormatError },
    #[error("{path} has an entry {NAME} that does not start adj mcp")]
    Taken { path: PathBuf },
    #[error("{path} has several entries that start adj mcp: {}", .names.join(", "))]
    Duplicate { path: PathBuf, names: Vec<String> },
    #[error(transparent)]
    File(#[from] FileError),
}

/// A change of a client's file.
#[derive(Debug)]
pub struct Plan {
    pub client: &'static McpClient,
    pub file: ClientFile,
    pub change: Change,
    /// The program that the entry starts now.
    pub command: Option<String>,
    /// What to change in the file by hand, if the client does not start the server of the entry.
    pub disabled: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Change {
    /// Nothing to do.
    None,
    /// Nothing of the installation: the entry is the user's, and stays.
    Keep,
    /// Adds the entry. The backup is the file before.
    Add(String),
    /// Changes fields of the entry.
    Update(String),
    /// Removes the entry, and keeps what else was changed since the backup.
    Remove(String),
    /// The file is as it was left: the backup replaces it.
    Restore(String),
    /// The file has only the entry, and was created for it.
    Delete,
}

impl Change {
    #[must_use]
    pub fn word(&self) -> &'static str {
        match self {
            Self::None => "unchanged",
            Self::Keep => "kept",
            Self::Add(_) => "added",
            Self::Update(_) => "updated",
            Self::Remove(_) | Self::Restore(_) | Self::Delete => "removed",
        }
    }

    /// Returns whether it changes the file.
    #[must_use]
    pub fn is_change(&self) -> bool {
        !matches!(self, Self::None | Self::Keep)
    }
}

/// Plans to connect a client.
///
/// # Errors
/// Its file cannot be used, or has an entry that is in the way.
pub fn plan_install(
    client: &'static McpClient,
    scope: &Scope,
    program: &OwnProgram,
) -> Result<Plan, PlanError> {
    let file = open(client, scope)?;
    let command = program.command_for(client);
    let mut started = None;
    let is_same = |found: &str| {
        started = Some(found.to_owned());
        program.is_started_by(found, client)
    };
    let change = added(
        client,
        &file,
        file.text.as_deref().unwrap_or_default(),
        &command,
        is_same,
    )?;
    let disabled = disabled(client, file.text.as_deref().unwrap_or_default());
    Ok(Plan {
        client,
        file,
        change,
        command: started,
        disabled,
    })
}

/// Plans to remove the entry of a client.
///
/// # Errors
/// Its file cannot be used.
pub fn plan_undo(client: &'static McpClient, scope: &Scope) -> Result<Plan, PlanError> {
    let file = open(client, scope)?;
    let change = removed(client, &file)?;
    Ok(Plan {
        client,
        file,
        change,
        command: None,
        disabled: None,
    })
}

/// Returns what to change so that a client starts the server of its entry. `None`: it has no entry,
/// or starts it.
fn disabled(client: &'static McpClient, text: &str) -> Option<String> {
    // A file that does not parse is reported by its plan.
    let parsed = format::parse(client.format, text).ok()?;
    let servers = format::servers(&parsed, servers_path(client, &parsed))?;
    let (name, entry) = servers
        .iter()
        .find(|(_, entry)| program_of(entry).is_some())?;
    disabled_by(&parsed, name, entry)
}

fn open(client: &'static McpClient, scope: &Scope) -> Result<ClientFile, PlanError> {
    let is_project = *scope != Scope::User;
    let path = file_of(client, scope).ok_or(if is_project {
        PlanError::NoProjectFile { client }
    } else {
        PlanError::NoFile { client }
    })?;
    Ok(ClientFile::read(&path, is_project)?)
}

/// Returns whether a client's file has an entry of Adjutant. A file that cannot be read has none.
#[must_use]
pub fn has_entry(client: &'static McpClient, scope: &Scope) -> bool {
    let Ok(file) = open(client, scope) else {
        return false;
    };
    let Ok(parsed) = format::parse(client.format, file.text.as_deref().unwrap_or_default()) else {
        return false;
    };
    format::servers(&parsed, servers_path(client, &parsed))
        .is_some_and(|servers| servers.values().any(|entry| program_of(entry).is_some()))
}

/// Returns the path of the map of servers in a file.
fn servers_path(client: &'static McpClient, file: &Value) -> &'static [&'static str] {
    let is_map = |path: &[&str]| {
        format::servers(file, path).is_some_and(|servers| {
            !servers.contains_key("type") && !servers.contains_key("command")
        })
    };
    client
        .servers_newer
        .filter(|path| is_map(path))
        .unwrap_or(client.servers)
}

fn added(
    client: &'static McpClient,
    file: &ClientFile,
    text: &str,
    command: &str,
    is_same_program: impl FnMut(&str) -> bool,
) -> Result<Change, PlanError> {
    let path = || file.path.clone();
    let unsuitable = |error| PlanError::Format {
        path: path(),
        error,
    };
    let parsed = format::parse(client.format, text).map_err(unsuitable)?;
    let at = servers_path(client, &parsed);
    let none = Map::new();
    let servers = format::servers(&parsed, at).unwrap_or(&none);
    let names: Vec<&String> = servers
        .iter()
        .filter(|(_, entry)| program_of(entry).is_some())
        .map(|(name, _)| name)
        .collect();
    let wanted = wanted_entry(client, command);
    match names.as_slice() {
        [] if servers.contains_key(NAME) => Err(PlanError::Taken { path: path() }),
        [] => {
            let edit = Edit::Add {
                name: NAME,
                entry: &wanted,
            };
            Ok(Change::Add(
                format::edit(client.format, text, at, &edit).map_err(unsuitable)?,
            ))
        }
        [name] => match entry_update(&servers[name.as_str()], &wanted, is_same_program) {
            None => Ok(Change::None),
            Some(fields) => {
                let edit = Edit::Set {
                    name,
                    fields: &fields,
                };
                Ok(Change::Update(
                    format::edit(client.format, text, at, &edit).map_err(unsuitable)?,
                ))
            }
        },
        _ => Err(PlanError::Duplicate {
            path: path(),
            names: names.into_iter().cloned().collect(),
        }),
    }
}

fn removed(client: &'static McpClient, file: &ClientFile) -> Result<Change, PlanError> {
    let Some(text) = &file.text else {
        return Ok(Change::None);
    };
    let unsuitable = |error| PlanError::Format {
        path: file.path.clone(),
        error,
    };
    let parsed = format::parse(client.format, text).map_err(unsuitable)?;
    let at = servers_path(client, &parsed);
    let none = Map::new();
    let servers = format::servers(&parsed, at).unwrap_or(&none);
    let commands: Vec<&str> = servers.values().filter_map(program_of).collect();
    let backup = file.backup()?;
    // Unchanged since the installation: it gives the same text for one of the commands.
    let before = backup.as_deref().unwrap_or_default();
    let is_as_left = |command: &&str| matches!(added(client, file, before, command, |found| found == *command), Ok(Change::Add(after) | Change::Update(after)) if after == *text);
    if commands.iter().any(is_as_left) {
        return Ok(backup.map_or(Change::Delete, Change::Restore));
    }
    let Some(entry) = servers.get(NAME) else {
        return Ok(Change::None);
    };
    let Some(command) = program_of(entry) else {
        return Err(PlanError::Taken {
            path: file.path.clone(),
        });
    };
    let had_entry = |before: &str| {
        let before = format::parse(client.format, before).ok();
        before.is_some_and(|before| {
            format::servers(&before, at).is_some_and(|servers| servers.contains_key(NAME))
        })
    };
    // An entry with other fields, or one from before the installation, is the user's.
    if !is_as_installed(entry, &wanted_entry(client, command))
        || backup.as_deref().is_some_and(had_entry)
    {
        return Ok(Change::Keep);
    }
    let had_map = |before: &str| {
        format::parse(client.format, before)
            .is_ok_and(|before| format::servers(&before, at).is_some())
    };
    let edit = Edit::Remove {
        name: NAME,
        empty_map: backup.as_deref().is_some_and(|before| !had_map(before)),
    };
    Ok(Change::Remove(
        format::edit(client.format, text, at, &edit).map_err(unsuitable)?,
    ))
}

impl Plan {
    /// Returns the content before and after.
    #[must_use]
    pub fn contents(&self) -> (&str, &str) {
        let before = self.file.text.as_deref().unwrap_or_default();
        let after = match &self.change {
            Change::None | Change::Keep => before,
            Change::Add(after)
            | Change::Update(after)
            | Change::Remove(after)
            | Change::Restore(after) => after,
            Change::Delete => "",
        };
        (before, after)
    }

    /// Returns the backup that the change leaves.
    #[must_use]
    pub fn backup_kept(&self) -> Option<PathBuf> {
        let path = self.file.backup_path();
        match self.change {
            Change::Add(_) => self.file.text.is_some().then_some(path),
            Change::None | Change::Keep | Change::Update(_) | Change::Remove(_) => {
                path.exists().then_some(path)
            }
            Change::Restore(_) | Change::Delete => None,
        }
    }

    /// Changes the file.
    ///
    /// # Errors
    /// It was changed meanwhile, or cannot be written. It is then unchanged.
    pub fn execute(&self) -> Result<(), FileError> {
        match &self.change {
            Change::None | Change::Keep => Ok(()),
            Change::Add(after) => {
                // An older backup does not describe this file any more.
                match self.file.text {
                    Some(_) => self.file.back_up()?,
                    None => self.file.remove_backup()?,
                }
                self.file.write(after)
            }
            Change::Update(after) | Change::Remove(after) => {
                if self.file.backup()?.is_none() {
                    self.file.back_up()?;
                }
                self.file.write(after)
            }
            Change::Restore(before) => {
                self.file.write(before)?;
                self.file.remove_backup()
            }
            Change::Delete => self.file.remove(),
        }
    }
}

/// Returns the lines to add to a client's file by hand.
///
/// # Errors
/// Never for the clients of the table.
pub fn snippet(client: &McpClient, program: &OwnProgram) -> Result<String, FormatError> {
    let entry = wanted_entry(client, &program.command_for(client));
    format::edit(
        client.format,
        "",
        client.servers,
        &Edit::Add {
            name: NAME,
            entry: &entry,
        },
    )
}

/// Returns the ids of all clients.
#[must_use]
pub fn client_ids() -> Vec<&'static str> {
    CLIENTS.iter().map(|client| client.id).collect()
}
