//! Claims a run: chooses the queued run that starts next, makes it live and composes its prompts,
//! in one transaction.

use crate::config::{Config, Home};
use crate::ops::attempts::{hash, resumption};
use crate::ops::budgets::unmetered;
use crate::ops::workspaces::{cache_dirs, order_of};
use crate::preset::Preset;
use crate::protocol::{TreeStart, WorkspaceOrder};
use crate::store::{
    Connection, Pools, Run, RunInput, SlotsUsed, StartTarget, StoreError, Tx, Workspace,
    announce_next, fruitless_attempts, last_host, live_in_dir, next_to_start, run_input,
    turn_of_run, undelivered_of, workspace_around,
};
use adjutant_core::chat::MESSAGE_BYTES_MAX;
use adjutant_core::identity::{Acceptance, ParentChannel, with_statement};
use adjutant_core::port::{PORTS_END, PORTS_FIRST};
use adjutant_core::resume::{Resumption, compose, compose_in_session};
use adjutant_core::run::Retention;
use adjutant_core::{HarnessKind, PortRange};
use std::collections::BTreeMap;
use std::path::PathBuf;

/// Maximum number of answers in the prompt of a new attempt.
pub(super) const UNDELIVERED_MAX: u32 = 10_000;
/// Kept beyond the maximum length of a message, so that a cut is detected even if the answer ends
/// with blanks.
const BEYOND_MESSAGE_BYTES: usize = 64 * 1024;

/// What a claim needs besides the store.
pub(super) struct Claim<'a> {
    pub config: &'a Config,
    pub home: &'a Home,
    pub retention: Retention,
    /// The hash of the token of the attempt.
    pub token_hash: &'a [u8; 32],
    pub start_place: &'a StartTarget,
    /// Where a run is claimed next in this transaction.
    pub next_place: Option<&'a StartTarget>,
}

impl Claim<'_> {
    /// Returns whether the attempt starts on the hub's own machine.
    fn is_here(&self) -> bool {
        self.start_place.host().is_none()
    }
}

/// A claimed run, with what its attempt needs.
pub(super) struct ClaimedRun {
    pub run: Run,
    pub input: RunInput,
    pub preset: Option<Preset>,
    pub prompts: Prompts,
    pub place: AttemptPlace,
}

/// What an attempt says to its agent, and how much it accepts as the answer.
pub(super) struct Prompts {
    /// The session of the CLI that the attempt resumes.
    pub session: Option<String>,
    pub prompt: String,
    /// The prompt for a new session, if `session` cannot be resumed.
    pub new_session_prompt: Option<String>,
    pub answer_bytes_max: usize,
}

/// The workspace of an attempt, its slots and its ports.
pub(super) struct AttemptPlace {
    pub workspace: Option<WorkspaceOrder>,
    pub ports: Ports,
    pub caches: BTreeMap<String, PathBuf>,
    /// The slots of its pool.
    pub slots: u64,
}

/// The ports of an attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Ports {
    NotWanted,
    Allocated(PortRange),
    /// There are not enough free ports.
    Missing(u16),
}

/// Returns the first port that a home tries. Each home starts elsewhere, because hubs do not know
/// the runs of other hubs.
fn first_port(home: &Home) -> u16 {
    let [a, b, ..] = hash(&home.dir.display().to_string());
    PORTS_FIRST + u16::from_be_bytes([a, b]) % ((PORTS_END - PORTS_FIRST) / 100) * 100
}

