#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader};
use std::os::unix::fs::PermissionsExt as _;
use std::time::Duration;

use proptest::prelude::*;
use serde_json::json;

use super::*;

/// Longer than anything here takes, so that a hang fails.
const PATIENCE: Duration = Duration::from_secs(30);

fn opened(dir: &Path) -> (Store, WriterSeat, Writer) {
    let (store, seat) = Store::open(dir).unwrap();
    let writer = seat.start().unwrap();
    (store, seat, writer)
}

fn append(stream: &str, expected_version: u32, numbers: impl IntoIterator<Item = u64>) -> Append {
    let events = numbers.into_iter().map(|n| NewEvent { kind: "noted", data: Raw::from(json!({ "n": n })) }).collect();
    Append { stream: stream.to_owned(), expected_version, events }
}

fn events(append: Append) -> Batch {
    Batch { appends: vec![append], at_ms: 7, ..Batch::default() }
}

fn row(kind: &'static str, key: &str, state: &str) -> Row {
    let data = Raw::from(json!({ "state": state }));
    Row { kind: kind.into(), key: key.into(), parent: None, owner: None, state: Some(state.into()), data }
}

/// Waits until the folder's lock is free: the writer thread ends a moment after its handles.
async fn reopened(dir: &Path) -> (Store, WriterSeat, Writer) {
    let began = std::time::Instant::now();
    loop {
        match Store::open(dir) {
            Ok((store, seat)) => {
                let writer = seat.start().unwrap();
                return (store, seat, writer);
            }
            Err(OpenError::Locked { .. }) if began.elapsed() < PATIENCE => {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
            Err(other) => panic!("{other}"),
        }
    }
}

#[tokio::test]
async fn what_was_appended_is_read_in_order_and_told_to_subscribers() {
    let dir = tempfile::tempdir().unwrap();
    let (store, _seat, _writer) = opened(&dir.path().join("data"));
    let mut told = store.subscribe();
    let first = store.commit(events(append("task:a", 0, [1, 2]))).await.unwrap();
    let second = store.commit(Batch { rows: vec![row("task", "a", "running")], ..Batch::default() }).await.unwrap();
    let third = store.commit(events(append("task:a", 2, [3]))).await.unwrap();
    assert_eq!(first, Committed { first_seq: 1, last_seq: 2 });
    assert_eq!(second, Committed { first_seq: 3, last_seq: 2 });
    assert_eq!(third, Committed { first_seq: 3, last_seq: 3 });
    let stream = store.stream("task:a").await.unwrap();
    let seen: Vec<_> = stream.iter().map(|e| (e.seq, e.version, e.kind.as_str(), e.data.get(), e.at_ms)).collect();
    assert_eq!(
        seen,
        [(1, 1, "noted", r#"{"n":1}"#, 7), (2, 2, "noted", r#"{"n":2}"#, 7), (3, 3, "noted", r#"{"n":3}"#, 7)]
    );
    for event in &stream {
        assert_eq!(&*told.recv().await.unwrap(), event);
    }
    assert_eq!(store.after(1, 1).await.unwrap(), stream[1..2]);
    assert_eq!(store.stream("task:b").await.unwrap(), []);
}

#[tokio::test]
async fn commits_that_wait_together_share_a_flush() {
    let dir = tempfile::tempdir().unwrap();
    let (store, seat, _writer) = opened(dir.path());
    // The writer is held back until all commits wait: one thread polls these tasks in order.
    let (go, gone) = std::sync::mpsc::sync_channel::<()>(1);
    let held = tokio::spawn(async move { seat.on_writer(move |_| gone.recv().unwrap()).await });
    let commits = (0..400).map(|n| {
        let store = store.clone();
        tokio::spawn(async move { store.commit(events(append(&format!("s{n}"), 0, [n]))).await })
    });
    let commits: Vec<_> = commits.collect();
    tokio::spawn(async move { go.send(()).unwrap() }).await.unwrap();
    held.await.unwrap().unwrap();
    for commit in commits {
        commit.await.unwrap().unwrap();
    }
    let stats = store.stats();
    assert_eq!(stats.commits, 400);
    assert!(stats.transactions <= 4, "{stats:?}");
}

#[tokio::test]
async fn a_conflicting_batch_is_undone_alone() {
    let dir = tempfile::tempdir().unwrap();
    let (store, seat, _writer) = opened(dir.path());
    store.commit(events(append("a", 0, [1]))).await.unwrap();
    let (go, gone) = std::sync::mpsc::sync_channel::<()>(1);
    let held = seat.on_writer(move |_| gone.recv().unwrap());
    let stale = Batch {
        appends: vec![append("b", 0, [9]), append("a", 0, [9])],
        rows: vec![row("task", "stale", "x")],
        ..Batch::default()
    };
    let gap = events(append("a", 5, [9]));
    let (good, other) = (events(append("a", 1, [2])), events(append("b", 0, [1])));
    let (held, stale, gap, good, other, ()) =
        tokio::join!(held, store.commit(stale), store.commit(gap), store.commit(good), store.commit(other), async {
            go.send(()).unwrap()
        });
    held.unwrap();
    assert_eq!(stale, Err(StoreError::Conflict { stream: "a".into(), expected: 0, actual: 1 }));
    assert_eq!(gap, Err(StoreError::Conflict { stream: "a".into(), expected: 5, actual: 1 }));
    assert_eq!((good.unwrap().first_seq, other.unwrap().first_seq), (2, 3));
    assert_eq!(store.row("task", "stale").await.unwrap(), None);
    assert_eq!(store.stream("b").await.unwrap().len(), 1);
}

#[tokio::test]
async fn a_list_leaves_large_outputs_out_and_ends_before_it_is_too_large() {
    let dir = tempfile::tempdir().unwrap();
    let (store, _seat, _writer) = opened(dir.path());
    let of = |key: &str, view: serde_json::Value| Row {
        data: Raw::from(serde_json::json!({ "view": view, "wait": null })),
        ..row("task", key, "")
    };
    let text = "\u{e4}\u{0}".repeat(SLIM_BYTES);
    let large = of("b", serde_json::json!({"id": "b", "output": {"text": text}, "goal": "g"}));
    let small = of("a", serde_json::json!({"id": "a", "output": {"text": "x"}}));
    // What cannot be made smaller still comes, one after the other.
    let goal = "g".repeat(SLIM_PAGE_BYTES / 2 + 1);
    let heavy = ["c", "d", "e"].map(|key| of(key, serde_json::json!({"id": key, "goal": goal})));
    let rows = [large.clone(), small.clone()].into_iter().chain(heavy).collect();
    store.commit(Batch { rows, ..events(append("s", 0, [1])) }).await.unwrap();
    let slim = |after: Option<&str>| Filter { slim: true, after_key: after.map(str::to_owned), ..Filter::default() };
    let got = store.rows("task", slim(None)).await.unwrap();
    let keys: Vec<&str> = got.iter().map(|row| row.key.as_str()).collect();
    assert_eq!(keys, ["a", "b", "c", "d"]);
    assert_eq!(got[0], small);
    let bytes = serde_json::json!({"text": text}).to_string().len();
    let lean =
        serde_json::json!({"view": {"id": "b", "output": null, "goal": "g", "output_bytes": bytes}, "wait": null});
    assert_eq!(got[1].data.value(), lean);
    assert_eq!(store.rows("task", slim(Some("d"))).await.unwrap().len(), 1);
    assert_eq!(store.row("task", "b").await.unwrap(), Some(large));
}

#[tokio::test]
async fn a_row_is_created_once() {
    let dir = tempfile::tempdir().unwrap();
    let (store, _seat, _writer) = opened(dir.path());
    let made =
        futures_util::future::join_all((0..8).map(|n| store.create_row(row("idempotency", "k", &n.to_string()))));
    let made: Vec<bool> = made.await.into_iter().map(Result::unwrap).collect();
    assert_eq!(made.iter().filter(|made| **made).count(), 1);
    let twice = Batch { insert: vec![row("idempotency", "k", "x")], ..events(append("a", 0, [1])) };
    let exists = StoreError::Exists { kind: "idempotency".into(), key: "k".into() };
    assert_eq!(store.commit(twice).await, Err(exists));
    assert_eq!(store.stream("a").await.unwrap(), []);
}

#[tokio::test]
async fn rows_are_found_by_what_they_belong_to() {
    let dir = tempfile::tempdir().unwrap();
    let (store, _seat, _writer) = opened(dir.path());
    let of = |key: &str, parent: &str, owner: &str, state: &str| Row {
        parent: Some(parent.into()),
        owner: Some(owner.into()),
        ..row("task", key, state)
    };
    let rows = vec![
        of("1", "s", "me", "running"),
        of("2", "s", "me", "blocked"),
        of("3", "t", "you", "blocked"),
        of("4", "t", "me", "done"),
    ];
    store.commit(Batch { rows: rows.clone(), ..Batch::default() }).await.unwrap();
    store.commit(Batch { rows: vec![row("session", "1", "blocked")], ..Batch::default() }).await.unwrap();
    let s = |text: &str| Some(text.to_owned());
    for (filter, want) in [
        (Filter::default(), "1234"),
        (Filter { parent: s("s"), ..Filter::default() }, "12"),
        (Filter { owner: s("me"), ..Filter::default() }, "124"),
        (Filter { states: vec!["blocked".into(), "running".into()], ..Filter::default() }, "123"),
        (Filter { owner: s("me"), states: vec!["blocked".into()], ..Filter::default() }, "2"),
        (Filter { limit: Some(2), ..Filter::default() }, "12"),
        (Filter { after_key: s("2"), limit: Some(1), ..Filter::default() }, "3"),
        (Filter { descending: true, limit: Some(2), ..Filter::default() }, "43"),
        (Filter { descending: true, after_key: s("3"), ..Filter::default() }, "21"),
    ] {
        let got: String = store.rows("task", filter.clone()).await.unwrap().into_iter().map(|row| row.key).collect();
        assert_eq!(got, want, "{filter:?}");
    }
    assert_eq!(store.row("task", "3").await.unwrap().as_ref(), Some(&rows[2]));
    let gone = Batch { removed: vec![("task".into(), "3".into()), ("task".into(), "9".into())], ..Batch::default() };
    store.commit(gone).await.unwrap();
    assert_eq!(store.row("task", "3").await.unwrap(), None);
}

#[tokio::test]
async fn a_counter_never_gives_a_number_twice() {
    let dir = tempfile::tempdir().unwrap();
    let (store, seat, writer) = opened(dir.path());
    let mut numbers = futures_util::future::join_all((0..20).map(|_| store.next_counter("epoch"))).await;
    assert_eq!(store.next_counter("other").await, Ok(1));
    drop((store, seat, writer));
    let (store, _seat, _writer) = reopened(dir.path()).await;
    numbers.push(store.next_counter("epoch").await);
    let numbers: Vec<u64> = numbers.into_iter().map(Result::unwrap).collect();
    assert_eq!(numbers, (1..=21).collect::<Vec<_>>());
}

#[tokio::test]
async fn a_second_open_is_refused_with_the_holders_process_and_the_folder() {
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().join("data");
    let (store, seat, writer) = opened(&data);
    store.commit(events(append("a", 0, [1]))).await.unwrap();
    let text = Store::open(&data).unwrap_err().to_string();
    assert_eq!(text, format!("another brain (process {}) uses the store in {}", std::process::id(), data.display()));
    let mode = |path: PathBuf| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(data.clone()), 0o700);
    for file in ["brain.db", "brain.db-wal", "lock"] {
        assert_eq!(mode(data.join(file)), 0o600, "{file}");
    }
    drop((store, seat, writer));
    reopened(&data).await;
}

#[tokio::test]
async fn a_store_of_a_later_release_is_refused_and_left_alone() {
    let dir = tempfile::tempdir().unwrap();
    drop(Store::open(dir.path()).unwrap());
    let file = dir.path().join("brain.db");
    rusqlite::Connection::open(&file).unwrap().pragma_update(None, "user_version", 99).unwrap();
    let error = Store::open(dir.path()).unwrap_err();
    assert!(matches!(error, OpenError::Newer { found: 99, .. }), "{error}");
    assert!(error.to_string().contains("has format 99"), "{error}");
}

#[tokio::test]
async fn a_file_that_is_no_store_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("brain.db"), "not a database, and long enough to tell").unwrap();
    let error = Store::open(dir.path()).unwrap_err();
    assert!(matches!(error, OpenError::Engine { .. }), "{error}");
}

