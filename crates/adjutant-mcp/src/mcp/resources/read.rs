//! Reading a resource.

use super::refusal::{not_found, refused};
use super::target::Target;
use crate::mcp::session::McpSession;
use crate::mcp::text::line;
use crate::mcp::tools::{chats, parent};
use crate::view::{ErrorView, GetRun, ReadLogs, ShowChat};
use rmcp::ErrorData;
use rmcp::model::{ReadResourceResult, ResourceContents};

/// Size of a page of a log.
const LOG_BYTES_MAX: u64 = 16_000;
/// Messages on a page of a chat.
const ENTRIES_MAX: u32 = 20;

/// Returns the text of a resource, and the address of its next page.
pub(crate) async fn read(session: &McpSession, uri: &str) -> Result<ReadResourceResult, ErrorData> {
    let target = Target::parse(uri).ok_or_else(|| not_found(uri))?;
    let text = text_of(session, target)
        .await
        .map_err(|error| refused(uri, &error))?;
    Ok(ReadResourceResult::new(vec![ResourceContents::text(
        text, uri,
    )]))
}

async fn text_of(session: &McpSession, target: Target) -> Result<String, ErrorView> {
    let shown = match target {
        Target::Run(run) => {
            let run = session
                .client()
                .call(&GetRun {
                    run,
                    ..GetRun::default()
                })
                .await?;
            let next = format!("log://{}", line(&run.identity.name, 60));
            parent::run_shown(&run).next(next)
        }
        Target::Log { run, after } => {
            let page = session
                .client()
                .call(&ReadLogs {
                    run,
                    after,
                    max_bytes: Some(LOG_BYTES_MAX),
                    wait_ms: 0,
                    ..ReadLogs::default()
                })
                .await?;
            let next = format!("log://{}?after={}", line(&page.name, 60), page.next);
            parent::log_shown(&page).next(next)
        }
        Target::Chat { chat, after } => {
            let show = ShowChat {
                chat_id: chat,
                after,
                changes: None,
                limit: Some(ENTRIES_MAX),
                wait_ms: 0,
                peek: true,
            };
            let page = session.client().call(&show).await?;
            let next = format!("chat://{}?after={}", page.chat.chat_id, page.cursor);
            chats::page_shown(&page).next(next)
        }
    };
    Ok(shown.into_text())
}
