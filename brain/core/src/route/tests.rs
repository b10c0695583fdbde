//! The routing table: rows to read, and every combination against the rules.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::type_complexity)]

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use vance_shared::tool::{NATIVE_TOOLS, Replay, ToolSpec};

use super::*;
use crate::registry::any_object;
use crate::spec::{Backing, RegistryEntry};

fn tool(name: &str) -> ToolName {
    ToolName::parse(name).unwrap()
}

fn client_id(id: &str) -> ClientId {
    ClientId::parse(id).unwrap()
}

fn spec(name: &str, labels: &[&str]) -> Arc<ToolSpec> {
    Arc::new(ToolSpec {
        name: tool(name),
        description: String::new(),
        input_schema: any_object(),
        output_schema: None,
        labels: labels.iter().map(|l| (*l).to_owned()).collect(),
        annotations: None,
        replay: Replay::Unsafe,
        pack: None,
    })
}

/// A client `foot_NAME` named `NAME`.
fn client(name: &str, online: bool, last_active_ms: i64, tools: &[&str]) -> ClientView {
    ClientView {
        client_id: client_id(&format!("foot_{name}")),
        name: name.to_owned(),
        machine: format!("{name}.local"),
        working_dir: Some(format!("/home/{name}")),
        also: Arc::default(),
        online,
        last_active_ms,
        tools: Arc::new(tools.iter().map(|t| (tool(t), spec(t, &[]))).collect::<HashMap<_, _>>()),
        loading: Arc::new(BTreeSet::new()),
    }
}

fn view(clients: Vec<ClientView>) -> SessionView {
    SessionView { clients, known: Arc::default() }
}

fn entry(name: &str, location: Location) -> RegistryEntry {
    RegistryEntry {
        name: tool(name),
        location,
        backing: None,
        description: None,
        labels: Vec::new(),
        offline_strategy: None,
        fallback_tool: None,
    }
}

const BOTH_S: Location = Location::Both { prefer: Side::Server };
const BOTH_C: Location = Location::Both { prefer: Side::Client };
const LOCATIONS: [Location; 4] = [Location::Server, Location::Client, BOTH_S, BOTH_C];

/// A registry of `entries`; each named tool in `up` is a built-in of the server.
fn registry(entries: Vec<RegistryEntry>, up: &[&str]) -> Registry {
    Registry {
        file: entries.into_iter().map(|e| (e.name.clone(), e)).collect(),
        server_tools: up.iter().map(|t| (tool(t), spec(t, &[]))).collect(),
        ..Registry::default()
    }
}

fn engine(server: &[&str], client: &[&str], auto_fallback: bool) -> EngineSpec {
    let list = |l: &[&str]| Some(l.iter().map(|t| (*t).to_owned()).collect());
    EngineSpec { id: "eng".into(), server: list(server), client: list(client), auto_fallback, offline_strategy: None }
}

fn shown(decision: &Decision) -> String {
    match decision {
        Decision::Server { tool } => format!("server {tool}"),
        Decision::Client { client_id, tool } => format!("{client_id} {tool}"),
        Decision::Block => "block".to_owned(),
        Decision::Queue => "queue".to_owned(),
        Decision::Skip => "skip".to_owned(),
        Decision::Fail(fault) => fault.code.clone(),
    }
}

fn decided(registry: &Registry, view: &SessionView, wish: &Wish<'_>) -> String {
    shown(&decide(registry, view, wish, &tool("t")))
}

