//! The versions that programs report. Each program is asked once: its reply is valid as long as the
//! program's file is unchanged, and is kept in a file of the home for later hubs or runners.
//! Listing agents never waits; the missing versions are asked for in the background. If its preset
//! demands a version, a program starts only once its version is known or cannot be determined.

mod query;

pub use query::{VersionQuery, VersionReply, query_env};

use crate::config::{Home, Stamp};
use crate::files;
use crate::process::probe::{self, Probe, ProbeOutput};
use crate::protocol::Order;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;
use tokio::runtime::Handle;
use tokio::sync::Notify;
use tokio::task::JoinSet;

/// How long a program may take to report its version. Some need seconds to start.
const ASKED_LIMIT: Duration = Duration::from_secs(10);
/// The number of programs that are asked at the same time.
const ASKED_AT_ONCE: usize = 4;
/// How much of a program's output is examined.
const OUTPUT_BYTES_MAX: usize = 4 * 1024;
/// The maximum number of programs whose versions are kept.
const KEPT_MAX: usize = 200;
/// Maximum size of the stored file, in bytes.
const FILE_BYTES_MAX: u64 = 4 * 1024 * 1024;

#[derive(Debug, Clone, Serialize, Deserialize)]
struct KnownVersion {
    stamp: Stamp,
    /// `None`: the program was asked and gave no version. Only its start accepts that as a final
    /// reply.
    said: Option<String>,
    /// Why the program gave no version.
    #[serde(skip)]
    problem: Option<String>,
}

/// The known versions of programs.
#[derive(Debug)]
pub struct Versions {
    path: PathBuf,
    /// `None`: not loaded yet. A lock instead of an owner task, so that starting a known program
    /// never waits for programs that are being asked.
    known: Mutex<Option<BTreeMap<PathBuf, KnownVersion>>>,
    /// Held while programs are asked, so that each is asked once.
    asking: tokio::sync::Mutex<()>,
    /// Programs to ask in the background, at most [`KEPT_MAX`].
    wanted: Mutex<BTreeMap<PathBuf, VersionQuery>>,
    is_wanted: Notify,
}

impl Versions {
    #[must_use]
    pub fn new(home: &Home) -> Self {
        Self {
            path: home.versions(),
            known: Mutex::new(None),
            asking: tokio::sync::Mutex::new(()),
            wanted: Mutex::default(),
            is_wanted: Notify::new(),
        }
    }

    /// Returns why an attempt's program must not start: it is older than its preset allows. The
    /// program is asked if its version is unknown, and again before it is refused, because a
    /// wrapper script stays unchanged when the program that it starts is updated.
    pub async fn too_old(&self, order: &Order) -> Option<String> {
        let asking = query::of_order(order)?;
        let program = asking.program.clone();
        if let Some(known) = self.known_of(&program) {
            query::too_old(order, &known.said?)?;
            self.forget(&program);
        }
        let said = self.of(vec![asking]).await.remove(&program)?;
        if said.is_err() {
            tracing::info!(program = %program.display(), "it does not report its version, and is started anyway");
        }
        query::too_old(order, &said.ok()?)
    }

    /// Returns the known versions of these programs, and queues the others to be asked. `None`: the
    /// program is being asked.
    #[must_use]
    pub fn known_or_queued(
        &self,
        asking: Vec<VersionQuery>,
    ) -> BTreeMap<PathBuf, Option<VersionReply>> {
        let mut found = BTreeMap::new();
        let mut wanted = self.wanted.lock().unwrap_or_else(PoisonError::into_inner);
        for asking in asking {
            let program = asking.program.clone();
            let known = self
                .known_of(&program)
                .map(|KnownVersion { said, problem, .. }| {
                    said.ok_or_else(|| problem.unwrap_or_default())
                });
            // A program that gave no version before may give one now.
            if !matches!(known, Some(Ok(_))) && wanted.len() < KEPT_MAX {
                wanted.insert(program.clone(), asking);
            }
            found.insert(program, known);
        }
        if !wanted.is_empty() {
            self.is_wanted.notify_one();
        }
        found
    }

    /// Asks the queued programs for their versions, whenever there are some.
    pub async fn ask_queued(&self) {
        loop {
            self.is_wanted.notified().await;
            let wanted =
                std::mem::take(&mut *self.wanted.lock().unwrap_or_else(PoisonError::into_inner));
            self.of(wanted.into_values().collect()).await;
        }
    }

