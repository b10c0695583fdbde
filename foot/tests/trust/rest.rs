//! A project's pack of an HTTP API: nothing of it is reached before a yes, and consent is to its document.

use std::io::{BufRead as _, BufReader, Write as _};
use std::net::TcpListener;
use std::process::{Command, Output, Stdio};
use std::sync::{Arc, Mutex};

use serde_json::{Value, json};

use crate::desk::{Desk, Seat, endpoint};

fn pack(desk: &Desk, folder: &str, parameters: &Value) {
    let text = json!({"name": "api", "type": "rest_api", "parameters": parameters}).to_string();
    desk.put(&format!("{folder}/api.json"), &text);
}

const THEIRS: &str = "repo/.vancetope/foot-tools";

/// A document with one operation on this base.
fn document(base: &str, operation: &str) -> String {
    json!({
        "openapi": "3.1.0", "info": {"title": "t", "version": "1"}, "servers": [{"url": base}],
        "paths": {"/things/{id}": {"post": {
            "operationId": operation, "summary": "Changes a thing",
            "parameters": [
                {"name": "id", "in": "path", "required": true, "schema": {"type": "integer"}},
                {"name": "loud", "in": "query", "schema": {"type": "boolean"}},
            ],
            "requestBody": {"content": {"application/json": {"schema": {"type": "object", "properties": {"note": {"type": "string"}}}}}},
            "responses": {"200": {"description": "ok"}},
        }}},
    })
    .to_string()
}

#[test]
fn a_document_is_not_fetched_before_a_yes_and_the_question_names_both_addresses() {
    let desk = Desk::new();
    let ((base, base_came), (spec, spec_came)) = (endpoint(), endpoint());
    pack(&desk, THEIRS, &json!({"specUrl": spec, "baseUrl": base, "timeoutSeconds": 3}));
    let none = |when: &str| assert_eq!((base_came(), spec_came()), (0, 0), "{when}");
    let reason = desk.loads("api");
    assert!(reason.contains("needs consent"), "{reason}");
    none("nobody was there to ask");
    let file = desk.text(&format!("{THEIRS}/api.json"));
    for words in [
        &["packs", "check", file.as_str()][..],
        &["packs", "check", &file, "--dry-run"],
        &["packs", "list"],
        &["trust", "show", "api"],
        &["tools", "call", "api__anything", "{}", "--dry-run"],
        &["tools", "call", "api__anything", "{}"],
    ] {
        desk.alone(words);
        none(&words.join(" "));
    }
    let ended = desk.answered("3\n");
    let asked = format!("  wants to reach: {base} (spec: {spec})\n");
    assert!(ended.text.contains(&asked), "{}", ended.text);
    none("they said no");
    desk.answered("1\n");
    assert!(spec_came() > 0, "a yes fetches it");
    assert_eq!(base_came(), 0, "and calls nothing");
}

#[test]
fn a_document_that_changes_asks_again() {
    let desk = Desk::new();
    let (base, came) = endpoint();
    desk.put("repo/.vancetope/foot-tools/docs/openapi.json", &document(&base, "change"));
    pack(&desk, THEIRS, &json!({"specFile": "docs/openapi.json"}));
    // What is shown for those who have no terminal is what a yes there covers.
    let shown = desk.json(&["trust", "show", "api"])["digest"].as_str().unwrap().to_owned();
    assert!(desk.loads("api").contains(&shown), "{shown}");
    let allowed = desk.alone(&["trust", "allow", "--pack", "api", "--digest", &shown]);
    assert!(allowed.status.success(), "{}", String::from_utf8_lossy(&allowed.stderr));
    assert_eq!(desk.loads("api"), "up");
    assert!(desk.alone(&["trust", "revoke", "api"]).status.success());
    let ended = desk.answered("2\n");
    assert!(ended.text.contains(&format!("  wants to reach: {base}")), "{}", ended.text);
    assert!(ended.text.contains("api__change"), "{}", ended.text);
    assert_eq!(desk.loads("api"), "up");
    desk.put("repo/.vancetope/foot-tools/docs/openapi.json", &document(&base, "change_more"));
    let reason = desk.loads("api");
    assert!(reason.contains("needs consent"), "{reason}");
    let ended = desk.answered("3\n");
    assert!(ended.text.contains("changed since you allowed it on 20"), "{}", ended.text);
    assert!(!ended.text.contains("api__change_more"), "{}", ended.text);
    assert_eq!(came(), 0);
}

