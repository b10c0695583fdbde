//! Files: what is read, what is written, and what never is.

use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use serde_json::json;
use tokio_util::sync::CancellationToken;
use vance_shared::call::Outcome;

use crate::support::{GENEROUS, Person, World, failure};

#[tokio::test]
async fn a_text_is_read_by_lines_and_goes_on_where_it_ended() {
    let world = World::new("");
    world.put("a.txt", "one\ntwo\nthree\nfour");
    let (text, all) = world.done("read_local_file", json!({"path": "a.txt"})).await;
    assert_eq!(
        (text.as_str(), &all["lines"], &all["truncated"], &all["size"]),
        ("one\ntwo\nthree\nfour", &json!(4), &json!(false), &json!(18))
    );
    let (text, part) = world.done("read_local_file", json!({"path": "a.txt", "offset": 2, "limit": 2})).await;
    assert_eq!((text.as_str(), &part["first_line"], &part["next_offset"]), ("two\nthree\n", &json!(2), &json!(4)));
    let (text, rest) = world.done("read_local_file", json!({"path": "a.txt", "offset": 4})).await;
    assert_eq!((text.as_str(), &rest["next_offset"]), ("four", &json!(null)));
    let (text, cut) = world.done("read_local_file", json!({"path": "a.txt", "max_bytes": 6})).await;
    assert_eq!((text.as_str(), &cut["truncated"], &cut["next_offset"]), ("one\n", &json!(true), &json!(2)));
    let (text, _) = world.done("read_local_file", json!({"path": world.project.join("a.txt")})).await;
    assert_eq!(text.len(), 18, "an absolute path below a root is the same file");
}

#[tokio::test]
async fn other_data_is_refused_with_a_hint_and_given_as_base64() {
    let world = World::new("");
    world.put("x.bin", [1, 0, 2]);
    world.put("x.pdf", b"%PDF-1.4\n\0");
    world.put("latin1.txt", b"caf\xe9 au lait");
    world.put("empty.txt", "");
    let message = world.fails("read_local_file", json!({"path": "x.bin"}), "binary_file").await;
    assert!(message.contains("base64"), "{message}");
    let message = world.fails("read_local_file", json!({"path": "x.pdf"}), "binary_file").await;
    assert!(message.contains("pdf_extract_text"), "{message}");
    let (text, shape) = world.done("read_local_file", json!({"path": "x.bin", "encoding": "base64"})).await;
    assert_eq!((text.as_str(), &shape["encoding"]), ("AQAC", &json!("base64")));
    let (text, shape) =
        world.done("read_local_file", json!({"path": "x.bin", "encoding": "base64", "offset": 1, "limit": 1})).await;
    assert_eq!((text.as_str(), &shape["next_offset"]), ("AA==", &json!(2)));
    let (text, shape) = world.done("read_local_file", json!({"path": "latin1.txt"})).await;
    assert_eq!((text.as_str(), &shape["encoding"]), ("caf\u{fffd} au lait", &json!("unknown-8bit")));
    assert_eq!(world.done("read_local_file", json!({"path": "empty.txt"})).await.0, "");
}

#[tokio::test]
async fn a_huge_file_gives_its_beginning() {
    let world = World::new("");
    let huge = std::fs::File::create(world.project.join("huge.txt")).unwrap();
    huge.set_len(64 << 30).unwrap();
    world.fails("read_local_file", json!({"path": "huge.txt"}), "binary_file").await;
    world.put("long.txt", "0123456789abcde\n".repeat(200_000));
    let (text, shape) = world.done("read_local_file", json!({"path": "long.txt"})).await;
    assert_eq!((text.len(), &shape["truncated"], &shape["next_offset"]), (1 << 20, &json!(true), &json!(65_537)));
    world.put("line.txt", "é".repeat(1_000_000));
    let (text, shape) = world.done("read_local_file", json!({"path": "line.txt", "max_bytes": 1001})).await;
    assert_eq!((text.len(), &shape["truncated"]), (1000, &json!(true)));
    world.put("esc.txt", "\u{1b}".repeat(4 << 20));
    let (text, _) = world.done("read_local_file", json!({"path": "esc.txt", "max_bytes": 4 << 20})).await;
    assert_eq!(text.len(), 1 << 20, "what travels is counted as JSON");
}

