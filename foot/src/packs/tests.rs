//! Both folders with real files: which packs count, and what is not read.
#![allow(clippy::unwrap_used)]

use std::os::unix::fs::symlink;

use tempfile::TempDir;

use super::*;

struct World {
    _dir: TempDir,
    paths: Paths,
}

impl World {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let paths = Paths::new(&dir.path().join("home"), &dir.path().join("project"), None);
        std::fs::create_dir_all(&paths.global_packs).unwrap();
        std::fs::create_dir_all(&paths.project_packs).unwrap();
        Self { _dir: dir, paths }
    }

    fn own(self, file: &str, text: &str) -> Self {
        std::fs::write(self.paths.global_packs.join(file), text).unwrap();
        self
    }

    fn theirs(self, file: &str, text: &str) -> Self {
        std::fs::write(self.paths.project_packs.join(file), text).unwrap();
        self
    }

    fn config(self, at: &str, text: &str) -> Self {
        std::fs::write(self.paths.home.parent().unwrap().join(at).join("config.yaml"), text).unwrap();
        self
    }

    /// `name:program` of what is wanted, with `(name:program)` for what counts without consent.
    fn wanted(&self, local: bool) -> String {
        let shown =
            |plan: &vance_shared::launch::LaunchPlan| format!("{}:{}", plan.pack, vance_shared::gate::reach(plan));
        let one = |w: &Wanted| match &w.fallback {
            Some(below) => format!("{}({})", shown(&w.plan), shown(below)),
            None => shown(&w.plan),
        };
        read(&self.paths, local).wanted.iter().map(one).collect::<Vec<_>>().join(" ")
    }
}

