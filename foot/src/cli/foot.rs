//! This machine's Foot, as the commands use it: with a Brain (`--no-ui`, `run`) or without one (`tools`).

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use vance_foot_core::merge::LeftOut;
use vance_mcp_host::stamps::Stamps;
use vance_shared::call::Outcome;
use vance_shared::ids::{CallId, ClientId, SessionId};
use vance_shared::json::Raw;
use vance_shared::names::{SUBTOOL_SEPARATOR, ToolName};
use vance_shared::show::plain;
use vance_shared::tool::ToolSpec;
use vance_supervise::ExitReason;

use super::args::CallArgs;
use super::context::Context;
use super::failure::{EXIT_OK, Failure};
use super::notify::Notify;
use super::progress::Shown;
use super::rest::Rest;
use super::settings::{token, token_files};
use crate::actors::catalogue::Catalogue;
use crate::api::Token;
use crate::engine::{self, Bearer, Connection, Foot, FootConfig, Load, LoadSummary, LocalCall, PackStatus};

/// How long `run` waits for the Brain to answer its hello. The Brain was there a moment ago.
const HELLO_WAIT: Duration = Duration::from_secs(30);
/// How long a request of the debug interface may hold up the end.
const OTHERS_WITHIN: Duration = Duration::from_secs(2);
/// Between two looks at whether it has ended.
const LOOK: Duration = Duration::from_millis(10);

/// The line to the Brain, once it stands.
pub(super) struct Line {
    /// The session that this Foot is attached to.
    pub(super) session_id: SessionId,
    /// Its identity.
    pub(super) client_id: ClientId,
}

/// A running Foot.
pub(super) struct LocalFoot(Arc<Foot>);

impl LocalFoot {
    /// Starts a Foot that keeps a line to the Brain.
    pub(super) fn start(context: &Context, session: Option<&SessionId>, client_type: &str) -> Result<Self, Failure> {
        let config = config(context, client_type)?;
        let brain_url = Some(context.general.brain.clone());
        start(FootConfig { brain_url, session: session.cloned(), ..config })
    }

    /// Starts a Foot without a Brain.
    pub(super) fn offline(context: &Context) -> Result<Self, Failure> {
        start(config(context, "cli")?)
    }

    /// Starts a Foot without a Brain for one call: a pack's tool needs its pack, a native one none.
    pub(super) fn for_call(context: &Context, tool: &ToolName) -> Result<Self, Failure> {
        let pack = tool.as_str().split_once(SUBTOOL_SEPARATOR).map(|(pack, _)| pack.to_owned());
        start(FootConfig { load: pack.map_or(Load::Nothing, Load::Only), ..config(context, "cli")? })
    }

    /// Waits until the Brain has answered the hello.
    pub(super) async fn connected(&self) -> Result<Line, Failure> {
        let mut connection = self.0.connection();
        let answered = |c: &Connection| matches!(c, Connection::Online { .. } | Connection::Refused { .. });
        let answer = tokio::time::timeout(HELLO_WAIT, connection.wait_for(answered)).await;
        match answer.map(|state| state.map(|state| state.clone())) {
            Ok(Ok(Connection::Online { session_id, client_id })) => Ok(Line { session_id, client_id }),
            Ok(Ok(Connection::Refused { why, .. })) => {
                Err(Failure::Foot(format!("the Brain refuses this Foot: {why}")))
            }
            Ok(Ok(Connection::Local | Connection::Connecting) | Err(_)) => {
                Err(Failure::Foot("this Foot has stopped".to_owned()))
            }
            Err(_) => Err(Failure::Foot("the Brain did not answer this Foot's hello in time".to_owned())),
        }
    }

    /// Waits until each pack is up, has failed, or has had its time.
    pub(super) async fn first_load(&self) -> Arc<LoadSummary> {
        self.0.first_load().await
    }

