//! The workspaces of isolated runs.

use super::{StoreError, Tx};
use crate::store::db::{self, Columns, Connection, Record, params, row, select};
use adjutant_core::{Denied, Isolation, RunId, RunName, WorkspaceSpec, WorkspaceState};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

row! {
    /// The workspace of an isolated run.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct Workspace, named "the workspace of run {}" {
        pub run: RunId = "run_id",
        pub isolation: Isolation = "kind",
        /// The top of the user's work tree.
        pub repository: String,
        /// The commit that the run starts from. Until its first attempt starts, the one that was
        /// checked out at the dispatch.
        pub base: String,
        /// The branch that was checked out in the repository at the dispatch. `None`: HEAD was
        /// detached.
        pub branch: Option<String>,
        /// The commit of the user's uncommitted changes that it starts with.
        pub changes: Option<String>,
        /// The top of the workspace.
        pub path: String,
        pub state: WorkspaceState,
        /// The settings that it is made with: setup command, copied files, caches, ports.
        pub spec: WorkspaceSpec as spec,
        /// The result of the preparation, in JSON. `None`: nothing is known yet.
        pub preparation: Option<String>,
    }
}

/// How many characters of a run's id are part of its workspace's name, because a run can reuse the
/// name of a removed one.
const ID_CHARS: usize = 6;

/// The data of a new run's workspace.
#[derive(Debug, Clone)]
pub struct NewWorkspace {
    pub isolation: Isolation,
    /// The top of the user's work tree.
    pub repository: String,
    /// The commit that the run starts from.
    pub base: String,
    /// The branch that is checked out in the repository.
    pub branch: Option<String>,
    /// The commit of the user's uncommitted changes that it starts with.
    pub changes: Option<String>,
    /// The directory of the workspaces of all runs.
    pub all: PathBuf,
    /// The settings that it is made with: setup command, copied files, caches, ports.
    pub spec: WorkspaceSpec,
    /// The run's working directory, relative to the top of the workspace.
    pub below: PathBuf,
}

impl NewWorkspace {
    /// Returns the workspace of a run under its name. People and agents see the repository's name
    /// at the end of its path. `None`: its path is not UTF-8.
    fn of(&self, run: RunId, name: &RunName) -> Option<Workspace> {
        let id = run.to_string();
        let dir = format!("{name}-{}", &id[id.len().saturating_sub(ID_CHARS)..]);
        let repository = Path::new(&self.repository)
            .file_name()
            .unwrap_or("repository".as_ref());
        let path = self.all.join(dir).join(repository);
        Some(Workspace {
            run,
            isolation: self.isolation,
            repository: self.repository.clone(),
            base: self.base.clone(),
            branch: self.branch.clone(),
            changes: self.changes.clone(),
            path: path.to_str()?.to_owned(),
            state: WorkspaceState::Planned,
            spec: self.spec.clone(),
            preparation: None,
        })
    }
}

/// A specification as it is stored.
#[derive(Debug, Serialize, Deserialize)]
struct SpecRow {
    setup: Vec<String>,
    setup_timeout_ms: i64,
    copy: Vec<String>,
    caches: BTreeMap<String, String>,
    ports: u16,
}

impl SpecRow {
    fn parse(text: &str) -> Result<WorkspaceSpec, serde_json::Error> {
        let Self {
            setup,
            setup_timeout_ms,
            copy,
            caches,
            ports,
        } = serde_json::from_slice(text.as_bytes())?;
        Ok(WorkspaceSpec {
            setup,
            setup_timeout_ms,
            copy,
            caches,
            ports,
        })
    }

    fn text_of(spec: &WorkspaceSpec) -> Result<String, StoreError> {
        let WorkspaceSpec {
            setup,
            setup_timeout_ms,
            copy,
            caches,
            ports,
        } = spec.clone();
        let row = Self {
            setup,
            setup_timeout_ms,
            copy,
            caches,
            ports,
        };
        serde_json::to_string(&row).map_err(|error| StoreError::Corrupt(error.to_string()))
    }
}

fn spec(columns: &mut Columns<'_>) -> db::Result<WorkspaceSpec> {
    let Some(text) = columns.value::<Option<String>>()? else {
        return Ok(WorkspaceSpec::default());
    };
    SpecRow::parse(&text).map_err(db::Error::json)
}

/// Reads the workspace of a run. `None`: the run is not isolated.
///
/// # Errors
/// A failure of the store.
pub fn workspace_of(connection: &Connection, run: RunId) -> Result<Option<Workspace>, StoreError> {
    Ok(connection
        .prepare_cached(select!(Workspace, "FROM workspaces WHERE run_id = ?1"))?
        .find_row([run.to_string()])?)
}