fn pack(name: &str, program: &str) -> String {
    format!(r#"{{"name":"{name}","type":"mcp_server","parameters":{{"transport":"stdio","command":["{program}"]}}}}"#)
}

fn names(list: &[LeftOut]) -> Vec<&str> {
    list.iter().map(|l| l.pack.as_str()).collect()
}

#[test]
fn a_broken_file_harms_no_other_and_a_disabled_one_is_no_pack() {
    let world = World::new()
        .own("a.json", &pack("a", "true"))
        .own("b.json", "{")
        .own("c.json.disabled", &pack("c", "true"))
        .own("d.json", "\u{0}");
    std::fs::write(world.paths.global_packs.join("e.json"), [0xff, 0xfe]).unwrap();
    let packs = read(&world.paths, true);
    assert_eq!(world.wanted(true), "a:true");
    assert_eq!(names(&packs.failed), ["e", "b", "d"]);
}

#[test]
fn the_project_contributes_redirects_and_turns_off() {
    let world = World::new()
        .own("a.json", &pack("a", "own-a"))
        .own("b.json", &pack("b", "own-b"))
        .own("c.json", &pack("c", "own-c"))
        .theirs("b.json", &pack("b", "their-b"))
        .theirs("c.json", r#"{"name":"c","type":"mcp_server","enabled":false}"#)
        .theirs("d.json", &pack("d", "their-d"));
    assert_eq!(world.wanted(true), "a:own-a b:their-b(b:own-b) d:their-d");
    assert_eq!(world.wanted(false), "a:own-a b:own-b c:own-c", "--no-local");
    let packs = read(&world.paths, true);
    assert_eq!((names(&packs.skipped), packs.notices.len()), (vec!["c"], 1));
    assert!(
        packs.wanted.iter().all(|w| (w.plan.origin == Origin::Project) == w.plan.source.file.contains("/project/"))
    );
}

#[test]
fn the_projects_selection_counts_instead_of_the_homes() {
    let world = || World::new().own("a.json", &pack("a", "x")).own("b.json", &pack("b", "x"));
    std::fs::create_dir_all(world().paths.project.join(".vancetope")).unwrap();
    for (home, project, wanted) in [
        ("", "", "a:x b:x"),
        ("toolPacks: {packs: [a]}", "", "a:x"),
        ("toolPacks: {packs: [a]}", "toolPacks: {packs: [b]}", "b:x"),
        ("toolPacks: {packs: [a]}", "other: 1", "a:x b:x"),
        ("toolPacks: {disabledPacks: [b]}", "toolPacks: {enabled: false}", ""),
        ("", "toolPacks: [", ""),
    ] {
        let mut world = world();
        if !home.is_empty() {
            world = world.config("home", home);
        }
        if !project.is_empty() {
            world = world.config("project/.vancetope", project);
        }
        assert_eq!(world.wanted(true), wanted, "home {home:?}, project {project:?}");
    }
}

#[test]
fn a_link_in_the_projects_folder_is_not_followed() {
    let world = World::new().own("a.json", &pack("a", "true"));
    let elsewhere = world.paths.home.join("elsewhere.json");
    std::fs::write(&elsewhere, pack("linked", "true")).unwrap();
    symlink(&elsewhere, world.paths.project_packs.join("linked.json")).unwrap();
    symlink(&elsewhere, world.paths.global_packs.join("mine.json")).unwrap();
    let packs = read(&world.paths, true);
    assert_eq!(world.wanted(true), "a:true linked:true", "in the user's own folder it is");
    assert_eq!(names(&packs.failed), ["linked"]);
    assert!(packs.failed[0].reason.contains("link"), "{}", packs.failed[0].reason);

    let world = World::new();
    let other = world.paths.home.join("other");
    std::fs::create_dir(&other).unwrap();
    std::fs::write(other.join("x.json"), pack("x", "true")).unwrap();
    std::fs::remove_dir(&world.paths.project_packs).unwrap();
    symlink(&other, &world.paths.project_packs).unwrap();
    assert_eq!((world.wanted(true).as_str(), read(&world.paths, true).failed.len()), ("", 1));
}

#[test]
fn a_pipe_is_no_pack() {
    let world = World::new();
    nix::unistd::mkfifo(&world.paths.project_packs.join("p.json"), nix::sys::stat::Mode::S_IRWXU).unwrap();
    nix::unistd::mkfifo(&world.paths.global_packs.join("q.json"), nix::sys::stat::Mode::S_IRWXU).unwrap();
    let packs = read(&world.paths, true);
    assert_eq!(names(&packs.failed), ["q", "p"]);
    assert!(packs.failed.iter().all(|f| f.reason.contains("not a regular file")), "{:?}", packs.failed);
}

#[test]
fn a_folder_that_is_both_counts_once_and_a_home_in_the_project_is_no_home() {
    let world = World::new().theirs("a.json", &pack("a", "true"));
    let paths = Paths::new(&world.paths.project.join(".vancetope"), &world.paths.project, None);
    let packs = read(&paths, true);
    assert_eq!(packs.wanted.len(), 1);
    assert_eq!(packs.wanted[0].plan.origin, Origin::Project, "it asks");
    let paths = Paths::new(&world.paths.home, &world.paths.project, Some(&world.paths.project_packs));
    let packs = read(&paths, true);
    assert_eq!((packs.wanted.len(), packs.wanted[0].plan.origin), (1, Origin::Project));
    // From further down: neither a home nor a folder of one's own.
    let below = world.paths.project.join("below");
    std::fs::create_dir(&below).unwrap();
    let vancetope = world.paths.project.join(".vancetope");
    for paths in
        [Paths::new(&vancetope, &below, None), Paths::new(&world.paths.home, &below, Some(&world.paths.project_packs))]
    {
        let packs = read(&paths, true);
        assert_eq!((packs.wanted.len(), packs.wanted[0].plan.origin), (1, Origin::Project));
    }
}

#[test]
fn without_folders_there_is_nothing_and_nothing_is_wrong() {
    let packs = read(&Paths::new(Path::new("/nowhere"), Path::new("/nowhere"), None), true);
    assert!(packs.wanted.is_empty() && packs.failed.is_empty() && packs.skipped.is_empty());
}
