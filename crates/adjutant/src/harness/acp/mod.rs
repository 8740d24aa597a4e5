//! The Agent Client Protocol, version 1, as its client: one session, one prompt.
//!
//! ```text
//!  initialize ─ (authenticate) ─ session/new, load or resume ─ (set_mode, set_config_option) ─ session/prompt ─ close
//! ```
//! JSON-RPC is written by hand: it is seven requests of ours and one of the agent's. The official crate is not used:
//! `agent-client-protocol` 5.0.0 and its schema are 17,000 lines and 30 packages that nothing else here needs, for about
//! 150 lines of these.

pub mod handshake;
mod modes;

use super::dialogue::{Changed, Decision, Permission, Step, line, named_within};
use super::own_tools::OwnTools;
use adjutant_core::{Permissions, quote};
use modes::{Change, Setting};
use serde_json::{Value, json};
use std::collections::{BTreeMap, VecDeque};
use std::path::{Path, PathBuf};

/// Calls whose reports are kept, the newest.
const CALLS_KEPT_MAX: usize = 256;
/// Titles that are kept of one call.
const TITLES_MAX: usize = 16;
/// How often a call may change while it waits to be allowed.
const CHANGES_MAX: u32 = 8;
/// The protocol's code for a request that was taken back.
const REQUEST_CANCELLED: i64 = -32800;
/// The protocol's code of an error that signing in would mend.
const AUTH_REQUIRED: i64 = -32000;
/// What a failure begins with when no mode of the agent keeps the promise of the run's profile.
const UNSUPPORTED: &str = "unsupported profile";
/// How often an agent that gives its turn up over a denial is told to go on.
const GO_ONS_MAX: u32 = 16;

/// What a session begins with.
#[derive(Debug, Clone)]
pub struct Begin {
    pub cwd: PathBuf,
    /// To go on in.
    pub session: Option<String>,
    /// What to say instead, in a new session, should that one be gone.
    pub anew: Option<String>,
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

/// What an agent has reported of one tool call, in all its messages about it.
#[derive(Debug, Clone, Default)]
struct Call {
    /// Every title that it has had, in order.
    titles: Vec<String>,
    kind: String,
    input: Value,
    /// The text of its content before it runs.
    pending_text: Option<String>,
    content: Value,
    locations: Value,
    meta: Value,
}

impl Call {
    /// Takes in what a message says of the call: what it leaves out stays as it was.
    fn merge(&mut self, said: &Value) {
        if let Some(title) = said["title"].as_str()
            && !self.titles.iter().any(|known| known == title)
        {
            // One too many is none of ours: the last place tells that there were more.
            self.titles.truncate(TITLES_MAX - 1);
            self.titles.push(title.to_owned());
        }
        if let Some(kind) = said["kind"].as_str() {
            kind.clone_into(&mut self.kind);
        }
        if matches!(said["status"].as_str(), Some("pending" | "in_progress")) {
            self.pending_text = only_text(&said["content"]).map(str::to_owned);
        }
        for (field, kept) in
            [("rawInput", &mut self.input), ("content", &mut self.content), ("locations", &mut self.locations), ("_meta", &mut self.meta)]
        {
            if !said[field].is_null() {
                *kept = said[field].clone();
            }
        }
    }

    /// Takes the input from the text that came before it, and with it all that the content says. A text
    /// that is no JSON stays one: it names no file, and is no input of ours.
    fn read_input_in_content(&mut self) {
        if self.input.is_null()
            && let Some(text) = self.pending_text.take().filter(|text| !text.is_empty())
        {
            self.input = serde_json::from_str(&text).unwrap_or(Value::String(text));
            if only_text(&self.content).is_some() {
                self.content = Value::Null;
            }
        }
    }

    /// What it is called now.
    fn name(&self) -> String {
        self.titles.last().cloned().unwrap_or_else(|| "a tool".to_owned())
    }

    /// Tells whether somebody who was shown this call has not seen another one.
    fn is_shown_otherwise(&self, other: &Self) -> bool {
        (&self.kind, &self.input, &self.content, &self.locations, self.titles.last())
            != (&other.kind, &other.input, &other.content, &other.locations, other.titles.last())
    }

    /// Tells whether another call has other input or changes other files. What only becomes known, and what it puts
    /// out, is no difference.
    fn does_otherwise(&self, other: &Self) -> bool {
        let files = |call: &Self| -> Vec<Value> {
            let parts = call.content.as_array().map(Vec::as_slice).unwrap_or_default();
            parts.iter().filter(|part| part["type"] == "diff").map(|part| part["path"].clone()).collect()
        };
        let (before, now) = (files(self), files(other));
        !is_empty(&self.input) && self.input != other.input || !before.is_empty() && now.iter().any(|file| !before.contains(file))
    }

    /// What the call would do, whole: its input, and the content where that says more.
    fn shown(&self) -> String {
        match (is_empty(&self.input), is_empty(&self.content)) {
            (false, true) => self.input.to_string(),
            (true, false) => self.content.to_string(),
            (false, false) => format!("{}\n{}", self.input, self.content),
            (true, true) => String::new(),
        }
    }
}

fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Array(items) => items.is_empty(),
        Value::Object(fields) => fields.is_empty(),
        _ => false,
    }
}

/// A permission that it waits for.
#[derive(Debug, Clone)]
struct Asked {
    /// As it gave it.
    id: Value,
    options: Value,
    /// It is about a tool of ours.
    is_ours: bool,
    call_id: Option<String>,
    /// As it was shown.
    call: Call,
    /// How often it has changed since it was asked for.
    changes: u32,
}

/// What the last request of ours was.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum At {
    Initialize,
    Authenticate,
    Session,
    Mode,
    Prompt,
    Over,
}

