//! What the Brain is told of the tools: a first frame of limited size, then deltas. Pure.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use vance_shared::limits::{FRAME_BYTES, HELLO_FRAME_BYTES};
use vance_shared::names::ToolName;
use vance_shared::wire::{ClientConnected, ToBrain, ToolsChanged, WireTool, encode};

use super::catalogue::{Catalogue, Tool};

/// Largest tool on the wire: with its schemas it must fit a frame beside others.
pub(crate) const TOOL_BYTES: usize = FRAME_BYTES / 4;
/// Tools of one delta frame: a frame may be twice this and a tool more.
const DELTA_BYTES: usize = FRAME_BYTES / 2;

/// What the Brain was told.
pub(crate) type Announced = HashMap<ToolName, Arc<Tool>>;

/// The first frame's text with as many tools as fit, and what it tells. Packs of tools that do not fit count as loading:
/// their names are then absent, not unknown, until the delta brings them.
pub(crate) fn hello(base: ClientConnected, catalogue: &Catalogue) -> (String, Announced) {
    let mut hello = base;
    hello.loading = catalogue.loading().to_vec();
    hello.available_tools = Vec::new();
    let packs: BTreeSet<&str> = catalogue.tools().values().filter_map(|tool| tool.spec.pack.as_deref()).collect();
    // Room for the name of each pack: one that does not fit as a whole is named, and there are few.
    let names: usize = packs.iter().map(|pack| pack.len() + "\"\",".len()).sum::<usize>() + "\"loading\":[],".len();
    let bare = encode(&ToBrain::ClientConnected(hello.clone())).len();
    let mut room = HELLO_FRAME_BYTES.saturating_sub(bare + names);
    let mut announced = Announced::new();
    let mut late = BTreeSet::new();
    for tool in catalogue.in_order() {
        let wire = WireTool::from(&tool.spec);
        let bytes = encode(&wire).len() + ",".len();
        if bytes <= room {
            room -= bytes;
            hello.available_tools.push(wire);
            announced.insert(tool.spec.name.clone(), Arc::clone(tool));
        } else if let Some(pack) = &tool.spec.pack
            && !hello.loading.contains(pack)
        {
            late.insert(pack.clone());
        }
    }
    hello.loading.extend(late);
    (encode(&ToBrain::ClientConnected(hello)), announced)
}

/// The frames that bring the Brain from what it was told to what is. `announced` follows.
pub(crate) fn delta(announced: &mut Announced, catalogue: &Catalogue) -> Vec<ToolsChanged> {
    let removed: Vec<ToolName> =
        announced.keys().filter(|name| !catalogue.tools().contains_key(*name)).cloned().collect();
    let mut frames =
        vec![ToolsChanged { removed: removed.iter().map(ToString::to_string).collect(), ..ToolsChanged::default() }];
    for name in &removed {
        announced.remove(name);
    }
    let mut bytes = 0;
    for tool in catalogue.in_order() {
        let known = announced.get(&tool.spec.name);
        if known.is_some_and(|known| Arc::ptr_eq(known, tool) || known.spec == tool.spec) {
            continue;
        }
        let wire = WireTool::from(&tool.spec);
        bytes += encode(&wire).len();
        if bytes > DELTA_BYTES {
            bytes = 0;
            frames.push(ToolsChanged::default());
        }
        if let Some(frame) = frames.last_mut() {
            let list = if known.is_some() { &mut frame.changed } else { &mut frame.added };
            list.push(wire);
        }
        announced.insert(tool.spec.name.clone(), Arc::clone(tool));
    }
    if let Some(last) = frames.last_mut() {
        last.loading = Some(catalogue.loading().to_vec());
    }
    frames
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::panic)]
    use futures_util::future::BoxFuture;
    use vance_shared::call::Outcome;
    use vance_shared::json::Raw;
    use vance_shared::tool::{Replay, ToolSpec};

    use super::super::catalogue::{ToolCall, ToolHost};
    use super::*;

    struct Nobody;
    impl ToolHost for Nobody {
        fn call(&self, _: ToolCall) -> BoxFuture<'static, Outcome> {
            panic!("not called")
        }
    }

    fn tool(name: &str, pack: Option<&str>, description: &str) -> Arc<Tool> {
        let spec = ToolSpec {
            name: ToolName::parse(name).unwrap(),
            description: description.to_owned(),
            input_schema: Raw::empty_object(),
            output_schema: None,
            labels: vec![],
            annotations: None,
            replay: Replay::Unsafe,
            pack: pack.map(str::to_owned),
        };
        Arc::new(Tool { spec, host: Arc::new(Nobody) })
    }

    #[test]
    fn a_thousand_tools_fit_the_hello_as_far_as_they_fit_and_the_rest_follows() {
        let long = "d".repeat(500);
        let mut tools: Vec<Arc<Tool>> =
            (0..3000).map(|n| tool(&format!("p{}__t{n}", n % 30), Some(&format!("p{}", n % 30)), &long)).collect();
        tools.push(tool("own", None, ""));
        let catalogue = Catalogue::new(tools, vec!["slow".to_owned()]);
        let (text, mut announced) = hello(ClientConnected::default(), &catalogue);
        assert!(text.len() <= HELLO_FRAME_BYTES && text.len() > HELLO_FRAME_BYTES / 2, "{}", text.len());
        assert!(announced.contains_key("own") && announced.len() > 50);
        let said: ClientConnected = serde_json::from_str(&text).unwrap();
        assert_eq!(said.available_tools.len(), announced.len());
        for tool in catalogue.tools().values().filter(|t| !announced.contains_key(&t.spec.name)) {
            assert!(said.loading.contains(tool.spec.pack.as_ref().unwrap()), "{}", tool.spec.name);
        }
        let before = announced.len();
        let frames = delta(&mut announced, &catalogue);
        let added: usize = frames.iter().map(|f| f.added.len()).sum();
        assert_eq!((before + added, announced.len()), (3001, 3001));
        assert!(frames.iter().all(|f| encode(&ToBrain::ToolsChanged(f.clone())).len() < FRAME_BYTES));
        assert_eq!(frames.last().unwrap().loading, Some(vec!["slow".to_owned()]));
        assert!(frames.len() > 1 && frames[..frames.len() - 1].iter().all(|f| f.loading.is_none()));
    }

    #[test]
    fn a_delta_names_what_came_went_and_changed() {
        let (a, b, c) = (tool("a", None, ""), tool("b", None, ""), tool("c", None, ""));
        let (_, mut announced) = hello(ClientConnected::default(), &Catalogue::new([a.clone(), b, c], vec![]));
        let now = Catalogue::new([a, tool("b", None, "new words"), tool("d", None, "")], vec!["p".to_owned()]);
        let names = |tools: &[WireTool]| tools.iter().map(|t| t.name.clone()).collect::<Vec<_>>();
        let frames = delta(&mut announced, &now);
        assert_eq!(frames.len(), 1);
        assert_eq!((names(&frames[0].added), names(&frames[0].changed)), (vec!["d".to_owned()], vec!["b".to_owned()]));
        assert_eq!((&frames[0].removed, &frames[0].loading), (&vec!["c".to_owned()], &Some(vec!["p".to_owned()])));
        let frames = delta(&mut announced, &now);
        assert!(frames[0].added.is_empty() && frames[0].changed.is_empty() && frames[0].removed.is_empty());
    }
}
