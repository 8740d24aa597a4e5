//! What an agent may not do by itself: permitted by the run's profile, or asked of whoever is
//! responsible, with everything that it wants to do in full.

use crate::client::{Client, random_hex};
use crate::harness::dialogue::{Decision, Permission};
use crate::view::{ReadRequest, RequestApproval};

/// How long one look at a question lasts; the next one follows at once.
const LOOK_MS: u64 = 10 * 60 * 1000;

/// Decides what needs nobody: our own tools, edits for a run that may edit, and everything for one that
/// may do everything.
#[must_use]
pub fn at_once(permission: &Permission, permissions: &str) -> Option<Decision> {
    (permission.is_ours || permissions == "full" || permissions == "edit" && permission.is_edit).then_some(Decision::Allow)
}

/// Asks, and waits for as long as it takes. Whatever is not a clear yes is a no.
pub async fn ask(client: Client, permission: Permission) -> Decision {
    let asked = RequestApproval {
        action: format!("use {}", permission.tool),
        preview: Some(permission.input).filter(|input| !input.is_empty()),
        context: Some("the agent asks before it goes on".to_owned()),
        blocking: true,
        ..RequestApproval::default()
    };
    let mut request = match client.call_with_key(&asked, &random_hex::<16>()).await {
        Ok(request) => request,
        Err(error) => return Decision::Deny(format!("nobody could be asked: {error}")),
    };
    while request.status == "pending" {
        request = match client.call(&ReadRequest { message_id: request.message_id.clone(), wait_ms: LOOK_MS }).await {
            Ok(request) => request,
            Err(error) => return Decision::Deny(format!("nobody decided: {error}")),
        };
    }
    let words = request.reason.filter(|words| !words.trim().is_empty());
    match request.decision.as_deref() {
        Some("approved") => Decision::Allow,
        Some(_) => Decision::Deny(words.unwrap_or_else(|| "it was denied".to_owned())),
        None => Decision::Deny(format!("nobody decided: the request is {}", request.status)),
    }
}
