//! `adj mcp`: the server on standard input and output.
//!
//! It answers `initialize` and `tools/list` without the hub, exits when its input ends, and
//! tolerates any other input.

use super::caps::{self, CallCap};
use super::gate::Gate;
use super::lines::Lines;
use super::refusal::ToolRefusal;
use super::server::{self, Server};
use super::session::{Facade, Role, Setup};
use super::tools::parent;
use crate::config::{Home, text_variable};
use crate::hub_client::Client;
use crate::protocol::WorkerAccess;
use crate::sock;
use crate::view::{ErrorView, codes};
use adjutant_core::ClientName;
use rmcp::model::{ClientJsonRpcMessage, ClientRequest, ErrorData, GetMeta, ProtocolVersion};
use rmcp::service::{RxJsonRpcMessage, ServerInitializeError, TxJsonRpcMessage};
use rmcp::transport::Transport;
use rmcp::transport::io::{StdioReader, StdioWriter, stdio_pipes};
use rmcp::{RoleServer, serve_server};
use std::path::{Path, PathBuf};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio_util::sync::CancellationToken;

/// How long calls other than waits may continue after the end of the input.
const LAST_CALLS: Duration = Duration::from_secs(1);

/// How long the supervisor may take to notice that the run's agent has reached the tools.
const ANNOUNCED_MAX: Duration = Duration::from_secs(5);

/// The arguments of `adj mcp`.
#[derive(Debug, Clone, Default)]
pub struct StdioArgs {
    /// `None`: a worker with a token file or inside a run, else a parent.
    pub role: Option<Role>,
    /// A [`WorkerAccess`] in JSON, as the supervisor writes it.
    pub token_file: Option<PathBuf>,
    /// The name of the client. Default: the project's directory.
    pub client: Option<String>,
    pub compat: bool,
    /// Serve the tools of another server.
    pub facade: Option<Facade>,
    /// Use the ephemeral home in memory.
    pub ephemeral: bool,
    /// Maximum time that a call may block, in seconds.
    pub max_wait_s: Option<u64>,
}

/// Serves until standard input ends. Blocks its thread.
///
/// # Errors
/// The arguments or the streams cannot be used.
pub fn stdio(args: StdioArgs) -> Result<(), ErrorView> {
    let input_ended = CancellationToken::new();
    let (setup, supervisor) = setup(args, input_ended.clone())?;
    let server = Server::new(setup);
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| internal("the runtime", &error))?;
    let served = runtime.block_on(async {
        if let Some(socket) = supervisor {
            announce(&socket).await;
        }
        serve(server, input_ended).await
    });
    // A blocked read of a terminal must not keep the process alive.
    runtime.shutdown_background();
    served
}

/// Makes one request to the supervisor, which learns that the run's agent has reached the tools:
/// `tools/list` makes no call. Waits for the reply, because the supervisor cannot identify a
/// process that has ended.
async fn announce(socket: &Path) {
    let announced = async {
        let mut supervisor = sock::connect(socket).await?;
        supervisor
            .write_all(b"GET / HTTP/1.1\r\nhost: localhost\r\n\r\n")
            .await?;
        supervisor.read_u8().await
    };
    match tokio::time::timeout(ANNOUNCED_MAX, announced).await {
        Ok(Ok(_)) => {}
        Ok(Err(error)) => tracing::debug!(%error, "the run's supervisor cannot be reached yet"),
        Err(_) => tracing::debug!("the run's supervisor is too slow"),
    }
}

