//! The open calls of a client that add to a list of the hub. A new hub waits for those of the
//! supervisors before it answers such a list.

use crate::view::{
    Ask, AskAndWait, AskTogether, Call, Delegate, RequestApproval, SetStatus, StopWork,
};
use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

/// The names of these calls.
const NAMES: [&str; 7] = [
    Ask::NAME,
    AskAndWait::NAME,
    AskTogether::NAME,
    RequestApproval::NAME,
    Delegate::NAME,
    SetStatus::NAME,
    StopWork::NAME,
];

/// The keys of the open calls, each with the number of calls under it.
#[derive(Debug, Default)]
pub(super) struct OpenWrites(Mutex<BTreeMap<String, u32>>);

impl OpenWrites {
    fn keys_mut(&self) -> std::sync::MutexGuard<'_, BTreeMap<String, u32>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Records a call, which is open until the returned guard is dropped. `None`: it adds to no
    /// list.
    pub(super) fn begin(&self, path: &str, key: Option<&str>) -> Option<OpenWrite<'_>> {
        let key = key.filter(|_| {
            path.strip_prefix("/api/v1/")
                .is_some_and(|name| NAMES.contains(&name))
        })?;
        *self.keys_mut().entry(key.to_owned()).or_insert(0) += 1;
        Some(OpenWrite {
            of: self,
            key: key.to_owned(),
        })
    }

    pub(super) fn keys(&self) -> Vec<String> {
        self.keys_mut().keys().cloned().collect()
    }
}

/// Guard of an open call.
#[derive(Debug)]
pub(super) struct OpenWrite<'a> {
    of: &'a OpenWrites,
    key: String,
}

impl Drop for OpenWrite<'_> {
    fn drop(&mut self) {
        let mut keys = self.of.keys_mut();
        match keys.get_mut(&self.key) {
            Some(count) if *count > 1 => *count -= 1,
            _ => {
                keys.remove(&self.key);
            }
        }
    }
}
