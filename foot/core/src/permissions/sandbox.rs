//! `sandbox:` in `permissions.yaml`: whether programs run behind the kernel's fence, and what they may reach besides.

use std::path::PathBuf;

use vance_shared::doc::{Entry, Node, Problems, nearest_field, ticked};
use vance_shared::show::plain;

use super::{Places, Rules};

/// Folders of one list: each is a rule that the kernel checks on every open.
const MAX_FOLDERS: usize = 64;
const FIELDS: &[&str] = &["mode", "read", "write"];

/// A sandbox is wanted.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Fence {
    read: Vec<String>,
    write: Vec<String>,
}

impl Fence {
    /// Folders and files that may also be read, absolute.
    pub fn read(&self, places: &Places) -> Vec<PathBuf> {
        self.read.iter().map(|path| places.absolute(path)).collect()
    }

    /// Folders and files that may also be changed, absolute.
    pub fn write(&self, places: &Places) -> Vec<PathBuf> {
        self.write.iter().map(|path| places.absolute(path)).collect()
    }
}

impl Rules {
    /// A project can put the fence up, but not widen it or take it down. Gives a warning if it tries.
    pub(super) fn fence_of(&mut self, project: &Self) -> Option<String> {
        let line = project.fence_line?;
        let (from, to) = (plain(&project.file), plain(&self.file));
        let Some(theirs) = project.fence.as_ref() else {
            let is_up = self.fence.is_some();
            return is_up
                .then(|| format!("{from}:{line} (`sandbox`): a project cannot turn the `sandbox` off; {to} can"));
        };
        self.fence.get_or_insert_default();
        if theirs.read.is_empty() && theirs.write.is_empty() {
            return None;
        }
        Some(format!("{from}:{line} (`sandbox`): a project cannot add folders to the `sandbox`; put them into {to}"))
    }
}

/// `on`, `off`, or a mapping with `mode`, `read`, `write`.
pub(super) fn parse(node: &Node, problems: &Problems) -> Option<Fence> {
    let Some(entries) = node.as_map() else {
        return is_on(node, "`sandbox`", problems).then(Fence::default);
    };
    let (mut fence, mut on) = (Fence::default(), true);
    for Entry { key, line, value } in entries {
        match key.as_str() {
            "mode" => on = is_on(value, "`mode` of `sandbox`", problems),
            "read" => fence.read = folders(value, key, problems),
            "write" => fence.write = folders(value, key, problems),
            other => problems
                .add(*line, format!("unknown field {} in `sandbox`{}", ticked(other), nearest_field(other, FIELDS))),
        }
    }
    on.then_some(fence)
}

fn is_on(node: &Node, what: &str, problems: &Problems) -> bool {
    match node.as_str() {
        Some("on") => true,
        Some("off") => false,
        _ => {
            problems.add(node.line, format!("{what} is {}, expected on or off", node.describe()));
            false
        }
    }
}

fn folders(node: &Node, what: &str, problems: &Problems) -> Vec<String> {
    let paths: Option<Vec<String>> = node.as_list().and_then(|items| {
        items.iter().map(|item| item.as_str().filter(|path| !path.is_empty()).map(str::to_owned)).collect()
    });
    match paths {
        Some(paths) if paths.len() <= MAX_FOLDERS => paths,
        Some(paths) => {
            problems.add(node.line, format!("{} folders in `{what}`, expected at most {MAX_FOLDERS}", paths.len()));
            Vec::new()
        }
        None => {
            problems.add(
                node.line,
                format!("`{what}` of `sandbox` is {}, expected a list of folders such as [~/papers]", node.describe()),
            );
            Vec::new()
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::super::parse_permissions;
    use super::*;

    fn fence(text: &str) -> Option<Fence> {
        parse_permissions("p.yaml", text).unwrap().fence
    }

    #[test]
    fn it_is_off_on_or_on_with_folders() {
        for text in ["", "sandbox: off", "sandbox: {mode: off, read: [/x]}"] {
            assert_eq!(fence(text), None, "{text}");
        }
        for text in ["sandbox: on", "sandbox: {mode: on}", "sandbox: {}"] {
            assert_eq!(fence(text), Some(Fence::default()), "{text}");
        }
        let with = fence("sandbox: {read: [/x], write: [~/y]}").unwrap();
        assert_eq!((with.read.len(), with.write.len()), (1, 1));
    }

    #[test]
    fn mistakes_are_named_all_at_once() {
        let problems = parse_permissions("p.yaml", "sandbox:\n  mode: yes\n  read: /x\n  wirte: []\n").unwrap_err();
        let lines: Vec<u32> = problems.iter().map(|p| p.line).collect();
        assert_eq!(lines, [2, 3, 4], "{problems:?}");
        assert!(problems[2].message.contains("write"), "{problems:?}");
    }

    #[test]
    fn a_project_puts_the_fence_up_but_neither_widens_it_nor_takes_it_down() {
        let rules = |text| parse_permissions("p.yaml", text).unwrap();
        for (home, project, on, warnings) in [
            ("sandbox: off", "sandbox: on", true, 0),
            ("sandbox: on", "sandbox: off", true, 1),
            ("", "sandbox: off", false, 0),
            ("sandbox: on", "sandbox: {write: [/]}", true, 1),
            ("", "", false, 0),
        ] {
            let (rules, warned) = rules(home).tightened_by(rules(project));
            assert_eq!((rules.fence().is_some(), warned.len()), (on, warnings), "{home} {project}");
            assert!(rules.fence().is_none_or(|fence| fence.write.is_empty()));
        }
    }
}
