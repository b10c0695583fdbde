//! `vancetope trust allow`: consent without a terminal, only to exactly what somebody has looked at.

use vance_shared::gate::audit::Event;
use vance_shared::gate::{Digest, Verdict};
use vance_shared::names::PackName;

use super::desk::{Desk, unchanged};
use crate::cli::context::Context;
use crate::cli::failure::{EXIT_OK, Failure};
use crate::trust::{Counts, Yes, today};

/// Writes the consent down.
pub(super) fn allow(context: &mut Context, name: &PackName, digest: Digest) -> Result<u8, Failure> {
    let desk = Desk::new(context)?;
    let candidate = desk.candidate(name)?;
    let (verdict, reading) = desk.judge(candidate);
    if let Some(distrust) = reading.distrust {
        return Err(Failure::Foot(distrust));
    }
    let question = match verdict {
        Verdict::Ask(question) => question,
        Verdict::Denied(reason) => return Err(Failure::Foot(format!("pack '{name}': {reason}"))),
        Verdict::Trusted(launch) if launch.digest() == Some(digest) => {
            context.screen.progress(&format!("pack '{name}' is allowed already"))?;
            return Ok(EXIT_OK);
        }
        Verdict::Trusted(_) => {
            let why = format!(
                "pack '{name}' is allowed already, with another digest: look at it again with `vancetope trust show {name}`"
            );
            return Err(Failure::Foot(why));
        }
    };
    let (launch, entry) = question.approved(digest, &today()).map_err(|wrong| Failure::Foot(wrong.to_string()))?;
    let yes = Yes { event: Event::AllowedByDigest, plan: launch.plan(), digest, entry: Some(&entry) };
    if let Counts::No(why) = desk.trust.remember(&yes, Event::NotAsked).map_err(unchanged)? {
        return Err(Failure::Foot(format!("pack '{name}': {why}")));
    }
    context.screen.progress(&format!("pack '{name}' is allowed for {}", desk.project()?.key()))?;
    Ok(EXIT_OK)
}
