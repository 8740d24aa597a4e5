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
/// Lines shown to an agent or a pipe's reader that asked for nothing else is the whole log; to a
/// terminal too: it is what `docker logs` does.
const TAIL_BYTES_FIRST: u64 = 64 * 1024;

/// Prints a run's log.
pub async fn logs(args: &LogsArgs, cx: &Context) -> Ended {
    let reader = Reader { run: &args.run, grep: args.grep.as_deref() };
    let next = match args.lines {
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
        while page.from > 0 && page.text.lines().count() <= lines && bytes < page.total {
            bytes = bytes.saturating_mul(4);
            page = self.page(None, bytes, cx).await?;
            if page.text.len() as u64 >= bytes.saturating_sub(4) {
                continue;
            }
            break;
        }
        let surplus = page.text.lines().count().saturating_sub(lines);
        page.text = page.text.split_inclusive('\n').skip(surplus).collect();
        print(&page, cx)?;
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
