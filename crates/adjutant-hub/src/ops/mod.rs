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
pub(crate) use agents::{add_versions, configured_agents};
pub use answer_links::AnswerLink;
pub(crate) use answer_links::{LINK_PATH, LinkAnswer, LinkedRequest, resolve_link};
pub use attempt_id::AttemptId;
pub use attempts::Launch;
pub(crate) use attempts::{
    Starter, apply_facts, await_orders, closing_of, is_supervisor_of, knows_attempt, live_attempts,
    not_spawned, recover_attempt, refused_as_too_old,
};
pub(crate) use attention::{confirm_notified, list_attention, set_back};
pub use caller::Caller;
pub use chats::SayCall;
pub(crate) use chats::{
    archive_chat, cancel_answers, chat_stats, export_chat, import_chat, list_chats, list_mentions,
    read_answers, read_board, run_turns, show_chat, start_chat, summarise_chat,
};
pub(crate) use chores::Chores;
pub(crate) use comments::CommentCall;
pub use error::OpError;
pub(crate) use error::http_status;
pub(crate) use grants::{list_grants, revoke_grant};
pub(crate) use log_store::{
    AttemptToMove, LogStoreError, attempts_with_logs, remove_run, store_attempt, try_objects,
};
pub use log_store::{NotMoved, remove_files};
pub(crate) use logs::read_logs;
pub(crate) use merges::MergeCall;
pub(crate) use peers::{
    FollowStep, SendStep, post_shared, send_next_post, shared_chats, shared_entries,
};
pub(crate) use policies::{check_policies, list_policies, try_policies};
pub(crate) use policy_changes::trust_policy_change;
pub(crate) use pressure::PressureRelief;
pub(crate) use reports::ReportCalls;
pub(crate) use repository_policies::trust_policies;
pub(crate) use requests::{
    AnswerCall, ask, ask_and_wait, ask_together, delegate, list_requests, read_request,
    read_together, request_approval, withdraw_request,
};
pub use runner_sessions::RunnerSession;
pub(crate) use runners::{LaunchRounds, RunnerLaunch, apply_supervisor_facts, check_relayed};
pub use runs::Cleaning;
pub(crate) use runs::{
    BudgetCall, Cleaner, DispatchCall, ResumeCall, RetryCall, RunControl, RunReader,
};
pub(crate) use stats::stats;
pub(crate) use tokens::{SignedIn, TokenAccess};
pub use tokens::{fresh_token, is_hash, token_hash};
pub(crate) use tree_work::{TreeTasks, TreeWorkLeft};

