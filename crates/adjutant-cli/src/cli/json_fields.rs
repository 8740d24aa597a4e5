//! `--json=FIELDS`: the fields of each command's objects.

use super::args::{
    AgentsArgs, AgentsCommand, ChatArgs, ChatCommand, Command, ConfigArgs, ConfigCommand,
    GrantsArgs, GrantsCommand, InstallArgs, PeerArgs, PeerCommand, PolicyArgs, PolicyCommand,
    TokenArgs, TokenCommand,
};
use super::exit::cli_codes;
use super::field_list::{FieldList, JsonFields};
use super::out::{Failure, fail, fail_hint};
use crate::view::{
    AgentView, Answered, BoardEntryView, ChatEntryView, ChatPage, ChatShares, ChatStats, ChatView,
    Cleaned, DiscardView, EventView, GrantList, GrantView, HubView, IncludedView, LogPage,
    MentionView, MergeView, MessageView, PeerDetails, PeerList, PeerView, PolicyChangeView,
    PolicyCheck, PolicyList, PolicyTrial, PoolList, PoolView, PostedMessage, RequestView,
    ResultView, RunView, SearchHits, StatsView, TokenList, TokenView, TrustedPolicies, UndoView,
    Waited, WebhookList, WebhooksRetried, field_names,
};

/// Checks the wanted fields of a command before it does anything.
pub(crate) fn chosen_fields(
    command: Option<&Command>,
    wanted: Option<FieldList>,
) -> Result<JsonFields, Failure> {
    let Some(wanted) = wanted else {
        // A debug build checks the table below against everything that is printed.
        return Ok(JsonFields::new(
            None,
            cfg!(debug_assertions).then(|| known_fields(command)),
        ));
    };
    let known = known_fields(command);
    match wanted
        .names()
        .iter()
        .find(|name| !known.contains(&name.as_str()))
    {
        Some(_) if known.is_empty() => Err(fail(
            cli_codes::USAGE,
            "this command prints no JSON objects whose fields could be chosen",
        )),
        Some(name) => Err(fail_hint(
            cli_codes::USAGE,
            format!("no field {name:?} in the JSON of this command"),
            format!("fields: {}", known.join(", ")),
        )),
        None => Ok(JsonFields::new(Some(wanted), Some(known))),
    }
}

/// Joins the fields of types of the contract and further names.
macro_rules! fields {
    ($($type:ty),* $(; $($name:literal),+)?) => {{
        let names: &[&'static str] = &[$($($name),+)?];
        [$(field_names::<$type>(),)* names].concat()
    }};
}

fn run_and(others: Vec<&'static str>) -> Vec<&'static str> {
    [RunView::field_names(), others].concat()
}

/// Returns the fields of the objects that a command prints.
fn known_fields(command: Option<&Command>) -> Vec<&'static str> {
    let Some(command) = command else {
        return fields!(; "version", "agents", "warnings");
    };
    match command {
        // With the pages of its output, if it is followed.
        Command::Run(_) | Command::Retry(_) | Command::Resume(_) => run_and(fields!(LogPage)),
        Command::Ps(_)
        | Command::Cancel(_)
        | Command::Pause(_)
        | Command::Budget(_)
        | Command::Adopt(_) => RunView::field_names(),
        Command::Show(args) if args.result => fields!(ResultView),
        Command::Show(_) => RunView::field_names(),
        Command::Logs(_) | Command::Attach(_) => fields!(LogPage),
        Command::Wait(_) => fields!(Waited),
        Command::Inbox(_) => run_and([RequestView::field_names(), fields!(MentionView)].concat()),
        Command::Reply(_) | Command::Approve(_) | Command::Deny(_) => fields!(Answered),
        Command::Grants(args) => grants_fields(args),
        Command::Policy(args) => policy_fields(args),
        Command::Diff(_) => fields!(
            IncludedView; "run_id", "run_name", "from", "to", "text", "is_cut", "merge_order", "committed_copies", "merged", "workspace_of", "missing"
        ),
        Command::Undo(_) => fields!(UndoView),
        Command::Merge(_) => fields!(MergeView),
        Command::Open(_) => fields!(; "run_id", "run_name", "path"),
        Command::Comment(_) => fields!(MessageView; "is_resumed", "follow_up"),
        Command::Discard(_) => fields!(DiscardView),
        Command::Send(_) => fields!(MessageView),
        Command::Chat(args) => chat_fields(args),
        Command::Board(args) if args.post.is_some() => fields!(PostedMessage),
        Command::Board(_) => fields!(BoardEntryView),
        Command::Search(_) => fields!(SearchHits),
        Command::Agents(args) => agents_fields(args),
        Command::Pools(args) if args.what.is_some() => fields!(PoolView),
        Command::Pools(_) => fields!(PoolList),
        Command::Stats(_) => fields!(StatsView),
        Command::Events(_) => fields!(EventView),
        Command::Store(_) => fields!(; "from", "to", "rows", "replaced_texts", "tables"),
        Command::Stop => fields!(HubView; "running"),
        Command::Rm(_) | Command::Clean(_) => fields!(Cleaned),
        Command::Webhooks(args) if args.what.is_some() => fields!(WebhooksRetried),
        Command::Webhooks(_) => fields!(WebhookList),
        Command::Demo(_) => {
            fields!(; "runs", "hubs_killed", "answers", "chat", "elapsed_ms", "home", "end", "removed")
        }
        Command::Init(_) => fields!(; "agents", "clients", "default_agent", "proposed"),
        Command::Install(args) => install_fields(args),
        Command::Update(_) => {
            fields!(; "version", "path", "installed_by", "hub", "on_path", "consistent", "update", "limits")
        }
        Command::Uninstall(_) => {
            fields!(; "clients", "home", "config", "completions", "program", "removed", "home_problem", "errors")
        }
        Command::Doctor(_) => fields!(; "ok", "checks"),
        Command::Ui(_) => fields!(; "url", "page", "code_valid_s"),
        Command::Peer(args) => peer_fields(args),
        Command::Token(args) => token_fields(args),
        Command::Config(args) => config_fields(args),
        Command::Help { .. } => fields!(; "exit", "meaning", "codes"),
        Command::Next(_)
        | Command::Top
        | Command::Serve(_)
        | Command::Runner(_)
        | Command::Mcp(_)
        | Command::Completions { .. } => Vec::new(),
    }
}

fn grants_fields(args: &GrantsArgs) -> Vec<&'static str> {
    match &args.what {
        Some(GrantsCommand::Revoke { .. }) => fields!(GrantView),
        None => fields!(GrantList),
    }
}

