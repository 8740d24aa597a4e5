//! `adj logs`: the output of runs.

use crate::cli::args::LogsArgs;
use crate::cli::context::Context;
use crate::cli::exit::{Exit, cli_codes};
use crate::cli::follow::{Follow, Scope};
use crate::cli::log_text::{PagePrinter, TimeColumn};
use crate::cli::out::{CommandResult, Failure, fail};
use crate::cli::style::Style;
use crate::text;
use crate::view::{ErrorView, GetRun, LogPage, ReadLogs, RunView};
use futures::stream::{FuturesUnordered, StreamExt};
use tokio::signal::unix::{SignalKind, signal};

/// Bytes of one page.
const PAGE_BYTES: u64 = 256 * 1024;
/// Bytes searched for the last lines: at first, and at most.
const TAIL_BYTES_FIRST: u64 = 64 * 1024;
const TAIL_BYTES_MAX: u64 = 4 * 1024 * 1024;
/// Default number of lines for an agent, whose context is small.
const LINES_FOR_AGENTS: u32 = 25;
/// Maximum number of runs whose output is printed at once.
const RUNS_MAX: usize = 50;
/// Longest line that is held back until it is complete, in bytes.
const LINE_BYTES_MAX: usize = 64 * 1024;
/// How long one call waits for output, in milliseconds; the next call follows at once.
const POLL_WAIT_MS: u64 = 30_000;
/// Styles that distinguish runs, in turn. The name is always there too.
const STYLES: [Style; 4] = [Style::Attention, Style::Good, Style::Bad, Style::Strong];

/// Prints the logs of runs.
pub(crate) async fn logs(args: &LogsArgs, cx: &Context) -> CommandResult {
    let lines = args
        .lines
        .or((cx.out.agent_mode && !args.follow && !cx.out.json).then_some(LINES_FOR_AGENTS))
        .map(|lines| lines as usize);
    let mut runs: Vec<RunView> = Vec::new();
    if args.runs.len() > 1 {
        for run in &args.runs {
            let run = cx
                .hub
                .call(&GetRun {
                    run: run.clone(),
                    ..GetRun::default()
                })
                .await?;
            if runs
                .iter()
                .all(|other| other.identity.run_id != run.identity.run_id)
            {
                runs.push(run);
            }
        }
    }
    if runs.len() > RUNS_MAX {
        return Err(fail(
            cli_codes::USAGE,
            format!("the limit for runs at once is {RUNS_MAX}"),
        ));
    }
    if runs.len() > 1 {
        return Several::new(&runs, args, cx).print(lines).await;
    }
    let Some(run) = args.runs.first() else {
        return Err(fail(cli_codes::USAGE, "no run given"));
    };
    one(run, lines, args, cx).await
}

/// Prints a run's log.
async fn one(run: &str, lines: Option<usize>, args: &LogsArgs, cx: &Context) -> CommandResult {
    let reader = Reader::new(run, args);
    let mut printed = Printed {
        next: 0,
        is_line_open: false,
        pages: pages(args),
    };
    match lines {
        Some(lines) => {
            let tail = reader.tail(lines, cx).await?;
            printed.print(&tail.page, cx)?;
            if tail.is_part && cx.out.agent_mode {
                if std::mem::take(&mut printed.is_line_open) {
                    cx.out.print_line("")?;
                }
                let (more, name) = (lines * 10, text::line(&tail.page.name));
                cx.out.suggest(&format!("adj logs -n {more} {name}   or   adj logs --grep TEXT {name}   for earlier output"))?;
            }
        }
        None => while reader.next(&mut printed, cx).await? {},
    }
    if args.follow {
        let what = Scope::Log {
            after: printed.next,
            grep: args.grep.clone(),
            raw: args.raw,
            pages: printed.pages,
        };
        let mut follow = Follow::attach(cx, run, what, printed.is_line_open).await?;
        return follow.run().await;
    }
    if printed.is_line_open {
        // A shell prompt or a warning that follows is not part of the output.
        cx.out.print_line("")?;
    }
    if args.raw && printed.next == 0 {
        cx.out
            .print_message("no raw output: many agents write only text")?;
        cx.out.suggest(&format!("adj logs {}", text::line(run)))?;
    }
    Ok(Exit::Done)
}

