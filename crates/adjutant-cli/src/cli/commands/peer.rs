//! `adj peer`: other hubs. `adj chat share` and `adj chat follow`: chats shared with them and
//! followed from them.

use crate::cli::args::{ChatFollowArgs, ChatShareArgs, PeerCommand};
use crate::cli::context::{Context, read_text};
use crate::cli::exit::{Exit, cli_codes};
use crate::cli::out::{CommandResult, Failure, fail, fail_hint};
use crate::cli::secret::read_hidden;
use crate::cli::style::Style;
use crate::cli::table::{Cell, Column, painted, plain, render};
use crate::ops::{fresh_token, token_hash};
use crate::text;
use crate::view::{
    AddPeer, BlockPeer, FollowChat, GetHub, GetPeer, InvitePeer, ListPeers, PeerDetails, PeerView,
    RemovePeer, ShareChat, UnfollowChat, codes,
};
use serde_json::json;
use std::io::IsTerminal;
use std::path::Path;

/// Runs `adj peer …`.
pub(crate) async fn peer(what: PeerCommand, cx: &Context) -> CommandResult {
    match what {
        PeerCommand::Invite { name } => invite(name, cx).await,
        PeerCommand::Add {
            name,
            url,
            token_file,
            fingerprint,
            plain,
        } => {
            let token = read_token(&token_file, &name, cx)?;
            let fingerprint = (!fingerprint.is_empty()).then(|| fingerprint.join(","));
            let added = cx
                .hub
                .call(&AddPeer {
                    name,
                    url,
                    token,
                    fingerprint,
                    plain,
                })
                .await?;
            add(&added, cx).await
        }
        PeerCommand::List => list(cx).await,
        PeerCommand::Show { name } => show(&cx.hub.call(&GetPeer { name }).await?, cx),
        PeerCommand::Block { name } => done(
            &cx.hub
                .call(&BlockPeer {
                    name,
                    blocked: true,
                })
                .await?,
            "blocked",
            cx,
        ),
        PeerCommand::Unblock { name } => done(
            &cx.hub
                .call(&BlockPeer {
                    name,
                    blocked: false,
                })
                .await?,
            "unblocked",
            cx,
        ),
        PeerCommand::Remove { name } => {
            done(&cx.hub.call(&RemovePeer { name }).await?, "removed", cx)
        }
    }
}

fn read_token(file: &Path, peer: &str, cx: &Context) -> Result<String, Failure> {
    let text = if file != Path::new("-") {
        let opened = std::fs::File::open(file)
            .map_err(|error| fail(cli_codes::IO, format!("{}: {error}", file.display())))?;
        read_text(opened, "the token", &file.display().to_string())?
    } else if !std::io::stdin().is_terminal() {
        read_text(std::io::stdin().lock(), "the token", "standard input")?
    } else if cx.out.interactive {
        read_hidden(&format!(
            "token from adj peer invite on {} (not shown): ",
            text::line(peer)
        ))
        .map_err(|error| {
            fail(
                cli_codes::IO,
                format!("cannot read the token from the terminal: {error}"),
            )
        })?
    } else {
        String::new()
    };
    let token = text.trim();
    if token.is_empty() {
        return Err(fail_hint(
            codes::INVALID,
            "the token is missing",
            "use --token-file FILE, or pass it on standard input",
        ));
    }
    Ok(token.to_owned())
}

