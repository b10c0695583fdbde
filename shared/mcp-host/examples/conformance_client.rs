//! Our host as the client under test of the official MCP conformance suite: `BIN URL`, with the scenario in
//! `MCP_CONFORMANCE_SCENARIO`. An example, because it shows a whole host in one file and needs what only tests need.
#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::{Map, Value, json};
use tokio_util::sync::CancellationToken;
use vance_mcp_host::auth::OnAuthorize;
use vance_mcp_host::{CallRequest, Elicited, HostEnv, HostState, McpHandle, People, server_with_people};
use vance_shared::gate::TrustedLaunch;
use vance_shared::ids::CallId;
use vance_shared::json::Raw;
use vance_shared::launch::{Auth, Grant, LaunchPlan, OAuth, Origin, RestartBudget, Source, Transport};
use vance_shared::names::{PackName, ToolName};
use vance_shared::trace::TraceContext;
use vance_supervise::SupervisorRef;

/// The suite ends a scenario after 30 s.
const PATIENCE: Duration = Duration::from_secs(20);
/// The document is nobody's: a server that takes such clients takes its address.
const CLIENT_DOCUMENT: &str = "https://conformance-test.local/client-metadata.json";

fn main() {
    drop(rustls::crypto::ring::default_provider().install_default());
    tracing_subscriber::fmt()
        .with_env_filter(std::env::var("TEST_LOG").unwrap_or_else(|_| "warn,vance_mcp_host=debug".to_owned()))
        .with_writer(std::io::stderr)
        .init();
    let url = std::env::args().next_back().unwrap();
    let scenario = std::env::var("MCP_CONFORMANCE_SCENARIO").unwrap_or_default();
    let context = std::env::var("MCP_CONFORMANCE_CONTEXT").ok();
    let context: Value = context.and_then(|text| serde_json::from_str(&text).ok()).unwrap_or_default();
    let up = vance_supervise::run(1, scenario_of(url, scenario, context)).unwrap();
    std::process::exit(i32::from(!up));
}

async fn scenario_of(url: String, scenario: String, context: Value) -> bool {
    let dir = tempfile::tempdir().unwrap();
    let env = HostEnv {
        state_dir: dir.path().to_owned(),
        logins_dir: dir.path().to_owned(),
        packs_dir: Default::default(),
        read_file: None,
        vault: None,
        project_dir: None,
        guard_program: "none".into(),
        client_name: "vancetope".into(),
        sandbox: None,
    };
    let people = People {
        authorize: Some(browser()),
        elicit: Some(Arc::new(|_| Box::pin(std::future::ready(Elicited::Accepted(Map::new()))))),
    };
    let launch = TrustedLaunch::own_home(plan(url, &scenario, &context)).unwrap();
    let (handle, spec) = server_with_people(launch, env, Arc::new(|event| eprintln!("{event:?}")), people);
    let supervisor = SupervisorRef::start(spec);
    let deadline = Instant::now() + PATIENCE;
    let up = loop {
        match handle.state() {
            HostState::Up => break true,
            HostState::Failed { reason } => {
                eprintln!("failed: {reason}");
                break false;
            }
            _ if Instant::now() > deadline => break false,
            _ => tokio::time::sleep(Duration::from_millis(5)).await,
        }
    };
    if up {
        calls(&handle, &context).await;
    }
    supervisor.shutdown().await;
    up
}

/// Somebody who says yes to every login.
fn browser() -> OnAuthorize {
    Arc::new(|_, address| {
        let address = address.to_owned();
        tokio::spawn(async move {
            if let Err(error) = reqwest::get(address).await {
                eprintln!("the browser failed: {error}");
            }
        });
    })
}

fn plan(url: String, scenario: &str, context: &Value) -> LaunchPlan {
    let text = |name: &str| context.get(name).and_then(Value::as_str).map(str::to_owned);
    let mut oauth = OAuth { client_metadata_url: Some(CLIENT_DOCUMENT.to_owned()), ..OAuth::default() };
    if text("client_id").is_some() {
        (oauth.client_id, oauth.client_secret) = (text("client_id"), text("client_secret"));
    }
    if scenario.contains("client-credentials") {
        oauth.grant = Grant::ClientCredentials;
    }
    let mut transport = Transport::http(url);
    if let Transport::Http { auth, .. } = &mut transport {
        *auth = Auth::OAuth(oauth);
    }
    LaunchPlan {
        pack: PackName::parse("suite").unwrap(),
        origin: Origin::Global,
        transport,
        init_timeout: PATIENCE,
        call_timeout: PATIENCE,
        labels: Vec::new(),
        disabled_sub_tools: Vec::new(),
        default_args: Map::new(),
        replay: Default::default(),
        restart: RestartBudget { max_restarts: 2, within: Duration::from_secs(60) },
        source: Source::default(),
    }
}

/// The calls that the suite names, or each tool once.
async fn calls(handle: &McpHandle, context: &Value) {
    let named: Vec<(ToolName, Value)> = context["toolCalls"]
        .as_array()
        .into_iter()
        .flatten()
        .map(|call| {
            let pack = PackName::parse("suite").unwrap();
            (ToolName::of_subtool(&pack, call["name"].as_str().unwrap()), call["arguments"].clone())
        })
        .collect();
    let own = ["list_resources", "read_resource", "list_prompts", "get_prompt"];
    let all = if named.is_empty() {
        let tools = handle.tools();
        let theirs = tools.iter().filter(|tool| !own.iter().any(|name| tool.name.as_str() == format!("suite__{name}")));
        let schema_of = |name: &str| {
            let found = tools.iter().find(|tool| tool.name.as_str().ends_with(name));
            found.map(|tool| tool.input_schema.value()).unwrap_or_default()
        };
        theirs
            .map(|tool| match tool.name.as_str() {
                // What we kept of another tool's schema.
                "suite__json_schema_echo" => {
                    (tool.name.clone(), json!({"schema": schema_of("json_schema_2020_12_tool")}))
                }
                _ => (tool.name.clone(), arguments(&tool.input_schema.value())),
            })
            .collect()
    } else {
        named
    };
    for (tool, arguments) in all {
        let request = CallRequest {
            call_id: CallId::generate(),
            tool: tool.clone(),
            arguments: Raw::from(arguments),
            timeout: PATIENCE,
            cap: PATIENCE,
            trace: TraceContext::root(),
            cancel: CancellationToken::new(),
            progress: None,
            person: vance_mcp_host::Person::default(),
        };
        eprintln!("{tool}: {:?}", handle.call(request).await);
    }
}

/// Something for each argument that must be there.
fn arguments(schema: &Value) -> Value {
    let required = schema["required"].as_array().cloned().unwrap_or_default();
    let mut arguments = Map::new();
    for name in required.iter().filter_map(Value::as_str) {
        let value = match schema["properties"][name]["type"].as_str() {
            Some("number" | "integer") => json!(1),
            Some("boolean") => json!(true),
            Some("array") => json!([]),
            Some("object") => json!({}),
            _ => json!("test"),
        };
        arguments.insert(name.to_owned(), value);
    }
    Value::Object(arguments)
}
