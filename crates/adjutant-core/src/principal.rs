//! Principals: who a connection acts as, and what that principal may do. Identity comes from the
//! connection and its token, never from an argument.

use crate::limits::NAME_BYTES_MAX;
use crate::{Denied, RunId};
use std::fmt;

/// The stable name of a parent agent's connection: its project directory, or the value of
/// `--client`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ClientName(String);

impl ClientName {
    /// Longest name, in bytes, so that any path fits.
    pub const BYTES_MAX: usize = 4096;

    /// Parses a client's name: 1 to 4096 bytes without control characters.
    ///
    /// # Errors
    /// The text is not a valid name.
    pub fn parse(text: &str) -> Result<Self, Denied> {
        if text.is_empty() || text.len() > Self::BYTES_MAX || text.chars().any(char::is_control) {
            return Err(Denied::invalid(
                "client",
                "use 1 to 4096 bytes without control characters",
            ));
        }
        Ok(Self(text.to_owned()))
    }

    /// Returns the name as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Returns whether this is a short name, not a directory.
    #[must_use]
    pub fn is_short(&self) -> bool {
        self.0.len() <= NAME_BYTES_MAX && !self.0.contains('/')
    }
}

/// Who a connection acts as.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Principal {
    /// The user at a terminal, who may do everything.
    Person,
    /// A parent agent's connection, with access to its own runs and all runs below them.
    Client(ClientName),
    /// A worker, with access to itself.
    Run(RunId),
}

impl Principal {
    /// Returns the word for this kind of principal.
    #[must_use]
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Person => "person",
            Self::Client(_) => "client",
            Self::Run(_) => "run",
        }
    }

    /// Parses the output of `Display`.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        if text == "person" {
            return Some(Self::Person);
        }
        if let Some(run) = text.strip_prefix("run:") {
            return RunId::parse(run).ok().map(Self::Run);
        }
        let client = text.strip_prefix("client:")?;
        ClientName::parse(client).ok().map(Self::Client)
    }
}

impl fmt::Display for Principal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Person => f.write_str("person"),
            Self::Client(name) => write!(f, "client:{}", name.as_str()),
            Self::Run(id) => write!(f, "run:{id}"),
        }
    }
}

/// The relation of a run to the principal.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Relation {
    /// The principal is this run.
    Itself,
    /// The principal is a run that delegated this one.
    Child,
    /// The principal is the client that dispatched the run's root.
    Owner,
    /// Anything else.
    Foreign,
}

/// An action of a principal. Each use case requires exactly one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Action {
    Dispatch,
    ListAgents,
    ListRuns,
    See,
    Logs,
    /// See a run's changes.
    Review,
    Undo,
    /// Bringing its changes into the user's repository.
    Merge,
    /// Removing its workspace.
    Discard,
    Wait,
    ListRequests,
    Answer,
    Ask,
    ReadAnswer,
    Cancel,
    Retry,
    Pause,
    Resume,
    Message,
    ReceiveMessages,
    Annotate,
    Report,
    Events,
    /// Start, find, read and write chats. [`crate::chat::may_see`] decides which ones.
    StartChat,
    ListChats,
    ReadChat,
    Say,
    Adopt,
    Clean,
    /// Stop the hub, and control what it does by itself, such as delivering webhooks.
    ManageHub,
}

impl Action {
    pub const ALL: [Self; 30] = [
        Self::Dispatch,
        Self::ListAgents,
        Self::ListRuns,
        Self::See,
        Self::Logs,
        Self::Review,
        Self::Undo,
        Self::Merge,
        Self::Discard,
        Self::Wait,
        Self::ListRequests,
        Self::Answer,
        Self::Ask,
        Self::ReadAnswer,
        Self::Cancel,
        Self::Retry,
        Self::Pause,
        Self::Resume,
        Self::Message,
        Self::ReceiveMessages,
        Self::Annotate,
        Self::Report,
        Self::Events,
        Self::StartChat,
        Self::ListChats,
        Self::ReadChat,
        Self::Say,
        Self::Adopt,
        Self::Clean,
        Self::ManageHub,
    ];

