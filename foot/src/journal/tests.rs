#![allow(clippy::unwrap_used, clippy::panic)]

use tempfile::TempDir;
use vance_foot_core::calls::RowState;
use vance_shared::json::Raw;
use vance_shared::tool::ToolResult;

use super::*;

fn id(n: usize) -> CallId {
    CallId::parse(&format!("call_{n}")).unwrap()
}

fn result(n: usize, text: &str) -> CallResult {
    CallResult { call_id: id(n), attempt: 1, outcome: Outcome::Done(ToolResult::text(text)), traceparent: None }
}

fn open(dir: &TempDir) -> Journal {
    Journal::open(&dir.path().join("journal.db"), false).unwrap()
}

fn states(journal: &Journal) -> Vec<(String, RowState, Replay)> {
    journal.rows().unwrap().into_iter().map(|row| (row.call_id.to_string(), row.state, row.replay)).collect()
}

#[tokio::test]
async fn calls_survive_the_end_of_the_process() {
    let dir = tempfile::tempdir().unwrap();
    let journal = open(&dir);
    let (report, mut reports) = mpsc::channel(8);
    journal.begin(id(1), 1, "t".to_owned(), Replay::Unsafe, Some(report)).unwrap();
    let written = reports.recv().await.unwrap();
    assert_eq!((written.call_id, written.written), (id(1), Ok(())));
    for (n, replay) in [(2, Replay::Safe), (3, Replay::Safe), (4, Replay::Unsafe)] {
        journal.begin(id(n), 1, "t".to_owned(), replay, None).unwrap();
    }
    journal.store(result(3, "kept")).unwrap();
    journal.store(result(4, "gone")).unwrap();
    journal.forget(id(4)).unwrap();
    assert_eq!(journal.load(id(3)).await, Kept::Here(result(3, "kept").outcome));
    assert_eq!(journal.load(id(4)).await, Kept::Forgotten);
    assert_eq!(journal.load(id(9)).await, Kept::Lost);
    drop(journal);
    let journal = open(&dir);
    let running = RowState::Running { attached: false };
    let mut found = states(&journal);
    found.sort_by(|a, b| a.0.cmp(&b.0));
    assert_eq!(
        found,
        [
            ("call_1".to_owned(), running, Replay::Unsafe),
            ("call_2".to_owned(), running, Replay::Safe),
            ("call_3".to_owned(), RowState::Finished, Replay::Safe),
            ("call_4".to_owned(), RowState::Forgotten, Replay::Unsafe),
        ]
    );
    assert_eq!(journal.load(id(3)).await, Kept::Here(result(3, "kept").outcome));
}

#[tokio::test]
async fn a_large_result_and_a_result_without_a_beginning_are_kept() {
    let dir = tempfile::tempdir().unwrap();
    let journal = open(&dir);
    let large = ToolResult {
        structured: Some(Raw::from(serde_json::json!({"a": 1}))),
        ..ToolResult::text("x".repeat(3 << 20))
    };
    let large = CallResult { outcome: Outcome::Done(large), ..result(1, "") };
    journal.store(large.clone()).unwrap();
    assert_eq!(journal.load(id(1)).await, Kept::Here(large.outcome));
    assert_eq!(states(&journal), [("call_1".to_owned(), RowState::Finished, Replay::Unsafe)]);
}

#[test]
fn a_damaged_journal_is_set_aside() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(
        dir.path().join("journal.db"),
        "this was a journal once, and then the disk had a bad day".repeat(100),
    )
    .unwrap();
    let journal = open(&dir);
    assert!(states(&journal).is_empty());
    let names: Vec<String> = std::fs::read_dir(dir.path())
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .filter(|name| name.contains("damaged"))
        .collect();
    assert_eq!(names.len(), 1, "{names:?}");
    assert!(journal.follows_a_loss());
}

#[test]
fn a_journal_that_is_missing_was_lost_and_that_counts_over_restarts() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("journal.db");
    assert!(!Journal::open(&path, false).unwrap().follows_a_loss(), "the first one of an identity");
    assert!(!Journal::open(&path, true).unwrap().follows_a_loss(), "it is there");
    std::fs::remove_file(&path).unwrap();
    assert!(Journal::open(&path, true).unwrap().follows_a_loss());
    assert!(Journal::open(&path, true).unwrap().follows_a_loss());
}

#[test]
fn a_copied_journal_knows_that_it_is_one_and_the_first_one_does_not_mind() {
    let dir = tempfile::tempdir().unwrap();
    let (path, copy) = (dir.path().join("journal.db"), dir.path().join("copy.db"));
    assert!(!Journal::open(&path, false).unwrap().follows_a_loss());
    std::fs::copy(&path, &copy).unwrap();
    assert!(Journal::open(&copy, true).unwrap().follows_a_loss());
    assert!(Journal::open(&copy, true).unwrap().follows_a_loss(), "also after the next start");
    assert!(!Journal::open(&path, true).unwrap().follows_a_loss());
    // Moved it is the same one.
    std::fs::rename(&path, dir.path().join("moved.db")).unwrap();
    assert!(!Journal::open(&dir.path().join("moved.db"), true).unwrap().follows_a_loss());
}

#[test]
fn a_journal_of_a_later_release_is_not_touched() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("journal.db");
    drop(open(&dir));
    let connection = rusqlite::Connection::open(&path).unwrap();
    connection.pragma_update(None, "user_version", 99).unwrap();
    drop(connection);
    assert!(matches!(Journal::open(&path, false), Err(JournalFault::Later { found: 99, .. })));
}

#[tokio::test]
async fn a_disk_that_says_no_refuses_unsafe_calls_and_keeps_results_for_later() {
    let dir = tempfile::tempdir().unwrap();
    let journal = open(&dir);
    let path = dir.path().join("journal.db");
    // Another process holds the write lock longer than we wait for it; shorter here by asking SQLite itself to refuse.
    let blocker = rusqlite::Connection::open(&path).unwrap();
    blocker
        .execute_batch("CREATE TRIGGER no BEFORE INSERT ON calls BEGIN SELECT RAISE(ABORT, 'disk full'); END")
        .unwrap();
    let (report, mut reports) = mpsc::channel(8);
    journal.begin(id(1), 1, "t".to_owned(), Replay::Unsafe, Some(report)).unwrap();
    let written = reports.recv().await.unwrap().written;
    assert!(written.as_ref().is_err_and(|why| why.contains("disk full")), "{written:?}");
    journal.store(result(2, "kept")).unwrap();
    assert_eq!(journal.load(id(2)).await, Kept::Here(result(2, "kept").outcome), "from memory meanwhile");
    blocker.execute_batch("DROP TRIGGER no").unwrap();
    journal.flush().await.unwrap();
    drop(journal);
    assert_eq!(states(&open(&dir)).len(), 1);
}

#[tokio::test]
async fn many_durable_writes_share_their_flushes() {
    let dir = tempfile::tempdir().unwrap();
    let journal = open(&dir);
    let (report, mut reports) = mpsc::channel(2048);
    for n in 0..2000 {
        journal.begin(id(n), 1, "t".to_owned(), Replay::Unsafe, Some(report.clone())).unwrap();
    }
    for _ in 0..2000 {
        assert!(reports.recv().await.unwrap().written.is_ok());
    }
    assert_eq!(states(&journal).len(), 2000);
}
