//! Whether the hub listens for callers over HTTP: because it is configured, or because `adj serve
//! --listen` or `adj ui` has asked for it. In the last two cases the address is kept in the home,
//! so that callers and an open dashboard find the next hub, until this one is stopped.

use super::Hub;
use super::calls::{Calls, on};
use super::http::HttpListener;
use super::router::manage;
use crate::config::{Config, Home, listen_address};
use crate::files;
use crate::ops::{OpError, is_hash};
use crate::tls::TlsServer;
use crate::view::{DashboardView, OpenDashboard};
use adjutant_core::Denied;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex, PoisonError};
use tokio::sync::mpsc;

/// The port of the dashboard, unless it is in use.
const DASHBOARD_PORT: u16 = 7317;
/// Longest text of an address.
const ADDRESS_BYTES_MAX: u64 = 64;

/// Where the hub listens.
#[derive(Debug)]
pub(super) struct Listening {
    /// The address, or why there is none. `None`: the hub does not listen.
    state: Mutex<Option<Result<OpenAddress, Arc<ListenError>>>>,
    /// Held while the port is opened.
    opening: tokio::sync::Mutex<()>,
    opened: mpsc::Sender<HttpListener>,
}

impl Listening {
    /// Returns the state, and the receiver of the opened listener.
    pub(super) fn new() -> (Self, mpsc::Receiver<HttpListener>) {
        let (opened, listeners) = mpsc::channel(1);
        (
            Self {
                state: Mutex::default(),
                opening: tokio::sync::Mutex::default(),
                opened,
            },
            listeners,
        )
    }

    /// Returns the address, or why there is none. `None`: the hub does not listen.
    pub(super) fn state(&self) -> Option<Result<OpenAddress, Arc<ListenError>>> {
        self.state
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    /// Returns the address for other machines: `public_url`, or that of the listener. If it listens
    /// on all addresses: with the name in its certificate, or else that of the machine.
    pub(super) fn announced_url(&self) -> Option<String> {
        let opened = self.state().and_then(Result::ok)?;
        if let Some(public) = opened.public_url {
            return Some(public);
        }
        if opened.address.ip().is_unspecified() {
            let scheme = if opened.tls.is_some() {
                "https"
            } else {
                "http"
            };
            return Some(format!(
                "{scheme}://{}:{}",
                opened.name,
                opened.address.port()
            ));
        }
        Some(opened.url)
    }

    /// Returns the certificate with which it listens, if it has one.
    pub(super) fn tls(&self) -> Option<Arc<TlsServer>> {
        self.state().and_then(Result::ok)?.tls
    }

    /// Removes the address of `adj ui` or `adj serve --listen`: the next hub listens only if it is
    /// configured.
    pub(super) fn forget(&self, home: &Home) {
        let path = home.dashboard_address();
        if let Err(error) = std::fs::remove_file(&path)
            && error.kind() != io::ErrorKind::NotFound
        {
            tracing::warn!(%error, path = %path.display(), "cannot be removed; the next hub listens too");
        }
    }

    fn set(&self, state: Result<OpenAddress, Arc<ListenError>>) {
        *self.state.lock().unwrap_or_else(PoisonError::into_inner) = Some(state);
    }

    async fn open(&self, hub: &Hub, listen: SocketAddr) -> io::Result<OpenAddress> {
        // Without the configuration, the certificate is unknown.
        let http = hub
            .ops
            .settings
            .config()
            .map_err(|error| io::Error::other(error.to_string()))?
            .http
            .clone();
        let settings = http.settings(listen).map_err(io::Error::other)?;
        let listener = HttpListener::bind(&settings).await?;
        let machine = rustix::system::uname()
            .nodename()
            .to_string_lossy()
            .into_owned();
        let opened = OpenAddress {
            url: listener.url().to_owned(),
            address: listener.address(),
            public_url: http
                .public_url
                .as_ref()
                .map(|url| url.to_string().trim_end_matches('/').to_owned()),
            name: listener.name_of_machine(&machine).unwrap_or(machine),
            tls: listener.tls(),
        };
        self.opened
            .send(listener)
            .await
            .map_err(|_| io::Error::other("the hub is ending"))?;
        self.set(Ok(opened.clone()));
        Ok(opened)
    }
}

/// Why the hub does not listen.
#[derive(Debug, thiserror::Error)]
pub(super) enum ListenError {
    #[error(
        "the configuration was invalid when this hub started, so it does not listen: correct it, then: adj stop"
    )]
    Configuration,
    #[error("cannot listen on {address}: {source}")]
    Port {
        address: SocketAddr,
        source: io::Error,
    },
}

impl ListenError {
    /// Returns what the person at a hub in the foreground can do.
    pub(super) fn hint(&self) -> &'static str {
        match self {
            Self::Port { source, .. } if source.kind() == io::ErrorKind::AddrInUse => {
                "; end what uses the port, or choose another with --listen"
            }
            Self::Port { .. } | Self::Configuration => "",
        }
    }
}

