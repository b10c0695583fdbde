//! What a program tells about itself: log lines, spans, and the names under which spans, fields and metrics are found.

mod export;
pub mod logs;
pub mod names;
pub mod spans;
