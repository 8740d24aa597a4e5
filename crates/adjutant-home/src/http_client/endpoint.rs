//! The server of an address.

use http::Uri;
use tokio_rustls::rustls::pki_types::{InvalidDnsNameError, ServerName};

/// What a connection goes to.
#[derive(Debug, Clone)]
pub struct Endpoint {
    /// A name or an IP address, without brackets.
    pub host: String,
    pub port: u16,
    /// The name in the server's certificate. `None`: plain HTTP.
    pub tls_name: Option<ServerName<'static>>,
}

/// A host for which no certificate can exist.
#[derive(Debug, thiserror::Error)]
#[error("{host} is not a valid TLS name")]
pub struct InvalidTlsName {
    host: String,
    source: InvalidDnsNameError,
}

impl Endpoint {
    /// Returns the endpoint of an address. Only `http` is without TLS.
    ///
    /// # Errors
    /// No certificate can have the name of the host.
    pub fn of(url: &Uri) -> Result<Self, InvalidTlsName> {
        let host = url.host().unwrap_or_default();
        let host = host
            .trim_start_matches('[')
            .trim_end_matches(']')
            .to_owned();
        let is_tls = url.scheme_str() != Some("http");
        let tls_name = is_tls
            .then(|| ServerName::try_from(host.clone()))
            .transpose();
        match tls_name {
            Ok(tls_name) => Ok(Self {
                tls_name,
                port: url.port_u16().unwrap_or(if is_tls { 443 } else { 80 }),
                host,
            }),
            Err(source) => Err(InvalidTlsName { host, source }),
        }
    }
}
