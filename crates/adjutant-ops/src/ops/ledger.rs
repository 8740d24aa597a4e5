//! The ledger: runs announce what they will change or provide. An overlap with another run's
//! announcements is reported to both and to their parent, and at its end a run's changes are
//! compared with what it has announced.

use super::OpError;
use crate::store::{
    Announced, Connection, OverlapChange, Run, Store, StoreError, Tx, announced_by, announcing_in,
    other_announcing_runs, overlaps_of, run_by_id, workspace_around, workspace_of,
};
use crate::view::{AnnouncedView, OverlapView, RunOverlapView, RunView, json_problem};
use adjutant_core::ledger::{self, AnnouncedKind, Announcement, ITEMS_MAX, Overlap, STEPS_MAX};
use adjutant_core::quote::{quote_field, quote_line};
use adjutant_core::{Denied, Principal, RequestId};
use serde::Deserialize;
use serde_json::json;
use std::path::{Path, PathBuf};

/// Longest pattern in a message about an overlap, in characters.
const SHOWN_CHARS_MAX: usize = 200;
/// Maximum number of changed files that are named as not announced.
const UNANNOUNCED_MAX: usize = 50;

/// The text of an announcement. A text that is not a JSON object names a path in each line.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct Post {
    #[serde(default)]
    paths: Vec<String>,
    #[serde(default)]
    interfaces: Vec<String>,
    #[serde(default)]
    release: Release,
}

/// The announcements that a run withdraws: all of them, or some.
#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum Release {
    All(bool),
    Some(Vec<String>),
}

impl Default for Release {
    fn default() -> Self {
        Self::All(false)
    }
}

impl Post {
    fn parse(text: &str) -> Result<Self, Denied> {
        if text.trim_start().starts_with('{') {
            let hint = "use {\"paths\": [\"src/parser\"], \"interfaces\": [\"Parser::parse\"], \"release\": true or [\"src/old\"]}";
            return serde_json::from_slice(text.as_bytes()).map_err(|error| {
                Denied::invalid("message", format!("{}: {hint}", json_problem(&error)))
            });
        }
        let paths = text
            .lines()
            .map(str::trim)
            .filter(|line| !line.is_empty())
            .map(str::to_owned)
            .collect();
        Ok(Self {
            paths,
            ..Self::default()
        })
    }
}

/// The tree that a run changes: for an isolated run, in the user's repository.
#[derive(Debug, Clone)]
pub(super) struct AnnouncingTree {
    /// The run's directory.
    place: String,
    top: String,
    /// The workspace's top: paths below it are those of the user's repository.
    workspace: Option<String>,
}

impl AnnouncingTree {
    /// Converts an absolute path in the workspace of an isolated run.
    fn to_repository_path(&self, path: &str) -> String {
        let below = self
            .workspace
            .as_ref()
            .and_then(|workspace| Path::new(path).strip_prefix(workspace).ok());
        below
            .and_then(|below| Path::new(&self.top).join(below).to_str().map(str::to_owned))
            .unwrap_or_else(|| path.to_owned())
    }
}

/// Finds the tree that a run changes. Reads the file system, so not within a transaction.
pub(super) fn announcing_tree(
    store: &Store,
    who: &Principal,
) -> Result<Option<AnnouncingTree>, OpError> {
    let Principal::Run(id) = who else {
        return Ok(None);
    };
    let found = store.read(|connection| {
        let Some(run) = run_by_id(connection, *id)? else {
            return Ok(None);
        };
        // A run without its own workspace can work in that of the run that delegated to it.
        let workspace = workspace_of(connection, *id)?.map_or_else(
            || workspace_around(connection, &run.cwd),
            |own| Ok(Some(own)),
        )?;
        Ok::<_, StoreError>(Some((run, workspace)))
    })?;
    let Some((run, workspace)) = found else {
        return Ok(None);
    };
    if let Some(workspace) = workspace {
        let below = Path::new(&run.cwd)
            .strip_prefix(&workspace.path)
            .map(Path::to_owned)
            .unwrap_or_default();
        let place = Path::new(&workspace.repository)
            .join(below)
            .to_string_lossy()
            .into_owned();
        return Ok(Some(AnnouncingTree {
            place,
            top: workspace.repository,
            workspace: Some(workspace.path),
        }));
    }
    let cwd = PathBuf::from(&run.cwd);
    let top = cwd
        .ancestors()
        .find(|dir| dir.join(".git").exists())
        .unwrap_or(&cwd)
        .to_string_lossy()
        .into_owned();
    Ok(Some(AnnouncingTree {
        place: run.cwd,
        top,
        workspace: None,
    }))
}