fn json_of(desk: &Desk, words: &[&str]) -> Value {
    let mut command: Command = desk.command(words);
    command.env("KEY", "k1").stdin(Stdio::null());
    let ended = command.output().unwrap();
    let out = String::from_utf8(ended.stdout).unwrap();
    serde_json::from_str(&out).unwrap_or_else(|e| panic!("{e}: {out} {}", String::from_utf8_lossy(&ended.stderr)))
}

#[test]
fn a_check_lists_the_tools_of_a_document_and_a_dry_run_shows_the_request_and_neither_reaches_the_api() {
    let desk = Desk::new();
    let (base, came) = endpoint();
    desk.put("home/foot-tools/docs/openapi.json", &document(&base, "change"));
    let parameters = json!({"specFile": "docs/openapi.json", "headers": {"X-Key": "${env:KEY}"}});
    pack(&desk, "home/foot-tools", &parameters);
    let checked = json_of(&desk, &["packs", "check", &desk.text("home/foot-tools/api.json"), "--json"]);
    assert_eq!((&checked["ok"], &checked["problems"], &checked["skipped"]), (&json!(true), &json!([]), &json!([])));
    let tools = checked["tools"].as_array().unwrap();
    assert_eq!(tools.len(), 1, "{checked}");
    let name = tools[0]["name"].as_str().unwrap();
    assert!(
        name.ends_with("change") && tools[0]["description"].as_str().unwrap().contains("Changes a thing"),
        "{checked}"
    );
    assert_eq!(tools[0]["inputSchema"]["properties"]["id"]["type"], "integer", "{checked}");

    let arguments = r#"{"id": "7", "loud": true, "body": {"note": "a b"}}"#;
    let planned = json_of(&desk, &["tools", "call", "api__change", arguments, "--dry-run", "--json"]);
    assert_eq!(planned["method"], "POST", "{planned}");
    let root = base.trim_end_matches('/');
    assert_eq!(planned["url"], format!("{root}/things/7?loud=true"), "{planned}");
    let headers = planned["headers"].to_string().to_lowercase();
    assert!(headers.contains("x-key") && headers.contains("content-type"), "{planned}");
    let body = &planned["body"];
    assert!(body.to_string().contains("note") && body.to_string().contains("a b"), "{planned}");
    let wrong = json_of(&desk, &["tools", "call", "api__change", r#"{"id": "x"}"#, "--dry-run", "--json"]);
    assert_eq!(wrong["error"]["code"], "invalid_argument", "{wrong}");
    assert_eq!(came(), 0);
}

/// A server that answers everything with one text, and the heads of the requests that came.
struct Web {
    url: String,
    body: Arc<Mutex<String>>,
    heads: Arc<Mutex<Vec<String>>>,
}

impl Web {
    fn start(body: &str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let (body, heads) = (Arc::new(Mutex::new(body.to_owned())), Arc::<Mutex<Vec<String>>>::default());
        let (says, had) = (Arc::clone(&body), Arc::clone(&heads));
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let mut stream = BufReader::new(stream.unwrap());
                let mut head = String::new();
                while !head.ends_with("\r\n\r\n") && stream.read_line(&mut head).is_ok_and(|n| n > 0) {}
                had.lock().unwrap().push(head.to_lowercase());
                let body = says.lock().unwrap().clone();
                let answer = format!(
                    "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{body}",
                    body.len()
                );
                drop(stream.get_mut().write_all(answer.as_bytes()));
            }
        });
        Self { url, body, heads }
    }

    fn heads(&self) -> Vec<String> {
        self.heads.lock().unwrap().clone()
    }
}

/// A pack whose document leads to two other servers: one for all operations, one for a single one.
struct Leading {
    desk: Desk,
    docs: Web,
    base: Web,
    side: Web,
}

impl Leading {
    fn new(more: Value) -> Self {
        let (base, side) = (Web::start("{\"ok\": 1}"), Web::start("{\"ok\": 2}"));
        let docs = Web::start(&Self::document(&base, &side));
        let desk = Desk::new();
        let mut parameters =
            json!({"specUrl": format!("{}/api.json", docs.url), "auth": {"type": "bearer", "token": "${env:KEY}"}});
        parameters.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        pack(&desk, THEIRS, &parameters);
        Self { desk, docs, base, side }
    }

    fn document(base: &Web, side: &Web) -> String {
        let operation = |id: &str| json!({"operationId": id, "responses": {"200": {"description": "ok"}}});
        json!({
            "openapi": "3.1.0", "info": {"title": "t", "version": "1"}, "servers": [{"url": format!("{}/v1", base.url)}],
            "paths": {"/top": {"get": operation("top")}, "/side": {"servers": [{"url": side.url}], "get": operation("side")}},
        })
        .to_string()
    }

