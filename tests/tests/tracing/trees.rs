//! What the collector has of a task tree, of a direct call, and of a call whose line was cut.

use anyhow::Context as _;
use serde_json::{Value, json};
use vance_tests::api::Api;
use vance_tests::home::Home;
use vance_tests::process::{Brain, Process};
use vance_tests::proxy::{Line, Proxy};
use vance_tests::wait::until;

use super::collector::{Collector, Span, Trace};
use super::teller::Teller;

const SESSION: &str = "default.local";
const CALLER: (&str, &str) = ("4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7");
/// Stands in arguments, and so in results.
const WORD: &str = "kumquat-7731";

fn traceparent() -> String {
    format!("00-{}-{}-01", CALLER.0, CALLER.1)
}

/// A Brain that sends its spans.
async fn brain(home: &Home, collector: &Collector, listen: &str) -> anyhow::Result<Brain> {
    let process = Process::start_with("vance-brain", home, &["serve", "--listen", listen], &collector.env())?;
    let mut brain = Brain { process, url: String::new() };
    brain.url = brain.process.line("brain ready ").await?;
    Ok(brain)
}

/// A Foot that sends its spans.
async fn foot(home: &Home, url: &str, collector: &Collector) -> anyhow::Result<Process> {
    let mut foot = Process::start_with("vancetope", home, &["--daemon", "--brain", url], &collector.env())?;
    foot.line("foot ready").await?;
    Ok(foot)
}

/// Brain and Foot with a teller each.
struct Both {
    home: Home,
    collector: Collector,
    teller: Teller,
    brain: Brain,
    api: Api,
}

impl Both {
    async fn start() -> anyhow::Result<Self> {
        let (home, collector) = (Home::new()?, Collector::start().await?);
        let teller = Teller::new(&home)?;
        teller.pack(&home, "foot-tools/mine.json", "mine")?;
        teller.pack(&home, "brain/packs/its.json", "its")?;
        let brain = brain(&home, &collector, "127.0.0.1:0").await?;
        let api = Api::new(&home, &brain.url)?;
        Ok(Self { home, collector, teller, brain, api })
    }

    /// A direct call within the caller's trace.
    async fn call(&self, tool: &str, arguments: Value) -> anyhow::Result<Value> {
        let http = reqwest::Client::builder().no_proxy().build()?;
        let request = http.post(format!("{}/api/v1/tools/{tool}/call", self.brain.url)).bearer_auth(self.api.token());
        let request = request.header("traceparent", traceparent()).json(&json!({"arguments": arguments}));
        Ok(serde_json::from_str(&request.send().await?.text().await?)?)
    }

    async fn until_the_tool_runs(&self) -> anyhow::Result<()> {
        until("the tool runs", || async { Ok((self.teller.count("begin")? == 1).then_some(())) }).await
    }
}

/// Below `call`, the tool and its request to the server, and the server heard of the request.
fn check_below(trace: &Trace, call: &Span, service: &str, told: &Value) -> anyhow::Result<()> {
    let id = ("vance.call.id", call.field("vance.call.id"));
    let (tool, request) = (trace.one("tool.run", id)?, trace.one("mcp.call", id)?);
    assert_eq!((&tool.parent, &request.parent), (&call.id, &tool.id), "{trace}");
    assert_eq!([call, tool, request].map(Span::outcome), ["done"; 3], "{trace}");
    assert_eq!((call.service.as_str(), tool.service.as_str()), ("vance-brain", service), "{trace}");
    assert_eq!(request.service, service, "{trace}");
    assert_eq!(told["structured"]["traceparent"].as_str(), Some(request.traceparent().as_str()), "{told}\n{trace}");
    // One machine, one clock: what is inside lies inside.
    assert!(call.start <= tool.start && tool.start <= request.start, "{trace}");
    assert!(request.end <= tool.end && tool.end <= call.end, "{trace}");
    Ok(())
}

/// Two spans of a name, the second linking the first.
fn check_pair(trace: &Trace, name: &str, outcomes: [&str; 2]) {
    let spans = trace.all(name);
    assert_eq!(spans.iter().map(|span| span.outcome()).collect::<Vec<_>>(), outcomes, "{trace}");
    assert_eq!((&spans[0].links, &spans[1].links), (&vec![], &vec![spans[0].id.clone()]), "{trace}");
}

