//! Chats: durable ordered conversations in which every participant is equal. Decides who may see a
//! chat, which messages are valid, whom they address, and which part of the history an answering
//! agent gets.
//!
//! An entry of a chat is never removed: an edit adds a revision, and entries outside of a window
//! stay in the chat.

mod address;
mod file;
mod receipt;
mod tokens;
mod window;

use crate::words;
pub use address::{Addressee, addressed, mentions};
pub use file::{FileCheck, FileEntry, FileHead, FileMember, FileRevision};
pub use receipt::Receipt;
pub(crate) use tokens::estimate_tokens;
pub use window::{Budget, Entry, Fill, History, history_text, shown_name};

use crate::peer::PeerParticipant;
use crate::quote::{is_line_end, sanitize};
use crate::{AgentName, Denied, Principal, RunId};
use std::fmt;

/// Longest title of a chat, in Unicode characters.
pub const TITLE_CHARS_MAX: usize = 200;
/// Longest message, in bytes of UTF-8.
pub const MESSAGE_BYTES_MAX: usize = 1024 * 1024;
/// Longest key of a board's entry, in bytes.
pub const KEY_BYTES_MAX: usize = 200;
/// Longest entry of a board, in bytes.
pub(crate) const BOARD_ENTRY_BYTES_MAX: usize = 64 * 1024;
/// Maximum number of entries of a board.
pub const BOARD_ENTRIES_MAX: i64 = 10_000;
/// Maximum number of changes of a board's entries: every earlier version is kept.
pub(crate) const BOARD_CHANGES_MAX: i64 = 100_000;
/// Keys with this prefix are set by announcements only.
pub const LEDGER_KEY_PREFIX: &str = "ledger/";

/// The text of such an entry after its run was removed. Lists of boards leave it out.
pub const REMOVED_ANNOUNCEMENT: &str = "{}";
/// Longest display label, in Unicode characters.
pub const LABEL_CHARS_MAX: usize = 50;
/// Largest number of an entry that comes from elsewhere: every JSON parser keeps it exact, and
/// numbers can go on above it.
const SEQ_MAX: i64 = 1 << 53;

/// Returns whether an entry from elsewhere can follow another one: with the next number, or with a
/// much higher one if its hub has left numbers out because its database was set back (see
/// [`crate::confirmed`]).
#[must_use]
pub fn follows(last: i64, seq: i64) -> bool {
    seq <= SEQ_MAX && (seq == last + 1 || seq > last && seq - last >= crate::confirmed::GAP_MIN)
}
/// Longest instructions to the agents of a chat, in bytes.
pub const INSTRUCTIONS_BYTES_MAX: usize = 16 * 1024;
/// Maximum number of participants that can be named when a chat is started.
pub const PARTICIPANTS_MAX: usize = 50;
/// Unicode characters of message text in an answering agent's window.
pub const WINDOW_CHARS_DEFAULT: u64 = 30_000;
/// How many turns in a row agents may answer agents, before another participant has to write.
pub const TURNS_MAX_DEFAULT: u32 = 6;

/// The number of a chat within its home.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ChatId(pub i64);

impl fmt::Display for ChatId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The kind of a chat.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ChatKind {
    /// A conversation with a title.
    Chat,
    /// A conversation between exactly two participants.
    Direct,
    /// Shared notes, entries with keys: of an owner's runs, or of one tree of runs.
    Board,
}

words!(ChatKind { Chat = "chat", Direct = "direct", Board = "board" });

/// The kind of a chat's entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum EntryKind {
    /// A participant's message.
    Message,
    /// An agent's answer, the last message of its run.
    Answer,
    /// An agent could not answer.
    Failure,
    /// A note of the hub, such as about a branch or a limit.
    Note,
    /// An agent's summary of earlier messages.
    Summary,
    /// An agent flags something for a person.
    Flag,
}

words!(EntryKind { Message = "message", Answer = "answer", Failure = "failure", Note = "note", Summary = "summary", Flag = "flag" });

impl EntryKind {
    /// Returns whether an entry belongs to the conversation that agents get.
    #[must_use]
    pub fn is_conversation(self) -> bool {
        matches!(self, Self::Message | Self::Answer)
    }
}