/// Claims the queued run that starts next, and adds it to `used`. `None`: no run can start now.
pub(super) fn claim_run(
    tx: &mut Tx<'_>,
    pools: &Pools,
    used: &mut SlotsUsed,
    claim: &Claim<'_>,
) -> Result<Option<ClaimedRun>, StoreError> {
    let Some((run, workspace, ports)) = choose_run(tx, pools, used, claim)? else {
        return Ok(None);
    };
    announce_claim(tx.connection(), &run, claim);
    if let Some(next) = claim.next_place {
        announce_next(tx.connection(), pools, used, next);
    }
    let run = tx.claim(
        &run,
        claim.token_hash,
        claim.start_place.host(),
        claim.retention,
    )?;
    used.add_claimed(pools, &run);
    let mut input = run_input(tx.connection(), run.id)?;
    let preset = Preset::from_text(&input.agent.preset);
    let prompts = prompts_of(tx, claim, &run, &mut input, preset.as_ref())?;
    let caches = workspace
        .as_ref()
        .map(|workspace| cache_dirs(claim.home, workspace))
        .unwrap_or_default();
    let place = AttemptPlace {
        workspace: workspace_order(tx, claim, &run, workspace)?,
        ports,
        caches,
        slots: pools
            .by_name
            .get(&run.pool)
            .map_or(1, |limits| limits.slots),
    };
    Ok(Some(ClaimedRun {
        run,
        input,
        preset,
        prompts,
        place,
    }))
}

/// Announces what the claim of a run reads.
fn announce_claim(connection: &Connection, run: &Run, claim: &Claim<'_>) {
    connection.announce(|connection| fruitless_attempts(connection, run.id));
    connection.announce(|connection| turn_of_run(connection, run.id));
    if claim.is_here() {
        connection.announce(|connection| live_in_dir(connection, run.id));
    }
}

/// Composes the prompts of a claimed run. The stored prompt becomes that of the attempt.
fn prompts_of(
    tx: &mut Tx<'_>,
    claim: &Claim<'_>,
    run: &Run,
    input: &mut RunInput,
    preset: Option<&Preset>,
) -> Result<Prompts, StoreError> {
    // A resumed session already contains the task and the statement. That of a first attempt is of
    // the run that it follows.
    let session = run
        .session
        .clone()
        .filter(|_| preset.is_some_and(|preset| preset.can.resume));
    let resumption = resume_prompt(tx, run, input)?;
    let is_chat = turn_of_run(tx.connection(), run.id)?.is_some();
    let channel = if is_chat {
        ParentChannel::Chat
    } else {
        parent_channel(input.agent.harness, preset)
    };
    // A runner has the directory on another machine.
    let others = if claim.is_here() {
        live_in_dir(tx.connection(), run.id)?.others(run.id).0
    } else {
        Vec::new()
    };
    let (prompt, new_session_prompt) = compose_prompts(
        run,
        input,
        &others,
        channel,
        session.is_some(),
        resumption.as_ref(),
    );
    Ok(Prompts {
        session,
        prompt,
        new_session_prompt,
        // More than a message may have, so that a cut is detected.
        answer_bytes_max: if is_chat {
            MESSAGE_BYTES_MAX + BEYOND_MESSAGE_BYTES
        } else {
            0
        },
    })
}

/// Returns the order for the workspace of a claimed run, if it has one.
fn workspace_order(
    tx: &Tx<'_>,
    claim: &Claim<'_>,
    run: &Run,
    workspace: Option<Workspace>,
) -> Result<Option<WorkspaceOrder>, StoreError> {
    let Some(workspace) = workspace else {
        return Ok(None);
    };
    let mut order = order_of(tx.connection(), claim.home, workspace)?;
    let here = claim.start_place.host().map(|host| host.host);
    let last = last_host(tx.connection(), run.id, Some(run.attempt))?;
    order.start = tree_start(here, last.as_ref().map(Option::as_deref));
    Ok(Some(order))
}

/// Chooses the run that starts next, with its workspace and ports. Runs whose budget does not
/// permit a start are stopped.
fn choose_run(
    tx: &mut Tx<'_>,
    pools: &Pools,
    used: &SlotsUsed,
    claim: &Claim<'_>,
) -> Result<Option<(Run, Option<Workspace>, Ports)>, StoreError> {
    loop {
        let Some(run) = next_to_start(tx.connection(), pools, used, claim.start_place)? else {
            return Ok(None);
        };
        tx.connection()
            .announce(|connection| run_input(connection, run.id));
        tx.connection()
            .announce(|connection| workspace_around(connection, &run.cwd));
        if tx.stop_without_budget(&run, claim.retention)? {
            continue;
        }
        let of_run = |tx: &Tx<'_>| {
            Ok(unmetered(
                claim.config,
                &run_input(tx.connection(), run.id)?.agent,
            ))
        };
        if tx.stop_if_unmetered(&run, claim.retention, of_run)? {
            continue;
        }
        let workspace = workspace_around(tx.connection(), &run.cwd)?;
        // In the transaction that makes the run live, so that no other run gets them.
        let ports = match workspace
            .as_ref()
            .map_or(0, |workspace| workspace.spec.ports)
        {
            0 => Ports::NotWanted,
            count => tx
                .allocate_ports(run.id, count, first_port(claim.home))?
                .map_or(Ports::Missing(count), Ports::Allocated),
        };
        match ports {
            Ports::Missing(count) if tx.wait_for_ports(&run, count)? => {}
            ports => return Ok(Some((run, workspace, ports))),
        }
    }
}

