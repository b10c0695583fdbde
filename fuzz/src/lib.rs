//! What holds for every text that a reader may meet. A target panics where something does not.

use vance_brain_core::registry_file::parse_registry;
use vance_brain_core::tree_file::parse_tree;
use vance_foot_core::permissions::parse_permissions;
use vance_shared::doc::Problem;
use vance_shared::gate::pins::PinBook;
use vance_shared::gate::{Binding, Book, audit, changes_what_runs, reach};
use vance_shared::launch::Origin;
use vance_shared::pack::{PackBody, parse_pack};
use vance_shared::wire::{Decoded, decode_to_brain, decode_to_foot, encode};

mod rest;
mod store;
pub use rest::{openapi, request};

/// A pack file: it is there exactly if nothing is wrong, and its reach can be shown on a line.
pub fn pack(text: &str) {
    for origin in [Origin::Global, Origin::Project] {
        let parsed = parse_pack("f", text, origin);
        assert_eq!(parsed.pack.is_some(), parsed.problems.is_empty(), "{parsed:?}");
        printable(text, &parsed.problems);
        printable(text, &parsed.warnings);
        if let Some(PackBody::Launch(plan)) = parsed.pack.map(|pack| pack.body) {
            let shown = reach(&plan);
            assert!(shown.bytes().all(|byte| (b' '..=b'~').contains(&byte)), "{shown:?}");
            changes_what_runs("PATH");
        }
    }
}

/// `config.yaml` of Foot and Brain: a file that cannot be understood selects nothing.
pub fn config(text: &str) {
    let config = vance_foot_core::config::parse_config("f", text);
    if !config.problems.is_empty() {
        assert!(config.tool_packs.reason_against("chrome").is_some(), "{config:?}");
    }
    printable(text, &config.problems);
    printable(text, &config.warnings);
    if let Err(problems) = vance_brain_core::config::parse_config("f", text) {
        wrong(text, &problems);
    }
}

/// The stores of the gate: what was allowed, denied, pinned, bound and noted. Edits do what they say, whatever the file looks like.
pub fn trust(text: &str) {
    for parse in [Book::parse, Book::parse_brains] {
        match parse("f", text) {
            Ok(book) => store::edits(&book, parse),
            Err(problems) => wrong(text, &problems),
        }
    }
    match PinBook::parse("f", text) {
        Ok(pins) => assert_eq!(PinBook::parse("f", &pins.to_json()), Ok(pins)),
        Err(problems) => wrong(text, &problems),
    }
    match Binding::parse("f", text) {
        Ok((_, warnings)) => printable(text, &warnings),
        Err(problems) => wrong(text, &problems),
    }
    if let Err(broken) = audit::read(text) {
        assert!((1..=text.lines().count()).contains(&broken.line), "{broken:?}");
    }
}

/// `permissions.yaml`.
pub fn permissions(text: &str) {
    if let Err(problems) = parse_permissions("f", text) {
        wrong(text, &problems);
    }
}

/// A task tree.
pub fn tree(text: &str) {
    if let Err(problems) = parse_tree("f", text) {
        wrong(text, &problems);
    }
}

/// The Brain's registry.
pub fn registry(text: &str) {
    if let Err(problems) = parse_registry("f", text) {
        wrong(text, &problems);
    }
}

/// Frames in both directions: what is understood is understood again when it is written.
pub fn wire(text: &str) {
    match decode_to_brain(text) {
        Decoded::Frame(frame) => assert_eq!(decode_to_brain(&encode(&frame)), Decoded::Frame(frame)),
        Decoded::Unknown(error) | Decoded::Malformed(error) => assert!(!error.message.contains(char::is_control)),
    }
    match decode_to_foot(text) {
        Decoded::Frame(frame) => assert_eq!(decode_to_foot(&encode(&frame)), Decoded::Frame(frame)),
        Decoded::Unknown(error) | Decoded::Malformed(error) => assert!(!error.message.contains(char::is_control)),
    }
}

/// What is refused has a reason.
fn wrong(text: &str, problems: &[Problem]) {
    assert!(!problems.is_empty());
    printable(text, problems);
}

/// Problems lie within the file, and no terminal is hurt by them.
fn printable(text: &str, problems: &[Problem]) {
    let lines = u32::try_from(text.lines().count().max(1)).unwrap_or(u32::MAX);
    for problem in problems {
        assert!((1..=lines).contains(&problem.line), "{problem:?}");
        assert!(problem.message.chars().all(vance_shared::show::is_visible), "{problem:?}");
    }
}