#[test]
fn the_table_of_the_documents() {
    use ExecutionTarget as T;
    use OfflineStrategy::{Block, Fallback, Queue, Skip};
    // location, server up, client there, target, the task's strategy → decision (`fallback_tool` is `alt`, on the server)
    let rows: &[(Location, bool, bool, T, Option<OfflineStrategy>, &str)] = &[
        (Location::Server, true, false, T::Auto, None, "server t"),
        (Location::Server, true, true, T::Auto, None, "server t"),
        (Location::Server, false, true, T::Auto, None, "server_unavailable"),
        (Location::Server, false, true, T::Auto, Some(Queue), "server_unavailable"),
        (Location::Server, false, true, T::Auto, Some(Fallback), "server alt"),
        (Location::Server, true, true, T::Client, None, "target_contradiction"),
        (Location::Client, true, true, T::Auto, None, "foot_a t"),
        (Location::Client, true, false, T::Auto, None, "block"),
        (Location::Client, true, false, T::Auto, Some(Block), "block"),
        (Location::Client, true, false, T::Any, Some(Skip), "skip"),
        (Location::Client, true, false, T::Auto, Some(Queue), "queue"),
        (Location::Client, true, false, T::Auto, Some(Fallback), "server alt"),
        (Location::Client, true, false, T::Client, Some(Fallback), "block"),
        (Location::Client, true, true, T::Client, Some(Fallback), "foot_a t"),
        (Location::Client, true, true, T::Server, None, "target_contradiction"),
        (BOTH_S, true, true, T::Auto, None, "server t"),
        (BOTH_S, true, false, T::Auto, None, "server t"),
        (BOTH_S, false, true, T::Auto, None, "server_unavailable"),
        (BOTH_S, false, true, T::Any, None, "foot_a t"),
        (BOTH_S, false, true, T::Auto, Some(Fallback), "foot_a t"),
        (BOTH_S, false, false, T::Auto, Some(Fallback), "server alt"),
        (BOTH_S, true, true, T::Client, None, "foot_a t"),
        (BOTH_S, true, false, T::Client, None, "block"),
        (BOTH_S, false, true, T::Server, Some(Queue), "server_unavailable"),
        (BOTH_C, true, true, T::Auto, None, "foot_a t"),
        (BOTH_C, true, false, T::Auto, None, "server t"),
        (BOTH_C, true, false, T::Auto, Some(Block), "server t"),
        (BOTH_C, true, false, T::Auto, Some(Skip), "server t"),
        (BOTH_C, true, false, T::Client, None, "block"),
        (BOTH_C, true, true, T::Server, None, "server t"),
        (BOTH_C, false, false, T::Auto, None, "block"),
        (BOTH_C, false, false, T::Server, None, "server_unavailable"),
        (BOTH_C, false, false, T::Any, Some(Queue), "queue"),
    ];
    for (location, up, there, target, strategy, want) in rows.iter().copied() {
        let mut t = entry("t", location);
        t.fallback_tool = Some(tool("alt"));
        let registry = registry(vec![t], if up { &["t", "alt"] } else { &["alt"] });
        let view = view(vec![client("a", there, 1, &["t"])]);
        let wish = Wish { target, strategy, ..Wish::default() };
        let got = decided(&registry, &view, &wish);
        assert_eq!(got, want, "{} up={up} there={there} {target:?} {strategy:?}", location.word());
    }
}

#[test]
fn the_strategy_is_the_tasks_then_the_engines_then_the_tools_then_the_default() {
    use OfflineStrategy::{Block, Queue, Skip};
    let rows = [
        (Some(Block), Some(Skip), Some(Queue), false, "block"),
        (None, Some(Skip), Some(Queue), false, "skip"),
        (None, None, Some(Queue), false, "queue"),
        (None, None, None, false, "block"),
        (None, None, None, true, "queue"),
        (None, None, Some(Block), true, "block"),
        (Some(Skip), None, None, true, "skip"),
        (Some(OfflineStrategy::Fallback), None, Some(Skip), false, "block"),
        (Some(OfflineStrategy::Fallback), None, Some(Skip), true, "queue"),
    ];
    for (of_task, of_engine, of_tool, autonomous, want) in rows {
        let mut t = entry("t", Location::Client);
        t.offline_strategy = of_tool;
        let mut engine = engine(&[], &["t"], false);
        engine.offline_strategy = of_engine;
        let wish = Wish { strategy: of_task, engine: Some(&engine), autonomous, ..Wish::default() };
        assert_eq!(
            decided(&registry(vec![t], &[]), &view(vec![]), &wish),
            want,
            "{of_task:?} {of_engine:?} {of_tool:?}"
        );
    }
}

