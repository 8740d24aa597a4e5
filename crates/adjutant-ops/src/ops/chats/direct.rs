//! Direct chats and boards.

use crate::config::Config;
use crate::ops::chats::caller::ChatCaller;
use crate::ops::lookup;
use crate::store::{Chat, NewChat, Run, StoreError, Tx, chat_by_pair};
use adjutant_core::chat::{self, ChatKind, Participant, Scope};
use adjutant_core::{Action, Denied, Principal};

/// The board that all runs of the caller's owner share.
pub(super) const BOARD: &str = "board";
/// What the calling run will change or provide.
pub(super) const LEDGER: &str = "ledger";
/// The board of the calling run's own tree.
pub(super) const ROOT_BOARD: &str = "root-board";

/// Finds or starts the direct chat with a participant.
pub(super) fn direct(
    tx: &mut Tx<'_>,
    config: &Config,
    caller: &ChatCaller,
    to: &str,
) -> Result<Chat, StoreError> {
    let (other, name) = caller.addressee(tx.connection(), config, to)?;
    if other == caller.participant() {
        return Err(Denied::invalid("to", "is yourself").into());
    }
    let scope = match &other {
        Participant::Principal(run @ Principal::Run(_)) => {
            let theirs = ChatCaller::of(tx.connection(), run)?.viewer.scope;
            let is_of_tree = caller
                .run
                .as_ref()
                .is_none_or(|own| Some(own.root) == theirs.root);
            Scope {
                root: theirs.root.filter(|_| is_of_tree),
                ..theirs
            }
        }
        Participant::Principal(client @ Principal::Client(_)) if caller.run.is_none() => Scope {
            owner: client.clone(),
            root: None,
        },
        Participant::Principal(_)
        | Participant::Agent(_)
        | Participant::Hub
        | Participant::Peer(_)
        | Participant::FromFile(_) => caller.viewer.scope.clone(),
    };
    let mut ends = [caller.participant().to_string(), other.to_string()];
    ends.sort();
    let pair = format!("{}||{}|{}", scope.owner, ends[0], ends[1]);
    let chat = match chat_by_pair(tx.connection(), &pair)? {
        Some(chat) => chat,
        None => {
            let title = format!(
                "{}, {}",
                chat::shown_name(&caller.participant(), &caller.name, None),
                chat::shown_name(&other, &name, None)
            );
            tx.start_chat(&NewChat {
                title,
                ..new_untitled_chat(config, caller, ChatKind::Direct, scope, pair)
            })?
        }
    };
    tx.join_chat(chat.id, &caller.participant(), &caller.name)?;
    tx.join_chat(chat.id, &other, &name)?;
    Ok(chat)
}

/// Finds or creates the board shared by the runs of the caller's owner, or the board of one tree.
pub(super) fn board(
    tx: &mut Tx<'_>,
    config: &Config,
    caller: &ChatCaller,
    tree: Option<&Run>,
) -> Result<Chat, StoreError> {
    let owner = tree.map_or_else(
        || caller.viewer.scope.owner.clone(),
        |root| root.owner.clone(),
    );
    let scope = Scope {
        owner,
        root: tree.map(|root| root.id),
    };
    let root = scope.root.map_or_else(String::new, |root| root.to_string());
    let pair = format!("{BOARD}|{}|{root}", scope.owner);
    if let Some(chat) = chat_by_pair(tx.connection(), &pair)? {
        return Ok(chat);
    }
    let title = tree.map_or_else(
        || "Board".to_owned(),
        |root| format!("Board of {}", root.name),
    );
    tx.start_chat(&NewChat {
        title,
        private: false,
        ..new_untitled_chat(config, caller, ChatKind::Board, scope, pair)
    })
}

/// Finds or creates the board of the calling run's tree, or of the tree of a run that the caller
/// names.
pub(super) fn root_board(
    tx: &mut Tx<'_>,
    config: &Config,
    caller: &ChatCaller,
    of: Option<&str>,
) -> Result<Chat, StoreError> {
    let root = match (&caller.run, of) {
        (Some(run), _) => run.root,
        (None, Some(run)) => {
            lookup::run(tx.connection(), &caller.viewer.who, Action::See, run)?.root
        }
        (None, None) => {
            return Err(Denied::invalid(
                "to",
                "root-board is only for runs; write to another board by its chat_id",
            )
            .into());
        }
    };
    let root = tx.run(root)?;
    board(tx, config, caller, Some(&root))
}

fn new_untitled_chat(
    config: &Config,
    caller: &ChatCaller,
    kind: ChatKind,
    scope: Scope,
    pair: String,
) -> NewChat {
    NewChat {
        kind,
        title: String::new(),
        scope,
        private: true,
        pair: Some(pair),
        template: None,
        instructions: None,
        window: config.chats.window,
        turns_max: config.chats.turns_max,
        branch_of: None,
        started_by: caller.participant(),
        started_name: caller.name.clone(),
    }
}
