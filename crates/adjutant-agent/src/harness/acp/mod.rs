//! A client of the Agent Client Protocol, version 1: one session, one prompt.
//!
//! ```text
//!  initialize ─ (authenticate) ─ session/new, load or resume ─ (set_mode, set_config_option) ─ session/prompt ─ close
//! ```
//! JSON-RPC is implemented here: seven requests of Adjutant, and one of the agent. The official
//! crate, `agent-client-protocol` 5.0.0, would replace about 150 lines and add 17,000 lines and 30
//! packages that nothing else needs.

mod call;
mod elicitation;
mod form;
pub mod handshake;
mod modes;
mod permission;
mod report;
mod update;

use super::operation::ShellDirectories;
use super::own_tools::OwnTools;
use super::step::{Step, line};
use adjutant_core::{Permissions, quote};
use call::Call;
use elicitation::PendingElicitation;
use modes::{Change, Setting};
use permission::PendingPermission;
use report::ReportedCalls;
use serde_json::{Value, json};
use std::collections::{BTreeMap, VecDeque};
use std::path::PathBuf;

/// Maximum number of calls whose reports are kept. The oldest are dropped first.
const CALLS_KEPT_MAX: usize = 256;
/// The protocol's error code for a cancelled request.
const REQUEST_CANCELLED: i64 = -32800;
/// The protocol's error code for a missing sign-in.
const AUTH_REQUIRED: i64 = -32000;
/// Prefix of the failure if no mode of the agent enforces the run's profile.
const UNSUPPORTED: &str = "unsupported profile";
/// The protocol's error code for an unknown method.
const METHOD_NOT_FOUND: i64 = -32601;
/// The notification that cancels a request.
const CANCEL_REQUEST: &str = "$/cancel_request";
/// How often an agent that ends its turn after a denial is asked to continue.
const CONTINUATIONS_MAX: u32 = 16;

/// The parameters of a session.
#[derive(Debug, Clone)]
pub struct SessionStart {
    pub cwd: PathBuf,
    /// The session to resume.
    pub session: Option<String>,
    /// The prompt for a new session, if `session` is missing.
    pub new_session_prompt: Option<String>,
    /// The mode that the preset names. `None`: one of the agent's modes is chosen.
    pub mode: Option<String>,
    pub permissions: Permissions,
    pub authenticate: Option<String>,
    /// Prefixes of the titles of edits, for an agent that does not mark edits otherwise.
    pub edit_titles: Vec<String>,
    /// The agent reports a call's input as JSON text in its content, and as `rawInput` only once
    /// the call runs.
    pub input_in_content: bool,
    /// A call's title is the name of its tool, `: ` and the beginning of its input.
    pub input_in_titles: bool,
    pub mcp_url: String,
    pub mcp_token: String,
    /// The MCP server as a program and its arguments, for an agent without MCP over HTTP.
    pub mcp_command: Vec<String>,
    /// The tools that are offered to the agent.
    pub own_tools: OwnTools,
}

/// The last request that was sent.
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

/// An allowed call, as it was when it was allowed.
#[derive(Debug)]
struct AllowedCall {
    call_id: String,
    call: Call,
    /// It was allowed as one of Adjutant's tools, and must remain one.
    is_own_tool: bool,
}

