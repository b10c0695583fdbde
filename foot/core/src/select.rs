//! Which packs are wanted. The filters come in this order, each with a reason for what it takes out: the pack file's own
//! `enabled`, then the selection of `config.yaml`, then (not here) consent.

use vance_shared::doc::Problem;
use vance_shared::launch::LaunchPlan;
use vance_shared::pack::PackBody;

use crate::config::ToolPacks;
use crate::levels::Layered;
use crate::merge::{Found, LeftOut};

/// A pack that is wanted. Its file is `plan.source.file`.
#[derive(Debug, Clone, PartialEq)]
pub struct Wanted {
    /// What it would start or reach, given consent.
    pub plan: LaunchPlan,
    /// The user's own pack that counts instead if consent is not given.
    pub fallback: Option<LaunchPlan>,
}

/// The packs to judge and the ones that are not wanted.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Selected {
    /// What is wanted.
    pub wanted: Vec<Wanted>,
    /// What is left out.
    pub skipped: Vec<LeftOut>,
    /// Names in the selection that no pack has.
    pub warnings: Vec<Problem>,
}

/// Takes the packs that are wanted. `failed`: files that could not be loaded; a name in the selection may mean one of them.
pub fn select(packs: Vec<Layered>, tool_packs: &ToolPacks, failed: &[LeftOut]) -> Selected {
    let known: Vec<&str> =
        packs.iter().map(|p| p.found.pack.name.as_str()).chain(failed.iter().map(|f| f.pack.as_str())).collect();
    let mut selected = Selected { warnings: tool_packs.unmatched(&known), ..Selected::default() };
    for Layered { found: Found { file, pack }, below } in packs {
        let name = pack.name.to_string();
        let left_out = |reason: String| LeftOut { pack: name.clone(), file: file.clone(), reason };
        if !pack.enabled {
            selected.skipped.push(left_out("\"enabled\" is false in the pack file".to_owned()));
            continue;
        }
        if let Some(reason) = tool_packs.reason_against(&name) {
            selected.skipped.push(left_out(reason));
            continue;
        }
        match pack.body {
            PackBody::Launch(plan) => {
                let fallback = below.and_then(|below| match below.pack.body {
                    PackBody::Launch(plan) => Some(plan),
                    PackBody::Nothing => None,
                });
                selected.wanted.push(Wanted { plan, fallback });
            }
            PackBody::Nothing => selected.skipped.push(left_out("the pack has no parameters".to_owned())),
        }
    }
    selected
}

#[cfg(test)]
mod tests;
