//! What a nightly run counts over all tests, for the lines at its end.

use std::fs::OpenOptions;
use std::io::Write as _;

/// Adds to a count, in the file that `VANCE_SUMMARY` names. Without it nobody counts.
pub fn count(what: &str, number: usize) {
    let Some(file) = std::env::var_os("VANCE_SUMMARY") else { return };
    let file = OpenOptions::new().append(true).create(true).open(file);
    // One write: tests of several processes add at the same time. A count that is lost fails no test.
    if let Err(error) = file.and_then(|mut file| file.write_all(format!("{number} {what}\n").as_bytes())) {
        eprintln!("not counted: {what}: {error}");
    }
}
