#![allow(clippy::unwrap_used)]
use std::os::unix::fs::PermissionsExt as _;

use vance_shared::tool::ToolResult;

use super::*;

fn call(n: u32) -> CallId {
    CallId::parse(&format!("call_{n}")).unwrap()
}

fn files(dir: &Path) -> usize {
    std::fs::read_dir(dir).unwrap().count()
}

#[test]
fn what_is_kept_is_read_in_pieces_by_nobody_else_and_after_a_restart() {
    let home = tempfile::tempdir().unwrap();
    let dir = home.path().join("blobs");
    let client = ClientId::parse("foot_a").unwrap();
    let blobs = Blobs::open(&dir, 1_000_000, Some(client.clone())).unwrap();
    let bytes: Vec<u8> = (0..100_000u32).map(|n| n.to_le_bytes()[0]).collect();
    let kept = blobs.keep(&call(1), Some("ada"), &bytes, "image/png").unwrap();
    assert_eq!((kept.size, kept.handle.client()), (100_000, Some(client)));
    let mode = |path: &Path| path.metadata().unwrap().permissions().mode() & 0o777;
    assert_eq!((mode(&dir), mode(&dir.join(kept.handle.as_str()))), (0o700, 0o600));
    drop(blobs);
    // Killed in the middle of a write, and a file that somebody cut.
    std::fs::write(dir.join("half-blob_x"), "half").unwrap();
    let cut = std::fs::read(dir.join(kept.handle.as_str())).unwrap();
    std::fs::write(dir.join("blob_cut"), &cut[..cut.len() - 1]).unwrap();
    let blobs = Blobs::open(&dir, 1_000_000, None).unwrap();
    assert_eq!((files(&dir), blobs.bytes()), (1, cut.len() as u64));
    let piece = blobs.read(&kept.handle, 99_990, 1_000).unwrap();
    assert_eq!((piece.bytes.as_slice(), piece.owner.as_deref(), &piece.kept), (&bytes[99_990..], Some("ada"), &kept));
    assert!(blobs.read(&kept.handle, 100_000, 10).unwrap().bytes.is_empty());
    assert!(blobs.read(&kept.handle, u64::MAX, 10).is_ok_and(|piece| piece.bytes.is_empty()));
    let never = BlobHandle::parse("blob_..").unwrap();
    assert!(matches!(blobs.read(&never, 0, 1), Err(BlobFault::Gone(_))));
}

#[test]
fn the_oldest_that_is_delivered_makes_room_and_what_is_waited_for_never_does() {
    let home = tempfile::tempdir().unwrap();
    let blobs = Blobs::open(home.path(), 10_000, None).unwrap();
    let keep = |n: u32, bytes: usize| blobs.keep(&call(n), None, &vec![7; bytes], "text/plain");
    let (one, two) = (keep(1, 4_000).unwrap(), keep(2, 4_000).unwrap());
    assert!(matches!(keep(3, 4_000), Err(BlobFault::Full { .. })));
    assert!(matches!(keep(3, 20_000), Err(BlobFault::TooLarge { .. })));
    blobs.delivered(&call(2));
    let three = keep(3, 4_000).unwrap();
    let there = |kept: &Kept| blobs.read(&kept.handle, 0, 1).is_ok();
    assert_eq!((there(&one), there(&two), there(&three)), (true, false, true));
    assert_eq!(files(home.path()), 2);
    blobs.settle(|open| *open == call(3));
    keep(4, 4_000).unwrap();
    assert_eq!((there(&one), there(&three)), (false, true));
}

#[test]
fn a_result_that_is_not_kept_as_a_whole_leaves_nothing_and_says_so() {
    let home = tempfile::tempdir().unwrap();
    let blobs = Blobs::open(home.path(), 8 << 20, None).unwrap();
    let half = serde_json::json!({"type": "text", "text": "x".repeat(5 << 20)});
    let content = vance_shared::json::Raw::from(serde_json::json!([half, half]));
    let outcome = Outcome::Done(ToolResult { content, structured: None, is_error: false });
    let small = blobs.within_limits(&call(1), None, outcome);
    assert!(matches!(&small, Outcome::Failed { error, .. } if error.code == "result_too_large"), "{small:?}");
    assert_eq!((files(home.path()), blobs.bytes()), (0, 0));
}
