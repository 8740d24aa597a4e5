//! Runs that start only after others have ended.

use super::Flow;
use crate::store::queue::open_dependents;
use crate::store::{StoreError, Tx};
use adjutant_core::RunId;
use adjutant_core::cascade::Step;
use adjutant_core::run::Retention;

impl Flow {
    /// Resolves the dependencies on an ended run.
    pub(super) fn resolve_dependents(&mut self, ended: RunId) {
        // A cancelled run is the end of another dependency. A list, because chains can be long.
        if let Some(all) = &mut self.ended {
            all.push(ended);
        } else {
            self.ended = Some(vec![ended]);
            self.then(Step::NextEnded);
        }
    }
}

impl Tx<'_> {
    /// Resolves the dependencies on an ended run: its dependents may start, are held, or are
    /// cancelled.
    ///
    /// # Errors
    /// A failure of the store.
    pub fn resolve_dependents(
        &mut self,
        ended: RunId,
        retention: Retention,
    ) -> Result<(), StoreError> {
        self.flow(retention, |_, flow| {
            flow.resolve_dependents(ended);
            Ok(())
        })
    }

    pub(super) fn next_ended(&mut self, flow: &mut Flow) -> Result<(), StoreError> {
        let Some(on) = flow.ended.as_mut().and_then(Vec::pop) else {
            flow.ended = None;
            return Ok(());
        };
        for run in open_dependents(self, on)? {
            flow.then(Step::Depend { run, on });
        }
        flow.then(Step::NextEnded);
        Ok(())
    }
}
