//! Many who say "always" at once.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use crate::desk::{Desk, Seat, stdio};

const PROCESSES: usize = 16;
const EACH: usize = 20;

/// One repository for each process: a folder holds at most 64 packs.
fn repositories(desk: &Desk) {
    for n in 0..PROCESSES {
        for m in 0..EACH {
            let pack =
                serde_json::json!({"name": format!("p{m}"), "type": "mcp_server", "parameters": stdio(&["true"])});
            desk.put(&format!("repo-{n}/.vancetope/foot-tools/p{m}.json"), &pack.to_string());
        }
    }
}

#[test]
fn sixteen_people_who_say_always_twenty_times_at_their_terminals_leave_320_entries() {
    let desk = Desk::new();
    repositories(&desk);
    std::thread::scope(|scope| {
        for n in 0..PROCESSES {
            let desk = &desk;
            scope.spawn(move || {
                let mut command = desk.command(&["trust", "review"]);
                command.current_dir(desk.path(&format!("repo-{n}")));
                let mut seat = Seat::take(command);
                for asked in 1..=EACH {
                    seat.asked(asked);
                    seat.types("2\n");
                }
                let ended = seat.leaves();
                assert_eq!(ended.exit, 0, "{}", ended.text);
            });
        }
    });
    let book = vance_shared::gate::Book::parse("store", &desk.store()).unwrap();
    assert_eq!(book.entries().count(), PROCESSES * EACH);
}

#[test]
fn sixteen_at_once_lose_no_consent_and_no_reader_sees_half_a_store() {
    let desk = Desk::new();
    repositories(&desk);
    let repo = |n: usize| desk.path(&format!("repo-{n}"));
    let run = |n: usize, words: &[&str]| {
        let mut command = desk.command(words);
        let ended = command.current_dir(repo(n)).stdin(std::process::Stdio::null()).output().unwrap();
        assert!(ended.status.success(), "{words:?}: {}", String::from_utf8_lossy(&ended.stderr));
        String::from_utf8(ended.stdout).unwrap()
    };
    let digest = |m: usize| {
        let shown: serde_json::Value =
            serde_json::from_str(&run(0, &["trust", "show", &format!("p{m}"), "--json"])).unwrap();
        shown["digest"].as_str().unwrap().to_owned()
    };
    // The digest is of the pack, wherever it lies.
    let digests: Vec<String> = (0..EACH).map(digest).collect();
    let (done, looks) = (AtomicBool::new(false), AtomicUsize::new(0));
    std::thread::scope(|scope| {
        let reader = scope.spawn(|| {
            let mut most = 0;
            while !done.load(Ordering::SeqCst) {
                let text = desk.store();
                if !text.is_empty() {
                    let book = vance_shared::gate::Book::parse("store", &text)
                        .unwrap_or_else(|e| panic!("torn: {e:?}\n{text}"));
                    let now = book.entries().count();
                    assert!(now >= most, "{most} entries became {now}");
                    most = now;
                    looks.fetch_add(1, Ordering::SeqCst);
                }
            }
        });
        let writers: Vec<_> = (0..PROCESSES)
            .map(|n| {
                let (run, digests) = (&run, &digests);
                scope.spawn(move || {
                    for (m, digest) in digests.iter().enumerate() {
                        run(n, &["trust", "allow", "--pack", &format!("p{m}"), "--digest", digest]);
                    }
                })
            })
            .collect();
        let ended: Vec<_> = writers.into_iter().map(std::thread::ScopedJoinHandle::join).collect();
        done.store(true, Ordering::SeqCst);
        reader.join().unwrap();
        assert!(ended.iter().all(Result::is_ok));
    });
    let book = vance_shared::gate::Book::parse("store", &desk.store()).unwrap();
    assert_eq!(book.entries().count(), PROCESSES * EACH);
    assert!(looks.load(Ordering::SeqCst) > 10);
    let log = std::fs::read_to_string(desk.path("home/audit/trust.jsonl")).unwrap();
    assert_eq!(vance_shared::gate::audit::read(&log).unwrap().len(), PROCESSES * EACH);
    let left: Vec<_> = std::fs::read_dir(desk.path("home")).unwrap().map(|e| e.unwrap().file_name()).collect();
    assert!(!left.iter().any(|name| name.to_string_lossy().ends_with(".tmp")), "{left:?}");
}
