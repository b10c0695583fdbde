//! A connection to a server: how a request is put to it, over pipes as raw JSON or over HTTP through the SDK.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use rmcp::RoleClient;
use rmcp::model::{
    CallToolRequest, CallToolRequestParams, ClientRequest, ListToolsRequest, MetaObject, PaginatedRequestParams,
    PingRequest, RequestMetaObject,
};
use rmcp::service::{Peer, PeerRequestOptions, RequestHandle, ServiceError};
use serde_json::{Map, Value};
use tokio::sync::{mpsc, oneshot};
use tokio::time::Instant;
use tokio_util::task::TaskTracker;
use vance_shared::json::Raw;

use crate::auth::{AuthFault, Session};
use crate::client::Listeners;
use crate::fault::{Doubt, verdict};
use crate::handle::Progress;
use crate::lane::{InFlight, Reply};
use crate::mask::Mask;
use crate::stdio::Pipes;

/// `_meta` key of the idempotency key.
pub const CALL_ID_META: &str = "vancetope/call_id";
/// `_meta` key of the W3C trace context.
pub const TRACEPARENT_META: &str = "traceparent";
/// Progress reports that wait for their caller.
const PROGRESS_REPORTS: usize = 16;

/// What a request waits for that has a login.
const RENEWING: &str = "the server's token was still being renewed";

/// Whether a server is there is known after this time: somewhat more than a connection takes to fail.
const THERE_WAIT: Duration = Duration::from_secs(15);

/// A `tools/call`.
#[derive(Debug, Clone)]
pub(crate) struct Call {
    pub(crate) subtool: String,
    pub(crate) arguments: Raw,
    pub(crate) traceparent: String,
    pub(crate) call_id: String,
    /// What the server asked for in the round before.
    pub(crate) input: Option<Input>,
}

/// Any other request, with its parameters.
#[derive(Debug, Clone)]
pub(crate) struct Ask {
    pub(crate) method: &'static str,
    pub(crate) params: Map<String, Value>,
    /// Trace context and id of the call that it belongs to.
    pub(crate) call: Option<(String, String)>,
    /// What the server asked for in the round before.
    pub(crate) input: Option<Input>,
}

impl Ask {
    /// A question of our own.
    pub(crate) fn plain(method: &'static str) -> Self {
        Self { method, params: Map::new(), call: None, input: None }
    }
}

/// Answers to what a server asked in the middle of a call.
#[derive(Debug, Clone)]
pub(crate) struct Input {
    pub(crate) responses: Map<String, Value>,
    pub(crate) state: Option<Raw>,
}

pub(crate) enum Conn {
    Pipes(Arc<Pipes>),
    Http(Http),
}

/// When, and what is wrong.
type Asked = (Instant, Option<String>);

/// A server behind HTTP.
///
/// Each request is an exchange of its own: one that ends badly is a reason to ask whether the server is still there, and costs nothing else.
#[derive(Clone)]
pub(crate) struct Http {
    peer: Peer<RoleClient>,
    listeners: Listeners,
    mask: Arc<Mask>,
    /// Hears that the server is not there any more.
    trouble: mpsc::Sender<String>,
    /// Requests under way.
    exchanges: TaskTracker,
    /// When it was asked last whether it is there, and what is wrong. A lock, so that a hundred failed requests ask once.
    asked: Arc<tokio::sync::Mutex<Option<Asked>>>,
    /// Its login, where it has one.
    session: Option<Arc<Session>>,
}

impl Conn {
    pub(crate) fn call(&self, call: &Call) -> InFlight {
        match self {
            Self::Pipes(pipes) => call_over_pipes(pipes, call),
            Self::Http(http) => http.call(call),
        }
    }

    /// A request that is no call.
    pub(crate) fn ask(&self, ask: &Ask) -> InFlight {
        match self {
            Self::Pipes(pipes) => ask_over_pipes(pipes, ask),
            Self::Http(http) => http.ask(ask),
        }
    }

    /// One page of `tools/list`.
    pub(crate) fn page(&self, cursor: Option<&str>) -> InFlight {
        match self {
            Self::Pipes(pipes) => {
                let cursor = cursor.map(|cursor| Value::from(cursor).to_string());
                let params: Vec<(&str, &str)> = cursor.iter().map(|cursor| ("cursor", cursor.as_str())).collect();
                pipes.lane.request("tools/list", &params, &[])
            }
            Self::Http(http) => {
                let params = PaginatedRequestParams::default().with_cursor(cursor.map(str::to_owned));
                http.send(ClientRequest::ListToolsRequest(ListToolsRequest::with_param(params)), None)
            }
        }
    }

