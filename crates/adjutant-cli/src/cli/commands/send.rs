//! `adj send`: a message to a live run.

use crate::cli::args::SendArgs;
use crate::cli::context::{Context, words_argument};
use crate::cli::exit::Exit;
use crate::cli::out::CommandResult;
use crate::cli::style::Style;
use crate::text;
use crate::view::{Delivery, MessageView, SendToRun};

/// Sends a message to a live run.
pub(crate) async fn send(args: &SendArgs, cx: &Context) -> CommandResult {
    let text = words_argument(std::iter::once(&args.text).chain(&args.more), "the message")?
        .unwrap_or_default();
    let message = cx
        .hub
        .call(&SendToRun {
            run: args.run.clone(),
            text,
        })
        .await?;
    print_sent(&message, cx)
}

/// Prints how a message is delivered.
pub(crate) fn print_sent(message: &MessageView, cx: &Context) -> CommandResult {
    if cx.out.json {
        cx.out.print_json(message)?;
        return Ok(Exit::Done);
    }
    let how = match message.delivery.known() {
        Some(Delivery::Live) => "delivered to the running agent",
        _ => "delivered at its next tool call or when it reads its input",
    };
    cx.out.print_line(&format!(
        "{} sent to {}, {how}",
        cx.out.paint.apply(Style::Good, "✓"),
        text::line(&message.run_name)
    ))?;
    Ok(Exit::Done)
}
