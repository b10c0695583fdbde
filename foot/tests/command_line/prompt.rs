//! The prompt, with the real program on a terminal. The Brain speaks just the API, so the Foot stays without a line to it.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::{Command, Stdio};

use nix::sys::signal::Signal;

use crate::fake_brain::{FakeBrain, TOKEN};
use crate::terminal::Terminal;

const CTRL_C: &str = "\u{3}";
const CTRL_D: &str = "\u{4}";
const UP: &str = "\u{1b}[A";

/// The program in a home of its own, with `project` as working directory.
pub fn program(home: &Path, words: &[&str]) -> Command {
    // The test is the person who starts the program from a shell.
    #[allow(clippy::disallowed_methods)]
    let mut command = Command::new(env!("CARGO_BIN_EXE_vancetope"));
    command.args(words).current_dir(home.join("project")).env_clear().env("PATH", std::env::var_os("PATH").unwrap());
    command
        .env("HOME", home)
        .env("VANCE_HOME", home.join("vance"))
        .env("TERM", "xterm")
        .env("NO_COLOR", "1")
        .env("VANCE_TOKEN", TOKEN);
    command
}

pub fn home() -> tempfile::TempDir {
    let home = tempfile::tempdir().unwrap();
    std::fs::create_dir(home.path().join("project")).unwrap();
    home
}

/// The program at its prompt, with its first words said.
pub fn at_prompt(home: &Path, brain: &FakeBrain, words: &[&str]) -> Terminal {
    let url = brain.url();
    let mut all = vec!["--brain", url.as_str()];
    all.extend_from_slice(words);
    let terminal = Terminal::start(program(home, &all));
    terminal.shows("loaded ");
    terminal.shows("no line to the Brain");
    terminal.shows("| 12 tools");
    terminal.ends_with("\u{203a}");
    terminal
}

/// A pack whose server gives up once there is a file `go` in the home: a log line at a moment of the test's choice.
fn slow_pack(home: &Path) {
    let folder = home.join("vance/foot-tools");
    std::fs::create_dir_all(&folder).unwrap();
    let script = format!("while ! test -e {}/go; do sleep 0.02; done; exit 3", home.display());
    let pack = serde_json::json!({
        "name": "slow", "type": "mcp_server",
        "parameters": {"transport": "stdio", "command": ["sh", "-c", script], "restart": {"maxRestarts": 0, "windowSeconds": 1}},
    });
    std::fs::write(folder.join("slow.json"), pack.to_string()).unwrap();
}

fn statuses(rows: &[String]) -> usize {
    rows.iter().filter(|row| row.contains("| 12 tools")).count()
}

#[test]
fn commands_answer_and_a_goal_is_not_submitted() {
    let (home, brain) = (home(), FakeBrain::start());
    brain.has_tasks(&["a running", "b blocked"]);
    let mut terminal = at_prompt(home.path(), &brain, &[]);
    assert_eq!(statuses(&terminal.rows()), 1, "{:?}", terminal.rows());
    for (line, said) in [
        ("/tolls", "there is no command '/tolls', did you mean `/tools`?"),
        ("/xyzzyplugh", "/help lists them"),
        ("/tools read_local_file", "\"path\""),
        ("/tools read_local_fil", "has no tool read_local_fil"),
        ("/tasks", "task_b"),
        ("/tasks show task_a", "tree:    tree_1"),
        ("/tasks dance", "unrecognized subcommand 'dance'"),
        ("/packs", "no packs"),
        ("/connect", "connecting"),
        ("/session", "not attached to a session"),
        ("/run missing.yaml", "missing.yaml: "),
        ("/run -", "expected a file"),
        ("/tools call list_local_files", "entries"),
        ("tidy the kitchen", "no engine is configured"),
        ("/help", "submit a task tree"),
    ] {
        terminal.types(&format!("{line}\r"));
        terminal.shows(said);
        terminal.ends_with("\u{203a}");
    }
    assert!(brain.seen("POST").is_empty(), "a goal was submitted");
    terminal.types("/quit\r");
    assert_eq!(terminal.leaves().0, 0);
}

