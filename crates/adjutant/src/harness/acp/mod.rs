//! The Agent Client Protocol, version 1, as its client: one session, one prompt.
//!
//! ```text
//!  initialize ─ (authenticate) ─ session/new, load or resume ─ (set_mode, set_config_option) ─ session/prompt ─ close
//! ```
//! JSON-RPC is written by hand: it is seven requests of Adjutant and one of the agent's. The official crate is not used:
//! `agent-client-protocol` 5.0.0 and its schema are 17,000 lines and 30 packages that nothing else here needs, for about
//! 150 lines of these.

mod call;
mod elicitation;
mod form;
pub mod handshake;
mod modes;
mod permission;
mod update;

use super::own_tools::OwnTools;
use super::step::{Step, line};
use adjutant_core::{Permissions, quote};
use call::Call;
use elicitation::PendingElicitation;
use modes::{Change, Setting};
use permission::PendingPermission;
use serde_json::{Value, json};
use std::collections::{BTreeMap, VecDeque};
use std::path::PathBuf;

/// Calls whose reports are kept, the newest.
const CALLS_KEPT_MAX: usize = 256;
/// The protocol's code for a request that was taken back.
const REQUEST_CANCELLED: i64 = -32800;
/// The protocol's code of an error that signing in would mend.
const AUTH_REQUIRED: i64 = -32000;
/// What a failure begins with when no mode of the agent keeps the promise of the run's profile.
const UNSUPPORTED: &str = "unsupported profile";
/// The protocol's code of a method that is not there.
const METHOD_NOT_FOUND: i64 = -32601;
/// The notification that a request's answer is not wanted any more.
const CANCEL_REQUEST: &str = "$/cancel_request";
/// How often an agent that ends its turn after a denial is asked to continue.
const CONTINUATIONS_MAX: u32 = 16;

/// What a session begins with.
#[derive(Debug, Clone)]
pub struct SessionStart {
    pub cwd: PathBuf,
    /// To go on in.
    pub session: Option<String>,
    /// What to say instead, in a new session, should that one be gone.
    pub new_session_prompt: Option<String>,
    /// The mode that the preset names. `None`: one is chosen among those that it lists.
    pub mode: Option<String>,
    pub permissions: Permissions,
    pub authenticate: Option<String>,
    /// How titles of edits begin, for an agent that says it in no other way.
    pub edit_titles: Vec<String>,
    /// A call's input comes as the JSON text of its content, and as `rawInput` only once it runs.
    pub input_in_content: bool,
    pub mcp_url: String,
    pub mcp_token: String,
    /// Instead, for an agent that takes no MCP over HTTP: a program and its arguments.
    pub mcp_command: Vec<String>,
    /// The tools that it is served.
    pub own_tools: OwnTools,
}

/// What the last request of Adjutant was.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    Initialize,
    Authenticate,
    Session,
    Mode,
    Prompt,
    Ended,
}

impl Stage {
    fn id(self) -> u64 {
        match self {
            Self::Initialize => 1,
            Self::Authenticate => 2,
            Self::Session => 3,
            Self::Mode => 4,
            Self::Prompt => 5,
            Self::Ended => 0,
        }
    }
}

/// A call that was allowed, as it was then.
#[derive(Debug)]
struct AllowedCall {
    call_id: String,
    call: Call,
    /// As a tool of Adjutant: it must stay one.
    is_own_tool: bool,
}

#[derive(Debug)]
pub struct Acp {
    start: SessionStart,
    stage: Stage,
    prompt: String,
    session: String,
    http: bool,
    /// It goes on in a session by `session/resume`.
    resumes: bool,
    /// How to sign in, as it says.
    sign_in: Vec<String>,
    /// What it lists that can be set, as it is now.
    settings: Vec<Setting>,
    /// What is still to be set before the prompt.
    changes: VecDeque<Change>,
    /// Permissions that it waits for.
    permissions: BTreeMap<String, PendingPermission>,
    /// Elicitations that it waits for.
    elicitations: BTreeMap<String, PendingElicitation>,
    /// It was asked to stop its turn.
    is_cancelled: bool,
    /// Calls that were allowed and are not over, as they were then, the oldest first.
    allowed: VecDeque<AllowedCall>,
    /// Why it was denied something, as long as it has said and begun nothing since.
    denied: Option<String>,
    continuations: u32,
    /// Its newest tool calls by their ids, as far as they were reported.
    calls: BTreeMap<String, Call>,
    /// Their ids, the oldest first.
    calls_in_order: VecDeque<String>,
}

