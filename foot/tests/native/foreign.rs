//! Content that somebody else made: repositories and PDFs.

use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::time::Duration;

use serde_json::json;
use tokio_util::sync::CancellationToken;

use crate::support::{GENEROUS, World, failure};

/// Runs git as an unwary person would.
async fn git(world: &World, words: &[&str]) -> bool {
    let mut argv = vec!["git", "-c", "user.name=t", "-c", "user.email=t@example.org", "-c", "init.defaultBranch=main"];
    argv.extend(words);
    world.call("shell_execute", json!({"argv": argv})).await.word() == "done"
}

async fn repository(world: &World) {
    assert!(git(world, &["init", "-q"]).await);
    world.put("a.txt", "one\n");
    world.put("b.txt", "two\n");
    assert!(git(world, &["add", "."]).await);
    assert!(git(world, &["commit", "-q", "-m", "first"]).await);
}

#[tokio::test]
async fn the_state_of_a_working_tree_is_told() {
    let world = World::open();
    let message = world.fails("git_status", json!({}), "git_failed").await;
    assert!(message.contains("not a git repository"), "{message}");
    repository(&world).await;
    let (_, clean) = world.done("git_status", json!({})).await;
    assert_eq!((&clean["branch"], &clean["clean"]), (&json!("main"), &json!(true)));
    world.put("a.txt", "changed\n");
    world.put("new file.txt", "x");
    world.put("sub/c.txt", "x");
    assert!(git(&world, &["mv", "b.txt", "moved.txt"]).await);
    let (_, dirty) = world.done("git_status", json!({"path": "."})).await;
    assert_eq!(
        dirty["entries"],
        json!([
            {"path": "a.txt", "index": "unchanged", "worktree": "modified", "from": null},
            {"path": "moved.txt", "index": "renamed", "worktree": "unchanged", "from": "b.txt"},
            {"path": "new file.txt", "index": "untracked", "worktree": "untracked", "from": null},
            {"path": "sub/", "index": "untracked", "worktree": "untracked", "from": null},
        ])
    );
    let (_, below) = world.done("git_status", json!({"path": "sub"})).await;
    assert_eq!(below["entries"].as_array().unwrap().len(), 1);
}

#[tokio::test]
async fn a_hostile_repository_runs_nothing() {
    let world = World::open();
    repository(&world).await;
    let marker = |name: &str| world.outside.join(name);
    let script = |name: &str| {
        let path = world.outside.join(format!("{name}.sh"));
        std::fs::write(&path, format!("#!/bin/sh\ntouch '{}'\ncat\n", marker(name).display())).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
        path.to_string_lossy().into_owned()
    };
    let config = world.project.join(".git/config");
    let mut text = std::fs::read_to_string(&config).unwrap();
    text += &format!("[core]\n\tfsmonitor = {}\n\tpager = {}\n", script("fsmonitor"), script("pager"));
    text += &format!("[filter \"evil\"]\n\tclean = {}\n\trequired = true\n", script("clean"));
    text += &format!("[filter \"e=v\"]\n\tprocess = {}\n", script("process"));
    std::fs::write(&config, text).unwrap();
    let hook = world.project.join(".git/hooks/post-index-change");
    std::fs::create_dir_all(hook.parent().unwrap()).unwrap();
    std::fs::copy(script("hook"), &hook).unwrap();
    world.put(".gitattributes", "a.txt filter=evil\nb.txt filter=e=v\n");
    // Same size, other content: git has to look inside.
    world.put("a.txt", "eno\n");
    world.put("b.txt", "owt\n");
    let markers = ["fsmonitor", "pager", "clean", "process", "hook"];
    let (_, status) = world.done("git_status", json!({})).await;
    assert_eq!(status["entries"].as_array().unwrap().len(), 3, "{status}");
    for name in markers {
        assert!(!marker(name).exists(), "{name} ran");
    }
    // The trap is real: an unwary look springs it.
    git(&world, &["status"]).await;
    assert!(marker("fsmonitor").exists() && marker("clean").exists());
}

