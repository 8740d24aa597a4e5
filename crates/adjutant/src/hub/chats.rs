//! The calls about chats.

use super::router::{Shared, on};
use crate::view::{ArchiveChat, CancelAnswers, ListChats, ReadAnswers, Say, ShowChat, StartChat};
use axum::Router;

/// Adds the calls about chats to the router.
pub(super) fn routes(mut router: Router<Shared>) -> Router<Shared> {
    router = on(router, |hub, caller, call: StartChat| async move { hub.ops.start_chat(caller, call).await });
    router = on(router, |hub, caller, call: ListChats| async move { hub.ops.list_chats(&caller.who, &call) });
    router = on(router, |hub, caller, call: ShowChat| async move { hub.ops.show_chat(&caller.who, &call).await });
    router = on(router, |hub, caller, call: Say| async move { hub.ops.say(caller, call).await });
    router = on(router, |hub, caller, call: ReadAnswers| async move { hub.ops.read_answers(&caller.who, &call).await });
    router = on(router, |hub, caller, call: CancelAnswers| async move { hub.ops.cancel_answers(caller, call).await });
    on(router, |hub, caller, call: ArchiveChat| async move { hub.ops.archive_chat(caller, call).await })
}
