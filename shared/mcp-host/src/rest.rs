//! A pack whose server is an HTTP API: its document is read, its operations are tools, calls are requests.
//!
//! What a document, a call or an answer means is [`vance_rest`]'s to say; here are the network, the files and the waits.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde_json::Map;
use tokio::sync::Semaphore;
use vance_observability::names::{CALL_ATTEMPT, HTTP_HOST, HTTP_METHOD, HTTP_PATH, HTTP_STATUS};
use vance_observability::spans::Span;
use vance_rest::api::Api;
use vance_rest::attempt::{self, Ended, Next, Redirect};
use vance_rest::error::Code;
use vance_rest::exposure::{self, Called};
use vance_rest::operation::Operation;
use vance_rest::request::{self, Context, Files};
use vance_rest::result::{Answer, refusal, shape};
use vance_rest::settings::Settings;
use vance_shared::call::{Fault, Outcome};
use vance_shared::json::Raw;
use vance_shared::launch::rest::RestPlan;
use vance_shared::launch::{Origin, TrustedLaunch};
use vance_shared::names::SUBTOOL_SEPARATOR;

use crate::addresses::Addresses;
use crate::budget::Cause;
use crate::env;
use crate::handle::{CallRequest, HostEnv};
use crate::link::Refused;
use crate::tools::{Route, Table, Work};

mod document;
mod leads;
mod local;
mod look;
mod outgoing;
mod send;
mod tokens;
pub use leads::leads;
pub(crate) use local::{files, with_base};
pub use look::{Looked, dry_run, look};

pub use outgoing::ReadFile;
use send::{Incoming, Limits, Lost, Outgoing, Sender};
use tokens::Keeper;

/// Why a pack without tools does not load.
const NO_TOOLS: &str = "its document has no operation that could be a tool (`include` and `exclude` counted)";

/// An API whose document was read.
pub(crate) struct RestPack {
    api: Api,
    settings: Settings,
    sender: Sender,
    tokens: Keeper,
    places: Semaphore,
    plan: RestPlan,
    read_file: Option<ReadFile>,
}

impl RestPack {
    /// Reads the document. With what a person should know about the pack.
    pub(crate) async fn open(
        plan: &RestPlan,
        launch: &TrustedLaunch,
        host: &HostEnv,
    ) -> Result<(Self, Vec<String>), Refused> {
        let refused = |why: String, hopeless| {
            // Whoever loads packs waits for those that are away; a document that cannot be had is tried every minute anyway.
            let cause = if hopeless { Cause::Hopeless } else { Cause::Broken };
            Refused { why, cause, next: Default::default() }
        };
        let ambient = env::ambient();
        let place = format!("pack {}", plan.pack);
        let settings = Settings::of(plan, &|text| {
            env::expand(text, &place, host.words(&ambient)).map_err(|error| error.to_string())
        });
        let mut warnings: Vec<String> = settings.missing().iter().map(|fault| fault.message.clone()).collect();
        let read =
            document::read(plan, Some(launch), host).await.map_err(|failed| refused(failed.why, failed.hopeless))?;
        warnings.extend(read.warning);
        let (of, document) = (plan.clone(), read.document);
        let loading = tokio::task::spawn_blocking(move || {
            let api = Api::load(document, &of);
            // Schemas are made here and not on the thread of the actors.
            let tools = exposure::tools(&api).len();
            (api, tools)
        });
        let (api, tools) = loading.await.map_err(|error| refused(format!("its document: {error}"), true))?;
        warnings.extend(api.warnings().iter().cloned());
        if let [first, ..] = api.skipped() {
            warnings.push(format!(
                "{} operation(s) of its document are left out, the first is {} ({}); `packs check` names all",
                api.skipped().len(),
                first.operation,
                first.reason
            ));
        }
        if tools == 0 {
            return Err(refused(NO_TOOLS.to_owned(), true));
        }
        let addresses = match (plan.allow_private_network, plan.origin) {
            (true, Origin::Global | Origin::Server) => Addresses::anywhere(),
            (true | false, _) => {
                // What consent names, and not what a document that changed since says.
                let base = settings.base().and_then(Result::ok).map(ToString::to_string).or(plan.document_base.clone());
                let hosts = plan.allowed_hosts.iter().flatten().map(|host| match host.contains("://") {
                    true => host.clone(),
                    false => format!("https://{host}"),
                });
                let led = plan.leads().into_iter().map(str::to_owned);
                let urls: Vec<String> = base.into_iter().chain(hosts).chain(led).chain(spec_url(plan)).collect();
                Addresses::naming(urls.iter().map(String::as_str))
            }
        };
        let limits = Limits { connect: plan.connect_timeout, exchange: plan.timeout, body: plan.max_response_bytes };
        let sender =
            Sender::new(&plan.tls, host.project_dir.as_deref(), addresses, limits).map_err(|why| refused(why, true))?;
        let pack = Self {
            api,
            settings,
            sender,
            tokens: Keeper::default(),
            places: Semaphore::new(plan.concurrency),
            read_file: host.read_file.clone(),
            plan: plan.clone(),
        };
        Ok((pack, warnings))
    }

