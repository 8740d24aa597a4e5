//! Whether the hub listens for callers over HTTP: because it is configured, or because `adj ui` has asked for it. In the
//! second case the address is kept in the home, so that an open dashboard finds the next hub, until `adj stop`.

use super::Hub;
use super::calls::{Calls, on};
use super::http::HttpListener;
use super::router::manage;
use crate::config::{Home, HttpSettings, listen_address};
use crate::files;
use crate::ops::{OpError, is_hash};
use crate::view::{DashboardView, OpenDashboard};
use adjutant_core::Denied;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Mutex, PoisonError};
use tokio::sync::mpsc;

/// The port of the dashboard, unless it is in use.
const DASHBOARD_PORT: u16 = 7317;
/// Longest text of an address.
const ADDRESS_BYTES_MAX: u64 = 64;

/// Where the hub listens.
#[derive(Debug)]
pub(super) struct Listening {
    /// The base address, or why there is none. `None`: the hub does not listen.
    state: Mutex<Option<Result<String, String>>>,
    /// Held while the port is opened.
    opening: tokio::sync::Mutex<()>,
    opened: mpsc::Sender<HttpListener>,
}

impl Listening {
    /// Returns the state, and where the opened port arrives.
    pub(super) fn new() -> (Self, mpsc::Receiver<HttpListener>) {
        let (opened, listeners) = mpsc::channel(1);
        (Self { state: Mutex::default(), opening: tokio::sync::Mutex::default(), opened }, listeners)
    }

    /// Returns the base address for callers on this machine, or why there is none. `None`: the hub does not listen.
    pub(super) fn state(&self) -> Option<Result<String, String>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Ends what `adj ui` has asked for: the next hub listens only if that is configured.
    pub(super) fn forget(&self, home: &Home) {
        let path = home.dashboard_address();
        if let Err(error) = std::fs::remove_file(&path)
            && error.kind() != io::ErrorKind::NotFound
        {
            tracing::warn!(%error, path = %path.display(), "cannot be removed; the next hub listens too");
        }
    }

    fn set(&self, state: Result<String, String>) {
        *self.state.lock().unwrap_or_else(PoisonError::into_inner) = Some(state);
    }

    async fn open(&self, hub: &Hub, listen: SocketAddr) -> io::Result<HttpListenerAddress> {
        // An invalid configuration is reported where it is used.
        let public_url = hub.ops.config().ok().and_then(|config| config.public_url.clone());
        let listener = HttpListener::bind(&HttpSettings { listen, public_url }).await?;
        let opened = HttpListenerAddress { url: listener.url(), address: listener.address() };
        self.opened.send(listener).await.map_err(|_| io::Error::other("the hub is ending"))?;
        self.set(Ok(opened.url.clone()));
        Ok(opened)
    }
}

struct HttpListenerAddress {
    url: String,
    address: SocketAddr,
}

/// Opens the port when the hub starts, if one is configured or was asked for. A hub that was started by a command works
/// without it; the problem is shown by `adj doctor`.
pub(super) async fn listen(hub: &Hub, option: Option<SocketAddr>, is_foreground: bool) -> Result<(), String> {
    let config = hub.ops.config();
    let configured = option.or_else(|| config.as_ref().ok().and_then(|config| config.listen));
    let Some(address) = configured.or_else(|| requested_address(hub.ops.home())) else {
        if let Err(error) = config {
            let problem = format!("the configuration was invalid when this hub started, so it does not listen: {error}");
            tracing::error!(%problem, "the hub works without HTTP");
            hub.listening.set(Err(problem));
        }
        return Ok(());
    };
    let Err(error) = hub.listening.open(hub, address).await else { return Ok(()) };
    let problem = format!("cannot listen on {address}: {error}");
    if is_foreground && configured.is_some() {
        return Err(format!("{problem}; end what uses the port, or choose another with --listen"));
    }
    tracing::error!(%problem, "the hub works without HTTP");
    hub.listening.set(Err(problem));
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
        return Err(Denied::invalid("sha256", "use the SHA-256 of the code, in lower-case hexadecimal").into());
    }
    let asked = listen.as_deref().map(listen_address).transpose().map_err(|problem| Denied::invalid("listen", problem))?;
    let _turn = hub.listening.opening.lock().await;
    let url = match (hub.listening.state(), asked) {
        (Some(Ok(url)), Some(asked)) if url != format!("http://{asked}") => {
            return Err(Denied::conflict("the hub", format!("it listens on {url} already; leave --listen out, or stop the hub first")).into());
        }
        (Some(Ok(url)), _) => url,
        (_, asked) => {
            let opened = open_free(hub, asked).await.map_err(|error| OpError::Io(format!("cannot listen: {error}")))?;
            let path = hub.ops.home().dashboard_address();
            if let Err(error) = files::write_atomically(&hub.ops.home().dir, &path, opened.address.to_string().as_bytes()) {
                tracing::warn!(%error, path = %path.display(), "cannot be written; the next hub does not listen");
            }
            opened.url
        }
    };
    let code_valid_s = hub.sign_ins.permit(sha256);
    Ok(DashboardView { url, code_valid_s })
}

/// Opens the port that was asked for, or the usual one, or else a free one.
async fn open_free(hub: &Hub, asked: Option<SocketAddr>) -> io::Result<HttpListenerAddress> {
    let usual = asked.or_else(|| requested_address(hub.ops.home())).unwrap_or_else(|| (Ipv4Addr::LOCALHOST, DASHBOARD_PORT).into());
    match hub.listening.open(hub, usual).await {
        Err(error) if asked.is_none() && error.kind() == io::ErrorKind::AddrInUse => hub.listening.open(hub, (Ipv4Addr::LOCALHOST, 0).into()).await,
        opened => opened,
    }
}

/// Returns the address that `adj ui` has asked for.
fn requested_address(home: &Home) -> Option<SocketAddr> {
    let bytes = files::read(&home.dir, &home.dashboard_address(), ADDRESS_BYTES_MAX).ok()?;
    listen_address(std::str::from_utf8(&bytes).ok()?.trim()).ok()
}
