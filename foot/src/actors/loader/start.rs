//! Starting a pack's server, and hearing of it.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio_util::task::TaskTracker;
use vance_mcp_host::files::NOT_AS_ALLOWED;
use vance_mcp_host::{HostEvent, People, server_with_people};
use vance_shared::gate::audit::Event;
use vance_shared::launch::{Origin, TrustedLaunch};
use vance_shared::names::PackName;
use vance_shared::show::plain;
use vance_shared::tool::ToolSpec;
use vance_supervise::{ActorRef, AsyncContext as _, ChildSpec, Context, Refusal, SupervisorRef};

use super::pack::{Pack, State};
use super::{COLLECT, Loader, ToLoader};
use crate::actors::hosts::Mcp;
use crate::trust::Trust;

/// Beyond a pack's own limit for its start, before a load stops waiting for it.
const START_SLACK: Duration = Duration::from_secs(2);

impl Loader {
    pub(super) fn start(&mut self, launch: TrustedLaunch, ctx: &mut Context<Self>) {
        self.starts += 1;
        let start = self.starts;
        let (name, origin) = (launch.plan().pack.clone(), launch.plan().origin);
        let pack = name.to_string();
        let overdue = launch.plan().init_timeout + START_SLACK;
        let (latest, news) = watch::channel(None);
        let ear = Ear {
            pack: pack.clone(),
            name,
            origin,
            start,
            trust: Arc::clone(&self.shared.trust),
            loader: self.shared.me.clone(),
        };
        let of = pack.clone();
        let events = Arc::new(move |event| {
            if let HostEvent::Up { warnings, .. } = &event {
                for warning in warnings {
                    tracing::warn!("pack '{of}': {}", plain(warning));
                }
            }
            latest.send_replace(Some(event));
        });
        tokio::task::spawn_local(ear.pass_on(news));
        let people = People { elicit: self.shared.elicit.clone(), ..People::default() };
        let (handle, spec) = server_with_people(launch.clone(), self.shared.env.clone(), events, people);
        let calls = TaskTracker::new();
        let host = Arc::new(Mcp { handle, permit: Arc::clone(&self.shared.permit), calls: calls.clone() });
        let state = State::Loading(None);
        self.packs.insert(
            pack.clone(),
            Pack { launch, start, host, calls, tools: Vec::new(), state, note: None, is_settled: false },
        );

        let child = ChildSpec::supervisor(spec, SupervisorRef::new());
        let (servers, loader, name) = (self.shared.servers.clone(), self.shared.me.clone(), pack.clone());
        tokio::task::spawn_local(async move {
            if let Err(error) = servers.start_child(child).await
                && let Err(refusal) =
                    loader.post(ToLoader::NotStarted { pack: name, start, why: error.to_string() }).await
            {
                tracing::warn!("a pack was not started ({error}), and the loader is {refusal}");
            }
        });
        ctx.notify_later(ToLoader::Overdue { pack, start }, overdue);
    }
}

/// Hears of one server.
struct Ear {
    pack: String,
    name: PackName,
    origin: Origin,
    start: u64,
    trust: Arc<Trust>,
    loader: ActorRef<Loader>,
}

impl Ear {
    /// Brings a server's latest state to the loader. Only the latest counts: each event says all that is so from then on, and so
    /// a flood of them costs nothing and none that matters is lost.
    async fn pass_on(self, mut news: watch::Receiver<Option<HostEvent>>) {
        while news.changed().await.is_ok() {
            let Some(event) = news.borrow_and_update().clone() else { continue };
            let (event, note) = match event {
                HostEvent::Up { tools, warnings } => {
                    let (tools, note) = self.pinned(tools).await;
                    (HostEvent::Up { tools, warnings }, note)
                }
                HostEvent::ToolsChanged { tools } => {
                    let (tools, note) = self.pinned(tools).await;
                    (HostEvent::ToolsChanged { tools }, note)
                }
                HostEvent::Failed { reason } => {
                    if reason.contains(NOT_AS_ALLOWED) {
                        self.changed().await;
                    }
                    (HostEvent::Failed { reason }, None)
                }
                event @ HostEvent::Down { .. } => (event, None),
            };
            let (pack, start) = (self.pack.as_str(), self.start);
            let message = || ToLoader::Host { pack: pack.to_owned(), start, event: event.clone(), note: note.clone() };
            while let Err(refusal) = self.loader.send(message()).await {
                if refusal == Refusal::Stopped {
                    return;
                }
                tokio::time::sleep(COLLECT).await;
            }
        }
    }

    /// Notes that something else stood in the place of what was allowed.
    async fn changed(&self) {
        let (trust, pack) = (Arc::clone(&self.trust), self.pack.clone());
        let noting = tokio::task::spawn_blocking(move || {
            let project = trust.project().ok().map(|project| project.key().to_owned());
            trust.record_name(Event::Changed, project.as_deref(), Some(&pack));
        });
        if let Err(error) = noting.await {
            tracing::warn!("that a file of pack '{}' has changed was not logged: {error}", self.pack);
        }
    }

    /// Compares the tools with what the server said when it first started. What a project's server changed behind its consent is withheld.
    /// Gives what is left of them, and what a person should know.
    async fn pinned(&self, tools: Vec<ToolSpec>) -> (Vec<ToolSpec>, Option<String>) {
        let (trust, origin, name) = (Arc::clone(&self.trust), self.origin, self.name.clone());
        let checking = tokio::task::spawn_blocking(move || {
            let drift = trust.pins().check(origin, &name, &tools);
            (drift, tools)
        });
        let (drift, tools) = match checking.await {
            Ok(checked) => checked,
            Err(error) => {
                let note = format!("the tools of pack '{}' could not be compared with their pins: {error}", self.pack);
                tracing::error!("{note}");
                return (Vec::new(), Some(note));
            }
        };
        let drift = match drift {
            Ok(drift) => drift,
            Err(why) => {
                let note = format!("pack '{}': its tools are not compared with earlier ones: {why}", self.pack);
                tracing::warn!(target: super::TOLD, "{note}");
                return (tools, Some(note));
            }
        };
        if drift.is_empty() {
            return (tools, None);
        }
        let all = tools.len();
        let offered: Vec<ToolSpec> =
            tools.into_iter().filter(|tool| !drift.withholds(origin, tool.name.as_str())).collect();
        let (pack, summary) = (&self.pack, drift.summary());
        let note = match all - offered.len() {
            // They are pinned with that: nothing waits for a review.
            0 if drift.changed.is_empty() => format!("pack '{pack}' has tools that it did not have before ({summary})"),
            0 => format!(
                "the tools of pack '{pack}' are not what they were ({summary}); `vancetope trust review` settles it"
            ),
            held => format!("{held} tool(s) of pack '{pack}' are withheld until `vancetope trust review`: {summary}"),
        };
        tracing::warn!(target: super::TOLD, "{note}");
        (offered, Some(note))
    }
}
