//! TLS for connections to the server. Its certificate and name are always verified.

use super::pipeline::{AnnouncedBackend, Pipelined};
use crate::tls::Trust;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio_postgres::tls::{ChannelBinding, TlsConnect, TlsStream};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream as Inner;
use tokio_rustls::rustls::pki_types::ServerName;

#[derive(Debug)]
pub(super) struct Tls {
    pub(super) trust: Trust,
}

impl Tls {
    /// Reads the certificates, for a connection to a host. Blocks.
    pub(super) fn connector_for(
        &self,
        host: &str,
        backend: AnnouncedBackend,
    ) -> Result<Handshake, String> {
        Ok(Handshake {
            connector: self.trust.connector().map_err(|error| error.to_string())?,
            name: ServerName::try_from(host.to_owned()).map_err(|error| error.to_string())?,
            backend,
        })
    }
}

pub(super) struct Handshake {
    connector: TlsConnector,
    name: ServerName<'static>,
    backend: AnnouncedBackend,
}

impl<S: AsyncRead + AsyncWrite + Unpin + Send + 'static> TlsConnect<S> for Handshake {
    type Stream = Pipelined<Stream<S>>;
    type Error = io::Error;
    type Future = Pin<Box<dyn Future<Output = io::Result<Pipelined<Stream<S>>>> + Send>>;

    fn connect(self, stream: S) -> Self::Future {
        Box::pin(async move {
            let stream = self.connector.connect(self.name, stream).await?;
            Ok(Pipelined::new(Stream(stream), self.backend))
        })
    }
}

pub(super) struct Stream<S>(Inner<S>);

impl<S: AsyncRead + AsyncWrite + Unpin> TlsStream for Stream<S> {
    fn channel_binding(&self) -> ChannelBinding {
        ChannelBinding::none()
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncRead for Stream<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_read(context, into)
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncWrite for Stream<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_shutdown(context)
    }
}
