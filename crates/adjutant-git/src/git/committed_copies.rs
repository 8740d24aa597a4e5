//! Finds files that were copied into a workspace in the commits of its agent.

use super::{GitError, Scratch};

impl Scratch {
    /// Returns the paths that were possibly copied into a workspace and that commits on top of the
    /// base contain.
    ///
    /// # Errors
    /// git failed.
    pub async fn committed_copies(
        &self,
        paths: &[String],
        base: &str,
        heads: &[String],
    ) -> Result<Vec<String>, GitError> {
        let mut found = Vec::new();
        for path in paths {
            // Files that the base contains are never copied.
            let listed = self
                .call(&[
                    "--literal-pathspecs",
                    "ls-tree",
                    "-z",
                    "--full-tree",
                    base,
                    "--",
                    path,
                ])
                .output()
                .await?;
            if !listed.is_empty() {
                continue;
            }
            let mut call = self.call(&[
                "--literal-pathspecs",
                "rev-list",
                "--full-history",
                "--max-count=1",
                &format!("^{base}"),
            ]);
            for head in heads {
                call = call.arg(head);
            }
            if !call.arg("--").arg(path).output().await?.is_empty() {
                found.push(path.clone());
            }
        }
        Ok(found)
    }
}
