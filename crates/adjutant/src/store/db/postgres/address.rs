//! Where the server is, and how a connection to it is protected.

use super::tls::Tls;
use crate::config::PostgresAddress;
use std::time::Duration;

/// After this long without an acknowledged byte, a connection counts as lost.
const UNACKNOWLEDGED_WITHIN: Duration = Duration::from_secs(15);
const CONNECT_WITHIN: Duration = Duration::from_secs(5);

/// The address with its password.
#[derive(Clone)]
pub(in crate::store) struct Address {
    config: tokio_postgres::Config,
    tls: Option<Tls>,
}

impl Address {
    /// Names this session to the server.
    pub(super) fn new(address: &PostgresAddress, application: &str) -> Self {
        let mut config = tokio_postgres::Config::new();
        match &address.host {
            host if host.starts_with('/') => config.host_path(host),
            host => config.host(host),
        };
        config.port(address.port).user(&address.user).dbname(&address.database).application_name(application);
        if let Some(password) = &address.password {
            config.password(password.reveal());
        }
        config.connect_timeout(CONNECT_WITHIN).keepalives_idle(UNACKNOWLEDGED_WITHIN).tcp_user_timeout(UNACKNOWLEDGED_WITHIN);
        config.ssl_mode(if address.verifies_tls { tokio_postgres::config::SslMode::Require } else { tokio_postgres::config::SslMode::Disable });
        let tls = address.verifies_tls.then(|| Tls { root_certificates: address.root_certificates.clone() });
        Self { config, tls }
    }

    pub(super) fn driver(&self) -> &tokio_postgres::Config {
        &self.config
    }

    pub(super) fn tls(&self) -> Option<&Tls> {
        self.tls.as_ref()
    }
}
