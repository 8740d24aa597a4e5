//! The page behind a link in a message: one request, which a person can answer without signing in.
//! It is plain HTML and works without scripts. `GET` changes nothing, because programs that show
//! previews of links open them too.

use super::admission::require_outside_runs;
use super::asked::{Answer, Asked};
use super::problem::method_not_allowed;
use crate::hub::Hub;
use crate::hub_client::decode_name;
use crate::ops::{
    AnswerCall, AnswerLink, AnswerLinks, LINK_PATH, LinkAnswer, LinkedRequest, OpError,
    resolve_link,
};
use crate::present::{asked_for, clarification_parts, delegation_parts};
use crate::view::{DecisionWord, RequestView};
use crate::{clock, text};
use adjutant_core::policy::OperationPart;
use adjutant_core::units::duration;
use adjutant_core::{Denied, RequestKind, RequestStateKind};
use axum::body::Body;
use axum::http::header::{
    CONNECTION, CONTENT_LENGTH, CONTENT_SECURITY_POLICY, CONTENT_TYPE, HeaderName, LOCATION,
    REFERRER_POLICY, RETRY_AFTER,
};
use axum::http::request::Parts;
use axum::http::{HeaderValue, Method, StatusCode};
use axum::response::{IntoResponse, Response};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};
use tokio::sync::Semaphore;

const POLICY: &str = "default-src 'none'; style-src 'self'; img-src 'self'; form-action 'self'; frame-ancestors 'none'; base-uri 'none'";
const FORM: &str = "application/x-www-form-urlencoded";
/// Longest answer with a link, in bytes of the form, and how long it may take.
const FORM_BYTES_MAX: usize = 64 * 1024;
const FORM_TIME_MAX: Duration = Duration::from_secs(10);
/// The answers that are read at a time.
const READING_MAX: usize = 16;
/// Most requests with valid codes, and with unknown ones, in a period. Each has its own limit, so
/// guesses do not block valid links.
const VALID_MAX: u32 = 60;
const UNKNOWN_MAX: u32 = 30;
const PERIOD: Duration = Duration::from_secs(1);

/// The use of links.
#[derive(Debug)]
pub(super) struct Links {
    valid: Mutex<Count>,
    unknown: Mutex<Count>,
    reading: Semaphore,
}

#[derive(Debug)]
struct Count {
    requests: u32,
    since: Instant,
}

impl Default for Links {
    fn default() -> Self {
        let count = || {
            Mutex::new(Count {
                requests: 0,
                since: Instant::now(),
            })
        };
        Self {
            valid: count(),
            unknown: count(),
            reading: Semaphore::new(READING_MAX),
        }
    }
}

impl Links {
    /// Counts a request. Returns `false` if there were too many.
    fn count(&self, is_valid: bool, now: Instant) -> bool {
        let (count, max) = if is_valid {
            (&self.valid, VALID_MAX)
        } else {
            (&self.unknown, UNKNOWN_MAX)
        };
        let mut count = count.lock().unwrap_or_else(PoisonError::into_inner);
        if now.duration_since(count.since) >= PERIOD {
            *count = Count {
                requests: 0,
                since: now,
            };
        }
        count.requests = count.requests.saturating_add(1);
        count.requests <= max
    }
}

/// Serves the page behind a link, for processes outside of all runs.
pub(super) fn follow(asked: Asked) -> Answer {
    Box::pin(async move {
        let Asked {
            http,
            caller,
            head,
            body,
        } = asked;
        let link = match read_link(&http.hub, &http.links, &head) {
            Ok(link) => link,
            Err(refusal) => return *refusal,
        };
        if let Err(refusal) = require_outside_runs(&http, &caller, false).await {
            return *refusal;
        }
        serve_link(&http.hub, &http.links, &link, &head, body).await
    })
}