#[tokio::test]
async fn what_is_no_file_is_said() {
    let world = World::new("");
    std::fs::create_dir(world.project.join("dir")).unwrap();
    nix::unistd::mkfifo(&world.project.join("pipe"), nix::sys::stat::Mode::S_IRWXU).unwrap();
    world.put("plain", "x");
    for (path, code, want) in [
        ("missing.txt", "not_found", "'"),
        ("missing/x.txt", "not_found", "list_local_files"),
        ("dir", "not_a_file", "list_local_files"),
        (".", "not_a_file", "list_local_files"),
        ("pipe", "not_a_file", "pipe"),
        ("plain/x", "not_found", "not a folder"),
    ] {
        let message = world.fails("read_local_file", json!({"path": path}), code).await;
        assert!(message.contains(want), "{path}: {message}");
    }
    assert!(
        world.fails("list_local_files", json!({"path": "plain"}), "not_a_folder").await.contains("read_local_file")
    );
    world.fails("read_local_file", json!({"path": "a\0b"}), "io_error").await;
}

#[tokio::test]
async fn arguments_are_checked_before_anything_runs() {
    let world = World::open();
    for (tool, arguments) in [
        ("read_local_file", json!({})),
        ("read_local_file", json!({"path": "a", "size": 1})),
        ("read_local_file", json!({"path": "a", "max_bytes": 999_999_999})),
        ("write_local_file", json!({"path": "a", "content": 1})),
        ("shell_execute", json!({"argv": []})),
        ("shell_execute", json!({})),
        ("shell_execute", json!({"argv": ["true"], "command": "true"})),
        ("shell_execute", json!({"argv": ["true"], "env": {"VANCE_TOKEN": "x"}})),
        ("search_local_files", json!({"pattern": "("})),
        ("list_local_files", json!({"glob": "[z"})),
    ] {
        failure(world.call(tool, arguments.clone()).await, "invalid_argument");
    }
    let (said, _) = failure(world.call("search_local_files", json!({"pattern": "("})).await, "invalid_argument");
    assert_eq!(said, "pattern: unclosed group; pass `literal: true` to search for the text as it is");
    world.fails("no_such_tool", json!({}), "unknown_tool").await;
}

#[tokio::test]
async fn nothing_outside_the_roots_is_reached() {
    let world = World::open();
    std::fs::write(world.outside.join("secret"), "secret").unwrap();
    let link = |target: &str, name: &str| symlink(target, world.project.join(name)).unwrap();
    link("../outside", "up");
    link("../outside/secret", "file");
    link(world.outside.to_str().unwrap(), "absolute");
    link("../outside/new", "dangling");
    link("up", "twice");
    link("loop", "loop");
    for path in [
        "../outside/secret",
        "up/secret",
        "file",
        "absolute/secret",
        "dangling",
        "twice/secret",
        "loop",
        "up/../outside/secret",
        "/etc/hostname",
    ] {
        let outcome = world.call("read_local_file", json!({"path": path})).await;
        assert!(matches!(outcome, Outcome::Failed { result: None, .. }), "{path}: {outcome:?}");
        let outcome = world.call("write_local_file", json!({"path": path, "content": "x", "create_dirs": true})).await;
        let inside = path == "up/../outside/secret";
        assert!(inside || matches!(outcome, Outcome::Failed { .. }), "{path}: {outcome:?}");
    }
    for (tool, arguments) in [
        ("list_local_files", json!({"path": "up"})),
        ("search_local_files", json!({"pattern": "secret", "path": "up"})),
        ("edit_local_file", json!({"path": "up/secret", "old_text": "s", "new_text": "x"})),
        ("pdf_extract_text", json!({"path": "up/secret"})),
        ("git_status", json!({"path": "up"})),
        ("shell_execute", json!({"argv": ["true"], "cwd": "up"})),
    ] {
        world.fails(tool, arguments, "permission_denied").await;
    }
    let message = world.fails("read_local_file", json!({"path": "/etc/hostname"}), "permission_denied").await;
    assert!(message.contains("`roots:`") && message.contains("permissions.yaml"), "{message}");
    let left: Vec<_> = std::fs::read_dir(&world.outside).unwrap().map(|e| e.unwrap().file_name()).collect();
    assert_eq!(left, ["secret"]);
    assert_eq!(std::fs::read_to_string(world.outside.join("secret")).unwrap(), "secret");
}

#[tokio::test]
async fn links_that_stay_inside_work_and_are_written_through() {
    let world = World::open();
    let real = world.put("real/a.txt", "old");
    symlink("real", world.project.join("link")).unwrap();
    symlink(&real, world.project.join("abs.txt")).unwrap();
    assert_eq!(world.done("read_local_file", json!({"path": "link/a.txt"})).await.0, "old");
    assert_eq!(world.done("read_local_file", json!({"path": "abs.txt"})).await.0, "old");
    world.done("write_local_file", json!({"path": "abs.txt", "content": "new"})).await;
    assert_eq!(std::fs::read_to_string(&real).unwrap(), "new");
    assert!(world.project.join("abs.txt").is_symlink());
}

