//! Results: rows of a table for people, and JSON for comparison.

use std::path::Path;

use serde_json::{Value, json};

/// What is reached.
#[derive(Clone, Copy)]
pub(crate) enum Goal {
    /// At most.
    Most(f64),
    /// At least.
    Least(f64),
    /// Shown only.
    None,
}

struct Row {
    what: String,
    unit: &'static str,
    base: Option<f64>,
    ours: f64,
    goal: Goal,
}

impl Row {
    /// What the goal is about: the ratio, or ours alone where there is nothing to compare with.
    fn value(&self) -> f64 {
        self.base.map_or(self.ours, |base| self.ours / base)
    }

    fn verdict(&self) -> &'static str {
        let reached = match self.goal {
            Goal::None => return "",
            Goal::Most(most) => self.value() <= most,
            Goal::Least(least) => self.value() >= least,
        };
        if reached { "ok" } else { "NOT reached" }
    }
}

/// The rows so far. Each is printed as it comes.
#[derive(Default)]
pub(crate) struct Table(Vec<Row>);

impl Table {
    /// Beside what it is compared with; the goal is about the ratio.
    pub(crate) fn ratio(&mut self, what: &str, unit: &'static str, base: f64, ours: f64, goal: Goal) {
        self.push(Row { what: what.to_owned(), unit, base: Some(base), ours, goal });
    }

    /// On its own.
    pub(crate) fn value(&mut self, what: &str, unit: &'static str, ours: f64, goal: Goal) {
        self.push(Row { what: what.to_owned(), unit, base: None, ours, goal });
    }

    fn push(&mut self, row: Row) {
        eprintln!("  {} {} {} {}", row.what, number(row.ours), row.unit, row.verdict());
        self.0.push(row);
    }

    /// The table in Markdown.
    pub(crate) fn markdown(&self) -> String {
        let mut out = String::from("| | unit | base | ours | ratio | goal | |\n|---|---|---|---|---|---|---|\n");
        for row in &self.0 {
            let base = row.base.map(number).unwrap_or_default();
            let ratio = row.base.map(|_| format!("{:.2}", row.value())).unwrap_or_default();
            let goal = match row.goal {
                Goal::Most(most) => format!("≤ {most}"),
                Goal::Least(least) => format!("≥ {least}"),
                Goal::None => String::new(),
            };
            out.push_str(&format!(
                "| {} | {} | {base} | {} | {ratio} | {goal} | {} |\n",
                row.what,
                row.unit,
                number(row.ours),
                row.verdict()
            ));
        }
        out
    }

    /// Writes `DIR/NAME.json`.
    pub(crate) fn write(&self, dir: &Path, name: &str, about: &Value) -> anyhow::Result<std::path::PathBuf> {
        let rows: Vec<Value> = self
            .0
            .iter()
            .map(|row| {
                let goal = match row.goal {
                    Goal::Most(most) => json!({"most": most}),
                    Goal::Least(least) => json!({"least": least}),
                    Goal::None => Value::Null,
                };
                json!({
                    "what": row.what, "unit": row.unit, "base": row.base, "ours": row.ours,
                    "ratio": row.base.map(|_| row.value()), "goal": goal, "reached": row.verdict() != "NOT reached",
                })
            })
            .collect();
        std::fs::create_dir_all(dir)?;
        let path = dir.join(format!("{name}.json"));
        std::fs::write(&path, serde_json::to_string_pretty(&json!({"about": about, "rows": rows}))?)?;
        Ok(path)
    }
}

fn number(value: f64) -> String {
    if value >= 1_000.0 {
        let whole = format!("{value:.0}");
        let (head, tail) = whole.split_at(whole.len() - 3);
        return format!("{head},{tail}");
    }
    if value >= 100.0 { format!("{value:.0}") } else { format!("{value:.1}") }
}
