//! Policies of a repository (`.adjutant.toml`). They deny and ask; they allow only if the person
//! has trusted them.

use crate::config::{self, RepositoryPolicies};
use crate::files;
use crate::ops::{Caller, OpError, lookup};
use crate::store::{
    Connection, Store, StoreError, has_trusted, is_trusted, repository_policies_of, run_by_id,
    workspace_around,
};
use crate::view::{
    RepositoryPoliciesState, RepositoryPoliciesView, TrustPolicies, TrustedPolicies,
};
use adjutant_core::policy::{Conditions, Policy, PolicyDecision, PolicyName};
use adjutant_core::{Action, Denied, RunId, hex};
use sha2::{Digest, Sha256};
use std::io;
use std::path::{Path, PathBuf};

const FILE: &str = ".adjutant.toml";
const FILE_BYTES_MAX: u64 = 64 * 1024;
/// How many parent directories are searched for the file.
const ABOVE_MAX: usize = 32;
/// Maximum number of files that apply to one run. Beyond it, everything is asked.
const INHERITED_MAX: usize = 16;
/// The beginning of the hash of a file with policies.
const HASH_PREFIX: &str = "policies:";
/// The policy that replaces an invalid file.
const UNUSABLE: &str = "repo.unusable";

/// Reads the file of a directory or the nearest one above, up to the repository's root.
fn find_policies(directory: &Path) -> Option<RepositoryPolicies> {
    let levels: Vec<&Path> = directory.ancestors().take(ABOVE_MAX).collect();
    let above = levels
        .iter()
        .position(|dir| dir.join(".git").exists())
        .unwrap_or(0);
    levels[..=above].iter().find_map(|dir| {
        let text = match files::read_named(&dir.join(FILE), FILE_BYTES_MAX) {
            Ok(bytes) => String::from_utf8(bytes).map_err(|_| "not UTF-8".to_owned()),
            Err(error) if error.kind() == io::ErrorKind::NotFound => return None,
            Err(error) => Err(error.to_string()),
        };
        Some(RepositoryPolicies {
            directory: dir.display().to_string(),
            text,
            only_narrows: false,
        })
    })
}

/// Returns the policies that a run inherits from its parent and from the run whose workspace it
/// uses. Policies of another directory only restrict.
fn inherited_policies(
    connection: &Connection,
    run: RunId,
) -> Result<Vec<RepositoryPolicies>, StoreError> {
    let Some(run) = run_by_id(connection, run)? else {
        return Ok(Vec::new());
    };
    let workspace = workspace_around(connection, &run.cwd)?;
    let owner = workspace
        .as_ref()
        .map(|workspace| workspace.run)
        .filter(|owner| *owner != run.id);
    let mut all: Vec<RepositoryPolicies> = Vec::new();
    for before in run.parent.into_iter().chain(owner) {
        let Some(before) = run_by_id(connection, before)? else {
            continue;
        };
        let shares_workspace = workspace
            .as_ref()
            .is_some_and(|workspace| Path::new(&before.cwd).starts_with(&workspace.path));
        for policies in repository_policies_of(connection, before.id)? {
            let is_there = shares_workspace || Path::new(&run.cwd).starts_with(&policies.directory);
            let policies = RepositoryPolicies {
                only_narrows: policies.only_narrows || !is_there,
                ..policies
            };
            if !all.contains(&policies) {
                all.push(policies);
            }
        }
    }
    Ok(all)
}

fn hash(text: &str) -> String {
    format!("{HASH_PREFIX}{}", hex(Sha256::digest(text)))
}

/// Returns the policies of repositories that apply to a run.
pub(in crate::ops) fn policies_for(
    connection: &Connection,
    run: RunId,
) -> Result<Vec<Policy>, StoreError> {
    let mut all = Vec::new();
    for policies in repository_policies_of(connection, run)? {
        all.extend(policies_from(connection, Some(run), policies)?);
    }
    Ok(all)
}

fn policies_from(
    connection: &Connection,
    run: Option<RunId>,
    found: RepositoryPolicies,
) -> Result<Vec<Policy>, StoreError> {
    let RepositoryPolicies {
        directory,
        text,
        only_narrows,
    } = found;
    let parsed = text.and_then(parsed);
    let (text, policies) = match parsed {
        Ok(parsed) => parsed,
        // Its restrictions are unknown, so everything is asked.
        Err(problem) => {
            tracing::warn!(
                run = run.map(|run| run.to_string()),
                directory,
                problem,
                "the policies of a repository cannot be used: everything is asked"
            );
            let name = PolicyName::parse(UNUSABLE).expect("a valid name");
            return Ok(vec![Policy {
                name,
                decision: PolicyDecision::Ask,
                conditions: Conditions::default(),
                reason: None,
            }]);
        }
    };
    let trusts = !only_narrows
        && policies
            .iter()
            .any(|policy| policy.decision == PolicyDecision::Allow)
        && is_trusted(connection, &directory, &hash(&text))?;
    Ok(policies
        .into_iter()
        .filter(|policy| trusts || policy.decision != PolicyDecision::Allow)
        .collect())
}

