//! The prompt with a real Brain: a tree is followed above the line that is typed, waits are counted, sessions change.
#![allow(clippy::unwrap_used, missing_docs, unreachable_pub, dead_code)]

use vance_tests::api::Api;
use vance_tests::home::Home;
use vance_tests::process::{Brain, processes_with, program, run};
use vance_tests::wait::until;

// One terminal for all who sit at one; what it shows is read with vt100.
#[path = "../../foot/tests/command_line/terminal.rs"]
mod terminal;
use terminal::Terminal;

const CTRL_C: &str = "\u{3}";

fn at_prompt(home: &Home, brain: &Brain) -> anyhow::Result<Terminal> {
    // The test is the person who starts the program from a shell.
    #[allow(clippy::disallowed_methods)]
    let mut command = std::process::Command::new(program("vancetope")?);
    command.args(["--brain", &brain.url, "--name", "laptop"]).current_dir(home.project());
    command.env_remove("VANCE_BRAIN").env_remove("VANCE_TOKEN").env("VANCE_HOME", home.path());
    command.env("TERM", "xterm").env("NO_COLOR", "1");
    let terminal = Terminal::start(command);
    terminal.shows("connected to the Brain at");
    terminal.shows("| 0 waiting");
    terminal.ends_with("\u{203a}");
    Ok(terminal)
}

const TREE: &str = r#"
tasks:
- id: notes
  steps: [{call: read_local_file, with: {path: notes.txt}, as: notes}]
- id: elsewhere
  client: another-laptop
  steps: [{call: read_local_file, with: {path: notes.txt}}]
"#;

#[tokio::test(flavor = "multi_thread")]
async fn a_tree_is_followed_above_what_is_typed_and_ctrl_c_cancels_it() -> anyhow::Result<()> {
    let home = Home::new()?;
    let brain = Brain::start(&home).await?;
    home.write_project("notes.txt", "milk and bread")?;
    home.write_project("plan.yaml", TREE)?;
    let mut terminal = at_prompt(&home, &brain)?;
    terminal.types("/run plan.yaml\r");
    terminal.types("half a goal");
    terminal.shows("notes: completed");
    terminal.shows("  notes: milk and bread");
    terminal.shows("elsewhere: blocked: ");
    terminal.shows("| 1 waiting | 1 followed");
    terminal.ends_with("\u{203a} half a goal");
    // What is typed goes first, then the tree, then the program.
    terminal.types(CTRL_C);
    terminal.ends_with("\u{203a}");
    terminal.types(CTRL_C);
    terminal.shows("cancelling 1 task(s)");
    terminal.shows("elsewhere: cancelled");
    terminal.shows("1 completed, 1 cancelled");
    terminal.until("nothing waits", |rows| rows.iter().any(|row| row.contains("| 0 waiting")));
    terminal.types("/tasks\r");
    terminal.shows("STATE");
    terminal.ends_with("\u{203a}");
    terminal.types("/quit\r");
    assert_eq!(terminal.leaves().0, 0);
    Ok(())
}

/// A server whose tool says how far it is and waits for a file.
const SLOW: &str = include_str!("../../foot/tests/command_line/slow_server.py");

