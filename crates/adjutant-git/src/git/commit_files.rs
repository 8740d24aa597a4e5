//! Reads single files of commits.

use super::{GitError, Scratch};

/// Maximum number of bytes that are read of a file.
const FILE_BYTES_MAX: usize = 4 * 1024 * 1024;

impl Scratch {
    pub(super) async fn has_path(&self, commit: &str, path: &str) -> Result<bool, GitError> {
        Ok(self
            .call(&["cat-file", "-e", &format!("{commit}:{path}")])
            .run()
            .await?
            .exit_code
            == Some(0))
    }

    /// Returns the start of a file of a commit. `None`: the commit does not contain the file.
    ///
    /// # Errors
    /// git failed.
    pub async fn file_of(&self, commit: &str, path: &str) -> Result<Option<String>, GitError> {
        let ran = self
            .call(&["cat-file", "blob", &format!("{commit}:{path}")])
            .output_bytes_max(FILE_BYTES_MAX)
            .run()
            .await?;
        Ok((ran.exit_code == Some(0)).then(|| String::from_utf8_lossy(&ran.output).into_owned()))
    }
}
