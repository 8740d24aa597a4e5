//! The use cases. Interfaces call nothing else. Decisions that two interfaces share are made here.

mod agents;
mod answer_links;
mod attempt_id;
mod attempts;
mod attention;
mod budgets;
mod caller;
mod chats;
mod checks;
mod chores;
mod comments;
mod conflicts;
mod credentials;
mod error;
mod escalation;
mod evidence;
mod fence;
mod first_reports;
mod grants;
mod kept_logs;
mod ledger;
mod log_store;
mod logs;
mod lookup;
mod machine;
mod merges;
mod notices;
mod peers;
mod policies;
mod policy_changes;
mod policy_file;
mod pools;
mod pressure;
mod profiles;
mod programs;
mod render;
mod reports;
mod repository_policies;
mod requests;
mod resources;
mod results;
mod review;
#[cfg(test)]
mod round_trips;
mod runner_launches;
mod runner_sessions;
mod runners;
mod runs;
mod search;
mod settings;
mod stats;
mod tasks;
mod terms;
mod tokens;
mod tree_work;
mod trees;
mod trust;
mod undo;
mod undo_checks;
mod waits;
mod webhooks;
mod workspaces;

pub use agents::agents_of;
pub use agents::{add_versions, configured_agents};
pub use answer_links::AnswerLink;
pub use answer_links::{AnswerLinks, LINK_PATH, LinkAnswer, LinkedRequest, resolve_link};
pub use attempt_id::AttemptId;
pub use attempts::Launch;
pub use attempts::{
    Starter, apply_facts, await_orders, closing_of, is_supervisor_of, knows_attempt, live_attempts,
    not_spawned, recover_attempt, refused_as_too_old,
};
pub use attention::{confirm_notified, list_attention, set_back};
pub use caller::Caller;
pub use chats::SayCall;
pub use chats::{
    archive_chat, cancel_answers, chat_stats, export_chat, import_chat, list_chats, list_mentions,
    read_answers, read_board, run_turns, show_chat, start_chat, summarise_chat,
};
pub use chores::Chores;
pub use comments::CommentCall;
pub use error::OpError;
pub use error::http_status;
pub use grants::{list_grants, revoke_grant};
pub use log_store::{
    AttemptToMove, LogStoreError, attempts_with_logs, remove_run, store_attempt, try_objects,
};
pub use log_store::{NotMoved, remove_files};
pub use logs::read_logs;
pub use merges::{Discards, MergeCall, MergeJournal};
pub use peers::{
    Copies, FollowStep, SendStep, post_shared, send_next_post, shared_chats, shared_entries,
};
pub use policies::{check_policies, list_policies, try_policies};
pub use policy_changes::trust_policy_change;
pub use pools::HubPools;
pub use pressure::PressureRelief;
pub use reports::ReportCalls;
pub use repository_policies::trust_policies;
pub use requests::{
    AnswerCall, ask, ask_and_wait, ask_together, delegate, list_requests, read_request,
    read_together, request_approval, withdraw_request,
};
pub use results::Results;
pub use review::Reviews;
pub use runner_sessions::RunnerSession;
pub use runners::{
    HostedLogs, LaunchRounds, RunnerLaunch, Runners, apply_supervisor_facts, check_relayed,
};
pub use runs::Cleaning;
pub use runs::{BudgetCall, Cleaner, DispatchCall, ResumeCall, RetryCall, RunControl, RunReader};
pub use search::SearchIndex;
pub use stats::stats;
pub use tasks::Tasks;
pub use tokens::{SignedIn, TokenAccess, Tokens};
pub use tokens::{fresh_token, is_hash, token_hash};
pub use tree_work::{TreeTasks, TreeWorkLeft};
pub use undo::Undos;
pub use waits::Waits;
pub use webhooks::Webhooks;

use crate::config::{Home, LogStoreAddress};
use crate::ops::attempts::Gates;
use crate::ops::chats::FollowedStates;
use crate::ops::first_reports::FirstReports;
use crate::ops::kept_logs::KeptLogs;
use crate::ops::log_store::LogStore;
use crate::ops::machine::Machine;
use crate::ops::peers::Peers;
use crate::ops::runner_launches::Launches;
use crate::ops::runner_sessions::Sessions;
use crate::ops::runners::HostedRepositories;
use crate::ops::settings::Settings;
use crate::ops::trees::Trees;
use crate::store::Store;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// Maximum wait of one call, in milliseconds.
const WAIT_MS_MAX: u64 = 24 * 60 * 60 * 1000;

/// Returns the deadline of a wait that begins now.
fn end_of_wait(wait_ms: u64) -> Instant {
    Instant::now() + Duration::from_millis(wait_ms.min(WAIT_MS_MAX))
}

/// Returns random bytes.
fn random<const N: usize>() -> [u8; N] {
    let mut bytes = [0_u8; N];
    getrandom::fill(&mut bytes).expect("the kernel provides random bytes");
    bytes
}

/// The use cases over one store. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Ops {
    store: Store,
    home: Arc<Home>,
    pub settings: Settings,
    pub machine: Machine,
    pub hosted_repositories: HostedRepositories,
    pub gates: Gates,
    pub trees: Trees,
    /// Participants that are waiting for chats.
    pub presence: chats::Presence,
    /// The problems of the connections to peers.
    pub followed: FollowedStates,
    pub peers: Peers,
    /// Counts of calls about chats.
    pub tally: chats::Tally,
    kept_logs: KeptLogs,
    /// Where the logs of ended attempts are moved.
    pub log_store: LogStore,
    /// The attempts whose supervisors have not reported to this hub yet.
    pub first_reports: Arc<FirstReports>,
    /// The runners that have joined.
    sessions: Sessions,
    /// The runners that were launched.
    launches: Launches,
}

impl Ops {
    #[must_use]
    pub fn new(
        store: Store,
        home: Home,
        live_runs_max: u64,
        log_store: Option<LogStoreAddress>,
    ) -> Self {
        let home = Arc::new(home);
        let (trees, followed) = (
            Trees::new(store.clone(), Arc::clone(&home)),
            FollowedStates::default(),
        );
        let settings = Settings::new(Arc::clone(&home), Arc::clone(store.wake_ups()));
        Self {
            gates: Gates::new(store.clone(), settings.clone()),
            machine: Machine::new(live_runs_max),
            log_store: LogStore::new(store.clone(), Arc::clone(&home), log_store),
            kept_logs: KeptLogs::default(),
            first_reports: Arc::new(FirstReports::new(store.clone())),
            sessions: Sessions::default(),
            launches: Launches::default(),
            hosted_repositories: HostedRepositories::new(
                store.clone(),
                Arc::clone(&home),
                trees.clone(),
            ),
            peers: Peers::new(store.clone(), Arc::clone(&home), followed.clone()),
            presence: chats::Presence::default(),
            tally: chats::Tally::default(),
            followed,
            settings,
            trees,
            store,
            home,
        }
    }

    #[must_use]
    pub fn store(&self) -> &Store {
        &self.store
    }

    #[must_use]
    pub fn home(&self) -> &Home {
        &self.home
    }
}