#[tokio::test]
async fn a_full_disk_is_an_answer_and_the_writer_goes_on_when_there_is_room() {
    let dir = tempfile::tempdir().unwrap();
    let (store, seat, _writer) = opened(dir.path());
    seat.on_writer(|c| c.pragma_update(None, "max_page_count", 40).unwrap()).await.unwrap();
    let big = |n: u64| Row { data: Raw::from(json!("x".repeat(20_000))), ..row("task", &n.to_string(), "x") };
    let mut kept = Vec::new();
    let refused = loop {
        let n = kept.len() as u64;
        let batch = Batch { rows: vec![big(n)], ..events(append("log", u32::try_from(n).unwrap(), [n])) };
        match store.commit(batch).await {
            Ok(_) => kept.push(n),
            Err(error) => break error,
        }
    };
    assert!(matches!(refused, StoreError::Full { .. }), "{refused}");
    assert!(!kept.is_empty() && !store.is_available());
    seat.on_writer(|c| c.pragma_update(None, "max_page_count", 100_000).unwrap()).await.unwrap();
    let next = kept.len() as u64;
    store
        .commit(Batch { rows: vec![big(next)], ..events(append("log", u32::try_from(next).unwrap(), [next])) })
        .await
        .unwrap();
    assert!(store.is_available());
    assert_eq!(store.stream("log").await.unwrap().len() as u64, next + 1);
    assert_eq!(store.rows("task", Filter::default()).await.unwrap().len() as u64, next + 1);
}

