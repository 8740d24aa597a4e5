//! The checked-out commit and branch of a work tree.

use super::call::error_text;
use super::{GitError, Repo, Scratch};

/// The checked-out commit and branch of a work tree.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Head {
    /// The ref of the branch. `None`: HEAD is detached.
    pub branch: Option<String>,
    pub commit: String,
}

impl Repo {
    /// Returns the checked-out commit and branch. `None`: there is no commit yet.
    ///
    /// # Errors
    /// git failed.
    pub async fn checked_out(&self) -> Result<Option<Head>, GitError> {
        let Some(commit) = self.head().await? else {
            return Ok(None);
        };
        let ran = self
            .of_refs(&["symbolic-ref", "--quiet", "HEAD"])
            .run()
            .await?;
        let branch = (ran.exit_code == Some(0))
            .then(|| String::from_utf8_lossy(&ran.output).trim_end().to_owned());
        Ok(Some(Head { branch, commit }))
    }

    /// Returns the commit that a ref names.
    pub async fn commit_of(&self, git_ref: &str) -> Result<Option<String>, GitError> {
        let ran = self
            .of_refs(&["rev-parse", "--verify", "--quiet", "--end-of-options"])
            .arg(format!("{git_ref}^{{commit}}"))
            .run()
            .await?;
        Ok((ran.exit_code == Some(0))
            .then(|| String::from_utf8_lossy(&ran.output).trim_end().to_owned()))
    }
}

impl Repo {
    /// Counts the commits that a ref has and a commit has not. `None`: one of them does not exist.
    ///
    /// # Errors
    /// git failed.
    pub async fn commits_since(
        &self,
        commit: &str,
        git_ref: &str,
    ) -> Result<Option<u64>, GitError> {
        let (Some(from), Some(to)) = (
            self.commit_of(commit).await?,
            self.commit_of(git_ref).await?,
        ) else {
            return Ok(None);
        };
        Ok(self
            .of_refs(&["rev-list", "--count", &to, &format!("^{from}")])
            .line()
            .await?
            .parse()
            .ok())
    }

    /// Returns whether any ref contains a commit.
    pub(super) async fn is_in_a_ref(&self, commit: &str) -> Result<bool, GitError> {
        if self.commit_of(commit).await?.is_none() {
            return Ok(false);
        }
        Ok(!self
            .of_refs(&[
                "for-each-ref",
                "--count=1",
                "--format=x",
                "--contains",
                commit,
            ])
            .output()
            .await?
            .is_empty())
    }
}

impl Scratch {
    /// Returns whether a commit is an ancestor of another one, or the same commit.
    pub(super) async fn is_ancestor(&self, older: &str, newer: &str) -> Result<bool, GitError> {
        let ran = self
            .call(&["merge-base", "--is-ancestor", older, newer])
            .run()
            .await?;
        match ran.exit_code {
            Some(0) => Ok(true),
            Some(1) => Ok(false),
            _ => Err(GitError::Failed {
                command: "merge-base".to_owned(),
                why: error_text(&ran),
            }),
        }
    }
}