/// One page with one line of text.
fn tiny_pdf(text: &str, page: &str) -> Vec<u8> {
    let content = format!("BT /F1 24 Tf 72 700 Td ({text}) Tj ET");
    let objects = [
        "<< /Type /Catalog /Pages 2 0 R >>".to_owned(),
        "<< /Type /Pages /Kids [3 0 R] /Count 1 >>".to_owned(),
        format!("<< /Type /Page /Parent 2 0 R {page} /Resources << /Font << /F1 5 0 R >> >> /Contents 4 0 R >>"),
        format!("<< /Length {} >>\nstream\n{content}\nendstream", content.len()),
        "<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica >>".to_owned(),
    ];
    assemble(&objects)
}

fn assemble(objects: &[String]) -> Vec<u8> {
    let (mut pdf, mut places) = (String::from("%PDF-1.4\n"), Vec::new());
    for (at, object) in objects.iter().enumerate() {
        places.push(pdf.len());
        pdf += &format!("{} 0 obj\n{object}\nendobj\n", at + 1);
    }
    let table = pdf.len();
    pdf += &format!("xref\n0 {}\n0000000000 65535 f \n", objects.len() + 1);
    for place in places {
        pdf += &format!("{place:010} 00000 n \n");
    }
    pdf += &format!("trailer\n<< /Size {} /Root 1 0 R >>\nstartxref\n{table}\n%%EOF\n", objects.len() + 1);
    pdf.into_bytes()
}

const BOX: &str = "/MediaBox [0 0 612 792]";

#[tokio::test]
async fn the_text_of_a_pdf_is_read() {
    let world = World::new("");
    world.put("a.pdf", tiny_pdf("Hello from page one", BOX));
    let (text, shape) = world.done("pdf_extract_text", json!({"path": "a.pdf"})).await;
    assert!(text.contains("Hello from page one"), "{text:?}");
    assert_eq!((&shape["pages"], &shape["pages_read"], &shape["truncated"]), (&json!(1), &json!(1), &json!(false)));
    let (text, shape) = world.done("pdf_extract_text", json!({"path": "a.pdf", "max_chars": 5})).await;
    assert_eq!((text.as_str().trim(), &shape["truncated"]), ("Hello", &json!(true)));
}

#[tokio::test]
async fn a_pdf_that_breaks_its_reader_breaks_nothing_else() {
    let world = World::new("");
    let nested: String = "[".repeat(200_000) + &"]".repeat(200_000);
    // A page that is its own parent, without what is looked for there: a reader that follows it never comes back.
    let mut circle = String::from_utf8(tiny_pdf("x", "")).unwrap();
    circle = circle.replace("/Kids [3 0 R] /Count 1", "/Kids [3 0 R] /Parent 2 0 R /Count 1");
    let cases: [(&str, Vec<u8>); 6] = [
        ("garbage.pdf", (0..5000u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 13) as u8).collect()),
        ("empty.pdf", Vec::new()),
        ("header.pdf", b"%PDF-1.7\n".to_vec()),
        ("cut.pdf", tiny_pdf("x", BOX)[..200].to_vec()),
        ("nested.pdf", assemble(&["<< /Type /Catalog /Pages 2 0 R >>".to_owned(), nested])),
        ("circle.pdf", circle.into_bytes()),
    ];
    for (name, bytes) in cases {
        world.put(name, bytes);
        let outcome = world.call("pdf_extract_text", json!({"path": name})).await;
        match outcome {
            vance_shared::call::Outcome::Done(result) => {
                let shape = result.structured.unwrap().value();
                assert_eq!(shape["unreadable_pages"], json!([1]), "{name}: {shape}");
            }
            other => {
                failure(other, "pdf_unreadable");
            }
        }
    }
    world.put("good.pdf", tiny_pdf("still here", BOX));
    assert!(world.done("pdf_extract_text", json!({"path": "good.pdf"})).await.0.contains("still here"));
}

#[tokio::test]
async fn a_pdf_reader_ends_with_its_call() {
    let world = World::new("");
    world.put("a.pdf", tiny_pdf("x", BOX));
    let outcome = world
        .call_with("pdf_extract_text", json!({"path": "a.pdf"}), Duration::from_millis(1), CancellationToken::new())
        .await;
    failure(outcome, "timeout");
    let cancel = CancellationToken::new();
    cancel.cancel();
    assert_eq!(
        world.call_with("pdf_extract_text", json!({"path": "a.pdf"}), GENEROUS, cancel).await.word(),
        "cancelled"
    );
    assert!(Path::new(&world.project).exists());
}