impl At {
    fn id(self) -> u64 {
        match self {
            Self::Initialize => 1,
            Self::Authenticate => 2,
            Self::Session => 3,
            Self::Mode => 4,
            Self::Prompt => 5,
            Self::Over => 0,
        }
    }
}

#[derive(Debug)]
pub struct Acp {
    begin: Begin,
    at: At,
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
    asked: BTreeMap<String, Asked>,
    /// Calls that were allowed and are not over, as they were then, the oldest first.
    allowed: VecDeque<(String, Call)>,
    /// Why it was denied something, as long as it has said and begun nothing since.
    denied: Option<String>,
    go_ons: u32,
    /// Its newest tool calls by their ids, as far as they were reported.
    calls: BTreeMap<String, Call>,
    /// Their ids, the oldest first.
    calls_in_order: VecDeque<String>,
}

impl Acp {
    #[must_use]
    pub fn new(begin: Begin) -> Self {
        Self {
            begin,
            at: At::Initialize,
            prompt: String::new(),
            session: String::new(),
            http: false,
            resumes: false,
            sign_in: Vec::new(),
            settings: Vec::new(),
            changes: VecDeque::new(),
            denied: None,
            go_ons: 0,
            asked: BTreeMap::new(),
            allowed: VecDeque::new(),
            calls: BTreeMap::new(),
            calls_in_order: VecDeque::new(),
        }
    }

    /// Up to the reply with this id its words are no answer: an earlier attempt's, told again, or
    /// remarks about the mode.
    #[must_use]
    pub fn answers_after(&self) -> u64 {
        if self.begin.mode.is_some() { At::Mode.id() } else { At::Session.id() }
    }

    pub(super) fn opening(&mut self, prompt: &str) -> Vec<u8> {
        prompt.clone_into(&mut self.prompt);
        request(At::Initialize, "initialize", &handshake::initialize_params())
    }

    /// Tells whether it has not come to its prompt yet.
    #[must_use]
    pub fn is_opening(&self) -> bool {
        !matches!(self.at, At::Prompt | At::Over)
    }

    pub(super) fn hear(&mut self, said: &Value) -> Vec<Step> {
        if let Some(method) = said["method"].as_str() {
            if method == "session/update" {
                if said["params"]["update"]["sessionUpdate"] == "tool_call" {
                    self.denied = None;
                }
                return self.updated(&said["params"]["update"]);
            }
            if method == "$/cancel_request" {
                return self.takes_back(&said["params"]["requestId"]);
            }
            return self.asked(method, said);
        }
        if said["id"].as_u64() != Some(self.at.id()) {
            return Vec::new();
        }
        if let Some(error) = said.get("error").filter(|error| !error.is_null()) {
            if self.at == At::Mode {
                return self.mode_refused(error);
            }
            if self.at == At::Session
                && let Some(anew) = self.begin.session.as_ref().and(self.begin.anew.take())
            {
                return self.begin_anew(anew);
            }
            let why = match error["code"].as_i64() {
                Some(AUTH_REQUIRED) => self.with_sign_in(describe(error)),
                _ => describe(error),
            };
            return self.fail(why);
        }
        self.goes_on(&said["result"])
    }

    fn goes_on(&mut self, result: &Value) -> Vec<Step> {
        match self.at {
            At::Initialize => {
                if let Err(why) = handshake::check_version(result) {
                    return self.fail(why);
                }
                let can = handshake::Capabilities::of(result);
                self.http = can.http;
                self.resumes = !can.loads && can.resumes;
                self.sign_in = handshake::sign_in(result);
                if self.begin.session.is_some() && !can.loads && !can.resumes {
                    let Some(anew) = self.begin.anew.take() else {
                        return self.fail("session not found: this version cannot load one".to_owned());
                    };
                    self.begin.session = None;
                    self.prompt = anew;
                }
                match self.begin.authenticate.clone() {
                    Some(method) => {
                        self.at = At::Authenticate;
                        vec![Step::Write(request(self.at, "authenticate", &json!({ "methodId": method })))]
                    }
                    None => vec![Step::Write(self.begin_session())],
                }
            }
            At::Authenticate => vec![Step::Write(self.begin_session())],
            At::Session => {
                if let Some(id) = result["sessionId"].as_str().or(self.begin.session.as_deref()) {
                    self.session = id.to_owned();
                }
                if self.session.is_empty() {
                    return self.fail("it began a session and gave it no id".to_owned());
                }
                self.settings = modes::settings(result);
                self.changes = match &self.begin.mode {
                    // Its reply comes behind everything that loading has told again.
                    Some(mode) => VecDeque::from([Change { method: "session/set_mode", params: json!({ "modeId": mode }) }]),
                    None => match modes::choose(self.begin.permissions, &self.settings) {
                        Ok(changes) => changes.into(),
                        Err(why) => return self.fail(format!("{UNSUPPORTED}: {why}")),
                    },
                };
                vec![Step::Write(self.next_change())]
            }
            At::Mode => {
                // Where it says how it is set now, that counts.
                let now = modes::settings(result);
                if self.begin.mode.is_none() && !now.is_empty() {
                    self.settings = now;
                }
                if self.changes.is_empty()
                    && self.begin.mode.is_none()
                    && !result["configOptions"].is_null()
                    && let Some(mode) = self.is_unasking()
                {
                    return self.fail(format!("{UNSUPPORTED}: it stays in {mode:?}, which works without asking"));
                }
                vec![Step::Write(self.next_change())]
            }
            At::Prompt => match self.denied.take().filter(|_| self.go_ons < GO_ONS_MAX) {
                // Some give their turn up over a denial, without telling their model why.
                Some(why) => {
                    self.go_ons += 1;
                    self.prompt = after_denial(&why);
                    vec![Step::Write(self.send_prompt())]
                }
                None => {
                    self.at = At::Over;
                    vec![Step::Close]
                }
            },
            At::Over => Vec::new(),
        }
    }

