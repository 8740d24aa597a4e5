//! `logs`: pages of what an agent said.

use super::args::LogsArgs;
use super::context::Context;
use super::exit::Exit;
use super::follow::{Follow, What};
use super::out::{Ended, Stop};
use crate::text;
use crate::view::{LogPage, ReadLogs};

/// Bytes of one page.
const PAGE_BYTES: u64 = 256 * 1024;
/// The last lines are looked for in this many bytes first, and in no more than this many.
const TAIL_BYTES_FIRST: u64 = 64 * 1024;
const TAIL_BYTES_MAX: u64 = 4 * 1024 * 1024;
/// Lines that an agent gets when it does not say how many: its context is small.
const LINES_FOR_AGENTS: usize = 25;

/// Prints a run's log.
pub async fn logs(args: &LogsArgs, cx: &Context) -> Ended {
    let reader = Reader { run: &args.run, grep: args.grep.as_deref() };
    let lines = args.lines.or((cx.out.agent_mode && !args.follow && !cx.out.json).then_some(LINES_FOR_AGENTS));
    let next = match lines {
        Some(lines) => reader.tail(lines, cx).await?,
        None => reader.whole(cx).await?,
    };
    if args.follow {
        let mut follow = Follow::attach(cx, &args.run, What::Log { after: next, grep: args.grep.clone() }).await?;
        return follow.run().await;
    }
    Ok(Exit::Done)
}

struct Reader<'a> {
    run: &'a str,
    grep: Option<&'a str>,
}

impl Reader<'_> {
    async fn page(&self, after: Option<u64>, max_bytes: u64, cx: &Context) -> Result<LogPage, Stop> {
        let call = ReadLogs { run: self.run.to_owned(), after, max_bytes: Some(max_bytes), grep: self.grep.map(str::to_owned), wait_ms: 0 };
        Ok(cx.hub.call(&call).await?)
    }

    /// Prints everything there is; returns where it ended.
    async fn whole(&self, cx: &Context) -> Result<u64, Stop> {
        let mut after = 0;
        loop {
            let page = self.page(Some(after), PAGE_BYTES, cx).await?;
            print(&page, cx)?;
            if page.next <= after || page.next >= page.total {
                return Ok(page.next.max(after));
            }
            after = page.next;
        }
    }

    /// Prints the last lines; returns where they ended.
    async fn tail(&self, lines: usize, cx: &Context) -> Result<u64, Stop> {
        let mut bytes = TAIL_BYTES_FIRST;
        let mut page = self.page(None, bytes, cx).await?;
        // The first line of a part may be half a line, so there has to be one more than wanted.
        while page.from > 0 && page.text.lines().count() <= lines && bytes < TAIL_BYTES_MAX {
            bytes *= 4;
            page = self.page(None, bytes, cx).await?;
        }
        let surplus = page.text.lines().count().saturating_sub(lines);
        let is_part = surplus > 0 || page.from > 0;
        page.text = page.text.split_inclusive('\n').skip(surplus).collect();
        print(&page, cx)?;
        if is_part && cx.out.agent_mode {
            cx.out.next(&format!(
                "adj logs -n {} {name}   or   adj logs --grep TEXT {name}   for earlier output",
                lines * 10,
                name = text::line(&page.name)
            ))?;
        }
        Ok(page.next)
    }
}

/// Prints one page: people get it made safe, scripts get it as it is, in JSON.
pub fn print(page: &LogPage, cx: &Context) -> Result<(), Stop> {
    if cx.out.json {
        return cx.out.data(page);
    }
    cx.out.text(&text::block(&page.text))
}
