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

/// What a Brain took for its calls and for its end.
struct Took {
    median: Duration,
    longest: Duration,
    end: Duration,
}

async fn brain(home: &Home, env: &[(&str, &str)]) -> anyhow::Result<(Process, String)> {
    let mut process = Process::start_with("vance-brain", home, &["serve", "--listen", "127.0.0.1:0"], env)?;
    let url = process.line("brain ready ").await?;
    Ok((process, url))
}

/// `loses`: it notices that nobody takes its spans.
async fn calls(env: &[(&str, &str)], loses: bool) -> anyhow::Result<Took> {
    let home = Home::new()?;
    let (mut brain, url) = brain(&home, env).await?;
    let api = Api::new(&home, &url)?;
    let mut took = Vec::new();
    for _ in 0..CALLS {
        let begun = Instant::now();
        let (status, body) = api.call("now", &json!({"arguments": {}})).await?;
        took.push(begun.elapsed());
        assert_eq!((status, body["call"]["outcome"].as_str()), (200, Some("done")), "{body}");
    }
    took.sort();
    if loses {
        until("lost spans are counted", || async {
            let (_, metrics) = api.get("/metrics").await?;
            Ok(metrics.as_str().is_some_and(|text| text.contains("vance_spans_lost_total")).then_some(()))
        })
        .await?;
    }
    let begun = Instant::now();
    assert_eq!(brain.stop().await?, 0, "{}", brain.log());
    let end = begun.elapsed();
    assert_eq!(brain.log().matches("cannot be delivered").count(), usize::from(loses), "{}", brain.log());
    Ok(Took { median: took[CALLS / 2], longest: took[CALLS - 1], end })
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
    let without = calls(&[], false).await?;
    for (name, url) in [("closed", closed().await?), ("silent", silent().await?)] {
        // Small batches, often: the way to the collector is in use all the time.
        let env = [
            ("OTEL_EXPORTER_OTLP_ENDPOINT", url.as_str()),
            ("OTEL_BSP_SCHEDULE_DELAY", "20"),
            ("OTEL_BSP_MAX_EXPORT_BATCH_SIZE", "8"),
        ];
        let with = calls(&env, name == "closed").await?;
        let said = format!("{name}: {:?} {:?} {:?}", with.median, with.longest, with.end);
        // A call that waited for the collector even once would take a second and more.
        assert!(with.median < without.median * 3 + Duration::from_millis(5), "{said}, without {:?}", without.median);
        assert!(with.longest < without.longest + Duration::from_millis(800), "{said}, without {:?}", without.longest);
        assert!(with.end < without.end + END_WITHIN, "{said}, without {:?}", without.end);
        println!("{said}; without: {:?} {:?} {:?}", without.median, without.longest, without.end);
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
        let begun = Instant::now();
        let mut foot =
            Process::start_with("vancetope", &home, &arguments, &[("OTEL_EXPORTER_OTLP_ENDPOINT", url.as_str())])?;
        assert_eq!(foot.exit_code().await?, 0, "{}", foot.log());
        assert!(foot.log().contains("milk"), "{}", foot.log());
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