/// A participant of a chat, or the author of an entry. Determined by the connection.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Participant {
    Principal(Principal),
    /// A configured agent, which answers by starting runs.
    Agent(AgentName),
    /// The hub itself.
    Hub,
    /// A participant of another hub. It has no access of its own: its hub follows the chat, or is
    /// followed.
    Peer(PeerParticipant),
    /// A participant of an imported file, by the name in the file. It never answers and has no
    /// access.
    FromFile(String),
}

/// Prefix of a participant of an imported file.
const FROM_FILE: &str = "file:";
/// Prefix of a participant of another hub.
const OF_PEER: &str = "peer:";

impl Participant {
    /// Parses the output of `Display`.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        if text == "hub" {
            return Some(Self::Hub);
        }
        if let Some(written) = text.strip_prefix(FROM_FILE) {
            return Self::from_file(written);
        }
        if let Some(remote) = text.strip_prefix(OF_PEER) {
            return PeerParticipant::parse(remote).map(Self::Peer);
        }
        match text.strip_prefix("agent:") {
            Some(name) => AgentName::parse(name).ok().map(Self::Agent),
            None => Principal::parse(text).map(Self::Principal),
        }
    }

    /// Converts a participant that a file names.
    #[must_use]
    pub fn from_file(written: &str) -> Option<Self> {
        let written = written.strip_prefix(FROM_FILE).unwrap_or(written);
        let is_readable = !written.starts_with(FROM_FILE) && Self::parse(written).is_some();
        is_readable.then(|| Self::FromFile(written.to_owned()))
    }

    /// Returns the name for a file. An earlier file's prefix is dropped.
    #[must_use]
    pub fn for_file(&self) -> String {
        match self {
            Self::FromFile(written) => written.clone(),
            Self::Principal(_) | Self::Agent(_) | Self::Hub | Self::Peer(_) => self.to_string(),
        }
    }

    /// Returns the word for this kind of participant.
    #[must_use]
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Principal(principal) => principal.kind(),
            Self::Agent(_) => "agent",
            Self::Hub => "hub",
            Self::Peer(_) => "peer",
            Self::FromFile(_) => "file",
        }
    }
}

impl fmt::Display for Participant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Principal(principal) => principal.fmt(f),
            Self::Agent(name) => write!(f, "agent:{name}"),
            Self::Hub => f.write_str("hub"),
            Self::Peer(remote) => write!(f, "{OF_PEER}{remote}"),
            Self::FromFile(written) => write!(f, "{FROM_FILE}{written}"),
        }
    }
}

/// The scope of a chat: the owner of the runs that share it, and the root of the run that started
/// it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Scope {
    pub owner: Principal,
    pub root: Option<RunId>,
}

/// A principal, with owner and root if it is a run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Viewer {
    pub who: Principal,
    pub scope: Scope,
}

/// Which of an owner's runs may see a chat. The owner may see it too, unless it is for participants
/// only.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Audience {
    /// All runs of the owner: siblings are a team.
    Team,
    /// The runs in one tree: its board.
    Root(RunId),
    /// The participants of a private or direct chat.
    Participants,
}

impl Audience {
    /// Returns the audience of a chat.
    #[must_use]
    pub fn of(kind: ChatKind, scope: &Scope, private: bool) -> Self {
        match (private, kind, scope.root) {
            (true, ..) => Self::Participants,
            (false, ChatKind::Board, Some(root)) => Self::Root(root),
            (false, ..) => Self::Team,
        }
    }
}

/// Returns whether a viewer may see a chat of `owner`. A run never sees a chat of another owner,
/// even if invited.
#[must_use]
pub fn may_see(viewer: &Viewer, owner: &Principal, audience: Audience, takes_part: bool) -> bool {
    match &viewer.who {
        Principal::Person => true,
        Principal::Client(_) => {
            takes_part || (*owner == viewer.who && audience != Audience::Participants)
        }
        Principal::Run(_) => {
            *owner == viewer.scope.owner
                && match audience {
                    Audience::Team => true,
                    Audience::Root(root) => viewer.scope.root == Some(root),
                    Audience::Participants => takes_part,
                }
        }
    }
}

