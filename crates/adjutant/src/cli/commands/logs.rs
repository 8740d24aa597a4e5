//! `adj logs`: a run's output.

use crate::cli::args::LogsArgs;
use crate::cli::context::Context;
use crate::cli::exit::Exit;
use crate::cli::follow::{Follow, Scope, print_page};
use crate::cli::out::{CommandResult, Failure};
use crate::text;
use crate::view::{LogPage, ReadLogs};

/// Bytes of one page.
const PAGE_BYTES: u64 = 256 * 1024;
/// Bytes searched for the last lines: at first, and at most.
const TAIL_BYTES_FIRST: u64 = 64 * 1024;
const TAIL_BYTES_MAX: u64 = 4 * 1024 * 1024;
/// Default number of lines for an agent, whose context is small.
const LINES_FOR_AGENTS: u32 = 25;

/// Prints a run's log.
pub async fn logs(args: &LogsArgs, cx: &Context) -> CommandResult {
    let reader = Reader { run: &args.run, grep: args.grep.as_deref() };
    let lines = args.lines.or((cx.out.agent_mode && !args.follow && !cx.out.json).then_some(LINES_FOR_AGENTS));
    let printed = match lines {
        Some(lines) => reader.tail(lines as usize, cx).await?,
        None => reader.whole(cx).await?,
    };
    if args.follow {
        let what = Scope::Log { after: printed.next, grep: args.grep.clone() };
        let mut follow = Follow::attach(cx, &args.run, what, printed.is_line_open).await?;
        return follow.run().await;
    }
    if printed.is_line_open {
        // A shell prompt or a warning that follows is not part of the output.
        cx.out.print_line("")?;
    }
    Ok(Exit::Done)
}

/// What was printed of a log.
#[derive(Debug, Default)]
struct Printed {
    /// The position of the next page.
    next: u64,
    /// The last line is not complete.
    is_line_open: bool,
}

struct Reader<'a> {
    run: &'a str,
    grep: Option<&'a str>,
}

impl Reader<'_> {
    async fn page(&self, after: Option<u64>, max_bytes: u64, cx: &Context) -> Result<LogPage, Failure> {
        let call = ReadLogs { run: self.run.to_owned(), after, max_bytes: Some(max_bytes), grep: self.grep.map(str::to_owned), wait_ms: 0 };
        Ok(cx.hub.call(&call).await?)
    }

    /// Prints the whole log.
    async fn whole(&self, cx: &Context) -> Result<Printed, Failure> {
        let mut printed = Printed::default();
        loop {
            let page = self.page(Some(printed.next), PAGE_BYTES, cx).await?;
            print_page(&page, cx)?;
            if !page.text.is_empty() {
                printed.is_line_open = leaves_line_open(&page, cx);
            }
            let is_last = page.next <= printed.next || page.next >= page.total;
            printed.next = page.next.max(printed.next);
            if is_last {
                return Ok(printed);
            }
        }
    }

    /// Prints the last lines.
    async fn tail(&self, lines: usize, cx: &Context) -> Result<Printed, Failure> {
        let mut bytes = TAIL_BYTES_FIRST;
        let mut page = self.page(None, bytes, cx).await?;
        // The first line of a part can be cut, so one more than wanted is needed.
        while page.from > 0 && page.text.lines().count() <= lines && bytes < TAIL_BYTES_MAX {
            bytes *= 4;
            page = self.page(None, bytes, cx).await?;
        }
        let surplus = page.text.lines().count().saturating_sub(lines);
        let is_part = surplus > 0 || page.from > 0;
        page.text = page.text.split_inclusive('\n').skip(surplus).collect();
        print_page(&page, cx)?;
        let mut printed = Printed { next: page.next, is_line_open: leaves_line_open(&page, cx) };
        if is_part && cx.out.agent_mode {
            if std::mem::take(&mut printed.is_line_open) {
                cx.out.print_line("")?;
            }
            cx.out.suggest(&format!(
                "adj logs -n {} {name}   or   adj logs --grep TEXT {name}   for earlier output",
                lines * 10,
                name = text::line(&page.name)
            ))?;
        }
        Ok(printed)
    }
}

fn leaves_line_open(page: &LogPage, cx: &Context) -> bool {
    !cx.out.json && !page.text.is_empty() && !page.text.ends_with('\n')
}
