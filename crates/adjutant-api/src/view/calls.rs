//! The table of all calls: their paths, what they do, how HTTP serves them to tokens, and their
//! replies.

use super::*;
use adjutant_core::token::CallEffect;

/// Expands to the effect of a call, and whether it takes an idempotency key.
macro_rules! effect {
    (reads) => {
        (CallEffect::Reads, false)
    };
    (writes) => {
        (CallEffect::Changes, true)
    };
    (writes for runs) => {
        (CallEffect::Reads, true)
    };
    (local) => {
        (CallEffect::LocalOnly, false)
    };
    (local writes) => {
        (CallEffect::LocalOnly, true)
    };
}

/// Implements [`Call`] for each row: `Arguments = "path", EFFECT -> Reply`. The effect is one of
/// - `reads`: it changes nothing; `reads ["FIELD"]`: only if this argument is true, which is what a
///   token that may only read must send;
/// - `writes`: it can change state;
/// - `writes for runs`: it changes state only for runs, to which it delivers messages, so a token
///   that may only read can make it;
/// - `local`, `local writes`: a call of workers, or about the hub itself, its tokens and its peers.
///   HTTP does not serve it. Only the latter takes a key.
macro_rules! calls {
    ($($call:ident = $name:literal, $($effect:ident)+ $([$field:literal])? -> $reply:ty;)+) => {
        $(
            impl Call for $call {
                const NAME: &'static str = $name;
                const EFFECT: CallEffect = effect!($($effect)+).0;
                const WRITES: bool = effect!($($effect)+).1;
                $(const READS_WITH: Option<&'static str> = Some($field);)?
                type Reply = $reply;
            }
        )+

        /// All calls: their names and effects.
        pub const CALLS: &[(&str, CallEffect)] = &[$(($call::NAME, $call::EFFECT)),+];

        /// The schemas of all calls.
        #[cfg(test)]
        pub(super) const SCHEMAS: &[Schemas] = &[$(Schemas::of::<$call>()),+];
    };
}

/// What the description of the API needs to know of a call.
#[cfg(test)]
pub(super) struct Schemas {
    pub name: &'static str,
    pub effect: CallEffect,
    pub takes_key: bool,
    pub arguments: fn(&mut schemars::SchemaGenerator) -> schemars::Schema,
    pub reply: fn(&mut schemars::SchemaGenerator) -> schemars::Schema,
}

#[cfg(test)]
impl Schemas {
    const fn of<C: Call>() -> Self {
        Self {
            name: C::NAME,
            effect: C::EFFECT,
            takes_key: C::WRITES,
            arguments: schemars::SchemaGenerator::subschema_for::<C>,
            reply: schemars::SchemaGenerator::subschema_for::<C::Reply>,
        }
    }
}

calls! {
    Adopt = "adopt", writes -> RunList;
    ListAgents = "agents", reads -> AgentList;
    AnswerRequests = "answer", writes -> Answered;
    ReadAnswers = "answers", reads -> Answers;
    CancelAnswers = "answers-cancel", writes -> Answers;
    Ask = "ask", local writes -> RequestView;
    AskTogether = "ask-together", local writes -> RequestList;
    AskAndWait = "ask-wait", local writes -> RequestView;
    ListAttention = "attention", reads -> AttentionList;
    ReadBoard = "board", reads -> Board;
    ChangeBudget = "budget", writes -> RunView;
    Cancel = "cancel", writes -> RunView;
    ShowChat = "chat", reads ["peek"] -> ChatPage;
    ArchiveChat = "chat-archive", writes -> ChatView;
    ExportChat = "chat-export", reads -> ChatExport;
    FollowChat = "chat-follow", local writes -> ChatView;
    ImportChat = "chat-import", writes -> ChatView;
    ShareChat = "chat-share", local writes -> ChatShares;
    StartChat = "chat-start", writes -> ChatView;
    GetChatStats = "chat-stats", reads -> ChatStats;
    SummariseChat = "chat-summarise", writes -> Answers;
    UnfollowChat = "chat-unfollow", local writes -> ChatView;
    ListChats = "chats", reads -> ChatList;
    CheckLogStore = "check-log-store", local -> LogStoreCheck;
    Clean = "clean", writes -> Cleaned;
    CommentOnRun = "comment", writes -> CommentedView;
    OpenDashboard = "dashboard", local -> DashboardView;
    Delegate = "delegate", local writes -> RequestView;
    DiffRun = "diff", reads ["kept"] -> DiffView;
    DiscardRun = "discard", writes -> DiscardView;
    Dispatch = "dispatch", writes -> RunView;
    ReadEvents = "events", reads -> EventPage;
    FollowUp = "follow-up", writes -> RunView;
    RevokeGrant = "grant-revoke", writes -> GrantView;
    ListGrants = "grants", reads -> GrantList;
    HandOver = "hand-over", local -> HubView;
    GetHub = "hub", reads -> HubView;
    ReadLogs = "logs", reads -> LogPage;
    ListMentions = "mentions", reads -> Mentions;
    MergeRun = "merge", writes -> MergeView;
    ConfirmNotified = "notified", writes -> Notified;
    Pause = "pause", writes -> RunView;
    GetPeer = "peer", local -> PeerDetails;
    AddPeer = "peer-add", local writes -> PeerView;
    BlockPeer = "peer-block", local writes -> PeerView;
    InvitePeer = "peer-invite", local writes -> PeerView;
    RemovePeer = "peer-remove", local writes -> PeerView;
    ListPeers = "peers", local -> PeerList;
    ListPolicies = "policies", reads -> PolicyList;
    CheckPolicies = "policies-check", reads -> PolicyCheck;
    TrustPolicies = "policies-trust", writes -> TrustedPolicies;
    TrustPolicyChange = "policies-trust-change", writes -> PolicyChangeView;
    TryPolicies = "policies-try", reads -> PolicyTrial;
    ChangePool = "pool-change", writes -> PoolView;
    ListPools = "pools", reads -> PoolList;
    ReadRequest = "request", writes for runs -> RequestView;
    RequestApproval = "request-approval", local writes -> RequestView;
    ReadTogether = "request-together", local writes -> RequestList;
    ListRequests = "requests", reads -> RequestList;
    ReadResult = "result", reads -> ResultView;
    Resume = "resume", writes -> RunView;
    Retry = "retry", writes -> RunView;
    GetRun = "run", writes for runs -> RunView;
    ListRuns = "runs", reads -> RunList;
    Say = "say", writes -> PostedMessage;
    Search = "search", reads -> SearchHits;
    SendToRun = "send", writes -> MessageView;
    GetStats = "stats", reads -> StatsView;
    SetStatus = "status", writes -> RunView;
    StopHub = "stop", local -> HubView;
    StopWork = "stop-work", local writes -> RunView;
    GetTask = "task", reads -> TaskView;
    CancelTask = "task-cancel", writes -> TaskView;
    StartTask = "task-start", writes -> TaskView;
    UpdateTask = "task-update", writes -> TaskView;
    CreateToken = "token-create", local writes -> TokenView;
    RevokeToken = "token-revoke", local writes -> TokenView;
    ListTokens = "tokens", local -> TokenList;
    UndoRun = "undo", writes -> UndoView;
    Wait = "wait", reads -> Waited;
    ListWebhooks = "webhooks", reads -> WebhookList;
    RetryWebhooks = "webhooks-retry", writes -> WebhooksRetried;
    WithdrawRequest = "withdraw-request", local writes -> RequestView;
}
