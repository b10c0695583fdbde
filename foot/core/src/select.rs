//! Which packs are wanted. The filters come in this order, each with a reason for what it takes out: the pack file's own
//! `enabled`, then the project's selection, then consent.
//!
//! This release has the first filter. A selection by name is one more step here, on the same list and with the same reasons.

use vance_shared::launch::LaunchPlan;
use vance_shared::pack::PackBody;

use crate::merge::{Found, LeftOut};

/// The packs to start and the ones that are not wanted.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Selected {
    /// What to start, with the file that says so.
    pub plans: Vec<(String, LaunchPlan)>,
    /// What is left out.
    pub skipped: Vec<LeftOut>,
}

/// Takes the packs that are wanted.
pub fn select(packs: Vec<Found>) -> Selected {
    let mut selected = Selected::default();
    for Found { file, pack } in packs {
        let left_out =
            |reason: &str| LeftOut { pack: pack.name.to_string(), file: file.clone(), reason: reason.to_owned() };
        if !pack.enabled {
            selected.skipped.push(left_out("\"enabled\" is false in the pack file"));
            continue;
        }
        match pack.body {
            PackBody::Mcp(plan) => selected.plans.push((file, plan)),
            PackBody::RestApi => {
                selected.skipped.push(left_out("packs of type rest_api are not loaded by this release"))
            }
            PackBody::Nothing => selected.skipped.push(left_out("the pack has no parameters")),
        }
    }
    selected
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::merge::{PackFile, merge};
    use vance_shared::launch::Origin;

    #[test]
    fn a_disabled_pack_is_skipped_with_its_reason() {
        let text = |name: &str, enabled: bool| {
            format!(
                r#"{{"name":"{name}","enabled":{enabled},"type":"mcp_server","parameters":{{"transport":"stdio","command":["true"]}}}}"#
            )
        };
        let file = |name: &str, enabled| PackFile {
            file: format!("{name}.json"),
            text: text(name, enabled),
            origin: Origin::Global,
        };
        let selected = select(merge([file("a", true), file("b", false)]).packs);
        assert_eq!(selected.plans.len(), 1);
        assert_eq!(selected.plans[0].1.pack.as_str(), "a");
        assert_eq!(selected.skipped.len(), 1);
        assert_eq!(selected.skipped[0].pack, "b");
        assert!(selected.skipped[0].reason.contains("enabled"));
    }
}