    fn command(&self, tool: &str) -> Command {
        let mut command = self.desk.command(&["tools", "call", &format!("api__{tool}"), "{}"]);
        command.env("KEY", "s3cr3t");
        command
    }

    fn alone(&self, tool: &str) -> (Output, String) {
        let ended = self.command(tool).stdin(Stdio::null()).output().unwrap();
        let said = String::from_utf8_lossy(&ended.stderr).into_owned();
        (ended, said)
    }

    fn came(&self) -> [usize; 2] {
        [self.base.heads().len(), self.side.heads().len()]
    }
}

#[test]
fn where_a_fetched_document_leads_is_asked_before_anything_goes_there() {
    let it = Leading::new(json!({}));
    let mut seat = Seat::take(it.command("top"));
    seat.asked(1);
    assert!(it.docs.heads().is_empty(), "nobody consented to the fetch");
    seat.types("2\n");
    seat.asked(2);
    let text = seat.text();
    for lead in [format!("{}/v1", it.base.url), it.side.url.clone()] {
        assert!(text.contains(&format!("  leads to:     {lead} (says its document, not the pack)\n")), "{text}");
    }
    assert!(text.contains(&format!("  wants to reach: {}/v1 (spec: {}/api.json)", it.base.url, it.docs.url)), "{text}");
    assert_eq!(it.came(), [0, 0]);
    assert!(it.docs.heads().iter().all(|head| !head.contains("s3cr3t")), "a document is fetched without credentials");
    seat.types("2\n");
    let ended = seat.leaves();
    assert_eq!((ended.exit, it.came()), (0, [1, 0]), "{}", ended.text);
    assert!(it.base.heads()[0].contains("authorization: bearer s3cr3t"), "{:?}", it.base.heads());
    let store = it.desk.store();
    assert!(store.contains("documentDigest: ") && store.contains(&it.side.url), "{store}");

    // It lasts, and holds for both hosts; a dry run knows it, too.
    let (ended, said) = it.alone("side");
    assert!(ended.status.success() && it.came() == [1, 1], "{said}");
    let planned = json_of(&it.desk, &["tools", "call", "api__side", "{}", "--dry-run", "--json"]);
    assert_eq!(planned["url"], format!("{}/side", it.side.url), "{planned}");

    // A document of later that leads elsewhere asks again, and until then nothing goes there.
    let evil = Web::start("{}");
    *it.docs.body.lock().unwrap() = Leading::document(&evil, &it.side);
    let (ended, said) = it.alone("top");
    assert!(!ended.status.success() && said.contains("host_not_allowed"), "{said}");
    let named = said.lines().find(|line| line.contains("\"allowedHosts\": [")).unwrap();
    assert!(named.contains(&format!("\"{}\"", evil.url)) && named.contains("terminal"), "{said}");
    let mut seat = Seat::take(it.command("top"));
    seat.asked(1);
    let text = seat.text();
    assert!(text.contains("changed since you allowed it on 20"), "{text}");
    assert!(text.contains(&format!("+ document leads to {}/v1", evil.url)), "{text}");
    seat.types("3\n");
    let ended = seat.leaves();
    assert!(ended.exit != 0 && ended.text.contains("host_not_allowed"), "{}", ended.text);
    assert_eq!((evil.heads().len(), it.came()), (0, [1, 1]), "no is no");
    assert_eq!(it.desk.loads("api"), "up", "the pack itself has its yes");
    let ended = Seat::take(it.command("top")).answers("1\n");
    assert_eq!((ended.exit, evil.heads().len()), (0, 1), "{}", ended.text);
    let (_, said) = it.alone("top");
    assert!(said.contains("host_not_allowed") && evil.heads().len() == 1, "once is once: {said}");
}

#[test]
fn a_document_that_leads_elsewhere_does_not_get_there_where_nobody_is_asked() {
    let it = Leading::new(json!({}));
    let shown = it.desk.json(&["trust", "show", "api"]);
    let digest = shown["digest"].as_str().unwrap();
    let allowed = it.desk.alone(&["trust", "allow", "--pack", "api", "--digest", digest]);
    assert!(allowed.status.success(), "{}", String::from_utf8_lossy(&allowed.stderr));
    for tool in ["top", "side"] {
        let (ended, said) = it.alone(tool);
        assert!(!ended.status.success() && said.contains("host_not_allowed"), "{said}");
        let both = format!("\"allowedHosts\": [\"{}\", \"{}\"]", it.base.url, it.side.url);
        let other = format!("\"allowedHosts\": [\"{}\", \"{}\"]", it.side.url, it.base.url);
        assert!(said.contains(&both) || said.contains(&other), "the way out is said: {said}");
    }
    assert_eq!(it.came(), [0, 0]);
}

