//! Creates commits with the user's identity, without hooks and signatures.

use super::call::{Call, error_text};
use super::refusal::MergeRefusal;
use super::{GitError, Repo, Scratch};

/// A name and an email address, as in a commit.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Identity {
    pub name: String,
    pub email: String,
}

impl Identity {
    pub(super) fn as_committer<'a>(&self, call: Call<'a>) -> Call<'a> {
        call.env("GIT_COMMITTER_NAME", &self.name)
            .env("GIT_COMMITTER_EMAIL", &self.email)
    }

    /// Reads `Name <address> 1700000000 +0100`, and returns the date too.
    fn parse(text: &str) -> Option<(Self, &str)> {
        let (name, rest) = text.split_once('<')?;
        let (email, date) = rest.rsplit_once('>')?;
        Some((
            Self {
                name: name.trim().to_owned(),
                email: email.trim().to_owned(),
            },
            date.trim(),
        ))
    }
}

/// A commit to make.
#[derive(Debug, Clone)]
pub(super) struct NewCommit<'a> {
    /// A tree, or a commit's tree (`<commit>^{tree}`).
    pub tree: &'a str,
    pub parents: &'a [&'a str],
    pub message: &'a [u8],
    pub committer: &'a Identity,
    /// The author and the date in git's format. `None`: the committer, now.
    pub author: Option<(&'a Identity, &'a str)>,
}

/// The author, date and message of a commit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct CommitText {
    pub author: Identity,
    /// In git's format.
    pub date: String,
    pub message: Vec<u8>,
}

impl Repo {
    /// Returns the user's identity, from their own configuration and the repository's.
    ///
    /// # Errors
    /// It is not configured, or git failed.
    pub async fn identity(&self) -> Result<Identity, GitError> {
        let ran = self
            .of_refs(&["var", "GIT_COMMITTER_IDENT"])
            .for_user()
            .run()
            .await?;
        let text = String::from_utf8_lossy(&ran.output).into_owned();
        let identity = (ran.exit_code == Some(0))
            .then(|| Identity::parse(&text))
            .flatten();
        identity.map(|(identity, _)| identity).ok_or_else(|| {
            let why = error_text(&ran)
                .split("; ")
                .last()
                .unwrap_or_default()
                .trim_start_matches("fatal: ")
                .to_owned();
            MergeRefusal::NoIdentity(why).into()
        })
    }
}

impl Repo {
    /// Returns whether the user's git signs commits. Adjutant does not: a program that the
    /// configuration names would have to run.
    ///
    /// # Errors
    /// git failed.
    pub async fn signs_commits(&self) -> Result<bool, GitError> {
        // Exit code 1 means that it is not set.
        let ran = self
            .of_refs(&["config", "--type=bool", "--get", "commit.gpgsign"])
            .for_user()
            .run()
            .await?;
        Ok(ran.exit_code == Some(0) && String::from_utf8_lossy(&ran.output).trim_end() == "true")
    }
}

impl Scratch {
    /// Creates a commit in the repository. No ref names it yet.
    pub(super) async fn commit(&self, new: &NewCommit<'_>) -> Result<String, GitError> {
        let (author, date) = new
            .author
            .map_or((new.committer, None), |(author, date)| (author, Some(date)));
        let mut call = self.call(&["commit-tree", "-F", "-"]).arg(new.tree);
        for parent in new.parents {
            call = call.arg("-p").arg(parent);
        }
        call = new
            .committer
            .as_committer(call)
            .env("GIT_AUTHOR_NAME", &author.name)
            .env("GIT_AUTHOR_EMAIL", &author.email);
        if let Some(date) = date {
            call = call.env("GIT_AUTHOR_DATE", format!("@{date}"));
        }
        call.input(new.message.to_vec()).line().await
    }

    /// Reads the author, date and message of a commit.
    pub(super) async fn commit_text(&self, commit: &str) -> Result<CommitText, GitError> {
        let raw = self.call(&["cat-file", "commit", commit]).output().await?;
        read_commit(&raw).ok_or_else(|| GitError::Failed {
            command: "cat-file".to_owned(),
            why: format!("{commit} names no author"),
        })
    }

    /// Returns the tree of a commit.
    ///
    /// # Errors
    /// The commit does not exist, or git failed.
    pub async fn tree_of(&self, commit: &str) -> Result<String, GitError> {
        self.call(&["rev-parse", "--verify", "--end-of-options"])
            .arg(format!("{commit}^{{tree}}"))
            .line()
            .await
    }
}

/// Reads a commit as git stores it: headers, an empty line, the message.
fn read_commit(raw: &[u8]) -> Option<CommitText> {
    let end = raw.windows(2).position(|pair| pair == b"\n\n")?;
    let headers = String::from_utf8_lossy(&raw[..end]);
    let (author, date) = Identity::parse(
        headers
            .lines()
            .find_map(|line| line.strip_prefix("author "))?,
    )?;
    Some(CommitText {
        author,
        date: date.to_owned(),
        message: raw[end + 2..].to_vec(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commit_is_read() {
        let raw = b"tree aaaa\nparent bbbb\nauthor A <B> C <a@b> 1700000000 +0100\ncommitter D <d@e> 1 +0000\n\nsubject\n\nbody\n";
        let read = read_commit(raw).expect("a commit");
        assert_eq!(
            (read.author.name.as_str(), read.author.email.as_str()),
            ("A", "B> C <a@b")
        );
        assert_eq!(
            (read.date.as_str(), read.message.as_slice()),
            ("1700000000 +0100", b"subject\n\nbody\n".as_slice())
        );
        assert_eq!(read_commit(b"tree aaaa\n\nno author\n"), None);
    }
}
