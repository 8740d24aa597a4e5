//! `adj webhooks`: lists webhooks and their deliveries, and retries failed ones.

use crate::cli::args::WebhooksCommand;
use crate::cli::context::Context;
use crate::cli::exit::Exit;
use crate::cli::out::CommandResult;
use crate::cli::style::Style;
use crate::text;
use crate::view::{ListWebhooks, RetryWebhooks, WebhookView};

/// Lists the webhooks, or retries their deliveries.
pub(crate) async fn webhooks(what: Option<WebhooksCommand>, cx: &Context) -> CommandResult {
    match what {
        None => list(cx).await,
        Some(WebhooksCommand::Retry { url }) => retry(url, cx).await,
    }
}

async fn list(cx: &Context) -> CommandResult {
    let list = cx.hub.call(&ListWebhooks {}).await?;
    if cx.out.json {
        cx.out.print_json(&list)?;
        return Ok(Exit::Done);
    }
    for hook in &list.webhooks {
        let style = if hook.parked > 0 {
            Style::Bad
        } else {
            Style::Strong
        };
        cx.out.print_line(&format!(
            "{}  {}",
            cx.out.paint.apply(style, &text::line(&hook.place)),
            deliveries_text(hook, cx)
        ))?;
        cx.out.print_text(
            &cx.out
                .indent("  ", &format!("events: {}", hook.events.join(", "))),
        )?;
        if let Some(problem) = &hook.problem {
            cx.out.print_text(
                &cx.out
                    .indent("  ", &format!("last problem: {}", text::line(problem))),
            )?;
        }
    }
    if list.webhooks.is_empty() {
        cx.out.print_message(
            "no webhooks configured; add [[webhooks]] to the configuration file (adj config path)",
        )?;
    } else if list
        .webhooks
        .iter()
        .any(|hook| hook.parked > 0 || hook.next_try_at.is_some())
    {
        cx.out.suggest("adj webhooks retry")?;
    }
    Ok(Exit::Done)
}

fn deliveries_text(hook: &WebhookView, cx: &Context) -> String {
    let mut shown = hook.deliveries_text();
    if let Some(at) = &hook.next_try_at {
        shown.push_str(&format!(", next try {}", cx.time(at)));
    }
    shown
}

async fn retry(url: Option<String>, cx: &Context) -> CommandResult {
    let retried = cx.hub.call(&RetryWebhooks { url }).await?;
    if cx.out.json {
        cx.out.print_json(&retried)?;
    } else if retried.deliveries == 0 {
        cx.out.print_message("nothing to retry")?;
    } else {
        let count = text::count(retried.deliveries, "delivery", "deliveries");
        cx.out.print_line(&format!(
            "{} retrying {count}",
            cx.out.paint.apply(Style::Good, "✓")
        ))?;
        cx.out.suggest("adj webhooks")?;
    }
    Ok(Exit::Done)
}
