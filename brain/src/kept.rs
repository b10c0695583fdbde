//! What holds while files change: each good file as it is now, each bad one as it was when it was good.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

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

/// What becomes of what a bad file is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Standing {
    /// A pack or an engine that was good.
    AsBefore,
    /// The same for what a Brain does not start without.
    UntilRestart,
    /// It never said anything that could count.
    Nothing,
    /// Secrets: who runs has them.
    Secrets,
}

impl std::fmt::Display for Standing {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::AsBefore => "what it said before still counts until the Brain is started again",
            Self::UntilRestart => "what it said before still counts; a Brain that is started now refuses it",
            Self::Nothing => "it does not count until that is mended",
            Self::Secrets => "packs that run keep the values that they have, and none starts that needs one",
        })
    }
}

impl Standing {
    /// The same for a Brain that starts: there is no before.
    pub fn at_start(self) -> &'static str {
        match self {
            Self::Secrets => "no pack starts that needs a secret",
            Self::AsBefore | Self::UntilRestart | Self::Nothing => "it is left out until that is mended",
        }
    }
}

impl Kept {
    /// What holds of a file with problems, or of a folder.
    pub fn standing(&self, home: &Home, file: &str) -> Standing {
        let is = |path: std::path::PathBuf| path.display().to_string() == file;
        if is(home.config()) || is(home.registry()) {
            Standing::UntilRestart
        } else if Path::new(file).starts_with(home.data()) {
            Standing::Secrets
        } else if is(home.packs())
            || is(home.engines())
            || self.packs.contains_key(file)
            || self.engines.contains_key(file)
        {
            Standing::AsBefore
        } else {
            Standing::Nothing
        }
    }

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

    #[test]
    fn a_link_that_leads_nowhere_is_a_bad_file_and_what_never_counted_does_not_now() {
        let dir = tempfile::tempdir().unwrap();
        let home = Home::resolve(Some(dir.path()), |_| None).unwrap();
        let real = home.brain().join("real");
        std::fs::create_dir_all(&real).unwrap();
        std::fs::create_dir_all(home.engines()).unwrap();
        std::os::unix::fs::symlink(&real, home.packs()).unwrap();
        let pack = r#"{"name": "a", "type": "mcp_server", "parameters": {"transport": "stdio", "command": ["x"]}}"#;
        std::fs::write(real.join("a.json"), pack).unwrap();
        std::fs::write(home.registry(), "- {name: x, location: client}").unwrap();
        std::fs::write(home.engines().join("e.yaml"), "id: e").unwrap();
        let mut kept = Kept::default();
        kept.take(&home, &load(&home));
        let files = [home.registry(), home.engines().join("e.yaml"), real.join("a.json")];
        for file in &files {
            std::fs::remove_file(file).unwrap();
            std::os::unix::fs::symlink("/nowhere/at/all", file).unwrap();
        }
        std::fs::write(real.join("b.json"), pack).unwrap();
        std::fs::write(real.join("c.json"), "{").unwrap();
        let loaded = load(&home);
        kept.take(&home, &loaded);
        let links =
            loaded.problems.iter().filter(|p| p.message.contains("is a link to /nowhere/at/all, which is not there"));
        assert_eq!(links.count(), 3, "{:?}", loaded.problems);
        assert_eq!((kept.registry.len(), kept.engines().len()), (1, 1));
        let standing = |kept: &Kept, path: &Path| kept.standing(&home, &path.display().to_string());
        for (path, want) in [
            (home.registry(), Standing::UntilRestart),
            (home.engines().join("e.yaml"), Standing::AsBefore),
            // Another good file has its name.
            (home.packs().join("a.json"), Standing::Nothing),
            (home.packs().join("c.json"), Standing::Nothing),
            (home.data().join("secrets.json"), Standing::Secrets),
        ] {
            assert_eq!(standing(&kept, &path), want, "{}", path.display());
        }
        // The folder itself.
        std::fs::remove_dir_all(&real).unwrap();
        let loaded = load(&home);
        kept.take(&home, &loaded);
        assert_eq!(kept.packs().count(), 1);
        assert!(loaded.problems.iter().any(|p| p.file == home.packs().display().to_string()), "{:?}", loaded.problems);
        std::fs::remove_file(home.packs()).unwrap();
        kept.take(&home, &load(&home));
        assert_eq!(kept.packs().count(), 0, "what is gone is gone");
    }
}
