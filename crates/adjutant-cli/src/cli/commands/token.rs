//! `adj token`: makes, lists and revokes tokens for callers over HTTP.

use crate::cli::args::TokenCommand;
use crate::cli::context::Context;
use crate::cli::exit::Exit;
use crate::cli::out::CommandResult;
use crate::cli::style::Style;
use crate::cli::table::{Cell, Column, painted, plain, render};
use crate::ops::{fresh_token, token_hash};
use crate::text;
use crate::view::{CreateToken, GetHub, HubView, ListTokens, RevokeToken, TokenView};
use adjutant_core::token::TokenRole;
use serde_json::json;

/// Makes, lists or revokes tokens.
pub(crate) async fn token(what: &TokenCommand, cx: &Context) -> CommandResult {
    match what {
        TokenCommand::New { name, role, client } => {
            create(name, *role, client.as_deref(), cx).await
        }
        TokenCommand::List { all } => list(*all, cx).await,
        TokenCommand::Revoke { name } => revoke(name, cx).await,
    }
}

async fn create(name: &str, role: TokenRole, client: Option<&str>, cx: &Context) -> CommandResult {
    let client = client
        .or_else(|| (role == TokenRole::Client).then_some(name))
        .map(project_or_name);
    let token = fresh_token();
    let call = CreateToken {
        name: name.to_owned(),
        role: role.into(),
        client,
        sha256: token_hash(&token),
    };
    let made = cx.hub.call(&call).await?;
    let HubView {
        url,
        remote_url,
        fingerprint,
        leader,
        ..
    } = cx.hub.call(&GetHub {}).await?;
    let is_standby = leader.is_some();
    // A standby hub does not listen.
    let (url, fingerprint) = match leader {
        Some(leader) => (leader.url, leader.fingerprint),
        None => (
            remote_url.filter(|_| role == TokenRole::Runner).or(url),
            fingerprint,
        ),
    };
    if cx.out.json {
        let mut view = json!(made);
        view["token"] = json!(token);
        view["url"] = json!(url);
        view["fingerprint"] = json!(fingerprint);
        cx.out.print_json(&view)?;
        return Ok(Exit::Done);
    }
    cx.out.print_line(&token)?;
    let whose = match (&made.client, role) {
        (_, TokenRole::Runner) => {
            "starts runs with adj runner on another machine, and nothing else".to_owned()
        }
        (Some(client), TokenRole::ReadOnly) => format!("reads what {} may see", text::line(client)),
        (Some(client), _) => format!("acts as {}", text::line(client)),
        (None, TokenRole::ReadOnly) => "reads everything".to_owned(),
        (None, _) => "may do everything that you may do".to_owned(),
    };
    cx.out.print_message(&format!(
        "token {} {whose}; it is not shown again",
        text::line(name)
    ))?;
    match url {
        Some(url) => {
            if role == TokenRole::Runner {
                let pin = fingerprint.map(|fingerprint| format!(" --fingerprint {fingerprint}")).unwrap_or_default();
                cx.out.print_message(&format!("there: adj runner --join {url}{pin} --token-file FILE --pool POOL"))?;
                if is_standby {
                    cx.out.print_message("this hub is on standby: add --join with its address, so that the runner finds it when it leads")?;
                }
                return Ok(Exit::Done);
            }
            cx.out.print_message("send it as the header Authorization: Bearer TOKEN")?;
            cx.out.print_message(&format!("API: {url}/api/v1/NAME"))?;
            if role == TokenRole::Client {
                cx.out.print_message(&format!("MCP (Streamable HTTP): {url}/mcp, for instance"))?;
                let header = "--header 'Authorization: Bearer ${ADJ_TOKEN}'";
                cx.out.print_message(&format!("  claude mcp add --transport http adjutant {url}/mcp {header}"))?;
                cx.out.print_message("Claude Code then reads the token from the variable ADJ_TOKEN")?;
            }
        }
        None if is_standby => cx.out.print_message("the leader of the store does not listen: set listen in its configuration")?,
        None => cx.out.print_message("the hub does not listen yet: adj serve --listen 127.0.0.1:7317, or listen in the configuration file")?,
    }
    Ok(Exit::Done)
}

/// Returns the client of a directory, as `adj mcp` has it, or a name as it is.
fn project_or_name(given: &str) -> String {
    let is_path = given.starts_with(['/', '.']);
    let directory = is_path
        .then(|| std::path::Path::new(given).canonicalize().ok())
        .flatten();
    directory
        .and_then(|directory| directory.to_str().map(str::to_owned))
        .unwrap_or_else(|| given.to_owned())
}

async fn list(all: bool, cx: &Context) -> CommandResult {
    let list = cx.hub.call(&ListTokens { all }).await?;
    if cx.out.json {
        cx.out.print_json(&list)?;
        return Ok(Exit::Done);
    }
    if list.tokens.is_empty() {
        cx.out
            .print_message("no tokens; adj token new NAME makes one")?;
        return Ok(Exit::Done);
    }
    let at = |time: &Option<String>| {
        time.as_ref()
            .map_or_else(|| "–".to_owned(), |time| cx.time(time))
    };
    let row = |token: &TokenView| -> Vec<Cell> {
        vec![
            painted(&text::line(&token.name), Style::Strong),
            plain(token.role.as_str()),
            plain(
                &token
                    .client
                    .as_deref()
                    .map_or_else(|| "–".to_owned(), text::line),
            ),
            plain(&cx.time(&token.created_at)),
            plain(&at(&token.used_at)),
            plain(&at(&token.revoked_at)),
        ]
    };
    let rows: Vec<Vec<Cell>> = list.tokens.iter().map(row).collect();
    let columns = [
        Column::always("TOKEN"),
        Column::always("ROLE"),
        Column::always("CLIENT"),
        Column::optional("MADE", 1),
        Column::always("USED"),
        Column::optional("REVOKED", 2),
    ];
    cx.out
        .print_text(&render(&columns, &rows, cx.out.columns, cx.out.paint))?;
    Ok(Exit::Done)
}

async fn revoke(name: &str, cx: &Context) -> CommandResult {
    let revoked = cx
        .hub
        .call(&RevokeToken {
            name: name.to_owned(),
        })
        .await?;
    if cx.out.json {
        cx.out.print_json(&revoked)?;
    } else {
        let mark = cx.out.paint.apply(Style::Good, "✓");
        cx.out.print_line(&format!(
            "{mark} revoked {}; its connections are closed",
            text::line(&revoked.name)
        ))?;
    }
    Ok(Exit::Done)
}