fn parsed(text: String) -> Result<(String, Vec<Policy>), String> {
    match config::policies_of_repository(&text) {
        Ok(policies) => Ok((text, policies)),
        Err(error) => Err(error.to_string()),
    }
}

/// Returns the policies of a file, and whether they are in effect.
fn policies_view(
    connection: &Connection,
    found: &RepositoryPolicies,
) -> Result<(RepositoryPoliciesView, Vec<Policy>), StoreError> {
    let RepositoryPolicies {
        directory,
        text,
        only_narrows,
    } = found;
    let view = |state: RepositoryPoliciesState| RepositoryPoliciesView {
        directory: directory.clone(),
        state: state.into(),
        ..RepositoryPoliciesView::default()
    };
    let parsed = text.clone().and_then(parsed);
    let (text, policies) = match parsed {
        Ok(parsed) => parsed,
        Err(problem) => {
            return Ok((
                RepositoryPoliciesView {
                    problem: Some(problem),
                    ..view(RepositoryPoliciesState::Unusable)
                },
                Vec::new(),
            ));
        }
    };
    let state = if policies
        .iter()
        .all(|policy| policy.decision != PolicyDecision::Allow)
    {
        RepositoryPoliciesState::InEffect
    } else if *only_narrows {
        RepositoryPoliciesState::Elsewhere
    } else if is_trusted(connection, directory, &hash(&text))? {
        RepositoryPoliciesState::InEffect
    } else if has_trusted(connection, directory, HASH_PREFIX)? {
        RepositoryPoliciesState::Changed
    } else {
        RepositoryPoliciesState::NotTrusted
    };
    Ok((view(state), policies))
}

/// Describes why policies of repositories are not in effect for a run.
pub(in crate::ops) fn not_in_effect(
    connection: &Connection,
    run: RunId,
) -> Result<Vec<String>, StoreError> {
    let mut all = Vec::new();
    for found in repository_policies_of(connection, run)? {
        all.extend(policies_view(connection, &found)?.0.why_not());
    }
    Ok(all)
}

/// Returns the policies of a directory's repository, and whether they are in effect. `None`: it
/// has none.
pub(in crate::ops) fn policies_of_directory(
    store: &Store,
    directory: &str,
) -> Result<Option<(RepositoryPoliciesView, Vec<Policy>)>, OpError> {
    let Some(found) = find_policies(Path::new(directory)) else {
        return Ok(None);
    };
    Ok(Some(
        store.read(|connection| policies_view(connection, &found))?,
    ))
}

/// Returns the policies of repositories that would apply to a run that the person starts in a
/// directory.
pub(in crate::ops) fn policies_of_new_run(
    store: &Store,
    directory: &str,
) -> Result<Vec<Policy>, OpError> {
    let Some(found) = find_policies(Path::new(directory)) else {
        return Ok(Vec::new());
    };
    Ok(store.read(|connection| policies_from(connection, None, found))?)
}

/// Stores the policies of a run's repository before it starts, and those of its parent and of
/// the run whose workspace it uses, which could have changed the file. The run cannot change
/// them.
pub(in crate::ops) async fn store_repository_policies(
    store: &Store,
    run: RunId,
    source: &str,
) -> Result<(), OpError> {
    let directory = PathBuf::from(source);
    let found = tokio::task::spawn_blocking(move || find_policies(&directory))
        .await
        .map_err(|error| OpError::Io(error.to_string()))?;
    let mut all = store.read(|connection| inherited_policies(connection, run))?;
    // The copy in the workspace is the same file.
    let is_known = |found: &RepositoryPolicies| {
        all.iter()
            .any(|known| !known.only_narrows && known.text == found.text)
    };
    all.extend(found.filter(|found| !is_known(found)));
    if all.len() > INHERITED_MAX {
        let text = Err(format!("more than {INHERITED_MAX} files apply to it"));
        all = vec![RepositoryPolicies {
            directory: source.to_owned(),
            text,
            only_narrows: true,
        }];
    }
    if all.is_empty() {
        return Ok(());
    }
    Ok(store
        .write(move |tx| tx.set_repository_policies(run, all))
        .await?)
}

/// Trusts the policies of a repository in their current state.
///
/// # Errors
/// The caller is not the person, or the policies are invalid.
pub async fn trust_policies(
    store: &Store,
    caller: Caller,
    call: TrustPolicies,
) -> Result<TrustedPolicies, OpError> {
    lookup::check(&caller.who, Action::ManageHub)?;
    if !Path::new(&call.directory).is_absolute() {
        return Err(Denied::invalid("directory", "is not absolute").into());
    }
    let policies = config::policies_of_repository(&call.text)
        .map_err(|problem| Denied::invalid("policies", problem.to_string()))?;
    let allowing = policies
        .iter()
        .filter(|policy| policy.decision == PolicyDecision::Allow)
        .count() as u64;
    caller
        .write(store, move |tx, who| {
            tx.trust(&call.directory, &hash(&call.text), who)?;
            Ok(TrustedPolicies {
                directory: call.directory,
                policies: policies.len() as u64,
                allowing,
            })
        })
        .await
}
