//! Listing resources, and completing their names.

use super::refusal::refused;
use super::target::TEMPLATES;
use crate::mcp::session::McpSession;
use crate::mcp::show::run_line;
use crate::mcp::text::line;
use crate::mcp::tools::chats::chat_line;
use crate::view::{ChatFilter, ChatView, ListChats, ListRuns, RunView};
use rmcp::ErrorData;
use rmcp::model::{
    CompleteRequestParams, CompletionInfo, ListResourcesResult, Reference, Resource,
    ResourceTemplate,
};

/// Most runs, and most chats, that are listed or completed: the newest. Templates reach the others.
const EACH_MAX: u32 = 100;
/// Resources on a page.
const PAGE: usize = 100;
const TITLE_CHARS_MAX: usize = 80;

/// Returns a page of resources: the newest runs with their logs, then chats.
pub(crate) async fn list(
    session: &McpSession,
    cursor: Option<&str>,
) -> Result<ListResourcesResult, ErrorData> {
    let from = match cursor.map(str::parse::<usize>) {
        None => 0,
        Some(Ok(from)) if from > 0 && from % PAGE == 0 => from,
        Some(_) => {
            return Err(ErrorData::invalid_params(
                "there is no such cursor: pass one that a list returned",
                None,
            ));
        }
    };
    let runs = runs(session).await?;
    let chats = chats(session).await?;
    let all: Vec<Resource> = runs
        .iter()
        .flat_map(of_run)
        .chain(chats.iter().map(of_chat))
        .collect();
    let more = all.len() > from.saturating_add(PAGE);
    let mut page =
        ListResourcesResult::with_all_items(all.into_iter().skip(from).take(PAGE).collect());
    page.next_cursor = more.then(|| (from + PAGE).to_string());
    Ok(page)
}

/// Returns the templates.
pub(crate) fn templates() -> Vec<ResourceTemplate> {
    let template = |(template, name, about): (&str, &str, &str)| {
        ResourceTemplate::new(template, name)
            .with_description(about)
            .with_mime_type("text/plain")
    };
    TEMPLATES.into_iter().map(template).collect()
}

/// Completes the name of a run or the number of a chat. A chat is also found by a part of its
/// title.
pub(crate) async fn complete(
    session: &McpSession,
    request: &CompleteRequestParams,
) -> Result<CompletionInfo, ErrorData> {
    let Reference::Resource(resource) = &request.r#ref else {
        return Err(ErrorData::invalid_params("there are no prompts", None));
    };
    if !TEMPLATES
        .iter()
        .any(|(template, ..)| *template == resource.uri)
    {
        return Err(ErrorData::invalid_params(
            "there is no such template: resources/templates/list names them",
            None,
        ));
    }
    let value = request.argument.value.as_str();
    let values: Vec<String> = match request.argument.name.as_str() {
        "run" => runs(session)
            .await?
            .into_iter()
            .map(|run| run.identity.name)
            .filter(|name| name.starts_with(value))
            .collect(),
        "chat" => {
            let words = value.to_lowercase();
            let is_meant = |chat: &ChatView| {
                chat.chat_id.to_string().starts_with(value)
                    || chat.title.to_lowercase().contains(&words)
            };
            chats(session)
                .await?
                .iter()
                .filter(|chat| is_meant(chat))
                .map(|chat| chat.chat_id.to_string())
                .collect()
        }
        _ => Vec::new(),
    };
    CompletionInfo::with_all_values(values).map_err(|error| ErrorData::internal_error(error, None))
}

async fn runs(session: &McpSession) -> Result<Vec<RunView>, ErrorData> {
    let list = session
        .client()
        .call(&ListRuns {
            all: true,
            limit: Some(EACH_MAX),
            before: None,
        })
        .await;
    Ok(list.map_err(|error| refused("run://", &error))?.runs)
}

async fn chats(session: &McpSession) -> Result<Vec<ChatView>, ErrorData> {
    let list = session
        .client()
        .call(&ListChats {
            status: Some(ChatFilter::All.into()),
            limit: Some(EACH_MAX),
            wait_ms: 0,
        })
        .await;
    Ok(list.map_err(|error| refused("chat://", &error))?.chats)
}

fn of_run(run: &RunView) -> [Resource; 2] {
    let name = line(&run.identity.name, TITLE_CHARS_MAX);
    let resource = |scheme: &str, about: String| {
        Resource::new(format!("{scheme}://{name}"), format!("{scheme} {name}"))
            .with_description(about)
            .with_mime_type("text/plain")
    };
    [
        resource("run", run_line(run)),
        resource("log", format!("The log of {name}")),
    ]
}

fn of_chat(chat: &ChatView) -> Resource {
    Resource::new(
        format!("chat://{}", chat.chat_id),
        format!("chat {}", chat.chat_id),
    )
    .with_title(line(&chat.title, TITLE_CHARS_MAX))
    .with_description(chat_line(chat))
    .with_mime_type("text/plain")
}
