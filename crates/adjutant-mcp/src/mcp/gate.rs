//! Filters methods by the protocol version of the connection before rmcp handles them: the Tasks
//! extension exists only from 2026-07-28 on.

use super::caller::is_modern;
use super::server::Server;
use rmcp::model::{
    CancelTaskMethod, ClientNotification, ClientRequest, ConstString, ErrorData, GetTaskMethod,
    ProtocolVersion, ServerConfig, ServerResult, UpdateTaskMethod,
};
use rmcp::service::{NotificationContext, RequestContext};
use rmcp::{RoleServer, Service};
use std::borrow::Cow;

/// The server behind standard input and output.
pub(super) struct Gate(pub Server);

impl Service<RoleServer> for Gate {
    async fn handle_request(
        &self,
        request: ClientRequest,
        context: RequestContext<RoleServer>,
    ) -> Result<ServerResult, ErrorData> {
        if !is_modern(&context) {
            match &request {
                ClientRequest::GetTaskRequest(_) => return Err(absent::<GetTaskMethod>()),
                ClientRequest::UpdateTaskRequest(_) => return Err(absent::<UpdateTaskMethod>()),
                ClientRequest::CancelTaskRequest(_) => return Err(absent::<CancelTaskMethod>()),
                _ => {}
            }
        }
        self.0.handle_request(request, context).await
    }

    async fn handle_notification(
        &self,
        notification: ClientNotification,
        context: NotificationContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        self.0.handle_notification(notification, context).await
    }

    fn get_info(&self) -> ServerConfig {
        Service::get_info(&self.0)
    }

    fn supported_protocol_versions(&self) -> Cow<'static, [ProtocolVersion]> {
        Service::supported_protocol_versions(&self.0)
    }
}

fn absent<M: ConstString>() -> ErrorData {
    ErrorData::method_not_found::<M>()
}