/// Reads the workspace that contains a directory: that of the run itself, or of the run that
/// delegated to it.
///
/// # Errors
/// A failure of the store.
pub fn workspace_around(
    connection: &Connection,
    dir: &str,
) -> Result<Option<Workspace>, StoreError> {
    // The directory and those above it: the text before each slash.
    let sql = format!(
        "WITH RECURSIVE up (dir) AS (SELECT ?1 UNION ALL SELECT rtrim(rtrim(dir, replace(dir, '/', '')), '/') FROM up WHERE dir <> '')
         {}",
        Workspace::select("FROM workspaces CROSS JOIN up ON path = dir ORDER BY length(dir) DESC LIMIT 1")
    );
    Ok(connection.prepare_cached(&sql)?.find_row([dir])?)
}

/// Lists the workspaces of all runs.
///
/// # Errors
/// A failure of the store.
pub fn all_workspaces(connection: &Connection) -> Result<Vec<Workspace>, StoreError> {
    let mut statement = connection.prepare_cached(select!(Workspace, "FROM workspaces"))?;
    Ok(statement.read_rows([])?)
}

/// Lists the workspaces of runs that were discarded, without those that an unfinished run may still
/// use.
///
/// # Errors
/// A failure of the store.
pub fn discarded_workspaces(connection: &Connection) -> Result<Vec<Workspace>, StoreError> {
    let mut statement = connection.prepare_cached(select!(Workspace, "FROM workspaces WHERE state = 'discarded' AND NOT EXISTS (SELECT 1 FROM runs WHERE runs.state <> 'finished'
         AND (runs.id = run_id OR runs.cwd = path OR substr(runs.cwd, 1, length(path) + 1) = path || '/'))"))?;
    Ok(statement.read_rows([])?)
}

/// Reads the names of other runs that are not finished and work in a workspace.
///
/// # Errors
/// A failure of the store.
pub fn unfinished_in(
    connection: &Connection,
    path: &str,
    except: RunId,
) -> Result<Vec<String>, StoreError> {
    let sql = "SELECT name FROM runs WHERE id <> ?2 AND state <> 'finished' AND (cwd = ?1 OR substr(cwd, 1, length(?1) + 1) = ?1 || '/') LIMIT 5";
    Ok(connection
        .prepare_cached(sql)?
        .read_rows([path, &except.to_string()])?)
}

impl Tx<'_> {
    /// Records the commit that the workspace of a run is created from, once, before the attempt
    /// that creates it starts.
    ///
    /// # Errors
    /// A failure of the store.
    pub fn set_base(&mut self, run: RunId, base: &str) -> Result<(), StoreError> {
        let sql = "UPDATE workspaces SET base = ?2, state = 'starting' WHERE run_id = ?1 AND state = 'planned'";
        self.prepare(sql)?.run([&run.to_string(), base])?;
        Ok(())
    }

    /// Records what the workspace of a run was given.
    ///
    /// # Errors
    /// A failure of the store.
    pub fn set_preparation(&mut self, run: RunId, preparation: &str) -> Result<(), StoreError> {
        self.prepare("UPDATE workspaces SET preparation = ?2 WHERE run_id = ?1")?
            .run([&run.to_string(), preparation])?;
        Ok(())
    }

    /// Marks the workspace around a directory as ready: an attempt works in it. Merged and
    /// discarded ones, too, since it may change them again.
    ///
    /// # Errors
    /// A failure of the store.
    pub fn set_workspace_ready(&mut self, cwd: &str) -> Result<(), StoreError> {
        self.prepare(
            "UPDATE workspaces SET state = 'ready' WHERE (path = ?1 OR substr(?1, 1, length(path) + 1) = path || '/') AND state <> 'ready'",
        )?
        .run([cwd])?;
        Ok(())
    }
}

/// Records the workspace of a run that was dispatched in this transaction, and makes it the
/// run's working directory.
///
/// # Errors
/// A failure of the store.
pub(in crate::store) fn add_workspace(
    tx: &mut Tx<'_>,
    run: RunId,
    name: &RunName,
    new: &NewWorkspace,
) -> Result<(), StoreError> {
    let unusable = || Denied::invalid("cwd", "is not valid UTF-8");
    let Workspace {
        run,
        isolation,
        repository,
        base,
        branch,
        changes,
        path,
        state,
        spec,
        preparation: _,
    } = new.of(run, name).ok_or_else(unusable)?;
    let cwd = Path::new(&path)
        .join(&new.below)
        .into_os_string()
        .into_string()
        .map_err(|_| unusable())?;
    tx.prepare("UPDATE runs SET cwd = ?2 WHERE id = ?1")?
        .run([&run.to_string(), cwd.trim_end_matches('/')])?;
    tx.prepare(
        "INSERT INTO workspaces (run_id, kind, repository, base, branch, path, state, changes, spec) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)",
    )?
    .run(params![run.to_string(), isolation.word(), repository, base, branch, path, state.word(), changes, SpecRow::text_of(&spec)?])?;
    Ok(())
}

/// Records the state of a run's workspace.
///
/// # Errors
/// A failure of the store.
pub(in crate::store) fn set_workspace_state(
    tx: &mut Tx<'_>,
    run: RunId,
    state: WorkspaceState,
) -> Result<(), StoreError> {
    tx.prepare("UPDATE workspaces SET state = ?2 WHERE run_id = ?1")?
        .run([&run.to_string(), state.word()])?;
    Ok(())
}