/// Returns the setup, and the socket of the supervisor whose token file was given.
fn setup(
    args: StdioArgs,
    input_ended: CancellationToken,
) -> Result<(Setup, Option<PathBuf>), ErrorView> {
    let StdioArgs {
        role,
        token_file,
        client,
        compat,
        facade,
        ephemeral: _,
        max_wait_s,
    } = args;
    if facade.is_some() && (role.is_some() || token_file.is_some()) {
        return Err(invalid(
            "--facade serves a parent: it cannot be used with --role or --token-file",
            "omit them",
        ));
    }
    let directory =
        std::env::current_dir().map_err(|error| internal("the working directory", &error))?;
    let Connection {
        client,
        role,
        cap,
        supervisor,
    } = match token_file {
        Some(path) => Connection::of_worker(&path, role)?,
        None => Connection::to_hub(client, role, facade.is_some(), &directory)?,
    };
    let cap = max_wait_s.map_or(cap, |seconds| CallCap::Fixed(Duration::from_secs(seconds)));
    let setup = Setup {
        client,
        role,
        compat,
        facade,
        cap,
        directory,
        input_ended,
    };
    Ok((setup, supervisor))
}

/// Where the server makes its calls, and for whom.
struct Connection {
    client: Client,
    /// `None`: the hub says so.
    role: Option<Role>,
    /// How long a call may block by default.
    cap: CallCap,
    /// The socket of the run's supervisor.
    supervisor: Option<PathBuf>,
}

impl Connection {
    /// Returns the connection of a run's agent, whose supervisor has written a token file.
    fn of_worker(token_file: &Path, role: Option<Role>) -> Result<Self, ErrorView> {
        let access = read_access(token_file)?;
        let socket = access.socket.clone();
        Ok(Self {
            client: Client::worker(access),
            role: Some(role.unwrap_or(Role::Worker)),
            cap: CallCap::Fixed(caps::OWN_WORKER),
            supervisor: Some(socket),
        })
    }

    /// Returns the connection of a client with a name, or of the project in `directory`.
    fn to_hub(
        name: Option<String>,
        role: Option<Role>,
        is_facade: bool,
        directory: &Path,
    ) -> Result<Self, ErrorView> {
        let home = Home::from_env().map_err(|error| invalid(&error.to_string(), "set ADJ_HOME"))?;
        let name = match name {
            Some(name) => name,
            None => parent::project(directory).map_err(
                |ToolRefusal {
                     code,
                     message,
                     hint,
                 }| ErrorView {
                    code,
                    message,
                    hint,
                },
            )?,
        };
        let name = ClientName::parse(&name)
            .map_err(|denied| invalid(&denied.to_string(), "pass another --client"))?;
        // Inside a run, the hub redirects to the run's supervisor, so the role is determined
        // before tools are listed.
        let inside_run = text_variable("ADJ_RUN").is_some();
        if inside_run && is_facade {
            return Err(invalid(
                "--facade cannot be used inside a run",
                "inside a run, use delegate_work of adj mcp",
            ));
        }
        Ok(Self {
            client: Client::hub(&home, Some(name)),
            role: role.or(if inside_run { None } else { Some(Role::Parent) }),
            cap: CallCap::ByClient,
            supervisor: None,
        })
    }
}

fn read_access(path: &Path) -> Result<WorkerAccess, ErrorView> {
    let hint = "the run's supervisor writes this file; it is gone when the run has ended";
    let text = std::fs::read_to_string(path)
        .map_err(|error| invalid(&format!("{}: {error}", path.display()), hint))?;
    serde_json::from_slice(text.as_bytes())
        .map_err(|error| invalid(&format!("{}: {error}", path.display()), hint))
}

fn invalid(message: &str, hint: &str) -> ErrorView {
    ErrorView {
        code: codes::INVALID.into(),
        message: message.into(),
        hint: Some(hint.into()),
    }
}

fn internal(what: &str, error: &dyn std::fmt::Display) -> ErrorView {
    ErrorView {
        code: codes::INTERNAL.into(),
        message: format!("{what}: {error}"),
        hint: None,
    }
}

