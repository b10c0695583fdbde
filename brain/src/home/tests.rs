#![allow(clippy::unwrap_used, clippy::expect_used)]

use super::*;

fn home(dir: &Path) -> Home {
    Home::resolve(Some(dir), |_| None).unwrap()
}

fn write(home: &Home, name: &str, text: impl AsRef<[u8]>) {
    let path = home.brain().join(name);
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::fs::write(path, text).unwrap();
}

fn mcp(name: &str) -> String {
    format!(
        r#"{{"name": "{name}", "type": "mcp_server", "parameters": {{"transport": "stdio", "command": ["npx", "-y", "x"]}}}}"#
    )
}

/// Problems as they are printed, without the folder.
fn shown(home: &Home, problems: &[Problem]) -> Vec<String> {
    let folder = format!("{}/", home.brain().display());
    problems.iter().map(|problem| problem.to_string().replace(&folder, "")).collect()
}

#[test]
fn the_home_is_the_flag_the_variable_or_the_users_own() {
    let of = |flag: Option<&str>, vance: Option<&str>, user: Option<&str>| {
        let lookup = |name: &str| if name == "VANCE_HOME" { vance } else { user }.map(OsString::from);
        Home::resolve(flag.map(Path::new), lookup).map(|home| home.root().display().to_string()).ok()
    };
    let here = |name: &str| std::env::current_dir().unwrap().join(name).display().to_string();
    for (flag, vance, user, want) in [
        (Some("/f"), Some("/v"), Some("/u"), Some("/f".to_owned())),
        (None, Some("/v"), Some("/u"), Some("/v".to_owned())),
        (None, Some(""), Some("/u"), Some("/u/.vancetope".to_owned())),
        (None, None, Some("/u"), Some("/u/.vancetope".to_owned())),
        (None, Some("rel"), None, Some(here("rel"))),
        (None, None, Some(""), None),
        (None, None, None, None),
    ] {
        assert_eq!(of(flag, vance, user), want, "{flag:?} {vance:?} {user:?}");
    }
}

#[test]
fn the_brains_folder_is_the_owners_alone() {
    let dir = tempfile::tempdir().unwrap();
    let home = home(&dir.path().join("new"));
    home.prepare().unwrap();
    let mode = || std::fs::metadata(home.brain()).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(), 0o700);
    std::fs::set_permissions(home.brain(), std::fs::Permissions::from_mode(0o755)).unwrap();
    home.prepare().unwrap();
    assert_eq!(mode(), 0o700);
}

#[test]
fn an_empty_home_has_no_problems() {
    let dir = tempfile::tempdir().unwrap();
    let loaded = load(&home(dir.path()));
    assert_eq!(loaded.problems, []);
    assert_eq!((loaded.config, loaded.registry), (Some(BrainConfig::default()), Some(RegistryFile::new())));
}

#[test]
fn a_full_home_is_read_as_a_whole() {
    let dir = tempfile::tempdir().unwrap();
    let home = home(dir.path());
    write(&home, "brain.yaml", "listen: 127.0.0.1:0\n");
    write(&home, "tools.yaml", "- name: web_search\n  location: server\n  type: built_in\n");
    write(&home, "packs/b.json", mcp("b"));
    write(&home, "packs/a.json", mcp("a"));
    for other in ["packs/c.json.disabled", "packs/.hidden.json", "packs/notes.txt", "engines/x.yaml.bak"] {
        write(&home, other, "not read");
    }
    write(&home, "engines/review.yaml", "engine:\n  id: eng_review\n  tools: {server: [web_search]}\n");
    let loaded = load(&home);
    assert_eq!(loaded.problems, []);
    assert_eq!(loaded.config.unwrap().listen.as_deref(), Some("127.0.0.1:0"));
    assert_eq!(loaded.registry.unwrap().len(), 1);
    assert_eq!(loaded.packs.iter().map(|pack| pack.name.as_str()).collect::<Vec<_>>(), ["a", "b"]);
    assert_eq!(loaded.engines.keys().collect::<Vec<_>>(), ["eng_review"]);
}