#[tokio::test(flavor = "multi_thread")]
async fn how_far_a_call_is_shows_above_the_prompt_and_in_the_live_lines_of_a_run() -> anyhow::Result<()> {
    let home = Home::new()?;
    let server = home.write("slow_server.py", SLOW)?;
    let go = home.project().join("go");
    let command = serde_json::json!(["python3", server, home.project().join("started"), go]);
    let pack = |name: &str| serde_json::json!({"name": name, "type": "mcp_server", "parameters": {"transport": "stdio", "command": command}});
    home.write("foot-tools/here.json", &pack("here").to_string())?;
    home.write("brain/packs/there.json", &pack("there").to_string())?;
    let brain = Brain::start(&home).await?;
    let tree = "tasks:\n- id: slow\n  steps: [{call: here__work}]\n- id: far\n  steps: [{call: there__work}]\n";
    home.write_project("plan.yaml", tree)?;
    let mut terminal = at_prompt(&home, &brain)?;
    terminal.shows("| 13 tools");
    terminal.types("/run plan.yaml\r");
    for row in ["slow: ", "far: "] {
        terminal.until(row, |rows| rows.iter().any(|r| r.starts_with(row) && r.contains("40%: reading\\x1b[2J")));
    }
    terminal.ends_with("\u{203a}");
    std::fs::write(&go, "")?;
    terminal.shows("2 completed");
    terminal.types("/quit\r");
    assert_eq!(terminal.leaves().0, 0);

    std::fs::remove_file(&go)?;
    // The test is the person who starts the program from a shell.
    #[allow(clippy::disallowed_methods)]
    let mut command = std::process::Command::new(program("vancetope")?);
    command.args(["--brain", &brain.url, "run", "plan.yaml"]).current_dir(home.project());
    command.env_remove("VANCE_BRAIN").env_remove("VANCE_TOKEN").env("VANCE_HOME", home.path()).env("TERM", "xterm");
    let terminal = Terminal::start(command);
    for row in ["slow: here__work on ", "far: there__work on server"] {
        terminal.until(row, |rows| rows.iter().any(|r| r.contains(row) && r.contains("40%: reading\\x1b[2J")));
    }
    std::fs::write(&go, "")?;
    let (exit, rows) = terminal.leaves();
    assert!(exit == 0 && rows.last().is_some_and(|row| row == "2 completed"), "{rows:#?}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_followed_stays_with_the_brain_and_another_session_is_another_foot() -> anyhow::Result<()> {
    let home = Home::new()?;
    let brain = Brain::start(&home).await?;
    let api = Api::new(&home, &brain.url)?;
    home.write_project("notes.txt", "milk")?;
    home.write_project("plan.yaml", TREE)?;
    let mut terminal = at_prompt(&home, &brain)?;
    terminal.types("/run plan.yaml\r");
    terminal.shows("elsewhere: blocked: ");
    terminal.types("/session new\r");
    terminal.shows("stays with the Brain");
    terminal.until("two sessions", |rows| rows.iter().filter(|row| row.contains(", session ")).count() == 2);
    terminal.until("the new one's count", |rows| rows.iter().any(|row| row.contains("| 0 waiting")));
    terminal.types("/session list\r");
    terminal.shows("laptop (online)");
    terminal.types("/session default.local\r");
    terminal.until("the first one again", |rows| rows.iter().any(|row| row.contains("| 1 waiting")));
    terminal.types("/tools call read_local_file '{\"path\": \"notes.txt\"}'\r");
    terminal.until("the file", |rows| rows.iter().any(|row| row == "milk"));
    terminal.types("/quit\r");
    assert_eq!(terminal.leaves().0, 0);
    let (_, tasks) = api.get("/api/v1/tasks?state=blocked").await?;
    assert_eq!(tasks["tasks"].as_array().map(Vec::len), Some(1), "{tasks}");
    Ok(())
}

/// Packs of a big toolbox, and tools of each.
const TOOLBOX: (usize, usize) = (50, 20);

/// Writes the toolbox; its servers have a word in their environment.
fn toolbox(home: &Home, word: &str) -> anyhow::Result<()> {
    let (packs, tools) = TOOLBOX;
    let command = serde_json::json!([program("vance-bench")?, "echo", tools.to_string(), "0"]);
    for n in 0..packs {
        let parameters = serde_json::json!({"transport": "stdio", "command": command, "env": {"TOOLBOX": word}});
        let pack = serde_json::json!({"name": format!("p{n}"), "type": "mcp_server", "parameters": parameters});
        home.write(&format!("foot-tools/p{n}.json"), &pack.to_string())?;
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn fifty_packs_leave_no_process_behind_after_a_reload_the_end_and_a_kill() -> anyhow::Result<()> {
    let home = Home::new()?;
    let word = |generation: &str| format!("{}-{generation}", home.root().display());
    let count =
        |generation: &str| Ok::<_, anyhow::Error>(processes_with(&format!("TOOLBOX={}", word(generation)))?.len());
    let none = async |generation: &'static str| {
        until("no server is left", || async { Ok((count(generation)? == 0).then_some(())) }).await
    };
    let start = || -> anyhow::Result<Terminal> {
        // The test is the person who starts the program from a shell.
        #[allow(clippy::disallowed_methods)]
        let mut command = std::process::Command::new(program("vancetope")?);
        command.args(["--brain", "http://127.0.0.1:1"]).current_dir(home.project());
        command.env_remove("VANCE_TOKEN").env("VANCE_HOME", home.path()).env("TERM", "xterm").env("NO_COLOR", "1");
        Ok(Terminal::start(command))
    };
    let all = "loaded 50 pack(s) \u{2192} 1000 tool(s); 0 skipped, 0 failed";
    toolbox(&home, &word("first"))?;
    let mut terminal = start()?;
    terminal.shows(all);
    assert!(count("first")? >= TOOLBOX.0);
    toolbox(&home, &word("second"))?;
    terminal.types("/tools reload\r");
    terminal.until("both loads", |_| terminal_said(&terminal, all) == 2);
    none("first").await?;
    assert!(count("second")? >= TOOLBOX.0);
    terminal.types("/quit\r");
    assert_eq!(terminal.leaves().0, 0);
    assert_eq!(count("second")?, 0, "the end waits for them");

    toolbox(&home, &word("third"))?;
    let terminal = start()?;
    terminal.shows(all);
    assert!(count("third")? >= TOOLBOX.0);
    terminal.signal(nix::sys::signal::Signal::SIGKILL);
    none("third").await
}

fn terminal_said(terminal: &Terminal, text: &str) -> usize {
    terminal.raw().matches(text).count()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_foot_finds_the_brain_of_its_home_on_any_port_and_not_one_that_has_ended() -> anyhow::Result<()> {
    let home = Home::new()?;
    let mut brain = Brain::start(&home).await?;
    home.write_project("plan.yaml", "tasks:\n- id: a\n  steps: [{call: now}]\n")?;
    let ran = run("vancetope", &home, &["run", "plan.yaml"]).await?;
    assert_eq!((ran.code, ran.stdout.lines().last()), (0, Some("1 completed")), "{}", ran.stderr);
    let doctor = run("vancetope", &home, &["doctor"]).await?;
    assert!(doctor.stdout.contains(&format!("{} answers and knows the token", brain.url)), "{}", doctor.stdout);
    brain.process.kill9().await?;
    assert!(home.path().join("brain/address").exists(), "a killed one leaves it behind");
    let doctor = run("vancetope", &home, &["doctor"]).await?;
    assert!(!doctor.stdout.contains(&brain.url), "{}", doctor.stdout);
    let mut again = Brain::start(&home).await?;
    let sessions = run("vancetope", &home, &["sessions"]).await?;
    assert_eq!(sessions.code, 0, "{}", sessions.stderr);
    again.process.stop().await?;
    assert!(!home.path().join("brain/address").exists());
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn one_tree_runs_unattended_and_only_its_result_is_on_standard_output() -> anyhow::Result<()> {
    let home = Home::new()?;
    let brain = Brain::start(&home).await?;
    home.write_project("notes.txt", "milk\nbread\n")?;
    let tree = |last: &str| {
        format!(
            "tasks:\n- id: first\n  steps: [{{call: now, as: t}}]\n- id: last\n  depends_on: [first]\n  steps: [{{call: {last}}}]\n"
        )
    };
    for (last, code, stdout) in [
        ("read_local_file, with: {path: notes.txt}", 0, "milk\nbread\n"),
        ("read_local_file, with: {path: none.txt}", 1, ""),
        // Nobody is asked.
        ("write_local_file, with: {path: a.txt, content: hi}", 1, ""),
    ] {
        home.write_project("plan.yaml", &tree(last))?;
        let ended = run("vancetope", &home, &["--brain", &brain.url, "--skill-one-shot", "plan.yaml"]).await?;
        assert_eq!((ended.code, ended.stdout.as_str()), (code, stdout), "{last}: {}", ended.stderr);
        assert!(ended.stderr.contains("first: completed"), "{}", ended.stderr);
    }
    let missing = run("vancetope", &home, &["--brain", &brain.url, "--skill-one-shot", "none.yaml"]).await?;
    assert_eq!(missing.code, 2, "{}", missing.stderr);
    Ok(())
}
