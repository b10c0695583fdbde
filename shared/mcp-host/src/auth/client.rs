//! The SDK's HTTP client with a token: what the server refuses is tried again with another one.

use std::collections::HashMap;
use std::sync::Arc;

use futures_util::StreamExt as _;
use futures_util::stream::BoxStream;
use http::{HeaderName, HeaderValue};
use rmcp::model::ClientJsonRpcMessage;
use rmcp::transport::auth::AuthError;
use rmcp::transport::streamable_http_client::{
    SseError, StreamableHttpClient, StreamableHttpError, StreamableHttpPostResponse, StreamableHttpResponseLimits,
};
use sse_stream::Sse;
use vance_shared::mend;

use super::session::{Challenge, Session};
use super::{AuthFault, shown};
use crate::http::Endpoint;

pub(crate) type HttpError = StreamableHttpError<reqwest::Error>;
type Headers = HashMap<HeaderName, HeaderValue>;

/// How often one request is tried again: a refused token, its renewal refused too, and a few questions for more scopes.
const MAX_TRIES: usize = 6;
/// A server's answer to a question that only wants its refusal.
const PROBE: &str = r#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#;

/// An HTTP client, with the token of its session if it has one.
#[derive(Clone)]
pub(crate) struct HttpClient {
    http: reqwest::Client,
    session: Option<Arc<Session>>,
}

impl HttpClient {
    pub(crate) fn new(http: reqwest::Client, session: Option<Arc<Session>>) -> Self {
        Self { http, session }
    }

    async fn with_token<T, F>(&self, call: impl Fn(Option<String>) -> F) -> Result<T, HttpError>
    where
        F: Future<Output = Result<T, HttpError>>,
    {
        let Some(session) = &self.session else { return call(None).await };
        let mut token = session.token().await.map_err(of_fault)?;
        let (mut renewed, mut asked_for_more) = (false, false);
        for _ in 1..MAX_TRIES {
            let error = match call(token.clone()).await {
                Ok(done) => {
                    if asked_for_more {
                        session.content().await;
                    }
                    return Ok(done);
                }
                Err(error) => error,
            };
            let Some(challenge) = challenge_of(&error) else { return Err(error) };
            // One renewal: a token that is refused when it is new is not the trouble.
            let again = if challenge.scope.is_some() { true } else { !std::mem::replace(&mut renewed, true) };
            if !session.answers(&challenge) {
                return Err(error);
            }
            if !again {
                return Err(of_fault(session.still_refused()));
            }
            asked_for_more |= challenge.scope.is_some();
            token = Some(session.other(token.as_deref(), &challenge).await.map_err(of_fault)?);
        }
        call(token).await
    }
}

/// A fault on its way through the SDK: nothing of the request reached a tool.
fn of_fault(fault: AuthFault) -> HttpError {
    StreamableHttpError::Auth(AuthError::AuthorizationFailed(fault.to_string()))
}

fn challenge_of(error: &HttpError) -> Option<Challenge> {
    match error {
        StreamableHttpError::AuthRequired(error) => {
            Some(Challenge { header: Some(error.www_authenticate_header.clone()), scope: None })
        }
        StreamableHttpError::InsufficientScope(error) => {
            let scope = error.required_scope.clone().filter(|scope| !scope.is_empty())?;
            Some(Challenge { header: Some(error.www_authenticate_header.clone()), scope: Some(scope) })
        }
        error if is_unauthorized(error) => Some(Challenge::default()),
        _ => None,
    }
}

/// A 401 without a challenge, which the SDK tells by its text alone.
pub(crate) fn is_unauthorized(error: &HttpError) -> bool {
    matches!(error, StreamableHttpError::UnexpectedServerResponse(text) if text.starts_with("HTTP 401"))
        || matches!(error, StreamableHttpError::Client(error) if error.status() == Some(reqwest::StatusCode::UNAUTHORIZED))
}

