//! The HTTP server: maps paths to dialects, and writes, stalls and cuts streams.

use super::offered::{self, kept_back, play};
use super::turn::{self, End, Refusal, Say};
use super::{Dialect, Offered, Seen, Stage, Turn, anthropic, gemini, openai};
use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, Uri, header};
use axum::response::{IntoResponse, Response};
use futures::stream::{self, StreamExt};
use serde_json::Value;
use std::io;
use std::sync::Arc;
use tokio::sync::oneshot;

/// The model's name for a CLI that offers no tools. Each of its requests belongs to the
/// conversation.
pub const WORDS_ONLY: &str = "words-only";
/// The entry of `aside` for a web search by the model's service.
pub const SEARCHED: &str = "web search";
/// The largest request that is read, in bytes.
const BODY_BYTES_MAX: usize = 64 << 20;

/// Serves until `stopped` is signalled.
pub fn until(listener: std::net::TcpListener, stage: Arc<Stage>, stopped: oneshot::Receiver<()>) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("a runtime");
    runtime.block_on(async {
        let listener = tokio::net::TcpListener::from_std(listener).expect("a listener");
        let app = Router::new()
            .fallback(answer)
            .layer(axum::extract::DefaultBodyLimit::max(BODY_BYTES_MAX))
            .with_state(stage);
        // A graceful shutdown would wait forever for a hanging stream.
        tokio::select! {
            ended = axum::serve(listener, app) => ended.expect("the model serves"),
            _ = stopped => {}
        }
    });
}

/// The kind of a request.
enum Asked {
    Turn { dialect: Dialect, streaming: bool },
    Aside(Value),
    Unknown,
}

fn asked(method: &Method, path: &str, body: &Value) -> Asked {
    let streaming = body["stream"] == true;
    match path {
        _ if path.ends_with("/messages/count_tokens") => {
            Asked::Aside(serde_json::json!({ "input_tokens": 10 }))
        }
        _ if path.ends_with(":countTokens") => {
            Asked::Aside(serde_json::json!({ "totalTokens": 10 }))
        }
        _ if path.ends_with("/messages") => Asked::Turn {
            dialect: Dialect::Messages,
            streaming,
        },
        _ if path.ends_with("/responses") => Asked::Turn {
            dialect: Dialect::Responses,
            streaming,
        },
        _ if path.ends_with("/chat/completions") => Asked::Turn {
            dialect: Dialect::Chat,
            streaming,
        },
        _ if path.ends_with(":streamGenerateContent") => Asked::Turn {
            dialect: Dialect::Gemini,
            streaming: true,
        },
        _ if path.ends_with(":generateContent") => Asked::Turn {
            dialect: Dialect::Gemini,
            streaming: false,
        },
        _ if path.ends_with("/models") && method == Method::GET => {
            Asked::Aside(serde_json::json!({ "object": "list", "data": [], "models": [] }))
        }
        "/" | "/api/hello" => Asked::Aside(serde_json::json!({})),
        _ => Asked::Unknown,
    }
}

