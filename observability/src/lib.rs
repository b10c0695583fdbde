//! What a program tells about itself: log lines, and the names under which spans, fields and metrics are found.

pub mod logs;
pub mod names;