/// Checks the code in the path of a request.
fn read_link(hub: &Hub, links: &Links, head: &Parts) -> Result<AnswerLink, Box<Response>> {
    let code = head.uri.path().strip_prefix(LINK_PATH).unwrap_or_default();
    let link = AnswerLinks::of(&hub.ops)
        .read(code)
        .map_err(|error| Box::new(failure_page(&error)))?;
    if !links.count(link.is_some(), Instant::now()) {
        let mut response = page(
            StatusCode::TOO_MANY_REQUESTS,
            "Too many requests",
            "<p>Try again in a moment.</p>",
        );
        response
            .headers_mut()
            .insert(RETRY_AFTER, HeaderValue::from_static("1"));
        return Err(Box::new(response));
    }
    link.ok_or_else(|| {
        let text = "<p>This link is not valid. It may be incomplete, or the key of links was replaced.</p><p><code>adj inbox</code> lists open requests.</p>";
        Box::new(page(StatusCode::NOT_FOUND, "Unknown link", text))
    })
}

/// Answers a request with a valid code.
async fn serve_link(
    hub: &Hub,
    links: &Links,
    link: &AnswerLink,
    head: &Parts,
    body: Body,
) -> Response {
    match head.method {
        Method::GET | Method::HEAD => match resolve_link(hub.ops.store(), link) {
            Ok(linked) => link_page(&linked, None),
            Err(error) => failure_page(&error),
        },
        Method::POST => match read_answer(links, head, body).await {
            Err(refusal) => *refusal,
            Ok(answer) => record_answer(hub, link, head, answer).await,
        },
        _ => method_not_allowed("GET, POST"),
    }
}

async fn record_answer(hub: &Hub, link: &AnswerLink, head: &Parts, answer: LinkAnswer) -> Response {
    let typed = typed_text(&answer);
    match AnswerCall::of(&hub.ops).answer_by_link(link, answer).await {
        // The browser reads the page again, so that reloading it sends nothing.
        Ok(()) => {
            let mut response = StatusCode::SEE_OTHER.into_response();
            let path =
                HeaderValue::from_str(head.uri.path()).unwrap_or(HeaderValue::from_static("/"));
            response.headers_mut().insert(LOCATION, path);
            response
        }
        Err(error) => refusal_page(hub, link, &error, &typed),
    }
}

/// Returns what the person has typed. An option is not typed.
fn typed_text(answer: &LinkAnswer) -> String {
    match answer {
        LinkAnswer::Option(_) => String::new(),
        LinkAnswer::Words(words) => words.clone(),
        LinkAnswer::Decision {
            decision: _,
            reason,
        } => reason.clone(),
    }
}

/// Shows why an answer was refused, with the state of the request and the text that was not
/// recorded.
fn refusal_page(hub: &Hub, link: &AnswerLink, error: &OpError, typed: &str) -> Response {
    let status = match error.denied() {
        Some(
            Denied::AnsweredBy(_)
            | Denied::Expired
            | Denied::Withdrawn
            | Denied::NotAsShown
            | Denied::NotFound { .. },
        ) => StatusCode::CONFLICT,
        Some(_) => StatusCode::UNPROCESSABLE_ENTITY,
        None => return failure_page(error),
    };
    match resolve_link(hub.ops.store(), link) {
        Ok(linked) => {
            let problem = format!("Your answer was not recorded: {error}");
            let mut response = link_page(
                &linked,
                Some(Refused {
                    problem: &problem,
                    typed,
                }),
            );
            *response.status_mut() = status;
            response
        }
        Err(error) => failure_page(&error),
    }
}

fn failure_page(error: &OpError) -> Response {
    tracing::error!(%error, "a link cannot be served");
    page(
        StatusCode::INTERNAL_SERVER_ERROR,
        "Try again",
        "<p>The hub cannot read its store now. Nothing was changed.</p>",
    )
}

