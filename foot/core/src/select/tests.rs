#![allow(clippy::unwrap_used, clippy::expect_used)]

use vance_shared::launch::Origin;

use super::*;
use crate::levels::levels;
use crate::merge::{Merged, PackFile, merge};

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
    let levels = levels(merge([file("a", true), file("b", false)]), Merged::default());
    let selected = select(levels.packs, &ToolPacks::default(), &levels.failed);
    assert_eq!(selected.wanted.len(), 1);
    assert_eq!((selected.wanted[0].plan.pack.as_str(), selected.wanted[0].plan.source.file.as_str()), ("a", "a.json"));
    assert_eq!(selected.skipped.len(), 1);
    assert_eq!(selected.skipped[0].pack, "b");
    assert!(selected.skipped[0].reason.contains("enabled"));
}