/// What was printed of a log.
#[derive(Debug)]
struct Printed {
    /// The position of the next page.
    next: u64,
    /// The last line is not complete.
    is_line_open: bool,
    pages: PagePrinter,
}

impl Printed {
    fn print(&mut self, page: &LogPage, cx: &Context) -> Result<(), Failure> {
        self.pages.report_missing(page, cx)?;
        self.pages.print(page, self.is_line_open, cx)?;
        if !page.text.is_empty() {
            self.is_line_open = !cx.out.json && !page.text.ends_with('\n');
        }
        self.next = page.next.max(self.next);
        Ok(())
    }
}

/// The last lines of a log.
struct Tail {
    page: LogPage,
    /// There is earlier output.
    is_part: bool,
}

struct Reader {
    call: ReadLogs,
}

impl Reader {
    fn new(run: &str, args: &LogsArgs) -> Self {
        Self {
            call: ReadLogs {
                since: args.since.map(|since| format!("{since:.3}")),
                ..poll_call(run, args)
            },
        }
    }

    async fn page(
        &self,
        after: Option<u64>,
        max_bytes: u64,
        cx: &Context,
    ) -> Result<LogPage, Failure> {
        Ok(cx
            .hub
            .call(&ReadLogs {
                after,
                max_bytes: Some(max_bytes),
                ..self.call.clone()
            })
            .await?)
    }

    /// Prints the next page. Returns whether there is another one.
    async fn next(&self, printed: &mut Printed, cx: &Context) -> Result<bool, Failure> {
        let page = self.page(Some(printed.next), PAGE_BYTES, cx).await?;
        let is_last = page.next <= printed.next || page.next >= page.total;
        printed.print(&page, cx)?;
        Ok(!is_last)
    }

    /// Reads the last lines.
    async fn tail(&self, lines: usize, cx: &Context) -> Result<Tail, Failure> {
        let mut bytes = TAIL_BYTES_FIRST;
        let mut page = self.page(None, bytes, cx).await?;
        // The first line of a part can be cut, so one more than wanted is needed.
        while page.from > 0 && page.text.lines().count() <= lines && bytes < TAIL_BYTES_MAX {
            bytes *= 4;
            page = self.page(None, bytes, cx).await?;
        }
        let surplus = page.text.lines().count().saturating_sub(lines);
        let is_part = surplus > 0 || (page.from > 0 && self.call.since.is_none());
        page.text = page.text.split_inclusive('\n').skip(surplus).collect();
        if let Some(marks) = &mut page.times {
            let surplus = surplus as u64;
            let passed = marks.partition_point(|mark| mark.line <= surplus);
            marks.drain(..passed.saturating_sub(1));
            marks
                .iter_mut()
                .for_each(|mark| mark.line = mark.line.saturating_sub(surplus));
        }
        Ok(Tail { page, is_part })
    }
}

fn pages(args: &LogsArgs) -> PagePrinter {
    PagePrinter::new(args.timestamps, args.since.is_some())
}

/// Returns the call that reads a log as wanted, from any position.
fn poll_call(run: &str, args: &LogsArgs) -> ReadLogs {
    ReadLogs {
        run: run.to_owned(),
        grep: args.grep.clone(),
        raw: args.raw,
        times: pages(args).needs_times(),
        ..ReadLogs::default()
    }
}

/// The logs of several runs, each line after the name of its run.
struct Several<'a> {
    sources: Vec<Source>,
    pages: PagePrinter,
    args: &'a LogsArgs,
    cx: &'a Context,
}

/// The log of one of several runs.
struct Source {
    run_id: String,
    /// The name of the run, padded and coloured.
    prefix: String,
    /// The position of the next page.
    next: u64,
    /// The beginning of an incomplete line.
    line: String,
    /// The time before that line, if wanted.
    time: String,
}

impl<'a> Several<'a> {
    fn new(runs: &[RunView], args: &'a LogsArgs, cx: &'a Context) -> Self {
        let width = runs
            .iter()
            .map(|run| text::width(&text::line(&run.identity.name)))
            .max()
            .unwrap_or(0);
        let source = |(n, run): (usize, &RunView)| {
            let name = text::line(&run.identity.name);
            let padding = " ".repeat(width.saturating_sub(text::width(&name)));
            let prefix = format!(
                "{}{padding} | ",
                cx.out.paint.apply(STYLES[n % STYLES.len()], &name)
            );
            Source {
                run_id: run.identity.run_id.clone(),
                prefix,
                next: 0,
                line: String::new(),
                time: String::new(),
            }
        };
        Self {
            sources: runs.iter().enumerate().map(source).collect(),
            pages: pages(args),
            args,
            cx,
        }
    }

