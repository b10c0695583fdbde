#![allow(clippy::unwrap_used)]
use std::os::unix::fs::{PermissionsExt as _, chown, symlink};
use std::path::PathBuf;

use vance_shared::gate::Project;
use vance_shared::names::PackName;

use super::*;

const FILE: &str = "trusted-packs.yaml";
const ONE: &str = "trustedPacks:\n  /p:\n    - name: chrome\n      reach: npx -y x\n";

struct Home {
    _dir: tempfile::TempDir,
    home: PathBuf,
    store: Store,
}

fn home() -> Home {
    let dir = tempfile::tempdir().unwrap();
    let home = dir.path().join("home");
    std::fs::create_dir(&home).unwrap();
    mode(&home, 0o700);
    let store = Store::packs(&home, Some(&dir.path().canonicalize().unwrap().join("project")));
    std::fs::write(home.join(FILE), ONE).unwrap();
    mode(&home.join(FILE), 0o600);
    Home { _dir: dir, home, store }
}

fn mode(path: &Path, mode: u32) {
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
}

fn mode_of(path: &Path) -> u32 {
    path.metadata().unwrap().permissions().mode() & 0o777
}

fn project() -> Project {
    Project::new(Path::new("/p")).unwrap()
}

fn name(name: &str) -> PackName {
    PackName::parse(name).unwrap()
}

#[test]
fn what_others_could_have_written_trusts_nothing_and_is_never_written_over() {
    type Spoil = fn(&Path);
    let cases: [(&str, Spoil, &str); 9] = [
        ("a file that the group may write", |home| mode(&home.join(FILE), 0o620), "others may write"),
        ("a file that everybody may write", |home| mode(&home.join(FILE), 0o602), "others may write"),
        ("a folder that the group may write", |home| mode(home, 0o770), "others may write"),
        ("a folder that everybody may write", |home| mode(home, 0o1777), "others may write"),
        (
            "a file that is no file",
            |home| {
                std::fs::remove_file(home.join(FILE)).unwrap();
                nix::unistd::mkfifo(&home.join(FILE), nix::sys::stat::Mode::S_IRWXU).unwrap();
            },
            "no regular file",
        ),
        (
            "a file that says nothing",
            |home| std::fs::write(home.join(FILE), "trustedPacks: [").unwrap(),
            "trusted-packs.yaml:1",
        ),
        (
            "a file with an alias",
            |home| std::fs::write(home.join(FILE), "a: &x 1\nb: *x\n").unwrap(),
            "trusted-packs.yaml:",
        ),
        ("a file that is no text", |home| std::fs::write(home.join(FILE), [0xff]).unwrap(), "no UTF-8"),
        (
            "a link into the project",
            |home| {
                let project = home.parent().unwrap().join("project");
                std::fs::create_dir(&project).unwrap();
                std::fs::rename(home.join(FILE), project.join("store")).unwrap();
                symlink(project.join("store"), home.join(FILE)).unwrap();
            },
            "inside the working directory",
        ),
    ];
    for (what, spoil, why) in cases {
        let home = home();
        spoil(&home.home);
        let before = (!what.contains("no file")).then(|| std::fs::read(home.home.join(FILE)).unwrap());
        let reading = home.store.read();
        assert!(reading.book.find(&project(), &name("chrome")).is_none(), "{what}");
        let distrust = reading.distrust.unwrap();
        assert!(distrust.starts_with("nothing is trusted: ") && distrust.contains(why), "{what}: {distrust}");
        assert!(home.store.edit(|book| book.deny(&project(), &name("x"), "2026-01-01")).is_err(), "{what}");
        if let Some(before) = before {
            assert_eq!(std::fs::read(home.home.join(FILE)).unwrap(), before, "{what}");
        }
    }
}

