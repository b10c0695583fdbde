//! How a running tree looks: lines as it moves, and on a terminal, below them, what runs and what waits.

use std::collections::HashMap;
use std::io;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};
use serde_json::Value;
use vance_shared::ids::TaskId;
use vance_shared::show::plain;

use super::tree::{Change, Tree};
use crate::api::{Task, TaskState};
use crate::cli::progress::Pace;
use crate::cli::screen::Screen;

/// Lines of the live part: a screenful would push away what was said before.
const MAX_BARS: usize = 16;
/// Between two frames of a spinner.
const TICK: Duration = Duration::from_millis(120);
/// Characters shown of a task's output.
const MAX_PREVIEW: usize = 160;

/// The view of one tree.
pub(super) struct View {
    bars: Option<Vec<(TaskId, ProgressBar)>>,
    more: Option<ProgressBar>,
    /// What each waiting task waits for, and since when: said when it goes on, because the live part forgets it.
    waiting: HashMap<TaskId, (String, Instant)>,
    /// How far each task's call was last said to be.
    far: HashMap<TaskId, Far>,
}

/// The tool's last word on a call.
#[derive(Debug, Default)]
struct Far {
    /// Of which call, if that is known.
    call: Option<String>,
    text: String,
    pace: Pace,
}

impl View {
    /// With a live part, or lines alone.
    pub(super) fn new(live: bool) -> Self {
        Self { bars: live.then(Vec::new), more: None, waiting: HashMap::new(), far: HashMap::new() }
    }

    /// True if what a running task does is shown.
    pub(super) fn shows_calls(&self) -> bool {
        self.bars.is_some()
    }

    /// Says how far a task's call is: in the live part, or in a line from time to time beside the result.
    pub(super) fn goes_on(&mut self, screen: &mut Screen, task: &Task, text: String) {
        let call = task.current_call().map(|call| call.call_id.clone());
        let far = self.far.entry(task.task_id.clone()).or_default();
        (far.call, far.text) = (call, text);
        if self.bars.is_none() && far.pace.is_due(&far.text) {
            let tool = task.current_call().map(|call| format!("{}: ", plain(&call.tool))).unwrap_or_default();
            screen.remark(&format!("{}: {tool}{}", plain(&task.id), far.text));
        }
    }

    /// Says that a task moved. The live part shows running and waiting tasks itself, so only ends become lines there, and what
    /// a task has waited for.
    pub(super) fn moved(&mut self, screen: &mut Screen, change: &Change, task: Option<&Task>) -> io::Result<()> {
        self.far.remove(&change.task_id);
        let reason = change.reason.as_deref().or_else(|| task.and_then(Task::reason));
        let reason = reason.filter(|text| !text.is_empty()).map(plain);
        if change.state == TaskState::Blocked && reason.as_ref().is_some_and(|text| text.starts_with(Task::UNKNOWN)) {
            let word = format!("vancetope tasks resolve {} --as done|failed|retry", change.task_id);
            screen.remark(&format!("vancetope: {}: did the call run? Say it with `{word}`", plain(&change.id)));
        }
        if change.state == TaskState::Blocked && reason.as_ref().is_some_and(|text| text.starts_with(Task::ASKED)) {
            let word = format!("vancetope tasks answer {}", change.task_id);
            screen.remark(&format!("vancetope: {}: answer it with: {word}", plain(&change.id)));
        }
        if self.bars.is_some() && !change.state.is_terminal() {
            return self.waits(screen, change, reason);
        }
        screen.progress(&sentence(&change.id, change.state, reason.as_deref()))?;
        let output = task.filter(|t| t.state == TaskState::Completed).and_then(|t| t.output.as_ref());
        match output.and_then(preview) {
            Some(text) => screen.progress(&format!("  {text}")),
            None => Ok(()),
        }
    }

    fn waits(&mut self, screen: &mut Screen, change: &Change, reason: Option<String>) -> io::Result<()> {
        if change.state.is_waiting() {
            let since = self.waiting.get(&change.task_id).map_or_else(Instant::now, |(_, since)| *since);
            self.waiting.insert(change.task_id.clone(), (reason.unwrap_or_default(), since));
            return Ok(());
        }
        let Some((reason, since)) = self.waiting.remove(&change.task_id) else { return Ok(()) };
        let seconds = since.elapsed().as_secs();
        if seconds == 0 {
            // Nobody has seen it wait.
            return Ok(());
        }
        screen.progress(&format!("{}: goes on after {seconds} s: {reason}", plain(&change.id)))
    }

