//! `adj ui`: opens the dashboard in a browser.

use super::demo;
use crate::cli::args::UiArgs;
use crate::cli::context::Context;
use crate::cli::exit::Exit;
use crate::cli::out::CommandResult;
use crate::config::text_variable;
use crate::ops::{fresh_token, token_hash};
use crate::process::foreground;
use crate::text;
use crate::view::{DashboardView, OpenDashboard};
use serde_json::json;

/// Makes an address that opens the dashboard once, and opens it if there is a display.
pub(crate) async fn ui(args: &UiArgs, cx: &Context) -> CommandResult {
    let code = fresh_token();
    let call = OpenDashboard {
        listen: args.listen.map(|address| address.to_string()),
        sha256: token_hash(&code),
    };
    let DashboardView { url, code_valid_s } = cx.hub.call(&call).await?;
    // Browsers do not send the fragment, and the page removes it at once.
    let page = format!("{url}/#code={code}");
    if cx.out.json {
        cx.out
            .print_json(&json!({"url": url, "page": page, "code_valid_s": code_valid_s}))?;
        return Ok(Exit::Done);
    }
    let is_opened = !args.no_open && cx.out.terminal && open(&page);
    cx.out.print_line(&page)?;
    let minutes = text::count(code_valid_s / 60, "minute", "minutes");
    let what = if is_opened {
        "opened in your browser"
    } else {
        "open it in a browser"
    };
    cx.out.print_message(&format!(
        "{what}: the address works once, within {minutes}; then adj ui makes another"
    ))?;
    if let Some(hint) = demo::hint("ui", cx).await {
        cx.out.print_message(&hint)?;
    }
    Ok(Exit::Done)
}

/// Opens a page in the browser of the desktop. Returns whether there is one.
fn open(page: &str) -> bool {
    let opener = if cfg!(target_os = "macos") {
        "open"
    } else {
        "xdg-open"
    };
    let has_display = cfg!(target_os = "macos")
        || text_variable("DISPLAY").is_some()
        || text_variable("WAYLAND_DISPLAY").is_some();
    has_display
        && foreground::start_detached(opener, &[page.to_owned()])
            .inspect_err(|error| tracing::debug!(%error, opener, "the browser cannot be opened"))
            .is_ok()
}