async fn invite(name: String, cx: &Context) -> CommandResult {
    let token = fresh_token();
    let invited = cx
        .hub
        .call(&InvitePeer {
            name,
            sha256: token_hash(&token),
        })
        .await?;
    let hub = cx.hub.call(&GetHub {}).await?;
    let own_url = hub.remote_url.or(hub.url);
    if cx.out.json {
        let mut view = json!(invited);
        view["token"] = json!(token);
        view["own_url"] = json!(own_url);
        view["own_fingerprint"] = json!(hub.fingerprint);
        cx.out.print_json(&view)?;
        return Ok(Exit::Done);
    }
    cx.out.print_line(&token)?;
    cx.out.print_message(&format!(
        "{} may connect with this token, which is not shown again; it sees only chats that you share",
        text::line(&invited.name)
    ))?;
    match &own_url {
        Some(url) => {
            let pin = hub.fingerprint.map(|fingerprint| format!(" --fingerprint {fingerprint}")).unwrap_or_default();
            cx.out.print_message("run on its machine, with NAME as its name for this hub (asks for the token):")?;
            cx.out.print_message(&format!("  adj peer add NAME {}{pin}", text::line(url)))?;
        }
        None => cx.out.print_message("the hub does not listen yet: adj serve --listen 127.0.0.1:7317, or listen in the configuration file")?,
    }
    cx.out.suggest(&format!(
        "adj chat share CHAT {}",
        text::line(&invited.name)
    ))?;
    Ok(Exit::Done)
}

async fn add(added: &PeerView, cx: &Context) -> CommandResult {
    let details = cx
        .hub
        .call(&GetPeer {
            name: added.name.clone(),
        })
        .await?;
    if cx.out.json {
        cx.out.print_json(&details)?;
        return Ok(Exit::Done);
    }
    if let Some(problem) = &details.problem {
        cx.out.print_message(&format!(
            "added {}, but a call of it fails: {}",
            text::line(&added.name),
            text::line(problem)
        ))?;
        cx.out
            .print_message("adj peer add again changes its address, token or certificate")?;
        return Ok(Exit::Done);
    }
    show(&details, cx)
}

async fn list(cx: &Context) -> CommandResult {
    let list = cx.hub.call(&ListPeers {}).await?;
    if cx.out.json {
        cx.out.print_json(&list)?;
        return Ok(Exit::Done);
    }
    if list.peers.is_empty() {
        cx.out.print_message("no other hubs; adj peer invite NAME lets one connect, adj peer add NAME URL connects to one")?;
        return Ok(Exit::Done);
    }
    let row = |peer: &PeerView| -> Vec<Cell> {
        vec![
            painted(&text::line(&peer.name), Style::Strong),
            plain(if peer.blocked { "blocked" } else { "" }),
            plain(if peer.may_connect { "yes" } else { "no" }),
            plain(
                &peer
                    .url
                    .as_deref()
                    .map_or_else(|| "–".to_owned(), text::line),
            ),
            plain(&peer.shared.to_string()),
            plain(&peer.followed.to_string()),
        ]
    };
    let rows: Vec<Vec<Cell>> = list.peers.iter().map(row).collect();
    let columns = [
        Column::always("PEER"),
        Column::always("STATE"),
        Column::optional("MAY CONNECT", 1),
        Column::always("ADDRESS"),
        Column::optional("SHARED", 2),
        Column::optional("FOLLOWED", 3),
    ];
    cx.out
        .print_text(&render(&columns, &rows, cx.out.columns, cx.out.paint))?;
    Ok(Exit::Done)
}

