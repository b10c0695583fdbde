//! What the SDK asks of a client: who we are, the project as root, and what to do with a server's notices.
#![allow(deprecated)] // roots and server logs are on their way out of MCP, and in use everywhere

use std::collections::HashMap;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rmcp::model::{
    ClientCapabilities, ClientConfig, CreateMessageRequestParams, CreateMessageResult, ElicitRequestParams,
    ElicitResult, ElicitationCapability, ErrorData, FormElicitationCapability, Implementation, ListRootsResult,
    LoggingLevel, LoggingMessageNotificationParam, ProgressNotificationParam, ProgressToken, ProtocolVersion, Root,
    RootsCapabilities, UrlElicitationCapability,
};
use rmcp::service::{NotificationContext, RequestContext, RoleClient};
use rmcp::{ClientHandler, ErrorData as McpError};
use tokio::sync::{Notify, mpsc};
use vance_shared::names::PackName;
use vance_shared::show::plain;

use crate::flights::Flights;
use crate::handle::{HostEnv, Progress};
use crate::mask::Mask;
use crate::people::{People, SAMPLING_IS_OFF};

/// Longest server log message that is kept.
const LOG_CHARS: usize = 2_000;
/// Log messages of one server that are kept in one window.
const LOGS_PER_WINDOW: u32 = 200;
const LOG_WINDOW: Duration = Duration::from_secs(10);

/// Who waits for progress over HTTP, by the SDK's token. A lock, because the SDK's tasks report and every caller registers; one map operation each.
#[derive(Debug, Default, Clone)]
pub(crate) struct Listeners(Arc<Mutex<HashMap<ProgressToken, mpsc::Sender<Box<Progress>>>>>);

impl Listeners {
    pub(crate) fn add(&self, token: ProgressToken, to: mpsc::Sender<Box<Progress>>) {
        self.map().insert(token, to);
    }

    pub(crate) fn remove(&self, token: &ProgressToken) {
        self.map().remove(token);
    }

    fn map(&self) -> MutexGuard<'_, HashMap<ProgressToken, mpsc::Sender<Box<Progress>>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

pub(crate) struct Client {
    pack: PackName,
    mask: Arc<Mask>,
    config: ClientConfig,
    roots: Vec<Root>,
    people: People,
    flights: Arc<Flights>,
    logs: LogLines,
    /// Rung when the server's tools may have changed; any number of rings before it is heard are one.
    changed: Arc<Notify>,
    listeners: Listeners,
}

impl Client {
    pub(crate) fn new(
        pack: PackName,
        mask: Arc<Mask>,
        env: &HostEnv,
        people: &People,
        flights: Arc<Flights>,
        changed: Arc<Notify>,
        listeners: Listeners,
    ) -> Self {
        let roots: Vec<Root> = env.project_dir.as_deref().map(root).into_iter().collect();
        let mut capabilities = ClientCapabilities::default();
        if !roots.is_empty() {
            capabilities.roots = Some(RootsCapabilities::default());
        }
        if people.elicit.is_some() {
            capabilities.elicitation = Some(
                ElicitationCapability::new()
                    .with_form(FormElicitationCapability::new())
                    .with_url(UrlElicitationCapability::new()),
            );
        }
        let mut config =
            ClientConfig::new(capabilities, Implementation::new(env.client_name.clone(), env!("CARGO_PKG_VERSION")));
        config.protocol_version = ProtocolVersion::V_2025_11_25;
        Self {
            pack,
            mask,
            config,
            roots,
            people: people.clone(),
            flights,
            logs: LogLines::default(),
            changed,
            listeners,
        }
    }

    pub(crate) fn config(&self) -> &ClientConfig {
        &self.config
    }
}

/// How many log lines are shown: a server that floods the log hides the others'.
#[derive(Debug, Default)]
struct LogLines(Mutex<(Option<Instant>, u32)>);

enum Next {
    Show,
    /// The first one too many.
    Mute,
    Muted,
}

impl LogLines {
    fn next(&self, now: Instant) -> Next {
        let mut lines = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if lines.0.is_none_or(|begin| now.duration_since(begin) >= LOG_WINDOW) {
            *lines = (Some(now), 0);
        }
        lines.1 = lines.1.saturating_add(1);
        match lines.1 {
            ..=LOGS_PER_WINDOW => Next::Show,
            n if n == LOGS_PER_WINDOW + 1 => Next::Mute,
            _ => Next::Muted,
        }
    }
}

/// The answer to `roots/list`, for servers that ask in the middle of a call.
pub(crate) fn roots_json(project_dir: Option<&Path>) -> serde_json::Value {
    let roots: Vec<Root> = project_dir.map(root).into_iter().collect();
    serde_json::json!({ "roots": roots })
}

fn root(project_dir: &Path) -> Root {
    let root = Root::new(file_uri(project_dir));
    match project_dir.file_name().and_then(|name| name.to_str()) {
        Some(name) => root.with_name(name),
        None => root,
    }
}

/// `file://` and the path, percent-encoded where RFC 3986 wants it.
fn file_uri(path: &Path) -> String {
    let mut uri = "file://".to_owned();
    for byte in path.as_os_str().as_encoded_bytes() {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' | b'/' => uri.push(char::from(*byte)),
            other => uri.push_str(&format!("%{other:02X}")),
        }
    }
    uri
}