/// What a server says to somebody without a token.
pub(super) async fn challenge(client: &reqwest::Client, endpoint: &Endpoint) -> Result<Challenge, AuthFault> {
    let request = client
        .post(&endpoint.url)
        .headers(endpoint.headers.clone().into_iter().collect())
        .header(http::header::ACCEPT, "application/json, text/event-stream")
        .header(http::header::CONTENT_TYPE, "application/json")
        .body(PROBE);
    let response = request.send().await.map_err(|error| AuthFault::Server(crate::fault::request(&error)))?;
    let header = response.headers().get(http::header::WWW_AUTHENTICATE).and_then(|value| value.to_str().ok());
    tracing::debug!(status = %response.status(), challenge = shown(header.unwrap_or("-")), "asked without a token");
    Ok(Challenge { header: header.map(str::to_owned), scope: None })
}

type Events = BoxStream<'static, Result<Sse, SseError>>;

/// Events whose JSON is put right where servers are known to be sloppy.
fn put_right(events: Events) -> Events {
    let mended = |mut event: Sse| {
        event.data = event.data.map(mend::message);
        event
    };
    events.map(move |event| event.map(mended)).boxed()
}

impl StreamableHttpClient for HttpClient {
    type Error = reqwest::Error;

    async fn post_message(
        &self,
        uri: Arc<str>,
        message: ClientJsonRpcMessage,
        session_id: Option<Arc<str>>,
        auth: Option<String>,
        headers: Headers,
    ) -> Result<StreamableHttpPostResponse, HttpError> {
        let limits = StreamableHttpResponseLimits::default();
        self.post_message_with_response_limits(uri, message, session_id, auth, headers, limits).await
    }

    async fn post_message_with_response_limits(
        &self,
        uri: Arc<str>,
        message: ClientJsonRpcMessage,
        session_id: Option<Arc<str>>,
        _: Option<String>,
        headers: Headers,
        limits: StreamableHttpResponseLimits,
    ) -> Result<StreamableHttpPostResponse, HttpError> {
        self.with_token(|token| {
            let (uri, message, session_id) = (Arc::clone(&uri), message.clone(), session_id.clone());
            self.http.post_message_with_response_limits(uri, message, session_id, token, headers.clone(), limits)
        })
        .await
        .map(|response| match response {
            StreamableHttpPostResponse::Sse(events, session) => {
                StreamableHttpPostResponse::Sse(put_right(events), session)
            }
            other => other,
        })
    }

    async fn delete_session(
        &self,
        uri: Arc<str>,
        session_id: Arc<str>,
        _: Option<String>,
        headers: Headers,
    ) -> Result<(), HttpError> {
        let token = match &self.session {
            Some(session) => session.token().await.map_err(of_fault)?,
            None => None,
        };
        self.http.delete_session(uri, session_id, token, headers).await
    }

    async fn get_stream(
        &self,
        uri: Arc<str>,
        session_id: Option<Arc<str>>,
        last_event_id: Option<String>,
        auth: Option<String>,
        headers: Headers,
    ) -> Result<BoxStream<'static, Result<Sse, SseError>>, HttpError> {
        let max = StreamableHttpResponseLimits::default().max_sse_event_size;
        self.get_stream_with_max_sse_event_size(uri, session_id, last_event_id, auth, headers, max).await
    }

    async fn get_stream_with_max_sse_event_size(
        &self,
        uri: Arc<str>,
        session_id: Option<Arc<str>>,
        last_event_id: Option<String>,
        _: Option<String>,
        headers: Headers,
        max_sse_event_size: usize,
    ) -> Result<BoxStream<'static, Result<Sse, SseError>>, HttpError> {
        self.with_token(|token| {
            let (uri, session_id, last) = (Arc::clone(&uri), session_id.clone(), last_event_id.clone());
            self.http.get_stream_with_max_sse_event_size(
                uri,
                session_id,
                last,
                token,
                headers.clone(),
                max_sse_event_size,
            )
        })
        .await
        .map(put_right)
    }
}