impl Acp {
    #[must_use]
    pub fn new(start: SessionStart) -> Self {
        Self {
            start,
            stage: Stage::Initialize,
            prompt: String::new(),
            session: String::new(),
            http: false,
            resumes: false,
            sign_in: Vec::new(),
            settings: Vec::new(),
            changes: VecDeque::new(),
            denied: None,
            continuations: 0,
            permissions: BTreeMap::new(),
            elicitations: BTreeMap::new(),
            is_cancelled: false,
            allowed: VecDeque::new(),
            calls: BTreeMap::new(),
            calls_in_order: VecDeque::new(),
        }
    }

    /// Up to the reply with this id its words are no answer: an earlier attempt's, told again, or
    /// remarks about the mode.
    #[must_use]
    pub fn answers_after(&self) -> u64 {
        if self.start.mode.is_some() { Stage::Mode.id() } else { Stage::Session.id() }
    }

    pub(super) fn opening(&mut self, prompt: &str) -> Vec<u8> {
        prompt.clone_into(&mut self.prompt);
        request(Stage::Initialize, "initialize", &handshake::initialize_params())
    }

    /// Tells whether it has not come to its prompt yet.
    #[must_use]
    pub fn is_opening(&self) -> bool {
        !matches!(self.stage, Stage::Prompt | Stage::Ended)
    }

    pub(super) fn receive(&mut self, incoming: &Value) -> Vec<Step> {
        if let Some(method) = incoming["method"].as_str() {
            if method == "session/update" {
                if incoming["params"]["update"]["sessionUpdate"] == "tool_call" {
                    self.denied = None;
                }
                return self.apply_update(&incoming["params"]["update"]);
            }
            if method == CANCEL_REQUEST {
                return self.withdraw_request(&incoming["params"]["requestId"]);
            }
            return self.handle_request(method, incoming);
        }
        if incoming["id"].as_u64() != Some(self.stage.id()) {
            return Vec::new();
        }
        if let Some(error) = incoming.get("error").filter(|error| !error.is_null()) {
            if self.is_cancelled && error["code"] == REQUEST_CANCELLED {
                self.stage = Stage::Ended;
                return vec![Step::Close];
            }
            if self.stage == Stage::Mode {
                return self.handle_mode_refusal(error);
            }
            if self.stage == Stage::Session
                && let Some(new_session_prompt) = self.start.session.as_ref().and(self.start.new_session_prompt.take())
            {
                return self.restart_session(new_session_prompt);
            }
            let why = match error["code"].as_i64() {
                Some(AUTH_REQUIRED) => self.with_sign_in(describe(error)),
                _ => describe(error),
            };
            return self.fail(why);
        }
        self.handle_result(&incoming["result"])
    }