impl ClientHandler for Client {
    fn get_info(&self) -> ClientConfig {
        self.config.clone()
    }

    async fn list_roots(&self, _: RequestContext<RoleClient>) -> Result<ListRootsResult, McpError> {
        if self.roots.is_empty() {
            return Err(ErrorData::invalid_request("this client has no roots", None));
        }
        Ok(ListRootsResult::new(self.roots.clone()))
    }

    async fn create_elicitation(
        &self,
        request: ElicitRequestParams,
        context: RequestContext<RoleClient>,
    ) -> Result<ElicitResult, McpError> {
        let mut params = serde_json::to_value(&request).unwrap_or_default();
        self.mask.value(&mut params);
        let answer = tokio::select! {
            answer = self.flights.ask(&self.people, &self.pack, &params) => answer,
            () = context.ct.cancelled() => return Err(ErrorData::internal_error("the question was withdrawn", None)),
        };
        serde_json::from_value(answer).map_err(|error| ErrorData::internal_error(error.to_string(), None))
    }

    async fn create_message(
        &self,
        _: CreateMessageRequestParams,
        _: RequestContext<RoleClient>,
    ) -> Result<CreateMessageResult, McpError> {
        tracing::warn!(pack = %self.pack, "{SAMPLING_IS_OFF}");
        Err(ErrorData::invalid_request(SAMPLING_IS_OFF, None))
    }

    async fn on_tool_list_changed(&self, _: NotificationContext<RoleClient>) {
        self.changed.notify_one();
    }

    async fn on_resource_list_changed(&self, _: NotificationContext<RoleClient>) {
        self.changed.notify_one();
    }

    async fn on_prompt_list_changed(&self, _: NotificationContext<RoleClient>) {
        self.changed.notify_one();
    }

    async fn on_progress(&self, params: ProgressNotificationParam, _: NotificationContext<RoleClient>) {
        let fraction = params.total.filter(|total| *total > 0.0).map(|total| (params.progress / total).clamp(0.0, 1.0));
        let to = self.listeners.map().get(&params.progress_token).cloned();
        if let Some(to) = to
            && to.try_send(Box::new(Progress { fraction, message: params.message })).is_err()
        {
            tracing::trace!(pack = %self.pack, "a progress report too many");
        }
    }

    async fn on_logging_message(&self, params: LoggingMessageNotificationParam, _: NotificationContext<RoleClient>) {
        match self.logs.next(Instant::now()) {
            Next::Show => {}
            Next::Mute => {
                tracing::warn!(pack = %self.pack, "the server logs more than {LOGS_PER_WINDOW} lines in {} s; more are left out", LOG_WINDOW.as_secs());
                return;
            }
            Next::Muted => return,
        }
        let text = params.data.as_str().map_or_else(|| params.data.to_string(), str::to_owned);
        let text = self.mask.owned(text);
        let text = plain(&text.chars().take(LOG_CHARS).collect::<String>());
        let logger = plain(&self.mask.text(params.logger.as_deref().unwrap_or("-")));
        match params.level {
            // Chatter of a server, however important to itself, is for whoever looks into that server.
            LoggingLevel::Debug | LoggingLevel::Info | LoggingLevel::Notice => {
                tracing::debug!(pack = %self.pack, logger, "server log: {text}")
            }
            // What a server calls an emergency is a warning here: ours goes on.
            _ => tracing::warn!(pack = %self.pack, logger, level = ?params.level, "server log: {text}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flood_of_log_lines_is_named_once_and_ends_with_its_window() {
        let (lines, begin) = (LogLines::default(), Instant::now());
        let count = |now: Instant, of: fn(&Next) -> bool| (0..1_000).filter(|_| of(&lines.next(now))).count();
        assert_eq!(count(begin, |next| matches!(next, Next::Show)), 200);
        assert_eq!(count(begin, |next| !matches!(next, Next::Muted)), 0);
        let later = begin + LOG_WINDOW;
        assert_eq!(count(later, |next| matches!(next, Next::Mute)), 1);
    }

    #[test]
    fn a_root_is_a_uri() {
        assert_eq!(file_uri(Path::new("/a b/ü.d")), "file:///a%20b/%C3%BC.d");
        assert_eq!(roots_json(Some(Path::new("/x/y")))["roots"][0]["name"], "y");
        assert_eq!(roots_json(None)["roots"], serde_json::json!([]));
    }
}