    /// Its tools.
    pub(crate) fn table(&self) -> Table {
        let specs = exposure::tools(&self.api);
        let mut routes = HashMap::with_capacity(specs.len());
        for spec in &specs {
            let name = spec.name.as_str();
            let subtool = name.split_once(SUBTOOL_SEPARATOR).map_or(name, |(_, sub)| sub).to_owned();
            let route = Route { subtool, defaults: Map::new(), coercion: None, work: Work::Tool };
            routes.insert(spec.name.clone(), route);
        }
        Table { specs: specs.into(), routes: Arc::new(routes) }
    }

    /// One call. Its deadline and its cancel end the request.
    pub(crate) async fn call(
        &self,
        request: &CallRequest,
        sub_tool: &str,
        arguments: &Raw,
        span: &mut Span,
    ) -> Outcome {
        let limit = request.timeout.max(request.cap);
        tokio::select! {
            biased;
            () = request.cancel.cancelled() => {
                Outcome::Cancelled { reason: "cancelled; the request was broken off".to_owned() }
            }
            outcome = tokio::time::timeout(limit, self.answer(request, sub_tool, arguments, span)) => {
                outcome.unwrap_or_else(|_| failed(Code::Timeout.fault(format!(
                    "no answer within {} s; the request was broken off, but the server may have acted",
                    limit.as_secs_f64()
                ))))
            }
        }
    }

    async fn answer(&self, request: &CallRequest, sub_tool: &str, arguments: &Raw, span: &mut Span) -> Outcome {
        match exposure::called(&self.api, sub_tool, &arguments.value()) {
            Err(fault) => failed(fault),
            Ok(Called::Answer(result)) => Outcome::of(result),
            Ok(Called::Operation(operation, arguments)) => {
                let Ok(_place) = self.places.acquire().await else {
                    return Outcome::failed("unavailable", "the pack ends; nothing ran");
                };
                span.set(HTTP_METHOD, &operation.method);
                span.set(HTTP_PATH, &operation.path);
                let errand =
                    Errand { pack: self, operation, arguments: &arguments, call_id: request.call_id.to_string() };
                errand.run(span).await.unwrap_or_else(failed)
            }
        }
    }
}

/// One operation's call.
struct Errand<'a> {
    pack: &'a RestPack,
    operation: &'a Operation,
    arguments: &'a serde_json::Value,
    call_id: String,
}