    /// Brings the live part up to date.
    pub(super) fn draw(&mut self, screen: &Screen, tree: &Tree) {
        let Some(bars) = &mut self.bars else { return };
        let shown = |t: &&Task| !t.state.is_terminal() && t.state != TaskState::Pending;
        let now: Vec<&Task> = tree.tasks().iter().filter(shown).take(MAX_BARS).collect();
        bars.retain(|(id, bar)| {
            let stays = now.iter().any(|t| t.task_id == *id);
            if !stays {
                bar.finish_and_clear();
                screen.live().remove(bar);
            }
            stays
        });
        for (at, task) in now.iter().enumerate() {
            if bars.get(at).is_none_or(|(id, _)| *id != task.task_id) {
                if let Some(old) = bars.iter().position(|(id, _)| *id == task.task_id) {
                    let (_, bar) = bars.remove(old);
                    screen.live().remove(&bar);
                }
                let bar = screen.live().insert(at, ProgressBar::new_spinner());
                bars.insert(at, (task.task_id.clone(), bar));
            }
            if let Some((_, bar)) = bars.get(at) {
                dress(bar, task, self.far.get(&task.task_id));
            }
        }
        let hidden = tree.tasks().iter().filter(shown).count().saturating_sub(MAX_BARS);
        self.count_hidden(screen, hidden);
    }

    fn count_hidden(&mut self, screen: &Screen, hidden: usize) {
        if hidden == 0 {
            if let Some(bar) = self.more.take() {
                bar.finish_and_clear();
                screen.live().remove(&bar);
            }
            return;
        }
        let bar = self.more.get_or_insert_with(|| {
            let bar = screen.live().add(ProgressBar::new_spinner());
            bar.set_style(style("  {wide_msg}"));
            bar
        });
        bar.set_message(format!("and {hidden} more"));
    }

    /// Takes the live part away. What still waits becomes lines: it must not vanish with it.
    pub(super) fn end(&mut self, screen: &mut Screen, tree: &Tree) -> io::Result<()> {
        let live = self.bars.is_some();
        for (_, bar) in self.bars.iter_mut().flat_map(|bars| bars.drain(..)) {
            bar.finish_and_clear();
            screen.live().remove(&bar);
        }
        self.count_hidden(screen, 0);
        for task in tree.tasks().iter().filter(|task| live && task.state.is_waiting()) {
            screen.progress(&sentence(&task.id, task.state, task.reason().map(plain).as_deref()))?;
        }
        Ok(())
    }
}

/// `notes: blocked: Waiting for …`; the reason is safe to print already.
fn sentence(id: &str, state: TaskState, reason: Option<&str>) -> String {
    let reason = reason.filter(|text| !text.is_empty()).map(|text| format!(": {text}")).unwrap_or_default();
    format!("{}: {}{reason}", plain(id), state.word())
}

fn dress(bar: &ProgressBar, task: &Task, far: Option<&Far>) {
    let id = plain(&task.id);
    if task.state == TaskState::Running {
        bar.set_style(style("{spinner} {wide_msg}"));
        bar.enable_steady_tick(TICK);
        let call = task.current_call().map(|call| {
            let place = call.machine.as_deref().or(call.client_id.as_deref()).or(call.route.as_deref());
            match place {
                Some(place) => format!("{} on {}", plain(&call.tool), plain(place)),
                None => plain(&call.tool),
            }
        });
        let is_of_call = |far: &&Far| far.call.as_deref() == task.current_call().map(|call| call.call_id.as_str());
        let far = far.filter(is_of_call).map(|far| format!(": {}", far.text)).unwrap_or_default();
        bar.set_message(match call {
            Some(call) => format!("{id}: {call}{far}"),
            None => format!("{id}: running{far}"),
        });
    } else {
        bar.disable_steady_tick();
        // Wrapped, never cut: the end of the reason is what it waits for.
        bar.set_style(style(". {msg}"));
        bar.set_message(sentence(&task.id, task.state, task.reason().map(plain).as_deref()));
        bar.tick();
    }
}

fn style(template: &str) -> ProgressStyle {
    // The templates are ours and right; the plain spinner is no worse than an error.
    ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_spinner()).tick_chars("|/-\\ ")
}