    /// The same, unless the person has enough of it.
    pub(super) async fn loaded(&self, context: &mut Context) -> Result<Arc<LoadSummary>, Failure> {
        tokio::select! {
            summary = self.first_load() => Ok(summary),
            _ = context.interrupts.next() => Err(interrupted()),
        }
    }

    /// How the line to the Brain is, now and from here on.
    pub(super) fn connection(&self) -> watch::Receiver<Connection> {
        self.0.connection()
    }

    /// The tools, now and from here on.
    pub(super) fn catalogue(&self) -> watch::Receiver<Arc<Catalogue>> {
        self.0.catalogue()
    }

    /// Resolves when the Foot has given up on itself.
    pub(super) async fn ended(&self) -> ExitReason {
        self.0.ended().await
    }

    /// Reads the packs again; comes back when each is up, has failed, or has had its time.
    pub(super) async fn reload(&self) -> Arc<LoadSummary> {
        self.0.reload().await
    }

    /// Every pack, with how it is.
    pub(super) async fn packs(&self) -> Vec<PackStatus> {
        self.0.packs().await
    }

    /// The tools as of now.
    pub(super) fn tools(&self) -> Vec<ToolSpec> {
        self.0.tools()
    }

    /// Calls a tool here, waiting for its pack if it is one of a pack's. Ctrl-C cancels the call.
    pub(super) async fn call(&self, context: &mut Context, id: &CallId, args: &CallArgs) -> Result<Outcome, Failure> {
        if args.tool.as_str().contains(SUBTOOL_SEPARATOR) {
            self.loaded(context).await?;
        }
        let arguments = Raw::parse(args.arguments.clone()).map_err(|e| Failure::Usage(e.to_string()))?;
        let cancel = CancellationToken::new();
        let shown = Shown::new(context, args.tool.as_str());
        let call = self.0.call_local(LocalCall {
            call_id: id.clone(),
            tool: args.tool.to_string(),
            arguments,
            timeout: Some(args.timeout),
            cancel: cancel.clone(),
            progress: shown.listener(),
        });
        tokio::pin!(call);
        tokio::select! {
            outcome = &mut call => return Ok(outcome),
            _ = context.interrupts.next() => cancel.cancel(),
        }
        tokio::select! {
            outcome = call => Ok(outcome),
            _ = context.interrupts.next() => Err(interrupted()),
        }
    }

    /// Serves the debug interface for this Foot, and says where.
    pub(super) async fn rest(&self, context: &mut Context, address: SocketAddr) -> Result<Rest, Failure> {
        let rest = Rest::start(address, &context.home()?, &self.0).await?;
        context.screen.line(&format!("rest api http://{}", rest.address))?;
        Ok(rest)
    }

    /// Ends everything that was started.
    pub(super) async fn shutdown(self) {
        let until = Instant::now() + OTHERS_WITHIN;
        let mut foot = self.0;
        loop {
            match Arc::try_unwrap(foot) {
                Ok(foot) => return foot.shutdown().await,
                Err(shared) if Instant::now() < until => foot = shared,
                // Its children end with the process.
                Err(_) => return tracing::warn!("a request of the debug interface does not end"),
            }
            tokio::time::sleep(LOOK).await;
        }
    }
}

/// Packs that did not come up, each with its reason.
pub(super) fn left_out(summary: &LoadSummary) -> impl Iterator<Item = &LeftOut> {
    summary.skipped.iter().chain(&summary.failed)
}

fn interrupted() -> Failure {
    Failure::Foot("interrupted".to_owned())
}

