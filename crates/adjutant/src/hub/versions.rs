//! What programs say that their versions are. They are asked once: what they said holds for as long
//! as the program's file stays the same, also for the next hub (a file of the home keeps it). A list of
//! agents says what is known and waits for nothing: [`ask_unknown`] asks for the rest. A program
//! that its preset holds to a version is not started before that is known, or cannot be found out.

use super::Shared;
use crate::config::{Home, Stamp};
use crate::files;
use crate::link::Order;
use crate::ops::{OpError, VersionQuery, VersionReply};
use crate::process::probe::{self, Probe, ProbeOutput};
use crate::view::{AgentList, ListAgents};
use adjutant_core::Principal;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;
use tokio::runtime::Handle;
use tokio::sync::Notify;
use tokio::task::JoinSet;

/// How long a program may take to say its version: some need seconds to start.
const ASKED_LIMIT: Duration = Duration::from_secs(10);
/// How many are asked at a time.
const ASKED_AT_ONCE: usize = 4;
/// How much of what it says is looked at.
const SAID_BYTES_MAX: usize = 4 * 1024;
/// Most programs whose versions are kept.
const KEPT_MAX: usize = 200;
/// Largest file of them that is read, in bytes.
const FILE_BYTES_MAX: u64 = 4 * 1024 * 1024;

#[derive(Debug, Clone, Serialize, Deserialize)]
struct KnownVersion {
    stamp: Stamp,
    /// `None`: it was asked and did not say; only its start takes that for an answer.
    said: Option<String>,
    /// Why it did not say.
    #[serde(skip)]
    problem: Option<String>,
}

/// The versions that are known.
#[derive(Debug)]
pub(super) struct Versions {
    path: PathBuf,
    /// `None`: not read yet. A lock without an owner, since a start of a known program must not wait
    /// for programs that are being asked.
    known: Mutex<Option<BTreeMap<PathBuf, KnownVersion>>>,
    /// Held while programs are asked, so that each is asked once.
    asking: tokio::sync::Mutex<()>,
    /// Programs that are to be asked when there is time; at most [`KEPT_MAX`].
    wanted: Mutex<BTreeMap<PathBuf, VersionQuery>>,
    is_wanted: Notify,
}

impl Versions {
    pub(super) fn new(home: &Home) -> Self {
        Self {
            path: home.versions(),
            known: Mutex::new(None),
            asking: tokio::sync::Mutex::new(()),
            wanted: Mutex::default(),
            is_wanted: Notify::new(),
        }
    }

    /// Says why an attempt's program must not be started: it is older than its preset allows. Asks it
    /// only if nothing is known of it, and before it is refused: a script that starts another program
    /// stays the same when that is updated.
    pub(super) async fn too_old(&self, order: &Order) -> Option<String> {
        let asking = crate::ops::version_query(order)?;
        let program = asking.program.clone();
        if let Some(known) = self.known_of(&program) {
            crate::ops::too_old(order, &known.said?)?;
            self.forget(&program);
        }
        let said = self.of(vec![asking]).await.remove(&program)?;
        if said.is_err() {
            tracing::info!(program = %program.display(), "it does not report its version, and is started anyway");
        }
        crate::ops::too_old(order, &said.ok()?)
    }