#[test]
fn an_engine_sees_only_its_sets_and_falls_back_if_it_may() {
    // location, server set, client set, auto_fallback, client there → decision
    let rows: &[(Location, &[&str], &[&str], bool, bool, &str)] = &[
        (BOTH_C, &["other"], &["other"], false, true, "unknown_tool"),
        (Location::Server, &["t"], &[], false, true, "server t"),
        (Location::Server, &["@net"], &[], false, true, "server t"),
        (Location::Client, &["t"], &[], false, true, "engine_contradiction"),
        (Location::Client, &[], &["t"], false, false, "block"),
        (Location::Client, &[], &["t"], true, false, "block"),
        (Location::Client, &["alt"], &["t"], true, false, "server alt"),
        (BOTH_C, &[], &["t"], false, false, "block"),
        (BOTH_C, &[], &["t"], true, false, "server t"),
        (BOTH_S, &[], &["t"], true, true, "foot_a t"),
        (BOTH_S, &[], &["t"], true, false, "server t"),
        (BOTH_S, &["t"], &["t"], false, true, "server t"),
        (BOTH_C, &["t"], &[], false, true, "server t"),
    ];
    for (location, server, client_set, auto_fallback, there, want) in rows.iter().copied() {
        let mut t = entry("t", location);
        t.fallback_tool = Some(tool("alt"));
        t.labels = vec!["net".into()];
        let engine = engine(server, client_set, auto_fallback);
        let wish = Wish { engine: Some(&engine), ..Wish::default() };
        let view = view(vec![client("a", there, 1, &["t"])]);
        let got = decided(&registry(vec![t], &["t", "alt"]), &view, &wish);
        assert_eq!(got, want, "{} {server:?} {client_set:?} auto={auto_fallback} there={there}", location.word());
    }
}

#[test]
fn a_task_that_says_block_does_not_fall_back_by_itself() {
    let mut t = entry("t", Location::Client);
    t.fallback_tool = Some(tool("alt"));
    let engine = engine(&["alt"], &["t"], true);
    let wish = Wish { engine: Some(&engine), strategy: Some(OfflineStrategy::Block), ..Wish::default() };
    assert_eq!(decided(&registry(vec![t], &["alt"]), &view(vec![]), &wish), "block");
}

#[test]
fn an_unknown_tool_is_named_with_the_three_nearest() {
    let registry = registry(vec![entry("web_search", Location::Server), entry("web_fetch", Location::Server)], &[]);
    let got = decide(&registry, &view(vec![]), &Wish::default(), &tool("web_serch"));
    let Decision::Fail(fault) = got else { panic!("{got:?}") };
    assert_eq!(fault.code, "unknown_tool");
    assert!(
        fault.message.starts_with("unknown tool: web_serch (nearest: web_search, web_fetch, "),
        "{}",
        fault.message
    );
    assert_eq!(fault.message.matches(", ").count(), 2, "{}", fault.message);
}

#[test]
fn what_is_named_as_nearest_may_be_used_by_the_engine() {
    let registry = registry(vec![entry("web_search", Location::Server)], &["web_search", "now"]);
    let engine = engine(&["now"], &[], false);
    let wish = Wish { engine: Some(&engine), ..Wish::default() };
    let Decision::Fail(fault) = decide(&registry, &view(vec![]), &wish, &tool("web_serch")) else { panic!() };
    assert_eq!(fault.message, "unknown tool: web_serch (nearest: now)");
}

#[test]
fn a_tool_outside_the_engines_sets_is_unknown_to_it() {
    let engine = engine(&["other"], &[], false);
    let wish = Wish { engine: Some(&engine), ..Wish::default() };
    let got = decide(&registry(vec![], &["t"]), &view(vec![]), &wish, &tool("t"));
    let Decision::Fail(fault) = got else { panic!("{got:?}") };
    assert!(fault.message.starts_with("unknown tool: t"), "{}", fault.message);
}

#[test]
fn a_contradiction_says_both_facts() {
    let known = |location| registry(vec![entry("t", location)], &[]).lookup(&view(vec![]), &tool("t")).unwrap();
    let fault = contradicts(&known(Location::Client), ExecutionTarget::Server, None, &tool("t")).unwrap();
    assert_eq!(fault.message, "execution_target is server, but tool t has location client");
    let server = engine(&["t"], &[], false);
    let fault = contradicts(&known(Location::Client), ExecutionTarget::Auto, Some(&server), &tool("t")).unwrap();
    assert_eq!(fault.code, "engine_contradiction");
    let fault = contradicts(&known(Location::Client), ExecutionTarget::Auto, Some(&engine(&[], &[], true)), &tool("t"));
    assert_eq!(fault.unwrap().code, "unknown_tool");
    let fault = contradicts(&known(Location::Server), ExecutionTarget::Client, None, &tool("t")).unwrap();
    assert_eq!(fault.message, "execution_target is client, but tool t has location server");
    for target in [ExecutionTarget::Auto, ExecutionTarget::Any, ExecutionTarget::Server, ExecutionTarget::Client] {
        assert_eq!(contradicts(&known(BOTH_S), target, None, &tool("t")), None);
    }
}