async fn answer(
    State(stage): State<Arc<Stage>>,
    method: Method,
    uri: Uri,
    headers: HeaderMap,
    body: Bytes,
) -> Response {
    let body: Value = serde_json::from_slice(&body).unwrap_or(Value::Null);
    let about = format!("{method} {}", uri.path());
    let presented = ["x-api-key", "x-goog-api-key", "authorization"]
        .iter()
        .find_map(|name| headers.get(*name)?.to_str().ok());
    let key = presented
        .unwrap_or_default()
        .trim_start_matches("Bearer ")
        .to_owned();
    // Gemini names it in the path.
    let in_path = uri
        .path()
        .rsplit_once("/models/")
        .and_then(|(_, rest)| rest.split_once(':'))
        .map(|(name, _)| name);
    let model = body["model"]
        .as_str()
        .or(in_path)
        .unwrap_or_default()
        .to_owned();
    match asked(&method, uri.path(), &body) {
        Asked::Turn { dialect, streaming } => {
            let offered = tools(dialect, &body);
            if is_only_a_search(dialect, &body) {
                stage.change(|story| story.aside.push(SEARCHED.to_owned()));
                return stream_or_whole(
                    &stage,
                    dialect,
                    &Say::Text("nothing was found".to_owned()),
                    End::Whole,
                    streaming,
                );
            }
            if offered.is_empty() && body["model"] != WORDS_ONLY {
                let side = side(&body);
                let is_too_long = stage.change(|story| {
                    story.aside.push(about);
                    let seen = Seen { dialect, tools: Vec::new(), results: Vec::new(), key, model, body };
                    // A conversation that is too long cannot be summarized either.
                    matches!(story.turns.last(), Some(Turn::Computed(follow)) if matches!(follow(&seen), Turn::TooLong))
                });
                if is_too_long {
                    return refuse(dialect, Refusal::TooLong);
                }
                return stream_or_whole(&stage, dialect, &Say::Text(side), End::Whole, streaming);
            }
            let results = results(dialect, &body);
            let names = offered.iter().map(Offered::full_name).collect();
            let turn = stage.change(|story| {
                let seen = Seen { dialect, tools: names, results, key, model, body };
                // A turn is left out if it needs a tool that not every CLI has.
                while let Some((turn, tool)) = story.turns.get(story.seen.len()).and_then(|turn| Some((turn.clone(), turn.optional_tool()?))) {
                    let searched = format!("search for {tool}");
                    if let Some(search) = offered::tool_search(tool, &offered)
                        && !story.aside.contains(&searched)
                    {
                        story.aside.push(searched);
                        return Err(search);
                    }
                    let is_missing = matches!(play(&turn, &offered), Ok((Say::Text(text), _)) if offered::is_missing(&text));
                    if !is_missing {
                        break;
                    }
                    if matches!(turn, Turn::WebSearch { .. }) && openai::responses::has_web_search(&seen.body) {
                        story.aside.push(SEARCHED.to_owned());
                    } else {
                        story.turns_without_tool.push(story.seen.len());
                    }
                    story.seen.push(seen.clone());
                }
                let further = || story.turns.last().filter(|turn| matches!(turn, Turn::Computed(_)));
                let turn = match story.turns.get(story.seen.len()).or_else(further) {
                    Some(Turn::Computed(follow)) => follow(&seen),
                    Some(Turn::CallWith { tool, arguments }) => Turn::call(tool, arguments(&seen)),
                    Some(turn) => turn.clone(),
                    None => Turn::say("the scenario has no further turn"),
                };
                if let Some(tool) = kept_back(&turn, &offered)
                    && openai::responses::can_search(&seen.body)
                {
                    story.aside.push(format!("search for {tool}"));
                    return Err(Say::Search(tool.to_owned()));
                }
                if matches!(play(&turn, &offered), Ok((Say::Text(text), _)) if offered::is_missing(&text)) {
                    story.turns_without_tool.push(story.seen.len());
                }
                story.seen.push(seen);
                Ok(turn)
            });
            let turn = match turn {
                Ok(turn) => turn,
                Err(search) => {
                    return stream_or_whole(&stage, dialect, &search, End::Whole, streaming);
                }
            };
            let mut holds = stage.holds.subscribe();
            let released = holds.wait_for(|holds| !holds).await;
            released.expect("the stage has the sender");
            match play(&turn, &offered) {
                Ok((say, end)) => stream_or_whole(&stage, dialect, &say, end, streaming),
                Err(refusal) => refuse(dialect, refusal),
            }
        }
        Asked::Aside(value) => {
            stage.change(|story| story.aside.push(about));
            axum::Json(value).into_response()
        }
        Asked::Unknown => {
            stage.change(|story| story.aside.push(format!("{about} (unknown)")));
            (StatusCode::NOT_FOUND, axum::Json(serde_json::json!({ "error": { "message": "no such thing here", "type": "not_found" } })))
                .into_response()
        }
    }
}

/// Returns whether a CLI lets the model's service search the web, which is not a turn of the
/// conversation.
fn is_only_a_search(dialect: Dialect, body: &Value) -> bool {
    let tools = body["tools"]
        .as_array()
        .map(Vec::as_slice)
        .unwrap_or_default();
    let is_search = |tool: &Value| match dialect {
        Dialect::Messages => tool["type"]
            .as_str()
            .is_some_and(|kind| kind.starts_with("web_search")),
        Dialect::Gemini => tool.get("googleSearch").is_some(),
        Dialect::Responses | Dialect::Chat => false,
    };
    !tools.is_empty() && tools.iter().all(is_search)
}

/// Returns the answer to a request outside of the conversation: text, or JSON for the requested
/// schema.
fn side(body: &Value) -> String {
    let config = &body["generationConfig"];
    let schema = [&config["responseJsonSchema"], &config["responseSchema"]]
        .into_iter()
        .find(|schema| schema.is_object());
    schema.map_or_else(|| "A test".to_owned(), |schema| filled(schema).to_string())
}

fn filled(schema: &Value) -> Value {
    match schema["type"]
        .as_str()
        .unwrap_or_default()
        .to_ascii_lowercase()
        .as_str()
    {
        "object" => schema["properties"]
            .as_object()
            .map(|all| {
                all.iter()
                    .map(|(name, each)| (name.clone(), filled(each)))
                    .collect()
            })
            .unwrap_or_default(),
        "number" | "integer" => 1.into(),
        "boolean" => false.into(),
        "array" => Value::Array(Vec::new()),
        _ => schema["enum"]
            .get(0)
            .cloned()
            .unwrap_or_else(|| "a test".into()),
    }
}