#[tokio::test]
async fn a_tree_is_one_trace_from_the_request_to_the_tools_on_both_sides() -> anyhow::Result<()> {
    let both = Both::start().await?;
    let _foot = foot(&both.home, &both.brain.url, &both.collector).await?;
    let yaml = format!(
        "tasks:\n- id: here\n  steps: [{{call: its__tell, with: {{text: {WORD}}}, as: told}}]\n\
         - id: there\n  depends_on: [here]\n  goal: '{WORD}'\n  steps:\n  - {{call: mine__tell, with: {{text: {WORD}}}, as: told}}\n  - {{call: now}}\n"
    );
    let (status, body) = both.api.submit_raw(&yaml, &[("traceparent", &traceparent())]).await?;
    assert_eq!(status, 201, "{body}");
    let ids: Vec<&str> = (0..2).filter_map(|n| body["tasks"][n]["task_id"].as_str()).collect();
    let tasks = until("both tasks", || async {
        let mut tasks = Vec::new();
        for id in &ids {
            tasks.push(both.api.get(&format!("/api/v1/tasks/{id}")).await?.1);
        }
        Ok(tasks.iter().all(|t| t["state"] == "completed").then_some(tasks))
    })
    .await?;
    let want = [("http.request", 1), ("task.run", 2), ("call", 3), ("tool.run", 3), ("mcp.call", 2)];
    let trace = both.collector.until(CALLER.0, &want).await?;

    let request = trace.one("http.request", ("vance.http.path", "/api/v1/tasks"))?;
    assert_eq!((request.parent.as_str(), request.field("vance.http.status")), (CALLER.1, "201"), "{trace}");
    for (task, (service, pack)) in tasks.iter().zip([("vance-brain", "its"), ("vancetope", "mine")]) {
        let text = |key: &str| task[key].as_str().unwrap_or_default();
        let run = trace.one("task.run", ("vance.task.id", text("task_id")))?;
        assert_eq!((&run.parent, run.outcome(), run.links.len()), (&request.id, "completed", 0), "{trace}");
        assert_eq!((run.field("vance.tree.id"), run.field("vance.session.id")), (text("tree_id"), SESSION), "{trace}");
        let record = &task["calls"][0];
        assert_eq!(record["trace_id"], CALLER.0, "{task}");
        let call = trace.one("call", ("vance.call.id", record["call_id"].as_str().context("call_id")?))?;
        assert_eq!(call.parent, run.id, "{trace}");
        assert_eq!(call.field("vance.tool"), format!("{pack}__tell"), "{trace}");
        for (field, key) in
            [("vance.call.route", "route"), ("vance.client.id", "client_id"), ("vance.machine", "machine")]
        {
            assert_eq!(call.field(field), record[key].as_str().unwrap_or_default(), "{trace}");
        }
        assert_eq!(call.field("vance.call.attempt"), "1", "{trace}");
        check_below(&trace, call, service, &task["output"]["told"])?;
    }
    let now = trace.one("call", ("vance.tool", "now"))?;
    assert_eq!(trace.one("tool.run", ("vance.tool", "now"))?.parent, now.id, "{trace}");
    assert!(trace.0.iter().all(|span| !span.failed && span.links.is_empty()), "{trace}");
    assert!(both.collector.has_seen("mine__tell"));
    for secret in [WORD, both.api.token()] {
        assert!(!both.collector.has_seen(secret), "'{secret}' is in a span");
    }
    Ok(())
}

#[tokio::test]
async fn a_direct_call_is_part_of_its_callers_trace_and_a_failure_is_red() -> anyhow::Result<()> {
    let both = Both::start().await?;
    let _foot = foot(&both.home, &both.brain.url, &both.collector).await?;
    both.api.until_available(SESSION, "mine__tell").await?;
    let done = both.call("mine__tell", json!({"text": WORD})).await?;
    assert_eq!(done["call"]["trace_id"], CALLER.0, "{done}");
    let missing = both.call("read_local_file", json!({"path": format!("{WORD}.txt")})).await?;
    assert_eq!(missing["call"]["outcome"], "failed", "{missing}");

    let want = [("http.request", 2), ("call", 2), ("tool.run", 2), ("mcp.call", 1)];
    let trace = both.collector.until(CALLER.0, &want).await?;
    let outgoing = trace.one("call", ("vance.tool", "mine__tell"))?;
    check_below(&trace, outgoing, "vancetope", &done["result"])?;
    let request = trace.one("http.request", ("vance.http.path", "/api/v1/tools/mine__tell/call"))?;
    assert_eq!((request.parent.as_str(), &outgoing.parent), (CALLER.1, &request.id), "{trace}");
    for name in ["call", "tool.run"] {
        let span = trace.one(name, ("vance.tool", "read_local_file"))?;
        assert!(span.failed && span.outcome() == "failed" && !span.field("error.type").is_empty(), "{trace}");
    }
    assert!(!both.collector.has_seen(WORD), "an argument is in a span");
    Ok(())
}