impl Errand<'_> {
    /// Attempts until one counts.
    async fn run(&self, span: &mut Span) -> Result<Outcome, Fault> {
        let (pack, method) = (self.pack, self.operation.method.as_str());
        let harmless = self.operation.repeats_by_key();
        let mut out = self.build().await?;
        span.set(HTTP_HOST, out.url.host_str().unwrap_or_default());
        let (mut done, mut hops, mut renewed) = (0, 0, false);
        loop {
            done += 1;
            span.set(CALL_ATTEMPT, done);
            let sent = pack.sender.send(out.clone()).await;
            let ended = match &sent {
                Ok(answer) => {
                    span.set(HTTP_STATUS, answer.status);
                    let location = answer.header("location");
                    match attempt::redirect(method, &out.url, answer.status, location, hops) {
                        Redirect::Follow(to) => {
                            out.url = to;
                            hops += 1;
                            done -= 1;
                            continue;
                        }
                        Redirect::Refused(fault) => return Err(fault),
                        Redirect::Stop => {}
                    }
                    if answer.status == 401 && !std::mem::replace(&mut renewed, true) && self.renew().await? {
                        out = self.build().await?;
                        done -= 1;
                        continue;
                    }
                    let wait = answer.header("retry-after").and_then(|text| attempt::retry_after(text, now()));
                    Ended::Status(answer.status, wait)
                }
                Err(Lost::Connect(_)) => Ended::NotConnected,
                Err(Lost::Timeout) => Ended::TimedOut,
                Err(Lost::Broken(_)) => Ended::Broken,
                // No other attempt would do better.
                Err(Lost::Tls(_) | Lost::TooLarge(_) | Lost::Forbidden(_)) => return Ok(self.lost(sent.err()).await),
            };
            match attempt::next(method, harmless, ended, done, pack.plan.retry, chance()) {
                Next::Again(wait) => tokio::time::sleep(wait).await,
                Next::Refused(fault) => return Err(fault),
                Next::Stop => {
                    return Ok(match sent {
                        Ok(answer) => self.shaped(answer).await,
                        Err(lost) => self.lost(Some(lost)).await,
                    });
                }
            }
        }
    }

    async fn build(&self) -> Result<Outgoing, Fault> {
        let pack = self.pack;
        let mut tokens = std::collections::BTreeMap::new();
        for need in request::tokens(&pack.api, self.operation, &pack.settings)? {
            let token = pack.tokens.get(&need, &pack.sender).await?;
            tokens.insert(need.key, token);
        }
        let files = if pack.read_file.is_some() { Files::Planned } else { Files::Refused };
        let context =
            Context { settings: &pack.settings, tokens: &tokens, files, call_id: Some(self.call_id.as_str()) };
        let request = request::build(&pack.api, self.operation, self.arguments, context)?;
        outgoing::outgoing(request, pack.read_file.as_ref()).await
    }

    /// Whether there is a token that another one may take the place of.
    async fn renew(&self) -> Result<bool, Fault> {
        let pack = self.pack;
        let needs = request::tokens(&pack.api, self.operation, &pack.settings)?;
        for need in &needs {
            pack.tokens.refused(need);
        }
        Ok(!needs.is_empty())
    }

    /// Beside the thread of the actors: an answer may be large.
    async fn shaped(&self, answer: Incoming) -> Outcome {
        let most = self.pack.plan.max_result_bytes;
        let shaping = tokio::task::spawn_blocking(move || shaped(&answer, most));
        // It was answered, so it must not look like something to do again.
        let unread = |error| Outcome::Unknown { reason: format!("its answer could not be read: {error}") };
        shaping.await.unwrap_or_else(unread)
    }

    async fn lost(&self, lost: Option<Lost>) -> Outcome {
        let seconds = self.pack.plan.timeout.as_secs_f64();
        let repeatable = self.operation.repeats_harmlessly();
        failed(match lost {
            Some(Lost::Connect(why)) => Code::Connect.fault(format!("{why}; nothing was sent")),
            Some(Lost::Tls(why)) => Code::Tls.fault(format!("{why}; nothing was sent")),
            Some(Lost::Forbidden(why)) => Code::HostNotAllowed.fault(why),
            // It was done, or refused: nothing to do again because of the length of the answer.
            Some(Lost::TooLarge(answer)) if !repeatable => {
                return self.shaped(answer.without_body(self.too_large())).await;
            }
            Some(Lost::TooLarge(_)) => {
                Code::ResponseTooLarge.fault(format!("{}; ask for less of it", self.too_large()))
            }
            Some(Lost::Timeout) => Code::Timeout.fault(format!("no answer within {seconds} s (`timeoutSeconds`)")),
            Some(Lost::Broken(why)) if !repeatable => {
                return Outcome::Unknown { reason: format!("the connection broke during the request: {why}") };
            }
            Some(Lost::Broken(why)) => Code::Connect.fault(format!("the connection broke: {why}")),
            None => Code::Connect.fault("there was no answer"),
        })
    }

    fn too_large(&self) -> String {
        format!("the answer has more than {} bytes (`maxResponseBytes`)", self.pack.plan.max_response_bytes)
    }
}

fn shaped(answer: &Incoming, most: usize) -> Outcome {
    let headers: Vec<(String, String)> = answer
        .headers
        .iter()
        .map(|(name, value)| (name.as_str().to_owned(), String::from_utf8_lossy(value.as_bytes()).into_owned()))
        .collect();
    let reason = http::StatusCode::from_u16(answer.status).ok().and_then(|status| status.canonical_reason());
    let answer =
        Answer { status: answer.status, reason: reason.unwrap_or_default(), headers: &headers, body: &answer.body };
    let result = shape(answer, most);
    match result.is_error {
        true => Outcome::Failed { error: Code::HttpStatus.fault(refusal(answer, &result)), result: Some(result) },
        false => Outcome::Done(result),
    }
}

fn failed(fault: Fault) -> Outcome {
    Outcome::Failed { error: fault, result: None }
}

fn spec_url(plan: &RestPlan) -> Option<String> {
    match &plan.spec {
        vance_shared::launch::rest::Spec::Url(url) => Some(url.clone()),
        vance_shared::launch::rest::Spec::File(_) | vance_shared::launch::rest::Spec::Inline(_) => None,
    }
}

/// Seconds since 1970.
fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO).as_secs()
}

/// From 0 to 1, so that many clients do not come back at once.
fn chance() -> f64 {
    use std::hash::{BuildHasher as _, RandomState};
    let bits = u32::try_from(RandomState::new().hash_one(0_u8) >> 32).unwrap_or_default();
    f64::from(bits) / f64::from(u32::MAX)
}