fn show(details: &PeerDetails, cx: &Context) -> CommandResult {
    if cx.out.json {
        cx.out.print_json(details)?;
        return Ok(Exit::Done);
    }
    let PeerDetails {
        peer,
        chats,
        followed,
        problem,
    } = details;
    let state = if peer.blocked { ", blocked" } else { "" };
    let address = peer
        .url
        .as_deref()
        .map_or_else(|| "connects to this hub only".to_owned(), text::line);
    cx.out.print_line(&format!(
        "{}  {address}{state}",
        cx.out.paint.apply(Style::Strong, &text::line(&peer.name))
    ))?;
    if let Some(problem) = problem {
        cx.out.print_text(&cx.out.indent(
            "  ",
            &format!("the last call failed: {}", text::line(problem)),
        ))?;
    }
    for chat in chats {
        let read_only = if chat.read_only { " (read only)" } else { "" };
        let copy = followed
            .iter()
            .find(|copy| copy.chat == chat.chat)
            .map(|copy| format!(", followed as chat {}", copy.chat_id))
            .unwrap_or_default();
        let line = format!(
            "shares {}  {}{read_only}, {}{copy}",
            chat.chat,
            text::line(&chat.title),
            text::count(chat.messages.unsigned_abs(), "message", "messages")
        );
        cx.out.print_text(&cx.out.indent("  ", &line))?;
    }
    for copy in followed {
        let problem = copy
            .problem
            .as_deref()
            .map(|problem| format!(": {}", text::line(problem)))
            .unwrap_or_default();
        let line = format!(
            "chat {} follows {}, {}{problem}",
            copy.chat_id,
            copy.chat,
            text::count(copy.waiting, "post waits", "posts wait")
        );
        cx.out.print_text(&cx.out.indent("  ", &line))?;
    }
    if let Some(chat) = chats
        .iter()
        .find(|chat| followed.iter().all(|copy| copy.chat != chat.chat))
    {
        cx.out.suggest(&format!(
            "adj chat follow {} {}",
            text::line(&peer.name),
            chat.chat
        ))?;
    }
    Ok(Exit::Done)
}

fn done(peer: &PeerView, what: &str, cx: &Context) -> CommandResult {
    if cx.out.json {
        cx.out.print_json(peer)?;
    } else {
        cx.out.print_line(&format!(
            "{} {what} {}",
            cx.out.paint.apply(Style::Good, "✓"),
            text::line(&peer.name)
        ))?;
    }
    Ok(Exit::Done)
}

/// Shares a chat with another hub, or ends that.
pub(crate) async fn share(args: ChatShareArgs, shared: bool, cx: &Context) -> CommandResult {
    let ChatShareArgs {
        chat,
        peer,
        read_only,
    } = args;
    let shares = cx
        .hub
        .call(&ShareChat {
            chat_id: chat,
            peer,
            read_only,
            shared,
        })
        .await?;
    if cx.out.json {
        cx.out.print_json(&shares)?;
        return Ok(Exit::Done);
    }
    let names = shares.shares.iter().map(|share| {
        format!(
            "{}{}",
            text::line(&share.peer),
            if share.read_only { " (read only)" } else { "" }
        )
    });
    let names = names.collect::<Vec<_>>().join(", ");
    let with = if names.is_empty() {
        "no other hub".to_owned()
    } else {
        names
    };
    cx.out.print_line(&format!(
        "{} chat {} is shared with {with}",
        cx.out.paint.apply(Style::Good, "✓"),
        shares.chat_id
    ))?;
    Ok(Exit::Done)
}

/// Starts a copy of a chat of another hub.
pub(crate) async fn follow(args: ChatFollowArgs, cx: &Context) -> CommandResult {
    let ChatFollowArgs { peer, chat, client } = args;
    let chat = cx.hub.call(&FollowChat { peer, chat, client }).await?;
    if cx.out.json {
        cx.out.print_json(&chat)?;
        return Ok(Exit::Done);
    }
    cx.out.print_line(&chat.chat_id.to_string())?;
    cx.out.suggest(&format!(
        "adj chat show {id}   or   adj chat post {id} \"…\"",
        id = chat.chat_id
    ))?;
    Ok(Exit::Done)
}

/// Ends a copy of a chat of another hub.
pub(crate) async fn unfollow(chat: i64, cx: &Context) -> CommandResult {
    let chat = cx.hub.call(&UnfollowChat { chat_id: chat }).await?;
    if cx.out.json {
        cx.out.print_json(&chat)?;
    } else {
        cx.out.print_line(&format!(
            "{} stopped following; chat {} keeps its messages",
            cx.out.paint.apply(Style::Good, "✓"),
            chat.chat_id
        ))?;
    }
    Ok(Exit::Done)
}