#[tokio::test]
async fn a_cut_line_ends_the_spans_and_what_follows_links_them() -> anyhow::Result<()> {
    let both = Both::start().await?;
    let proxy = Proxy::before(both.brain.addr()).await?;
    let _foot = foot(&both.home, &proxy.url, &both.collector).await?;
    both.api.until_available(SESSION, "mine__tell").await?;
    let tree = both
        .api
        .submit("tasks:\n- id: slow\n  steps: [{call: mine__tell, with: {text: x, ms: 3000}, as: told}]\n")
        .await?;
    both.until_the_tool_runs().await?;
    proxy.set(Line::Cut);
    let blocked = tree.until("slow", "blocked").await?;
    let id = blocked["calls"][0]["trace_id"].as_str().context("trace_id")?.to_owned();
    // While it waits nothing is open: what was begun is in the collector already.
    both.collector.until(&id, &[("http.request", 1), ("task.run", 1), ("call", 1)]).await?;
    proxy.set(Line::Open);
    let done = tree.until("slow", "completed").await?;

    let want = [("http.request", 1), ("task.run", 2), ("call", 2), ("tool.run", 1), ("mcp.call", 1)];
    let trace = both.collector.until(&id, &want).await?;
    check_pair(&trace, "task.run", ["blocked", "completed"]);
    check_pair(&trace, "call", ["suspended", "done"]);
    let (runs, calls) = (trace.all("task.run"), trace.all("call"));
    assert_eq!(runs[0].parent, runs[1].parent, "{trace}");
    assert_eq!([&calls[0].parent, &calls[1].parent], [&runs[0].id, &runs[1].id], "{trace}");
    let tool = trace.one("tool.run", ("vance.tool", "mine__tell"))?;
    assert_eq!((&tool.parent, tool.outcome()), (&calls[0].id, "done"), "it ran once, for the first delivery: {trace}");
    let request = trace.one("mcp.call", ("vance.pack", "mine"))?;
    assert_eq!(done["output"]["told"]["structured"]["traceparent"], request.traceparent(), "{done}");
    assert_eq!((both.teller.count("begin")?, both.teller.count("end")?), (1, 1));
    Ok(())
}

#[tokio::test]
async fn a_direct_call_goes_on_after_a_cut_as_a_span_that_links_the_first() -> anyhow::Result<()> {
    let both = Both::start().await?;
    let proxy = Proxy::before(both.brain.addr()).await?;
    let _foot = foot(&both.home, &proxy.url, &both.collector).await?;
    both.api.until_available(SESSION, "mine__tell").await?;
    let cut = async {
        both.until_the_tool_runs().await?;
        proxy.set(Line::Cut);
        both.collector.until(CALLER.0, &[("call", 1)]).await?;
        proxy.set(Line::Open);
        anyhow::Ok(())
    };
    let (done, cut) = tokio::join!(both.call("mine__tell", json!({"text": "x", "ms": 2000})), cut);
    let (done, ()) = (done?, cut?);
    assert_eq!(done["call"]["outcome"], "done", "{done}");
    let want = [("http.request", 1), ("call", 2), ("tool.run", 1), ("mcp.call", 1)];
    let trace = both.collector.until(CALLER.0, &want).await?;
    check_pair(&trace, "call", ["suspended", "done"]);
    let request = &trace.all("http.request")[0].id;
    assert!(trace.all("call").iter().all(|call| call.parent == *request), "{trace}");
    Ok(())
}

#[tokio::test]
async fn after_a_restart_of_the_brain_a_run_links_the_one_before() -> anyhow::Result<()> {
    let mut both = Both::start().await?;
    let _foot = foot(&both.home, &both.brain.url, &both.collector).await?;
    both.api.until_available(SESSION, "mine__tell").await?;
    let tree = both
        .api
        .submit("tasks:\n- id: slow\n  steps: [{call: mine__tell, with: {text: x, ms: 2000}, as: told}]\n")
        .await?;
    both.until_the_tool_runs().await?;
    assert_eq!(both.brain.process.stop().await?, 0);
    let addr = both.brain.addr().to_owned();
    both.brain = brain(&both.home, &both.collector, &addr).await?;
    let done = tree.until("slow", "completed").await?;
    let id = done["calls"][0]["trace_id"].as_str().context("trace_id")?.to_owned();
    let trace = until("the spans", || async {
        let trace = both.collector.trace(&id);
        let there = trace.all("task.run").iter().any(|run| run.outcome() == "completed");
        Ok((there && trace.all("mcp.call").len() == 1).then_some(trace))
    })
    .await?;
    let first = |name: &str| trace.all(name).first().map(|span| span.id.clone()).unwrap_or_default();
    for name in ["task.run", "call"] {
        let spans = trace.all(name);
        assert!(spans.len() > 1 && spans[1..].iter().all(|s| s.links == [first(name)]), "{trace}");
    }
    assert_eq!(trace.all("tool.run").iter().map(|tool| &tool.parent).collect::<Vec<_>>(), [&first("call")], "{trace}");
    Ok(())
}