fn policy_fields(args: &PolicyArgs) -> Vec<&'static str> {
    match &args.what {
        Some(PolicyCommand::Check { .. }) => fields!(PolicyCheck),
        Some(PolicyCommand::Try { .. }) => fields!(PolicyTrial),
        Some(PolicyCommand::Trust {
            change: Some(_), ..
        }) => fields!(PolicyChangeView),
        Some(PolicyCommand::Trust { change: None, .. }) => fields!(TrustedPolicies),
        None => fields!(PolicyList),
    }
}

fn agents_fields(args: &AgentsArgs) -> Vec<&'static str> {
    match &args.what {
        Some(AgentsCommand::Test(_)) => {
            fields!(; "agent", "version", "passed", "checks", "runs")
        }
        Some(AgentsCommand::Add(_)) => fields!(;
            "agent", "config", "command", "name", "version", "mcp_http", "mcp_sse", "load_session", "resume_session", "sign_in", "modes", "profiles"
        ),
        None => fields!(AgentView),
    }
}

fn chat_fields(args: &ChatArgs) -> Vec<&'static str> {
    match (&args.chat, &args.what) {
        (Some(_), _) => Vec::new(),
        (None, Some(command)) => chat_command_fields(command),
        (None, None) => fields!(ChatView),
    }
}

fn chat_command_fields(command: &ChatCommand) -> Vec<&'static str> {
    match command {
        ChatCommand::Ls(_)
        | ChatCommand::Start(_)
        | ChatCommand::Branch(_)
        | ChatCommand::Archive(_)
        | ChatCommand::Import(_) => fields!(ChatView),
        ChatCommand::Show(_) => fields!(ChatPage),
        ChatCommand::Post(_) => fields!(; "said", "answers", "waiting"),
        ChatCommand::Search(_) => fields!(SearchHits),
        ChatCommand::Watch(_) | ChatCommand::Summarise(_) => fields!(ChatEntryView),
        ChatCommand::Edit(_) | ChatCommand::Pin(_) => fields!(PostedMessage),
        ChatCommand::Share(_) | ChatCommand::Unshare(_) => fields!(ChatShares),
        ChatCommand::Follow(_) | ChatCommand::Unfollow(_) => fields!(ChatView),
        ChatCommand::Stats(_) => fields!(ChatStats),
        ChatCommand::Export(_) => Vec::new(),
    }
}

fn install_fields(args: &InstallArgs) -> Vec<&'static str> {
    if args.print {
        fields!(; "client", "name", "file", "project_file", "entry", "skill")
    } else {
        fields!(; "client", "name", "status", "error", "file", "written", "backup", "disabled", "link_to", "running", "diff", "skill")
    }
}

fn peer_fields(args: &PeerArgs) -> Vec<&'static str> {
    match &args.what {
        PeerCommand::Invite { .. } => fields!(PeerView; "token", "own_url", "own_fingerprint"),
        PeerCommand::List => fields!(PeerList),
        PeerCommand::Add { .. } | PeerCommand::Show { .. } => fields!(PeerDetails),
        PeerCommand::Block { .. } | PeerCommand::Unblock { .. } | PeerCommand::Remove { .. } => {
            fields!(PeerView)
        }
    }
}

fn token_fields(args: &TokenArgs) -> Vec<&'static str> {
    match &args.what {
        TokenCommand::New { .. } => fields!(TokenView; "token", "url", "fingerprint"),
        TokenCommand::List { .. } => fields!(TokenList),
        TokenCommand::Revoke { .. } => fields!(TokenView),
    }
}

fn config_fields(args: &ConfigArgs) -> Vec<&'static str> {
    match &args.what {
        Some(ConfigCommand::Path) => {
            fields!(; "config", "exists", "home", "logs", "hub_log", "socket")
        }
        Some(ConfigCommand::Get { .. }) => fields!(; "key", "value"),
        Some(ConfigCommand::Set { .. } | ConfigCommand::Unset { .. }) => {
            fields!(; "key", "path")
        }
        Some(ConfigCommand::Edit | ConfigCommand::Schema) => Vec::new(),
        Some(ConfigCommand::Show) | None => fields!(;
            "path", "exists", "live_runs_max", "idle_exit_ms", "listen", "listen_without_tls", "tls", "public_url", "store", "store_shared", "log_store", "runner_lease_ms", "expiry_ms",
            "stopped_retention_ms", "finished_retention_ms", "log_bytes_max", "containment", "refuse_shared_directory", "default_agent", "delegation", "rate_limits",
            "pressure", "pools", "chats", "chat_templates", "workspaces", "agents", "webhooks", "notify"
        ),
    }
}
