//! The event history as Server-Sent Events. The id of an event is its position, so a client that
//! reconnects with `Last-Event-ID` continues after it, even with another hub process. The hub reads
//! further events only when the client has received the earlier ones, so a slow client needs one
//! page of memory and delays no other client. Streams of the same principal and filter at the same
//! position share one read and its page.

use super::asked::{Answer, Asked};
use super::names::only;
use super::{Http, problem};
use crate::hub_client::decode_name;
use crate::ops::{Caller, Waits};
use crate::view::{ErrorView, EventPage, ReadEvents, codes};
use adjutant_core::Principal;
use axum::body::{Body, Bytes};
use axum::http::header::{CACHE_CONTROL, CONTENT_TYPE, HeaderName};
use axum::http::request::Parts;
use axum::http::{HeaderValue, StatusCode};
use axum::response::IntoResponse;
use futures::FutureExt;
use futures::future::{BoxFuture, Shared, WeakShared};
use serde_json::json;
use std::collections::HashMap;
use std::convert::Infallible;
use std::sync::{Arc, Mutex, PoisonError};

const LAST_EVENT_ID: HeaderName = HeaderName::from_static("last-event-id");
/// Maximum number of events to read at once.
const PAGE_EVENTS: u32 = 200;
/// The interval of keep-alive comments.
const KEEP_ALIVE_MS: u64 = 15_000;

/// What a page depends on. Equal positions have equal next pages.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Position {
    who: Principal,
    run: Option<String>,
    after: i64,
}

/// The next page of a position, already in the format of the stream. `None`: the streams end.
type NextPage = Shared<BoxFuture<'static, Option<Page>>>;

#[derive(Clone)]
struct Page {
    text: Bytes,
    cursor: i64,
}

/// The pages that streams wait for. A page is forgotten when the last stream has it.
#[derive(Default)]
pub(super) struct Pages(Mutex<HashMap<Position, WeakShared<BoxFuture<'static, Option<Page>>>>>);

impl Pages {
    /// Returns the next page of a position: the one that an equal stream waits for, or a new one.
    fn next(&self, http: &Http, position: &Position) -> NextPage {
        let mut pages = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(shared) = pages.get(position).and_then(WeakShared::upgrade) {
            return shared;
        }
        // No more pages than streams are in use.
        pages.retain(|_, page| page.upgrade().is_some());
        let hub = http.hub.clone();
        let (caller, run, after) = (
            Caller {
                who: position.who.clone(),
                key: None,
            },
            position.run.clone(),
            position.after,
        );
        let read = async move {
            let read = ReadEvents {
                after,
                run,
                limit: Some(PAGE_EVENTS),
                wait_ms: KEEP_ALIVE_MS,
            };
            match Waits::of(&hub.ops).events(&caller, &read).await {
                Ok(page) => Some(Page {
                    text: format_events(&page),
                    cursor: page.cursor,
                }),
                Err(error) => {
                    tracing::debug!(%error, "event streams end");
                    None
                }
            }
        };
        let next = read.boxed().shared();
        pages.extend(next.downgrade().map(|page| (position.clone(), page)));
        next
    }
}

/// One stream.
struct Stream {
    http: Arc<Http>,
    position: Position,
    /// The first event, until it is sent.
    first: Option<Bytes>,
}

/// Answers `GET /api/v1/events`.
pub(super) fn stream(asked: Asked, who: Principal) -> Answer {
    Box::pin(async move {
        let stream = match open_stream(&asked.http, who, &asked.head).await {
            Ok(stream) => stream,
            Err(error) => return problem::of(&error),
        };
        let headers = [
            (CONTENT_TYPE, "text/event-stream"),
            (CACHE_CONTROL, "no-cache"),
            (HeaderName::from_static("x-accel-buffering"), "no"),
        ];
        let body = futures::stream::unfold(stream, |stream| Box::pin(next(stream)));
        (
            StatusCode::OK,
            headers.map(|(name, value)| (name, HeaderValue::from_static(value))),
            Body::from_stream(body),
        )
            .into_response()
    })
}

/// Starts a stream. Its first event states the position after which the stream is complete.
async fn open_stream(http: &Arc<Http>, who: Principal, head: &Parts) -> Result<Stream, ErrorView> {
    let mut since = None;
    let mut run = None;
    for pair in head
        .uri
        .query()
        .unwrap_or_default()
        .split('&')
        .filter(|pair| !pair.is_empty())
    {
        let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
        match name {
            "since" => since = Some(position_in("since", value)?),
            "run" => run = Some(decode_name(value).ok_or_else(|| invalid("run: is not UTF-8"))?),
            _ => return Err(invalid("the parameters are since and run")),
        }
    }
    if head.headers.contains_key(LAST_EVENT_ID) {
        since = Some(position_in(
            "Last-Event-ID",
            only(&head.headers, &LAST_EVENT_ID).unwrap_or_default(),
        )?);
    }
    let caller = Caller { who, key: None };
    // Refuses an unknown run, and a run that the client may not see.
    let look = ReadEvents {
        after: 0,
        run: run.clone(),
        limit: Some(1),
        wait_ms: 0,
    };
    Waits::of(&http.hub.ops)
        .events(&caller, &look)
        .await
        .map_err(|error| error.view())?;
    let last = Waits::of(&http.hub.ops)
        .last_event()
        .map_err(|error| error.view())?;
    // A position that the store does not have comes from another home, or from before its database
    // was set back.
    let after = match since {
        Some(since)
            if Waits::of(&http.hub.ops)
                .has_event_position(since)
                .map_err(|error| error.view())? =>
        {
            since
        }
        _ => last,
    };
    let is_resumed = since.is_some_and(|since| since == after);
    let first = format!(
        "event: start\nid: {after}\ndata: {}\n\n",
        json!({"cursor": after, "resumed": is_resumed})
    );
    Ok(Stream {
        http: Arc::clone(http),
        position: Position {
            who: caller.who,
            run,
            after,
        },
        first: Some(Bytes::from(first)),
    })
}

fn position_in(name: &str, value: &str) -> Result<i64, ErrorView> {
    value
        .parse()
        .ok()
        .filter(|position| *position >= 0)
        .ok_or_else(|| invalid(&format!("{name}: use the id of an event, or 0")))
}

fn invalid(message: &str) -> ErrorView {
    ErrorView {
        code: codes::INVALID.to_owned(),
        message: message.to_owned(),
        hint: None,
    }
}

/// Returns the next part of a stream. The stream ends when the hub stops, or when the run is not
/// visible any more.
async fn next(mut stream: Stream) -> Option<(Result<Bytes, Infallible>, Stream)> {
    if let Some(first) = stream.first.take() {
        return Some((Ok(first), stream));
    }
    let page = stream
        .http
        .pages
        .next(&stream.http, &stream.position)
        .await?;
    stream.position.after = page.cursor;
    Some((Ok(page.text), stream))
}

fn format_events(page: &EventPage) -> Bytes {
    if page.events.is_empty() {
        // The id advances past events that the client may not see.
        return Bytes::from(format!(": keep-alive\nid: {}\n\n", page.cursor));
    }
    let mut text = String::new();
    for event in &page.events {
        // Serialised JSON contains no line breaks.
        let data = serde_json::to_string(event).expect("an event is JSON");
        text.push_str(&format!("id: {}\ndata: {data}\n\n", event.seq));
    }
    Bytes::from(text)
}
