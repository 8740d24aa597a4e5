//! `adj events`: the event history.

use crate::cli::args::EventsArgs;
use crate::cli::context::Context;
use crate::cli::details;
use crate::cli::exit::Exit;
use crate::cli::out::{CommandResult, Failure};
use crate::cli::style::Style;
use crate::text;
use crate::view::{EventView, ReadEvents, Wait};

/// The note for a reader whose events were lost.
const EVENTS_RESET: &str =
    "the database of the hub was set back: events that you have seen are lost (adj doctor)";

/// How long one call for new events waits at the hub, in milliseconds.
const EVENTS_WAIT_MS: u64 = 30_000;

/// Prints the event history.
pub(crate) async fn events(args: &EventsArgs, cx: &Context) -> CommandResult {
    let end = cx.hub.call(&Wait::default()).await?.cursor;
    let mut after = if args.run.is_some() {
        0
    } else {
        end.saturating_sub(i64::from(args.last)).max(0)
    };
    let mut shown: Vec<EventView> = Vec::new();
    loop {
        let page = cx
            .hub
            .call(&ReadEvents {
                after,
                run: args.run.clone(),
                limit: None,
                wait_ms: 0,
            })
            .await?;
        let done = page.events.is_empty() || page.cursor <= after;
        after = page.cursor;
        shown.extend(page.events);
        let surplus = shown.len().saturating_sub(args.last as usize);
        shown.drain(..surplus);
        if done {
            break;
        }
    }
    if cx.out.json && !args.follow {
        cx.out.print_json_list(&shown, 0, &[])?;
        return Ok(Exit::Done);
    }
    print_events(&shown, cx)?;
    if !args.follow {
        return Ok(Exit::Done);
    }
    loop {
        let page = cx
            .hub
            .call(&ReadEvents {
                after,
                run: args.run.clone(),
                limit: None,
                wait_ms: EVENTS_WAIT_MS,
            })
            .await?;
        after = page.cursor;
        if page.reset {
            cx.out.print_message(EVENTS_RESET)?;
        }
        print_events(&page.events, cx)?;
    }
}

fn print_events(events: &[EventView], cx: &Context) -> Result<(), Failure> {
    for event in events {
        if cx.out.json {
            cx.out.print_json(event)?;
            continue;
        }
        let at = if cx.out.terminal {
            event.at.get(11..19).unwrap_or(&event.at)
        } else {
            &event.at
        };
        let (at, name, kind) = (
            text::line(at),
            text::line(event.pool.as_ref().unwrap_or(&event.run_name)),
            text::line(event.kind.as_str()),
        );
        let before = text::width(&at) + text::width(&name) + kind.len().max(17) + 3;
        let signal = match (&event.signal, &event.source) {
            (Some(signal), Some(source)) => format!(", {signal} by {source}"),
            (None, Some(source)) => format!(", by {source}"),
            _ => String::new(),
        };
        let by = match event.by.strip_prefix("run:") {
            Some(run) if run == event.run_id => event.run_name.as_str(),
            _ => details::person(&event.by),
        };
        let what = text::line(&format!("{} ({}{signal})", event.text, by));
        let what = cx.out.columns.map_or(what.clone(), |columns| {
            text::cut(&what, columns.saturating_sub(before))
        });
        let line = format!(
            "{} {} {kind:<17} {what}",
            cx.out.paint.apply(Style::Dim, &at),
            cx.out.paint.apply(Style::Strong, &name)
        );
        cx.out.print_line(&line)?;
    }
    Ok(())
}