async fn serve(server: Server, input_ended: CancellationToken) -> Result<(), ErrorView> {
    let (input, output) = stdio_pipes();
    let pipe = Pipe::new(input, output, input_ended.clone());
    let service = match serve_server(Gate(server), pipe).await {
        Ok(service) => service,
        // The input ended before any message.
        Err(ServerInitializeError::ConnectionClosed(_)) => return Ok(()),
        Err(error) => return Err(internal("the MCP handshake", &error)),
    };
    let ended = service.waiting();
    tokio::pin!(ended);
    let quit = tokio::select! {
        quit = &mut ended => Some(quit),
        () = input_ended.cancelled() => tokio::time::timeout(LAST_CALLS, ended).await.ok(),
    };
    match quit {
        Some(Err(error)) => Err(internal("the MCP server", &error)),
        Some(Ok(_)) | None => Ok(()),
    }
}

/// Standard input and output as a transport. It reports the end of the input, drops messages that
/// would abort the handshake, and answers requests before the handshake for both protocol
/// generations.
struct Pipe {
    inner: Lines<StdioReader, StdioWriter>,
    input_ended: CancellationToken,
    open: bool,
}

impl Pipe {
    fn new(input: StdioReader, output: StdioWriter, input_ended: CancellationToken) -> Self {
        Self {
            inner: Lines::new(input, output),
            input_ended,
            open: false,
        }
    }
}

impl Transport<RoleServer> for Pipe {
    type Error = std::io::Error;

    fn send(
        &mut self,
        item: TxJsonRpcMessage<RoleServer>,
    ) -> impl Future<Output = Result<(), Self::Error>> + Send + 'static {
        self.inner.send(item)
    }

    async fn receive(&mut self) -> Option<RxJsonRpcMessage<RoleServer>> {
        loop {
            let Some(message) = self.inner.receive().await else {
                self.input_ended.cancel();
                return None;
            };
            if self.open {
                return Some(message);
            }
            // Before the handshake, only requests are accepted; a notification would abort it.
            let ClientJsonRpcMessage::Request(request) = &message else {
                continue;
            };
            match opening(&request.request) {
                Opening::Initialize(version) => {
                    self.open = true;
                    if version == ProtocolVersion::V_2025_03_26 {
                        self.inner.accept_batches();
                    }
                }
                Opening::Modern => {
                    self.open = true;
                    self.inner.omit_unread_ids();
                }
                Opening::Probe => {}
                Opening::Refused(error) => {
                    self.inner.answer(error, Some(request.id.clone()));
                    continue;
                }
            }
            return Some(message);
        }
    }

    async fn close(&mut self) -> Result<(), Self::Error> {
        self.inner.close().await
    }
}

/// The meaning of a request before the handshake.
enum Opening {
    /// A handshake of 2024-11-05 to 2025-11-25, for this version.
    Initialize(ProtocolVersion),
    /// A request of 2026-07-28, which needs no handshake.
    Modern,
    /// A request that is answered without fixing the protocol version.
    Probe,
    Refused(ErrorData),
}

fn opening(request: &ClientRequest) -> Opening {
    let meta = request.get_meta();
    let version = meta.protocol_version();
    let is_modern = version
        .as_ref()
        .is_some_and(|version| version.as_str() >= ProtocolVersion::V_2026_07_28.as_str());
    match request {
        ClientRequest::PingRequest(_) | ClientRequest::DiscoverRequest(_) => Opening::Probe,
        ClientRequest::InitializeRequest(_) if is_modern => {
            Opening::Refused(server::no_initialize())
        }
        ClientRequest::InitializeRequest(request) => {
            Opening::Initialize(request.params.protocol_version.clone())
        }
        ClientRequest::CustomRequest(custom) if custom.method == "initialize" => {
            Opening::Refused(if is_modern {
                server::no_initialize()
            } else {
                server::broken_initialize()
            })
        }
        _ if version.is_none() => Opening::Refused(server::not_initialized()),
        _ => {
            let is_known =
                version.is_some_and(|version| ProtocolVersion::KNOWN_VERSIONS.contains(&version));
            let is_whole = meta
                .missing_required_keys(&ProtocolVersion::V_2026_07_28)
                .is_empty();
            if is_known && is_whole {
                Opening::Modern
            } else {
                Opening::Probe
            }
        }
    }
}
