//! What is too large to travel, over HTTP: whose it is, and which part of it.

use std::sync::Arc;

use vance_blobs::Blobs;
use vance_shared::ids::CallId;

use super::in_world;

#[test]
fn a_blob_is_its_owners_alone_and_streams_in_ranges() {
    in_world(async |world| {
        let dir = tempfile::tempdir().unwrap();
        let blobs = Arc::new(Blobs::open(dir.path(), 4 << 20, None).unwrap());
        assert!(world.brain.blobs.set(blobs.clone()).is_ok());
        let bytes: Vec<u8> = (0..1_000_000u32).map(|n| n.to_le_bytes()[1]).collect();
        let kept = blobs.keep(&CallId::generate(), Some("local"), &bytes, "text/html").unwrap();
        let path = format!("/api/v1/blobs/{}", kept.handle);
        let whole = world.ask("GET", &path).send().await;
        assert!(whole.status == 200 && whole.body == bytes);
        for header in [
            "content-type: text/html",
            "content-length: 1000000",
            "content-disposition: attachment",
            "x-content-type-options: nosniff",
            &format!("etag: \"{}\"", kept.sha256),
        ] {
            assert!(whole.head.contains(header), "{}", whole.head);
        }
        let over_pieces = world.ask("GET", &path).header("Range", "bytes=262100-786500").send().await;
        assert!(over_pieces.status == 206 && over_pieces.body == bytes[262_100..=786_500]);
        assert!(over_pieces.head.contains("content-range: bytes 262100-786500/1000000"), "{}", over_pieces.head);
        assert_eq!(world.ask("GET", &path).header("Range", "bytes=1000000-").send().await.said(), "416 bad_range");
        let others = world.anyone("GET", &path).token(&world.other).send().await;
        assert_eq!(others.said(), "404 blob_not_found");
        assert_eq!(world.anyone("GET", &path).send().await.status, 401);
        std::fs::remove_file(dir.path().join(kept.handle.as_str())).unwrap();
        assert_eq!(world.ask("GET", &path).send().await.said(), "404 blob_not_found");
    });
}