#[test]
fn reload_starts_what_is_new_and_says_what_became_of_it() {
    let (home, brain) = (home(), FakeBrain::start());
    let mut terminal = at_prompt(home.path(), &brain, &[]);
    std::fs::write(home.path().join("go"), "").unwrap();
    slow_pack(home.path());
    terminal.types("/tools reload\r");
    terminal.shows("pack 'slow' has failed");
    terminal.shows("loaded 0 pack(s) \u{2192} 0 tool(s); 0 skipped, 1 failed");
    terminal.ends_with("\u{203a}");
    terminal.types("/packs\r");
    terminal.shows("it ended with exit code 3");
    terminal.ends_with("\u{203a}");
    std::fs::remove_file(home.path().join("vance/foot-tools/slow.json")).unwrap();
    terminal.types("/tools-reload\r");
    terminal.shows("loaded 0 pack(s) \u{2192} 0 tool(s); 0 skipped, 0 failed");
}

#[test]
fn a_pack_of_the_project_is_asked_about_before_the_prompt_and_by_a_reload() {
    let (home, brain) = (home(), FakeBrain::start());
    let folder = home.path().join("project/.vancetope/foot-tools");
    std::fs::create_dir_all(&folder).unwrap();
    let pack = |name: &str| {
        let parameters = serde_json::json!({"transport": "stdio", "command": ["sh", "-c", "exit 3"]});
        serde_json::json!({"name": name, "type": "mcp_server", "parameters": parameters}).to_string()
    };
    std::fs::write(folder.join("shipped.json"), pack("shipped")).unwrap();
    let url = brain.url();
    let mut terminal = Terminal::start(program(home.path(), &["--brain", &url]));
    terminal.shows("wants to run: sh -c 'exit 3'");
    terminal.shows("[3] no \u{203a}");
    terminal.types("3\n");
    terminal.shows("loaded 0 pack(s) \u{2192} 0 tool(s); 1 skipped, 0 failed");
    terminal.ends_with("\u{203a}");
    // A changed file is told, and taken up by nobody but the person.
    std::fs::write(folder.join("second.json"), pack("second")).unwrap();
    terminal.types("half");
    terminal.shows("packs changed: ");
    terminal.ends_with("\u{203a} half");
    terminal.types(CTRL_C);
    terminal.ends_with("\u{203a}");
    terminal.types("/tools reload\r");
    for (questions, answer) in [(2, "3\n"), (3, "1\n")] {
        terminal.until("a question", |rows| {
            let asked = rows.iter().filter(|row| row.starts_with("Load it?")).count();
            asked == questions && rows.last().is_some_and(|row| row.ends_with("[3] no \u{203a}"))
        });
        terminal.types(answer);
    }
    terminal.shows("loaded 0 pack(s) \u{2192} 0 tool(s); 1 skipped, 1 failed");
    terminal.ends_with("\u{203a}");
    terminal.types("/quit\r");
    assert_eq!(terminal.leaves().0, 0);
}

#[test]
fn tab_completes_commands_tools_and_files() {
    let (home, brain) = (home(), FakeBrain::start());
    for file in ["plan.yaml", "two words.yaml"] {
        std::fs::write(home.path().join("project").join(file), "tasks: [").unwrap();
    }
    let mut terminal = at_prompt(home.path(), &brain, &[]);
    for (typed, completed) in [
        ("/he\t", "\u{203a} /help"),
        ("/tools read_l\t", "\u{203a} /tools read_local_file"),
        ("/run pl\t", "\u{203a} /run plan.yaml"),
        ("/run tw\t", "\u{203a} /run 'two words.yaml'"),
        ("look with git_s\t", "\u{203a} look with git_status"),
    ] {
        terminal.types(typed);
        terminal.ends_with(completed);
        terminal.types(CTRL_C);
        terminal.ends_with("\u{203a}");
    }
}

#[test]
fn typed_lines_are_kept_over_restarts_for_nobody_else_to_read() {
    let (home, brain) = (home(), FakeBrain::start());
    let mut terminal = at_prompt(home.path(), &brain, &[]);
    for line in ["/connect", " a secret", "a goal"] {
        terminal.types(&format!("{line}\r"));
        terminal.until(line, |rows| rows.iter().any(|row| *row == format!("\u{203a} {line}")));
        terminal.ends_with("\u{203a}");
    }
    terminal.signal(Signal::SIGKILL);
    drop(terminal);
    let mut terminal = at_prompt(home.path(), &brain, &[]);
    terminal.types(UP);
    terminal.ends_with("\u{203a} a goal");
    terminal.types(UP);
    terminal.ends_with("\u{203a} /connect");
    let kept = home.path().join("vance/state/history");
    assert_eq!(std::fs::metadata(&kept).unwrap().permissions().mode() & 0o777, 0o600);
    assert_eq!(std::fs::read_to_string(&kept).unwrap(), "/connect\na goal\n");
}

