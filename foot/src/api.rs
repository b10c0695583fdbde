//! The Brain's HTTP API, typed: one method for each route, the Brain's own error texts kept.
//!
//! Answers come with their raw body ([`Answer`]), so that `--json` shows all that the Brain said.

use std::net::IpAddr;
use std::time::Duration;

use reqwest::header::{ACCEPT, CONTENT_TYPE, DATE};
use reqwest::{Client as Http, Method, RequestBuilder, Response, Url};
use serde::Serialize;
use serde::de::DeserializeOwned;
use vance_shared::ids::{ClientId, QuestionId, SessionId, TaskId, TreeId};
use vance_shared::json::Raw;
use vance_shared::limits::PROGRESS_CAP;

mod error;
mod follow;
mod sse;
mod types;

pub(crate) use error::cure as tls_cure;
pub use error::{ApiError, Problem};
pub use follow::{Follow, Notice};
pub use types::{
    Bound, Call, CallOutput, CallRequest, Called, Client, Event, OpenQuestion, Questions, RefusedTool, Resolve,
    Session, SessionTool, SessionTools, Sessions, Submitted, SubmittedTask, Task, TaskAnswer, TaskQuestion, TaskState,
    Tasks, Verdict,
};

/// Until a connection stands: a Brain on the same machine answers at once, one across the world within a second.
const CONNECT_WAIT: Duration = Duration::from_secs(5);
/// Until an ordinary answer is there, body included.
const ANSWER_WAIT: Duration = Duration::from_secs(30);
/// What a call's answer may take beyond the longest that the Brain waits for the tool: the Brain's own slack (20 s) and the way there and back.
const CALL_MARGIN: Duration = Duration::from_secs(35);
/// Largest answer that is read: a long list of tasks with their outputs fits, an endless body does not.
const ANSWER_BYTES: usize = 64 * 1024 * 1024;

/// Pages of one list of tasks, of a thousand tasks each unless the Brain says otherwise: more is nothing to read.
const MAX_PAGES: usize = 50;

/// A secret that never shows itself.
#[derive(Clone, PartialEq, Eq)]
pub struct Token(String);

impl Token {
    /// Takes a token as it stands in a variable or a file.
    pub fn new(text: &str) -> Self {
        Self(text.trim().to_owned())
    }

    /// The text, for a header.
    pub fn reveal(&self) -> &str {
        &self.0
    }
}

impl std::fmt::Debug for Token {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Token(…)")
    }
}

/// True if the URL's host is this machine. Decided on the parsed address: `127.evil.com` is not.
pub fn is_loopback(url: &Url) -> bool {
    let host = url.host_str().unwrap_or_default();
    let address = host.trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>();
    host == "localhost" || address.is_ok_and(|ip| ip.is_loopback())
}

/// An answer: what this program knows of it, and all of it.
#[derive(Debug, Clone)]
pub struct Answer<T> {
    /// The known part.
    pub value: T,
    /// The whole body.
    pub body: Raw,
}

/// A Brain that takes work.
#[derive(Debug, Clone, PartialEq)]
pub struct Ready {
    /// The time there, as its answer's header says it.
    pub date: Option<String>,
    /// The answer; with a token that it knows, it holds `details`.
    pub body: serde_json::Value,
}

/// Which tasks.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TaskFilter {
    /// In this state.
    pub state: Option<String>,
    /// Of this session.
    pub session: Option<SessionId>,
    /// Of this tree.
    pub tree: Option<TreeId>,
}

/// A tree on its way to the Brain.
#[derive(Debug, Clone)]
pub struct Submission {
    /// The file's text.
    pub text: String,
    /// `application/yaml` or `application/json`.
    pub content_type: &'static str,
    /// The same key again gives the same tree.
    pub idempotency_key: String,
    /// The Foot whose tools the tasks prefer.
    pub client: Option<ClientId>,
    /// The session, if the file names none and it is not the default one.
    pub session: Option<SessionId>,
}

/// A Brain at an address. Clones share their connections.
#[derive(Debug, Clone)]
pub struct Brain {
    http: Http,
    url: Url,
    token: Option<Token>,
}