    /// Returns the phrase that completes "a run may not …".
    #[must_use]
    pub fn phrase(self) -> &'static str {
        match self {
            Self::Dispatch => "start runs",
            Self::ListAgents => "list agents",
            Self::ListRuns => "list runs",
            Self::See => "see runs",
            Self::Logs => "read logs",
            Self::Review => "review changes",
            Self::Undo => "undo changes",
            Self::Merge => "merge changes",
            Self::Discard => "discard changes",
            Self::Wait => "wait for runs",
            Self::ListRequests => "list questions",
            Self::Answer => "answer questions",
            Self::Ask => "ask a parent",
            Self::ReadAnswer => "read answers",
            Self::Cancel => "cancel runs",
            Self::Retry => "retry runs",
            Self::Pause => "pause runs",
            Self::Resume => "resume runs",
            Self::Message => "send messages to runs",
            Self::ReceiveMessages => "receive messages",
            Self::Annotate => "annotate runs",
            Self::Report => "report status",
            Self::Events => "read the event history",
            Self::StartChat => "start chats",
            Self::ListChats => "list chats",
            Self::ReadChat => "read chats",
            Self::Say => "write in chats",
            Self::Adopt => "move runs between clients",
            Self::Clean => "remove finished runs",
            Self::ManageHub => "manage the hub",
        }
    }

    /// Returns whether the action has a run (or a request of one) as its object, so that the
    /// relation to it decides.
    #[must_use]
    pub(crate) fn has_object(self) -> bool {
        match self {
            Self::See
            | Self::Logs
            | Self::Review
            | Self::Undo
            | Self::Merge
            | Self::Discard
            | Self::Answer
            | Self::ReadAnswer
            | Self::Cancel
            | Self::Retry
            | Self::Pause
            | Self::Resume
            | Self::Message
            | Self::Annotate
            | Self::Report
            | Self::ReceiveMessages
            | Self::Ask => true,
            Self::Dispatch
            | Self::ListAgents
            | Self::ListRuns
            | Self::Wait
            | Self::ListRequests
            | Self::Events
            | Self::StartChat
            | Self::ListChats
            | Self::ReadChat
            | Self::Say
            | Self::Adopt
            | Self::Clean
            | Self::ManageHub => false,
        }
    }
}

/// The decision about a principal, an action and an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    Yes,
    /// The principal may never do this, and gets that as the reason.
    NotAllowed,
    /// The object belongs to another owner, so the principal gets "not found".
    NotFound,
}

/// Decides whether a principal may perform an action on a run with this relation. Lists
/// (`ListRuns`, `ListRequests`, `Wait`, `Events`) are filtered by the same relation.
#[must_use]
pub fn may(who: &Principal, action: Action, relation: Relation) -> Verdict {
    use Action as A;
    match who {
        Principal::Person => match action {
            // Only a run itself asks, receives its answers, or reports.
            A::Ask | A::Report | A::ReceiveMessages => Verdict::NotAllowed,
            _ => Verdict::Yes,
        },
        Principal::Client(_) => match action {
            A::Ask | A::Report | A::ReceiveMessages | A::Adopt | A::Clean | A::ManageHub => {
                Verdict::NotAllowed
            }
            _ if action.has_object() && relation != Relation::Owner => Verdict::NotFound,
            _ => Verdict::Yes,
        },
        Principal::Run(_) => match action {
            A::StartChat | A::ListChats | A::ReadChat | A::Say => Verdict::Yes,
            // A run sees the results of its children; its own parent decides about them.
            A::See if relation == Relation::Child => Verdict::Yes,
            A::See | A::ReadAnswer | A::Ask | A::Report | A::ReceiveMessages => {
                if relation == Relation::Itself {
                    Verdict::Yes
                } else {
                    Verdict::NotFound
                }
            }
            A::Dispatch
            | A::ListAgents
            | A::ListRuns
            | A::Logs
            | A::Review
            | A::Undo
            | A::Merge
            | A::Discard
            | A::Wait
            | A::ListRequests
            | A::Answer
            | A::Cancel
            | A::Retry
            | A::Pause
            | A::Resume
            | A::Message
            | A::Annotate
            | A::Events
            | A::Adopt
            | A::Clean
            | A::ManageHub => Verdict::NotAllowed,
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Time;

    #[test]
    fn run_acts_only_on_itself_and_never_answers() {
        let run = Principal::Run(RunId::new(Time(1), [1; 10]));
        let chats = [
            Action::StartChat,
            Action::ListChats,
            Action::ReadChat,
            Action::Say,
        ];
        for action in Action::ALL
            .into_iter()
            .filter(|action| !chats.contains(action))
        {
            assert_ne!(
                may(&run, action, Relation::Foreign),
                Verdict::Yes,
                "{action:?}"
            );
        }
        for action in Action::ALL
            .into_iter()
            .filter(|action| *action != Action::See && !chats.contains(action))
        {
            assert_ne!(
                may(&run, action, Relation::Child),
                Verdict::Yes,
                "{action:?}"
            );
        }
        assert_eq!(may(&run, Action::See, Relation::Child), Verdict::Yes);
        assert_eq!(
            may(&run, Action::Answer, Relation::Itself),
            Verdict::NotAllowed
        );
        assert_eq!(may(&run, Action::Ask, Relation::Itself), Verdict::Yes);
    }

    #[test]
    fn client_never_reaches_a_foreign_run() {
        let client = Principal::Client(ClientName::parse("/work/a").expect("a path is a name"));
        for action in Action::ALL.into_iter().filter(|a| a.has_object()) {
            assert_ne!(
                may(&client, action, Relation::Foreign),
                Verdict::Yes,
                "{action:?}"
            );
        }
    }

    #[test]
    fn principals_round_trip_through_text() {
        let all = [
            Principal::Person,
            Principal::Client(ClientName::parse("a:b/c").expect("name")),
            Principal::Run(RunId::new(Time(5), [3; 10])),
        ];
        for principal in all {
            assert_eq!(Principal::parse(&principal.to_string()), Some(principal));
        }
        assert_eq!(Principal::parse("client:a\nb"), None);
    }
}
