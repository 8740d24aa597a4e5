//! The handshake with an ACP agent, for a run and for `adj agents add`: its version, capabilities
//! and modes.

use super::modes;
use adjutant_core::{Permissions, shorten};
use serde_json::{Value, json};

/// The supported version of the protocol.
const PROTOCOL_VERSION: u64 = 1;
/// Maximum number of sign-in methods that are shown.
const SIGN_IN_MAX: usize = 8;
const TEXT_BYTES_MAX: usize = 200;

/// Returns the parameters of `initialize`: Adjutant's name and capabilities.
#[must_use]
pub(crate) fn initialize_params() -> Value {
    let capabilities = json!({
        "fs": { "readTextFile": false, "writeTextFile": false },
        "terminal": false,
        "elicitation": { "form": {} },
        "session": { "configOptions": { "boolean": {} } },
    });
    json!({
        "protocolVersion": PROTOCOL_VERSION,
        "clientCapabilities": capabilities,
        "clientInfo": { "name": "adjutant", "version": env!("CARGO_PKG_VERSION") },
    })
}

/// Why an agent's version of the protocol is not supported.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(super) enum VersionError {
    #[error(
        "it speaks version {0} of the Agent Client Protocol, and adj version {PROTOCOL_VERSION}"
    )]
    Other(u64),
    #[error("it does not report a version of the Agent Client Protocol")]
    Missing,
}

/// Refuses an agent with another protocol version.
///
/// # Errors
/// The agent's version differs or is missing.
pub(super) fn check_version(initialized: &Value) -> Result<(), VersionError> {
    match initialized["protocolVersion"].as_u64() {
        Some(PROTOCOL_VERSION) => Ok(()),
        Some(other) => Err(VersionError::Other(other)),
        None => Err(VersionError::Missing),
    }
}

/// The capabilities of an agent that matter here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Capabilities {
    /// It supports MCP servers over HTTP.
    pub http: bool,
    /// It supports `session/load`.
    pub loads: bool,
    /// It supports `session/resume`.
    pub resumes: bool,
}

impl Capabilities {
    pub(super) fn of(initialized: &Value) -> Self {
        let can = &initialized["agentCapabilities"];
        Self {
            http: can["mcpCapabilities"]["http"] == true,
            loads: can["loadSession"] == true,
            resumes: can["sessionCapabilities"]["resume"].is_object(),
        }
    }
}

/// Returns a description of each sign-in method that the agent offers.
pub(super) fn sign_in(initialized: &Value) -> Vec<String> {
    let methods = initialized["authMethods"]
        .as_array()
        .map(Vec::as_slice)
        .unwrap_or_default();
    methods
        .iter()
        .take(SIGN_IN_MAX)
        .filter_map(sign_in_method)
        .collect()
}

fn sign_in_method(method: &Value) -> Option<String> {
    let text = |field: &str| {
        method[field]
            .as_str()
            .map(short)
            .filter(|text| !text.is_empty())
    };
    let name = text("name").or_else(|| text("id"))?;
    let arguments: Vec<String> = method["args"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(Value::as_str)
        .map(short)
        .collect();
    let how = match (text("type").as_deref(), text("description")) {
        (Some("terminal"), _) if !arguments.is_empty() => {
            format!(" (in a terminal: its program with {})", arguments.join(" "))
        }
        (_, Some(description)) if description != name => format!(" ({description})"),
        _ => String::new(),
    };
    Some(format!("{name}{how}"))
}

/// Shortens a text to one line of bounded length, for people.
fn short(text: &str) -> String {
    let line = text.split_whitespace().collect::<Vec<_>>().join(" ");
    shorten::to_bytes(&line, TEXT_BYTES_MAX).into_owned()
}

/// What an agent offers.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Offer {
    pub name: Option<String>,
    pub version: Option<String>,
    pub http: bool,
    pub sse: bool,
    pub loads: bool,
    pub resumes: bool,
    pub sign_in: Vec<String>,
    /// The ids of its modes; the initial one comes first.
    pub modes: Vec<String>,
    /// The mode for each profile, or why the profile is not supported.
    pub profiles: Vec<(Permissions, Result<Option<String>, String>)>,
}

/// The handshake with an agent that is only asked for its capabilities.
#[derive(Debug)]
pub struct Handshake {
    cwd: String,
    offer: Offer,
    has_initialized: bool,
}

/// The next step after a line of the agent.
#[derive(Debug, PartialEq, Eq)]
pub enum Next {
    /// Write this to the agent's input.
    Write(Vec<u8>),
    /// Wait for the next line.
    Wait,
    Done,
    /// The program is not an ACP agent, or cannot be used.
    Failed(String),
}

impl Handshake {
    /// Starts a handshake whose session works in a directory.
    #[must_use]
    pub fn new(cwd: &str) -> (Self, Vec<u8>) {
        let opening = request(1, "initialize", &initialize_params());
        (
            Self {
                cwd: cwd.to_owned(),
                offer: Offer::default(),
                has_initialized: false,
            },
            opening,
        )
    }

