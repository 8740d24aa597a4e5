//! Replacing, creating and removing one file.

use super::state::{Stamp, State, shown};
use super::{Cause, FileOutcome, LeftAlone, Slot, is_unsupported};
use crate::failpoint::{self, failpoint};
use rustix::fs::RenameFlags;
use rustix::io::Errno;
use std::ffi::{OsStr, OsString};
use std::io;
use std::os::fd::{AsFd, BorrowedFd};

/// How often two saves of the user are exchanged until both stay.
const SWAPS_MAX: u32 = 8;
/// How many names are tried for an older save.
const NAMES_MAX: u32 = 1000;

impl Slot {
    /// Replaces a file by a new one, if it still has the stamp that was seen; without a stamp,
    /// creates it if there is none. `make` creates the new file with the given name in the
    /// directory, and syncs it.
    ///
    /// # Errors
    /// The disk failed. The file is then as before, or as after.
    pub fn replace(
        &self,
        seen: Option<Stamp>,
        make: impl FnOnce(BorrowedFd<'_>, &OsStr) -> io::Result<()>,
    ) -> io::Result<FileOutcome> {
        self.unlink(&self.unfinished)?;
        // A name of its own while it is written: what a killed process leaves under the other one
        // is always a whole file, and perhaps the only copy of a save of the user.
        let made = make(self.dir.as_fd(), &self.unfinished).and_then(|()| {
            match self.rename_to_free(&self.unfinished, &self.beside)? {
                true => Ok(()),
                // It can be a file of the user that a killed process left.
                false => Err(io::Error::new(
                    io::ErrorKind::AlreadyExists,
                    format!("{} is in the way", shown(&self.beside)),
                )),
            }
        });
        if let Err(error) = made {
            self.unlink(&self.unfinished)?;
            return Err(error);
        }
        let ours = self.state(&self.beside)?.ok_or(io::ErrorKind::NotFound)?.1;
        if failpoint::is_unchecked() {
            self.window("looked");
            return Ok(
                rustix::fs::renameat(&self.dir, &self.beside, &self.dir, &self.name)
                    .map(|()| FileOutcome::Done)?,
            );
        }
        let before = match (seen, self.state(&self.name)?) {
            (None, None) => return self.create(),
            (Some(seen), Some((stamp, before))) if stamp == seen => before,
            _ => return self.unlink(&self.beside).map(|()| Cause::Changed.into()),
        };
        self.window("looked");
        failpoint!("replace.looked");
        let exchanged = match failpoint::cannot_exchange() {
            true => Err(Errno::INVAL),
            false => rustix::fs::renameat_with(
                &self.dir,
                &self.beside,
                &self.dir,
                &self.name,
                RenameFlags::EXCHANGE,
            ),
        };
        match exchanged {
            Ok(()) => {}
            // The user has removed the file since.
            Err(Errno::NOENT) => return self.unlink(&self.beside).map(|()| Cause::Changed.into()),
            Err(error) if is_unsupported(error) => return self.rename_over(&before),
            Err(error) => {
                self.unlink(&self.beside)?;
                return Err(error.into());
            }
        }
        self.window("exchanged");
        failpoint!("replace.exchanged");
        match self.remove_what_came_out(&before)? {
            None => Ok(FileOutcome::Done),
            Some(cause) => self.swap_back(&ours, cause),
        }
    }

    /// Removes a file, if it still has the stamp that was seen. A file that is gone counts as
    /// removed.
    ///
    /// # Errors
    /// The disk failed.
    pub fn remove(&self, seen: Option<Stamp>) -> io::Result<FileOutcome> {
        let before = match (seen, self.state(&self.name)?) {
            (_, None) => return Ok(FileOutcome::Done),
            (Some(seen), Some((stamp, before))) if stamp == seen => before,
            _ => return Ok(Cause::Changed.into()),
        };
        if failpoint::is_unchecked() {
            self.window("looked");
            return self.unlink(&self.name).map(|()| FileOutcome::Done);
        }
        self.window("looked");
        failpoint!("replace.looked");
        match self.rename_to_free(&self.name, &self.beside) {
            Ok(true) => {}
            Ok(false) => {
                return Err(io::Error::new(
                    io::ErrorKind::AlreadyExists,
                    format!("{} is in the way", shown(&self.beside)),
                ));
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(FileOutcome::Done),
            Err(error) => return Err(error),
        }
        self.window("exchanged");
        failpoint!("replace.exchanged");
        match self.remove_what_came_out(&before)? {
            None => Ok(FileOutcome::Done),
            Some(cause) => self.rename_back(cause),
        }
    }

    /// Gives the new file its name, if the name is free.
    fn create(&self) -> io::Result<FileOutcome> {
        self.window("looked");
        failpoint!("replace.looked");
        if self.rename_to_free(&self.beside, &self.name)? {
            return Ok(FileOutcome::Done);
        }
        self.unlink(&self.beside).map(|()| Cause::Changed.into())
    }

    /// Removes the file that came out of an exchange, if it is the one that was seen. Returns why
    /// it is not removed.
    fn remove_what_came_out(&self, before: &State) -> io::Result<Option<Cause>> {
        // Under this name, no later save of the user replaces it.
        let out = self.state(&self.beside)?;
        let cause = if !before.is(out.as_ref()) {
            Some(Cause::Changed)
        } else if self.has_writer(&self.beside) == Some(true) {
            Some(Cause::InUse)
        } else {
            None
        };
        self.window("checked");
        failpoint!("replace.checked");
        if cause.is_some() {
            return Ok(cause);
        }
        // A program that still had the file open can have written to it since.
        if Stamp::at(&self.dir, &self.beside)? != out.map(|(stamp, _)| stamp) {
            return Ok(Some(Cause::Changed));
        }
        self.unlink(&self.beside).map(|()| None)
    }

    /// Replaces the file without an exchange, after a last look.
    fn rename_over(&self, before: &State) -> io::Result<FileOutcome> {
        if !before.is(self.state(&self.name)?.as_ref()) || self.has_writer(&self.name) == Some(true)
        {
            return self.unlink(&self.beside).map(|()| Cause::Changed.into());
        }
        rustix::fs::renameat(&self.dir, &self.beside, &self.dir, &self.name)?;
        tracing::warn!(name = %shown(&self.name), "replaced without an exchange, which the file system does not support");
        Ok(FileOutcome::Unguarded)
    }

    /// Exchanges back what came out. `placed`: what the exchange has put there. If the user has
    /// saved again since, both saves stay: the newest under the name, an older one beside it.
    pub(super) fn swap_back(&self, placed: &State, cause: Cause) -> io::Result<FileOutcome> {
        let mut there = placed.clone();
        for _ in 0..SWAPS_MAX {
            let Some((_, out)) = self.state(&self.beside)? else {
                break;
            };
            if !there.is(self.state(&self.name)?.as_ref()) {
                break;
            }
            self.window("swapping");
            match rustix::fs::renameat_with(
                &self.dir,
                &self.beside,
                &self.dir,
                &self.name,
                RenameFlags::EXCHANGE,
            ) {
                Ok(()) => {}
                Err(Errno::NOENT) => break,
                Err(error) => return Err(error.into()),
            }
            // Otherwise, the user has saved between the look and the exchange: a newer save has
            // come out, and the next round gives it the name.
            if there.is(self.state(&self.beside)?.as_ref()) {
                // Only the file that Adjutant has made is removed. Anything else is a save of the
                // user.
                if there == *placed {
                    return self.unlink(&self.beside).map(|()| cause.into());
                }
                break;
            }
            there = out;
        }
        self.keep_beside(cause)
    }

    /// Gives a file that was to be removed its name back, unless the user has saved another one.
    pub(super) fn rename_back(&self, cause: Cause) -> io::Result<FileOutcome> {
        self.window("swapping");
        if self.rename_to_free(&self.beside, &self.name)? {
            Ok(cause.into())
        } else {
            self.keep_beside(cause)
        }
    }

    /// Keeps the file beside under a name that the user sees.
    pub(super) fn keep_beside(&self, cause: Cause) -> io::Result<FileOutcome> {
        let kept_as = self.name_kept()?;
        tracing::warn!(name = %shown(&self.name), kept_as = %shown(&kept_as), "an earlier save is kept");
        Ok(FileOutcome::LeftAlone(LeftAlone {
            cause,
            kept_as: Some(kept_as),
        }))
    }

    fn name_kept(&self) -> io::Result<OsString> {
        for n in 1..=NAMES_MAX {
            let mut name = self.name.clone();
            name.push(format!(".adj-kept-{n}"));
            match self.rename_to_free(&self.beside, &name) {
                Ok(true) => return Ok(name),
                Ok(false) => {}
                Err(error) if error.raw_os_error() == Some(Errno::NAMETOOLONG.raw_os_error()) => {
                    break;
                }
                Err(error) => return Err(error),
            }
        }
        // No name is free, so the file keeps the one that it has.
        Ok(self.beside.clone())
    }

    /// A moment at which a test saves the file.
    fn window(&self, name: &str) {
        #[cfg(test)]
        super::tests::reach(name);
        failpoint::window(name, &self.dir, &self.name);
    }
}