#[test]
fn native_known_and_loading_tools_are_absent_not_unknown() {
    let empty = registry(vec![], &[]);
    for native in NATIVE_TOOLS {
        assert_eq!(shown(&decide(&empty, &view(vec![]), &Wish::default(), &tool(native))), "block", "{native}");
    }
    let mut loading = client("a", true, 1, &[]);
    loading.loading = Arc::new(BTreeSet::from(["chrome".to_owned()]));
    let loading = view(vec![loading]);
    assert_eq!(shown(&decide(&empty, &loading, &Wish::default(), &tool("chrome__open"))), "block");
    assert_eq!(shown(&decide(&empty, &loading, &Wish::default(), &tool("chromium__open"))), "unknown_tool");
    let known = SessionView {
        clients: vec![],
        known: Arc::new(BTreeMap::from([(tool("zotero__find"), spec("zotero__find", &[]))])),
    };
    assert_eq!(shown(&decide(&empty, &known, &Wish::default(), &tool("zotero__find"))), "block");
}

#[test]
fn a_label_of_a_tool_that_has_not_said_yet_what_it_is_waits_instead_of_failing() {
    let tools = ["@mcp:chrome".to_owned()];
    let engine = engine(&[], &["@mcp:chrome"], false);
    let wishes = [Wish { tools: Some(&tools), ..Wish::default() }, Wish { engine: Some(&engine), ..Wish::default() }];
    let open = tool("chrome__open");
    let empty = registry(vec![], &[]);
    let mut loading = client("a", true, 1, &[]);
    loading.loading = Arc::new(BTreeSet::from(["chrome".to_owned()]));
    let offers = |labels: &[&str]| {
        let mut there = client("a", true, 1, &[]);
        there.tools = Arc::new(HashMap::from([(open.clone(), spec("chrome__open", labels))]));
        view(vec![there])
    };
    for wish in &wishes {
        assert_eq!(shown(&decide(&empty, &view(vec![loading.clone()]), wish, &open)), "block");
        assert_eq!(shown(&decide(&empty, &offers(&["mcp:chrome"]), wish, &open)), "foot_a chrome__open");
        let other = shown(&decide(&empty, &offers(&["mcp:firefox"]), wish, &open));
        assert!(["tool_not_listed", "unknown_tool"].contains(&other.as_str()), "{other}");
    }
    // The same on the server: its pack still starts.
    let mut starting = registry(vec![], &[]);
    starting.packs.insert("chrome".to_owned(), ServerSide::Starting);
    assert_eq!(shown(&decide(&starting, &view(vec![]), &wishes[0], &open)), "server chrome__open");
}

#[test]
fn a_change_of_a_pack_concerns_who_may_use_it_and_nobody_else() {
    let backed = |name: &str, pack: &str| RegistryEntry {
        backing: Some(Backing::McpServer { pack: pack.to_owned(), tool: None }),
        ..entry(name, BOTH_C)
    };
    let with =
        |name: &str, next: &str| RegistryEntry { fallback_tool: Some(tool(next)), ..entry(name, Location::Client) };
    let registry = registry(vec![backed("a", "one"), with("b", "a"), with("c", "two__x"), with("d", "d")], &[]);
    for (name, one, two) in [
        ("a", true, false),
        ("b", true, false),
        ("c", false, true),
        ("d", false, false),
        ("one__y", true, false),
        ("read_local_file", false, false),
    ] {
        assert_eq!((registry.may_use(&tool(name), "one"), registry.may_use(&tool(name), "two")), (one, two), "{name}");
    }
}