/// Checks that a participant may change an entry: only its author may.
///
/// # Errors
/// The entry has another author.
pub fn check_edit(who: &Principal, author: &Participant) -> Result<(), Denied> {
    if *author == Participant::Principal(who.clone()) {
        return Ok(());
    }
    Err(Denied::NotAllowed {
        who: "you",
        action: "edit another author's message",
    })
}

/// Checks a title and returns it trimmed.
///
/// # Errors
/// The title does not have 1 to 200 characters, or has control characters.
pub fn checked_title(title: &str) -> Result<String, Denied> {
    let title = title.trim();
    let chars = title.chars().count();
    if !(1..=TITLE_CHARS_MAX).contains(&chars) {
        return Err(Denied::invalid(
            "title",
            format!("{chars} characters: use 1 to {TITLE_CHARS_MAX}"),
        ));
    }
    if title.chars().any(|c| c.is_control() || is_line_end(c)) {
        return Err(Denied::invalid(
            "title",
            "use one line without control characters",
        ));
    }
    Ok(title.to_owned())
}

/// Checks a message's text.
///
/// # Errors
/// The text is empty or longer than 1 MiB.
pub fn checked_message(text: &str) -> Result<(), Denied> {
    if text.is_empty() {
        return Err(Denied::invalid(
            "message",
            format!("is empty: use 1 to {MESSAGE_BYTES_MAX} bytes"),
        ));
    }
    if text.len() > MESSAGE_BYTES_MAX {
        return Err(Denied::invalid(
            "message",
            format!(
                "{} bytes are too many: use 1 to {MESSAGE_BYTES_MAX}",
                text.len()
            ),
        ));
    }
    Ok(())
}

/// Checks whether a board can hold another entry or another version of one.
///
/// # Errors
/// The text is too long, or the board is full.
pub fn check_board_entry(
    text: &str,
    entries: i64,
    changes: i64,
    is_new: bool,
) -> Result<(), Denied> {
    if text.len() > BOARD_ENTRY_BYTES_MAX {
        return Err(Denied::invalid(
            "message",
            format!(
                "{} bytes are too many for a board: use 1 to {BOARD_ENTRY_BYTES_MAX}",
                text.len()
            ),
        ));
    }
    if is_new && entries >= BOARD_ENTRIES_MAX {
        return Err(Denied::invalid(
            "to",
            format!(
                "the board has {BOARD_ENTRIES_MAX} entries: replace one by its key, or start a chat"
            ),
        ));
    }
    if !is_new && changes >= BOARD_CHANGES_MAX {
        return Err(Denied::invalid(
            "key",
            format!("the board's entries were changed {BOARD_CHANGES_MAX} times: start a chat"),
        ));
    }
    Ok(())
}

/// Checks whether a board can hold a run's announcements. Announcements use at most half of a
/// board.
///
/// # Errors
/// The text is too long, or the board cannot hold more announcements.
pub fn check_board_announcement(
    text: &str,
    entries: i64,
    changes: i64,
    is_new: bool,
) -> Result<(), Denied> {
    if is_new && entries >= BOARD_ENTRIES_MAX / 2 || !is_new && changes >= BOARD_CHANGES_MAX / 2 {
        return Err(Denied::invalid(
            "to",
            "the board cannot hold more announcements",
        ));
    }
    check_board_entry(text, entries, changes, is_new)
}

/// Checks the version that a change of a board's entry expects: 0 is an entry that does not exist.
#[must_use]
pub fn is_expected_version(expect: Option<u32>, revision: Option<u32>) -> bool {
    expect.is_none_or(|expect| expect == revision.map_or(0, |revision| revision.saturating_add(1)))
}

/// Checks a display label. It is only displayed and never used as an identity.
///
/// # Errors
/// The label does not have 1 to 50 characters.
pub fn checked_label(label: &str) -> Result<String, Denied> {
    let chars = label.chars().count();
    if !(1..=LABEL_CHARS_MAX).contains(&chars) || label.trim().is_empty() {
        return Err(Denied::invalid(
            "agentName",
            format!("{chars} characters: use 1 to {LABEL_CHARS_MAX}"),
        ));
    }
    Ok(sanitize(label.trim()).replace(['\n', '\t'], " "))
}

