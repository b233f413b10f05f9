//! The runner: work that is done by whoever leads, one term after the other.

use std::ops::ControlFlow;

use super::campaign::Campaign;
use super::leadership::Leadership;
use crate::cancel::CancelToken;
use crate::error::{Error, Result};
use crate::queue::Trail;

/// Stands for election until `lead` has had enough.
pub(super) fn run<T>(
    campaign: &Campaign,
    cancel: &CancelToken,
    mut lead: impl FnMut(&Leadership) -> ControlFlow<T>,
) -> Result<T> {
    let trail = Trail::default();
    loop {
        // Ends the term when it goes, be it by a panic.
        let (mandate, _) = campaign.elect(cancel, &trail, &|_| (), &|_| ())?;
        let leadership = mandate.view();
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
