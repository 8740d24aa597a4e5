//! The calls about chats.

use super::calls::{Calls, on};
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
            .measure(false, hub.ops.start_chat(caller, call))
            .await
    });
    router = on(router, |hub, caller, call: ListChats| async move {
        let waits = call.wait_ms > 0;
        hub.ops
            .tally
            .measure(waits, hub.ops.list_chats(&caller.who, &call))
            .await
    });
    router = on(router, |hub, caller, call: ShowChat| async move {
        let waits = call.wait_ms > 0;
        hub.ops
            .tally
            .measure(waits, hub.ops.show_chat(&caller.who, &call))
            .await
    });
    router = on(router, |hub, caller, call: SummariseChat| async move {
        hub.ops
            .tally
            .measure(false, hub.ops.summarise_chat(caller, call))
            .await
    });
    on(router, |hub, caller, call: ArchiveChat| async move {
        hub.ops
            .tally
            .measure(false, hub.ops.archive_chat(caller, call))
            .await
    })
}

/// Adds the calls about messages and the answers to them.
fn message_calls(mut router: Calls) -> Calls {
    router = on(router, |hub, caller, call: ListMentions| async move {
        hub.ops
            .tally
            .measure(false, async { hub.ops.list_mentions(&caller.who, &call) })
            .await
    });
    router = on(router, |hub, caller, call: Say| async move {
        hub.ops
            .tally
            .measure(false, hub.ops.say(caller, call))
            .await
    });
    router = on(router, |hub, caller, call: ReadBoard| async move {
        hub.ops
            .tally
            .measure(false, async { hub.ops.read_board(&caller.who, &call) })
            .await
    });
    router = on(router, |hub, caller, call: ReadAnswers| async move {
        let waits = call.wait_ms > 0;
        hub.ops
            .tally
            .measure(waits, hub.ops.read_answers(&caller.who, &call))
            .await
    });
    on(router, |hub, caller, call: CancelAnswers| async move {
        hub.ops
            .tally
            .measure(false, hub.ops.cancel_answers(caller, call))
            .await
    })
}

/// Adds the calls that search, copy and measure chats.
fn store_calls(mut router: Calls) -> Calls {
    router = on(router, |hub, caller, call: Search| async move {
        hub.ops
            .tally
            .measure(false, hub.ops.search.search(&caller.who, call))
            .await
    });
    router = on(router, |hub, caller, call: ExportChat| async move {
        hub.ops
            .tally
            .measure(false, async { hub.ops.export_chat(&caller.who, &call) })
            .await
    });
    router = on(router, |hub, caller, call: ImportChat| async move {
        hub.ops
            .tally
            .measure(false, hub.ops.import_chat(caller, call))
            .await
    });
    on(router, |hub, caller, call: GetChatStats| async move {
        let stats = hub
            .ops
            .tally
            .measure(false, async { hub.ops.chat_stats(&caller.who, &call) })
            .await?;
        Ok(ChatStats {
            hub_memory_bytes: usage::own_memory(),
            ..stats
        })
    })
}
