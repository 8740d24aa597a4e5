//! Asking for approval.

use crate::clock;
use crate::ops::checks::{check_size, checked_expiry, checked_options};
use crate::ops::policy_file::PolicyFile;
use crate::ops::requests::messages::messages_for;
use crate::ops::requests::rules::{ask_approval, stated_operation};
use crate::ops::settings::Settings;
use crate::ops::{Caller, OpError, lookup, render};
use crate::store::{NewRequest, Store};
use crate::view::{DecisionWord, RequestApproval, RequestView};
use adjutant_core::policy::{Operation, REQUEST_APPROVAL};
use adjutant_core::signal::{SignalKind, Source};
use adjutant_core::{Action, Denied, RequestId, Subject, limits};

/// Maximum number of paths and addresses of one operation.
const PLACES_MAX: usize = 1_000;
/// Maximum length of a path.
const PATH_BYTES_MAX: usize = 4096;

fn validate(call: &RequestApproval, expiry_s_min: i64) -> Result<(), Denied> {
    if call.action.trim().is_empty() {
        return Err(Denied::invalid(
            "action",
            "is empty: say what you want to do",
        ));
    }
    check_size("action", &call.action, limits::TEXT_BYTES_MAX)?;
    check_size(
        "preview",
        call.preview.as_deref().unwrap_or(""),
        limits::PREVIEW_BYTES_MAX,
    )?;
    check_size(
        "risk",
        call.risk.as_deref().unwrap_or(""),
        limits::TEXT_BYTES_MAX,
    )?;
    check_size(
        "context",
        call.context.as_deref().unwrap_or(""),
        limits::TEXT_BYTES_MAX,
    )?;
    if let Some(operation) = &call.operation {
        check_size("operation.tool", &operation.tool, limits::OPTION_BYTES_MAX)?;
        check_size(
            "operation.command",
            operation.command.as_deref().unwrap_or(""),
            limits::TEXT_BYTES_MAX,
        )?;
        for path in &operation.paths {
            check_size("operation.paths", &path.path, PATH_BYTES_MAX)?;
        }
        if operation.paths.len() + operation.urls.len() > PLACES_MAX {
            return Err(Denied::invalid(
                "operation",
                format!("at most {PLACES_MAX} paths and addresses"),
            ));
        }
    }
    if call.default == Some(DecisionWord::Approve) {
        return Err(Denied::invalid(
            "default",
            "cannot be approve: an undecided approval is denied; omit default",
        ));
    }
    checked_options(&call.options)?;
    checked_expiry(call.expires_s, expiry_s_min)
}

/// Opens an approval of the calling run. Durable when it returns.
///
/// # Errors
/// The caller is not a run, the run is not live, or a field is unusable.
pub async fn request_approval(
    store: &Store,
    settings: &Settings,
    caller: Caller,
    call: RequestApproval,
) -> Result<RequestView, OpError> {
    lookup::check(&caller.who, Action::Ask)?;
    validate(&call, settings.decision_expiry_s_min())?;
    let id = RequestId::new(clock::now(), crate::ops::random());
    let expiry_ms = settings.expiry_ms(call.expires_s);
    let policies = PolicyFile::of(settings);
    let Caller { who, key } = caller.clone();
    let cwd = store
        .read(|connection| lookup::run(connection, &who, Action::Ask, ""))?
        .cwd;
    let operation = match call.operation.clone() {
        Some(stated) if stated.tool != REQUEST_APPROVAL => Operation::from(stated),
        stated => {
            let (action, preview) = (call.action.clone(), call.preview.clone());
            let resolved = tokio::task::spawn_blocking(move || {
                stated_operation(&cwd, &action, preview.as_deref(), stated)
            })
            .await;
            resolved.map_err(|error| OpError::Io(error.to_string()))?
        }
    };
    let mut view = caller
        .write(store, move |tx, who| {
            let run = lookup::run(tx.connection(), who, Action::Ask, "")?;
            let RequestApproval {
                action,
                preview,
                risk,
                context,
                options,
                default: _,
                blocking,
                expires_s: _,
                operation: _,
            } = call;
            let new = NewRequest {
                id,
                subject: Subject::Approval {
                    preview,
                    risk,
                    operation: Box::new(operation),
                },
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
            Ok(render::request(&tx.as_signal(
                Some(SignalKind::Approval),
                Source::Tool,
                |tx| ask_approval(tx, &run, &new, &policies),
            )?))
        })
        .await?;
    view.messages = messages_for(store, &who, key.as_ref()).await?;
    Ok(view)
}
