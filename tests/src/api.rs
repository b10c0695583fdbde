//! The Brain's API as a test uses it.

use anyhow::Context as _;
use serde_json::Value;

use crate::home::Home;
use crate::wait::until;

/// A client of one Brain.
#[derive(Clone)]
pub struct Api {
    http: reqwest::Client,
    url: String,
    token: String,
}

impl Api {
    /// With the local token of the Brain's home.
    pub fn new(home: &Home, url: &str) -> anyhow::Result<Self> {
        // Both ends of a test use the same provider; the second installation is the one already there.
        rustls::crypto::ring::default_provider().install_default().ok();
        let token = std::fs::read_to_string(home.path().join("brain/local.token"))?.trim().to_owned();
        Ok(Self { http: reqwest::Client::builder().no_proxy().build()?, url: url.to_owned(), token })
    }

    /// The same Brain for the bearer of another token.
    pub fn with_token(&self, token: &str) -> Self {
        Self { token: token.to_owned(), ..self.clone() }
    }

    /// The same for who believes an authority (PEM) besides the system's.
    pub fn believing(&self, authority: &str) -> anyhow::Result<Self> {
        let certificate = reqwest::Certificate::from_pem(authority.as_bytes())?;
        let http = reqwest::Client::builder().no_proxy().tls_certs_only([certificate]).build()?;
        Ok(Self { http, ..self.clone() })
    }

    /// The token.
    pub fn token(&self) -> &str {
        &self.token
    }

    /// GET; gives status and body.
    pub async fn get(&self, path: &str) -> anyhow::Result<(u16, Value)> {
        let response = self.http.get(format!("{}{path}", self.url)).bearer_auth(&self.token).send().await?;
        answer(response).await
    }

    /// GET of what is no JSON, with a `Range` if one is given.
    pub async fn bytes(&self, path: &str, range: Option<&str>) -> anyhow::Result<Bytes> {
        let mut request = self.http.get(format!("{}{path}", self.url)).bearer_auth(&self.token);
        if let Some(range) = range {
            request = request.header("range", range);
        }
        let response = request.send().await?;
        let header = |name: &str| {
            response.headers().get(name).and_then(|value| value.to_str().ok()).unwrap_or_default().to_owned()
        };
        let (etag, range, status) = (header("etag"), header("content-range"), response.status().as_u16());
        Ok(Bytes { status, etag, range, body: response.bytes().await?.to_vec() })
    }

    /// POST of a JSON body.
    pub async fn post(&self, path: &str, body: &Value) -> anyhow::Result<(u16, Value)> {
        self.post_with(path, body, &[]).await
    }

    /// The same with headers.
    pub async fn post_with(&self, path: &str, body: &Value, headers: &[(&str, &str)]) -> anyhow::Result<(u16, Value)> {
        let mut request = self.http.post(format!("{}{path}", self.url)).bearer_auth(&self.token).json(body);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        answer(request.send().await?).await
    }

    /// POST of a task tree as YAML.
    pub async fn submit_raw(&self, yaml: &str, headers: &[(&str, &str)]) -> anyhow::Result<(u16, Value)> {
        let mut request = self
            .http
            .post(format!("{}/api/v1/tasks", self.url))
            .bearer_auth(&self.token)
            .header("content-type", "application/yaml")
            .body(yaml.to_owned());
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        answer(request.send().await?).await
    }

    /// Submits a tree that must be taken.
    pub async fn submit(&self, yaml: &str) -> anyhow::Result<Tree> {
        let (status, body) = self.submit_raw(yaml, &[]).await?;
        anyhow::ensure!(status == 201, "the tree was not taken: {status} {body}");
        Ok(Tree { api: self.clone(), body })
    }

    /// Calls one tool.
    pub async fn call(&self, tool: &str, body: &Value) -> anyhow::Result<(u16, Value)> {
        self.post(&format!("/api/v1/tools/{tool}/call"), body).await
    }

    /// Waits until the default session lists a tool as available.
    pub async fn until_available(&self, session: &str, tool: &str) -> anyhow::Result<()> {
        until(&format!("{tool} available"), || async {
            let (_, body) = self.get(&format!("/api/v1/sessions/{session}/tools")).await?;
            let tools = body["tools"].as_array().cloned().unwrap_or_default();
            Ok(tools.iter().any(|t| t["name"] == tool && t["available"] == true).then_some(()))
        })
        .await
    }
}

/// An answer that is no JSON.
#[derive(Debug)]
pub struct Bytes {
    /// Status.
    pub status: u16,
    /// `ETag`.
    pub etag: String,
    /// `Content-Range`.
    pub range: String,
    /// Body.
    pub body: Vec<u8>,
}

async fn answer(response: reqwest::Response) -> anyhow::Result<(u16, Value)> {
    let status = response.status().as_u16();
    let text = response.text().await?;
    let body = serde_json::from_str(&text).unwrap_or(Value::String(text));
    Ok((status, body))
}

/// A submitted tree.
pub struct Tree {
    api: Api,
    /// The submission's answer.
    pub body: Value,
}

impl Tree {
    /// A task's id by its id in the file.
    pub fn task_id(&self, id: &str) -> anyhow::Result<String> {
        let tasks = self.body["tasks"].as_array().context("tasks")?;
        let task = tasks.iter().find(|t| t["id"] == id).with_context(|| format!("no task {id}"))?;
        Ok(task["task_id"].as_str().context("task_id")?.to_owned())
    }

    /// A task as it is now.
    pub async fn task(&self, id: &str) -> anyhow::Result<Value> {
        let task_id = self.task_id(id)?;
        let (status, body) = self.api.get(&format!("/api/v1/tasks/{task_id}")).await?;
        anyhow::ensure!(status == 200, "{status} {body}");
        Ok(body)
    }

    /// Waits until a task is in a state.
    pub async fn until(&self, id: &str, state: &str) -> anyhow::Result<Value> {
        let last = std::sync::Mutex::new(Value::Null);
        let found = until(&format!("task {id} {state}"), || async {
            // The Brain may be away for a moment in these tests.
            let Ok(task) = self.task(id).await else { return Ok(None) };
            let there = task["state"] == state;
            if let Ok(mut last) = last.lock() {
                *last = task.clone();
            }
            Ok(there.then_some(task))
        })
        .await;
        found.with_context(|| format!("the task was last: {}", last.lock().map(|l| l.to_string()).unwrap_or_default()))
    }

    /// POST to a task.
    pub async fn post(&self, id: &str, verb: &str, body: &Value) -> anyhow::Result<(u16, Value)> {
        let task_id = self.task_id(id)?;
        self.api.post(&format!("/api/v1/tasks/{task_id}/{verb}"), body).await
    }
}