fn tools(dialect: Dialect, body: &Value) -> Vec<Offered> {
    match dialect {
        Dialect::Messages => anthropic::offered(body),
        Dialect::Responses => openai::responses::offered(body),
        Dialect::Chat => openai::chat::offered(body),
        Dialect::Gemini => gemini::offered(body),
    }
}

fn results(dialect: Dialect, body: &Value) -> Vec<String> {
    match dialect {
        Dialect::Messages => anthropic::results(body),
        Dialect::Responses => openai::responses::results(body),
        Dialect::Chat => openai::chat::results(body),
        Dialect::Gemini => gemini::results(body),
    }
}

fn refuse(dialect: Dialect, refusal: Refusal) -> Response {
    let status = StatusCode::from_u16(refusal.status(dialect)).expect("a status");
    let body = match dialect {
        Dialect::Messages => anthropic::refusal(refusal),
        Dialect::Responses | Dialect::Chat => openai::refusal(refusal),
        Dialect::Gemini => gemini::refusal(refusal),
    };
    let mut response = (status, axum::Json(body)).into_response();
    if let Refusal::RateLimited { after_s } = refusal {
        response
            .headers_mut()
            .insert(header::RETRY_AFTER, after_s.into());
    }
    if let Refusal::UsedUp { for_s } = refusal {
        let until = turn::epoch_s(for_s).to_string();
        let told: &[(&'static str, &str)] = match dialect {
            Dialect::Messages => &[
                ("anthropic-ratelimit-unified-status", "rejected"),
                ("anthropic-ratelimit-unified-reset", &until),
                (
                    "anthropic-ratelimit-unified-representative-claim",
                    "five_hour",
                ),
            ],
            Dialect::Responses => &[
                ("x-codex-primary-used-percent", "100"),
                ("x-codex-primary-window-minutes", "300"),
                ("x-codex-primary-reset-at", &until),
            ],
            Dialect::Chat | Dialect::Gemini => &[],
        };
        response
            .headers_mut()
            .extend(told.iter().map(|(name, value)| {
                (
                    HeaderName::from_static(name),
                    HeaderValue::from_str(value).expect("digits or words"),
                )
            }));
    }
    response
}

fn stream_or_whole(
    stage: &Arc<Stage>,
    dialect: Dialect,
    say: &Say,
    end: End,
    streaming: bool,
) -> Response {
    let turn = stage.change(|story| {
        story.answers += 1;
        story.answers
    });
    if end == End::Reset {
        return Response::new(Body::from_stream(stream::iter([Err::<Bytes, _>(
            io::Error::other("reset"),
        )])));
    }
    if !streaming && end == End::Whole {
        return axum::Json(match dialect {
            Dialect::Messages => anthropic::whole(say, turn),
            Dialect::Responses => openai::responses::whole(say, turn),
            Dialect::Chat => openai::chat::whole(say, turn),
            Dialect::Gemini => gemini::chunk(say, true),
        })
        .into_response();
    }
    let chunks = match dialect {
        // An answer that is not streamed has no partial content.
        _ if !streaming => Vec::new(),
        Dialect::Messages => anthropic::stream(say, turn, end == End::Whole),
        Dialect::Responses => openai::responses::stream(say, turn, end == End::Whole),
        Dialect::Chat => openai::chat::stream(say, turn, end == End::Whole),
        Dialect::Gemini => gemini::stream(say, end == End::Whole),
    };
    let said = stream::iter(
        chunks
            .into_iter()
            .map(|chunk| Ok::<_, io::Error>(Bytes::from(chunk))),
    );
    let body = match end {
        End::Whole | End::Reset => Body::from_stream(said),
        End::Hang => {
            let left = Left(stage.clone());
            Body::from_stream(said.chain(stream::once(async move {
                let _left = left;
                std::future::pending().await
            })))
        }
    };
    (
        [
            (header::CONTENT_TYPE, "text/event-stream"),
            (header::CACHE_CONTROL, "no-cache"),
        ],
        body,
    )
        .into_response()
}

/// Records, when the stream is dropped, that the CLI has closed it.
struct Left(Arc<Stage>);

impl Drop for Left {
    fn drop(&mut self) {
        self.0.change(|story| story.left += 1);
    }
}

/// Formats a server-sent event.
pub fn event(name: Option<&str>, data: &Value) -> String {
    name.map_or_else(
        || format!("data: {data}\n\n"),
        |name| format!("event: {name}\ndata: {data}\n\n"),
    )
}

/// Splits a text into the pieces of a stream.
pub fn pieces(text: &str) -> Vec<String> {
    let characters: Vec<char> = text.chars().collect();
    characters
        .chunks(characters.len().div_ceil(3).max(1))
        .map(|piece| piece.iter().collect())
        .collect()
}