    fn handle_result(&mut self, result: &Value) -> Vec<Step> {
        match self.stage {
            Stage::Initialize => {
                if let Err(why) = handshake::check_version(result) {
                    return self.fail(why);
                }
                let can = handshake::Capabilities::of(result);
                self.http = can.http;
                self.resumes = !can.loads && can.resumes;
                self.sign_in = handshake::sign_in(result);
                if self.start.session.is_some() && !can.loads && !can.resumes {
                    let Some(new_session_prompt) = self.start.new_session_prompt.take() else {
                        return self.fail("session not found: this version cannot load one".to_owned());
                    };
                    self.start.session = None;
                    self.prompt = new_session_prompt;
                }
                match self.start.authenticate.clone() {
                    Some(method) => {
                        self.stage = Stage::Authenticate;
                        vec![Step::Write(request(self.stage, "authenticate", &json!({ "methodId": method })))]
                    }
                    None => vec![Step::Write(self.start_session())],
                }
            }
            Stage::Authenticate => vec![Step::Write(self.start_session())],
            Stage::Session => {
                if let Some(id) = result["sessionId"].as_str().or(self.start.session.as_deref()) {
                    self.session = id.to_owned();
                }
                if self.session.is_empty() {
                    return self.fail("it began a session and gave it no id".to_owned());
                }
                self.settings = modes::settings(result);
                self.changes = match &self.start.mode {
                    // Its reply comes behind everything that loading has told again.
                    Some(mode) => VecDeque::from([Change { method: "session/set_mode", params: json!({ "modeId": mode }) }]),
                    None => match modes::choose(self.start.permissions, &self.settings) {
                        Ok(changes) => changes.into(),
                        Err(why) => return self.fail(format!("{UNSUPPORTED}: {why}")),
                    },
                };
                vec![Step::Write(self.next_change())]
            }
            Stage::Mode => {
                // Where it says how it is set now, that counts.
                let now = modes::settings(result);
                if self.start.mode.is_none() && !now.is_empty() {
                    self.settings = now;
                }
                if self.changes.is_empty()
                    && self.start.mode.is_none()
                    && !result["configOptions"].is_null()
                    && let Some(mode) = self.never_asks()
                {
                    return self.fail(format!("{UNSUPPORTED}: it stays in {mode:?}, which works without asking"));
                }
                vec![Step::Write(self.next_change())]
            }
            Stage::Prompt => match self.denied.take().filter(|_| self.continuations < CONTINUATIONS_MAX) {
                // Some give their turn up over a denial, without telling their model why.
                Some(why) => {
                    self.continuations += 1;
                    self.prompt = prompt_after_denial(&why);
                    vec![Step::Write(self.send_prompt())]
                }
                None => {
                    self.stage = Stage::Ended;
                    vec![Step::Close]
                }
            },
            Stage::Ended => Vec::new(),
        }
    }

    /// Names the mode that it works in without asking, unless that is permitted.
    fn never_asks(&self) -> Option<String> {
        if self.start.permissions == Permissions::Full {
            return None;
        }
        modes::mode_that_never_asks(&self.settings).map(str::to_owned)
    }

    /// Sets what is to be set next, or says the prompt.
    fn next_change(&mut self) -> Vec<u8> {
        let Some(Change { method, mut params }) = self.changes.pop_front() else { return self.send_prompt() };
        self.stage = Stage::Mode;
        params["sessionId"] = self.session.as_str().into();
        request(self.stage, method, &params)
    }

    /// It works in its own mode then, if that is not known to work without asking.
    fn handle_mode_refusal(&mut self, error: &Value) -> Vec<Step> {
        match self.never_asks() {
            Some(mode) => self.fail(format!("{UNSUPPORTED}: it stays in {mode:?}, which works without asking: {}", describe(error))),
            None => vec![Step::Write(self.next_change())],
        }
    }

    fn with_sign_in(&self, why: String) -> String {
        if self.sign_in.is_empty() { why } else { format!("{why}; it signs in by {}", self.sign_in.join(", or ")) }
    }

    fn fail(&mut self, why: String) -> Vec<Step> {
        self.stage = Stage::Ended;
        vec![Step::Failed(why), Step::Close]
    }

    /// Its model speaks: it continues after the decision.
    pub(super) fn note_model_text(&mut self) {
        self.denied = None;
    }

    /// The session is gone: a new one gets the whole task.
    fn restart_session(&mut self, prompt: String) -> Vec<Step> {
        self.start.session = None;
        self.prompt = prompt;
        vec![Step::Write(self.start_session())]
    }

