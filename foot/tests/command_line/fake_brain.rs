//! A Brain that speaks just the API: its tasks move when the test says so, its event stream can be cut, its process can die and come back.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::extract::{Path, RawQuery, State};
use axum::http::{HeaderMap, Method, StatusCode, Uri, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{any, get, post};
use axum::{Json, Router};
use serde_json::{Value, json};
use tokio::sync::watch;

pub const TOKEN: &str = "right-token";

/// Tasks of one page.
const PAGE: usize = 3;

/// One request as it came.
#[derive(Debug, Clone)]
pub struct Seen {
    pub line: String,
    pub headers: HeaderMap,
    pub body: String,
}

impl Seen {
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).and_then(|v| v.to_str().ok())
    }
}

#[derive(Default)]
struct Book {
    tasks: Vec<Value>,
    events: Vec<(u64, Value)>,
    seen: Vec<Seen>,
    /// Answers that come instead of the usual ones: `METHOD path` → status, body.
    instead: Vec<(String, u16, Value)>,
}

#[derive(Clone)]
struct Shared {
    book: Arc<Mutex<Book>>,
    news: watch::Sender<usize>,
    cuts: watch::Sender<usize>,
}

pub struct FakeBrain {
    shared: Shared,
    pub address: SocketAddr,
    runtime: Option<tokio::runtime::Runtime>,
}

impl FakeBrain {
    pub fn start() -> Self {
        let shared = Shared { book: Arc::default(), news: watch::channel(0).0, cuts: watch::channel(0).0 };
        let mut brain = Self { shared, address: SocketAddr::from(([127, 0, 0, 1], 0)), runtime: None };
        brain.come_back();
        brain
    }

    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// The tasks of `tree_1`, as `id state` or `id state after=other`.
    pub fn has_tasks(&self, tasks: &[&str]) {
        let mut book = self.shared.book.lock().unwrap();
        for text in tasks {
            let mut words = text.split(' ');
            let (id, state) = (words.next().unwrap(), words.next().unwrap());
            let after: Vec<&str> = words.filter_map(|w| w.strip_prefix("after=")).collect();
            book.tasks.push(json!({
                "task_id": format!("task_{id}"), "id": id, "tree_id": "tree_1", "session_id": "sess_1", "parent": null,
                "goal": "g", "state": state, "blocked_reason": null, "skip_reason": null, "error": null, "output": null,
                "created_at": "2026-01-01T00:00:00Z", "updated_at": "2026-01-01T00:00:00Z", "calls": [], "depends_on": after,
                "a_newer_field": 1,
            }));
        }
    }

    /// A task moves; fields are merged into it, and everybody hears of it.
    pub fn moves(&self, id: &str, state: &str, fields: Value) {
        let mut book = self.shared.book.lock().unwrap();
        let task = book.tasks.iter_mut().find(|t| t["id"] == id).unwrap();
        task["state"] = json!(state);
        for (key, value) in fields.as_object().unwrap() {
            task[key] = value.clone();
        }
        let reason = ["blocked_reason", "skip_reason"].iter().find_map(|k| fields.get(*k).cloned());
        let seq = book.events.len() as u64 + 1;
        let event = json!({
            "seq": seq, "kind": "task", "task_id": format!("task_{id}"), "tree_id": "tree_1", "session_id": "sess_1",
            "state": state, "reason": reason, "at": "2026-01-01T00:00:00Z",
        });
        book.events.push((seq, event));
        drop(book);
        self.shared.news.send_modify(|n| *n += 1);
    }

    /// The next requests of this line (`POST /api/v1/tasks`) get this answer.
    pub fn answers(&self, line: &str, status: u16, body: Value) {
        self.shared.book.lock().unwrap().instead.push((line.to_owned(), status, body));
    }

    /// Ends every event stream.
    pub fn cut(&self) {
        self.shared.cuts.send_modify(|n| *n += 1);
    }

    /// Dies with all its connections.
    pub async fn dies(mut self) -> Self {
        let end = move || {
            if let Some(runtime) = self.runtime.take() {
                runtime.shutdown_timeout(Duration::from_secs(5));
            }
            self
        };
        tokio::task::spawn_blocking(end).await.unwrap()
    }