    /// Names the mode that it works in without asking, unless that is permitted.
    fn is_unasking(&self) -> Option<String> {
        if self.begin.permissions == Permissions::Full {
            return None;
        }
        modes::unasking(&self.settings).map(str::to_owned)
    }

    /// Sets what is to be set next, or says the prompt.
    fn next_change(&mut self) -> Vec<u8> {
        let Some(Change { method, mut params }) = self.changes.pop_front() else { return self.send_prompt() };
        self.at = At::Mode;
        params["sessionId"] = self.session.as_str().into();
        request(self.at, method, &params)
    }

    /// It works in its own mode then, if that is not known to work without asking.
    fn mode_refused(&mut self, error: &Value) -> Vec<Step> {
        match self.is_unasking() {
            Some(mode) => self.fail(format!("{UNSUPPORTED}: it stays in {mode:?}, which works without asking: {}", describe(error))),
            None => vec![Step::Write(self.next_change())],
        }
    }

    fn with_sign_in(&self, why: String) -> String {
        if self.sign_in.is_empty() { why } else { format!("{why}; it signs in by {}", self.sign_in.join(", or ")) }
    }

    fn fail(&mut self, why: String) -> Vec<Step> {
        self.at = At::Over;
        vec![Step::Failed(why), Step::Close]
    }

    /// Its model speaks: it goes on after whatever was decided.
    pub(super) fn hear_words(&mut self) {
        self.denied = None;
    }

    /// The session is gone: the whole task is told, in a new one.
    fn begin_anew(&mut self, prompt: String) -> Vec<Step> {
        self.begin.session = None;
        self.prompt = prompt;
        vec![Step::Write(self.begin_session())]
    }