    fn start_session(&mut self) -> Vec<u8> {
        self.stage = Stage::Session;
        let SessionStart { cwd, session, mcp_url, mcp_token, mcp_command, .. } = &self.start;
        let server = match mcp_command.split_first() {
            Some((program, args)) if !self.http => json!({ "name": "adj", "command": program, "args": args, "env": [] }),
            _ => json!({
                "type": "http", "name": "adj", "url": mcp_url,
                "headers": [{ "name": "Authorization", "value": format!("Bearer {mcp_token}") }],
            }),
        };
        let mut params = json!({ "cwd": cwd, "mcpServers": [server] });
        match session {
            Some(session) => {
                params["sessionId"] = session.as_str().into();
                request(self.stage, if self.resumes { "session/resume" } else { "session/load" }, &params)
            }
            None => request(self.stage, "session/new", &params),
        }
    }

    fn send_prompt(&mut self) -> Vec<u8> {
        self.stage = Stage::Prompt;
        let prompt = std::mem::take(&mut self.prompt);
        request(self.stage, "session/prompt", &json!({ "sessionId": self.session, "prompt": [{ "type": "text", "text": prompt }] }))
    }

    /// Takes a request of the agent's.
    fn handle_request(&mut self, method: &str, incoming: &Value) -> Vec<Step> {
        let Some(id) = incoming.get("id").filter(|id| !id.is_null()) else { return Vec::new() };
        match method {
            "session/request_permission" => self.ask_permission(id, &incoming["params"]),
            "elicitation/create" => self.elicit(id, &incoming["params"]),
            _ => {
                let error = json!({ "code": METHOD_NOT_FOUND, "message": "not supported by this client" });
                vec![Step::Write(line(&json!({ "jsonrpc": "2.0", "id": id, "error": error })))]
            }
        }
    }

    /// Takes back a request of the agent's that it does not want an answer to any more.
    fn withdraw_request(&mut self, id: &Value) -> Vec<Step> {
        let key = id.to_string();
        let id = match (self.permissions.remove(&key), self.elicitations.remove(&key)) {
            (Some(asked), _) => asked.id,
            (None, Some(elicited)) => elicited.into_id(),
            (None, None) => return Vec::new(),
        };
        let error = json!({ "code": REQUEST_CANCELLED, "message": "cancelled" });
        vec![Step::Withdraw(key), Step::Write(line(&json!({ "jsonrpc": "2.0", "id": id, "error": error })))]
    }

    /// Asks the agent to stop its turn. Before its session there is nothing to be said.
    pub(super) fn cancel(&mut self) -> Option<Vec<u8>> {
        self.denied = None;
        self.continuations = CONTINUATIONS_MAX;
        self.is_cancelled = true;
        if self.session.is_empty() {
            return None;
        }
        let mut bytes = line(&json!({ "jsonrpc": "2.0", "method": "session/cancel", "params": { "sessionId": self.session } }));
        if self.stage != Stage::Ended {
            // Agents that know requests to be cancelled one by one answer this one at once.
            let params = json!({ "requestId": self.stage.id() });
            bytes.extend(line(&json!({ "jsonrpc": "2.0", "method": CANCEL_REQUEST, "params": params })));
        }
        for elicited in std::mem::take(&mut self.elicitations).into_values() {
            bytes.extend(elicited.cancelled());
        }
        for PendingPermission { id, .. } in std::mem::take(&mut self.permissions).into_values() {
            bytes.extend(line(&json!({ "jsonrpc": "2.0", "id": id, "result": { "outcome": { "outcome": "cancelled" } } })));
        }
        Some(bytes)
    }
}

/// What is said to an agent whose turn ended with a denial.
fn prompt_after_denial(why: &str) -> String {
    let why = quote::quote_field("What you asked for was denied", why);
    format!("{why}\nGo on without it: finish your task in another way, or report what cannot be done.")
}

fn describe(error: &Value) -> String {
    let message = error["message"].as_str().unwrap_or("an error without a message");
    match error.get("data").filter(|data| !data.is_null()) {
        Some(data) => format!("{message} (code {}): {}", error["code"], data.as_str().map_or_else(|| data.to_string(), str::to_owned)),
        None => format!("{message} (code {})", error["code"]),
    }
}

fn request(at: Stage, method: &str, params: &Value) -> Vec<u8> {
    line(&json!({ "jsonrpc": "2.0", "id": at.id(), "method": method, "params": params }))
}

#[cfg(test)]
mod tests;