#[tokio::test]
async fn a_store_that_fails_is_opened_again_and_loses_nothing_acknowledged() {
    let dir = tempfile::tempdir().unwrap();
    let (store, seat, _writer) = opened(dir.path());
    let mut told = store.subscribe();
    store.commit(events(append("a", 0, [1]))).await.unwrap();
    // The writer's connection can no longer write, as on a disk that turned read-only; the commit is in the same group.
    let (go, gone) = std::sync::mpsc::sync_channel::<()>(1);
    let (held, broken, refused, ()) = tokio::join!(
        seat.on_writer(move |_| gone.recv().unwrap()),
        seat.on_writer(|c| c.execute_batch("PRAGMA query_only = ON").unwrap()),
        store.commit(events(append("a", 1, [2]))),
        async { go.send(()).unwrap() }
    );
    held.and(broken).unwrap();
    let refused = refused.unwrap_err();
    assert!(matches!(refused, StoreError::Unavailable { .. }), "{refused}");
    tokio::time::timeout(PATIENCE, async {
        while !store.is_available() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await
    .unwrap();
    store.commit(events(append("a", 1, [3]))).await.unwrap();
    let stream = store.stream("a").await.unwrap();
    assert_eq!(stream.iter().map(|e| e.data.get()).collect::<Vec<_>>(), [r#"{"n":1}"#, r#"{"n":3}"#]);
    assert_eq!((told.recv().await.unwrap().seq, told.recv().await.unwrap().seq), (1, 2));
}

#[tokio::test]
async fn a_vanished_file_is_not_begun_anew() {
    let dir = tempfile::tempdir().unwrap();
    let (store, seat, writer) = opened(dir.path());
    store.commit(events(append("a", 0, [1]))).await.unwrap();
    drop(writer);
    let (db, away) = (dir.path().join("brain.db"), dir.path().join("away.db"));
    // The log has been folded into the file once its last connection is gone.
    tokio::time::timeout(PATIENCE, async {
        while dir.path().join("brain.db-wal").exists() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await
    .unwrap();
    std::fs::rename(&db, &away).unwrap();
    let _writer = seat.start().unwrap();
    let refused = store.commit(events(append("a", 1, [2]))).await.unwrap_err();
    assert!(matches!(refused, StoreError::Unavailable { .. }), "{refused}");
    assert!(!db.exists());
    std::fs::rename(&away, &db).unwrap();
    tokio::time::timeout(PATIENCE, async {
        while store.commit(events(append("a", 1, [2]))).await.is_err() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    })
    .await
    .unwrap();
    assert_eq!(store.stream("a").await.unwrap().len(), 2);
}

#[tokio::test]
async fn a_batch_beyond_its_limit_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let (store, _seat, _writer) = opened(dir.path());
    let data = Raw::from(json!("x".repeat(MAX_BATCH_BYTES)));
    let refused = store.commit(Batch { rows: vec![Row { data, ..row("task", "a", "x") }], ..Batch::default() }).await;
    assert!(matches!(refused, Err(StoreError::TooLarge { .. })));
}

#[tokio::test]
async fn without_a_writer_a_commit_is_unavailable_and_a_closed_one_writes_what_waits() {
    let dir = tempfile::tempdir().unwrap();
    let (store, seat) = Store::open(dir.path()).unwrap();
    assert!(matches!(store.commit(Batch::default()).await, Err(StoreError::Unavailable { .. })));
    let mut writer = seat.start().unwrap();
    store.ready().await;
    let (go, gone) = std::sync::mpsc::sync_channel::<()>(1);
    let ended = writer.ended();
    let (held, committed, end) =
        tokio::join!(seat.on_writer(move |_| gone.recv().unwrap()), store.commit(events(append("a", 0, [1]))), async {
            writer.close();
            go.send(()).unwrap();
            ended.await
        });
    held.unwrap();
    committed.unwrap();
    assert_eq!(end, WriterEnd::Closed);
    assert_eq!(store.stream("a").await.unwrap().len(), 1);
}

/// Not a test of its own: the writer process that the next one kills.
#[tokio::test]
#[ignore = "run by a_killed_writer_loses_nothing_it_acknowledged"]
async fn writer_process() {
    let Some(dir) = std::env::var_os("STORE_TEST_DIR") else { return };
    let (store, _seat, _writer) = opened(Path::new(&dir));
    let lanes = (0..4u64).map(|lane| {
        let store = store.clone();
        async move {
            for n in 0u32.. {
                let batch = Batch {
                    appends: vec![append(&format!("lane{lane}"), n * 2, [u64::from(n), u64::from(n)])],
                    rows: vec![row("lane", &lane.to_string(), &(n + 1).to_string())],
                    ..Batch::default()
                };
                store.commit(batch).await.unwrap();
                println!("acked {lane} {n}");
            }
        }
    });
    futures_util::future::join_all(lanes).await;
}

#[tokio::test]
async fn a_killed_writer_loses_nothing_it_acknowledged() {
    let dir = tempfile::tempdir().unwrap();
    #[allow(clippy::disallowed_methods, reason = "the child is this test binary, and is to die unguarded")]
    let mut child = std::process::Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "store::tests::writer_process", "--ignored", "--nocapture"])
        .env("STORE_TEST_DIR", dir.path())
        .stdout(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    let mut acked = BTreeMap::<u64, u32>::new();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let mut count = 0;
    while let Some(Ok(line)) = lines.next() {
        if let Some(("", rest)) = line.split_once("acked ") {
            let (lane, n) = rest.split_once(' ').unwrap();
            acked.insert(lane.parse().unwrap(), n.parse().unwrap());
            count += 1;
            if count == 200 {
                // SIGKILL.
                child.kill().unwrap();
            }
        }
    }
    child.wait().unwrap();
    assert!(count >= 200, "the child ended early after {count}");
    let (store, _seat, _writer) = opened(dir.path());
    for (lane, n) in acked {
        let stream = store.stream(&format!("lane{lane}")).await.unwrap();
        let versions: Vec<u32> = stream.iter().map(|e| e.version).collect();
        assert_eq!(versions, (1..=u32::try_from(versions.len()).unwrap()).collect::<Vec<_>>());
        assert!(versions.len() >= (n as usize + 1) * 2, "lane {lane}: {} events, acked {n}", versions.len());
        // Event and row of a batch are there together.
        let row = store.row("lane", &lane.to_string()).await.unwrap().unwrap();
        assert_eq!(row.state.unwrap(), (versions.len() / 2).to_string());
        assert_eq!(versions.len() % 2, 0);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: ProptestConfig::default().cases / 10, ..ProptestConfig::default() })]

    #[test]
    fn a_stream_is_what_was_appended_to_it_in_order(
        ops in proptest::collection::vec((0u8..3, 0u32..4, proptest::collection::vec(any::<u64>(), 0..4), any::<bool>()), 1..40)
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let dir = tempfile::tempdir().unwrap();
            let (mut store, mut seat, mut writer) = opened(dir.path());
            let mut model: BTreeMap<String, Vec<u64>> = BTreeMap::new();
            let mut all = Vec::new();
            for (stream, off, numbers, reopen) in ops {
                let stream = format!("s{stream}");
                let known = model.entry(stream.clone()).or_default();
                let actual = u32::try_from(known.len()).unwrap();
                // Mostly the right version, at times one that is behind or ahead.
                let expected = if off == 3 { actual + 1 } else if off == 2 { actual.saturating_sub(1) } else { actual };
                let got = store.commit(events(append(&stream, expected, numbers.clone()))).await;
                if expected == actual {
                    let first = all.len() as u64 + 1;
                    known.extend(&numbers);
                    all.extend(numbers.iter().map(|n| (stream.clone(), *n)));
                    assert_eq!(got, Ok(Committed { first_seq: first, last_seq: all.len() as u64 }));
                } else {
                    assert_eq!(got, Err(StoreError::Conflict { stream, expected, actual }));
                }
                if reopen && off == 0 {
                    drop((store, seat, writer));
                    (store, seat, writer) = reopened(dir.path()).await;
                }
            }
            let number = |e: &StoredEvent| e.data.value()["n"].as_u64().unwrap();
            for (stream, numbers) in model {
                let read: Vec<u64> = store.stream(&stream).await.unwrap().iter().map(number).collect();
                assert_eq!(read, numbers);
            }
            let read: Vec<_> = store.after(0, MAX_PAGE).await.unwrap().iter().map(|e| (e.stream.clone(), number(e))).collect();
            assert_eq!(read, all);
            drop((seat, writer));
        });
    }
}
