//! Which participants are waiting for a chat right now. Kept in memory: it belongs to connections.

use adjutant_core::chat::ChatId;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

/// How many calls of each participant wait for each chat.
#[derive(Debug, Clone, Default)]
pub struct Presence(Arc<Mutex<HashMap<(ChatId, String), usize>>>);

impl Presence {
    /// Counts a reader until the returned guard is dropped.
    pub(super) fn enter(&self, chat: ChatId, who: &str) -> Present {
        let key = (chat, who.to_owned());
        *self
            .0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .entry(key.clone())
            .or_default() += 1;
        Present {
            all: self.clone(),
            key,
        }
    }

    pub(super) fn is_reading(&self, chat: ChatId, who: &str) -> bool {
        self.0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .contains_key(&(chat, who.to_owned()))
    }
}

/// A guard for one reader.
#[derive(Debug)]
pub(super) struct Present {
    all: Presence,
    key: (ChatId, String),
}

impl Drop for Present {
    fn drop(&mut self) {
        let mut all = self.all.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(count) = all.get_mut(&self.key) {
            *count -= 1;
            if *count == 0 {
                all.remove(&self.key);
            }
        }
    }
}
