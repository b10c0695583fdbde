//! How long a start takes.

use std::time::Instant;

use super::programs::{Brain, Home};
use super::system::{median, memory_kib};
use super::table::{Goal, Table};

/// Starts; the first one is not counted.
const STARTS: usize = 7;

/// Measures.
pub(crate) fn measure(table: &mut Table) -> anyhow::Result<()> {
    let home = Home::new()?;
    let (mut ready, mut memory, mut list) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..STARTS {
        let begun = Instant::now();
        let brain = Brain::start(&home)?;
        ready.push(begun.elapsed().as_secs_f64() * 1e3);
        memory.push(memory_kib(brain.program.pid()?)? / 1024.0);
        brain.program.stop()?;
    }
    for _ in 0..STARTS {
        let begun = Instant::now();
        home.run("vancetope", &["tools", "list"])?;
        list.push(begun.elapsed().as_secs_f64() * 1e3);
    }
    let warm = |mut all: Vec<f64>| median(all.split_off(1));
    table.value("`vance-brain serve`, ready", "ms", warm(ready), Goal::Most(300.0));
    table.value("`vancetope tools list`, native only", "ms", warm(list), Goal::Most(300.0));
    table.value("idle Brain, memory", "MiB", warm(memory), Goal::None);
    Ok(())
}
