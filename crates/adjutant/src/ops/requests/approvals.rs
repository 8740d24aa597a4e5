//! Asking for approval.

use crate::clock;
use crate::ops::checks::{bounded, checked_expiry, checked_options};
use crate::ops::{Caller, OpError, Ops, lookup, render};
use crate::store::NewRequest;
use crate::view::{DecisionWord, RequestApproval, RequestView};
use adjutant_core::signal::{SignalKind, Source};
use adjutant_core::{Action, Denied, RequestId, Subject, limits};

fn checked(call: &RequestApproval, expiry_s_min: i64) -> Result<(), Denied> {
    if call.action.trim().is_empty() {
        return Err(Denied::invalid("action", "is empty: say what you want to do"));
    }
    bounded("action", &call.action, limits::TEXT_BYTES_MAX)?;
    bounded("preview", call.preview.as_deref().unwrap_or(""), limits::PREVIEW_BYTES_MAX)?;
    bounded("risk", call.risk.as_deref().unwrap_or(""), limits::TEXT_BYTES_MAX)?;
    bounded("context", call.context.as_deref().unwrap_or(""), limits::TEXT_BYTES_MAX)?;
    if call.default == Some(DecisionWord::Approve) {
        return Err(Denied::invalid("default", "cannot be approve: an undecided approval is denied; omit default"));
    }
    checked_options(&call.options)?;
    checked_expiry(call.expires_s, expiry_s_min)
}

impl Ops {
    /// Opens an approval of the calling run. Durable when it returns.
    ///
    /// # Errors
    /// The caller is no run, the run is not live, or a field is unusable.
    pub async fn request_approval(&self, caller: Caller, call: RequestApproval) -> Result<RequestView, OpError> {
        Self::check(&caller.who, Action::Ask)?;
        checked(&call, self.decision_expiry_s_min())?;
        let id = RequestId::new(clock::now(), crate::ops::random());
        let expiry_ms = self.expiry_ms(call.expires_s);
        let Caller { who, key } = caller.clone();
        let mut view = self
            .write(caller, move |tx, who| {
                let run = lookup::run(tx.connection(), who, Action::Ask, "")?;
                let RequestApproval { action, preview, risk, context, options, default: _, blocking, expires_s: _ } = call;
                let new = NewRequest {
                    id,
                    subject: Subject::Approval { preview, risk },
                    question: action,
                    context,
                    options,
                    default: None,
                    blocking,
                    by_block: false,
                    own_id: None,
                    clarification: None,
                    patience_ms: run.patience_ms,
                    expires_at: tx.steady().plus_ms(expiry_ms),
                };
                Ok(render::request(&tx.as_signal(Some(SignalKind::Approval), Source::Tool, |tx| tx.ask(&run, &new))?))
            })
            .await?;
        view.messages = self.messages_for(&who, key.as_ref()).await?;
        Ok(view)
    }
}
