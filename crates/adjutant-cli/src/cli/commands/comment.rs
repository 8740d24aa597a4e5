//! `adj comment`: comments on lines of a run's changes.

use super::send::print_sent;
use crate::cli::args::CommentArgs;
use crate::cli::context::Context;
use crate::cli::exit::{Exit, cli_codes};
use crate::cli::out::{CommandResult, Failure, fail_hint};
use crate::cli::style::Style;
use crate::config::dispatch_env;
use crate::text;
use crate::view::{CommentOnRun, CommentView};

/// Sends comments to a run as one message.
pub(crate) async fn comment(args: &CommentArgs, cx: &Context) -> CommandResult {
    let (pairs, rest) = args.comments.as_chunks::<2>();
    if let [lone] = rest {
        return Err(fail_hint(
            cli_codes::USAGE,
            format!("{} has no text", text::line(lone)),
            "adj comment RUN FILE:LINE TEXT",
        ));
    }
    let comments = pairs
        .iter()
        .map(|[place, text]| read(place, text))
        .collect::<Result<_, _>>()?;
    let commented = cx
        .hub
        .call(&CommentOnRun {
            run: args.run.clone(),
            comments,
            env: dispatch_env(),
        })
        .await?;
    if cx.out.json {
        cx.out.print_json(&commented)?;
        return Ok(Exit::Done);
    }
    let (done, name) = (
        cx.out.paint.apply(Style::Good, "✓"),
        text::line(&commented.message.run_name),
    );
    match &commented.follow_up {
        Some(follow_up) => {
            let follow_up = text::line(follow_up);
            cx.out.print_line(&format!("{done} {name} has finished: {follow_up} was started in its directory to answer the comments"))?;
            cx.out
                .suggest(&format!("adj wait {follow_up} && adj diff {follow_up}"))?;
        }
        None if commented.is_resumed => {
            cx.out
                .print_line(&format!("{done} resumed {name} with the comments"))?;
            cx.out.suggest(&format!("adj logs -f {name}"))?;
        }
        None => return print_sent(&commented.message, cx),
    }
    Ok(Exit::Done)
}

fn read(place: &str, text: &str) -> Result<CommentView, Failure> {
    let found = place
        .rsplit_once(':')
        .and_then(|(path, line)| Some((path, line.parse::<u32>().ok().filter(|line| *line > 0)?)));
    let Some((path, line)) = found.filter(|(path, _)| !path.is_empty()) else {
        return Err(fail_hint(
            cli_codes::USAGE,
            format!("{} is not FILE:LINE", text::line(place)),
            "name a line of a file, such as src/main.rs:12",
        ));
    };
    Ok(CommentView {
        path: path.to_owned(),
        line,
        text: text.to_owned(),
    })
}
