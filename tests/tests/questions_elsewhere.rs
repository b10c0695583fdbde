//! A tool's server asks, and its question is shown to the other clients of the session: at a prompt, on the wire, over the API.
#![allow(missing_docs, unreachable_pub, dead_code, clippy::unwrap_used)]

use anyhow::Context as _;
use serde_json::{Value, json};
use vance_tests::api::{Api, Tree};
use vance_tests::home::Home;
use vance_tests::process::{Brain, Process, foot, program, run};
use vance_tests::proxy::{Line, Proxy};
use vance_tests::socket::Socket;
use vance_tests::toy::Toy;
use vance_tests::wait::until;

// One terminal for all who sit at one; what it shows is read with vt100.
#[path = "../../foot/tests/command_line/terminal.rs"]
mod terminal;
use terminal::Terminal;

/// A Brain, a Foot that nobody sits at whose pack asks, and another home for whoever sits at a prompt.
struct Place {
    home: Home,
    desk: Home,
    toy: Toy,
    brain: Brain,
    api: Api,
    foot: Process,
}

impl Place {
    async fn new() -> anyhow::Result<Self> {
        let (home, desk) = (Home::new()?, Home::new()?);
        let toy = Toy::new(&home)?;
        toy.for_foot(&home)?;
        toy.for_brain(&home, "srv", &[])?;
        let brain = Brain::start(&home).await?;
        let api = Api::new(&home, &brain.url)?;
        let foot = foot(&home, &brain.url, &["--name", "office"]).await?;
        api.until_available("default.local", "toy__ask").await?;
        Ok(Self { home, desk, toy, brain, api, foot })
    }

    /// Somebody sits down at a prompt.
    fn prompt(&self, url: &str) -> anyhow::Result<Terminal> {
        // The test is the person who starts the program from a shell.
        #[allow(clippy::disallowed_methods)]
        let mut command = std::process::Command::new(program("vancetope")?);
        command.args(["--brain", url, "--name", "desk"]).current_dir(self.desk.project());
        command.env_remove("VANCE_BRAIN").env("VANCE_TOKEN", self.api.token()).env("VANCE_HOME", self.desk.path());
        command.env("TERM", "xterm").env("NO_COLOR", "1");
        let terminal = Terminal::start(command);
        // What is open already may be asked before that is said.
        let is_up = |raw: &str| raw.contains("connected to the Brain at") || raw.contains("waits for an answer");
        terminal.until("the Brain", |_| is_up(&terminal.raw()));
        Ok(terminal)
    }

    /// A client of the session that is written frame by frame.
    async fn client(&self, name: &str) -> anyhow::Result<Socket> {
        let hello = json!({"type": "client_connected", "client_type": "test", "client_id": format!("foot_{name}"), "available_tools": []});
        Ok(Socket::hello(self.brain.addr(), self.api.token(), &hello).await?.0)
    }

    /// Submits one task `a` and waits until it waits for an answer.
    async fn asking(&self, tool: &str, step: &str) -> anyhow::Result<Tree> {
        let yaml = format!("tasks:\n- {{id: a, steps: [{{call: {tool}, with: {{name: {step}}}, as: r}}]}}\n");
        let tree = self.api.submit(&yaml).await?;
        until("a question", || async {
            let Ok(task) = tree.task("a").await else { return Ok(None) };
            Ok(task["question"].is_object().then_some(()))
        })
        .await?;
        Ok(tree)
    }

    /// What the server got for a step.
    fn answers(&self, step: &str) -> anyhow::Result<Vec<Value>> {
        let text = std::fs::read_to_string(self.toy.file())?;
        let begin = format!("answer {step} ");
        text.lines().filter_map(|line| line.strip_prefix(&begin)).map(|line| Ok(serde_json::from_str(line)?)).collect()
    }

    async fn questions(&self) -> anyhow::Result<Vec<Value>> {
        let (status, body) = self.api.get("/api/v1/questions").await?;
        anyhow::ensure!(status == 200, "{status} {body}");
        Ok(body["questions"].as_array().cloned().unwrap_or_default())
    }

    async fn open_question(&self) -> anyhow::Result<Value> {
        until("an open question", || async { Ok(self.questions().await?.into_iter().next()) }).await
    }
}

fn accept(colour: &str, count: i64) -> Value {
    json!({"action": "accept", "content": {"colour": colour, "count": count}})
}

fn heard(colour: &str, count: i64) -> Value {
    json!({"action": "accept", "content": {"colour": colour, "count": count, "note": "none"}})
}