impl Brain {
    /// Connects to nothing yet.
    pub fn new(url: Url, token: Option<Token>) -> Result<Self, ApiError> {
        let mut http = Http::builder().connect_timeout(CONNECT_WAIT).redirect(reqwest::redirect::Policy::none());
        if is_loopback(&url) {
            // A proxy cannot reach this machine's own Brain.
            http = http.no_proxy();
        }
        if url.scheme() == "http" {
            // No TLS is spoken, so a machine without root certificates will do.
            http = http.tls_certs_only([]);
        }
        let http = http.build().map_err(|e| ApiError::Setup(why(&e)))?;
        Ok(Self { http, url, token })
    }

    /// The address, for people.
    pub fn url(&self) -> &str {
        self.url.as_str().trim_end_matches('/')
    }

    /// Does anybody answer?
    pub async fn health(&self) -> Result<(), ApiError> {
        let response = self.send(self.request(Method::GET, &["healthz"], &[])).await?;
        drop(response);
        Ok(())
    }

    /// Does it take work? And what it says about itself to whom it knows.
    pub async fn ready(&self) -> Result<Ready, ApiError> {
        let response = self.send(self.request(Method::GET, &["readyz"], &[]).timeout(ANSWER_WAIT)).await?;
        let date = response.headers().get(DATE).and_then(|date| date.to_str().ok()).map(str::to_owned);
        let body = self.body(response).await?;
        let body: serde_json::Value = serde_json::from_slice(&body)
            .map_err(|error| ApiError::Strange { url: self.url().to_owned(), why: error.to_string() })?;
        if body["status"] != "ready" {
            return Err(ApiError::Strange {
                url: self.url().to_owned(),
                why: "it does not say that it is ready".to_owned(),
            });
        }
        Ok(Ready { date, body })
    }

    /// Submits a tree.
    pub async fn submit(&self, tree: Submission) -> Result<Answer<Submitted>, ApiError> {
        let session = tree.session.as_ref().map(|s| ("session", s.as_str()));
        let query: Vec<_> = session.into_iter().collect();
        let mut request = self.api(Method::POST, &["tasks"], &query);
        request = request.header(CONTENT_TYPE, tree.content_type).header("Idempotency-Key", &tree.idempotency_key);
        if let Some(client) = &tree.client {
            request = request.header("Vance-Client", client.as_str());
        }
        self.answer(request.body(tree.text)).await
    }

    /// Tasks, in order of their creation: all pages of the Brain's answer as one.
    pub async fn tasks(&self, filter: &TaskFilter) -> Result<Answer<Tasks>, ApiError> {
        let mut all = self.page(filter, None).await?;
        let mut pages = vec![all.body.clone()];
        while let Some(next) = all.value.next.take() {
            if pages.len() >= MAX_PAGES {
                tracing::warn!("the Brain has more tasks than are shown; ask for a state, a session or a tree");
                break;
            }
            let Answer { value, body } = self.page(filter, Some(&next)).await?;
            all.value.tasks.extend(value.tasks);
            all.value.next = value.next;
            pages.push(body);
        }
        if pages.len() > 1 {
            all.body = joined(&pages);
        }
        Ok(all)
    }

    async fn page(&self, filter: &TaskFilter, after: Option<&str>) -> Result<Answer<Tasks>, ApiError> {
        let state = filter.state.as_deref().map(|s| ("state", s));
        let session = filter.session.as_ref().map(|s| ("session", s.as_str()));
        let tree = filter.tree.as_ref().map(|t| ("tree", t.as_str()));
        let query: Vec<_> = [state, session, tree, after.map(|id| ("after", id))].into_iter().flatten().collect();
        self.answer(self.api(Method::GET, &["tasks"], &query)).await
    }

    /// One task.
    pub async fn task(&self, id: &TaskId) -> Result<Answer<Task>, ApiError> {
        self.answer(self.api(Method::GET, &["tasks", id.as_str()], &[])).await
    }

    /// Cancels a task and what runs for it.
    pub async fn cancel(&self, id: &TaskId) -> Result<Raw, ApiError> {
        self.post(&["tasks", id.as_str(), "cancel"], &serde_json::json!({})).await
    }

