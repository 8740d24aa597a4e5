//! How `adj config show` shows pools.

use crate::config::{Launcher, PoolEntry};
use adjutant_core::units::duration;
use adjutant_core::{AgentName, Isolation};
use serde_json::{Value, json};

/// Returns the settings of a pool by their names in the file. Settings without a value are null.
pub(super) fn settings(pool: &PoolEntry) -> Value {
    let PoolEntry {
        slots,
        agents,
        isolation,
        keep_slot,
        fallback,
        budget,
        build_jobs,
        on_runners,
        labels,
        launcher,
    } = pool;
    let mut all = json!({
        "slots": slots,
        "agents": agents.iter().map(AgentName::as_str).collect::<Vec<_>>(),
        "isolation": isolation.map(Isolation::word),
        "keep_slot": keep_slot,
        "fallback": fallback,
        "budget": (!budget.is_empty()).then(|| budget.to_string()),
        "build_jobs": build_jobs,
        "runners": on_runners,
        "labels": (!labels.is_empty()).then_some(labels),
    });
    if let Some(Launcher {
        argv,
        input,
        max,
        join_within_ms,
    }) = launcher
    {
        all["launch"] = json!(argv);
        all["launch_input"] = json!(input);
        all["launch_max"] = json!(max);
        all["launch_timeout"] = json!(duration::exact(*join_within_ms));
    }
    all
}
