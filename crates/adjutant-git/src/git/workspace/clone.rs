//! A clone of the user's repository that shares its objects, with a configuration written by
//! Adjutant.

use super::{NewWorkTree, NewWorkspace, copy_info};
use crate::git::config_text::quote;
use crate::git::{GitError, Repo};
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::Path;

/// Settings of the repository that are copied to the clone. Their values are data.
const COPIED_SETTINGS: &str = r"^(user\.(name|email)|core\.(autocrlf|eol|filemode|ignorecase|precomposeunicode|symlinks|sparsecheckout|sparsecheckoutcone)|index\.sparse)$";

/// Creates a clone at `top`, without files yet. The base is checked out on a new branch.
pub(super) async fn make<'a>(
    repo: &'a Repo,
    new: &NewWorkspace<'_>,
    top: &Path,
) -> Result<NewWorkTree<'a>, GitError> {
    let branch = format!("adj/{}", new.run_name);
    let dir = top.join(".git");
    let made = NewWorkTree {
        repo,
        top: top.to_owned(),
        index: dir.join("index"),
        dir,
        umask: new.umask,
    };
    fs::create_dir(top).map_err(GitError::file(top))?;
    let (format, first) = (
        format!("--object-format={}", repo.object_format),
        format!("--initial-branch={branch}"),
    );
    repo.git
        .call(top, &["init", "--quiet", "--template=", &format, &first])
        .umask(Some(new.umask))
        .output()
        .await?;
    let write = |name: &str, text: &[u8]| {
        let path = made.dir.join(name);
        fs::create_dir_all(path.parent().unwrap_or(&path))
            .and_then(|()| fs::write(&path, text))
            .map_err(GitError::file(path))
    };
    write(
        "objects/info/alternates",
        format!("{}\n", repo.common.join("objects").display()).as_bytes(),
    )?;
    let config = made.dir.join("config");
    let mut text = fs::read_to_string(&config).map_err(GitError::file(&config))?;
    text.push_str(&configuration(repo, new, &branch).await?);
    write("config", text.as_bytes())?;
    // Copies ignore patterns, the sparse checkout and the end of a shallow history from the user's
    // work tree.
    copy_info(repo, &made.dir)?;
    let head = new
        .continued
        .and_then(|continued| continued.head.as_deref())
        .unwrap_or(new.base);
    let mut refs = format!("create refs/heads/{branch} {head}\n");
    // Writing to a string cannot fail.
    if let Some(continued) = new.continued {
        for (name, commit) in continued
            .branches
            .iter()
            .filter(|(name, _)| *name != branch)
        {
            let _ = writeln!(refs, "create refs/heads/{name} {commit}");
        }
        if let Some(stash) = &continued.stash {
            let _ = writeln!(refs, "create refs/stash {stash}");
        }
    }
    if let Some(theirs) = new.branch {
        let _ = writeln!(refs, "create refs/remotes/origin/{theirs} {}", new.base);
    }
    made.call(&["update-ref", "--stdin"])
        .input(refs.into_bytes())
        .output()
        .await?;
    Ok(made)
}

/// The settings of remotes from which a partial clone gets missing objects.
const PROMISOR_SETTINGS: &str = r"^remote\..*\.(url|promisor|partialclonefilter)$";

/// Returns the text that names the remotes from which the user's repository gets the objects that
/// it lacks, so that git in the workspace can read all of its history. Their addresses are data: no
/// refspec, and no program that the repository configures.
async fn promisors(repo: &Repo) -> Result<String, GitError> {
    let ran = repo
        .of_refs(&["config", "--get-regexp", "-z", PROMISOR_SETTINGS])
        .run()
        .await?;
    let listed = String::from_utf8_lossy(&ran.output).into_owned();
    let mut remotes: BTreeMap<&str, [Option<&str>; 3]> = BTreeMap::new();
    for entry in listed.split('\0').filter(|entry| !entry.is_empty()) {
        let (name, value) = entry.split_once('\n').unwrap_or((entry, "true"));
        let Some((remote, key)) = name
            .strip_prefix("remote.")
            .and_then(|name| name.rsplit_once('.'))
        else {
            continue;
        };
        let at = match key {
            "url" => 0,
            "promisor" => 1,
            _ => 2,
        };
        let known = remotes.entry(remote).or_default();
        // git fetches from the first address.
        known[at] = known[at].filter(|_| at == 0).or(Some(value));
    }
    let mut text = String::new();
    let is_promisor = |value: Option<&str>| {
        value.is_some_and(|value| matches!(value, "true" | "yes" | "on" | "1"))
    };
    let promisors = remotes
        .into_values()
        .filter(|[_, promisor, filter]| is_promisor(*promisor) || filter.is_some());
    for (n, (url, filter)) in promisors
        .filter_map(|[url, _, filter]| Some((url?, filter)))
        .enumerate()
    {
        // A relative address counts from the user's work tree.
        let is_relative = url.starts_with("./") || url.starts_with("../");
        let url = if is_relative {
            repo.top.join(url).display().to_string()
        } else {
            url.to_owned()
        };
        let _ = writeln!(
            text,
            "[remote \"promisor{}\"]\n\turl = {}\n\tpromisor = true",
            n + 1,
            quote(&url)
        );
        if let Some(filter) = filter {
            let _ = writeln!(text, "\tpartialclonefilter = {}", quote(filter));
        }
    }
    Ok(text)
}

/// Returns the text to append to the configuration of a new repository.
async fn configuration(
    repo: &Repo,
    new: &NewWorkspace<'_>,
    branch: &str,
) -> Result<String, GitError> {
    let url = quote(&repo.top.display().to_string());
    let mut text = format!(
        "[remote \"origin\"]\n\turl = {url}\n\tfetch = +refs/heads/*:refs/remotes/origin/*\n"
    );
    if let Some(theirs) = new.branch {
        let theirs = quote(&format!("refs/heads/{theirs}"));
        let _ = writeln!(
            text,
            "[branch {}]\n\tremote = origin\n\tmerge = {theirs}",
            quote(branch)
        );
    }
    text.push_str(&promisors(repo).await?);
    let ran = repo
        .of_refs(&["config", "--get-regexp", "-z", COPIED_SETTINGS])
        .run()
        .await?;
    let listed = String::from_utf8_lossy(&ran.output);
    for entry in listed.split('\0').filter(|entry| !entry.is_empty()) {
        let (name, value) = entry.split_once('\n').unwrap_or((entry, "true"));
        if let Some((section, key)) = name.split_once('.') {
            let _ = writeln!(text, "[{section}]\n\t{key} = {}", quote(value));
        }
    }
    Ok(text)
}