#[test]
fn the_chosen_client_is_named_then_submitter_then_served_then_active() {
    let registry = registry(vec![entry("t", Location::Client)], &[]);
    let all = ["a", "b", "c", "d"];
    let clients = |online: &[&str]| {
        let active = |n: &str| if n == "d" { 9 } else { 1 };
        view(all.iter().map(|n| client(n, online.contains(n), active(n), &["t"])).collect())
    };
    let (b, c) = (client_id("foot_b"), client_id("foot_c"));
    let free =
        Wish { client: Some("a"), submitted_by: Some(&b), served_by: Some(&c), any_client: true, ..Wish::default() };
    for (online, want) in
        [(&all[..], "foot_a t"), (&all[1..], "foot_b t"), (&all[2..], "foot_c t"), (&all[3..], "foot_d t")]
    {
        assert_eq!(decided(&registry, &clients(online), &free), want);
    }
    // A name is a must, and so is the client that served, unless the task says `any_client`.
    let named = Wish { client: Some("a"), submitted_by: Some(&b), ..Wish::default() };
    assert_eq!(decided(&registry, &clients(&all), &named), "foot_a t");
    assert_eq!(decided(&registry, &clients(&all[1..]), &named), "block");
    assert_eq!(decided(&registry, &clients(&all), &Wish { client: Some("foot_d"), ..Wish::default() }), "foot_d t");
    let served = Wish { submitted_by: Some(&b), served_by: Some(&c), ..Wish::default() };
    assert_eq!(decided(&registry, &clients(&all), &served), "foot_c t");
    assert_eq!(decided(&registry, &clients(&["a", "b", "d"]), &served), "block");
    assert_eq!(decided(&registry, &clients(&all), &Wish { submitted_by: Some(&b), ..Wish::default() }), "foot_b t");
    assert_eq!(decided(&registry, &clients(&all), &Wish::default()), "foot_d t");
}

#[test]
fn what_works_in_a_folder_goes_on_in_that_folder_and_packs_go_on_anywhere() {
    let mut pack = (*spec("p__t", &[])).clone();
    pack.pack = Some("p".to_owned());
    let mut a = client("a", true, 1, &["write_local_file"]);
    Arc::get_mut(&mut a.tools).unwrap().insert(tool("p__t"), Arc::new(pack));
    let there = view(vec![a]);
    let served = client_id("foot_a");
    let to = |folder: &str, name: &str, any_client: bool| {
        let wish = Wish { served_by: Some(&served), works_in: Some(folder), any_client, ..Wish::default() };
        shown(&decide(&Registry::default(), &there, &wish, &tool(name)))
    };
    assert_eq!(to("/home/a", "write_local_file", false), "foot_a write_local_file");
    assert_eq!(to("/elsewhere", "write_local_file", false), "block");
    assert_eq!(to("/elsewhere", "write_local_file", true), "foot_a write_local_file");
    assert_eq!(to("/elsewhere", "p__t", false), "foot_a p__t");
}

#[test]
fn alternatives_are_followed_four_times_and_never_in_a_circle() {
    let chain = |last_next: Option<&str>, length: usize| {
        let entries = (0..=length).map(|i| {
            let mut e = entry(&if i == 0 { "t".to_owned() } else { format!("t{i}") }, Location::Client);
            e.offline_strategy = Some(OfflineStrategy::Fallback);
            e.fallback_tool = if i < length { Some(tool(&format!("t{}", i + 1))) } else { last_next.map(tool) };
            e
        });
        registry(entries.collect(), &[])
    };
    let four = view(vec![client("a", true, 1, &["t4"])]);
    assert_eq!(decided(&chain(None, 4), &four, &Wish::default()), "foot_a t4");
    assert_eq!(decided(&chain(None, 4), &view(vec![]), &Wish::default()), "block");
    assert_eq!(decided(&chain(None, 5), &view(vec![]), &Wish::default()), "fallback_chain");
    for (length, back) in [(0, "t"), (1, "t"), (3, "t2")] {
        assert_eq!(decided(&chain(Some(back), length), &view(vec![]), &Wish::default()), "fallback_chain");
    }
    // An alternative that cannot run is none.
    assert_eq!(decided(&chain(Some("nowhere"), 1), &view(vec![]), &Wish::default()), "block");
    // Waiting tasks are woken for what any of the alternatives needs.
    assert_eq!(chain(Some("t"), 2).client_names(&tool("t")), [tool("t"), tool("t1"), tool("t2")]);
    assert_eq!(chain(None, 0).client_names(&tool("elsewhere")), [tool("elsewhere")]);
}