#[tokio::test]
async fn the_floor_holds_through_links_and_for_what_does_not_exist() {
    let world = World::new("allow: [{write: '**'}, {read: '**'}, {tool: write_local_file}]\nroots: ['.', '../home']");
    std::fs::write(world.home.join("token"), "secret").unwrap();
    world.put(".git/config", "[core]");
    symlink(&world.home, world.project.join("h")).unwrap();
    symlink(".git/config", world.project.join("innocent")).unwrap();
    symlink(".git", world.project.join("g")).unwrap();
    for path in [
        "../home/token",
        "h/token",
        "innocent",
        "g/config",
        ".git/config",
        ".git/hooks/pre-commit",
        "sub/.git/hooks/x",
        ".vancetope/foot-tools/x.json",
        ".VANCETOPE/x",
        "../home/state/new",
    ] {
        for (tool, arguments) in [
            ("read_local_file", json!({"path": path})),
            ("write_local_file", json!({"path": path, "content": "x", "create_dirs": true})),
            ("edit_local_file", json!({"path": path, "old_text": "s", "new_text": "x"})),
        ] {
            let message = world.fails(tool, arguments, "permission_denied").await;
            assert!(message.contains("protected"), "{tool} {path}: {message}");
        }
    }
    assert!(!world.project.join(".vancetope").exists() && !world.project.join("sub").exists());
    let (_, listed) = world.done("list_local_files", json!({"path": "../project"})).await;
    let names: Vec<&str> = listed["entries"].as_array().unwrap().iter().map(|e| e["path"].as_str().unwrap()).collect();
    assert_eq!(names, [".git", "g", "h", "innocent"]);
    let (_, found) = world.done("search_local_files", json!({"pattern": "core|secret", "include_ignored": true})).await;
    assert_eq!(found["matches"], json!([]));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_folder_that_becomes_a_link_in_between_leads_nowhere() {
    let world = World::open();
    std::fs::write(world.outside.join("a.txt"), "secret").unwrap();
    world.put("real/a.txt", "fine");
    let (project, stop) = (world.project.clone(), Arc::new(AtomicBool::new(false)));
    let stopped = Arc::clone(&stop);
    let swapper = std::thread::spawn(move || {
        for round in 0.. {
            if stopped.load(Ordering::Relaxed) {
                break;
            }
            let moved = project.join(format!("moved{round}"));
            for target in ["real", "../outside"] {
                symlink(target, project.join("next")).unwrap();
                std::fs::rename(project.join("next"), project.join("dir")).unwrap();
            }
            // Also a folder of its own that is moved away under the reader.
            std::fs::create_dir_all(project.join("own")).unwrap();
            std::fs::write(project.join("own/a.txt"), "fine").unwrap();
            std::fs::rename(project.join("own"), moved).unwrap();
            symlink("../outside", project.join("own")).unwrap();
            std::fs::remove_file(project.join("own")).unwrap();
        }
    });
    let mut seen = 0;
    for i in 0..80 {
        for path in ["dir/a.txt", "own/a.txt"] {
            if let Outcome::Done(result) = world.call("read_local_file", json!({"path": path})).await {
                let text = result.joined_text();
                assert!("fine".starts_with(&text), "{text}");
                seen += 1;
            }
        }
        world.call("write_local_file", json!({"path": format!("own/new{i}"), "content": "x"})).await;
        world.call("write_local_file", json!({"path": format!("dir/new{i}"), "content": "x"})).await;
    }
    stop.store(true, Ordering::Relaxed);
    swapper.join().unwrap();
    assert!(seen > 0, "the good file is read now and then");
    let left: Vec<_> = std::fs::read_dir(&world.outside).unwrap().map(|e| e.unwrap().file_name()).collect();
    assert_eq!(left, ["a.txt"], "nothing was written outside");
}

#[tokio::test]
async fn writing_asks_and_without_anybody_the_answer_is_no() {
    let world = World::new("");
    let message =
        world.fails("write_local_file", json!({"path": "out/a.txt", "content": "x"}), "permission_denied").await;
    assert!(
        message.contains("/project/out/a.txt}` under `allow:`")
            && message.contains("permissions.yaml")
            && message.contains("nobody"),
        "{message}"
    );
    assert!(!world.project.join("out").exists());
    let world = World::new("allow:\n- {write: out/a.txt}");
    world.fails("write_local_file", json!({"path": "out/a.txt", "content": "x"}), "not_found").await;
    let (_, shape) =
        world.done("write_local_file", json!({"path": "out/a.txt", "content": "x", "create_dirs": true})).await;
    assert_eq!((&shape["created"], &shape["size"]), (&json!(true), &json!(1)));
}

#[tokio::test]
async fn a_person_can_say_yes_and_no_and_a_cancel_takes_the_question_back() {
    let yes = Person::who_says(Some(true));
    let world = World::with("", Some(yes.clone()));
    world.done("write_local_file", json!({"path": "a", "content": "x"})).await;
    let question = yes.asked.lock().unwrap().pop().unwrap();
    assert!(question.what.contains("/project/a'") && question.remedy.contains("/project/a}` under"), "{question:?}");

    let world = World::with("deny: [{write: b}]", Some(Person::who_says(Some(false))));
    assert!(
        world
            .fails("write_local_file", json!({"path": "a", "content": "x"}), "permission_denied")
            .await
            .contains("answer was no")
    );
    assert!(
        world
            .fails("write_local_file", json!({"path": "b", "content": "x"}), "permission_denied")
            .await
            .contains("permissions.yaml:1")
    );

    let silent = Person::who_says(None);
    let world = World::with("", Some(silent.clone()));
    let (cancel, arguments) = (CancellationToken::new(), json!({"path": "a", "content": "x"}));
    let later = cancel.clone();
    tokio::spawn(async move {
        while silent.asked.lock().unwrap().is_empty() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        later.cancel();
    });
    let outcome = world.call_with("write_local_file", arguments.clone(), GENEROUS, cancel).await;
    assert_eq!(outcome.word(), "cancelled");
    let outcome =
        world.call_with("write_local_file", arguments, Duration::from_millis(20), CancellationToken::new()).await;
    failure(outcome, "timeout");
    assert!(!world.project.join("a").exists());
}

#[tokio::test]
async fn a_file_is_replaced_as_a_whole_and_keeps_its_mode() {
    let world = World::open();
    let path = world.put("run.sh", "old");
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o750)).unwrap();
    let hard = world.outside.join("hard");
    std::fs::hard_link(&path, &hard).unwrap();
    let (_, shape) = world.done("write_local_file", json!({"path": "run.sh", "content": "new"})).await;
    assert_eq!(shape["created"], json!(false));
    assert_eq!(std::fs::read_to_string(&path).unwrap(), "new");
    assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o750);
    assert_eq!(std::fs::read_to_string(&hard).unwrap(), "old", "another name of the old file is another file now");
    let (_, shape) = world.done("write_local_file", json!({"path": "run.sh", "content": "er", "append": true})).await;
    assert_eq!((std::fs::read_to_string(&path).unwrap().as_str(), &shape["size"]), ("newer", &json!(5)));
    let names: Vec<_> = std::fs::read_dir(&world.project).unwrap().map(|e| e.unwrap().file_name()).collect();
    assert_eq!(names, ["run.sh"], "no temporary file is left");
    std::fs::create_dir(world.project.join("dir")).unwrap();
    world.fails("write_local_file", json!({"path": "dir", "content": "x"}), "not_a_file").await;
}