#[test]
fn a_log_line_in_the_middle_of_typing_appears_above_and_keeps_what_is_typed() {
    let long =
        "a goal that is longer than the terminal is wide, so that it takes two rows and a few words of the third "
            .repeat(2);
    for (typed, back) in [("half a li", 0), (long.as_str(), 0), (long.as_str(), 150), ("", 0)] {
        let (home, brain) = (home(), FakeBrain::start());
        slow_pack(home.path());
        let url = brain.url();
        let mut terminal = Terminal::start(program(home.path(), &["--brain", &url]));
        terminal.ends_with("\u{203a}");
        terminal.shows("no line to the Brain");
        terminal.types(typed);
        terminal.types(&"\u{1b}[D".repeat(back));
        let shown = format!("\u{203a} {typed}").trim_end().to_owned();
        let is_typed = |rows: &[String]| joined(rows).ends_with(&shown);
        terminal.until("what was typed", is_typed);
        let before = terminal.rows();
        std::fs::write(home.path().join("go"), "").unwrap();
        terminal.shows("pack 'slow' has failed");
        terminal.shows("loaded 0 pack(s)");
        terminal.until("what was typed", is_typed);
        let rows = terminal.rows();
        assert_eq!(statuses(&rows), 1, "{rows:#?}");
        // Nothing above was painted over.
        let kept = before.iter().position(|row| row.contains("| 12 tools")).unwrap();
        assert_eq!(rows[..kept], before[..kept], "{rows:#?}");
        if !typed.is_empty() {
            terminal.types(CTRL_C);
            terminal.ends_with("\u{203a}");
        }
        terminal.types(CTRL_D);
        assert_eq!(terminal.leaves().0, 0, "{typed:?}");
    }
}

/// Rows as one text: a row that is full goes on in the next one.
fn joined(rows: &[String]) -> String {
    rows.iter().map(|row| format!("{row:<80}")).collect::<String>().trim_end().to_owned()
}

#[test]
fn a_question_takes_the_terminal_and_gives_it_back_with_what_was_typed() {
    let (home, brain) = (home(), FakeBrain::start());
    let mut terminal = at_prompt(home.path(), &brain, &["--rest-api"]);
    let raw = terminal.raw();
    let address = raw.split("rest api http://").nth(1).unwrap().split_whitespace().next().unwrap().to_owned();
    let token = std::fs::read_to_string(home.path().join("vance/state/rest-api.token")).unwrap();
    terminal.types("half a goal\u{1b}[D\u{1b}[D");
    terminal.ends_with("\u{203a} half a goal");
    let asked = std::thread::spawn(move || {
        post(
            &address,
            token.trim(),
            "/tools/write_local_file/call",
            r#"{"arguments": {"path": "a.txt", "content": "hi"}}"#,
        )
    });
    terminal.shows("[3] no \u{203a}");
    terminal.shows("Tool 'write_local_file' needs your yes");
    assert_eq!(statuses(&terminal.rows()), 0, "the prompt is away: {:#?}", terminal.rows());
    terminal.types("1\n");
    terminal.ends_with("\u{203a} half a goal");
    let answer = asked.join().unwrap();
    assert!(answer.starts_with("HTTP/1.1 200") && answer.contains("\"outcome\":\"done\""), "{answer}");
    assert!(home.path().join("project/a.txt").exists());
    assert!(terminal.rows().iter().any(|row| row.contains("[3] no \u{203a} 1")), "{:#?}", terminal.rows());
    // The cursor is where it was.
    terminal.types("x");
    terminal.ends_with("\u{203a} half a goxal");
}