fn config(context: &Context, client_type: &str) -> Result<FootConfig, Failure> {
    let place = |why: std::io::Error| Failure::Foot(format!("the working directory cannot be told: {why}"));
    let project_dir = std::env::current_dir().map_err(place)?;
    let program = |why: std::io::Error| Failure::Foot(format!("this program's own file cannot be told: {why}"));
    let (home, general) = (context.home()?, &context.general);
    let rules = super::permissions::rules(&home, (!general.no_local).then_some(project_dir.as_path()))?;
    let (environment, token_home, brain) = (context.environment.clone(), home.clone(), general.brain.clone());
    Ok(FootConfig {
        packs_dir: context.environment.foot_tools_dir.clone(),
        brain_url: None,
        token: Arc::new(move || {
            // Read first: reading may narrow the file.
            let token = token(&environment, &token_home, &brain).as_ref().map(Token::reveal).map(str::to_owned);
            Bearer { token, files: Stamps::of(token_files(&token_home)) }
        }),
        session: None,
        also_sessions: general.also_session.clone(),
        new_session: general.new_session,
        name: general.name.clone(),
        client_type: client_type.to_owned(),
        no_local: general.no_local,
        no_tools: general.no_tools,
        load: Load::All,
        guard_program: context.environment.program.clone().map_or_else(std::env::current_exe, Ok).map_err(program)?,
        rules,
        asker: super::ask::at_terminal(context)?,
        nobody: super::ask::nobody(context).unwrap_or_default(),
        home,
        project_dir,
    })
}

fn start(config: FootConfig) -> Result<LocalFoot, Failure> {
    // Without a collector the tools work all the same.
    if let Err(error) = vance_observability::spans::start("vancetope", None) {
        tracing::warn!("{error}");
    }
    engine::start(config).map(Arc::new).map(LocalFoot).map_err(|error| Failure::Foot(error.to_string()))
}

/// `--no-ui` and `--daemon`: a Foot until it is told to end.
pub(super) async fn serve(context: &mut Context, daemon: bool, rest: Option<SocketAddr>) -> Result<u8, Failure> {
    let session = context.general.session.clone();
    let notify = Notify::of_process();
    let foot = LocalFoot::start(context, session.as_ref(), if daemon { "daemon" } else { "cli" })?;
    let rest = match rest {
        Some(address) => Some(foot.rest(context, address).await?),
        None => None,
    };
    let ended = tokio::select! {
        ended = until_told(context, &foot, &notify) => ended,
        never = notify.lives() => match never {},
    };
    notify.stopping();
    if let Some(rest) = rest {
        rest.end().await;
    }
    foot.shutdown().await;
    ended
}

async fn until_told(context: &mut Context, LocalFoot(foot): &LocalFoot, notify: &Notify) -> Result<u8, Failure> {
    let summary = tokio::select! {
        summary = foot.first_load() => summary,
        why = foot.ended() => return Err(fallen(&why)),
        _ = context.interrupts.next() => return Ok(EXIT_OK),
    };
    // The loader has said why, pack by pack.
    tracing::info!("{}", &*summary);
    // Not when the Brain answers: a service manager would end a Foot whose Brain is away, which this one waits for.
    notify.ready();
    let (mut connection, mut is_new) = (foot.connection(), true);
    loop {
        let state = connection.borrow_and_update().clone();
        match &state {
            Connection::Online { session_id, .. } => {
                notify.status(&format!("connected, session {session_id}; {summary}"));
                if std::mem::take(&mut is_new) {
                    context.screen.line("foot ready")?;
                }
            }
            Connection::Connecting | Connection::Local => notify.status("waiting for the Brain"),
            // Who starts it again without a change gets the same word: a service manager has to know.
            Connection::Refused { why, is_final: true } => return Err(Failure::Refused(why.clone())),
            Connection::Refused { why, is_final: false } => {
                notify.status(&format!("refused by the Brain: {}", plain(why)))
            }
        }
        tokio::select! {
            changed = connection.changed() => if changed.is_err() {
                // The Foot says itself that it ends.
                return Err(fallen(&foot.ended().await));
            },
            why = foot.ended() => return Err(fallen(&why)),
            _ = context.interrupts.next() => return Ok(EXIT_OK),
        }
    }
}

pub(super) fn fallen(why: &ExitReason) -> Failure {
    Failure::Foot(format!("this Foot gave up on itself: {why:?}"))
}
