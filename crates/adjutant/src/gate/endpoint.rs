//! The endpoints of models' APIs that the gate forwards. Other endpoints could spend money without reporting usage (batches, files,
//! background responses), or change the account.

use http::Method;

/// An endpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Endpoint {
    /// A model generates a response, which costs something.
    Generation,
    /// A list of models, or the number of tokens of a text.
    Information,
}

/// The vendor's API of a path, which determines the format of errors.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Api {
    Anthropic,
    OpenAi,
    Gemini,
}

const GENERATION: [&str; 6] = ["/messages", "/responses", "/responses/compact", "/chat/completions", "/completions", "/embeddings"];
const COUNTS: [&str; 3] = ["/messages/count_tokens", "/responses/input_tokens", "/api/hello"];
const GEMINI_GENERATION: [&str; 4] = ["generateContent", "streamGenerateContent", "embedContent", "batchEmbedContents"];

impl Endpoint {
    /// Returns the endpoint of a request. `None`: it is not forwarded.
    pub(super) fn of(method: &Method, path: &str) -> Option<Self> {
        if !is_plain(path) {
            return None;
        }
        let action = path.rsplit('/').next().and_then(|last| last.split_once(':')).map(|(_, action)| action);
        let ends = |endings: &[&str]| endings.iter().any(|ending| path.ends_with(ending));
        match *method {
            Method::POST if action.is_some_and(|action| GEMINI_GENERATION.contains(&action)) => Some(Self::Generation),
            Method::POST if action == Some("countTokens") => Some(Self::Information),
            Method::POST if ends(&COUNTS) => Some(Self::Information),
            Method::POST if ends(&GENERATION) => Some(Self::Generation),
            Method::GET | Method::HEAD if path == "/" || ends(&COUNTS) || names_models(path) => Some(Self::Information),
            _ => None,
        }
    }
}

impl Api {
    pub(super) fn of(path: &str) -> Self {
        if path.contains("/messages") {
            Self::Anthropic
        } else if path.contains("/models/") && path.contains(':') {
            Self::Gemini
        } else {
            Self::OpenAi
        }
    }
}

/// Returns whether every server interprets a path in the same way: no segment is empty or consists of dots, and no separator is escaped.
fn is_plain(path: &str) -> bool {
    const ESCAPED: [&str; 5] = ["%2e", "%2f", "%5c", "%25", "%3b"];
    let lower = path.to_ascii_lowercase();
    let is_segment = |part: &str| !matches!(part.split(';').next(), None | Some("" | "." | ".."));
    let has_segments = path == "/" || path.strip_prefix('/').is_some_and(|rest| rest.split('/').all(is_segment));
    has_segments && !path.contains('\\') && !ESCAPED.iter().any(|escaped| lower.contains(escaped))
}

/// Returns whether a path is that of the list of models or of one model.
fn names_models(path: &str) -> bool {
    path.rsplit('/').take(2).any(|part| part == "models")
}

/// Returns the model that a path names, as Gemini's do: `…/models/MODEL:ACTION`.
pub(super) fn model_in_path(path: &str) -> Option<&str> {
    let (before, last) = path.rsplit_once('/')?;
    let (model, action) = last.split_once(':')?;
    (before.ends_with("/models") && GEMINI_GENERATION.contains(&action) && !model.is_empty()).then_some(model)
}
