//! `web_search` over SearXNG's or Brave's JSON, normalised to titles, addresses and snippets.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use reqwest::header::RETRY_AFTER;
use reqwest::{Client, StatusCode, Url};
use serde::Deserialize;
use serde_json::{Value, json};
use vance_brain_core::config::WebSearchKind;
use vance_shared::call::{Fault, Outcome};
use vance_shared::tool::ToolResult;

/// Results unless the call says otherwise.
const DEFAULT_COUNT: usize = 10;
/// Most results of one call: Brave's own limit.
const MAX_COUNT: usize = 20;
/// Longest query: Brave's own limit, in characters.
const MAX_QUERY_CHARS: usize = 400;
/// A provider's answer; twenty results are some 50 KiB, SearXNG's own extras make it a few times that.
const ANSWER_BYTES: usize = 2 * 1024 * 1024;
/// A provider that cannot be reached in this time is down.
const CONNECT_WAIT: Duration = Duration::from_secs(10);
/// Where Brave is unless the configuration says otherwise.
const BRAVE: &str = "https://api.search.brave.com";

/// What to write when nothing is configured.
const HOW_TO: &str = "web_search has no provider: write `web_search: {kind: searxng, base_url: \"http://127.0.0.1:8080\"}` or \
                      `web_search: {kind: brave, api_key: \"${env:BRAVE_API_KEY}\"}` into brain.yaml and start the Brain again";

/// Looks a key up at each call: one that was set anew counts at once, and one that is missing costs that call alone.
#[derive(Clone)]
pub struct ApiKey(Arc<dyn Fn() -> Result<String, String> + Send + Sync>);

impl ApiKey {
    /// The lookup is quick: a variable, or a small file.
    pub fn new(lookup: impl Fn() -> Result<String, String> + Send + Sync + 'static) -> Self {
        Self(Arc::new(lookup))
    }

    /// The key; the error names what is missing.
    pub fn get(&self) -> Result<String, String> {
        (self.0)()
    }
}

/// Who searches.
#[derive(Clone)]
pub struct SearchProvider {
    /// Whose JSON.
    pub kind: WebSearchKind,
    /// Where, without the path of the search; `None`: Brave's own address (SearXNG has none).
    pub base_url: Option<String>,
    /// Brave's subscription token.
    pub api_key: Option<ApiKey>,
}

impl std::fmt::Debug for SearchProvider {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SearchProvider")
            .field("kind", &self.kind)
            .field("base_url", &self.base_url)
            .finish_non_exhaustive()
    }
}

#[derive(Deserialize)]
pub(super) struct Wanted {
    query: String,
    count: Option<usize>,
    language: Option<String>,
}

pub(super) fn schemas() -> (Value, Value) {
    (
        json!({
            "type": "object",
            "properties": {
                "query": {"type": "string", "minLength": 1, "maxLength": MAX_QUERY_CHARS, "description": "What to search for."},
                "count": {"type": "integer", "minimum": 1, "maximum": MAX_COUNT, "default": DEFAULT_COUNT, "description": "Results at most."},
                "language": {"type": "string", "pattern": "^[A-Za-z]{2,3}(-[A-Za-z]{2,4})?$", "description": "Such as en or de."}
            },
            "required": ["query"],
            "additionalProperties": false
        }),
        json!({
            "type": "object",
            "properties": {"results": {"type": "array", "items": {
                "type": "object",
                "properties": {"title": {"type": "string"}, "url": {"type": "string"}, "snippet": {"type": "string"}},
                "required": ["title", "url", "snippet"]
            }}},
            "required": ["results"]
        }),
    )
}

pub(super) struct Search {
    provider: Option<SearchProvider>,
    /// Made at the first call: it reads the machine's certificates.
    client: OnceLock<Result<Client, String>>,
}

impl Search {
    pub(super) fn new(provider: Option<SearchProvider>) -> Self {
        Self { provider, client: OnceLock::new() }
    }

    pub(super) async fn run(&self, wanted: Wanted) -> Outcome {
        let Some(provider) = &self.provider else { return Outcome::failed("not_configured", HOW_TO) };
        match self.ask(provider, wanted).await {
            Ok(results) => Outcome::Done(ToolResult::structured(json!({ "results": results }))),
            Err(error) => Outcome::Failed { error, result: None },
        }
    }

