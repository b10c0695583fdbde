//! A collector that is away slows nothing and holds up no end; without one nothing is started.

use std::time::{Duration, Instant};

use serde_json::json;
use tokio::net::TcpListener;
use vance_tests::api::Api;
use vance_tests::home::Home;
use vance_tests::process::Process;
use vance_tests::wait::until;

use super::collector::Collector;

/// Calls in each round.
const CALLS: usize = 200;
/// More than the last spans may hold up an end, and less than one request to a collector that does not answer.
const END_WITHIN: Duration = Duration::from_secs(3);

async fn brain(home: &Home, env: &[(&str, &str)]) -> anyhow::Result<(Process, String)> {
    let mut process = Process::start_with("vance-brain", home, &["serve", "--listen", "127.0.0.1:0"], env)?;
    let url = process.line("brain ready ").await?;
    Ok((process, url))
}

/// A Brain whose collector is as the name says, and what its calls took.
struct Round {
    name: &'static str,
    brain: Process,
    api: Api,
    took: Vec<Duration>,
    _home: Home,
}

impl Round {
    async fn start(name: &'static str, collector: Option<String>) -> anyhow::Result<Self> {
        let home = Home::new()?;
        let url = collector.unwrap_or_default();
        // Small batches, often: the way to the collector is in use all the time.
        let env = [
            ("OTEL_EXPORTER_OTLP_ENDPOINT", url.as_str()),
            ("OTEL_BSP_SCHEDULE_DELAY", "20"),
            ("OTEL_BSP_MAX_EXPORT_BATCH_SIZE", "8"),
        ];
        let (brain, url) = brain(&home, &env).await?;
        let api = Api::new(&home, &url)?;
        Ok(Self { name, brain, api, took: Vec::new(), _home: home })
    }

    async fn call(&mut self) -> anyhow::Result<()> {
        let begun = Instant::now();
        let (status, body) = self.api.call("now", &json!({"arguments": {}})).await?;
        self.took.push(begun.elapsed());
        assert_eq!((status, body["call"]["outcome"].as_str()), (200, Some("done")), "{body}");
        Ok(())
    }

    async fn until_it_counts_lost_spans(&self) -> anyhow::Result<()> {
        until("lost spans are counted", || async {
            let (_, metrics) = self.api.get("/metrics").await?;
            Ok(metrics.as_str().is_some_and(|text| text.contains("vance_spans_lost_total")).then_some(()))
        })
        .await
    }

    fn median(&mut self) -> Duration {
        self.took.sort();
        self.took[CALLS / 2]
    }

    async fn end(&mut self) -> anyhow::Result<Duration> {
        let begun = Instant::now();
        assert_eq!(self.brain.stop().await?, 0, "{}", self.brain.log());
        Ok(begun.elapsed())
    }
}

/// An address where nobody listens.
async fn closed() -> anyhow::Result<String> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    Ok(format!("http://{}", listener.local_addr()?))
}

/// An address that takes connections and never says anything.
async fn silent() -> anyhow::Result<String> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let url = format!("http://{}", listener.local_addr()?);
    tokio::spawn(async move {
        let mut kept = Vec::new();
        while let Ok((socket, _)) = listener.accept().await {
            kept.push(socket);
        }
    });
    Ok(url)
}

#[tokio::test]
async fn a_collector_that_is_away_slows_no_call_and_holds_up_no_end() -> anyhow::Result<()> {
    let mut rounds = [
        Round::start("none", None).await?,
        Round::start("closed", Some(closed().await?)).await?,
        Round::start("silent", Some(silent().await?)).await?,
    ];
    // In turn, so that whatever else this machine does meanwhile hits all of them.
    for _ in 0..CALLS {
        for round in &mut rounds {
            round.call().await?;
        }
    }
    rounds[1].until_it_counts_lost_spans().await?;
    let (without, without_end) = (rounds[0].median(), rounds[0].end().await?);
    for round in &mut rounds[1..] {
        let (median, longest, end) = (round.median(), round.took[CALLS - 1], round.end().await?);
        let said = format!("{}: {median:?} {longest:?} {end:?}, none: {without:?} {without_end:?}", round.name);
        println!("{said}");
        assert!(median < without * 2 + Duration::from_millis(2), "{said}");
        // A call that waited for the one that does not answer would take ten seconds.
        assert!(longest < Duration::from_secs(5), "{said}");
        assert!(end < without_end + END_WITHIN, "{said}");
        let warnings = round.brain.log().matches("cannot be delivered").count();
        assert_eq!(warnings, usize::from(round.name == "closed"), "{}", round.brain.log());
    }
    Ok(())
}

#[tokio::test]
async fn a_foot_whose_collector_is_away_works_and_ends_in_time() -> anyhow::Result<()> {
    let home = Home::new()?;
    home.write_project("a.txt", "milk")?;
    let arguments = ["tools", "call", "read_local_file", "{\"path\": \"a.txt\"}"];
    let mut took = Vec::new();
    for url in [String::new(), closed().await?, silent().await?] {
        let mut foot =
            Process::start_with("vancetope", &home, &arguments, &[("OTEL_EXPORTER_OTLP_ENDPOINT", url.as_str())])?;
        foot.line("milk").await?;
        let begun = Instant::now();
        assert_eq!(foot.exit_code().await?, 0, "{}", foot.log());
        took.push(begun.elapsed());
    }
    assert!(took.iter().all(|with| *with < took[0] + END_WITHIN), "{took:?}");
    Ok(())
}

#[tokio::test]
async fn without_a_collector_no_thread_is_started_and_the_brains_file_can_name_one() -> anyhow::Result<()> {
    for (named, env) in [(false, vec![]), (true, vec![]), (true, vec![("OTEL_SDK_DISABLED", "true")])] {
        let (home, collector) = (Home::new()?, Collector::start().await?);
        if named {
            home.write("brain/brain.yaml", &format!("otlp: {}\n", collector.url))?;
        }
        let sends = named && env.is_empty();
        let (mut brain, url) = brain(&home, &env).await?;
        let (_, body) = Api::new(&home, &url)?.call("now", &json!({"arguments": {}})).await?;
        let threads = std::fs::read_dir(format!("/proc/{}/task", brain.pid()?))?
            .filter_map(|thread| std::fs::read_to_string(thread.ok()?.path().join("comm")).ok())
            .filter(|name| name.starts_with("OpenTelemetry"))
            .count();
        assert_eq!(threads, usize::from(sends), "{named} {env:?}");
        // What is left is sent at the end.
        assert_eq!(brain.stop().await?, 0);
        let trace = collector.trace(body["call"]["trace_id"].as_str().unwrap_or_default());
        assert_eq!(trace.all("tool.run").len(), usize::from(sends), "{trace}");
    }
    Ok(())
}

#[tokio::test]
async fn an_address_that_is_none_is_said_and_the_brain_serves() -> anyhow::Result<()> {
    let home = Home::new()?;
    let (brain, _) = brain(&home, &[("OTEL_EXPORTER_OTLP_ENDPOINT", "localhost:4318")]).await?;
    until("the warning", || async { Ok(brain.log().contains("holds no http:// or https:// address").then_some(())) })
        .await
}