#[test]
fn all_problems_of_all_files_are_gathered_and_the_good_ones_still_load() {
    let dir = tempfile::tempdir().unwrap();
    let home = home(dir.path());
    write(&home, "brain.yaml", "listen: nowhere\nlisteen: x\n");
    write(&home, "tools.yaml", "- name: x\n  location: moon\n");
    write(&home, "packs/a.json", mcp("a"));
    write(&home, "packs/b.json", "{");
    write(&home, "packs/c.json", mcp("a"));
    write(&home, "packs/d.json", [b"{\n".as_slice(), b"\"name\": \"\xff\"}"].concat());
    write(&home, "packs/e.json", " ".repeat(pack::MAX_FILE_BYTES + 1));
    std::fs::create_dir(home.packs().join("f.json")).unwrap();
    nix::unistd::mkfifo(&home.packs().join("g.json"), nix::sys::stat::Mode::S_IRWXU).unwrap();
    write(&home, "engines/a.yaml", "id: one\n");
    write(&home, "engines/b.yaml", "id: one\n");
    write(&home, "engines/c.yaml", "id: [\n");
    let loaded = load(&home);
    assert_eq!((&loaded.config, &loaded.registry), (&None, &None));
    assert_eq!((loaded.packs.len(), loaded.engines.len()), (1, 1));
    let shown = shown(&home, &loaded.problems);
    for begin in [
        "brain.yaml:1: ",
        "brain.yaml:2: ",
        "tools.yaml:2: ",
        "packs/b.json:1: ",
        "packs/c.json:1: the pack `a` is there twice, first in packs/a.json",
        "packs/d.json:2: the file is not UTF-8",
        "packs/e.json:1: the file is too large, expected at most 262144 bytes",
        "packs/f.json:1: is no regular file",
        "packs/g.json:1: is no regular file",
        "engines/b.yaml:1: the engine `one` is there twice, first in engines/a.yaml",
        "engines/c.yaml:",
    ] {
        assert!(shown.iter().any(|line| line.starts_with(begin)), "{begin} is missing in {shown:#?}");
    }
    assert_eq!(check(&home), loaded.problems);
}

#[test]
fn a_native_entry_that_can_never_work_is_a_warning_at_its_line() {
    let dir = tempfile::tempdir().unwrap();
    let home = home(dir.path());
    let entries = [
        "{name: read_locl_file, location: client, type: native}",
        "{name: read_local_file, location: both, type: native}",
        "{name: git_status, location: prefer_client, type: native}",
        // These are as they should be.
        "{name: write_local_file, location: client, type: native}",
        "{name: web_search, location: client}",
        "{name: mine, location: client}",
    ];
    write(&home, "tools.yaml", entries.map(|entry| format!("- {entry}\n")).concat());
    let loaded = load(&home);
    assert_eq!(loaded.problems, []);
    assert_eq!(
        shown(&home, &loaded.warnings),
        [
            "tools.yaml:3: `git_status` is a tool of the client, and the server has none of this name; say `location: client`",
            "tools.yaml:2: `read_local_file` is a tool of the client, and the server has none of this name; say `location: client`",
            "tools.yaml:1: tasks wait for `read_locl_file` until a client that is no Foot reports it: a Foot has no native tool of this name, did you mean `read_local_file`?",
        ]
    );
}

#[test]
fn a_folder_with_too_many_packs_says_so() {
    let dir = tempfile::tempdir().unwrap();
    let home = home(dir.path());
    for n in 0..66 {
        write(&home, &format!("packs/p{n:02}.json"), mcp(&format!("p{n:02}")));
    }
    let loaded = load(&home);
    assert_eq!(loaded.packs.len(), 64);
    let shown = shown(&home, &loaded.problems);
    assert_eq!(shown.len(), 1);
    assert!(
        shown[0].ends_with("packs:1: 66 files, expected at most 64; those after packs/p63.json are not read"),
        "{shown:?}"
    );
}