#[tokio::test]
async fn an_edit_matches_exactly_once_or_says_why_not() {
    let world = World::open();
    let path = world.put("a.rs", "fn a() {}\nfn b() {}\n");
    let (_, shape) =
        world.done("edit_local_file", json!({"path": "a.rs", "old_text": "fn b()", "new_text": "fn c()"})).await;
    assert_eq!((&shape["replacements"], &shape["first_line"]), (&json!(1), &json!(2)));
    assert_eq!(std::fs::read_to_string(&path).unwrap(), "fn a() {}\nfn c() {}\n");
    let message =
        world.fails("edit_local_file", json!({"path": "a.rs", "old_text": "fn ", "new_text": "x"}), "no_match").await;
    assert!(message.contains("2 times (lines 1, 2)"), "{message}");
    let (_, shape) = world
        .done("edit_local_file", json!({"path": "a.rs", "old_text": "fn ", "new_text": "pub fn ", "replace_all": true}))
        .await;
    assert_eq!(shape["replacements"], json!(2));
    world.fails("edit_local_file", json!({"path": "b.rs", "old_text": "a", "new_text": "b"}), "not_found").await;
    world.put("bin", [0xff, 0xfe, 0]);
    world.fails("edit_local_file", json!({"path": "bin", "old_text": "a", "new_text": "b"}), "binary_file").await;
}

