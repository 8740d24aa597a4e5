//! What programs say that their versions are. They are asked once: what they said holds for as long
//! as the program's file stays the same, also for the next hub (a file of the home keeps it).

use super::router::Shared;
use crate::config::{Home, Stamp};
use crate::ops::{Asking, OpError, VersionSaid};
use crate::process::probe::{self, Probe, Said};
use crate::view::{AgentList, ListAgents};
use adjutant_core::Principal;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;
use tokio::runtime::Handle;
use tokio::sync::Mutex;
use tokio::task::JoinSet;

/// How long a program may take to say its version: some need seconds to start.
const ASKED_LIMIT: Duration = Duration::from_secs(10);
/// How many are asked at a time.
const ASKED_AT_ONCE: usize = 4;
/// How much of what it says is looked at.
const SAID_BYTES_MAX: usize = 4 * 1024;
/// Most programs whose versions are kept.
const KEPT_MAX: usize = 200;

#[derive(Debug, Clone, Serialize, Deserialize)]
struct Known {
    stamp: Stamp,
    said: String,
}

/// The versions that are known.
#[derive(Debug)]
pub(super) struct Versions {
    path: PathBuf,
    /// `None`: not read yet. Held while programs are asked, so that each is asked once.
    known: Mutex<Option<BTreeMap<PathBuf, Known>>>,
}

impl Versions {
    pub(super) fn new(home: &Home) -> Self {
        Self { path: home.versions(), known: Mutex::new(None) }
    }

    /// Finds out what each of these programs says, asking those side by side that are not known.
    async fn of(&self, asking: Vec<Asking>) -> BTreeMap<PathBuf, VersionSaid> {
        let mut kept = self.known.lock().await;
        let known = kept.get_or_insert_with(|| read(&self.path));
        let mut found = BTreeMap::new();
        let mut unknown = Vec::new();
        for asking in asking {
            match known.get(&asking.program) {
                Some(before) if Some(before.stamp) == Stamp::of(&asking.program) => {
                    found.insert(asking.program, Ok(before.said.clone()));
                }
                _ => unknown.push(asking),
            }
        }
        let mut has_news = false;
        let mut unknown = unknown.into_iter();
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
            if let (Some(stamp), Ok(said)) = (stamp.filter(|stamp| Stamp::of(&program) == Some(*stamp)), &said) {
                known.insert(program.clone(), Known { stamp, said: said.clone() });
                has_news = true;
            }
            found.insert(program, said);
        }
        if has_news {
            known.retain(|program, before| Stamp::of(program) == Some(before.stamp));
            while known.len() > KEPT_MAX {
                known.pop_first();
            }
            if let Err(error) = write(&self.path, known) {
                tracing::warn!(%error, path = %self.path.display(), "the programs' versions cannot be kept");
            }
        }
        found
    }
}

/// Lists the agents with their programs' versions.
pub(super) async fn list_agents(hub: &Shared, who: &Principal, call: &ListAgents) -> Result<AgentList, OpError> {
    let (mut list, asking) = hub.ops.list_agents(who, call)?;
    if !asking.is_empty() {
        crate::ops::tell_versions(&mut list, &hub.versions.of(asking).await);
    }
    Ok(list)
}

async fn ask(Asking { program, args, env }: Asking) -> (PathBuf, Option<Stamp>, VersionSaid) {
    let stamp = Stamp::of(&program);
    let probe = Probe { program: program.clone(), args, env, limit: ASKED_LIMIT, output_bytes_max: SAID_BYTES_MAX };
    let said = probe::ask(probe).await.map_err(|error| error.to_string()).and_then(read_out);
    (program, stamp, said)
}

fn read_out(said: Said) -> VersionSaid {
    match said.exit_code {
        Some(0) => Ok(String::from_utf8_lossy(&said.output).into_owned()),
        Some(code) => Err(format!("it ended with exit code {code}")),
        None => Err("it crashed".to_owned()),
    }
}

fn read(path: &Path) -> BTreeMap<PathBuf, Known> {
    let read = std::fs::read(path).and_then(|text| serde_json::from_slice(&text).map_err(io::Error::from));
    read.unwrap_or_else(|error| {
        if error.kind() != io::ErrorKind::NotFound {
            tracing::info!(%error, path = %path.display(), "the programs' versions are asked for anew");
        }
        BTreeMap::new()
    })
}

fn write(path: &Path, known: &BTreeMap<PathBuf, Known>) -> io::Result<()> {
    let temporary = path.with_extension("json.new");
    let mut file = std::fs::OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&temporary)?;
    file.write_all(&serde_json::to_vec(known)?)?;
    std::fs::rename(&temporary, path)
}
