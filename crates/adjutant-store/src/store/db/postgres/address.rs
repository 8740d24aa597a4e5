//! Where the server is, and how a connection to it is protected.

use super::tls::Tls;
use crate::config::PostgresAddress;
use crate::tls::Trust;

/// The address with its password.
pub(in crate::store) struct Address {
    config: tokio_postgres::Config,
    /// A name, an IP address, or the directory of a socket.
    host: String,
    port: u16,
    tls: Option<Tls>,
}

impl Address {
    /// Names this session to the server.
    pub(super) fn new(address: &PostgresAddress, application: &str) -> Self {
        let mut config = tokio_postgres::Config::new();
        config
            .user(&address.user)
            .dbname(&address.database)
            .application_name(application);
        if let Some(password) = &address.password {
            config.password(password.reveal());
        }
        config.ssl_mode(if address.verifies_tls {
            tokio_postgres::config::SslMode::Require
        } else {
            tokio_postgres::config::SslMode::Disable
        });
        let root_certificates = address.root_certificates.clone();
        let tls = address.verifies_tls.then(|| Tls {
            trust: root_certificates.map_or(Trust::Installed, Trust::File),
        });
        Self {
            config,
            host: address.host.clone(),
            port: address.port,
            tls,
        }
    }

    pub(super) fn driver(&self) -> &tokio_postgres::Config {
        &self.config
    }

    pub(super) fn host(&self) -> &str {
        &self.host
    }

    pub(super) fn port(&self) -> u16 {
        self.port
    }

    /// The directory of the server's socket. `None`: the host is on a network.
    pub(super) fn directory(&self) -> Option<&str> {
        self.host.starts_with('/').then_some(&self.host)
    }

    pub(super) fn tls(&self) -> Option<&Tls> {
        self.tls.as_ref()
    }
}