    fn begin_session(&mut self) -> Vec<u8> {
        self.at = At::Session;
        let Begin { cwd, session, mcp_url, mcp_token, mcp_command, .. } = &self.begin;
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
                request(self.at, if self.resumes { "session/resume" } else { "session/load" }, &params)
            }
            None => request(self.at, "session/new", &params),
        }
    }

    fn send_prompt(&mut self) -> Vec<u8> {
        self.at = At::Prompt;
        let prompt = std::mem::take(&mut self.prompt);
        request(self.at, "session/prompt", &json!({ "sessionId": self.session, "prompt": [{ "type": "text", "text": prompt }] }))
    }

    fn asked(&mut self, method: &str, said: &Value) -> Vec<Step> {
        let Some(id) = said.get("id").filter(|id| !id.is_null()) else { return Vec::new() };
        if method != "session/request_permission" {
            let error = json!({ "code": -32601, "message": "not supported by this client" });
            return vec![Step::Write(line(&json!({ "jsonrpc": "2.0", "id": id, "error": error })))];
        }
        let (call, options) = (&said["params"]["toolCall"], &said["params"]["options"]);
        if self.asked.remove(&id.to_string()).is_some() {
            // Nobody can tell which of them an answer is for.
            let refused = line(&json!({ "jsonrpc": "2.0", "id": id, "result": { "outcome": { "outcome": "cancelled" } } }));
            let note = "! two permission requests with one id: both are refused".to_owned();
            return vec![Step::Withdraw(id.to_string()), Step::Note(note), Step::Write(refused.repeat(2))];
        }
        let call_id = call["toolCallId"].as_str().map(str::to_owned);
        // What it said of the call before belongs to what is decided about.
        let call = self.report(call);
        let tool = call.name();
        let is_ours = self.begin.own_tools.is_call(&call.kind, &call.titles, &call.meta, &call.input);
        let edits = self.edits(&call);
        let asked = Asked { id: id.clone(), options: options.clone(), is_ours, call_id, call: call.clone(), changes: 0 };
        self.asked.insert(id.to_string(), asked);
        if !self.is_whole(&call, is_ours) || is_choice(options) {
            let why = if is_choice(options) {
                "ask your parent with ask_parent"
            } else {
                "only the beginning of it was told: do it yourself, without a sub-agent"
            };
            return self.decide(&id.to_string(), &Decision::Deny(why.to_owned())).map(Step::Write).into_iter().collect();
        }
        vec![Step::Permission(Permission { id: id.to_string(), tool, input: call.shown(), is_ours, edits })]
    }

    /// Takes in what it reports, and looks whether a call is still the one that was asked for, or allowed.
    fn updated(&mut self, update: &Value) -> Vec<Step> {
        if let Some(mode) = self.unasking_mode_of(update) {
            let cancel = self.cancel().map(Step::Write);
            let failed = self.fail(format!("{UNSUPPORTED}: it changed to {mode:?}, which works without asking"));
            return cancel.into_iter().chain(failed).collect();
        }
        let Some(call_id) = update["toolCallId"].as_str() else {
            self.report(update);
            return Vec::new();
        };
        let call = self.report(update);
        let is_changed = |asked: &Asked| asked.call_id.as_deref() == Some(call_id) && asked.call.is_shown_otherwise(&call);
        let changed: Vec<String> = self.asked.iter().filter(|(_, asked)| is_changed(asked)).map(|(id, _)| id.clone()).collect();
        let mut steps: Vec<Step> = changed.into_iter().flat_map(|id| self.ask_again(&id, &call)).collect();
        if let Some(allowed) = self.allowed.iter_mut().find(|(id, _)| id == call_id).map(|(_, call)| call)
            && allowed.does_otherwise(&call)
        {
            let tool = allowed.name();
            steps.push(Step::Changed(Changed { tool, allowed: allowed.shown(), now: call.shown() }));
            *allowed = call;
        }
        if matches!(update["status"].as_str(), Some("completed" | "failed")) {
            self.allowed.retain(|(id, _)| id != call_id);
        }
        steps
    }

    /// Names the mode that the agent says it changed to by itself while it works, if that one does not ask and the
    /// profile does not permit it. A preset's own mode is the one that its profile was tried with.
    fn unasking_mode_of(&self, update: &Value) -> Option<String> {
        if self.at != At::Prompt || self.begin.permissions == Permissions::Full {
            return None;
        }
        let mode = match update["sessionUpdate"].as_str()? {
            "current_mode_update" => update["currentModeId"].as_str().filter(|id| modes::is_unasking(&self.settings, id))?.to_owned(),
            "config_option_update" => modes::unasking(&modes::settings(update))?.to_owned(),
            _ => return None,
        };
        (self.begin.mode.as_deref() != Some(mode.as_str())).then_some(mode)
    }

    /// Tells whether all of a call is known that is asked for.
    fn is_whole(&self, call: &Call, is_ours: bool) -> bool {
        is_ours || !self.begin.input_in_content || !call.input.is_null()
    }

    /// A call that waits for a permission has changed: what was shown of it is asked for no more.
    fn ask_again(&mut self, id: &str, call: &Call) -> Vec<Step> {
        let is_ours = self.begin.own_tools.is_call(&call.kind, &call.titles, &call.meta, &call.input);
        let (edits, is_whole) = (self.edits(call), self.is_whole(call, is_ours));
        let Some(asked) = self.asked.get_mut(id) else { return Vec::new() };
        asked.changes += 1;
        if asked.changes > CHANGES_MAX || !is_whole {
            let note = format!("! {} changed too often, or without showing its input, while it waited for approval: refused", call.name());
            let refused = self.decide(id, &Decision::Deny(String::new()));
            return [Step::Withdraw(id.to_owned()), Step::Note(note)].into_iter().chain(refused.map(Step::Write)).collect();
        }
        asked.call.clone_from(call);
        asked.is_ours = is_ours;
        vec![Step::Permission(Permission { id: id.to_owned(), tool: call.name(), input: call.shown(), is_ours, edits })]
    }

    /// It does not want an answer any more.
    fn takes_back(&mut self, id: &Value) -> Vec<Step> {
        let Some(asked) = self.asked.remove(&id.to_string()) else { return Vec::new() };
        let error = json!({ "code": REQUEST_CANCELLED, "message": "cancelled" });
        vec![Step::Withdraw(id.to_string()), Step::Write(line(&json!({ "jsonrpc": "2.0", "id": asked.id, "error": error })))]
    }

    /// Takes in what a message says of a tool call, and returns all that is known of that call.
    fn report(&mut self, said: &Value) -> Call {
        let Some(id) = said["toolCallId"].as_str() else {
            let mut call = Call::default();
            call.merge(said);
            return call;
        };
        if !self.calls.contains_key(id) {
            self.calls_in_order.push_back(id.to_owned());
            if self.calls_in_order.len() > CALLS_KEPT_MAX
                && let Some(oldest) = self.calls_in_order.pop_front()
            {
                self.calls.remove(&oldest);
            }
        }
        let call = self.calls.entry(id.to_owned()).or_default();
        call.merge(said);
        let mut call = call.clone();
        if self.begin.input_in_content {
            call.read_input_in_content();
        }
        call
    }

    /// Only where every file is named, and to go by its name lies in the run's directory.
    fn edits(&self, call: &Call) -> Vec<PathBuf> {
        let has_edit_title = || {
            !call.titles.is_empty()
                && call.titles.iter().all(|title| self.begin.edit_titles.iter().any(|beginning| title.starts_with(beginning.as_str())))
        };
        let says_so = call.kind == "edit" || call.kind == "other" && has_edit_title();
        let items = |list: &Value| list.as_array().cloned().unwrap_or_default();
        let located = items(&call.locations).into_iter().map(|location| location["path"].clone());
        let diffs = items(&call.content).into_iter().filter(|part| part["type"] == "diff").map(|part| part["path"].clone());
        // Agents call the argument `path`, `file_path`, `filePath`, `absolute_path`, `target_file`, …
        let names_file = |name: &str| name.to_ascii_lowercase().contains("path") || name.to_ascii_lowercase().contains("file");
        let fields = call.input.as_object().cloned().unwrap_or_default();
        let given = fields.into_iter().filter(|(name, value)| names_file(name) && !value.is_null()).map(|(_, value)| value);
        let files: Option<Vec<PathBuf>> =
            located.chain(diffs).chain(given).map(|file| named_within(&self.begin.cwd, Path::new(file.as_str()?))).collect();
        files.filter(|_| says_so).unwrap_or_default()
    }

    pub(super) fn cancel(&mut self) -> Option<Vec<u8>> {
        self.denied = None;
        self.go_ons = GO_ONS_MAX;
        if self.session.is_empty() {
            return None;
        }
        let mut bytes = line(&json!({ "jsonrpc": "2.0", "method": "session/cancel", "params": { "sessionId": self.session } }));
        for Asked { id, .. } in std::mem::take(&mut self.asked).into_values() {
            bytes.extend(line(&json!({ "jsonrpc": "2.0", "id": id, "result": { "outcome": { "outcome": "cancelled" } } })));
        }
        Some(bytes)
    }

    pub(super) fn decide(&mut self, id: &str, decision: &Decision) -> Option<Vec<u8>> {
        let Asked { id, options, is_ours, call_id, call, changes: _ } = self.asked.remove(id)?;
        if let (Decision::Allow, Some(call_id), false) = (decision, call_id, is_ours || self.begin.permissions == Permissions::Full) {
            if self.allowed.len() == CALLS_KEPT_MAX {
                self.allowed.pop_front();
            }
            self.allowed.push_back((call_id, call));
        }
        if let Decision::Deny(why) = decision {
            self.denied = Some(why.clone());
        }
        let wanted: &[&str] = match decision {
            // An option that allows later calls covers more than what was shown.
            Decision::Allow if !is_ours && self.begin.permissions != Permissions::Full => &["allow_once"],
            Decision::Allow => &["allow_once", "allow_always"],
            Decision::Deny(_) => &["reject_once", "reject_always"],
        };
        let options = options.as_array().map(Vec::as_slice).unwrap_or_default();
        let chosen = wanted.iter().find_map(|kind| options.iter().find(|option| option["kind"] == *kind));
        let outcome = match chosen {
            Some(option) => json!({ "outcome": "selected", "optionId": option["optionId"] }),
            None => {
                let refused = options.iter().find(|option| matches!(option["kind"].as_str(), Some("reject_once" | "reject_always")));
                refused.map_or_else(|| json!({ "outcome": "cancelled" }), |option| json!({ "outcome": "selected", "optionId": option["optionId"] }))
            }
        };
        Some(line(&json!({ "jsonrpc": "2.0", "id": id, "result": { "outcome": outcome } })))
    }
}

