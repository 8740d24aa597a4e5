//! The skill that tells a client's model when to delegate. It is a file of its own, which is added
//! and removed whole. Its last line has a checksum: a file that was edited, or that another program
//! wrote, is never replaced or removed.

use super::file::{ClientFile, FileError};
use super::place::{Scope, skill_of};
use super::plan::{PlanError, has_entry};
use super::table::{CLIENTS, McpClient};
use adjutant_core::hex;
use sha2::{Digest, Sha256};
use std::io;
use std::path::Path;

/// The text, with the front matter of the Agent Skills format (`name`, `description`), which all
/// clients of the table read.
const TEXT: &str = include_str!("skill.md");
/// The beginning and the end of the last line.
const MARK: &str =
    "<!-- Written by adj install, which replaces and removes only unchanged copies. Checksum: ";
const MARK_END: &str = " -->\n";
/// How many bytes of the digest the checksum has.
const CHECKSUM_BYTES: usize = 8;

/// Returns the content of a skill file.
#[must_use]
pub fn skill_text() -> String {
    signed(TEXT)
}

fn signed(text: &str) -> String {
    format!("{text}\n{MARK}{}{MARK_END}", checksum(text))
}

fn checksum(text: &str) -> String {
    hex(&Sha256::digest(text)[..CHECKSUM_BYTES])
}

/// Returns whether a file is as some version of `adj` wrote it.
fn is_unchanged(file: &str) -> bool {
    file.rsplit_once(&format!("\n{MARK}"))
        .is_some_and(|(text, _)| signed(text) == file)
}

/// A change of a client's skill file.
#[derive(Debug)]
pub struct SkillPlan {
    pub file: ClientFile,
    pub change: SkillChange,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SkillChange {
    /// Nothing to do.
    None,
    Add,
    /// Replaces the text of another version.
    Update,
    Remove,
    /// The file was edited, or another program wrote it: it stays.
    KeepForeign,
    /// Another client (its name) that is connected reads the same file: it stays.
    KeepFor(&'static str),
}

impl SkillChange {
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::None => "unchanged",
            Self::Add => "added",
            Self::Update => "updated",
            Self::Remove => "removed",
            Self::KeepForeign | Self::KeepFor(_) => "kept",
        }
    }

    /// Returns whether it changes a file.
    #[must_use]
    pub fn is_change(self) -> bool {
        matches!(self, Self::Add | Self::Update | Self::Remove)
    }
}

/// Plans to add the skill of a client. `None`: it has no skill files.
///
/// # Errors
/// Its file cannot be used.
pub fn plan_skill(client: &McpClient, scope: &Scope) -> Result<Option<SkillPlan>, PlanError> {
    let Some(file) = open(client, scope)? else {
        return Ok(None);
    };
    let change = match &file.text {
        None => SkillChange::Add,
        Some(text) if *text == skill_text() => SkillChange::None,
        // Another program manages the target of a link.
        Some(text) if is_unchanged(text) && !file.is_link() => SkillChange::Update,
        Some(_) => SkillChange::KeepForeign,
    };
    Ok(Some(SkillPlan { file, change }))
}

/// Plans to remove the skill of a client, together with those of others. It stays if another client
/// uses it. `None`: it has no skill files.
///
/// # Errors
/// Its file cannot be used.
pub fn plan_skill_undo(
    client: &McpClient,
    scope: &Scope,
    together: &[&McpClient],
) -> Result<Option<SkillPlan>, PlanError> {
    let Some(file) = open(client, scope)? else {
        return Ok(None);
    };
    let is_reader = |other: &&'static McpClient| {
        skill_of(other, scope).as_ref() == Some(&file.path) && has_entry(other, scope)
    };
    let stays = |other: &&'static McpClient| together.iter().all(|gone| gone.id != other.id);
    let change = match (&file.text, CLIENTS.iter().filter(stays).find(is_reader)) {
        (None, _) => SkillChange::None,
        (Some(_), Some(other)) => SkillChange::KeepFor(other.name),
        // The program that manages a link knows how to remove it.
        (Some(text), None) if is_unchanged(text) && !file.is_link() => SkillChange::Remove,
        (Some(_), None) => SkillChange::KeepForeign,
    };
    Ok(Some(SkillPlan { file, change }))
}

fn open(client: &McpClient, scope: &Scope) -> Result<Option<ClientFile>, PlanError> {
    let Some(path) = skill_of(client, scope) else {
        return Ok(None);
    };
    Ok(Some(ClientFile::read(&path, *scope != Scope::User)?))
}

impl SkillPlan {
    /// Returns the content before and after.
    #[must_use]
    pub fn contents(&self) -> (&str, String) {
        let before = self.file.text.as_deref().unwrap_or_default();
        match self.change {
            SkillChange::Add | SkillChange::Update => (before, skill_text()),
            SkillChange::Remove => (before, String::new()),
            SkillChange::None | SkillChange::KeepForeign | SkillChange::KeepFor(_) => {
                (before, before.to_owned())
            }
        }
    }

    /// Changes the file. The directory of the skill is removed with it, and the two above it, where
    /// nothing else is in them: an empty `~/.claude` would count as an installed client.
    ///
    /// # Errors
    /// It was changed meanwhile, or cannot be written or removed.
    pub fn execute(&self) -> Result<(), FileError> {
        match self.change {
            SkillChange::Add | SkillChange::Update => self.file.write(&skill_text()),
            SkillChange::Remove => {
                self.file.remove()?;
                self.file
                    .path
                    .ancestors()
                    .skip(1)
                    .take(3)
                    .try_for_each(remove_if_empty)
            }
            SkillChange::None | SkillChange::KeepForeign | SkillChange::KeepFor(_) => Ok(()),
        }
    }
}

fn remove_if_empty(dir: &Path) -> Result<(), FileError> {
    match std::fs::remove_dir(dir) {
        Err(source)
            if !matches!(
                source.kind(),
                io::ErrorKind::NotFound
                    | io::ErrorKind::DirectoryNotEmpty
                    | io::ErrorKind::NotADirectory
            ) =>
        {
            Err(FileError::Io {
                path: dir.to_owned(),
                source,
            })
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn skill_has_the_front_matter_of_the_format_and_is_short() {
        let mut lines = TEXT.lines();
        assert_eq!(
            (lines.next(), lines.next()),
            (Some("---"), Some("name: adjutant"))
        );
        let description = lines
            .next()
            .and_then(|line| line.strip_prefix("description: "))
            .expect("a description");
        assert_eq!(lines.next(), Some("---"));
        // A longer description is refused, and these characters would end the plain YAML text.
        assert!(
            description.len() <= 1024 && !description.contains(": ") && !description.contains(" #"),
            "{description}"
        );
        assert!(skill_text().lines().count() < 40);
    }

    #[test]
    fn only_unchanged_copies_are_recognized() {
        let text = skill_text();
        assert!(is_unchanged(&text) && is_unchanged(&signed("an older text\n")));
        for changed in [
            text.replace("Delegate", "delegate"),
            format!("{text}more\n"),
            TEXT.to_owned(),
            String::new(),
        ] {
            assert!(!is_unchanged(&changed), "{changed}");
        }
    }
}
