#![allow(clippy::unwrap_used, clippy::panic)]
use serde_json::Value;

use super::*;

type Shelf = Vec<(String, Vec<u8>)>;

fn keeper(shelf: &mut Shelf) -> impl FnMut(&[u8], &str) -> Result<Kept, Fault> + '_ {
    |bytes, media_type| {
        shelf.push((media_type.to_owned(), bytes.to_vec()));
        let client = ClientId::parse("foot_a").unwrap();
        let (handle, size) = (BlobHandle::on(Some(&client)), bytes.len() as u64);
        Ok(Kept { handle, size, media_type: media_type.to_owned(), sha256: "00".to_owned() })
    }
}

fn result(content: Value) -> ToolResult {
    ToolResult { content: Raw::from(content), structured: None, is_error: false }
}

#[test]
fn what_fits_travels_as_it_is() {
    let mut shelf = Shelf::new();
    let small = Outcome::Done(ToolResult::text("x".repeat(WHOLE_BYTES - 100)));
    assert!(!is_too_large(&small));
    assert_eq!(within_limits(small.clone(), &mut keeper(&mut shelf)), small);
    assert!(shelf.is_empty());
}

#[test]
fn large_parts_are_kept_as_what_they_are_and_small_ones_travel() {
    let mut shelf = Shelf::new();
    let (text, image) = ("ü".repeat(4 << 20), vec![0xff; 3 << 20]);
    let data = base64::engine::general_purpose::STANDARD.encode(&image);
    let large = result(json!([
        {"type": "text", "text": "small"},
        {"type": "text", "text": text},
        {"type": "image", "data": data, "mimeType": "image/png"},
        {"type": "resource", "resource": {"uri": "x:y", "blob": data, "mimeType": "no header\r\n/x"}},
        {"type": "odd", "value": "z".repeat(100_000)},
    ]));
    let large = Outcome::Done(ToolResult { structured: Some(Raw::from(json!({ "all": text }))), ..large });
    assert!(is_too_large(&large));
    let Outcome::Done(small) = within_limits(large, &mut keeper(&mut shelf)) else { panic!("not done") };
    let kinds: Vec<(&str, usize)> = shelf.iter().map(|(kind, bytes)| (kind.as_str(), bytes.len())).collect();
    let odd = json!({"type": "odd", "value": "z".repeat(100_000)}).to_string().len();
    assert_eq!(
        kinds,
        [
            ("application/json", text.len() + r#"{"all":""}"#.len()),
            ("text/plain", text.len()),
            ("image/png", image.len()),
            ("application/octet-stream", image.len()),
            ("application/json", odd),
        ]
    );
    assert!(shelf[1].1 == text.as_bytes() && shelf[2].1 == image);
    let content = small.content.value();
    assert_eq!(content[0]["text"], "small");
    let shown = content[1]["text"].as_str().unwrap();
    assert!(shown.starts_with("üü") && shown.contains("GET /api/v1/blobs/blob_") && shown.len() < 1300, "{shown}");
    assert_eq!((&content[2]["type"], &content[2]["size"]), (&json!("resource_link"), &json!(text.len())));
    assert!(small.bytes() < 10_000);
    assert_eq!(small.structured.unwrap().value()["blob"]["media_type"], "application/json");
}

#[test]
fn very_many_small_parts_are_kept_as_one() {
    let mut shelf = Shelf::new();
    let part = json!({"type": "text", "text": "x".repeat(PART_BYTES / 2)});
    let large = result(Value::Array(vec![part; 300]));
    let whole = large.content.get().len();
    let Outcome::Done(small) = within_limits(Outcome::Done(large), &mut keeper(&mut shelf)) else { panic!("not done") };
    assert_eq!((shelf.len(), shelf[0].1.len()), (1, whole));
    assert!(small.bytes() < 1_000);
}

#[test]
fn a_failure_keeps_its_own_error_and_a_full_shelf_is_an_answer() {
    let mut shelf = Shelf::new();
    let large = || Outcome::of(ToolResult::error("ü".repeat(5 << 20)));
    let Outcome::Failed { error, result: Some(result) } = within_limits(large(), &mut keeper(&mut shelf)) else {
        panic!("not failed with a result")
    };
    assert!(error.code == "tool_failed" && error.message.len() < 5_000 && result.is_error);
    let mut full = |_: &[u8], _: &str| Err(Fault::new("blobs_full", "no room"));
    assert!(
        matches!(within_limits(large(), &mut full), Outcome::Failed { error, result: None } if error.code == "tool_failed")
    );
    let done = Outcome::Done(ToolResult::text("x".repeat(9 << 20)));
    assert!(
        matches!(within_limits(done, &mut full), Outcome::Failed { error, result: None } if error.code == "blobs_full")
    );
}

#[test]
fn a_handle_names_who_keeps_it() {
    let client = ClientId::parse("foot_a.b").unwrap();
    assert_eq!(BlobHandle::on(Some(&client)).client(), Some(client));
    assert_eq!(BlobHandle::on(None).client(), None);
    let long = ClientId::parse(&"c".repeat(128)).unwrap();
    assert!(BlobHandle::on(Some(&long)).as_str().len() <= crate::ids::MAX_ID_BYTES);
}