#[test]
fn a_client_may_report_the_entrys_name_or_the_packs() {
    let mut e = entry("read_note", Location::Client);
    e.backing = Some(Backing::McpServer { pack: "obsidian".into(), tool: None });
    let registry = registry(vec![e], &[]);
    let name = tool("read_note");
    for offered in ["read_note", "obsidian__read_note"] {
        // Another client once reported the other name.
        let known = ["read_note", "obsidian__read_note"].map(|n| (tool(n), spec(n, &[])));
        let view = SessionView { clients: vec![client("a", true, 1, &[offered])], known: Arc::new(known.into()) };
        assert_eq!(shown(&decide(&registry, &view, &Wish::default(), &name)), format!("foot_a {offered}"));
    }
    assert_eq!(registry.client_names(&name), [tool("obsidian__read_note"), name.clone()]);
    let two = view(vec![client("a", true, 9, &["obsidian__read_note"]), client("b", true, 1, &["read_note"])]);
    let wish = Wish { client: Some("b"), ..Wish::default() };
    assert_eq!(shown(&decide(&registry, &two, &wish, &name)), "foot_b read_note");
}

#[test]
fn a_client_never_replaces_a_server_tool_but_shares_a_both_tool() {
    let mut drive = entry("drive_search", BOTH_S);
    drive.backing = Some(Backing::McpServer { pack: "drive".into(), tool: Some("search.files".into()) });
    let registry = registry(vec![drive, entry("s", Location::Server)], &["drive__search_files", "x__y", "s"]);
    assert!(registry.refuses(&tool("x__y")).is_some() && registry.refuses(&tool("s")).is_some());
    assert_eq!(registry.refuses(&tool("drive__search_files")), None);
    assert_eq!(registry.refuses(&tool("read_local_file")), None);
    let view = view(vec![client("a", true, 1, &["drive__search_files", "x__y"])]);
    let client_wanted = Wish { target: ExecutionTarget::Client, ..Wish::default() };
    let got = decide(&registry, &view, &client_wanted, &tool("drive_search"));
    assert_eq!(shown(&got), "foot_a drive__search_files");
    assert_eq!(shown(&decide(&registry, &view, &Wish::default(), &tool("x__y"))), "server x__y");
}

#[test]
fn a_tool_is_safe_only_if_every_side_that_has_it_says_so() {
    let safe = |name: &str| Arc::new(ToolSpec { replay: Replay::Safe, ..(*spec(name, &[])).clone() });
    let mut registry = registry(vec![entry("t", BOTH_C)], &["t"]);
    let class = |registry: &Registry, view: &SessionView| registry.lookup(view, &tool("t")).unwrap().replay();
    registry.server_tools.insert(tool("t"), safe("t"));
    assert_eq!(class(&registry, &view(vec![])), Replay::Safe);
    let mut a = client("a", true, 1, &["t"]);
    assert_eq!(class(&registry, &view(vec![a.clone()])), Replay::Unsafe);
    a.tools = Arc::new(HashMap::from([(tool("t"), safe("t"))]));
    assert_eq!(class(&registry, &view(vec![a.clone()])), Replay::Safe);
    assert_eq!(class(&registry, &view(vec![a, client("b", true, 1, &["t"])])), Replay::Unsafe);
    assert_eq!(Registry::default().lookup(&view(vec![]), &tool("shell_execute")).unwrap().replay(), Replay::Unsafe);
}

#[test]
fn a_starting_server_pack_counts_as_there_and_a_failed_one_says_why() {
    let mut registry = registry(vec![], &[]);
    registry.packs = BTreeMap::from([
        ("slow".to_owned(), ServerSide::Starting),
        ("dead".to_owned(), ServerSide::Down { reason: "exited with 1".to_owned() }),
    ]);
    assert_eq!(shown(&decide(&registry, &view(vec![]), &Wish::default(), &tool("slow__x"))), "server slow__x");
    let got = decide(&registry, &view(vec![]), &Wish::default(), &tool("dead__x"));
    let Decision::Fail(fault) = got else { panic!("{got:?}") };
    assert_eq!(fault.message, "tool dead__x cannot run on the server: exited with 1");
}

#[test]
fn an_alternative_that_is_down_leaves_the_task_waiting_for_its_client() {
    let mut t = entry("t", Location::Client);
    (t.offline_strategy, t.fallback_tool) = (Some(OfflineStrategy::Fallback), Some(tool("dead")));
    let mut dead = entry("dead", Location::Server);
    for further in [None, Some(tool("deader"))] {
        dead.fallback_tool = further;
        let registry = registry(vec![t.clone(), dead.clone(), entry("deader", Location::Server)], &[]);
        assert_eq!(decided(&registry, &view(vec![]), &Wish::default()), "block");
        assert_eq!(decided(&registry, &view(vec![client("a", true, 1, &["t"])]), &Wish::default()), "foot_a t");
    }
}