#[test]
fn another_users_file_or_folder_trusts_nothing() {
    if !nix::unistd::geteuid().is_root() {
        // Only root can give files away.
        return;
    }
    for file in [FILE, ""] {
        let home = home();
        chown(home.home.join(file), Some(12345), None).unwrap();
        let reading = home.store.read();
        assert!(reading.distrust.unwrap().contains("belongs to another user (12345"), "{file}");
        assert!(reading.book.find(&project(), &name("chrome")).is_none(), "{file}");
    }
}

#[test]
fn what_others_can_only_read_is_tightened_and_counts() {
    let home = home();
    mode(&home.home, 0o755);
    mode(&home.home.join(FILE), 0o644);
    let reading = home.store.read();
    assert!(reading.distrust.is_none() && reading.book.find(&project(), &name("chrome")).is_some());
    assert_eq!((mode_of(&home.home), mode_of(&home.home.join(FILE))), (0o700, 0o600));
    assert_eq!(reading.notices.len(), 2, "{:?}", reading.notices);
    assert!(home.store.read().notices.is_empty());
}

#[test]
fn the_file_is_made_for_its_owners_eyes_and_a_link_to_it_stays_one() {
    let home = home();
    std::fs::remove_file(home.home.join(FILE)).unwrap();
    assert!(home.store.read().distrust.is_none(), "no file is no fault");
    home.store.edit(|book| book.deny(&project(), &name("x"), "2026-01-01")).unwrap();
    assert_eq!(mode_of(&home.home.join(FILE)), 0o600);
    let dotfiles = home.home.parent().unwrap().join("dotfiles");
    std::fs::create_dir(&dotfiles).unwrap();
    mode(&dotfiles, 0o700);
    std::fs::rename(home.home.join(FILE), dotfiles.join("mine.yaml")).unwrap();
    symlink(dotfiles.join("mine.yaml"), home.home.join(FILE)).unwrap();
    assert!(home.store.edit(|book| book.undeny(&project(), &name("x"))).unwrap());
    assert!(home.home.join(FILE).symlink_metadata().unwrap().is_symlink());
    assert!(home.store.read().book.denial(&project(), &name("x")).is_none());
    mode(&dotfiles, 0o777);
    assert!(home.store.read().distrust.is_some(), "the folder that it really lies in counts, too");
}

#[test]
fn comments_and_foreign_fields_survive_an_edit() {
    let home = home();
    let text = format!("# mine\nversion: 3\n{ONE}      note: asked Ann\n");
    std::fs::write(home.home.join(FILE), &text).unwrap();
    home.store.edit(|book| book.deny(&project(), &name("jira"), "2026-01-01")).unwrap();
    let after = std::fs::read_to_string(home.home.join(FILE)).unwrap();
    assert!(after.starts_with(&text) && after.contains("deniedPacks:"), "{after}");
    home.store.edit(|_| ()).unwrap();
    assert_eq!(std::fs::read_to_string(home.home.join(FILE)).unwrap(), after, "nothing to change, nothing is written");
}

#[test]
fn what_a_killed_writer_left_behind_is_removed_by_the_next_one_and_nothing_else_is() {
    let Home { _dir, home, store } = home();
    let old = |name: &str| {
        let path = home.join(name);
        let file = std::fs::File::create(&path).unwrap();
        file.set_modified(std::time::SystemTime::now() - std::time::Duration::from_secs(3600)).unwrap();
        path
    };
    let left_over = old(".trusted-packs.yaml.0123456789abcdef.tmp");
    let kept = [
        old(".trusted-packs.yaml.mine.tmp"),
        old(".trusted-packs.yaml.0123456789abcdef.bak"),
        old(".trusted-brains.yaml.0123456789abcdef.tmp"),
        home.join(".trusted-packs.yaml.fedcba9876543210.tmp"),
        home.join(".trusted-packs.yaml.aaaaaaaaaaaaaaaa.tmp"),
    ];
    std::fs::write(&kept[3], "just now").unwrap();
    std::fs::create_dir(&kept[4]).unwrap();
    store.edit(|book| book.deny(&project(), &name("x"), "2026-03-01")).unwrap();
    assert!(!left_over.exists());
    for path in kept {
        assert!(path.exists(), "{}", path.display());
    }
}