    /// Listens (again) at its address.
    pub fn come_back(&mut self) {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let listener = std::net::TcpListener::bind(self.address).unwrap();
        listener.set_nonblocking(true).unwrap();
        self.address = listener.local_addr().unwrap();
        let app = router(self.shared.clone());
        runtime.spawn(async move {
            let listener = tokio::net::TcpListener::from_std(listener).unwrap();
            axum::serve(listener, app).await.unwrap();
        });
        self.runtime = Some(runtime);
    }

    pub fn seen(&self, line: &str) -> Vec<Seen> {
        let book = self.shared.book.lock().unwrap();
        book.seen.iter().filter(|s| s.line.starts_with(line)).cloned().collect()
    }
}

impl Drop for FakeBrain {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

fn router(shared: Shared) -> Router {
    Router::new()
        .route("/healthz", get(|| async { "ok" }))
        .route("/readyz", get(ready))
        .route("/api/v1/events", get(events))
        .route("/api/v1/tasks", get(tasks).post(submit))
        .route("/api/v1/tasks/{id}", get(task))
        .route("/api/v1/tasks/{id}/{verb}", post(verb))
        .route("/api/v1/sessions", get(sessions))
        .route("/api/v1/sessions/{id}", get(session))
        .route("/api/v1/sessions/{id}/tools", get(session_tools))
        .route("/api/v1/tools/{name}/call", post(call))
        .fallback(any(|| async { fault(StatusCode::NOT_FOUND, "no_route", "no such route") }))
        .layer(axum::middleware::from_fn_with_state(shared.clone(), watch_over))
        .with_state(shared)
}

fn fault(status: StatusCode, code: &str, message: &str) -> Response {
    (status, Json(json!({"error": {"code": code, "message": message}}))).into_response()
}

/// Writes each request down, checks the token, and gives the answers that the test laid out.
async fn watch_over(
    State(shared): State<Shared>,
    request: axum::extract::Request,
    next: axum::middleware::Next,
) -> Response {
    let (parts, body) = request.into_parts();
    let bytes = axum::body::to_bytes(body, 1 << 20).await.unwrap();
    let line = line(&parts.method, &parts.uri);
    let instead = {
        let mut book = shared.book.lock().unwrap();
        let seen = Seen {
            line: line.clone(),
            headers: parts.headers.clone(),
            body: String::from_utf8_lossy(&bytes).into_owned(),
        };
        book.seen.push(seen);
        let at = book.instead.iter().position(|(wanted, ..)| line.split('?').next() == Some(wanted));
        at.map(|at| book.instead.remove(at))
    };
    let right = parts.headers.get(header::AUTHORIZATION).is_some_and(|v| v == &format!("Bearer {TOKEN}"));
    match instead {
        Some((_, status, body)) => (StatusCode::from_u16(status).unwrap(), Json(body)).into_response(),
        None if !right && !["/healthz", "/readyz"].contains(&parts.uri.path()) => {
            fault(StatusCode::UNAUTHORIZED, "unauthorized", "this token is not known")
        }
        None => next.run(axum::extract::Request::from_parts(parts, Body::from(bytes))).await,
    }
}

fn line(method: &Method, uri: &Uri) -> String {
    format!("{method} {uri}")
}

async fn ready() -> Json<Value> {
    Json(
        json!({"status": "ready", "details": {"version": env!("CARGO_PKG_VERSION"), "protocol": [vance_shared::wire::PROTOCOL]}}),
    )
}

async fn submit(State(shared): State<Shared>, _body: Bytes) -> Response {
    let book = shared.book.lock().unwrap();
    let tasks: Vec<Value> = book.tasks.iter().map(|t| json!({"id": t["id"], "task_id": t["task_id"]})).collect();
    let body = json!({"tree_id": "tree_1", "session_id": "sess_1", "tasks": tasks});
    (StatusCode::CREATED, Json(body)).into_response()
}

async fn tasks(State(shared): State<Shared>, RawQuery(query): RawQuery) -> Json<Value> {
    let query = query.unwrap_or_default();
    let wanted = query.split('&').find_map(|pair| pair.strip_prefix("state="));
    let book = shared.book.lock().unwrap();
    let tasks: Vec<&Value> = book.tasks.iter().filter(|t| wanted.is_none_or(|w| t["state"] == w)).collect();
    let after = query.split('&').find_map(|pair| pair.strip_prefix("after="));
    let from = after.map_or(0, |id| tasks.iter().position(|t| t["task_id"] == id).unwrap() + 1);
    let page: Vec<&&Value> = tasks[from..].iter().take(PAGE).collect();
    let next = (page.len() == PAGE).then(|| page[PAGE - 1]["task_id"].clone());
    Json(json!({ "tasks": page, "next": next }))
}

async fn task(State(shared): State<Shared>, Path(id): Path<String>) -> Response {
    let book = shared.book.lock().unwrap();
    match book.tasks.iter().find(|t| t["task_id"] == id.as_str()) {
        Some(task) => Json(task.clone()).into_response(),
        None => fault(StatusCode::NOT_FOUND, "unknown_task", "no task has this id"),
    }
}

async fn verb(State(shared): State<Shared>, Path((id, verb)): Path<(String, String)>) -> Response {
    let id = id.strip_prefix("task_").unwrap_or_default().to_owned();
    let state = match verb.as_str() {
        "cancel" => "cancelled",
        "retry" => "pending",
        _ => "completed",
    };
    let brain = FakeBrain { shared, address: SocketAddr::from(([127, 0, 0, 1], 0)), runtime: None };
    brain.moves(&id, state, json!({}));
    Json(json!({})).into_response()
}

async fn sessions() -> Json<Value> {
    let clients = json!([{"client_id": "foot_1", "name": "laptop", "machine": "m1", "presence": "online"}]);
    Json(json!({"sessions": [{"session_id": "sess_1", "mode": "interactive", "default": true, "clients": clients}]}))
}

async fn session() -> Json<Value> {
    let clients = json!([{"client_id": "foot_1", "name": "lap\u{1b}[2Jtop", "machine": "m1", "presence": "grace"}]);
    Json(json!({"session_id": "sess_1", "mode": "interactive", "clients": clients}))
}

async fn session_tools() -> Json<Value> {
    Json(json!({"tools": [
        {"name": "web_search", "location": "server", "available": true, "unavailable_reason": null, "labels": ["web"], "replay": "safe", "clients": []},
        {"name": "shell_execute", "location": "client", "available": false, "unavailable_reason": "no client is connected", "labels": [], "replay": "unsafe", "clients": []},
    ]}))
}

async fn call(Path(name): Path<String>, Json(request): Json<Value>) -> Response {
    let (outcome, text) = match name.as_str() {
        "absent" => return fault(StatusCode::CONFLICT, "client_absent", "Waiting for Client for Tool: absent"),
        "broken" => ("failed", "it broke".to_owned()),
        _ => ("done", format!("got {}", request["arguments"])),
    };
    let call = json!({"call_id": "call_1", "tool": name, "route": "server", "client_id": null, "machine": null, "attempts": 1, "outcome": outcome});
    Json(json!({"call": call, "result": {"text": text, "structured": null, "content": [{"type": "text", "text": text}]}})).into_response()
}

async fn events(State(shared): State<Shared>, headers: HeaderMap) -> Response {
    let last = headers.get("last-event-id").and_then(|v| v.to_str().ok()).and_then(|v| v.parse::<u64>().ok());
    let start = last.unwrap_or_else(|| shared.book.lock().unwrap().events.len() as u64);
    let (news, cuts) = (shared.news.subscribe(), shared.cuts.subscribe());
    let state = (shared, start, news, cuts, true);
    let stream = futures_util::stream::unfold(state, |(shared, from, mut news, mut cuts, first)| async move {
        loop {
            // A cut comes before whatever happens after it.
            if cuts.has_changed().unwrap_or(true) {
                return None;
            }
            let after: Vec<(u64, Value)> = {
                let book = shared.book.lock().unwrap();
                book.events.iter().filter(|(seq, _)| *seq > from).cloned().collect()
            };
            if first || !after.is_empty() {
                let mut text = ": hello\n\n".to_owned();
                for (seq, event) in &after {
                    text.push_str(&format!("id: {seq}\nevent: state\ndata: {event}\n\n"));
                }
                let from = after.last().map_or(from, |(seq, _)| *seq);
                return Some((Ok::<_, std::io::Error>(Bytes::from(text)), (shared, from, news, cuts, false)));
            }
            tokio::select! {
                _ = news.changed() => {}
                _ = cuts.changed() => return None,
            }
        }
    });
    ([(header::CONTENT_TYPE, "text/event-stream")], Body::from_stream(stream)).into_response()
}