#[tokio::test]
async fn a_tree_is_listed_without_what_git_ignores() {
    let world = World::new("deny: [{read: private}]");
    for name in ["src/a.rs", "src/deep/b.rs", "target/x.o", ".gitignore", "private/key", "notes.md"] {
        world.put(name, "x");
    }
    world.put(".gitignore", "target/\n*.tmp\n");
    world.put("src/.gitignore", "!keep.tmp\n");
    world.put("src/keep.tmp", "x");
    world.put("src/drop.tmp", "x");
    let names = |shape: &serde_json::Value| -> Vec<String> {
        shape["entries"].as_array().unwrap().iter().map(|e| e["path"].as_str().unwrap().to_owned()).collect()
    };
    let (_, flat) = world.done("list_local_files", json!({})).await;
    assert_eq!(names(&flat), [".gitignore", "notes.md", "src", "target"]);
    assert_eq!(flat["denied"], json!(1));
    let (text, tree) = world.done("list_local_files", json!({"recursive": true})).await;
    assert_eq!(
        names(&tree),
        [
            ".gitignore",
            "notes.md",
            "src",
            "src/.gitignore",
            "src/a.rs",
            "src/deep",
            "src/deep/b.rs",
            "src/drop.tmp",
            "src/keep.tmp"
        ]
        .into_iter()
        .filter(|n| *n != "src/drop.tmp")
        .collect::<Vec<_>>()
    );
    assert!(text.contains("src/deep/\n"), "{text}");
    let (_, globbed) = world.done("list_local_files", json!({"recursive": true, "glob": "*.rs"})).await;
    assert_eq!(names(&globbed), ["src/a.rs", "src/deep/b.rs"]);
    let (_, below) = world.done("list_local_files", json!({"path": "src", "recursive": true, "glob": "*.tmp"})).await;
    assert_eq!(names(&below), ["keep.tmp"], "a .gitignore above the folder counts");
    let (_, short) = world.done("list_local_files", json!({"recursive": true, "limit": 2})).await;
    assert_eq!((names(&short).len(), &short["truncated"]), (2, &json!(true)));
    let (_, all) =
        world.done("list_local_files", json!({"recursive": true, "include_ignored": true, "glob": "*.o"})).await;
    assert_eq!(names(&all), ["target/x.o"]);
}

#[tokio::test]
async fn lines_are_found_with_their_context() {
    let world = World::new("deny: [{read: '**/*.pem'}]");
    world.put("src/a.rs", "one\ntwo needle\nthree\n");
    world.put("b.txt", "needle\n");
    world.put("key.pem", "needle\n");
    world.put("x.bin", b"needle\0");
    symlink("b.txt", world.project.join("link.txt")).unwrap();
    let (text, found) = world.done("search_local_files", json!({"pattern": "n.edle", "context": 1})).await;
    assert_eq!(text, "b.txt:1:needle\nsrc/a.rs:2:two needle\n");
    assert_eq!(
        found["matches"][1],
        json!({"path": "src/a.rs", "line": 2, "text": "two needle", "before": ["one"], "after": ["three"]})
    );
    assert_eq!((&found["files_skipped"], &found["truncated"]), (&json!(2), &json!(false)));
    let (_, found) = world.done("search_local_files", json!({"pattern": "n.edle", "literal": true})).await;
    assert_eq!(found["matches"], json!([]));
    let (_, found) =
        world.done("search_local_files", json!({"pattern": "NEEDLE", "ignore_case": true, "limit": 1})).await;
    assert_eq!((found["matches"].as_array().unwrap().len(), &found["truncated"]), (1, &json!(true)));
    let (_, found) = world.done("search_local_files", json!({"pattern": "needle", "path": "b.txt"})).await;
    assert_eq!(found["matches"][0]["path"], json!("b.txt"));
}

#[tokio::test]
async fn a_search_ends_with_its_deadline() {
    let world = World::new("");
    for i in 0..200 {
        world.put(&format!("f{i}"), "a".repeat(100_000) + "\n");
    }
    let start = Instant::now();
    let arguments = json!({"pattern": "(a|aa)*(aa|aaa)*b"});
    let outcome =
        world.call_with("search_local_files", arguments, Duration::from_millis(50), CancellationToken::new()).await;
    assert!(
        matches!(&outcome, Outcome::Failed { error, .. } if error.code == "timeout") || outcome.word() == "done",
        "{outcome:?}"
    );
    assert!(start.elapsed() < GENEROUS);
    let cancel = CancellationToken::new();
    cancel.cancel();
    assert_eq!(
        world.call_with("search_local_files", json!({"pattern": "b"}), GENEROUS, cancel).await.word(),
        "cancelled"
    );
}