    /// Prints one log after the other. Then follows all of them, if wanted, until all are complete.
    async fn print(&mut self, lines: Option<usize>) -> CommandResult {
        let mut interrupts = signal(SignalKind::interrupt())
            .map_err(|e| fail(cli_codes::IO, format!("cannot take Ctrl-C: {e}")))?;
        tokio::select! {
            biased;
            _ = interrupts.recv() => Err(Failure::Reported(Exit::Interrupted)),
            printed = self.print_and_follow(lines) => printed.map(|()| Exit::Done),
        }
    }

    async fn print_and_follow(&mut self, lines: Option<usize>) -> Result<(), Failure> {
        let mut open = Vec::new();
        for n in 0..self.sources.len() {
            if !self.print_existing(n, lines).await? {
                open.push(n);
            }
        }
        if !self.args.follow {
            return (0..self.sources.len()).try_for_each(|n| self.end_line(n));
        }
        let mut polls: FuturesUnordered<_> = open.into_iter().map(|n| self.poll(n)).collect();
        while let Some((n, page)) = polls.next().await {
            let page = page?;
            self.show(n, &page)?;
            if page.ended {
                self.end_line(n)?;
            } else {
                polls.push(self.poll(n));
            }
        }
        Ok(())
    }

    /// Prints the output so far, or its last lines. Returns whether the log is complete.
    async fn print_existing(&mut self, n: usize, lines: Option<usize>) -> Result<bool, Failure> {
        let run = self.sources[n].run_id.clone();
        let reader = Reader::new(&run, self.args);
        if let Some(lines) = lines {
            let tail = reader.tail(lines, self.cx).await?;
            self.show(n, &tail.page)?;
            return Ok(tail.page.ended);
        }
        loop {
            let page = reader
                .page(Some(self.sources[n].next), PAGE_BYTES, self.cx)
                .await?;
            let is_last = page.next <= self.sources[n].next || page.next >= page.total;
            self.show(n, &page)?;
            if is_last {
                return Ok(page.ended);
            }
        }
    }

    /// Waits for more output of a run.
    fn poll(&self, n: usize) -> impl Future<Output = (usize, Result<LogPage, ErrorView>)> + use<> {
        let source = &self.sources[n];
        let hub = self.cx.hub.clone();
        let call = ReadLogs {
            after: Some(source.next),
            max_bytes: Some(PAGE_BYTES),
            wait_ms: POLL_WAIT_MS,
            ..poll_call(&source.run_id, self.args)
        };
        async move { (n, hub.call(&call).await) }
    }

    /// Prints the complete lines of a page.
    fn show(&mut self, n: usize, page: &LogPage) -> Result<(), Failure> {
        let source = &mut self.sources[n];
        source.next = page.next.max(source.next);
        self.pages.report_missing(page, self.cx)?;
        if self.cx.out.json {
            return if page.text.is_empty() {
                Ok(())
            } else {
                self.pages.print(page, false, self.cx)
            };
        }
        self.pages.report_gap(page, self.cx)?;
        let times = TimeColumn::new(page, self.cx);
        let mut shown = String::new();
        for (number, line) in page.text.split_inclusive('\n').enumerate() {
            if source.line.is_empty() {
                source.time = self.pages.prefix(&times, number);
            }
            source.line.push_str(line);
            if line.ends_with('\n') || source.line.len() > LINE_BYTES_MAX {
                shown.push_str(&source.prefix);
                shown.push_str(&source.time);
                shown.push_str(&text::block(
                    std::mem::take(&mut source.line).trim_end_matches('\n'),
                ));
                shown.push('\n');
            }
        }
        self.cx.out.print_data(&shown)
    }

    /// Prints an incomplete line as it is.
    fn end_line(&mut self, n: usize) -> Result<(), Failure> {
        let source = &mut self.sources[n];
        match std::mem::take(&mut source.line) {
            line if line.is_empty() => Ok(()),
            line => self.cx.out.print_line(&format!(
                "{}{}{}",
                source.prefix,
                source.time,
                text::line(&line)
            )),
        }
    }
}