/// An address at which the hub listens.
#[derive(Debug, Clone)]
pub(super) struct OpenAddress {
    /// The base address for callers.
    pub(super) url: String,
    address: SocketAddr,
    /// The configured address for callers on other machines.
    public_url: Option<String>,
    /// The name of this machine for others.
    name: String,
    /// The certificate, if it has one.
    pub(super) tls: Option<Arc<TlsServer>>,
}

impl OpenAddress {
    /// Returns whether tokens of callers cross a network in plain text.
    pub(super) fn is_exposed(&self) -> bool {
        self.tls.is_none() && !self.address.ip().is_loopback()
    }
}

/// Opens the port when the hub starts, if one is configured or was asked for. A hub that was
/// started by a command works without it; the problem is shown by `adj doctor`.
pub(super) async fn listen(
    hub: &Hub,
    option: Option<SocketAddr>,
    is_foreground: bool,
) -> Result<(), ListenError> {
    let config = hub.ops.settings.config();
    let configured = option.or_else(|| config.as_ref().ok().and_then(|config| config.listen));
    let Some(address) = configured.or_else(|| requested_address(hub.ops.home())) else {
        if let Err(error) = config
            && Config::may_listen(hub.ops.home())
        {
            // Where the error is shown, the configuration's problem is shown as well.
            let problem = ListenError::Configuration;
            tracing::error!(%problem, %error, "the hub works without HTTP");
            hub.listening.set(Err(Arc::new(problem)));
        }
        return Ok(());
    };
    let source = match hub.listening.open(hub, address).await {
        Ok(opened) => {
            if option.is_some() {
                keep(hub.ops.home(), &opened);
            }
            return Ok(());
        }
        Err(error) => error,
    };
    let problem = ListenError::Port { address, source };
    if is_foreground && configured.is_some() {
        return Err(problem);
    }
    tracing::error!(%problem, "the hub works without HTTP");
    hub.listening.set(Err(Arc::new(problem)));
    Ok(())
}

/// Adds the call that opens a dashboard.
pub(super) fn with_dashboard(calls: Calls) -> Calls {
    on(calls, |hub, caller, call: OpenDashboard| async move {
        manage(&caller.who)?;
        open_dashboard(&hub, &call).await
    })
}

/// Permits one browser to sign in. If the hub does not listen, it listens from now on.
async fn open_dashboard(hub: &Hub, call: &OpenDashboard) -> Result<DashboardView, OpError> {
    let OpenDashboard { listen, sha256 } = call;
    if !is_hash(sha256) {
        return Err(Denied::invalid(
            "sha256",
            "use the SHA-256 of the code, in lower-case hexadecimal",
        )
        .into());
    }
    let asked = listen
        .as_deref()
        .map(listen_address)
        .transpose()
        .map_err(|problem| Denied::invalid("listen", problem.to_string()))?;
    let _turn = hub.listening.opening.lock().await;
    let url = match (hub.listening.state(), asked) {
        (Some(Ok(opened)), Some(asked)) if opened.address != asked => {
            return Err(Denied::conflict(
                "the hub",
                format!(
                    "it listens on {} already; leave --listen out, or stop the hub first",
                    opened.url
                ),
            )
            .into());
        }
        (Some(Ok(opened)), _) => opened.url,
        (_, asked) => {
            if let Some(asked) = asked {
                let http = hub
                    .ops
                    .settings
                    .config()
                    .map(|config| config.http.clone())
                    .unwrap_or_default();
                http.settings(asked)
                    .map_err(|problem| Denied::invalid("listen", problem.to_string()))?;
            }
            let opened = open_free(hub, asked)
                .await
                .map_err(|error| OpError::Io(format!("cannot listen: {error}")))?;
            keep(hub.ops.home(), &opened);
            opened.url
        }
    };
    let code_valid_s = hub.sign_ins.permit(sha256);
    Ok(DashboardView { url, code_valid_s })
}

/// Opens the port that was asked for, or the usual one, or else a free one.
async fn open_free(hub: &Hub, asked: Option<SocketAddr>) -> io::Result<OpenAddress> {
    let usual = asked
        .or_else(|| requested_address(hub.ops.home()))
        .unwrap_or_else(|| (Ipv4Addr::LOCALHOST, DASHBOARD_PORT).into());
    match hub.listening.open(hub, usual).await {
        Err(error) if asked.is_none() && error.kind() == io::ErrorKind::AddrInUse => {
            hub.listening
                .open(hub, (Ipv4Addr::LOCALHOST, 0).into())
                .await
        }
        opened => opened,
    }
}

/// Records the address for the next hub.
fn keep(home: &Home, opened: &OpenAddress) {
    let path = home.dashboard_address();
    if let Err(error) =
        files::write_atomically(&home.dir, &path, opened.address.to_string().as_bytes())
    {
        tracing::warn!(%error, path = %path.display(), "cannot be written; the next hub does not listen");
    }
}

/// Returns the address that `adj ui` or `adj serve --listen` has asked for.
fn requested_address(home: &Home) -> Option<SocketAddr> {
    let bytes = files::read(&home.dir, &home.dashboard_address(), ADDRESS_BYTES_MAX).ok()?;
    listen_address(std::str::from_utf8(&bytes).ok()?.trim()).ok()
}