    /// Runs a failed task again.
    pub async fn retry(&self, id: &TaskId, any_client: bool) -> Result<Raw, ApiError> {
        let body = if any_client { serde_json::json!({ "any_client": true }) } else { serde_json::json!({}) };
        self.post(&["tasks", id.as_str(), "retry"], &body).await
    }

    /// Decides an unknown outcome.
    pub async fn resolve(&self, id: &TaskId, verdict: &Resolve) -> Result<Raw, ApiError> {
        self.post(&["tasks", id.as_str(), "resolve"], verdict).await
    }

    /// Answers the question that a task waits with.
    pub async fn answer_question(&self, id: &TaskId, answer: &TaskAnswer) -> Result<Raw, ApiError> {
        self.post(&["tasks", id.as_str(), "answer"], answer).await
    }

    /// The caller's open questions.
    pub async fn questions(&self) -> Result<Answer<Questions>, ApiError> {
        self.answer(self.api(Method::GET, &["questions"], &[])).await
    }

    /// Answers one of them, whether a task or a call waits with it.
    pub async fn answer_one(&self, id: &QuestionId, answer: &TaskAnswer) -> Result<Raw, ApiError> {
        self.post(&["questions", id.as_str(), "answer"], answer).await
    }

    /// The caller's sessions.
    pub async fn sessions(&self) -> Result<Answer<Sessions>, ApiError> {
        self.answer(self.api(Method::GET, &["sessions"], &[])).await
    }

    /// One session.
    pub async fn session(&self, id: &SessionId) -> Result<Answer<Session>, ApiError> {
        self.answer(self.api(Method::GET, &["sessions", id.as_str()], &[])).await
    }

    /// A session's active registry.
    pub async fn session_tools(&self, id: &SessionId) -> Result<Answer<SessionTools>, ApiError> {
        self.answer(self.api(Method::GET, &["sessions", id.as_str(), "tools"], &[])).await
    }

    /// One call, routed by the Brain; `timeout` is the call's own.
    pub async fn call(&self, tool: &str, call: &CallRequest, timeout: Duration) -> Result<Answer<Called>, ApiError> {
        let request = self.api(Method::POST, &["tools", tool, "call"], &[]).json(call);
        self.answer(request.timeout(call_wait(timeout))).await
    }

    /// Opens the stream of events.
    async fn events(&self, tree: Option<&str>, last_id: Option<&str>) -> Result<Response, ApiError> {
        let query: Vec<_> = tree.map(|t| ("tree", t)).into_iter().collect();
        let mut request = self.request(Method::GET, &["api", "v1", "events"], &query);
        request = request.header(ACCEPT, "text/event-stream");
        if let Some(id) = last_id {
            request = request.header("Last-Event-ID", id);
        }
        // The stream itself never ends; its beginning has to come in time.
        match tokio::time::timeout(ANSWER_WAIT, self.send(request)).await {
            Ok(answer) => answer,
            Err(_) => Err(ApiError::Broken { url: self.url().to_owned(), why: "no answer in time".to_owned() }),
        }
    }

    async fn post<T: Serialize + ?Sized>(&self, path: &[&str], body: &T) -> Result<Raw, ApiError> {
        Ok(self.answer::<serde::de::IgnoredAny>(self.api(Method::POST, path, &[]).json(body)).await?.body)
    }

    fn api(&self, method: Method, path: &[&str], query: &[(&str, &str)]) -> RequestBuilder {
        let path: Vec<&str> = ["api", "v1"].iter().chain(path).copied().collect();
        self.request(method, &path, query).timeout(ANSWER_WAIT)
    }

    fn request(&self, method: Method, path: &[&str], query: &[(&str, &str)]) -> RequestBuilder {
        let mut url = self.url.clone();
        if let Ok(mut segments) = url.path_segments_mut() {
            segments.pop_if_empty().extend(path);
        }
        if !query.is_empty() {
            url.query_pairs_mut().extend_pairs(query);
        }
        let request = self.http.request(method, url);
        match &self.token {
            Some(token) => request.bearer_auth(token.reveal()),
            None => request,
        }
    }