    /// Returns the versions of these programs, asking the unknown ones concurrently.
    pub async fn of(&self, asking: Vec<VersionQuery>) -> BTreeMap<PathBuf, VersionReply> {
        let mut found = BTreeMap::new();
        let unknown = self.move_known(asking, &mut found);
        if unknown.is_empty() {
            return found;
        }
        let _asking = self.asking.lock().await;
        // Another task may have asked them in the meantime.
        let mut unknown = self.move_known(unknown, &mut found).into_iter();
        let mut replies = Vec::new();
        let mut asked = JoinSet::new();
        loop {
            while asked.len() < ASKED_AT_ONCE
                && let Some(asking) = unknown.next()
            {
                // On a thread, which is not cancelled with the caller: a started program is always
                // cleaned up.
                let runtime = Handle::current();
                asked.spawn_blocking(move || runtime.block_on(ask(asking)));
            }
            let Some(done) = asked.join_next().await else {
                break;
            };
            let Ok((program, stamp, said)) = done else {
                continue;
            };
            // If the file changed meanwhile, it is unknown which of the two programs replied.
            if let Some(stamp) = stamp.filter(|stamp| Stamp::of(&program) == Some(*stamp)) {
                replies.push((
                    program.clone(),
                    KnownVersion {
                        stamp,
                        said: said.as_ref().ok().cloned(),
                        problem: said.as_ref().err().cloned(),
                    },
                ));
            }
            found.insert(program, said);
        }
        self.store(replies);
        found
    }

    /// Moves known versions into `found`. Returns the queries that are left.
    fn move_known(
        &self,
        asking: Vec<VersionQuery>,
        found: &mut BTreeMap<PathBuf, VersionReply>,
    ) -> Vec<VersionQuery> {
        let mut unknown = Vec::new();
        for asking in asking {
            match self.known_of(&asking.program).and_then(|known| known.said) {
                Some(said) => {
                    found.insert(asking.program, Ok(said));
                }
                None => unknown.push(asking),
            }
        }
        unknown
    }

    fn known_of(&self, program: &Path) -> Option<KnownVersion> {
        let stamp = Stamp::of(program);
        self.with_known(|known| {
            known
                .get(program)
                .filter(|before| Some(before.stamp) == stamp)
                .cloned()
        })
    }

    fn forget(&self, program: &Path) {
        self.with_known(|known| known.remove(program));
    }

    fn store(&self, replies: Vec<(PathBuf, KnownVersion)>) {
        if replies.is_empty() {
            return;
        }
        self.with_known(|known| {
            known.extend(replies);
            known.retain(|program, before| Stamp::of(program) == Some(before.stamp));
            while known.len() > KEPT_MAX {
                known.pop_first();
            }
            if let Err(error) = write(&self.path, known) {
                tracing::warn!(%error, path = %self.path.display(), "the programs' versions cannot be kept");
            }
        });
    }

    fn with_known<T>(&self, work: impl FnOnce(&mut BTreeMap<PathBuf, KnownVersion>) -> T) -> T {
        // Updates of the map are atomic, so it is valid even after a panic.
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        work(known.get_or_insert_with(|| read(&self.path)))
    }
}

async fn ask(
    VersionQuery { program, args, env }: VersionQuery,
) -> (PathBuf, Option<Stamp>, VersionReply) {
    let stamp = Stamp::of(&program);
    let probe = Probe {
        program: program.clone(),
        args,
        env,
        limit: ASKED_LIMIT,
        output_bytes_max: OUTPUT_BYTES_MAX,
    };
    let said = probe::ask(probe)
        .await
        .map_err(|error| error.to_string())
        .and_then(version_reply);
    (program, stamp, said)
}

fn version_reply(said: ProbeOutput) -> VersionReply {
    match said.exit_code {
        Some(0) => Ok(String::from_utf8_lossy(&said.output).into_owned()),
        Some(code) => Err(format!("it ended with exit code {code}")),
        None => Err("it crashed".to_owned()),
    }
}

fn read(path: &Path) -> BTreeMap<PathBuf, KnownVersion> {
    let read = files::read(path.parent().unwrap_or(path), path, FILE_BYTES_MAX)
        .and_then(|text| serde_json::from_slice(&text).map_err(io::Error::from));
    read.unwrap_or_else(|error| {
        if error.kind() != io::ErrorKind::NotFound {
            tracing::info!(%error, path = %path.display(), "the stored versions cannot be read; the programs are asked again");
        }
        BTreeMap::new()
    })
}

fn write(path: &Path, known: &BTreeMap<PathBuf, KnownVersion>) -> io::Result<()> {
    // Programs without a version are not saved: the next hub asks them again.
    let said: BTreeMap<&PathBuf, &KnownVersion> = known
        .iter()
        .filter(|(_, known)| known.said.is_some())
        .collect();
    files::write_atomically(
        path.parent().unwrap_or(path),
        path,
        &serde_json::to_vec(&said)?,
    )
}