#[test]
fn the_names_of_a_server_pack_are_the_servers_while_it_is_down_too() {
    let mut shared = entry("look", BOTH_S);
    shared.backing = Some(Backing::McpServer { pack: "git".into(), tool: Some("look".into()) });
    let mut registry = registry(vec![shared], &[]);
    for side in [ServerSide::Up, ServerSide::Starting, ServerSide::Down { reason: "exited with 1".to_owned() }] {
        registry.packs = BTreeMap::from([("git".to_owned(), side)]);
        let reason = registry.refuses(&tool("git__push")).unwrap();
        assert!(reason.contains("the server's pack 'git'"), "{reason}");
        assert_eq!(registry.refuses(&tool("git__look")), None);
        assert_eq!(registry.refuses(&tool("gitter__push")), None);
    }
}

#[test]
fn the_list_of_an_engine_holds_what_it_can_ever_run_with_what_routing_says() {
    let registry =
        registry(vec![entry("s", Location::Server), entry("c", Location::Client), entry("b", BOTH_S)], &["s"]);
    let there = view(vec![client("a", true, 1, &["c", "b"])]);
    let shown = |engine: Option<&EngineSpec>| -> Vec<String> {
        let listed = crate::registry::list(&registry, &there, engine);
        listed.iter().map(|t| format!("{}: {}", t.name, t.unavailable.as_deref().unwrap_or("ok"))).collect()
    };
    assert_eq!(shown(None), ["b: the server offers no tool 'b'", "c: ok", "s: ok"]);
    assert_eq!(shown(Some(&engine(&[], &["s", "c", "b"], false))), ["b: ok", "c: ok"]);
    assert_eq!(shown(Some(&engine(&["s", "c", "b"], &[], true))), ["b: the server offers no tool 'b'", "s: ok"]);
}

/// Every combination of all inputs against the rules that hold for each of them.
#[test]
fn every_combination_keeps_the_rules() {
    let targets = [ExecutionTarget::Auto, ExecutionTarget::Server, ExecutionTarget::Client, ExecutionTarget::Any];
    let strategies = [
        None,
        Some(OfflineStrategy::Block),
        Some(OfflineStrategy::Skip),
        Some(OfflineStrategy::Fallback),
        Some(OfflineStrategy::Queue),
    ];
    let servers = [ServerSide::Up, ServerSide::Starting, ServerSide::Down { reason: "gone".into() }];
    let presences = [
        vec![],
        vec![client("a", false, 1, &["t"])],
        vec![client("a", true, 1, &["t"])],
        vec![client("a", true, 1, &["t"]), client("b", true, 2, &["t", "alt"])],
        vec![client("b", true, 2, &["t"])],
        vec![client("b", true, 2, &[])],
    ]
    .map(view);
    let engines = [
        None,
        Some(engine(&["t", "alt"], &["t", "alt"], false)),
        Some(engine(&["t", "alt"], &[], true)),
        Some(engine(&[], &["t"], false)),
        Some(engine(&[], &["t"], true)),
        Some(engine(&["other"], &["other"], true)),
    ];
    let alternatives = &[None, Some(Location::Server), Some(Location::Client)];
    let served = client_id("foot_a");
    let mut count = 0;
    for (location, server, alternative) in
        LOCATIONS.iter().flat_map(|l| servers.iter().flat_map(move |s| alternatives.iter().map(move |a| (*l, s, *a))))
    {
        let mut t = entry("t", location);
        t.backing = Some(Backing::McpServer { pack: "p".into(), tool: None });
        t.fallback_tool = alternative.map(|_| tool("alt"));
        let alt = alternative.map(|l| entry("alt", l));
        let mut registry = registry(std::iter::once(t).chain(alt).collect(), &["t", "alt"]);
        registry.packs = BTreeMap::from([("p".to_owned(), server.clone())]);
        for (view, engine) in presences.iter().flat_map(|p| engines.iter().map(move |e| (p, e))) {
            for (target, strategy) in targets.iter().flat_map(|t| strategies.iter().map(move |s| (*t, *s))) {
                for bits in 0..8_u8 {
                    let wish = Wish {
                        target,
                        strategy,
                        engine: engine.as_ref(),
                        autonomous: bits & 1 != 0,
                        served_by: (bits & 2 != 0).then_some(&served),
                        any_client: bits & 4 != 0,
                        ..Wish::default()
                    };
                    let got = decide(&registry, view, &wish, &tool("t"));
                    assert_eq!(got, decide(&registry, view, &wish, &tool("t")));
                    let context =
                        || format!("{} {server:?} {alternative:?} {view:?} {wish:?} -> {got:?}", location.word());
                    check_rules(&registry, view, &wish, location, server, &got, &context);
                    count += 1;
                }
            }
        }
    }
    assert_eq!(count, 4 * 3 * 3 * 6 * 6 * 4 * 5 * 8);
}