    async fn ask(&self, provider: &SearchProvider, wanted: Wanted) -> Result<Vec<Value>, Fault> {
        let count = wanted.count.unwrap_or(DEFAULT_COUNT).min(MAX_COUNT);
        let url = address(provider, &wanted, count)?;
        let whose = url.origin().ascii_serialization();
        let client = self.client.get_or_init(|| {
            // A redirect would carry the key to where nobody sent it.
            let client = Client::builder().redirect(reqwest::redirect::Policy::none()).connect_timeout(CONNECT_WAIT);
            client.user_agent(super::fetch::USER_AGENT).build().map_err(super::causes)
        });
        let client = client.as_ref().map_err(|error| Fault::new("internal", error.clone()))?;
        let mut request = client.get(url).header("accept", "application/json");
        if let (WebSearchKind::Brave, Some(key)) = (provider.kind, &provider.api_key) {
            let key = key.get().map_err(|why| Fault::new("not_configured", why))?;
            request = request.header("x-subscription-token", key);
        }
        let failed = |error| {
            let why = super::causes(error);
            let text =
                format!("the search provider at {whose} failed: {why}; web_search.base_url in brain.yaml names it");
            Fault::new("upstream_error", text)
        };
        let response = request.send().await.map_err(failed)?;
        let (status, retry_after) = (response.status(), response.headers().get(RETRY_AFTER).cloned());
        let (bytes, more) = super::body(response, ANSWER_BYTES).await.map_err(failed)?;
        if !status.is_success() {
            let wait = retry_after.as_ref().and_then(|value| value.to_str().ok());
            return Err(refusal(provider.kind, status, wait, &bytes));
        }
        if more {
            return Err(Fault::new(
                "upstream_error",
                format!("the search provider's answer is over {ANSWER_BYTES} bytes"),
            ));
        }
        results(provider.kind, &bytes, count).ok_or_else(|| {
            let begin = vance_shared::show::quoted(&String::from_utf8_lossy(&bytes), 80);
            let kind = word(provider.kind);
            Fault::new(
                "upstream_error",
                format!("{kind} answered something else than its JSON ({begin}): is base_url right?"),
            )
        })
    }
}

fn word(kind: WebSearchKind) -> &'static str {
    match kind {
        WebSearchKind::Searxng => "searxng",
        WebSearchKind::Brave => "brave",
    }
}

fn address(provider: &SearchProvider, wanted: &Wanted, count: usize) -> Result<Url, Fault> {
    let missing = || Fault::new("not_configured", format!("web_search.base_url is missing in brain.yaml; {HOW_TO}"));
    let (base, path) = match provider.kind {
        WebSearchKind::Searxng => (provider.base_url.as_deref().ok_or_else(missing)?, "/search"),
        WebSearchKind::Brave => (provider.base_url.as_deref().unwrap_or(BRAVE), "/res/v1/web/search"),
    };
    let text = format!("{}{path}", base.trim_end_matches('/'));
    let mut url = Url::parse(&text).map_err(|error| {
        Fault::new("not_configured", format!("web_search.base_url in brain.yaml is no address: {error}"))
    })?;
    let mut query = url.query_pairs_mut();
    query.append_pair("q", &wanted.query);
    match provider.kind {
        WebSearchKind::Searxng => query.append_pair("format", "json"),
        WebSearchKind::Brave => query.append_pair("count", &count.to_string()),
    };
    if let Some(language) = &wanted.language {
        let name = match provider.kind {
            WebSearchKind::Searxng => "language",
            WebSearchKind::Brave => "search_lang",
        };
        query.append_pair(name, language);
    }
    drop(query);
    Ok(url)
}

fn refusal(kind: WebSearchKind, status: StatusCode, retry_after: Option<&str>, body: &[u8]) -> Fault {
    let word = word(kind);
    match (status.as_u16(), kind) {
        (429, _) => {
            let wait = retry_after.map(|wait| format!(", try again after {} s", vance_shared::show::plain(wait)));
            Fault::new("rate_limited", format!("{word} answered 429{}", wait.unwrap_or_default()))
        }
        (403, WebSearchKind::Searxng) => {
            Fault::new("not_configured", "searxng answered 403: add `json` to `search.formats` in its settings.yml")
        }
        (401 | 403 | 422, WebSearchKind::Brave) => Fault::new(
            "not_configured",
            format!("brave answered {}: check web_search.api_key in brain.yaml", status.as_u16()),
        ),
        (code, _) => {
            let begin = vance_shared::show::quoted(&String::from_utf8_lossy(body), 120);
            Fault::new("upstream_error", format!("{word} answered {code}: {begin}"))
        }
    }
}

/// `None`: not the provider's JSON.
fn results(kind: WebSearchKind, bytes: &[u8], count: usize) -> Option<Vec<Value>> {
    let answer: Value = serde_json::from_slice(bytes).ok()?;
    let answer = answer.as_object()?;
    let (list, snippet) = match kind {
        WebSearchKind::Searxng => (answer.get("results")?.as_array()?.as_slice(), "content"),
        // Without a hit Brave leaves `web` out.
        WebSearchKind::Brave => match answer.get("web") {
            Some(web) => (web.get("results")?.as_array()?.as_slice(), "description"),
            None => (answer.get("type").and(Some(&[][..]))?, "description"),
        },
    };
    let text = |hit: &Value, key: &str| hit.get(key).and_then(Value::as_str).map(plain_text).unwrap_or_default();
    let hits = list.iter().filter_map(|hit| {
        let url = hit.get("url")?.as_str()?;
        Some(json!({"title": text(hit, "title"), "url": url, "snippet": text(hit, snippet)}))
    });
    Some(hits.take(count).collect())
}

/// Without the marks that providers put around hits (`<strong>`), and with the common entities as characters.
fn plain_text(html: &str) -> String {
    let mut text = html.to_owned();
    for mark in ["<strong>", "</strong>", "<b>", "</b>", "<em>", "</em>"] {
        text = text.replace(mark, "");
    }
    for (entity, character) in
        [("&lt;", "<"), ("&gt;", ">"), ("&quot;", "\""), ("&#x27;", "'"), ("&#39;", "'"), ("&amp;", "&")]
    {
        text = text.replace(entity, character);
    }
    text
}