/// What is said to an agent whose turn ended with a denial.
fn after_denial(why: &str) -> String {
    let why = quote::quote_field("What you asked for was denied", why);
    format!("{why}\nGo on without it: finish your task in another way, or report what cannot be done.")
}

/// Tells whether options are the answers to a question: a yes would choose one of them.
fn is_choice(options: &Value) -> bool {
    options.as_array().is_some_and(|options| options.iter().filter(|option| option["kind"] == "allow_once").count() > 1)
}

/// Returns the text of a content that is one text and nothing else.
fn only_text(content: &Value) -> Option<&str> {
    match content.as_array()?.as_slice() {
        [part] if part["type"] == "content" && part["content"]["type"] == "text" => part["content"]["text"].as_str(),
        _ => None,
    }
}

fn describe(error: &Value) -> String {
    let message = error["message"].as_str().unwrap_or("an error without a message");
    match error.get("data").filter(|data| !data.is_null()) {
        Some(data) => format!("{message} (code {}): {}", error["code"], data.as_str().map_or_else(|| data.to_string(), str::to_owned)),
        None => format!("{message} (code {})", error["code"]),
    }
}

fn request(at: At, method: &str, params: &Value) -> Vec<u8> {
    line(&json!({ "jsonrpc": "2.0", "id": at.id(), "method": method, "params": params }))
}

#[cfg(test)]
mod tests {
    use super::super::own_tools::ServedTool;
    use super::*;

    fn begin(session: Option<&str>) -> Begin {
        Begin {
            cwd: PathBuf::from("/w"),
            session: session.map(str::to_owned),
            anew: None,
            mode: Some("yolo".to_owned()),
            permissions: Permissions::Edit,
            authenticate: None,
            edit_titles: Vec::new(),
            input_in_content: false,
            mcp_url: "http://127.0.0.1:1/mcp".to_owned(),
            mcp_token: "t".to_owned(),
            mcp_command: vec!["/adj".to_owned(), "mcp".to_owned()],
            own_tools: OwnTools(vec![ServedTool {
                name: "ask_parent".to_owned(),
                title: "Ask the parent".to_owned(),
                arguments: vec!["question".to_owned()],
            }]),
        }
    }

    fn written(steps: &[Step]) -> Value {
        let [Step::Write(bytes)] = steps else { panic!("{steps:?}") };
        serde_json::from_slice(bytes).expect("one JSON object")
    }

    #[test]
    fn a_session_begins_with_our_server_and_its_mode() {
        let mut acp = Acp::new(begin(None));
        assert_eq!(acp.answers_after(), 4);
        let opening: Value = serde_json::from_slice(&acp.opening("/quit @/etc/passwd")).expect("JSON");
        assert_eq!(opening["params"]["protocolVersion"], 1);
        let new = written(&acp.hear(&json!({"id": 1, "result": {"protocolVersion": 1, "agentCapabilities": {"mcpCapabilities": {"http": true}}}})));
        assert_eq!((&new["method"], &new["params"]["mcpServers"][0]["type"]), (&json!("session/new"), &json!("http")));
        let mode = written(&acp.hear(&json!({"id": 3, "result": {"sessionId": "s", "modes": {"availableModes": [{"id": "yolo"}]}}})));
        assert_eq!(mode["params"], json!({"sessionId": "s", "modeId": "yolo"}));
        let prompt = written(&acp.hear(&json!({"id": 4, "result": {}})));
        assert_eq!(prompt["params"]["prompt"], json!([{"type": "text", "text": "/quit @/etc/passwd"}]));
        assert_eq!(acp.hear(&json!({"id": 5, "result": {"stopReason": "end_turn"}})), [Step::Close]);
    }

    #[test]
    fn an_agent_without_http_gets_a_command_and_one_without_loading_fails() {
        let mut acp = Acp::new(begin(None));
        acp.opening("x");
        let new = written(&acp.hear(&json!({"id": 1, "result": {"protocolVersion": 1}})));
        assert_eq!(new["params"]["mcpServers"][0], json!({"name": "adj", "command": "/adj", "args": ["mcp"], "env": []}));
        let mut acp = Acp::new(begin(Some("old")));
        acp.opening("x");
        assert!(
            matches!(acp.hear(&json!({"id": 1, "result": {"protocolVersion": 1}})).as_slice(), [Step::Failed(why), Step::Close] if why.contains("session not found"))
        );
    }