    /// Handles a line of the agent's standard output.
    pub fn receive(&mut self, line: &str) -> Next {
        // Some agents print a greeting before their first message.
        let Ok(incoming) = serde_json::from_str::<Value>(line) else {
            return Next::Wait;
        };
        let expected = if self.has_initialized { 3 } else { 1 };
        if incoming.get("method").is_some() || incoming["id"].as_u64() != Some(expected) {
            return Next::Wait;
        }
        if let Some(error) = incoming.get("error").filter(|error| !error.is_null()) {
            let why = super::describe(error);
            let ways = if self.offer.sign_in.is_empty() {
                String::new()
            } else {
                format!("; it signs in by {}", self.offer.sign_in.join(", or "))
            };
            return Next::Failed(format!(
                "it refuses {}: {why}{ways}",
                if self.has_initialized {
                    "to start a session"
                } else {
                    "to initialize"
                }
            ));
        }
        let result = &incoming["result"];
        if self.has_initialized {
            return self.handle_session(result);
        }
        if let Err(error) = check_version(result) {
            return Next::Failed(error.to_string());
        }
        self.has_initialized = true;
        let Capabilities {
            http,
            loads,
            resumes,
        } = Capabilities::of(result);
        let text = |field: &str| result["agentInfo"][field].as_str().map(short);
        self.offer = Offer {
            name: text("title").or_else(|| text("name")),
            version: text("version"),
            http,
            sse: result["agentCapabilities"]["mcpCapabilities"]["sse"] == true,
            loads,
            resumes,
            sign_in: sign_in(result),
            ..Offer::default()
        };
        Next::Write(request(
            3,
            "session/new",
            &json!({ "cwd": self.cwd, "mcpServers": [] }),
        ))
    }

    fn handle_session(&mut self, result: &Value) -> Next {
        if result["sessionId"].as_str().is_none_or(str::is_empty) {
            return Next::Failed("it started a session without an id".to_owned());
        }
        let settings = modes::settings(result);
        self.offer.modes = modes::ids(&settings).into_iter().map(short).collect();
        self.offer.profiles = Permissions::ALL
            .map(|permissions| {
                (
                    permissions,
                    modes::mode_for(permissions, &settings)
                        .map(|id| id.map(short))
                        .map_err(|error| error.to_string()),
                )
            })
            .into();
        Next::Done
    }

    /// Returns what the agent offers.
    #[must_use]
    pub fn into_offer(self) -> Offer {
        self.offer
    }
}

fn request(id: u64, method: &str, params: &Value) -> Vec<u8> {
    super::line(&json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn receive(handshake: &mut Handshake, incoming: Value) -> Next {
        handshake.receive(&incoming.to_string())
    }

    #[test]
    fn offer_contains_the_agents_capabilities() {
        let (mut handshake, opening) = Handshake::new("/tmp/x");
        let opening: Value = serde_json::from_slice(&opening).expect("JSON");
        assert_eq!(
            (&opening["method"], &opening["params"]["protocolVersion"]),
            (&json!("initialize"), &json!(1))
        );
        assert_eq!(handshake.receive("Welcome to my agent"), Next::Wait);
        let initialized = json!({"id": 1, "result": {
            "protocolVersion": 1, "agentInfo": {"name": "my-agent", "version": "1.2\n3"},
            "agentCapabilities": {"loadSession": true, "mcpCapabilities": {"http": true}, "sessionCapabilities": {"resume": {}}},
            "authMethods": [{"id": "login", "name": "Log in", "description": "with a browser"}, {"id": "t", "type": "terminal", "name": "Terminal", "args": ["--login"]}]}});
        let Next::Write(new) = receive(&mut handshake, initialized) else {
            panic!("a session is next")
        };
        assert_eq!(
            serde_json::from_slice::<Value>(&new).expect("JSON")["params"]["cwd"],
            "/tmp/x"
        );
        assert_eq!(
            receive(
                &mut handshake,
                json!({"method": "session/update", "params": {}})
            ),
            Next::Wait
        );
        let modes = json!({"currentModeId": "auto", "availableModes": [{"id": "ask", "name": "Ask"}, {"id": "auto", "name": "Auto"}]});
        assert_eq!(
            receive(
                &mut handshake,
                json!({"id": 3, "result": {"sessionId": "s", "modes": modes}})
            ),
            Next::Done
        );
        let offer = handshake.into_offer();
        assert_eq!(
            (offer.name.as_deref(), offer.version.as_deref()),
            (Some("my-agent"), Some("1.2 3"))
        );
        assert_eq!(
            (offer.http, offer.sse, offer.loads, offer.resumes),
            (true, false, true, true)
        );
        assert_eq!(
            offer.sign_in,
            [
                "Log in (with a browser)",
                "Terminal (in a terminal: its program with --login)"
            ]
        );
        assert_eq!(offer.modes, ["auto", "ask"]);
        assert_eq!(
            offer.profiles[1],
            (Permissions::Edit, Ok(Some("ask".to_owned())))
        );
        assert_eq!(
            offer.profiles[2],
            (Permissions::Full, Ok(Some("auto".to_owned())))
        );
    }

    #[test]
    fn other_version_and_missing_sign_in_are_failures() {
        let failed = |incoming: &[Value]| {
            let (mut handshake, _) = Handshake::new("/");
            match incoming
                .iter()
                .map(|incoming| receive(&mut handshake, incoming.clone()))
                .last()
            {
                Some(Next::Failed(why)) => why,
                other => panic!("{other:?}"),
            }
        };
        assert!(
            failed(&[json!({"id": 1, "result": {"protocolVersion": 2}})]).contains("version 2")
        );
        assert!(failed(&[json!({"id": 1, "result": {}})]).contains("does not report"));
        let initialized = json!({"id": 1, "result": {"protocolVersion": 1, "authMethods": [{"id": "key", "name": "API key"}]}});
        let refused =
            json!({"id": 3, "error": {"code": -32000, "message": "Authentication required"}});
        let why = failed(&[initialized, refused]);
        assert!(
            why.contains("Authentication required") && why.ends_with("it signs in by API key"),
            "{why}"
        );
    }
}