/// Reads the form of an answer.
async fn read_answer(links: &Links, head: &Parts, body: Body) -> Result<LinkAnswer, Box<Response>> {
    let refusal = |status, title: &str, text: &str| {
        Box::new(page(
            status,
            title,
            &format!("<p>{}</p>", escape_html(text)),
        ))
    };
    let kind = head
        .headers
        .get(CONTENT_TYPE)
        .and_then(|kind| kind.to_str().ok())
        .unwrap_or_default();
    if !kind
        .split(';')
        .next()
        .is_some_and(|kind| kind.trim().eq_ignore_ascii_case(FORM))
    {
        return Err(refusal(
            StatusCode::UNSUPPORTED_MEDIA_TYPE,
            "Not a form",
            "Answer with the buttons of the page.",
        ));
    }
    let too_long = || {
        let text = format!(
            "An answer with a link may have {FORM_BYTES_MAX} bytes, and {} to arrive.",
            duration::of(FORM_TIME_MAX)
        );
        let mut response = refusal(StatusCode::PAYLOAD_TOO_LARGE, "Too long", &text);
        response
            .headers_mut()
            .insert(CONNECTION, HeaderValue::from_static("close"));
        response
    };
    let stated = head
        .headers
        .get(CONTENT_LENGTH)
        .and_then(|length| length.to_str().ok()?.parse::<usize>().ok());
    if stated.is_some_and(|bytes| bytes > FORM_BYTES_MAX) {
        return Err(too_long());
    }
    let Ok(_turn) = links.reading.try_acquire() else {
        return Err(refusal(
            StatusCode::TOO_MANY_REQUESTS,
            "Too many requests",
            "Try again in a moment.",
        ));
    };
    let body =
        tokio::time::timeout(FORM_TIME_MAX, axum::body::to_bytes(body, FORM_BYTES_MAX)).await;
    let Ok(Ok(body)) = body else {
        return Err(too_long());
    };
    std::str::from_utf8(&body)
        .ok()
        .and_then(parse_form)
        .ok_or_else(|| {
            refusal(
                StatusCode::UNPROCESSABLE_ENTITY,
                "Not an answer",
                "Nothing was changed. Open the link again and use its buttons.",
            )
        })
}

/// Parses a form: `option`, `answer`, or `decision` with `reason`, each at most once.
fn parse_form(body: &str) -> Option<LinkAnswer> {
    let (mut option, mut answer, mut decision, mut reason) = (None, None, None, None);
    for field in body.split('&') {
        let (name, value) = field.split_once('=')?;
        let place = match name {
            "option" => &mut option,
            "answer" => &mut answer,
            "decision" => &mut decision,
            "reason" => &mut reason,
            _ => return None,
        };
        if place
            .replace(decode_name(&value.replace('+', " "))?)
            .is_some()
        {
            return None;
        }
    }
    match (option, answer, decision) {
        (Some(number), None, None) if reason.is_none() => {
            Some(LinkAnswer::Option(number.parse().ok()?))
        }
        (None, Some(words), None) if reason.is_none() => {
            Some(LinkAnswer::Words(words.replace("\r\n", "\n")))
        }
        (None, None, Some(word)) => {
            let decision = match word.as_str() {
                "approve" => DecisionWord::Approve,
                "deny" => DecisionWord::Deny,
                _ => return None,
            };
            Some(LinkAnswer::Decision {
                decision,
                reason: reason.unwrap_or_default().replace("\r\n", "\n"),
            })
        }
        _ => None,
    }
}

/// An answer that was not recorded: why, and what was typed.
struct Refused<'a> {
    problem: &'a str,
    typed: &'a str,
}

impl Refused<'_> {
    fn html(&self) -> String {
        let problem = format!(
            "<p class=\"problem\" role=\"alert\">{}</p>",
            escape_html(self.problem)
        );
        if self.typed.trim().is_empty() {
            return problem;
        }
        format!(
            "{problem}<h2>your text, which was not sent</h2><pre class=\"preview\" tabindex=\"0\">{}</pre>",
            escape_html(self.typed)
        )
    }
}

/// Shows what a link leads to. The text of a request is shown only while it is open.
fn link_page(linked: &LinkedRequest, refused: Option<Refused<'_>>) -> Response {
    let problem = refused.map(|refused| refused.html()).unwrap_or_default();
    match linked {
        LinkedRequest::Open(request) => page(
            StatusCode::OK,
            &heading(request),
            &format!("{problem}{}", open_html(request)),
        ),
        LinkedRequest::Settled(request) => page(
            StatusCode::OK,
            &heading(request),
            &format!("{problem}{}", settled_html(request)),
        ),
        LinkedRequest::Changed => {
            let text = "<p class=\"state-line\">The text of this request has changed since the message was sent.</p><p>Nothing can be answered with this link. \
                        <code>adj inbox</code> lists open requests.</p>";
            page(
                StatusCode::OK,
                "The request has changed",
                &format!("{problem}{text}"),
            )
        }
        LinkedRequest::Gone => page(
            StatusCode::OK,
            "The request was removed",
            &format!("{problem}<p class=\"state-line\">This request was removed with its run.</p>"),
        ),
    }
}