/// Records announcements of a run. Returns all its announcements, as the text of its board entry,
/// and notes about overlaps.
pub(super) fn announce(
    tx: &mut Tx<'_>,
    run: Option<&Run>,
    tree: Option<&AnnouncingTree>,
    text: &str,
) -> Result<(Run, String, Vec<String>), StoreError> {
    let (Some(run), Some(tree)) = (run, tree) else {
        return Err(Denied::invalid("to", "only a run announces what it will change").into());
    };
    let Post {
        paths,
        interfaces,
        release,
    } = Post::parse(text)?;
    let mut announced = Announced {
        top: tree.top.clone(),
        ..announced_by(tx.connection(), run.id)?
    };
    let mut notes = release_items(&mut announced, release, tree);
    let paths = paths
        .iter()
        .map(|path| (AnnouncedKind::Path, tree.to_repository_path(path.trim())));
    let interfaces = interfaces
        .into_iter()
        .map(|name| (AnnouncedKind::Interface, name));
    for (kind, what) in paths.chain(interfaces) {
        let item = Announcement::checked(kind, &what, &tree.place)?;
        if !announced
            .items
            .iter()
            .any(|known| known.kind == kind && known.what == item.what)
        {
            announced.items.push(item);
        }
    }
    if announced.items.len() > ITEMS_MAX {
        return Err(Denied::invalid(
            "message",
            format!(
                "at most {ITEMS_MAX} paths and interfaces: announce directories, or release some"
            ),
        )
        .into());
    }
    tx.may_refuse_late()?;
    tx.set_announced(run.id, &announced)?;
    notes.extend(compare(tx, run, &announced.items)?);
    let view = view_of(&announced);
    let text =
        json!({"run": run.name, "paths": view.paths, "interfaces": view.interfaces}).to_string();
    Ok((run.clone(), text, notes))
}

/// Withdraws announcements. Returns notes about what is not announced.
fn release_items(
    announced: &mut Announced,
    release: Release,
    tree: &AnnouncingTree,
) -> Vec<String> {
    let withdrawn = match release {
        Release::All(true) => {
            announced.items.clear();
            return Vec::new();
        }
        Release::All(false) => return Vec::new(),
        Release::Some(withdrawn) => withdrawn,
    };
    let mut notes = Vec::new();
    for withdrawn in &withdrawn {
        let known = announced.items.len();
        announced.items.retain(|item| {
            let named = item.kind.normalised(withdrawn);
            item.what
                != match item.kind {
                    AnnouncedKind::Path => tree.to_repository_path(&named),
                    AnnouncedKind::Interface => named,
                }
        });
        if announced.items.len() == known {
            notes.push(format!(
                "not released, because it is not announced: {}",
                quote_line(withdrawn, SHOWN_CHARS_MAX)
            ));
        }
    }
    notes
}

/// Compares what the runs of a tree have announced with what the other runs of their new owner
/// have.
pub(super) fn compare_adopted(tx: &mut Tx<'_>, root: &Run) -> Result<(), StoreError> {
    for run in announcing_in(tx.connection(), root.id)? {
        let (run, announced) = (tx.run(run)?, announced_by(tx.connection(), run)?);
        // Both runs show the overlap in their views.
        compare(tx, &run, &announced.items)?;
    }
    Ok(())
}