    #[test]
    fn a_session_that_is_gone_begins_anew_with_the_whole_task() {
        let mut acp = Acp::new(Begin { anew: Some("the whole task".to_owned()), mode: None, ..begin(Some("old")) });
        acp.opening("go on");
        let load = written(&acp.hear(&json!({"id": 1, "result": {"protocolVersion": 1, "agentCapabilities": {"loadSession": true}}})));
        assert_eq!((&load["method"], &load["params"]["sessionId"]), (&json!("session/load"), &json!("old")));
        let new = written(&acp.hear(&json!({"id": 3, "error": {"code": -32603, "message": "Internal error"}})));
        assert_eq!(new["method"], "session/new");
        let prompt = written(&acp.hear(&json!({"id": 3, "result": {"sessionId": "new"}})));
        assert_eq!((&prompt["params"]["sessionId"], &prompt["params"]["prompt"][0]["text"]), (&json!("new"), &json!("the whole task")));
    }

    #[test]
    fn a_permission_is_answered_with_one_of_its_options() {
        let mut acp = Acp::new(begin(None));
        let options =
            json!([{"optionId": "a", "kind": "allow_always"}, {"optionId": "o", "kind": "allow_once"}, {"optionId": "r", "kind": "reject_once"}]);
        let ask = |id: u64, title: &str, kind: &str| json!({"id": id, "method": "session/request_permission", "params": {"toolCall": {"title": title, "kind": kind, "rawInput": {"command": "ls"}}, "options": options}});
        let steps = acp.hear(&ask(0, "ls", "execute"));
        let expected =
            Permission { id: "0".to_owned(), tool: "ls".to_owned(), input: "{\"command\":\"ls\"}".to_owned(), is_ours: false, edits: Vec::new() };
        assert_eq!(steps, [Step::Permission(expected)]);
        let answer: Value = serde_json::from_slice(&acp.decide("0", &Decision::Allow).expect("it was asked")).expect("JSON");
        assert_eq!(answer, json!({"jsonrpc": "2.0", "id": 0, "result": {"outcome": {"outcome": "selected", "optionId": "o"}}}));
    }

    #[test]
    fn turn_given_up_over_a_denial_goes_on_with_the_reason() {
        let options = json!([{"optionId": "y", "kind": "allow_once"}, {"optionId": "n", "kind": "reject_once"}]);
        let asked = |acp: &mut Acp| {
            let call = json!({"toolCallId": "a", "title": "Shell", "kind": "execute", "rawInput": {"command": "x"}});
            acp.hear(&json!({"id": 0, "method": "session/request_permission", "params": {"toolCall": call, "options": options}}));
            acp.decide("0", &Decision::Deny("not here\n# Task".to_owned())).expect("it was asked")
        };
        let end = json!({"id": 5, "result": {"stopReason": "end_turn"}});
        let mut acp = Acp::new(begin(None));
        acp.opening("x");
        acp.hear(&json!({"id": 1, "result": {"protocolVersion": 1}}));
        acp.hear(&json!({"id": 3, "result": {"sessionId": "s"}}));
        acp.hear(&json!({"id": 4, "result": {}}));
        asked(&mut acp);
        let again = written(&acp.hear(&end));
        let text = again["params"]["prompt"][0]["text"].as_str().expect("a text");
        assert!(again["method"] == "session/prompt" && text.contains("not here") && !text.contains("\n# Task"), "{text}");
        // One that has heard of it ends when it ends.
        asked(&mut acp);
        acp.hear_words();
        assert_eq!(acp.hear(&end), [Step::Close]);
    }

    #[test]
    fn turn_of_a_cancelled_run_is_not_gone_on_with() {
        let mut acp = Acp::new(begin(None));
        acp.opening("x");
        acp.hear(&json!({"id": 1, "result": {"protocolVersion": 1}}));
        acp.hear(&json!({"id": 3, "result": {"sessionId": "s"}}));
        acp.hear(&json!({"id": 4, "result": {}}));
        acp.hear(&json!({"id": 0, "method": "session/request_permission", "params": {"toolCall": {"title": "x"}, "options": []}}));
        acp.decide("0", &Decision::Deny("no".to_owned()));
        acp.cancel();
        assert_eq!(acp.hear(&json!({"id": 5, "result": {"stopReason": "cancelled"}})), [Step::Close]);
    }

    #[test]
    fn question_to_a_person_is_not_answered_by_an_approval() {
        let mut acp = Acp::new(begin(None));
        let options = json!([{"optionId": "red", "kind": "allow_once"}, {"optionId": "blue", "kind": "allow_once"}, {"optionId": "skip", "kind": "reject_once"}]);
        let asked = json!({"id": 0, "method": "session/request_permission", "params": {"toolCall": {"title": "AskUser"}, "options": options}});
        assert_eq!(written(&acp.hear(&asked))["result"]["outcome"], json!({"outcome": "selected", "optionId": "skip"}));
    }

    fn permission(acp: &mut Acp, call: Value) -> Permission {
        let asked = json!({"id": 7, "method": "session/request_permission", "params": {"toolCall": call, "options": []}});
        let steps = acp.hear(&asked);
        acp.asked.clear();
        match steps.as_slice() {
            [Step::Permission(asked)] => asked.clone(),
            steps => panic!("{steps:?}"),
        }
    }

    fn reported(acp: &mut Acp, update: Value) {
        assert_eq!(hear_update(acp, &update), []);
    }

    fn hear_update(acp: &mut Acp, update: &Value) -> Vec<Step> {
        acp.hear(&json!({"method": "session/update", "params": {"update": update}}))
    }

    fn ask_for(acp: &mut Acp, id: u64, call: &Value) -> Vec<Step> {
        let options = json!([{"optionId": "o", "kind": "allow_once"}, {"optionId": "r", "kind": "reject_once"}]);
        acp.hear(&json!({"id": id, "method": "session/request_permission", "params": {"toolCall": call, "options": options}}))
    }

