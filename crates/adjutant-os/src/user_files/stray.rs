//! Files that a killed process has left under a temporary name.

use super::state::State;
use super::{Cause, Content, FileOutcome, Slot};
use std::ffi::OsString;
use std::io;

/// The outcome of settling the temporary names of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Settled {
    /// Nothing of the user was there.
    Clean,
    /// A file of the user has its name back.
    PutBack,
    /// A file of the user is kept under this name, because there is a newer one.
    Kept(OsString),
}

impl Slot {
    /// Returns whether a killed process has left a complete file.
    ///
    /// # Errors
    /// The disk failed.
    pub fn has_stray(&self) -> io::Result<bool> {
        Ok(super::Stamp::at(&self.dir, &self.beside)?.is_some())
    }

    /// Removes what a killed process has left. A file whose content is not `known` was saved by the
    /// user, and goes back to its name.
    ///
    /// # Errors
    /// The disk failed.
    pub fn settle(&self, known: &[Content]) -> io::Result<Settled> {
        self.unlink(&self.unfinished)?;
        let Some((_, State { content, .. })) = self.state(&self.beside)? else {
            return Ok(Settled::Clean);
        };
        if known.contains(&content) {
            return self.unlink(&self.beside).map(|()| Settled::Clean);
        }
        let outcome = match self.state(&self.name)? {
            None => self.rename_back(Cause::Changed)?,
            Some((_, there)) if known.contains(&there.content) => {
                self.swap_back(&there, Cause::Changed)?
            }
            Some(_) => self.keep_beside(Cause::Changed)?,
        };
        Ok(match outcome {
            FileOutcome::LeftAlone(left) => left.kept_as.map_or(Settled::PutBack, Settled::Kept),
            FileOutcome::Done | FileOutcome::Unguarded => Settled::PutBack,
        })
    }
}