fn check_rules(
    registry: &Registry,
    view: &SessionView,
    wish: &Wish<'_>,
    location: Location,
    server: &ServerSide,
    got: &Decision,
    context: &dyn Fn() -> String,
) {
    let ran = match got {
        Decision::Server { tool } | Decision::Client { tool, .. } => Some(tool.as_str()),
        Decision::Block | Decision::Queue | Decision::Skip | Decision::Fail(_) => None,
    };
    let outside = wish.engine.is_some_and(|e| e.id == "eng" && e.server == Some(vec!["other".to_owned()]));
    if outside {
        assert!(matches!(got, Decision::Fail(f) if f.code == "unknown_tool"), "{}", context());
        return;
    }
    match got {
        Decision::Client { client_id, tool } => {
            let client = view.clients.iter().find(|c| c.client_id == *client_id).unwrap();
            assert!(client.online && client.tools.contains_key(tool), "an absent client: {}", context());
            assert_ne!(registry.file[tool].location, Location::Server, "{}", context());
            assert_ne!(wish.target, ExecutionTarget::Server, "{}", context());
            assert!(wish.any_client || wish.served_by.is_none_or(|s| s == client_id), "another machine: {}", context());
        }
        Decision::Server { tool } => {
            assert_ne!(registry.file[tool].location, Location::Client, "{}", context());
            assert_ne!(wish.target, ExecutionTarget::Client, "{}", context());
            if tool.as_str() == "t" {
                assert!(!matches!(server, ServerSide::Down { .. }), "a dead server: {}", context());
            }
            if let Some(engine) = wish.engine {
                let listed = engine.server.as_ref().unwrap().iter().any(|t| t == tool.as_str());
                let by_fallback = engine.auto_fallback && location != Location::Server;
                assert!(listed || by_fallback, "outside the engine's sets: {}", context());
            }
        }
        Decision::Block | Decision::Queue | Decision::Skip => {
            assert_ne!(wish.target, ExecutionTarget::Server, "waits for a client that may not serve: {}", context());
            let by_alternative = registry.file.get("alt").is_some_and(|a| a.location == Location::Client);
            assert!(location != Location::Server || by_alternative, "{}", context());
            let want = match wish.strategy {
                None | Some(OfflineStrategy::Fallback) if wish.autonomous => Decision::Queue,
                None | Some(OfflineStrategy::Fallback | OfflineStrategy::Block) => Decision::Block,
                Some(OfflineStrategy::Queue) => Decision::Queue,
                Some(OfflineStrategy::Skip) => Decision::Skip,
            };
            assert_eq!(*got, want, "{}", context());
        }
        Decision::Fail(fault) => {
            let known = ["target_contradiction", "engine_contradiction", "server_unavailable"];
            assert!(known.contains(&fault.code.as_str()), "{}", context());
        }
    }
    if ran == Some("alt") {
        let may = wish.strategy == Some(OfflineStrategy::Fallback)
            || (wish.strategy.is_none() && wish.engine.is_some_and(|e| e.auto_fallback));
        assert!(may, "an alternative that nobody asked for: {}", context());
    }
    let server_works = !matches!(server, ServerSide::Down { .. });
    let free = matches!(wish.target, ExecutionTarget::Auto | ExecutionTarget::Any) && wish.engine.is_none();
    if matches!(location, Location::Both { .. }) && server_works && free {
        assert_eq!(ran, Some("t"), "a `both` tool whose server works always runs: {}", context());
    }
}