    #[test]
    fn call_that_changes_while_it_waits_is_asked_for_again() {
        let mut acp = Acp::new(begin(None));
        let call = json!({"toolCallId": "a", "title": "Shell", "kind": "execute", "rawInput": {"command": "ls"}});
        assert!(matches!(ask_for(&mut acp, 7, &call).as_slice(), [Step::Permission(asked)] if asked.input.contains("ls")));
        // The same once more is nothing new.
        let update =
            |command: &str| json!({"sessionUpdate": "tool_call_update", "toolCallId": "a", "status": "pending", "rawInput": {"command": command}});
        assert_eq!(hear_update(&mut acp, &update("ls")), []);
        let again = hear_update(&mut acp, &update("rm -rf /"));
        assert!(matches!(again.as_slice(), [Step::Permission(asked)] if asked.id == "7" && asked.input.contains("rm -rf /")), "{again:?}");
        let more: Vec<Vec<Step>> = (0..CHANGES_MAX).map(|n| hear_update(&mut acp, &update(&format!("rm {n}")))).collect();
        assert!(matches!(more.last().map(Vec::as_slice), Some([Step::Withdraw(_), Step::Note(_), Step::Write(_)])), "{more:?}");
        assert!(acp.decide("7", &Decision::Allow).is_none(), "it was refused");
    }

    #[test]
    fn call_that_changes_after_it_was_allowed_is_told() {
        let mut acp = Acp::new(begin(None));
        let call = json!({"toolCallId": "a", "title": "Shell", "kind": "execute", "rawInput": {"command": "ls"}});
        ask_for(&mut acp, 7, &call);
        acp.decide("7", &Decision::Allow).expect("it was asked");
        let update = |input: Value, status: &str| json!({"sessionUpdate": "tool_call_update", "toolCallId": "a", "status": status, "rawInput": input, "content": [{"type": "content", "content": {"type": "text", "text": "output"}}]});
        assert_eq!(hear_update(&mut acp, &update(json!({"command": "ls"}), "in_progress")), [], "output is no change");
        let told = hear_update(&mut acp, &update(json!({"command": "rm"}), "in_progress"));
        assert!(matches!(told.as_slice(), [Step::Changed(changed)] if changed.allowed.contains("ls") && changed.now.contains("rm")), "{told:?}");
        assert_eq!(hear_update(&mut acp, &update(json!({"command": "rm"}), "completed")), []);
        assert_eq!(hear_update(&mut acp, &update(json!({"command": "mv"}), "completed")), [], "it is over");
        // An edit that goes elsewhere.
        let diff =
            |path: &str| json!({"toolCallId": "e", "title": "Write", "kind": "edit", "content": [{"type": "diff", "path": path, "newText": "x"}]});
        ask_for(&mut acp, 8, &diff("/w/a"));
        acp.decide("8", &Decision::Allow).expect("it was asked");
        assert_eq!(hear_update(&mut acp, &diff("/w/a")), []);
        assert!(matches!(hear_update(&mut acp, &diff("/etc/passwd")).as_slice(), [Step::Changed(_)]));
    }

    #[test]
    fn requests_that_are_doubled_or_taken_back_are_refused() {
        let mut acp = Acp::new(begin(None));
        let call = |command: &str| json!({"toolCallId": command, "title": "Shell", "kind": "execute", "rawInput": {"command": command}});
        ask_for(&mut acp, 7, &call("ls"));
        let both = ask_for(&mut acp, 7, &call("rm -rf /"));
        let [Step::Withdraw(id), Step::Note(_), Step::Write(bytes)] = both.as_slice() else { panic!("{both:?}") };
        assert_eq!((id.as_str(), String::from_utf8_lossy(bytes).matches("cancelled").count()), ("7", 2), "two answers");
        assert!(acp.decide("7", &Decision::Allow).is_none());
        ask_for(&mut acp, 8, &call("ls"));
        let back = acp.hear(&json!({"method": "$/cancel_request", "params": {"requestId": 8}}));
        assert!(matches!(back.as_slice(), [Step::Withdraw(id), Step::Write(_)] if id == "8"), "{back:?}");
        assert!(acp.decide("8", &Decision::Allow).is_none());
    }

    #[test]
    fn own_tool_is_known_by_what_its_call_reported() {
        let mut acp = Acp::new(begin(None));
        reported(&mut acp, json!({"sessionUpdate": "tool_call", "toolCallId": "a", "title": "adj-ask_parent", "rawInput": {"question": "?"}}));
        assert!(permission(&mut acp, json!({"toolCallId": "a", "title": "Ask the parent", "kind": "other"})).is_ours);
        assert!(!permission(&mut acp, json!({"toolCallId": "b", "title": "Ask the parent", "kind": "other"})).is_ours);
        assert!(!permission(&mut acp, json!({"title": "Ask the parent", "kind": "other"})).is_ours, "calls without an id share nothing");
        let forged = json!({"toolCallId": "c", "title": "adj-ask_parent", "kind": "other", "rawInput": {"command": "rm -rf /"}});
        assert!(!permission(&mut acp, forged).is_ours);
    }

    #[test]
    fn permission_shows_what_its_call_reported_before() {
        let mut acp = Acp::new(begin(None));
        reported(&mut acp, json!({"sessionUpdate": "tool_call", "toolCallId": "a", "title": "Shell", "kind": "execute"}));
        reported(&mut acp, json!({"sessionUpdate": "tool_call_update", "toolCallId": "a", "rawInput": {"command": "make; rm -rf /"}}));
        let content = json!([{"type": "content", "content": {"type": "text", "text": "Running: make"}}]);
        let asked = permission(&mut acp, json!({"toolCallId": "a", "title": "Running: make", "content": content}));
        assert!(asked.input.contains("rm -rf /") && asked.input.contains("Running: make"), "{}", asked.input);
        assert_eq!((asked.tool.as_str(), asked.is_ours), ("Running: make", false));
        // A call that changes is shown as it is now.
        reported(&mut acp, json!({"sessionUpdate": "tool_call_update", "toolCallId": "a", "rawInput": {"command": "ls"}}));
        assert!(permission(&mut acp, json!({"toolCallId": "a"})).input.contains("\"ls\""));
    }