fn heading(request: &RequestView) -> String {
    let asks = request.shown_kind().asks();
    format!("{} {asks} ({})", request.run_name, request.number)
}

fn settled_html(request: &RequestView) -> String {
    let state = match (request.status.known(), &request.reply.answered_by) {
        (Some(RequestStateKind::Withdrawn), _) => {
            "This request was withdrawn. No answer is needed any more.".to_owned()
        }
        (Some(RequestStateKind::Answered | RequestStateKind::Retrieved), Some(by)) => {
            let decision = request
                .reply
                .decision
                .as_ref()
                .map(|decision| format!(" ({})", decision.as_str()))
                .unwrap_or_default();
            let at = request
                .times
                .answered_at
                .as_deref()
                .map(|at| format!(" at {}", shown_time(at)))
                .unwrap_or_default();
            format!("Answered by {by}{decision}{at}.")
        }
        _ => "This request has expired.".to_owned(),
    };
    format!(
        "<p class=\"state-line\">{}</p><p class=\"dim\">This link cannot be used again.</p>",
        escape_html(&state)
    )
}

/// Shows an open request with everything that a decision covers, and the forms to answer it.
fn open_html(request: &RequestView) -> String {
    let asked = asked_for(request);
    let mut html = format!("<p class=\"question said\">{}</p>", escape_html(asked.text));
    if let Some(group) = &request.group {
        html.push_str(&format!(
            "<p class=\"dim\">Question {} of {} of a group. Each has its own link.</p>",
            group.place, group.size
        ));
    }
    let mut facts: Vec<(&str, String)> = Vec::new();
    if let Some(risk) = &request.content.risk {
        facts.push(("risk", risk.clone()));
    }
    match &request.delegated.delegation {
        Some(delegation) => {
            facts.extend(
                delegation_parts(delegation).map(|part| (part.label, part.text.to_owned())),
            );
            facts.push(("priority", delegation.priority.as_str().to_owned()));
            facts.push((
                "independence",
                delegation.independence.as_str().replace('_', " "),
            ));
        }
        None => facts.extend(asked.parts.into_iter().map(
            |OperationPart {
                 name: _,
                 label,
                 text,
             }| (label, text),
        )),
    }
    if let Some(context) = &request.content.context {
        facts.push(("context", context.clone()));
    }
    facts.extend(
        request
            .content
            .clarification
            .iter()
            .flat_map(clarification_parts)
            .map(|part| (part.label, part.text.to_owned())),
    );
    for (label, value) in facts {
        html.push_str(&format!(
            "<h2>{}</h2><pre class=\"preview\" tabindex=\"0\">{}</pre>",
            escape_html(label),
            escape_html(&value)
        ));
    }
    html.push_str(&match request.kind.known() {
        Some(RequestKind::Approval | RequestKind::Delegation) => decision_form(request),
        Some(RequestKind::Question) | None => question_forms(request),
    });
    let default = request
        .content
        .default
        .as_ref()
        .map(|default| format!(" Without an answer, it gets: {}", escape_html(default)))
        .unwrap_or_default();
    html.push_str(&format!(
        "<p class=\"dim\">Open until {}.{default}</p>",
        escape_html(&shown_time(&request.times.expires_at))
    ));
    html
}

/// Shows a time to the minute.
fn shown_time(time: &str) -> String {
    clock::parse_rfc3339(time).map_or_else(|| time.to_owned(), clock::to_the_minute)
}

fn question_forms(request: &RequestView) -> String {
    let mut html = String::new();
    if !request.content.options.is_empty() {
        html.push_str("<form method=\"post\" class=\"choices\" aria-label=\"Options\">");
        for (option, number) in request.content.options.iter().zip(1..) {
            html.push_str(&format!(
                "<button name=\"option\" value=\"{number}\" class=\"said\">{}</button>",
                escape_html(option)
            ));
        }
        html.push_str("</form>");
    }
    html.push_str(
        "<form method=\"post\"><label for=\"answer\">Answer in words</label><textarea id=\"answer\" name=\"answer\" rows=\"3\" maxlength=\"10000\" required></textarea>\
         <button class=\"good\">Send the answer</button></form>",
    );
    html
}

