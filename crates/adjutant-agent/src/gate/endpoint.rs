//! The endpoints of models' APIs that the gate forwards. Other endpoints could spend money without
//! reporting usage (batches, files, background responses), or change the account. Whole paths
//! count, relative to the configured `base_url`: an ending can occur anywhere.

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

const GENERATION: [&str; 6] = [
    "messages",
    "responses",
    "responses/compact",
    "chat/completions",
    "completions",
    "embeddings",
];
const COUNTS: [&str; 3] = [
    "messages/count_tokens",
    "responses/input_tokens",
    "api/hello",
];
const GEMINI_GENERATION: [&str; 4] = [
    "generateContent",
    "streamGenerateContent",
    "embedContent",
    "batchEmbedContents",
];

impl Endpoint {
    /// Returns the endpoint of a request. `None`: it is not forwarded.
    pub(super) fn of(method: &Method, path: &str) -> Option<Self> {
        if !is_plain(path) {
            return None;
        }
        let path = unversioned(path);
        let named = path
            .strip_prefix("models/")
            .or_else(|| path.strip_prefix("tunedModels/"));
        let action = named
            .filter(|rest| !rest.contains('/'))
            .and_then(|rest| rest.rsplit_once(':'))
            .map(|(_, action)| action);
        match *method {
            Method::POST if action.is_some_and(|action| GEMINI_GENERATION.contains(&action)) => {
                Some(Self::Generation)
            }
            Method::POST if action == Some("countTokens") => Some(Self::Information),
            Method::POST if COUNTS.contains(&path) => Some(Self::Information),
            Method::POST if GENERATION.contains(&path) => Some(Self::Generation),
            Method::GET | Method::HEAD
                if path.is_empty() || COUNTS.contains(&path) || names_models(path) =>
            {
                Some(Self::Information)
            }
            _ => None,
        }
    }
}

/// Returns a path without its first slash and the API's version, which some clients expect in
/// `base_url`.
fn unversioned(path: &str) -> &str {
    let path = path.strip_prefix('/').unwrap_or(path);
    let is_version = |segment: &str| {
        let digits = segment
            .strip_prefix('v')
            .map(|rest| rest.trim_start_matches(|c: char| c.is_ascii_digit()));
        segment.as_bytes().get(1).is_some_and(u8::is_ascii_digit)
            && digits.is_some_and(|rest| {
                matches!(
                    rest.trim_end_matches(|c: char| c.is_ascii_digit()),
                    "" | "alpha" | "beta"
                )
            })
    };
    match path.split_once('/') {
        Some((first, rest)) if is_version(first) => rest,
        _ => path,
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

/// Returns whether every server interprets a path in the same way: no segment is empty or consists
/// of dots, and no separator is escaped.
fn is_plain(path: &str) -> bool {
    const ESCAPED: [&str; 5] = ["%2e", "%2f", "%5c", "%25", "%3b"];
    let lower = path.to_ascii_lowercase();
    let is_segment = |part: &str| !matches!(part.split(';').next(), None | Some("" | "." | ".."));
    let has_segments = path == "/"
        || path
            .strip_prefix('/')
            .is_some_and(|rest| rest.split('/').all(is_segment));
    has_segments && !path.contains('\\') && !ESCAPED.iter().any(|escaped| lower.contains(escaped))
}

/// Returns whether a path is that of the list of models or of one model, whose name may contain
/// that of its vendor.
fn names_models(path: &str) -> bool {
    path == "models"
        || path
            .strip_prefix("models/")
            .is_some_and(|name| name.split('/').count() <= 2 && !name.contains(':'))
}

/// Returns the model that a path names, as Gemini's do: `…/models/MODEL:ACTION`.
pub(super) fn model_in_path(path: &str) -> Option<&str> {
    let (before, last) = path.rsplit_once('/')?;
    let (model, action) = last.split_once(':')?;
    (before.ends_with("/models") && GEMINI_GENERATION.contains(&action) && !model.is_empty())
        .then_some(model)
}