/// Compares what a run has announced with what the other runs of its owner have. Returns notes
/// about overlaps.
fn compare(
    tx: &mut Tx<'_>,
    run: &Run,
    announced: &[Announcement],
) -> Result<Vec<String>, StoreError> {
    let mut notes = Vec::new();
    let mut steps_left = STEPS_MAX;
    for other in other_announcing_runs(tx.connection(), &run.owner, run.id)? {
        let items = ledger::overlaps(
            announced,
            &announced_by(tx.connection(), other)?.items,
            &mut steps_left,
        );
        // Overlaps that were not compared are kept.
        if steps_left == 0 && items.is_empty() {
            break;
        }
        let other = tx.run(other)?;
        if tx.set_overlap(run, &other, &items)? == OverlapChange::First {
            notify_other_run(tx, run, &other, &items)?;
        }
        notes.extend(items.iter().map(|item| {
            let (own, theirs) = (
                quote_line(&item.first, SHOWN_CHARS_MAX),
                quote_line(&item.second, SHOWN_CHARS_MAX),
            );
            format!(
                "{own} overlaps with what run {} has announced ({theirs}): agree on it with to={}",
                other.name, other.name
            )
        }));
    }
    if steps_left == 0 {
        notes.push("the patterns take too long to compare: some overlaps are not known; announce directories instead".to_owned());
    }
    Ok(notes)
}

/// Sends the other run a message about the first overlap, however many are queued: there is one for
/// each pair.
fn notify_other_run(
    tx: &mut Tx<'_>,
    run: &Run,
    other: &Run,
    items: &[Overlap],
) -> Result<(), StoreError> {
    let lines: Vec<String> = items
        .iter()
        .map(|item| {
            format!(
                "{} (yours: {})",
                quote_line(&item.first, SHOWN_CHARS_MAX),
                quote_line(&item.second, SHOWN_CHARS_MAX)
            )
        })
        .collect();
    let text = quote_field(
        &format!(
            "ledger: an announcement of run {} overlaps with yours",
            run.name
        ),
        &lines.join("\n"),
    );
    let id = RequestId::new(tx.now(), crate::ops::random());
    tx.send_message(other, &Principal::Run(run.id), id, &text)
        .map(drop)
}

fn view_of(announced: &Announced) -> AnnouncedView {
    let of = |kind| {
        announced
            .items
            .iter()
            .filter(|item| item.kind == kind)
            .map(|item| item.what.clone())
            .collect()
    };
    AnnouncedView {
        paths: of(AnnouncedKind::Path),
        interfaces: of(AnnouncedKind::Interface),
    }
}

/// Adds a run's announcements, their overlaps and its unannounced changes to its view.
pub(super) fn add_announced(
    connection: &Connection,
    run: &Run,
    view: &mut RunView,
) -> Result<(), StoreError> {
    let announced = announced_by(connection, run.id)?;
    if announced.items.is_empty() {
        return Ok(());
    }
    view.changes.announced = Some(view_of(&announced));
    // Without a snapshot at the start, they can include changes of others.
    if let Some(changed) = view
        .changes
        .changed_files
        .as_ref()
        .filter(|_| !view.changes.changed_before_too)
    {
        let beside = ledger::unannounced(&announced.items, &announced.top, changed);
        view.changes.unannounced_files = beside
            .into_iter()
            .take(UNANNOUNCED_MAX)
            .map(str::to_owned)
            .collect();
    }
    Ok(())
}

/// Adds the runs whose announcements overlap with those of a run to its view.
pub(super) fn add_overlaps(
    connection: &Connection,
    run: &Run,
    view: &mut RunView,
) -> Result<(), StoreError> {
    // Most runs never had an overlap.
    if run.overlap_seq.is_none() {
        return Ok(());
    }
    let item = |item: Overlap| OverlapView {
        kind: item.kind.into(),
        own: item.first,
        other: item.second,
    };
    view.changes.overlaps = overlaps_of(connection, run.id)?
        .into_iter()
        .map(|other| RunOverlapView {
            run_id: other.run.to_string(),
            run_name: other.name,
            items: other.items.into_iter().map(item).collect(),
        })
        .collect();
    Ok(())
}
