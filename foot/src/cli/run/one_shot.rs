//! `vancetope --skill-one-shot FILE`: one task tree, unattended, with its result on standard output.

use std::collections::HashSet;
use std::path::Path;

use serde_json::Value;

use super::file::TreeFile;
use super::tree::Tree;
use super::{followed, session_of, submit_for};
use crate::api::{Task, TaskState};
use crate::cli::args::RunArgs;
use crate::cli::context::Context;
use crate::cli::failure::{EXIT_FAILED, Failure};
use crate::cli::foot::LocalFoot;
use crate::cli::screen::Screen;

/// Loads the packs (nobody is asked), runs a file to its end and prints what the last tasks gave.
pub(in crate::cli) async fn one_shot(context: &mut Context, file: &Path) -> Result<u8, Failure> {
    let args = RunArgs { file: file.to_owned(), no_wait: false };
    let file = TreeFile::read(&args.file)?;
    let session = session_of(context, &file)?;
    let brain = context.brain()?;
    brain.health().await?;
    brain.sessions().await?;
    let foot = LocalFoot::start(context, session.as_ref(), "one-shot")?;
    let as_json = std::mem::replace(&mut context.screen.json, true);
    let ended = async {
        foot.loaded(context).await?;
        let submitted = submit_for(context, &brain, &file, &foot).await?;
        // What happens on the way are remarks, as with JSON: standard output is for the result.
        let end = followed(context, &args, &brain, &submitted, Some(&foot)).await;
        context.screen.json = as_json;
        let Some(end) = end? else { return Ok(EXIT_FAILED) };
        if as_json {
            end.print(context)?;
        } else {
            print(&mut context.screen, &end.tree)?;
        }
        Ok(end.tree.exit())
    }
    .await;
    context.screen.json = as_json;
    foot.shutdown().await;
    ended
}

/// What the tasks gave that no other one came after.
fn print(screen: &mut Screen, tree: &Tree) -> Result<(), Failure> {
    let ends = last(tree.tasks());
    for task in &ends {
        if ends.len() > 1 {
            let id = screen.foreign(&task.id).into_owned();
            screen.line(&format!("{id}:"))?;
        }
        for value in task.output.iter().flat_map(parts) {
            match text(value) {
                Some(text) => {
                    let text = screen.foreign(text.strip_suffix('\n').unwrap_or(text)).into_owned();
                    screen.line(&text)?;
                }
                None => screen.pretty(value)?,
            }
        }
    }
    Ok(())
}

fn last(tasks: &[Task]) -> Vec<&Task> {
    let before: HashSet<&str> =
        tasks.iter().flat_map(|task| task.depends_on.iter().chain(&task.parent)).map(String::as_str).collect();
    let is_before = |task: &Task| before.contains(task.id.as_str()) || before.contains(task.task_id.as_str());
    tasks.iter().filter(|task| task.state == TaskState::Completed && !is_before(task)).collect()
}

/// The results under their names.
fn parts(output: &Value) -> Vec<&Value> {
    match output {
        Value::Null => Vec::new(),
        Value::Object(map) if !map.contains_key("content") => map.values().collect(),
        other => vec![other],
    }
}

fn text(value: &Value) -> Option<&str> {
    value.get("text").unwrap_or(value).as_str().filter(|text| !text.is_empty())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn the_result_is_what_the_last_completed_tasks_gave() {
        let task = |id: &str, state: &str, after: &[&str]| -> Task {
            serde_json::from_value(serde_json::json!({
                "task_id": format!("task_{id}"), "id": id, "tree_id": "tree_1", "session_id": "s", "state": state, "depends_on": after,
            }))
            .unwrap()
        };
        let tasks = [
            task("a", "completed", &[]),
            task("b", "completed", &["a"]),
            task("c", "failed", &["task_a"]),
            task("d", "completed", &[]),
        ];
        assert_eq!(last(&tasks).iter().map(|t| t.id.as_str()).collect::<Vec<_>>(), ["b", "d"]);
        let output = serde_json::json!({"paper": {"text": "one\ntwo", "content": []}, "n": {"structured": {"a": 1}}, "s": "plain"});
        let texts: Vec<_> = parts(&output).into_iter().map(text).collect();
        assert_eq!(texts, [Some("one\ntwo"), None, Some("plain")]);
    }
}