/// The frame with which a client answers.
fn reply(shown: &Value, answer: &Value) -> Value {
    let mut frame = answer.clone();
    for (key, value) in
        [("type", &json!("elicit_reply")), ("call_id", &shown["call_id"]), ("question_id", &shown["question_id"])]
    {
        frame[key] = value.clone();
    }
    frame
}

/// Types an answer field by field.
fn fills_in(terminal: &mut Terminal, colour: &str, count: &str) {
    terminal.shows("[1] answer  [2] decline \u{203a}");
    terminal.types("1\n");
    for (field, value) in [("colour (text, required)", colour), ("count (whole number", count), ("note (text", "")] {
        terminal.shows(field);
        terminal.types(&format!("{value}\n"));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn it_is_answered_at_the_prompt_of_another_client() -> anyhow::Result<()> {
    let place = Place::new().await?;
    let mut terminal = place.prompt(&place.brain.url)?;
    for (tool, step, at) in [("toy__ask", "one", "on '"), ("srv__ask", "two", "at the Brain asks")] {
        let tree = place.asking(tool, step).await?;
        terminal.shows("waits for an answer: the server of");
        terminal.until("who asks", |_| terminal.raw().contains(&format!("of '{tool}' {at}")));
        terminal.shows(&format!("What about {step}?"));
        fills_in(&mut terminal, "red", "3");
        let done = tree.until("a", "completed").await?;
        assert_eq!((place.answers(step)?, place.toy.begun_of(step)?), (vec![heard("red", 3)], 1));
        assert_eq!(done["answered"]["by"], "local", "{done}");
        terminal.types("/tasks\r");
        terminal.shows("completed");
        terminal.types("\u{c}");
    }
    assert!(place.questions().await?.is_empty());
    let tree = place.asking("toy__ask", "three").await?;
    terminal.shows("What about three?");
    terminal.shows("[1] answer  [2] decline \u{203a}");
    terminal.types("2\n");
    tree.until("a", "completed").await?;
    assert_eq!(place.answers("three")?, [json!({"action": "decline"})]);
    // No client is expected in an autonomous session, so its owner's others are asked.
    let yaml = "mode: autonomous\ntasks:\n- {id: a, steps: [{call: srv__ask, with: {name: night}}]}\n";
    let tree = place.api.submit(yaml).await?;
    terminal.shows("What about night?");
    fills_in(&mut terminal, "blue", "1");
    tree.until("a", "completed").await?;
    assert_eq!(place.answers("night")?, [heard("blue", 1)]);
    assert!(!place.foot.log().contains("elicit"), "nobody sits there: {}", place.foot.log());
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn who_comes_later_is_asked_and_what_is_left_or_answered_elsewhere_is_said() -> anyhow::Result<()> {
    let place = Place::new().await?;
    let tree = place.asking("toy__ask", "one").await?;
    let mut terminal = place.prompt(&place.brain.url)?;
    terminal.shows("What about one?");
    // Anything but a choice leaves it open.
    terminal.types("x\n");
    terminal.until("left", |_| terminal.raw().contains("it stays open; answer it with `tasks answer task_"));
    assert!(tree.task("a").await?["question"].is_object());
    assert!(place.answers("one")?.is_empty());
    assert_eq!(tree.post("a", "answer", &accept("red", 1)).await?.0, 200);
    tree.until("a", "completed").await?;

    let tree = place.asking("toy__ask", "two").await?;
    terminal.shows("What about two?");
    terminal.shows("[1] answer  [2] decline \u{203a}");
    assert_eq!(tree.post("a", "answer", &accept("blue", 2)).await?.0, 200);
    terminal
        .until("taken back", |_| terminal.raw().contains("local has answered it elsewhere: nothing is answered here"));
    tree.until("a", "completed").await?;
    assert_eq!(place.answers("two")?, [heard("blue", 2)]);

    // Whoever goes away with a question leaves it open.
    let tree = place.asking("toy__ask", "three").await?;
    terminal.shows("What about three?");
    drop(terminal);
    let mut again = place.prompt(&place.brain.url)?;
    again.shows("What about three?");
    fills_in(&mut again, "green", "7");
    tree.until("a", "completed").await?;
    assert_eq!(place.answers("three")?, [heard("green", 7)]);
    // A cancel takes it back.
    let tree = place.asking("toy__ask", "four").await?;
    again.shows("What about four?");
    assert_eq!(tree.post("a", "cancel", &json!({})).await?.0, 200);
    again.until("taken back", |_| again.raw().contains("its server does not wait any more: nothing is answered here"));
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn of_two_who_answer_at_once_one_counts_and_the_other_hears_it() -> anyhow::Result<()> {
    let place = Place::new().await?;
    let (mut one, mut two) = (place.client("one").await?, place.client("two").await?);
    for n in 0..6_i64 {
        let step = format!("step{n}");
        let tree = place.asking("toy__ask", &step).await?;
        let (first, second) = (one.next("elicit").await?, two.next("elicit").await?);
        assert_eq!(
            (&first["question_id"], &first["message"]),
            (&second["question_id"], &json!(format!("What about {step}?")))
        );
        assert_eq!(first["tool"], "toy__ask", "{first}");
        assert_eq!(first["task_id"], json!(tree.task_id("a")?), "{first}");
        // Two clients, later one of them and the API.
        let (a, b) = (reply(&first, &accept("red", 10 + n)), reply(&second, &accept("blue", 20 + n)));
        if n < 3 {
            let sent = tokio::join!(one.send(&a), two.send(&b));
            sent.0?;
            sent.1?;
        } else {
            let body = accept("blue", 20 + n);
            let (sent, said) = tokio::join!(one.send(&a), tree.post("a", "answer", &body));
            sent?;
            let (status, body) = said?;
            assert!(status == 200 || body["error"]["code"] == "answered", "{status} {body}");
        }
        tree.until("a", "completed").await?;
        let got = place.answers(&step)?;
        assert_eq!(got.len(), 1, "{got:?}");
        let is_red = got[0]["content"]["colour"] == "red";
        // Who was too late hears who was first, beside the end that all hear.
        for (socket, is_refused) in [(&mut one, !is_red), (&mut two, is_red && n < 3)] {
            let (mut over, mut refused) = (None, None);
            while over.is_none() || (is_refused && refused.is_none()) {
                let frame = socket.any().await?;
                match frame["type"].as_str() {
                    Some("elicit_end") => over = Some(frame),
                    Some("error") => refused = Some(frame),
                    _ => {}
                }
            }
            let over = over.context("an end")?;
            assert_eq!((&over["how"], &over["by"]), (&json!("answered"), &json!("local")), "{over}");
            if let Some(refused) = refused {
                assert_eq!((&refused["code"], &refused["id"]), (&json!("answered"), &over["question_id"]), "{refused}");
            }
        }
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_on_its_way_when_the_brain_is_killed_counts_once_or_is_asked_for_again() -> anyhow::Result<()> {
    let mut place = Place::new().await?;
    for n in 1..=3_i64 {
        let step = format!("step{n}");
        let tree = place.asking("toy__ask", &step).await?;
        let mut client = place.client("one").await?;
        let shown = client.next("elicit").await?;
        client.send(&reply(&shown, &accept("red", n))).await?;
        if n > 1 {
            tokio::task::yield_now().await;
        }
        place.brain.kill9_and_restart(&place.home).await?;
        let mut client = place.client("one").await?;
        // Shown again if it is not stored; the same answer again, as a client says it until it hears the end.
        let state = until("asked again or over", || async {
            let Ok(task) = tree.task("a").await else { return Ok(None) };
            Ok((task["question"].is_object() || task["answered"].is_object()).then_some(task))
        })
        .await?;
        if state["question"].is_object() {
            let again = client.next("elicit").await?;
            assert_eq!(again["question_id"], shown["question_id"]);
            client.send(&reply(&again, &accept("red", n))).await?;
            let end = client.any().await?;
            assert_eq!((&end["type"], &end["how"]), (&json!("elicit_end"), &json!("answered")), "{end}");
        }
        tree.until("a", "completed").await?;
        assert_eq!((place.answers(&step)?, place.toy.begun_of(&step)?), (vec![heard("red", n)], 1));
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cut_line_takes_the_prompt_back_and_asks_again() -> anyhow::Result<()> {
    let mut place = Place::new().await?;
    let proxy = Proxy::before(place.brain.addr()).await?;
    let mut terminal = place.prompt(&proxy.url)?;
    let tree = place.asking("toy__ask", "one").await?;
    terminal.shows("What about one?");
    terminal.shows("[1] answer  [2] decline \u{203a}");
    proxy.set(Line::Cut);
    terminal.until("taken back", |_| terminal.raw().contains("the line to the Brain is cut"));
    // Also over a restart: it is in the store.
    place.brain.kill9_and_restart(&place.home).await?;
    proxy.set(Line::Open);
    terminal.until("asked again", |_| terminal.raw().matches("[1] answer  [2] decline").count() == 2);
    terminal.types("1\n");
    for (field, value) in [("colour (text, required)", "red"), ("count (whole number", "5"), ("note (text", "")] {
        terminal.shows(field);
        terminal.types(&format!("{value}\n"));
    }
    tree.until("a", "completed").await?;
    assert_eq!(place.answers("one")?, [heard("red", 5)]);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn another_principal_neither_sees_nor_answers_it() -> anyhow::Result<()> {
    let place = Place::new().await?;
    let made = run("vance-brain", &place.home, &["token", "new", "--name", "eve"]).await?;
    anyhow::ensure!(made.code == 0, "{}", made.stderr);
    let token = made.stdout.trim().to_owned();
    let eve = place.api.with_token(&token);
    until("the token is known", || async { Ok((eve.get("/api/v1/sessions").await?.0 == 200).then_some(())) }).await?;
    let hello =
        json!({"type": "client_connected", "client_type": "test", "client_id": "foot_eve", "available_tools": []});
    let (mut socket, _) = Socket::hello(place.brain.addr(), &token, &hello).await?;
    let tree = place.asking("toy__ask", "one").await?;
    let question = place.open_question().await?;
    let id = question["id"].as_str().context("id")?;
    assert_eq!(eve.get("/api/v1/questions").await?.1["questions"], json!([]));
    let (status, body) = eve.post(&format!("/api/v1/questions/{id}/answer"), &accept("red", 1)).await?;
    assert_eq!((status, body["error"]["code"].as_str()), (404, Some("question_not_found")), "{body}");
    let shown = json!({"call_id": question["call_id"], "question_id": id});
    socket.send(&reply(&shown, &accept("red", 1))).await?;
    let over = socket.any().await?;
    assert_eq!(
        (&over["type"], &over["how"]),
        (&json!("elicit_end"), &json!("withdrawn")),
        "and nothing before it: {over}"
    );
    assert_eq!(over["by"], Value::Null);
    assert!(tree.task("a").await?["question"].is_object());
    // Nor does the client that asks itself, which has a frame of its own for what its person says.
    let (status, body) = place.api.post(&format!("/api/v1/questions/{id}/answer"), &accept("red", 2)).await?;
    assert_eq!((status, &body["task"]["question"]), (200, &Value::Null), "{body}");
    tree.until("a", "completed").await?;
    assert_eq!(place.answers("one")?, [heard("red", 2)]);
    let (status, body) = place.api.post(&format!("/api/v1/questions/{id}/answer"), &accept("red", 3)).await?;
    assert_eq!((status, body["error"]["code"].as_str()), (409, Some("answered")), "{body}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_without_a_task_waits_for_its_answer_if_it_says_so() -> anyhow::Result<()> {
    let place = Place::new().await?;
    let mut terminal = place.prompt(&place.brain.url)?;
    for (n, (tool, body)) in [("toy__ask", "durable"), ("srv__ask", "ask")].into_iter().enumerate() {
        let step = format!("step{n}");
        let api = place.api.clone();
        let request = json!({"arguments": {"name": step}, body: true});
        let call = tokio::spawn(async move { api.call(tool, &request).await });
        let question = place.open_question().await?;
        assert_eq!((&question["tool"], &question["task_id"]), (&json!(tool), &Value::Null), "{question}");
        terminal.shows("A call waits for an answer: the server of");
        terminal.shows(&format!("What about {step}?"));
        let id = question["id"].as_str().context("id")?;
        let path = format!("/api/v1/questions/{id}/answer");
        let (status, wrong) = place.api.post(&path, &json!({"action": "accept"})).await?;
        assert_eq!((status, wrong["error"]["code"].as_str()), (422, Some("invalid_answer")), "{wrong}");
        let url = &place.brain.url;
        let args = ["tasks", "--brain", url, "answer", id, "colour=red", "count=4"];
        let said = run("vancetope", &place.home, &args).await?;
        assert_eq!(said.code, 0, "{}", said.stderr);
        let (status, body) = call.await??;
        assert_eq!((status, body["call"]["outcome"].as_str()), (200, Some("done")), "{body}");
        assert_eq!(body["call"]["declined_questions"], Value::Null, "{body}");
        assert_eq!(place.answers(&step)?, [heard("red", 4)]);
        terminal.until("taken back", |_| terminal.raw().matches("local has answered it elsewhere").count() == n + 1);
        // Late: the same is taken, another is not.
        let said = json!({"action": "accept", "content": {"colour": "red", "count": 4, "note": "none"}});
        assert_eq!(place.api.post(&path, &said).await?.0, 200);
        let (status, late) = place.api.post(&path, &json!({"action": "decline"})).await?;
        assert_eq!((status, late["error"]["code"].as_str()), (409, Some("answered")), "{late}");
    }
    // At the prompt.
    let api = place.api.clone();
    let call =
        tokio::spawn(async move { api.call("toy__ask", &json!({"arguments": {"name": "typed"}, "ask": true})).await });
    terminal.shows("What about typed?");
    fills_in(&mut terminal, "blue", "9");
    assert_eq!(call.await??.1["call"]["outcome"], "done");
    assert_eq!(place.answers("typed")?, [heard("blue", 9)]);
    for tool in ["toy__ask", "srv__ask"] {
        let (_, body) = place.api.call(tool, &json!({"arguments": {"name": tool}})).await?;
        assert_eq!(
            (&body["call"]["outcome"], &body["call"]["declined_questions"]),
            (&json!("done"), &json!(1)),
            "{body}"
        );
        assert_eq!(place.answers(tool)?, [json!({"action": "decline"})]);
    }
    // A caller who goes away takes the question along.
    let api = place.api.clone();
    let call =
        tokio::spawn(async move { api.call("toy__ask", &json!({"arguments": {"name": "gone"}, "ask": true})).await });
    place.open_question().await?;
    call.abort();
    until("no question", || async { Ok(place.questions().await?.is_empty().then_some(())) }).await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn whoever_calls_through_the_brain_at_a_terminal_is_asked_there() -> anyhow::Result<()> {
    let place = Place::new().await?;
    let call = |terminal: bool| -> anyhow::Result<std::process::Command> {
        // The test is the person who starts the program from a shell.
        #[allow(clippy::disallowed_methods)]
        let mut command = std::process::Command::new(program("vancetope")?);
        let arguments = if terminal { r#"{"name": "typed"}"# } else { r#"{"name": "piped"}"# };
        command.args(["tools", "call", "toy__ask", arguments, "--via-brain", "--brain", &place.brain.url]);
        command
            .current_dir(place.desk.project())
            .env("VANCE_TOKEN", place.api.token())
            .env("VANCE_HOME", place.desk.path());
        command.env_remove("VANCE_BRAIN").env("TERM", "xterm").env("NO_COLOR", "1");
        Ok(command)
    };
    let mut terminal = Terminal::start(call(true)?);
    terminal.shows("The server of 'toy__ask' asks");
    fills_in(&mut terminal, "red", "8");
    let (exit, rows) = terminal.leaves();
    assert_eq!(exit, 0, "{rows:#?}");
    assert_eq!(place.answers("typed")?, [heard("red", 8)]);
    // Answered elsewhere: the prompt does not hold up the call.
    let terminal = Terminal::start(call(true)?);
    terminal.shows("The server of 'toy__ask' asks");
    terminal.shows("[1] answer  [2] decline \u{203a}");
    let id = place.open_question().await?["id"].as_str().context("id")?.to_owned();
    assert_eq!(place.api.post(&format!("/api/v1/questions/{id}/answer"), &accept("blue", 4)).await?.0, 200);
    let (exit, rows) = terminal.leaves();
    assert!(exit == 0 && rows.iter().any(|row| row.contains("heard {")), "{rows:#?}");
    assert_eq!(place.answers("typed")?, [heard("red", 8), heard("blue", 4)]);
    let mut piped = call(false)?;
    piped.stdin(std::process::Stdio::null());
    #[allow(clippy::disallowed_methods)]
    let piped = tokio::task::spawn_blocking(move || piped.output()).await??;
    let said = String::from_utf8_lossy(&piped.stderr);
    assert!(piped.status.success() && said.contains("1 question(s) of its server were declined"), "{said}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn whoever_follows_a_run_in_a_terminal_is_asked_what_another_clients_tool_wants_to_know() -> anyhow::Result<()> {
    let place = Place::new().await?;
    let yaml = "tasks:\n- {id: a, steps: [{call: toy__ask, with: {name: run}, as: r}]}\n";
    place.desk.write_project("plan.yaml", yaml)?;
    // The test is the person who starts the program from a shell.
    #[allow(clippy::disallowed_methods)]
    let mut command = std::process::Command::new(program("vancetope")?);
    command.args(["run", "plan.yaml", "--brain", &place.brain.url]).current_dir(place.desk.project());
    command.env("VANCE_TOKEN", place.api.token()).env("VANCE_HOME", place.desk.path());
    command.env_remove("VANCE_BRAIN").env("TERM", "xterm").env("NO_COLOR", "1");
    let mut terminal = Terminal::start(command);
    terminal.shows("What about run?");
    fills_in(&mut terminal, "red", "6");
    let (exit, rows) = terminal.leaves();
    assert_eq!(exit, 0, "{rows:#?}");
    assert_eq!(place.answers("run")?, [heard("red", 6)]);
    Ok(())
}