    /// Asks whether the server is still there, where the protocol has such a question and the line does not tell by itself.
    pub(crate) fn ping(&self) -> Option<InFlight> {
        match self {
            Self::Pipes(_) => None,
            Self::Http(http) => {
                http.speaks_ping().then(|| http.send(ClientRequest::PingRequest(PingRequest::default()), None))
            }
        }
    }
}

fn call_over_pipes(pipes: &Pipes, call: &Call) -> InFlight {
    let name = Value::from(call.subtool.as_str()).to_string();
    let responses = call.input.as_ref().map(|input| Value::Object(input.responses.clone()).to_string());
    let mut params = vec![("name", name.as_str()), ("arguments", call.arguments.get())];
    params.extend(responses.as_deref().map(|responses| ("inputResponses", responses)));
    params
        .extend(call.input.as_ref().and_then(|input| input.state.as_ref()).map(|state| ("requestState", state.get())));
    let meta = [(TRACEPARENT_META, call.traceparent.clone()), (CALL_ID_META, call.call_id.clone())];
    pipes.lane.request("tools/call", &params, &meta)
}

fn ask_over_pipes(pipes: &Pipes, ask: &Ask) -> InFlight {
    let mut all = ask.params.clone();
    all.extend(answers(ask.input.as_ref()));
    let texts: Vec<(&str, String)> = all.iter().map(|(key, value)| (key.as_str(), value.to_string())).collect();
    let params: Vec<(&str, &str)> = texts.iter().map(|(key, text)| (*key, text.as_str())).collect();
    let meta = ask
        .call
        .iter()
        .flat_map(|(traceparent, call_id)| [(TRACEPARENT_META, traceparent.clone()), (CALL_ID_META, call_id.clone())]);
    pipes.lane.request(ask.method, &params, &meta.collect::<Vec<_>>())
}

/// The members that answer a server's questions.
fn answers(input: Option<&Input>) -> Map<String, Value> {
    let mut members = Map::new();
    if let Some(input) = input {
        members.insert("inputResponses".to_owned(), Value::Object(input.responses.clone()));
        members.extend(input.state.as_ref().map(|state| ("requestState".to_owned(), state.value())));
    }
    members
}

impl Http {
    pub(crate) fn new(
        peer: Peer<RoleClient>,
        listeners: Listeners,
        mask: Arc<Mask>,
        trouble: mpsc::Sender<String>,
        session: Option<Arc<Session>>,
    ) -> Self {
        Self { peer, listeners, mask, trouble, exchanges: TaskTracker::new(), asked: Arc::default(), session }
    }

    /// Waits until no request is under way.
    pub(crate) async fn drained(&self) {
        self.exchanges.close();
        self.exchanges.wait().await;
    }

    /// Asks the server for something that costs nothing, after a request that ended badly; says it where the trouble is heard, if
    /// that ends so, too.
    async fn is_there(&self) -> bool {
        let since = Instant::now();
        let mut asked = self.asked.lock().await;
        let trouble = match asked.take().filter(|(at, _)| *at >= since) {
            Some((_, known)) => known,
            None => self.trouble_now().await,
        };
        let is_there = trouble.is_none();
        if let Some(why) = trouble.clone()
            && self.trouble.try_send(why).is_err()
        {
            tracing::trace!("the trouble is known");
        }
        *asked = Some((Instant::now(), trouble));
        is_there
    }

    async fn trouble_now(&self) -> Option<String> {
        let request = match self.speaks_ping() {
            true => ClientRequest::PingRequest(PingRequest::default()),
            false => ClientRequest::ListToolsRequest(ListToolsRequest::default()),
        };
        let answer = tokio::time::timeout(THERE_WAIT, self.peer.send_request(request)).await;
        // Who takes long is there.
        let Ok(Err(error)) = answer else { return None };
        match verdict(error, &self.mask) {
            (Reply::Lost { why, .. }, Some(_)) => Some(why),
            _ => None,
        }
    }

    fn speaks_ping(&self) -> bool {
        self.peer.peer_info().is_none_or(|info| info.protocol_version.has_initialize())
    }

    fn ask(&self, ask: &Ask) -> InFlight {
        let mut params = ask.params.clone();
        params.extend(answers(ask.input.as_ref()));
        let request = serde_json::json!({ "method": ask.method, "params": params });
        match serde_json::from_value::<ClientRequest>(request) {
            Ok(request) => {
                let meta = ask.call.as_ref().map(|(traceparent, call_id)| meta_of(traceparent, call_id));
                self.send(request, meta)
            }
            Err(error) => {
                let reply = Reply::Error { code: -32602, message: format!("{} cannot be said: {error}", ask.method) };
                InFlight::new(std::future::ready(reply), mpsc::channel(1).1, |_| {})
            }
        }
    }

