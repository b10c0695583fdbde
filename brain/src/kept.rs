//! What holds while files change: each good file as it is now, each bad one as it was when it was good.

use std::collections::{BTreeMap, BTreeSet};

use vance_brain_core::spec::{EngineSpec, RegistryFile};
use vance_shared::pack::Pack;

use crate::home::{Home, Loaded};

/// What counts of all files, and where it stands.
#[derive(Debug, Clone, Default)]
pub struct Kept {
    /// `tools.yaml`.
    pub registry: RegistryFile,
    packs: BTreeMap<String, Pack>,
    engines: BTreeMap<String, EngineSpec>,
}

impl Kept {
    /// Takes what was read. A file that went away counts no more.
    pub fn take(&mut self, home: &Home, loaded: &Loaded) {
        if let Some(registry) = &loaded.registry {
            self.registry.clone_from(registry);
        }
        let (packs, engines) = (home.packs().display().to_string(), home.engines().display().to_string());
        let is_bad = |file: &str| loaded.problems.iter().any(|problem| problem.file == file);
        let file_of = |files: &BTreeMap<String, String>, name: &str| files.get(name).cloned().unwrap_or_default();
        let new = loaded.packs.iter().map(|p| (file_of(&loaded.pack_files, p.name.as_str()), p.clone())).collect();
        let old = std::mem::take(&mut self.packs);
        self.packs = merged(old, new, |file| is_bad(file) || is_bad(&packs), |pack| pack.name.as_str());
        let new = loaded.engines.values().map(|e| (file_of(&loaded.engine_files, &e.id), e.clone())).collect();
        let old = std::mem::take(&mut self.engines);
        self.engines = merged(old, new, |file| is_bad(file) || is_bad(&engines), |engine| engine.id.as_str());
    }

    /// The packs that are to run, or are turned off.
    pub fn packs(&self) -> impl Iterator<Item = &Pack> {
        self.packs.values()
    }

    /// Engines by id.
    pub fn engines(&self) -> BTreeMap<String, EngineSpec> {
        self.engines.values().map(|engine| (engine.id.clone(), engine.clone())).collect()
    }
}

/// The new ones by file, and of the old ones those whose file is bad now, unless another file has their name.
fn merged<T>(
    old: BTreeMap<String, T>,
    new: BTreeMap<String, T>,
    is_bad: impl Fn(&str) -> bool,
    name: impl Fn(&T) -> &str,
) -> BTreeMap<String, T> {
    let taken: BTreeSet<String> = new.values().map(|it| name(it).to_owned()).collect();
    let mut all = new;
    for (file, it) in old {
        if is_bad(&file) && !all.contains_key(&file) && !taken.contains(name(&it)) {
            all.insert(file, it);
        }
    }
    all
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::home::load;

    #[test]
    fn a_bad_file_keeps_what_it_said_and_only_that() {
        let dir = tempfile::tempdir().unwrap();
        let home = Home::resolve(Some(dir.path()), |_| None).unwrap();
        std::fs::create_dir_all(home.packs()).unwrap();
        std::fs::create_dir_all(home.engines()).unwrap();
        let pack = |name: &str, program: &str| {
            format!(
                r#"{{"name": "{name}", "type": "mcp_server", "parameters": {{"transport": "stdio", "command": ["{program}"]}}}}"#
            )
        };
        let put = |file: &str, text: &str| std::fs::write(home.brain().join(file), text).unwrap();
        let mut kept = Kept::default();
        let mut look = || {
            let loaded = load(&home);
            kept.take(&home, &loaded);
            let packs: Vec<String> = kept.packs().map(|p| p.name.to_string()).collect();
            let engines: Vec<String> = kept.engines().into_keys().collect();
            (packs.join(" "), engines.join(" "), kept.registry.len(), loaded.problems.len())
        };
        put("packs/a.json", &pack("a", "one"));
        put("packs/b.json", &pack("b", "two"));
        put("engines/e.yaml", "id: e");
        put("tools.yaml", "- {name: x, location: client}");
        assert_eq!(look(), ("a b".into(), "e".into(), 1, 0));
        put("packs/a.json", "{");
        put("engines/e.yaml", "id: [");
        put("tools.yaml", "- {name: x}");
        assert_eq!(look(), ("a b".into(), "e".into(), 1, 3), "bad files count as before");
        // Another file has its name now; the bad one's word is over.
        put("packs/c.json", &pack("a", "three"));
        put("engines/f.yaml", "id: f");
        let (packs, engines, ..) = look();
        assert_eq!((packs.as_str(), engines.as_str()), ("b a", "e f"));
        for gone in ["packs/a.json", "packs/b.json", "engines/e.yaml", "tools.yaml"] {
            std::fs::remove_file(home.brain().join(gone)).unwrap();
        }
        assert_eq!(look(), ("a".into(), "f".into(), 0, 0), "what is gone is gone");
    }
}