/// Returns how the workspace of an attempt in a place begins. `last`: where the run has worked
/// last, if it has. `None`: the hub's own machine.
fn tree_start(here: Option<&str>, last: Option<Option<&str>>) -> TreeStart {
    match (here, last) {
        (None, None | Some(None)) => TreeStart::Base,
        (Some(_), None) => TreeStart::Newest,
        (Some(here), Some(Some(last))) if here == last => TreeStart::Newest,
        _ => TreeStart::Moved,
    }
}

/// If an earlier attempt of the run has started, adds what has happened since to its prompt, and
/// returns it.
fn resume_prompt(
    tx: &mut Tx<'_>,
    run: &Run,
    input: &mut RunInput,
) -> Result<Option<Resumption>, StoreError> {
    if run.attempt.0 <= 1 + fruitless_attempts(tx.connection(), run.id)? {
        return Ok(None);
    }
    let undelivered = undelivered_of(tx.connection(), run.id, UNDELIVERED_MAX)?;
    let resumption = resumption::of(tx, run, &undelivered)?;
    if input.agent.has_identity {
        input.prompt = compose(&input.prompt, &resumption);
    }
    for request in &undelivered {
        tx.record_receipt(request, run.attempt)?;
    }
    Ok(Some(resumption))
}

/// Returns the prompt of an attempt, and the one for a new session if its session cannot be
/// resumed.
fn compose_prompts(
    run: &Run,
    input: &RunInput,
    others: &[String],
    channel: ParentChannel,
    has_session: bool,
    resumption: Option<&Resumption>,
) -> (String, Option<String>) {
    let acceptance = Acceptance {
        criteria: input.criteria.as_deref(),
        accept: &input.accept,
    };
    let stated = |task: &str| with_statement(run.id, &run.name, others, channel, &acceptance, task);
    let whole = if input.agent.has_identity {
        stated(&input.prompt)
    } else {
        input.prompt.clone()
    };
    match (has_session, resumption) {
        (false, _) => (whole, None),
        (true, Some(resumption)) => (compose_in_session(resumption), Some(whole)),
        // The session of the run that it follows. The stored prompt describes that run.
        (true, None) => (stated(&run.task), Some(whole)),
    }
}

/// Returns how an agent of this harness reaches its parent.
fn parent_channel(harness: HarnessKind, preset: Option<&Preset>) -> ParentChannel {
    match harness {
        HarnessKind::Echo => ParentChannel::Tools,
        HarnessKind::Vendor if preset.is_some_and(|preset| preset.can.tools) => {
            ParentChannel::Tools
        }
        HarnessKind::Vendor | HarnessKind::Plain => ParentChannel::Blocks,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn workspace_moves_with_a_run_that_changes_machines() {
        let (a, b) = (Some("rack-a/aa"), Some("rack-b/bb"));
        assert_eq!(tree_start(None, None), TreeStart::Base);
        assert_eq!(tree_start(None, Some(None)), TreeStart::Base);
        assert_eq!(tree_start(None, Some(a)), TreeStart::Moved);
        assert_eq!(tree_start(a, None), TreeStart::Newest);
        assert_eq!(tree_start(a, Some(a)), TreeStart::Newest);
        assert_eq!(tree_start(a, Some(b)), TreeStart::Moved);
        assert_eq!(tree_start(a, Some(None)), TreeStart::Moved);
    }
}
