//! `docs/servers.md` as its reader sees it: a table, then for each pack a file and calls with their answers.

use std::path::Path;

use anyhow::Context as _;
use serde_json::Value;

/// The web page of the examples; a test puts its own in its place.
pub(crate) const SITE: &str = "http://127.0.0.1:8000/";

/// One server of the page.
pub(crate) struct Server {
    /// The pack's name.
    pub(crate) name: String,
    /// What npm or PyPI call it.
    pub(crate) package: String,
    /// The tested version.
    pub(crate) version: String,
    /// How many tools it lists.
    pub(crate) tools: usize,
    /// The pack file.
    pub(crate) pack: Value,
    /// What to type, and what comes of it.
    pub(crate) calls: Vec<Call>,
    /// A task tree that uses it.
    pub(crate) tree: Option<String>,
}

/// One call of the page.
pub(crate) struct Call {
    pub(crate) tool: String,
    pub(crate) arguments: String,
    /// Is in the answer.
    pub(crate) answer: String,
}

/// Every server of the page.
pub(crate) fn servers() -> anyhow::Result<Vec<Server>> {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).parent().context("root")?.join("docs/servers.md");
    let text = std::fs::read_to_string(&file)?;
    let mut parts = text.split("\n## ");
    let table = parts.next().context("the table")?;
    let sections: Vec<(&str, &str)> = parts.filter_map(|part| part.split_once('\n')).collect();
    let rows: Vec<Vec<&str>> = table
        .lines()
        .filter(|line| line.starts_with('|'))
        .skip(2)
        .map(|line| line.trim_matches('|').split('|').map(str::trim).collect())
        .collect();
    anyhow::ensure!(rows.len() == sections.len(), "{} rows, {} sections", rows.len(), sections.len());
    rows.iter().map(|row| server(row, &sections).with_context(|| format!("{row:?}"))).collect()
}

fn server(row: &[&str], sections: &[(&str, &str)]) -> anyhow::Result<Server> {
    let [name, from, version, tools] = row else { anyhow::bail!("four columns") };
    let (_, section) = sections.iter().find(|(title, _)| title == name).context("a section of this name")?;
    let pack: Value = serde_json::from_str(block(section, "json").first().context("a pack")?)?;
    anyhow::ensure!(pack["name"] == *name, "the pack has another name");
    Ok(Server {
        name: (*name).to_owned(),
        package: from.split('`').nth(1).context("the package in backquotes")?.to_owned(),
        version: (*version).to_owned(),
        tools: tools.parse()?,
        pack,
        calls: block(section, "sh").iter().flat_map(|block| block.lines()).filter_map(call).collect(),
        tree: block(section, "yaml").first().map(|tree| (*tree).to_owned()),
    })
}

fn block<'a>(section: &'a str, language: &str) -> Vec<&'a str> {
    let open = format!("```{language}\n");
    section.split(open.as_str()).skip(1).filter_map(|rest| rest.split("```").next()).collect()
}

/// `vancetope tools call NAME 'JSON'      # ANSWER`.
fn call(line: &str) -> Option<Call> {
    let (command, answer) = line.strip_prefix("vancetope tools call ")?.split_once("      # ")?;
    let (tool, arguments) = command.split_once(' ')?;
    Some(Call {
        tool: tool.to_owned(),
        arguments: arguments.trim_matches('\'').to_owned(),
        answer: answer.trim().to_owned(),
    })
}