    fn call(&self, call: &Call) -> InFlight {
        let mut params = CallToolRequestParams::new(call.subtool.clone());
        // Checked before: it is an object.
        params.arguments = call.arguments.to().ok();
        if let Some(input) = &call.input {
            params.input_responses = Some(input.responses.clone().into_iter().collect());
            params.request_state = input.state.as_ref().and_then(|state| state.to().ok());
        }
        let request = CallToolRequest::new(params);
        let meta = meta_of(&call.traceparent, &call.call_id);
        self.send(ClientRequest::CallToolRequest(request), Some(meta))
    }

    fn send(&self, request: ClientRequest, meta: Option<RequestMetaObject>) -> InFlight {
        let (reply_to, reply) = oneshot::channel();
        let (progress_to, progress) = mpsc::channel(PROGRESS_REPORTS);
        let (cancel, mut cancelled) = oneshot::channel::<String>();
        let mut options = PeerRequestOptions::no_options();
        options.meta = meta;
        let http = self.clone();
        let held = Arc::new(Mutex::new(self.session.is_some().then_some(RENEWING)));
        let holding = Arc::clone(&held);
        self.exchanges.spawn(async move {
            if let Some(session) = &http.session {
                let ready = tokio::select! {
                    ready = session.ready() => ready,
                    _ = &mut cancelled => return,
                };
                if let Err(fault) = ready {
                    return drop(reply_to.send(without_token(&fault)));
                }
                *holding.lock().unwrap_or_else(PoisonError::into_inner) = None;
            }
            let exchanged = exchange(&http.peer, request, options, &http.listeners, progress_to, cancelled).await;
            let Some(exchanged) = exchanged else { return };
            let (reply, doubt) = exchanged.map_or_else(|error| verdict(error, &http.mask), |reply| (reply, None));
            match doubt {
                None => drop(reply_to.send(reply)),
                Some(Doubt::Session) => {
                    let reply = if http.is_there().await { not_found() } else { reply };
                    drop(reply_to.send(reply));
                }
                Some(Doubt::Server) => {
                    drop(reply_to.send(reply));
                    http.is_there().await;
                }
            }
        });
        let ended = async move {
            reply.await.unwrap_or_else(|_| Reply::Lost { why: "the request was given up".to_owned(), began: true })
        };
        InFlight::new(ended, progress, move |why| drop(cancel.send(why.to_owned()))).held_by(held)
    }
}

/// Nothing was sent. Another process that is at it passes by itself.
fn without_token(fault: &AuthFault) -> Reply {
    match fault {
        AuthFault::Busy => Reply::Lost { why: fault.to_string(), began: false },
        AuthFault::NeedsLogin { .. }
        | AuthFault::NeedsScope { .. }
        | AuthFault::StillRefused { .. }
        | AuthFault::TakesNone { .. }
        | AuthFault::Refused(_)
        | AuthFault::TimedOut
        | AuthFault::Store(_)
        | AuthFault::Server(_)
        | AuthFault::Pack(_) => Reply::Refused(fault.to_string()),
    }
}

/// A server that knows the session and not the request.
fn not_found() -> Reply {
    Reply::Error { code: 404, message: "the server answered this request with HTTP 404".to_owned() }
}

fn meta_of(traceparent: &str, call_id: &str) -> RequestMetaObject {
    let mut meta = MetaObject::new();
    meta.0.insert(TRACEPARENT_META.to_owned(), Value::from(traceparent));
    meta.0.insert(CALL_ID_META.to_owned(), Value::from(call_id));
    RequestMetaObject(meta)
}

/// One request and its end. `None`: cancelled, nobody listens.
async fn exchange(
    peer: &Peer<RoleClient>,
    request: ClientRequest,
    options: PeerRequestOptions,
    listeners: &Listeners,
    progress: mpsc::Sender<Box<Progress>>,
    mut cancelled: oneshot::Receiver<String>,
) -> Option<Result<Reply, ServiceError>> {
    let sent = tokio::select! {
        sent = peer.send_request_with_option(request, options) => sent,
        _ = &mut cancelled => return None,
    };
    let mut handle: RequestHandle<RoleClient> = match sent {
        Ok(handle) => handle,
        Err(error) => return Some(Err(error)),
    };
    let token = handle.progress_token.clone();
    listeners.add(token.clone(), progress);
    let ended = tokio::select! {
        answer = &mut handle.rx => Some(match answer {
            Ok(Ok(result)) => Ok(Raw::of(&result).map_or_else(|error| Reply::Error { code: 0, message: error.to_string() }, Reply::Result)),
            Ok(Err(error)) => Err(error),
            Err(_) => Err(ServiceError::TransportClosed),
        }),
        why = &mut cancelled => {
            let id = handle.id.clone();
            if let Err(error) = handle.cancel(why.ok()).await {
                tracing::debug!(%id, %error, "a cancel could not be sent");
            }
            None
        }
    };
    listeners.remove(&token);
    ended
}