fn post(address: &str, token: &str, path: &str, body: &str) -> String {
    let mut line = TcpStream::connect(address).unwrap();
    let request = format!(
        "POST {path} HTTP/1.1\r\nHost: {address}\r\nAuthorization: Bearer {token}\r\nContent-Type: application/json\r\n\
         Content-Length: {}\r\nConnection: close\r\n\r\n{body}",
        body.len()
    );
    line.write_all(request.as_bytes()).unwrap();
    let mut answer = String::new();
    line.read_to_string(&mut answer).unwrap();
    answer
}

#[test]
fn ctrl_c_drops_the_line_and_twice_leaves_as_ctrl_d_and_sigterm_do() {
    let (home, brain) = (home(), FakeBrain::start());
    let mut terminal = at_prompt(home.path(), &brain, &[]);
    assert!(!terminal.is_as_before());
    terminal.types(&format!("half{CTRL_D}"));
    terminal.ends_with("\u{203a} half");
    terminal.types(CTRL_C);
    terminal.ends_with("\u{203a}");
    terminal.types(CTRL_C);
    terminal.shows("Ctrl-C again leaves");
    terminal.ends_with("\u{203a}");
    terminal.types("/connect\r");
    terminal.shows("connecting");
    terminal.ends_with("\u{203a}");
    terminal.types(CTRL_C);
    terminal.until("another word", |rows| rows.iter().filter(|row| row.contains("Ctrl-C again leaves")).count() == 2);
    terminal.ends_with("\u{203a}");
    terminal.types(CTRL_C);
    assert_eq!(terminal.leaves().0, 0);
    let mut terminal = at_prompt(home.path(), &brain, &[]);
    terminal.types(CTRL_D);
    assert_eq!(terminal.leaves().0, 0);
    let mut terminal = at_prompt(home.path(), &brain, &[]);
    terminal.types("half");
    terminal.ends_with("\u{203a} half");
    terminal.signal(Signal::SIGTERM);
    terminal.until("the terminal as it was", |_| terminal.is_as_before());
    let (exit, rows) = terminal.leaves();
    assert!(exit == 0 && statuses(&rows) == 0, "{exit}: {rows:#?}");
}

#[test]
fn another_size_keeps_what_is_typed() {
    let (home, brain) = (home(), FakeBrain::start());
    let mut terminal = at_prompt(home.path(), &brain, &[]);
    terminal.types("a goal of some words that fits into one row of eighty");
    terminal.ends_with("\u{203a} a goal of some words that fits into one row of eighty");
    terminal.resize(24, 40);
    terminal.until("two rows", |rows| {
        rows.concat().ends_with("\u{203a} a goal of some words that fits into one row of eighty")
    });
    terminal.resize(24, 100);
    terminal.until("one row", |rows| {
        rows.last().is_some_and(|row| row.ends_with("\u{203a} a goal of some words that fits into one row of eighty"))
    });
    terminal.types("\r");
    terminal.shows("no engine is configured");
    terminal.types("/quit\r");
    assert_eq!(terminal.leaves().0, 0);
}

#[test]
fn a_terminal_that_can_only_print_gets_plain_lines() {
    let (home, brain) = (home(), FakeBrain::start());
    let url = brain.url();
    let mut command = program(home.path(), &["--brain", &url]);
    command.env("TERM", "dumb");
    let mut terminal = Terminal::start(command);
    terminal.shows("loaded 0 pack(s)");
    terminal.types("/connect\r");
    terminal.shows("connecting");
    terminal.types("/tools call write_local_file '{\"path\": \"a.txt\", \"content\": \"hi\"}'\r");
    terminal.shows("nobody can be asked here");
    terminal.types("/help\r");
    terminal.shows("submit a task tree");
    assert!(!terminal.raw().contains('\u{1b}'), "{:?}", terminal.raw());
    terminal.types(CTRL_D);
    assert_eq!(terminal.leaves().0, 0);
    assert!(!home.path().join("project/a.txt").exists());
}

#[test]
fn without_a_terminal_it_says_what_works_instead() {
    let (home, brain) = (home(), FakeBrain::start());
    let url = brain.url();
    let mut command = program(home.path(), &["--brain", &url]);
    let ended = command.stdin(Stdio::null()).output().unwrap();
    let said = String::from_utf8_lossy(&ended.stderr).into_owned();
    assert_eq!(ended.status.code(), Some(2), "{said}");
    assert!(said.contains("needs a terminal") && said.contains("--no-ui") && said.contains("--daemon"), "{said}");
}
