//! Reads every OpenAPI document below some folders and says what became of it:
//! `cargo run --release -p vance-rest --example corpus -- [--no-schemas] [--slow SECONDS] [--within SECONDS] FOLDER…`
//!
//! Checked of each document: every operation is a tool or has a reason, names are unique and at most 64 characters, every schema is
//! valid JSON Schema 2020-12, and a made-up call of each tool builds a request that stays on its origin.
#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used)]

use std::path::PathBuf;
use std::time::{Duration, Instant};

mod check;

fn main() {
    let mut meta = true;
    let (mut slow, mut within) = (f64::MAX, f64::MAX);
    let mut folders = Vec::new();
    let mut words = std::env::args().skip(1);
    while let Some(word) = words.next() {
        let mut seconds = || words.next().and_then(|n| n.parse().ok()).expect("a number of seconds");
        match word.as_str() {
            "--no-schemas" => meta = false,
            "--slow" => slow = seconds(),
            "--within" => within = seconds(),
            _ => folders.push(PathBuf::from(word)),
        }
    }
    let started = Instant::now();
    let total = check::all(&folders, meta, slow);
    let took: Duration = started.elapsed();
    let mut ok = check::report(&total, took, check::workers());
    if took.as_secs_f64() > within {
        println!("WRONG: more than {within} s");
        ok = false;
    }
    std::process::exit(i32::from(!ok));
}