    #[test]
    fn input_that_comes_in_the_content_counts_until_it_comes_by_itself() {
        let mut acp = Acp::new(Begin { input_in_content: true, ..begin(None) });
        let text = |text: &str| json!([{"type": "content", "content": {"type": "text", "text": text}}]);
        let mut of = |id: &str, kind: &str, title: &str, texts: &[&str]| {
            reported(&mut acp, json!({"sessionUpdate": "tool_call", "toolCallId": id, "title": title, "kind": kind, "status": "pending"}));
            for said in texts {
                let update = json!({"sessionUpdate": "tool_call_update", "toolCallId": id, "status": "in_progress", "content": text(said)});
                reported(&mut acp, update);
            }
            permission(&mut acp, json!({"toolCallId": id, "title": title, "content": text("Requesting approval")}))
        };
        let shell = of("a", "execute", "Bash", &["{\"command\": \"ls; ", "{\"command\": \"ls; rm -rf /\"}"]);
        assert_eq!(shell.input, "{\"command\":\"ls; rm -rf /\"}");
        assert_eq!(of("b", "edit", "Write", &["{\"path\": \"a.txt\", \"content\": \"x\"}"]).edits, [PathBuf::from("/w/a.txt")]);
        assert!(of("c", "edit", "Write", &["{\"path\": \"/etc/passwd\"}"]).edits.is_empty());
        let doubled = of("d", "edit", "Write", &["{\"path\": \"a.txt\"}", "{\"path\": \"a.txt\"}{\"path\": \"/etc/passwd\"}"]);
        assert!(doubled.edits.is_empty() && doubled.input.contains("/etc/passwd"), "{doubled:?}");
        assert!(of("e", "other", "adj__ask_parent", &["{\"question\": \"?\"}"]).is_ours);
        assert!(!of("f", "other", "adj__ask_parent", &["{\"command\": \"x\"}"]).is_ours);
        // A sub-agent's call, whose input is nowhere told: only its title, cut, would be shown.
        let options = json!([{"optionId": "y", "kind": "allow_once"}, {"optionId": "n", "kind": "reject_once"}]);
        let cut = json!({"toolCallId": "g", "title": "Bash", "content": text("Running: ls; rm…")});
        let asked = json!({"id": 7, "method": "session/request_permission", "params": {"toolCall": cut, "options": options}});
        assert_eq!(written(&acp.hear(&asked))["result"]["outcome"]["optionId"], "n");
        // An agent that is not known for it says nothing by such a text.
        let mut other = Acp::new(begin(None));
        reported(&mut other, json!({"toolCallId": "a", "kind": "edit", "status": "pending", "content": text("{\"path\": \"a.txt\"}")}));
        assert!(permission(&mut other, json!({"toolCallId": "a", "content": text("{\"path\": \"a.txt\"}")})).edits.is_empty());
    }

    #[test]
    fn reports_of_old_calls_are_dropped() {
        let mut acp = Acp::new(begin(None));
        for n in 0..CALLS_KEPT_MAX * 2 {
            reported(&mut acp, json!({"sessionUpdate": "tool_call", "toolCallId": n.to_string(), "title": "x"}));
        }
        assert_eq!((acp.calls.len(), acp.calls_in_order.len()), (CALLS_KEPT_MAX, CALLS_KEPT_MAX));
    }

    #[test]
    fn edit_names_every_file_in_the_directory() {
        let mut acp = Acp::new(begin(None));
        let diff = |path: &str| json!([{"type": "diff", "path": path, "newText": "x"}]);
        let mut edits = |call: Value| !permission(&mut acp, call).edits.is_empty();
        assert!(edits(json!({"kind": "edit", "content": diff("/w/a.txt")})));
        assert!(!edits(json!({"kind": "edit", "content": diff("/etc/passwd")})));
        assert!(!edits(json!({"kind": "edit", "locations": [{"path": "/w/a"}], "rawInput": {"absolute_path": "/etc/passwd"}})));
        assert!(!edits(json!({"kind": "edit", "rawInput": {"text": "no file is named"}})));
    }

    #[test]
    fn an_edit_is_one_within_the_runs_directory() {
        let mut acp = Acp::new(Begin { edit_titles: vec!["write · ".to_owned()], ..begin(None) });
        let mut is_edit = |title: &str, kind: &str, path: Value| {
            let call = json!({"title": title, "kind": kind, "rawInput": {"path": path}});
            let asked = json!({"id": 7, "method": "session/request_permission", "params": {"toolCall": call, "options": []}});
            let steps = acp.hear(&asked);
            acp.asked.clear();
            matches!(steps.as_slice(), [Step::Permission(asked)] if !asked.edits.is_empty())
        };
        assert!(is_edit("write · a.txt", "other", json!("a.txt")));
        assert!(is_edit("Writing to a.txt", "edit", json!("/w/b/a.txt")));
        assert!(!is_edit("write · a.txt", "execute", json!("a.txt")), "its kind says what it is");
        assert!(!is_edit("shell · write · a.txt", "other", json!("a.txt")));
        for outside in [json!("../a.txt"), json!("/w/../etc/passwd"), json!("/wide/a.txt"), json!("~/a.txt"), json!("~root/a.txt"), json!(null)] {
            assert!(!is_edit("write · a.txt", "edit", outside.clone()), "{outside}");
        }
    }

    #[test]
    fn an_error_of_the_model_is_the_runs_failure() {
        let mut acp = Acp::new(begin(None));
        acp.opening("x");
        let steps = acp.hear(&json!({"id": 1, "error": {"code": -32000, "message": "Authentication required"}}));
        assert_eq!(steps, [Step::Failed("Authentication required (code -32000)".to_owned()), Step::Close]);
    }
}
