//! The calls about chats.

use super::calls::{Calls, on};
use crate::ops::{
    SayCall, SearchIndex, archive_chat, cancel_answers, chat_stats, export_chat, import_chat,
    list_chats, list_mentions, read_answers, read_board, show_chat, start_chat, summarise_chat,
};
use crate::process::usage;
use crate::view::{
    ArchiveChat, CancelAnswers, ChatStats, ExportChat, GetChatStats, ImportChat, ListChats,
    ListMentions, ReadAnswers, ReadBoard, Say, Search, ShowChat, StartChat, SummariseChat,
};

/// Adds the calls about chats.
pub(super) fn routes(calls: Calls) -> Calls {
    store_calls(message_calls(chat_calls(calls)))
}

/// Adds the calls about whole chats.
fn chat_calls(mut router: Calls) -> Calls {
    router = on(router, |hub, caller, call: StartChat| async move {
        hub.ops
            .tally
            .measure(
                false,
                start_chat(
                    hub.ops.store(),
                    &hub.ops.settings,
                    &hub.ops.presence,
                    caller,
                    call,
                ),
            )
            .await
    });
    router = on(router, |hub, caller, call: ListChats| async move {
        let waits = call.wait_ms > 0;
        hub.ops
            .tally
            .measure(waits, list_chats(hub.ops.store(), &caller.who, &call))
            .await
    });
    router = on(router, |hub, caller, call: ShowChat| async move {
        let waits = call.wait_ms > 0;
        hub.ops
            .tally
            .measure(
                waits,
                show_chat(
                    hub.ops.store(),
                    &hub.ops.presence,
                    &hub.ops.followed,
                    &caller.who,
                    &call,
                ),
            )
            .await
    });
    router = on(router, |hub, caller, call: SummariseChat| async move {
        hub.ops
            .tally
            .measure(
                false,
                summarise_chat(
                    hub.ops.store(),
                    hub.ops.home(),
                    &hub.ops.settings,
                    caller,
                    call,
                ),
            )
            .await
    });
    on(router, |hub, caller, call: ArchiveChat| async move {
        hub.ops
            .tally
            .measure(
                false,
                archive_chat(
                    hub.ops.store(),
                    hub.ops.home(),
                    &hub.ops.settings,
                    &hub.ops.presence,
                    caller,
                    call,
                ),
            )
            .await
    })
}

/// Adds the calls about messages and the answers to them.
fn message_calls(mut router: Calls) -> Calls {
    router = on(router, |hub, caller, call: ListMentions| async move {
        hub.ops
            .tally
            .measure(false, async {
                list_mentions(hub.ops.store(), &caller.who, &call)
            })
            .await
    });
    router = on(router, |hub, caller, call: Say| async move {
        hub.ops
            .tally
            .measure(false, SayCall::of(&hub.ops).say(caller, call))
            .await
    });
    router = on(router, |hub, caller, call: ReadBoard| async move {
        hub.ops
            .tally
            .measure(false, async {
                read_board(hub.ops.store(), &caller.who, &call)
            })
            .await
    });
    router = on(router, |hub, caller, call: ReadAnswers| async move {
        let waits = call.wait_ms > 0;
        hub.ops
            .tally
            .measure(waits, read_answers(hub.ops.store(), &caller.who, &call))
            .await
    });
    on(router, |hub, caller, call: CancelAnswers| async move {
        hub.ops
            .tally
            .measure(
                false,
                cancel_answers(hub.ops.store(), &hub.ops.settings, caller, call),
            )
            .await
    })
}

/// Adds the calls that search, copy and measure chats.
fn store_calls(mut router: Calls) -> Calls {
    router = on(router, |hub, caller, call: Search| async move {
        hub.ops
            .tally
            .measure(false, SearchIndex::of(&hub.ops).search(&caller.who, call))
            .await
    });
    router = on(router, |hub, caller, call: ExportChat| async move {
        hub.ops
            .tally
            .measure(false, async {
                export_chat(hub.ops.store(), &caller.who, &call)
            })
            .await
    });
    router = on(router, |hub, caller, call: ImportChat| async move {
        hub.ops
            .tally
            .measure(
                false,
                import_chat(hub.ops.store(), &hub.ops.presence, caller, call),
            )
            .await
    });
    on(router, |hub, caller, call: GetChatStats| async move {
        let stats = hub
            .ops
            .tally
            .measure(false, async {
                chat_stats(hub.ops.store(), &hub.ops.tally, &caller.who, &call)
            })
            .await?;
        Ok(ChatStats {
            hub_memory_bytes: usage::own_memory(),
            ..stats
        })
    })
}