/// Returns whether a message states a decision or a conclusion. Such messages are preferred in
/// every window.
#[must_use]
pub fn is_decision(text: &str) -> bool {
    let line = text
        .lines()
        .next()
        .unwrap_or("")
        .trim_start_matches(['*', '#', ' ', '_']);
    ["decision:", "decided:", "conclusion:"].iter().any(|word| {
        line.get(..word.len())
            .is_some_and(|start| start.eq_ignore_ascii_case(word))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{ClientName, Time};
    use proptest::prelude::*;

    fn client(name: &str) -> Principal {
        Principal::Client(ClientName::parse(name).expect("a name"))
    }

    fn run(n: u8) -> RunId {
        RunId::new(Time(1), [n; 10])
    }

    fn viewer() -> impl Strategy<Value = Viewer> {
        let scope = (0..3_u8, proptest::option::of(0..3_u8)).prop_map(|(owner, root)| Scope {
            owner: if owner == 0 {
                Principal::Person
            } else {
                client(&format!("c{owner}"))
            },
            root: root.map(run),
        });
        (scope, 0..3_u8).prop_map(|(scope, kind)| match kind {
            0 => Viewer {
                who: Principal::Person,
                scope: Scope {
                    owner: Principal::Person,
                    root: None,
                },
            },
            1 => Viewer {
                who: scope.owner.clone(),
                scope: Scope {
                    root: None,
                    ..scope
                },
            },
            _ => Viewer {
                who: Principal::Run(run(9)),
                scope: Scope {
                    root: Some(scope.root.unwrap_or(run(9))),
                    ..scope
                },
            },
        })
    }

    fn audience() -> impl Strategy<Value = Audience> {
        prop_oneof![
            Just(Audience::Team),
            (0..3_u8).prop_map(|root| Audience::Root(run(root))),
            Just(Audience::Participants)
        ]
    }

    #[test]
    fn siblings_see_all_but_private_chats_and_other_boards() {
        let of = |owner: Principal, root: Option<u8>| Scope {
            owner,
            root: root.map(run),
        };
        let sibling = |root| Viewer {
            who: Principal::Run(run(9)),
            scope: of(client("a"), Some(root)),
        };
        let owner = Viewer {
            who: client("a"),
            scope: of(client("a"), None),
        };
        let stranger = Viewer {
            who: Principal::Run(run(8)),
            scope: of(client("b"), Some(1)),
        };
        let strange_client = Viewer {
            who: client("b"),
            scope: of(client("b"), None),
        };
        let person = Viewer {
            who: Principal::Person,
            scope: of(Principal::Person, None),
        };
        let of_person = Viewer {
            who: Principal::Run(run(7)),
            scope: of(Principal::Person, Some(7)),
        };
        // The audience, and whether non-participants see it: the root's runs, its siblings, the
        // owner.
        let rows = [
            (ChatKind::Chat, Some(1), false, [true, true, true]),
            (ChatKind::Chat, None, false, [true, true, true]),
            (ChatKind::Board, None, false, [true, true, true]),
            (ChatKind::Board, Some(1), false, [true, false, true]),
            (ChatKind::Chat, Some(1), true, [false, false, false]),
            (ChatKind::Direct, Some(1), true, [false, false, false]),
        ];
        for (kind, root, private, expected) in rows {
            let audience = Audience::of(kind, &of(client("a"), root), private);
            let sees =
                |viewer: &Viewer, takes_part| may_see(viewer, &client("a"), audience, takes_part);
            assert_eq!(
                [&sibling(1), &sibling(2), &owner].map(|viewer| sees(viewer, false)),
                expected,
                "{kind:?} {root:?} {private}"
            );
            assert_eq!(
                [&stranger, &strange_client, &of_person].map(|viewer| sees(viewer, false)),
                [false; 3],
                "{kind:?} {root:?} {private}"
            );
            assert!(
                !sees(&stranger, true) && !sees(&of_person, true),
                "a run of another owner cannot be invited"
            );
            assert!(sees(&person, false), "the person sees everything");
            assert!(sees(&sibling(1), true) && sees(&owner, true));
        }
    }

    proptest! {
        #[test]
        fn foreign_and_private_chats_are_hidden(viewer in viewer(), other in viewer(), audience in audience(), member: bool) {
            let seen = may_see(&viewer, &other.scope.owner, audience, member);
            if let Principal::Run(_) = viewer.who {
                prop_assert!(!(seen && other.scope.owner != viewer.scope.owner));
            }
            if audience == Audience::Participants && !member && viewer.who != Principal::Person {
                prop_assert!(!seen, "a private chat is for its participants");
            }
        }

        #[test]
        fn participants_round_trip_through_text(name in "[a-z][a-z0-9_-]{0,20}") {
            for who in [Participant::Agent(AgentName::parse(&name).expect("a name")), Participant::Hub, Participant::Principal(client(&name))] {
                prop_assert_eq!(Participant::parse(&who.to_string()), Some(who.clone()));
                let carried = Participant::from_file(&who.to_string()).expect("a participant");
                prop_assert_eq!((Participant::parse(&carried.to_string()), carried.for_file()), (Some(carried.clone()), who.to_string()));
                prop_assert!(carried != who);
            }
        }
    }

    #[test]
    fn refusals_name_the_limit() {
        for (problem, limit) in [
            (checked_title("").map(|_| ()), "1 to 200"),
            (checked_title(&"x".repeat(201)).map(|_| ()), "1 to 200"),
            (checked_message(""), "1048576"),
            (
                checked_message(&"x".repeat(MESSAGE_BYTES_MAX + 1)),
                "1048576",
            ),
            (checked_label(&"x".repeat(51)).map(|_| ()), "1 to 50"),
        ] {
            assert!(problem.expect_err("refused").to_string().contains(limit));
        }
        assert_eq!(
            checked_title(&format!(" {} ", "ä".repeat(200))).map(|title| title.chars().count()),
            Ok(200)
        );
        assert!(checked_title("a\nb").is_err());
    }

    #[test]
    fn boards_are_bounded() {
        assert!(check_board_entry("x", BOARD_ENTRIES_MAX - 1, 0, true).is_ok());
        assert!(check_board_entry("x", BOARD_ENTRIES_MAX, 0, true).is_err());
        assert!(check_board_entry("x", BOARD_ENTRIES_MAX, BOARD_CHANGES_MAX - 1, false).is_ok());
        assert!(check_board_entry("x", 1, BOARD_CHANGES_MAX, false).is_err());
        assert!(check_board_entry(&"x".repeat(BOARD_ENTRY_BYTES_MAX + 1), 0, 0, true).is_err());
    }

    #[test]
    fn announcements_leave_half_of_a_board() {
        let (entries, changes) = (BOARD_ENTRIES_MAX / 2, BOARD_CHANGES_MAX / 2);
        assert!(
            check_board_announcement("x", entries - 1, changes, true).is_ok()
                && check_board_announcement("x", entries, 0, true).is_err()
        );
        assert!(
            check_board_announcement("x", entries, changes - 1, false).is_ok()
                && check_board_announcement("x", 1, changes, false).is_err()
        );
        assert!(
            check_board_announcement(&"x".repeat(BOARD_ENTRY_BYTES_MAX + 1), 0, 0, true).is_err()
        );
        assert!(
            check_board_entry("x", entries, changes, true).is_ok()
                && check_board_entry("x", entries, changes, false).is_ok()
        );
    }

    #[test]
    fn one_of_two_changes_of_the_same_version_is_refused() {
        for start in [None, Some(0), Some(7)] {
            let version = start.map_or(0, |revision| revision + 1);
            assert!(is_expected_version(Some(version), start) && is_expected_version(None, start));
            let after = Some(start.map_or(0, |revision| revision + 1));
            assert!(!is_expected_version(Some(version), after));
        }
    }

    #[test]
    fn only_the_author_edits() {
        assert!(check_edit(&client("a"), &Participant::Principal(client("a"))).is_ok());
        assert!(check_edit(&Principal::Person, &Participant::Principal(client("a"))).is_err());
        assert!(check_edit(&client("a"), &Participant::Hub).is_err());
    }

    #[test]
    fn decisions_are_recognised() {
        assert!(
            is_decision("DECISION: use FTS5")
                && is_decision("**Conclusion:** fine\nmore")
                && !is_decision("no decision: yet")
        );
    }
}