fn decision_form(request: &RequestView) -> String {
    let mut options = String::new();
    for (option, number) in request.content.options.iter().zip(1..) {
        options.push_str(&format!(
            "<p class=\"said\">{number}) {}</p>",
            escape_html(option)
        ));
    }
    // In a text area, Enter makes a line and decides nothing.
    format!(
        "{options}<form method=\"post\"><label for=\"reason\">Reason or note (optional)</label><textarea id=\"reason\" name=\"reason\" rows=\"2\" maxlength=\"10000\">\
         </textarea><div class=\"decide\"><button class=\"good\" name=\"decision\" value=\"approve\">Approve</button>\
         <button class=\"bad\" name=\"decision\" value=\"deny\">Deny</button></div></form>"
    )
}

/// Sanitizes a text like a terminal's, and escapes it for HTML.
fn escape_html(given: &str) -> String {
    let mut out = String::with_capacity(given.len());
    for c in text::block(given).chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            c => out.push(c),
        }
    }
    out
}

/// Returns a page. `content` is HTML. The title of the window says nothing of the request.
fn page(status: StatusCode, heading: &str, content: &str) -> Response {
    let html = format!(
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n<title>Adjutant</title>\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n<meta name=\"color-scheme\" content=\"light dark\">\n\
         <meta name=\"robots\" content=\"noindex\">\n<link rel=\"icon\" href=\"/icon.svg\" type=\"image/svg+xml\">\n\
         <link rel=\"stylesheet\" href=\"/app.css\">\n<link rel=\"stylesheet\" href=\"/answer.css\">\n</head>\n<body>\n<main class=\"answer\">\n\
         <p class=\"brand dim\">Adjutant</p>\n<h1>{}</h1>\n{content}\n</main>\n</body>\n</html>\n",
        escape_html(heading)
    );
    let mut response = (status, html).into_response();
    let headers = response.headers_mut();
    headers.insert(
        CONTENT_TYPE,
        HeaderValue::from_static("text/html; charset=utf-8"),
    );
    headers.insert(CONTENT_SECURITY_POLICY, HeaderValue::from_static(POLICY));
    // With `no-referrer`, browsers send no origin with a form.
    headers.insert(REFERRER_POLICY, HeaderValue::from_static("same-origin"));
    headers.insert(
        HeaderName::from_static("cross-origin-opener-policy"),
        HeaderValue::from_static("same-origin"),
    );
    headers.insert(
        HeaderName::from_static("x-robots-tag"),
        HeaderValue::from_static("noindex"),
    );
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn form_has_one_answer() {
        assert_eq!(parse_form("option=2"), Some(LinkAnswer::Option(2)));
        assert_eq!(
            parse_form("answer=a+b%2Bc%0D%0Ad"),
            Some(LinkAnswer::Words("a b+c\nd".to_owned()))
        );
        let denied = LinkAnswer::Decision {
            decision: DecisionWord::Deny,
            reason: "not now".to_owned(),
        };
        assert_eq!(parse_form("reason=not+now&decision=deny"), Some(denied));
        for bad in [
            "",
            "option",
            "option=",
            "option=-1",
            "option=x",
            "option=1&option=2",
            "option=1&answer=x",
            "option=1&decision=approve",
            "decision=yes",
            "reason=x",
            "answer=%zz",
            "answer=%ff",
            "run=x",
            "answer=x&content_hash=1",
        ] {
            assert_eq!(parse_form(bad), None, "{bad}");
        }
    }

    #[test]
    fn limits_of_valid_and_unknown_codes_are_apart() {
        let (links, now) = (Links::default(), Instant::now());
        assert!((0..UNKNOWN_MAX).all(|_| links.count(false, now)) && !links.count(false, now));
        assert!((0..VALID_MAX).all(|_| links.count(true, now)) && !links.count(true, now));
        assert!(links.count(false, now + PERIOD) && links.count(true, now + PERIOD));
    }

    #[test]
    fn texts_are_escaped() {
        assert_eq!(
            escape_html("<b a='\"'>&\u{1b}[31mx\u{202e}"),
            "&lt;b a=&#39;&quot;&#39;&gt;&amp;x\u{fffd}"
        );
    }
}