    /// Says what is known of these programs, and has the others asked. `None`: it is being asked.
    fn known_or_wanted(&self, asking: Vec<VersionQuery>) -> BTreeMap<PathBuf, Option<VersionReply>> {
        let mut found = BTreeMap::new();
        let mut wanted = self.wanted.lock().unwrap_or_else(PoisonError::into_inner);
        for asking in asking {
            let program = asking.program.clone();
            let known = self.known_of(&program).map(|KnownVersion { said, problem, .. }| said.ok_or_else(|| problem.unwrap_or_default()));
            // Who did not say it may say it now.
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

    /// Finds out what each of these programs says, asking those side by side that have not said it.
    async fn of(&self, asking: Vec<VersionQuery>) -> BTreeMap<PathBuf, VersionReply> {
        let mut found = BTreeMap::new();
        let unknown = self.take_known(asking, &mut found);
        if unknown.is_empty() {
            return found;
        }
        let _asking = self.asking.lock().await;
        // Another task may have asked them meanwhile.
        let mut unknown = self.take_known(unknown, &mut found).into_iter();
        let mut news = Vec::new();
        let mut asked = JoinSet::new();
        loop {
            while asked.len() < ASKED_AT_ONCE
                && let Some(asking) = unknown.next()
            {
                // A thread, since that goes on when our caller does not: what was started is ended in any case.
                let runtime = Handle::current();
                asked.spawn_blocking(move || runtime.block_on(ask(asking)));
            }
            let Some(done) = asked.join_next().await else { break };
            let Ok((program, stamp, said)) = done else { continue };
            // Of a file that was changed meanwhile nobody knows which of the two has spoken.
            if let Some(stamp) = stamp.filter(|stamp| Stamp::of(&program) == Some(*stamp)) {
                news.push((program.clone(), KnownVersion { stamp, said: said.as_ref().ok().cloned(), problem: said.as_ref().err().cloned() }));
            }
            found.insert(program, said);
        }
        self.keep(news);
        found
    }

    /// Moves what is known into `found`. Returns the rest.
    fn take_known(&self, asking: Vec<VersionQuery>, found: &mut BTreeMap<PathBuf, VersionReply>) -> Vec<VersionQuery> {
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
        self.with_known(|known| known.get(program).filter(|before| Some(before.stamp) == stamp).cloned())
    }

    fn forget(&self, program: &Path) {
        self.with_known(|known| known.remove(program));
    }

    fn keep(&self, news: Vec<(PathBuf, KnownVersion)>) {
        if news.is_empty() {
            return;
        }
        self.with_known(|known| {
            known.extend(news);
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
        // A task that panicked has left a whole map behind.
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        work(known.get_or_insert_with(|| read(&self.path)))
    }
}

/// Asks programs for their versions whenever a list has shown some without.
pub(super) async fn ask_unknown(hub: Shared) {
    loop {
        hub.versions.is_wanted.notified().await;
        let wanted = std::mem::take(&mut *hub.versions.wanted.lock().unwrap_or_else(PoisonError::into_inner));
        hub.versions.of(wanted.into_values().collect()).await;
    }
}

/// Lists the agents with the versions that are known.
pub(super) async fn list_agents(hub: &Shared, who: &Principal, call: &ListAgents) -> Result<AgentList, OpError> {
    let (mut list, asking) = hub.ops.list_agents(who, call)?;
    if asking.is_empty() {
        return Ok(list);
    }
    let awaited = call.await_version_of.as_ref().and_then(|name| list.agents.iter().find(|agent| agent.name == *name)?.program.clone());
    let (awaited, others): (Vec<_>, Vec<_>) = asking.into_iter().partition(|asking| asking.program.to_str() == awaited.as_deref());
    let mut said = hub.versions.known_or_wanted(others);
    said.extend(hub.versions.of(awaited).await.into_iter().map(|(program, said)| (program, Some(said))));
    crate::ops::add_versions(&mut list, &said);
    Ok(list)
}

async fn ask(VersionQuery { program, args, env }: VersionQuery) -> (PathBuf, Option<Stamp>, VersionReply) {
    let stamp = Stamp::of(&program);
    let probe = Probe { program: program.clone(), args, env, limit: ASKED_LIMIT, output_bytes_max: SAID_BYTES_MAX };
    let said = probe::ask(probe).await.map_err(|error| error.to_string()).and_then(read_out);
    (program, stamp, said)
}

fn read_out(said: ProbeOutput) -> VersionReply {
    match said.exit_code {
        Some(0) => Ok(String::from_utf8_lossy(&said.output).into_owned()),
        Some(code) => Err(format!("it ended with exit code {code}")),
        None => Err("it crashed".to_owned()),
    }
}

fn read(path: &Path) -> BTreeMap<PathBuf, KnownVersion> {
    let read =
        files::read(path.parent().unwrap_or(path), path, FILE_BYTES_MAX).and_then(|text| serde_json::from_slice(&text).map_err(io::Error::from));
    read.unwrap_or_else(|error| {
        if error.kind() != io::ErrorKind::NotFound {
            tracing::info!(%error, path = %path.display(), "the programs are asked for their versions again");
        }
        BTreeMap::new()
    })
}

fn write(path: &Path, known: &BTreeMap<PathBuf, KnownVersion>) -> io::Result<()> {
    // What did not say it now may say it to the next hub.
    let said: BTreeMap<&PathBuf, &KnownVersion> = known.iter().filter(|(_, known)| known.said.is_some()).collect();
    files::write_atomically(path.parent().unwrap_or(path), path, &serde_json::to_vec(&said)?)
}
