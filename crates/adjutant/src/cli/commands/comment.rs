//! `adj comment`: comments on lines of a run's changes.

use super::send::print_sent;
use crate::cli::args::CommentArgs;
use crate::cli::context::Context;
use crate::cli::exit::cli_codes;
use crate::cli::out::{CommandResult, Failure, fail_hint};
use crate::text;
use crate::view::{CommentOnRun, CommentView};

/// Sends comments to a run as one message.
pub async fn comment(args: &CommentArgs, cx: &Context) -> CommandResult {
    let (pairs, rest) = args.comments.as_chunks::<2>();
    if let [lone] = rest {
        return Err(fail_hint(cli_codes::USAGE, format!("{} has no text", text::line(lone)), "adj comment RUN FILE:LINE TEXT"));
    }
    let comments = pairs.iter().map(|[place, text]| read(place, text)).collect::<Result<_, _>>()?;
    let message = cx.hub.call(&CommentOnRun { run: args.run.clone(), comments }).await?;
    print_sent(&message, cx)
}

fn read(place: &str, said: &str) -> Result<CommentView, Failure> {
    let found = place.rsplit_once(':').and_then(|(path, line)| Some((path, line.parse::<u32>().ok().filter(|line| *line > 0)?)));
    let Some((path, line)) = found.filter(|(path, _)| !path.is_empty()) else {
        return Err(fail_hint(cli_codes::USAGE, format!("{} is not FILE:LINE", text::line(place)), "name a line of a file, such as src/main.rs:12"));
    };
    Ok(CommentView { path: path.to_owned(), line, text: said.to_owned() })
}