#[test]
fn a_pack_that_names_the_hosts_of_its_document_asks_once() {
    let it = Leading::new(json!({}));
    let hosts = json!([it.base.url, it.side.url]);
    let parameters = json!({"specUrl": format!("{}/api.json", it.docs.url), "allowedHosts": hosts});
    pack(&it.desk, THEIRS, &parameters);
    let ended = Seat::take(it.command("side")).answers("1\n");
    assert_eq!((ended.exit, it.came()), (0, [0, 1]), "{}", ended.text);
    assert_eq!(ended.text.matches("Load it?").count(), 1, "{}", ended.text);
}

#[test]
fn a_dry_run_reads_no_file_that_a_call_could_not_read() {
    let desk = Desk::new();
    let (base, came) = endpoint();
    let operation = json!({"operationId": "put", "requestBody": {"required": true, "content": {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}}}});
    let document = json!({"openapi": "3.0.3", "info": {"title": "t", "version": "1"}, "servers": [{"url": base}], "paths": {"/f": {"put": operation}}});
    pack(&desk, "home/foot-tools", &json!({"specInline": document}));
    desk.put("repo/mine.txt", "mine");
    for (path, want) in [("mine.txt", None), ("/etc/passwd", Some("file_access")), ("nothing.txt", Some("file_access"))]
    {
        let arguments = json!({"body": {"path": path}}).to_string();
        let planned = json_of(&desk, &["tools", "call", "api__put", &arguments, "--dry-run", "--json"]);
        assert_eq!(planned["error"]["code"].as_str(), want, "{path}: {planned}");
    }
    assert_eq!(came(), 0);
}

#[test]
fn a_file_that_a_document_misses_costs_what_needs_it() {
    let desk = Desk::new();
    let (base, _) = endpoint();
    let elsewhere = |file: &str| json!({"parameters": [{"$ref": format!("{file}#/p")}]});
    let document = json!({"openapi": "3.0.3", "info": {"title": "t", "version": "1"}, "servers": [{"url": base}], "paths": {
        "/a": {"get": {"operationId": "good", "responses": {"200": {"description": "ok"}}}},
        "/b": {"get": elsewhere("./there.yaml")}, "/c": {"get": elsewhere("./gone.yaml")}, "/d": {"get": elsewhere("./broken.yaml")},
    }});
    desk.put("home/foot-tools/docs/openapi.json", &document.to_string());
    desk.put("home/foot-tools/docs/there.yaml", "p: {name: x, in: query, schema: {type: string}}\n");
    desk.put("home/foot-tools/docs/broken.yaml", "p: [\n");
    pack(&desk, "home/foot-tools", &json!({"specFile": "docs/openapi.json"}));
    let checked = json_of(&desk, &["packs", "check", &desk.text("home/foot-tools/api.json"), "--json"]);
    let names: Vec<&str> =
        checked["tools"].as_array().unwrap().iter().map(|tool| tool["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["api__good", "api__get_b"], "{checked}");
    assert_eq!(checked["skipped"].as_array().unwrap().len(), 2, "{checked}");
    assert!(checked.to_string().contains("2 file(s) that its document refers to are not used"), "{checked}");
}

#[test]
fn a_check_says_that_a_pack_would_not_load() {
    let desk = Desk::new();
    let (base, _) = endpoint();
    desk.put("home/foot-tools/docs/openapi.json", &document(&base, "change"));
    for (parameters, line, want) in [
        ("\n\"include\": [\"nothing\"],\n\"specFile\": \"docs/openapi.json\"", 3, "no operation that could be a tool"),
        ("\n\"specFile\": \"docs/gone.json\"", 2, "cannot be read"),
    ] {
        let text = format!("{{\"name\": \"api\", \"type\": \"rest_api\", \"parameters\": {{{parameters}}}}}");
        desk.put("home/foot-tools/api.json", &text);
        let checked = json_of(&desk, &["packs", "check", &desk.text("home/foot-tools/api.json"), "--json"]);
        let problem = &checked["problems"][0];
        assert_eq!((&checked["ok"], &problem["line"]), (&json!(false), &json!(line)), "{checked}");
        assert!(problem["message"].as_str().unwrap().contains(want), "{checked}");
    }
}