/// A task's output in one line: texts where there are texts, JSON where not.
fn preview(output: &Value) -> Option<String> {
    let one = |value: &Value| match value.get("text").and_then(Value::as_str) {
        Some(text) if !text.is_empty() => text.to_owned(),
        _ => match value.get("structured").filter(|s| !s.is_null()).unwrap_or(value) {
            Value::String(text) => text.clone(),
            other => other.to_string(),
        },
    };
    let text = match output {
        Value::Null => return None,
        Value::Object(map) if map.is_empty() => return None,
        Value::Object(map) if map.len() == 1 && map.contains_key("result") => one(&map["result"]),
        Value::Object(map) if !map.contains_key("text") => {
            map.iter().map(|(name, value)| format!("{name}: {}", one(value))).collect::<Vec<_>>().join("; ")
        }
        other => one(other),
    };
    let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
    let mut shown = plain(&text.chars().take(MAX_PREVIEW).collect::<String>());
    if text.chars().nth(MAX_PREVIEW).is_some() {
        shown.push_str("...");
    }
    (!shown.is_empty()).then_some(shown)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_output_is_one_safe_line() {
        for (output, want) in [
            (serde_json::json!(null), None),
            (serde_json::json!({}), None),
            (serde_json::json!({"result": {"text": "a\nb\u{1b}[2J", "content": []}}), Some("a b\\x1b[2J")),
            (serde_json::json!({"paper": {"text": "x"}, "n": 3}), Some("paper: x; n: 3")),
            (serde_json::json!({"result": {"text": "", "structured": 1}}), Some("1")),
        ] {
            assert_eq!(preview(&output).as_deref(), want, "{output}");
        }
        let long = preview(&serde_json::json!("x".repeat(1000)));
        assert_eq!(long.map(|t| t.len()), Some(MAX_PREVIEW + 3));
    }

    #[test]
    fn who_sits_there_is_told_how_to_answer() {
        for (reason, want) in [
            ("Waiting for an answer: how many?", "vancetope: a: answer it with: vancetope tasks answer task_a"),
            ("Outcome unknown: gone", "vancetope: a: did the call run?"),
            ("Waiting for Client for Tool: x", ""),
        ] {
            let said = std::sync::Arc::new(std::sync::Mutex::new(Vec::new()));
            struct Err(std::sync::Arc<std::sync::Mutex<Vec<u8>>>);
            impl io::Write for Err {
                fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
                    self.0.lock().map_or(Ok(0), |mut text| text.write(bytes))
                }
                fn flush(&mut self) -> io::Result<()> {
                    Ok(())
                }
            }
            let mut screen = Screen::into_writers(Box::new(io::sink()), Box::new(Err(said.clone())));
            let task = serde_json::json!({
                "task_id": "task_a", "id": "a", "tree_id": "tree_1", "session_id": "s", "state": "blocked", "blocked_reason": reason,
            });
            let mut tree = Tree::default();
            for change in tree.snapshot(serde_json::from_value(task).into_iter().collect()) {
                assert!(View::new(true).moved(&mut screen, &change, None).is_ok());
            }
            let said = said.lock().map(|text| String::from_utf8_lossy(&text).into_owned()).unwrap_or_default();
            assert!(said.starts_with(want) && said.is_empty() == want.is_empty(), "{said}");
        }
    }

    #[test]
    fn what_a_task_waited_for_outlives_the_live_part() {
        #[derive(Clone, Default)]
        struct Text(std::sync::Arc<std::sync::Mutex<Vec<u8>>>);
        impl io::Write for Text {
            fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
                self.0.lock().map_or(Ok(0), |mut text| text.write(bytes))
            }
            fn flush(&mut self) -> io::Result<()> {
                Ok(())
            }
        }
        let said = Text::default();
        let mut screen = Screen::into_writers(Box::new(said.clone()), Box::new(io::sink()));
        let mut view = View::new(true);
        let mut tree = Tree::default();
        let task = |state: &str| {
            serde_json::from_value(serde_json::json!({
                "task_id": "task_a", "id": "a", "tree_id": "tree_1", "session_id": "s", "state": state,
                "blocked_reason": (state == "blocked").then_some("Waiting for Client for Tool: x"),
            }))
        };
        let now = |state: &str, long_ago: bool, view: &mut View, tree: &mut Tree, screen: &mut Screen| {
            for change in tree.snapshot(task(state).into_iter().collect()) {
                assert!(view.moved(screen, &change, None).is_ok());
            }
            if let (true, Some((_, since))) = (long_ago, view.waiting.values_mut().next()) {
                *since = since.checked_sub(Duration::from_secs(4)).unwrap_or(*since);
            }
        };
        for (state, long_ago) in
            [("blocked", false), ("running", false), ("blocked", true), ("running", false), ("blocked", true)]
        {
            now(state, long_ago, &mut view, &mut tree, &mut screen);
        }
        assert!(view.end(&mut screen, &tree).is_ok());
        let said = said.0.lock().map(|text| String::from_utf8_lossy(&text).into_owned()).unwrap_or_default();
        let reason = "Waiting for Client for Tool: x";
        assert_eq!(said, format!("a: goes on after 4 s: {reason}\na: blocked: {reason}\n"));
    }

    #[test]
    fn many_tasks_make_a_bounded_live_part() {
        let tasks = (0..100).map(|n| {
            serde_json::from_value(serde_json::json!({
                "task_id": format!("task_{n}"), "id": n.to_string(), "tree_id": "tree_1", "session_id": "s",
                "state": if n % 2 == 0 { "running" } else { "blocked" },
            }))
        });
        let mut tree = Tree::default();
        tree.snapshot(tasks.filter_map(Result::ok).collect());
        let mut screen = Screen::into_writers(Box::new(io::sink()), Box::new(io::sink()));
        let mut view = View::new(true);
        view.draw(&screen, &tree);
        let ids = |view: &View| view.bars.iter().flatten().map(|(id, _)| id.to_string()).collect::<Vec<_>>();
        assert_eq!(ids(&view).len(), MAX_BARS);
        assert_eq!(view.more.as_ref().map(|bar| bar.message()).as_deref(), Some("and 84 more"));
        for n in [0, 3] {
            let mut ended = tree.tasks()[n].clone();
            ended.state = TaskState::Completed;
            tree.refresh(ended);
        }
        view.draw(&screen, &tree);
        let shown = ids(&view);
        assert_eq!((shown.len(), shown[0].as_str(), shown[2].as_str()), (MAX_BARS, "task_1", "task_4"));
        assert!(view.end(&mut screen, &tree).is_ok());
        assert!(ids(&view).is_empty() && view.more.is_none());
    }
}