    async fn send(&self, request: RequestBuilder) -> Result<Response, ApiError> {
        let response = request.send().await.map_err(|e| self.fault(&e))?;
        let status = response.status();
        if status.is_success() {
            return Ok(response);
        }
        let body = self.body(response).await.unwrap_or_default();
        Err(match (status.as_u16(), &self.token) {
            (401, None) => ApiError::without_token(self.url(), &body),
            (status, _) => ApiError::refused(status, &body),
        })
    }

    async fn answer<T: DeserializeOwned>(&self, request: RequestBuilder) -> Result<Answer<T>, ApiError> {
        let response = self.send(request).await?;
        let body = self.body(response).await?;
        let strange = |e: &dyn std::fmt::Display| ApiError::Strange { url: self.url().to_owned(), why: e.to_string() };
        let text = String::from_utf8(body).map_err(|e| strange(&e))?;
        let body = Raw::parse(text).map_err(|e| strange(&e))?;
        let value = serde_json::from_str(body.get()).map_err(|e| strange(&e))?;
        Ok(Answer { value, body })
    }

    async fn body(&self, mut response: Response) -> Result<Vec<u8>, ApiError> {
        let mut body = Vec::new();
        while let Some(piece) = response.chunk().await.map_err(|e| self.fault(&e))? {
            if body.len() + piece.len() > ANSWER_BYTES {
                let why = format!("the answer is larger than {ANSWER_BYTES} bytes");
                return Err(ApiError::Strange { url: self.url().to_owned(), why });
            }
            body.extend_from_slice(&piece);
        }
        Ok(body)
    }

    fn fault(&self, error: &reqwest::Error) -> ApiError {
        let (url, why) = (self.url().to_owned(), why(error));
        if error.is_connect() { ApiError::no_connection(url, why) } else { ApiError::Broken { url, why } }
    }
}

/// How long the Brain may take over a call: progress puts the deadline off, to ten times the call's own and no further.
fn call_wait(timeout: Duration) -> Duration {
    timeout.saturating_mul(PROGRESS_CAP + 1).saturating_add(CALL_MARGIN)
}

/// The tasks of all pages in one list.
fn joined(pages: &[Raw]) -> Raw {
    let of = |page: &Raw| match page.value().get_mut("tasks").map(serde_json::Value::take) {
        Some(serde_json::Value::Array(tasks)) => tasks,
        _ => Vec::new(),
    };
    let tasks: Vec<serde_json::Value> = pages.iter().flat_map(of).collect();
    Raw::from(serde_json::json!({ "tasks": tasks }))
}

/// The innermost cause: reqwest's own text is "error sending request", which helps nobody.
fn why(error: &reqwest::Error) -> String {
    if error.is_timeout() {
        return "no answer in time".to_owned();
    }
    let mut cause: &dyn std::error::Error = error;
    while let Some(next) = cause.source() {
        cause = next;
    }
    cause.to_string()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_call_is_waited_for_as_long_as_the_brain_may_take_over_it() {
        for seconds in [0, 1, 60, 3600] {
            let own = Duration::from_secs(seconds);
            assert!(call_wait(own) > own + own * PROGRESS_CAP + Duration::from_secs(20), "{seconds}");
        }
        assert_eq!(call_wait(Duration::MAX), Duration::MAX);
    }

    #[test]
    fn loopback_is_decided_on_the_parsed_address() {
        for (url, want) in [
            ("http://127.0.0.1:9990", true),
            ("http://localhost", true),
            ("http://[::1]:1", true),
            ("http://127.9.9.9", true),
            ("http://127.evil.com", false),
            ("http://localhost.evil.com", false),
            ("https://10.0.0.1", false),
        ] {
            assert_eq!(is_loopback(&Url::parse(url).unwrap()), want, "{url}");
        }
    }

    #[test]
    fn a_token_does_not_show_itself() {
        let token = Token::new(" secret\n");
        assert_eq!((format!("{token:?}").as_str(), token.reveal()), ("Token(…)", "secret"));
    }
}