#[derive(Debug)]
pub struct Acp {
    start: SessionStart,
    stage: Stage,
    prompt: String,
    session: String,
    http: bool,
    /// The agent resumes sessions by `session/resume`.
    resumes: bool,
    /// The agent's sign-in methods.
    sign_in: Vec<String>,
    /// The agent's settings, with their current values.
    settings: Vec<Setting>,
    /// Changes of settings to make before the prompt.
    changes: VecDeque<Change>,
    /// Permission requests without a response.
    permissions: BTreeMap<String, PendingPermission>,
    /// Elicitations without a response.
    elicitations: BTreeMap<String, PendingElicitation>,
    /// The agent was asked to stop its turn.
    is_cancelled: bool,
    /// Unfinished calls that were allowed, the oldest first.
    allowed: VecDeque<AllowedCall>,
    /// The reason of the last denial, until the agent writes text or starts a call.
    denied: Option<String>,
    continuations: u32,
    calls: ReportedCalls,
    shell: ShellDirectories,
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
            calls: ReportedCalls::default(),
            shell: ShellDirectories::default(),
        }
    }

    /// Returns the id of the reply before which text is not part of the answer: it repeats an
    /// earlier attempt or is about the mode.
    #[must_use]
    pub fn answers_after(&self) -> u64 {
        if self.start.mode.is_some() {
            Stage::Mode.id()
        } else {
            Stage::Session.id()
        }
    }

    pub(super) fn opening(&mut self, prompt: &str) -> Vec<u8> {
        prompt.clone_into(&mut self.prompt);
        request(
            Stage::Initialize,
            "initialize",
            &handshake::initialize_params(),
        )
    }

    /// Returns whether the prompt has not been sent yet.
    #[must_use]
    pub(crate) fn is_opening(&self) -> bool {
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
                && let Some(new_session_prompt) = self
                    .start
                    .session
                    .as_ref()
                    .and(self.start.new_session_prompt.take())
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
            Stage::Initialize => self.handle_initialized(result),
            Stage::Authenticate => vec![Step::Write(self.start_session())],
            Stage::Session => self.handle_session(result),
            Stage::Mode => self.handle_changed_setting(result),
            Stage::Prompt => self.handle_turn_end(),
            Stage::Ended => Vec::new(),
        }
    }

    /// Signs in, or starts the session.
    fn handle_initialized(&mut self, result: &Value) -> Vec<Step> {
        if let Err(error) = handshake::check_version(result) {
            return self.fail(error.to_string());
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
                vec![Step::Write(request(
                    self.stage,
                    "authenticate",
                    &json!({ "methodId": method }),
                ))]
            }
            None => vec![Step::Write(self.start_session())],
        }
    }

    /// Chooses the changes of settings that the profile requires, and makes the first.
    fn handle_session(&mut self, result: &Value) -> Vec<Step> {
        if let Some(id) = result["sessionId"]
            .as_str()
            .or(self.start.session.as_deref())
        {
            self.session = id.to_owned();
        }
        if self.session.is_empty() {
            return self.fail("it started a session without an id".to_owned());
        }
        self.settings = modes::settings(result);
        self.changes = match &self.start.mode {
            // Its reply follows everything that loading the session repeats.
            Some(mode) => VecDeque::from([Change {
                method: "session/set_mode",
                params: json!({ "modeId": mode }),
            }]),
            None => match modes::choose(self.start.permissions, &self.settings) {
                Ok(changes) => changes.into(),
                Err(error) => return self.fail(format!("{UNSUPPORTED}: {error}")),
            },
        };
        vec![Step::Write(self.next_change())]
    }

    /// Makes the next change, unless the agent still works without asking after the last one.
    fn handle_changed_setting(&mut self, result: &Value) -> Vec<Step> {
        // The reply may report the new values.
        let now = modes::settings(result);
        if self.start.mode.is_none() && !now.is_empty() {
            self.settings = now;
        }
        if self.changes.is_empty()
            && self.start.mode.is_none()
            && !result["configOptions"].is_null()
            && let Some(mode) = self.never_asks()
        {
            return self.fail(format!(
                "{UNSUPPORTED}: it stays in {mode:?}, which works without asking"
            ));
        }
        vec![Step::Write(self.next_change())]
    }

    /// Ends the dialogue. Some agents end their turn after a denial without passing the reason to
    /// the model: they are asked to continue.
    fn handle_turn_end(&mut self) -> Vec<Step> {
        match self
            .denied
            .take()
            .filter(|_| self.continuations < CONTINUATIONS_MAX)
        {
            Some(why) => {
                self.continuations += 1;
                self.prompt = prompt_after_denial(&why);
                vec![Step::TurnEnded, Step::Write(self.send_prompt())]
            }
            None => {
                self.stage = Stage::Ended;
                vec![Step::Close]
            }
        }
    }

    /// Returns the current mode if it never asks and the profile does not permit that.
    fn never_asks(&self) -> Option<String> {
        if self.start.permissions == Permissions::Full {
            return None;
        }
        modes::mode_that_never_asks(&self.settings).map(str::to_owned)
    }

    /// Sends the next change of a setting, or the prompt if there is none.
    fn next_change(&mut self) -> Vec<u8> {
        let Some(Change { method, mut params }) = self.changes.pop_front() else {
            return self.send_prompt();
        };
        self.stage = Stage::Mode;
        params["sessionId"] = self.session.as_str().into();
        request(self.stage, method, &params)
    }

    /// Handles a refused change: the agent may stay in its current mode unless that never asks.
    fn handle_mode_refusal(&mut self, error: &Value) -> Vec<Step> {
        match self.never_asks() {
            Some(mode) => self.fail(format!(
                "{UNSUPPORTED}: it stays in {mode:?}, which works without asking: {}",
                describe(error)
            )),
            None => vec![Step::Write(self.next_change())],
        }
    }

    fn with_sign_in(&self, why: String) -> String {
        if self.sign_in.is_empty() {
            why
        } else {
            format!("{why}; it signs in by {}", self.sign_in.join(", or "))
        }
    }

    fn fail(&mut self, why: String) -> Vec<Step> {
        self.stage = Stage::Ended;
        vec![Step::Failed(why), Step::Close]
    }

    /// Records that the model has written text, so that it continues after the denial.
    pub(super) fn note_model_text(&mut self) {
        self.denied = None;
    }

    /// Starts a new session with the whole task, since the one to resume is missing.
    fn restart_session(&mut self, prompt: String) -> Vec<Step> {
        self.start.session = None;
        self.prompt = prompt;
        vec![Step::Write(self.start_session())]
    }

    fn start_session(&mut self) -> Vec<u8> {
        self.stage = Stage::Session;
        let SessionStart {
            cwd,
            session,
            mcp_url,
            mcp_token,
            mcp_command,
            ..
        } = &self.start;
        let server = match mcp_command.split_first() {
            Some((program, args)) if !self.http => {
                json!({ "name": "adj", "command": program, "args": args, "env": [] })
            }
            _ => json!({
                "type": "http", "name": "adj", "url": mcp_url,
                "headers": [{ "name": "Authorization", "value": format!("Bearer {mcp_token}") }],
            }),
        };
        let mut params = json!({ "cwd": cwd, "mcpServers": [server] });
        match session {
            Some(session) => {
                params["sessionId"] = session.as_str().into();
                request(
                    self.stage,
                    if self.resumes {
                        "session/resume"
                    } else {
                        "session/load"
                    },
                    &params,
                )
            }
            None => request(self.stage, "session/new", &params),
        }
    }

    fn send_prompt(&mut self) -> Vec<u8> {
        self.stage = Stage::Prompt;
        let prompt = std::mem::take(&mut self.prompt);
        request(
            self.stage,
            "session/prompt",
            &json!({ "sessionId": self.session, "prompt": [{ "type": "text", "text": prompt }] }),
        )
    }

    /// Handles a request of the agent.
    fn handle_request(&mut self, method: &str, incoming: &Value) -> Vec<Step> {
        let Some(id) = incoming.get("id").filter(|id| !id.is_null()) else {
            return Vec::new();
        };
        match method {
            "session/request_permission" => self.ask_permission(id, &incoming["params"]),
            "elicitation/create" => self.elicit(id, &incoming["params"]),
            _ => {
                let error =
                    json!({ "code": METHOD_NOT_FOUND, "message": "not supported by this client" });
                vec![Step::Write(line(
                    &json!({ "jsonrpc": "2.0", "id": id, "error": error }),
                ))]
            }
        }
    }

    /// Handles the agent's cancellation of its own request.
    fn withdraw_request(&mut self, id: &Value) -> Vec<Step> {
        let key = id.to_string();
        let id = match (
            self.permissions.remove(&key),
            self.elicitations.remove(&key),
        ) {
            (Some(asked), _) => asked.id,
            (None, Some(elicited)) => elicited.into_id(),
            (None, None) => return Vec::new(),
        };
        let error = json!({ "code": REQUEST_CANCELLED, "message": "cancelled" });
        vec![
            Step::Withdraw(key),
            Step::Write(line(&json!({ "jsonrpc": "2.0", "id": id, "error": error }))),
        ]
    }

    /// Asks the agent to stop its turn. Without a session there is nothing to stop.
    pub(super) fn cancel(&mut self) -> Option<Vec<u8>> {
        self.denied = None;
        self.continuations = CONTINUATIONS_MAX;
        self.is_cancelled = true;
        if self.session.is_empty() {
            return None;
        }
        let mut bytes = line(
            &json!({ "jsonrpc": "2.0", "method": "session/cancel", "params": { "sessionId": self.session } }),
        );
        if self.stage != Stage::Ended {
            // Agents that support the cancellation of requests reply to this one at once.
            let params = json!({ "requestId": self.stage.id() });
            bytes.extend(line(
                &json!({ "jsonrpc": "2.0", "method": CANCEL_REQUEST, "params": params }),
            ));
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

/// Returns the prompt for an agent whose turn ended after a denial.
fn prompt_after_denial(why: &str) -> String {
    let why = quote::quote_field("What you asked for was denied", why);
    format!(
        "{why}\nContinue without it: finish your task in another way, or report what cannot be done."
    )
}

fn describe(error: &Value) -> String {
    let message = error["message"]
        .as_str()
        .unwrap_or("an error without a message");
    match error.get("data").filter(|data| !data.is_null()) {
        Some(data) => format!(
            "{message} (code {}): {}",
            error["code"],
            data.as_str()
                .map_or_else(|| data.to_string(), str::to_owned)
        ),
        None => format!("{message} (code {})", error["code"]),
    }
}

fn request(at: Stage, method: &str, params: &Value) -> Vec<u8> {
    line(&json!({ "jsonrpc": "2.0", "id": at.id(), "method": method, "params": params }))
}

#[cfg(test)]
mod tests;