use crate::config::{Home, LogStoreAddress};
use crate::ops::answer_links::AnswerLinks;
use crate::ops::attempts::Gates;
use crate::ops::chats::FollowedStates;
use crate::ops::first_reports::FirstReports;
use crate::ops::kept_logs::KeptLogs;
use crate::ops::log_store::LogStore;
use crate::ops::merges::{Discards, MergeJournal};
use crate::ops::peers::{Copies, Peers};
use crate::ops::pools::HubPools;
use crate::ops::results::Results;
use crate::ops::review::Reviews;
use crate::ops::runner_launches::Launches;
use crate::ops::runner_sessions::Sessions;
use crate::ops::runners::{HostedLogs, HostedRepositories, Runners};
use crate::ops::search::SearchIndex;
use crate::ops::settings::Settings;
use crate::ops::tasks::Tasks;
use crate::ops::tokens::Tokens;
use crate::ops::trees::Trees;
use crate::ops::undo::Undos;
use crate::ops::waits::Waits;
use crate::ops::webhooks::Webhooks;
use crate::ops::workspaces::Workspaces;
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
    pub(crate) settings: Settings,
    pub(crate) machine: machine::Machine,
    pub(crate) hosted_logs: HostedLogs,
    pub(crate) hosted_repositories: HostedRepositories,
    pub(crate) runners: Runners,
    pub(crate) gates: Gates,
    pub(crate) results: Results,
    pub(crate) search: SearchIndex,
    pub(crate) tasks: Tasks,
    pub(crate) waits: Waits,
    pub(crate) pools: HubPools,
    pub(crate) journal: MergeJournal,
    pub(crate) discards: Discards,
    pub(crate) undos: Undos,
    pub(crate) reviews: Reviews,
    workspaces: Workspaces,
    pub(crate) trees: Trees,
    pub(crate) links: AnswerLinks,
    pub(crate) webhooks: Webhooks,
    pub(crate) tokens: Tokens,
    /// Participants that are waiting for chats.
    pub(crate) presence: chats::Presence,
    /// The problems of the connections to peers.
    pub(crate) followed: FollowedStates,
    pub(crate) peers: Peers,
    pub(crate) copies: Copies,
    /// Counts of calls about chats.
    pub(crate) tally: chats::Tally,
    kept_logs: KeptLogs,
    /// Where the logs of ended attempts are moved.
    pub(crate) log_store: LogStore,
    /// The attempts whose supervisors have not reported to this hub yet.
    pub(crate) first_reports: Arc<FirstReports>,
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
        let (presence, tally) = (chats::Presence::default(), chats::Tally::default());
        let home = Arc::new(home);
        let settings = Settings::new(Arc::clone(&home), Arc::clone(store.wake_ups()));
        let trees = Trees::new(store.clone(), Arc::clone(&home));
        let workspaces = Workspaces::new(store.clone(), Arc::clone(&home), settings.clone());
        let machine = machine::Machine::new(live_runs_max);
        let (sessions, launches) = (Sessions::default(), Launches::default());
        let waits = Waits::new(store.clone(), Arc::clone(&home), settings.clone());
        let log_store = LogStore::new(store.clone(), Arc::clone(&home), log_store);
        let kept_logs = KeptLogs::default();
        let links = AnswerLinks::new(Arc::clone(&home));
        let followed = FollowedStates::default();
        let peers = Peers::new(store.clone(), Arc::clone(&home), followed.clone());
        let copies = Copies::new(
            store.clone(),
            settings.clone(),
            peers.clone(),
            presence.clone(),
        );
        Self {
            discards: Discards::new(store.clone(), trees.clone(), workspaces.clone()),
            journal: MergeJournal::new(
                store.clone(),
                Arc::clone(&home),
                trees.clone(),
                workspaces.clone(),
            ),
            pools: HubPools::new(
                store.clone(),
                settings.clone(),
                machine.clone(),
                sessions.clone(),
                launches.clone(),
            ),
            tasks: Tasks::new(store.clone(), waits.clone()),
            search: SearchIndex::new(store.clone(), settings.clone()),
            results: Results::new(
                store.clone(),
                Arc::clone(&home),
                log_store.clone(),
                sessions.clone(),
            ),
            gates: Gates::new(store.clone(), settings.clone()),
            runners: Runners::new(
                store.clone(),
                settings.clone(),
                sessions.clone(),
                launches.clone(),
            ),
            hosted_repositories: HostedRepositories::new(
                store.clone(),
                Arc::clone(&home),
                trees.clone(),
            ),
            hosted_logs: HostedLogs::new(
                store.clone(),
                Arc::clone(&home),
                kept_logs.clone(),
                log_store.clone(),
            ),
            tokens: Tokens::new(store.clone()),
            webhooks: Webhooks::new(
                store.clone(),
                Arc::clone(&home),
                settings.clone(),
                links.clone(),
            ),
            reviews: Reviews::new(store.clone(), trees.clone()),
            undos: Undos::new(store.clone(), trees.clone()),
            first_reports: Arc::new(FirstReports::new(store.clone())),
            links,
            trees,
            workspaces,
            waits,
            log_store,
            kept_logs,
            settings,
            machine,
            sessions,
            launches,
            peers,
            copies,
            presence,
            followed,
            tally,
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
