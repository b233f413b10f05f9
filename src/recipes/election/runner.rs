//! The runner: work that is done by whoever leads, one term after the other.

use std::ops::ControlFlow;

use super::campaign::Campaign;
use super::created_nodes::CreatedNodes;
use super::leadership::Leadership;
use crate::cancel::CancelToken;
use crate::error::{Error, Result};

/// Stands for election until `lead` has had enough.
pub(super) fn run<T>(
    campaign: &Campaign,
    cancel: &CancelToken,
    mut lead: impl FnMut(&Leadership) -> ControlFlow<T>,
) -> Result<T> {
    let created_nodes = CreatedNodes::default();
    loop {
        // Ends the term when it goes, be it by a panic.
        let (term, _) = campaign.elect(cancel, &created_nodes, &|_| (), &|_| ())?;
        let leadership = term.view();
        if cancel.is_cancelled() {
            return Err(Error::Cancelled { path: campaign.path.clone() });
        }
        // The last look before the call.
        if !leadership.is_held() {
            continue;
        }
        if let ControlFlow::Break(value) = lead(&leadership) {
            return Ok(value);
        }
    }
}
