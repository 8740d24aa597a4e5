//! A clone of the user's repository that shares its objects, with a configuration written by Adjutant.

use super::{NewWorkTree, NewWorkspace, copy_info};
use crate::git::{GitError, Repo};
use std::fmt::Write as _;
use std::fs;
use std::path::Path;

/// Settings of the repository that are copied to the clone. Their values are data.
const COPIED_SETTINGS: &str =
    r"^(user\.(name|email)|core\.(autocrlf|eol|filemode|ignorecase|precomposeunicode|symlinks|sparsecheckout|sparsecheckoutcone)|index\.sparse)$";

/// Creates a clone at `top`, without files yet. The base is checked out on a new branch.
pub(super) async fn make<'a>(repo: &'a Repo, new: &NewWorkspace<'_>, top: &Path) -> Result<NewWorkTree<'a>, GitError> {
    let branch = format!("adj/{}", new.run_name);
    let dir = top.join(".git");
    let made = NewWorkTree { repo, top: top.to_owned(), index: dir.join("index"), dir, umask: new.umask };
    fs::create_dir(top).map_err(GitError::file(top))?;
    let (format, first) = (format!("--object-format={}", repo.object_format), format!("--initial-branch={branch}"));
    repo.git.call(top, &["init", "--quiet", "--template=", &format, &first]).umask(Some(new.umask)).output().await?;
    let write = |name: &str, text: &[u8]| {
        let path = made.dir.join(name);
        fs::create_dir_all(path.parent().unwrap_or(&path)).and_then(|()| fs::write(&path, text)).map_err(GitError::file(path))
    };
    write("objects/info/alternates", format!("{}\n", repo.common.join("objects").display()).as_bytes())?;
    let config = made.dir.join("config");
    let mut text = fs::read_to_string(&config).map_err(GitError::file(&config))?;
    text.push_str(&configuration(repo, new, &branch).await?);
    write("config", text.as_bytes())?;
    // Copies ignore patterns, the sparse checkout and the end of a shallow history from the user's work tree.
    copy_info(repo, &made.dir)?;
    let head = new.continued.and_then(|continued| continued.head.as_deref()).unwrap_or(new.base);
    let mut refs = format!("create refs/heads/{branch} {head}\n");
    // Writing to a string cannot fail.
    if let Some(continued) = new.continued {
        for (name, commit) in continued.branches.iter().filter(|(name, _)| *name != branch) {
            let _ = writeln!(refs, "create refs/heads/{name} {commit}");
        }
        if let Some(stash) = &continued.stash {
            let _ = writeln!(refs, "create refs/stash {stash}");
        }
    }
    if let Some(theirs) = new.branch {
        let _ = writeln!(refs, "create refs/remotes/origin/{theirs} {}", new.base);
    }
    made.call(&["update-ref", "--stdin"]).input(refs.into_bytes()).output().await?;
    Ok(made)
}

/// Returns the text to append to the configuration of a new repository.
async fn configuration(repo: &Repo, new: &NewWorkspace<'_>, branch: &str) -> Result<String, GitError> {
    let url = quote(&repo.top.display().to_string());
    let mut text = format!("[remote \"origin\"]\n\turl = {url}\n\tfetch = +refs/heads/*:refs/remotes/origin/*\n");
    if let Some(theirs) = new.branch {
        let theirs = quote(&format!("refs/heads/{theirs}"));
        let _ = writeln!(text, "[branch {}]\n\tremote = origin\n\tmerge = {theirs}", quote(branch));
    }
    let ran = repo.of_refs(&["config", "--get-regexp", "-z", COPIED_SETTINGS]).run().await?;
    let listed = String::from_utf8_lossy(&ran.output);
    for entry in listed.split('\0').filter(|entry| !entry.is_empty()) {
        let (name, value) = entry.split_once('\n').unwrap_or((entry, "true"));
        if let Some((section, key)) = name.split_once('.') {
            let _ = writeln!(text, "[{section}]\n\t{key} = {}", quote(value));
        }
    }
    Ok(text)
}

/// Quotes a value for a configuration file.
pub(in crate::git) fn quote(value: &str) -> String {
    let escaped = value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n").replace('\t', "\\t");
    format!("\"{escaped}\"")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_quoted_for_a_configuration() {
        assert_eq!(quote("/a b/\"c\"\\d;#"), "\"/a b/\\\"c\\\"\\\\d;#\"");
        assert_eq!(quote("x\n[core]"), "\"x\\n[core]\"");
    }
}
