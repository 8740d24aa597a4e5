//! `adj grants`: lists and revokes grants.

use crate::cli::args::{GrantsArgs, GrantsCommand};
use crate::cli::context::Context;
use crate::cli::details::person;
use crate::cli::exit::Exit;
use crate::cli::out::CommandResult;
use crate::cli::style::Style;
use crate::cli::table::{Cell, Column, painted, plain, render};
use crate::text;
use crate::view::{GrantStateKind, GrantView, ListGrants, RevokeGrant};

/// Lists grants, or revokes one.
pub(crate) async fn grants(args: &GrantsArgs, cx: &Context) -> CommandResult {
    match &args.what {
        None => list(args.all, cx).await,
        Some(GrantsCommand::Revoke { grant }) => revoke(grant, cx).await,
    }
}

async fn list(all: bool, cx: &Context) -> CommandResult {
    let list = cx.hub.call(&ListGrants { all }).await?;
    if cx.out.json {
        cx.out.print_json(&list)?;
        return Ok(Exit::Done);
    }
    if list.grants.is_empty() {
        cx.out
            .print_message("no grants; adj approve REQUEST --same gives one")?;
        return Ok(Exit::Done);
    }
    let row = |grant: &GrantView| -> Vec<Cell> {
        let uses = grant.uses_max.map_or_else(
            || grant.uses.to_string(),
            |max| format!("{} of {max}", grant.uses),
        );
        let is_active = grant.state == GrantStateKind::Active;
        vec![
            painted(&grant.number, Style::Strong),
            painted(
                grant.state.as_str(),
                if is_active { Style::Good } else { Style::Dim },
            ),
            plain(&grant.root_name),
            plain(
                &grant
                    .expires_at
                    .as_ref()
                    .map_or_else(|| "end of the tree".to_owned(), |at| at.clone()),
            ),
            plain(&uses),
            plain(&text::line(person(&grant.granted_by))),
            plain(&text::line(&grant.what)),
        ]
    };
    let rows: Vec<Vec<Cell>> = list.grants.iter().map(row).collect();
    let columns = [
        Column::always("GRANT"),
        Column::optional("STATE", 2),
        Column::always("TREE"),
        Column::always("UNTIL"),
        Column::always("USES"),
        Column::optional("BY", 1),
        Column::always("WHAT"),
    ];
    cx.out
        .print_text(&render(&columns, &rows, cx.out.columns, cx.out.paint))?;
    Ok(Exit::Done)
}

async fn revoke(grant: &str, cx: &Context) -> CommandResult {
    let revoked = cx
        .hub
        .call(&RevokeGrant {
            grant: grant.to_owned(),
        })
        .await?;
    if cx.out.json {
        cx.out.print_json(&revoked)?;
    } else {
        let times = text::count(revoked.uses, "request", "requests");
        cx.out.print_line(&format!(
            "{} revoked {}, which answered {times}",
            cx.out.paint.apply(Style::Good, "✓"),
            text::line(&revoked.number)
        ))?;
    }
    Ok(Exit::Done)
}
