//! One life of a server: reach it, list its tools, take calls, follow changes, end.

use std::sync::Arc;
use std::time::Duration;

use rmcp::RoleClient;
use rmcp::model::SubscriptionFilter;
use rmcp::service::Peer;
use tokio::sync::Notify;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use vance_shared::launch::Transport;
use vance_shared::launch::rest::RestPlan;

use crate::auth::Store;
use crate::budget::{Cause, SLOW_RETRY};
use crate::conn::Ask;
use crate::env;
use crate::files::Moment;
use crate::handle::{HostEvent, HostState};
use crate::lane::Reply;
use crate::link::{self, Link, Reach, Refused};
use crate::mask::Mask;
use crate::reading::Reading;
use crate::rest::RestPack;
use crate::shared::{Back, Live, Mcp, Shared};
use crate::tools::{Listing, Table};

/// After a change was announced, others are waited for, so that a flood is one new list.
const SETTLE: Duration = Duration::from_millis(100);
/// And between two lists at least this long.
const RELIST_EVERY: Duration = Duration::from_millis(500);
/// An HTTP server is asked this often whether it is still there; a pipe tells by itself.
const PING_EVERY: Duration = Duration::from_secs(30);
/// A login on the command line is noticed within this time.
const LOOK_FOR_LOGIN: Duration = Duration::from_secs(1);
/// A server that announces resources or prompts shows them within this time, or is offered without.
const READABLE_WAIT: Duration = Duration::from_secs(3);
/// A listening that ended is begun again after this.
const LISTEN_AGAIN: Duration = Duration::from_secs(1);

/// Why a life ended.
#[derive(Debug)]
pub(crate) enum End {
    /// It was asked to.
    Stopped,
    /// By itself.
    Lost {
        why: String,
        /// How long calls were taken.
        uptime: Duration,
        /// What another try is worth.
        cause: Cause,
    },
}

/// Lives one life. On return nothing of the server is left.
pub(crate) async fn live(shared: Arc<Shared>, stop: CancellationToken) -> End {
    let never_up = |why, cause| End::Lost { why, uptime: Duration::ZERO, cause };
    let (era, failed) = {
        let memory = shared.memory();
        (memory.era, memory.failed)
    };
    if failed && rest(&shared, &stop).await {
        return End::Stopped;
    }
    shared.look_up_values();
    if let Transport::Rest(plan) = &shared.plan().transport {
        return rest_live(&shared, plan, &stop).await;
    }
    let changed = Arc::new(Notify::new());
    let to = Reach {
        launch: shared.launch(),
        plan: shared.plan(),
        env: shared.env(),
        era,
        changed: Arc::clone(&changed),
        stop: &stop,
        people: shared.people(),
        flights: Arc::clone(shared.flights()),
        mask: shared.mask(),
    };
    let (mut link, conn) = match link::reach(to).await {
        Ok(reached) => reached,
        Err(_) if stop.is_cancelled() => return End::Stopped,
        Err(Refused { why, cause, next }) => {
            shared.memory().era = next;
            return never_up(why, cause);
        }
    };
    shared.memory().era = link.era();
    let readings = link.readings();
    let mcp = Arc::new(Mcp { conn, protocol: link.protocol(), readings });
    let live = Arc::new(Live { back: Back::Mcp(Arc::clone(&mcp)), table: Default::default() });
    let listed = tokio::select! {
        () = stop.cancelled() => Err(None),
        why = link.ended() => Err(Some((why, link.loss()))),
        listed = list(&shared, &mcp) => listed.map_err(|unlisted| Some(match unlisted {
            Unlisted::Lost(why) => (why, link.loss()),
            Unlisted::Unusable(why, cause) => (why, cause),
        })),
    };
    let (table, warnings) = match listed {
        Ok(listed) => listed,
        Err(lost) => {
            link.close(lost.is_none()).await;
            return lost.map_or(End::Stopped, |(why, cause)| never_up(why, cause));
        }
    };
    // Only now an interpreter has surely read its script: what stood in its place after the start may be what runs.
    if let Err(why) = link::as_allowed(shared.launch(), shared.env(), Moment::Listed).await {
        link.kill().await;
        return never_up(format!("{why}; it was killed"), Cause::Hopeless);
    }
    for warning in &warnings {
        tracing::warn!(pack = %shared.plan().pack, "{warning}");
    }
    live.table.store(Arc::new(table.clone()));
    let begin = Instant::now();
    let up = UpUntilDropped::new(&shared, Arc::clone(&live));
    shared.tell(HostEvent::Up { tools: table.specs.to_vec(), warnings });
    let ended = serve(&shared, &live, &mcp, &mut link, &changed, &stop).await;
    let (uptime, cause) = (begin.elapsed(), link.loss());
    drop(up);
    let Some(why) = ended else {
        link.close(true).await;
        return End::Stopped;
    };
    link.leave(shared.closing().clone()).await;
    End::Lost { why, uptime, cause }
}

/// The life of an HTTP API's pack: once its document is read there is nothing that could end by itself.
async fn rest_live(shared: &Shared, plan: &RestPlan, stop: &CancellationToken) -> End {
    let opened = tokio::select! {
        () = stop.cancelled() => return End::Stopped,
        opened = tokio::time::timeout(shared.plan().init_timeout, RestPack::open(plan, shared.launch(), shared.env())) => opened,
    };
    let (pack, warnings) = match opened {
        Ok(Ok(opened)) => opened,
        Ok(Err(Refused { why, cause, .. })) => return End::Lost { why, uptime: Duration::ZERO, cause },
        Err(_) => {
            let why = format!("its document was not read within {} s", shared.plan().init_timeout.as_secs());
            return End::Lost { why, uptime: Duration::ZERO, cause: Cause::Away };
        }
    };
    let mask = shared.mask();
    let table = pack.table();
    let table = Table { specs: mask.specs(table.specs), ..table };
    let warnings = warnings.into_iter().map(|warning| mask.owned(warning)).collect();
    let live = Arc::new(Live { back: Back::Rest(Box::new(pack)), table: Default::default() });
    live.table.store(Arc::new(table.clone()));
    let up = UpUntilDropped::new(shared, live);
    shared.tell(HostEvent::Up { tools: table.specs.to_vec(), warnings });
    stop.cancelled().await;
    drop(up);
    End::Stopped
}

/// Follows the server until it ends (the reason) or is to stop (none).
async fn serve(
    shared: &Shared,
    live: &Live,
    mcp: &Mcp,
    link: &mut Link,
    changed: &Notify,
    stop: &CancellationToken,
) -> Option<String> {
    let peer = link.running.peer().clone();
    let mut pings = tokio::time::interval_at(Instant::now() + PING_EVERY, PING_EVERY);
    pings.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    let pinging = async {
        loop {
            pings.tick().await;
            // Trouble is heard by the link.
            if let Some(ping) = mcp.conn.ping() {
                drop(tokio::time::timeout(PING_EVERY, ping.end()).await);
            }
        }
    };
    tokio::select! {
        () = stop.cancelled() => None,
        why = link.ended() => Some(why),
        () = relist(shared, live, mcp, changed) => None,
        () = listen(&peer, changed) => None,
        () = pinging => None,
    }
}

/// Reads the tools again whenever they changed. Never ends.
async fn relist(shared: &Shared, live: &Live, mcp: &Mcp, changed: &Notify) {
    loop {
        changed.notified().await;
        tokio::time::sleep(SETTLE).await;
        let begin = Instant::now();
        match list(shared, mcp).await {
            Ok((table, warnings)) if table.specs != live.table.load().specs => {
                for warning in warnings {
                    tracing::warn!(pack = %shared.plan().pack, "{warning}");
                }
                live.table.store(Arc::new(table.clone()));
                shared.tell(HostEvent::ToolsChanged { tools: table.specs.to_vec() });
            }
            Ok(_) => {
                tracing::debug!(pack = %shared.plan().pack, "its tools were announced as changed and are the same")
            }
            Err(Unlisted::Lost(why) | Unlisted::Unusable(why, _)) => {
                tracing::warn!(pack = %shared.plan().pack, "its changed tools cannot be read: {why}");
            }
        }
        tokio::time::sleep(RELIST_EVERY.saturating_sub(begin.elapsed())).await;
    }
}

/// The newer way to hear of changes: a subscription. Never ends; waits for ever where the server is of the older kind or announces nothing.
async fn listen(peer: &Peer<RoleClient>, changed: &Notify) {
    let mut filter = SubscriptionFilter::new();
    if let Some(info) = peer.peer_info().filter(|info| !info.protocol_version.has_initialize()) {
        let all = &info.capabilities;
        let yes = |announces: Option<bool>| announces.filter(|yes| *yes);
        filter.tools_list_changed = yes(all.tools.as_ref().and_then(|tools| tools.list_changed));
        filter.resources_list_changed = yes(all.resources.as_ref().and_then(|resources| resources.list_changed));
        filter.prompts_list_changed = yes(all.prompts.as_ref().and_then(|prompts| prompts.list_changed));
    }
    if filter == SubscriptionFilter::new() {
        return std::future::pending().await;
    }
    loop {
        match peer.listen(filter.clone()).await {
            Ok(mut subscription) => {
                while let Ok(Some(_)) = subscription.next().await {
                    changed.notify_one();
                }
            }
            Err(error) => tracing::debug!(%error, "its changes cannot be subscribed to"),
        }
        tokio::time::sleep(LISTEN_AGAIN).await;
        // What happened meanwhile was not heard.
        changed.notify_one();
    }
}

/// What there is to read: many servers announce resources and prompts and have none, and a tool that reads nothing is only in the way.
async fn readable(mcp: &Mcp, deadline: Instant) -> Vec<Reading> {
    let limit = deadline.min(Instant::now() + READABLE_WAIT);
    let probes = mcp.readings.iter().map(|readings| async move {
        for method in readings.proofs() {
            let reply = tokio::time::timeout_at(limit, mcp.conn.ask(&Ask::plain(method)).end()).await;
            if let Ok(Reply::Result(page)) = reply
                && readings.is_proof(&page)
            {
                return readings.all().to_vec();
            }
        }
        Vec::new()
    });
    futures_util::future::join_all(probes).await.concat()
}

/// Why a server's tools are not known.
enum Unlisted {
    /// It was lost meanwhile.
    Lost(String),
    /// What it says cannot be used.
    Unusable(String, Cause),
}

/// All tools of the server.
async fn list(shared: &Shared, mcp: &Mcp) -> Result<(Table, Vec<String>), Unlisted> {
    let plan = shared.plan();
    let mut defaults = serde_json::Value::Object(plan.default_args.clone());
    env::expand_json(&mut defaults, "defaultArgs", &env::ambient())
        .map_err(|error| Unlisted::Unusable(error.to_string(), Cause::Hopeless))?;
    let defaults = defaults.as_object().cloned().unwrap_or_default();
    let deadline = Instant::now() + plan.init_timeout;
    let mask = shared.mask();
    let (readings, pages) = tokio::join!(readable(mcp, deadline), pages(mcp, deadline, plan.init_timeout, &mask));
    let mut listing = pages.map_err(|unlisted| match unlisted {
        Unlisted::Lost(why) => Unlisted::Lost(mask.owned(why)),
        Unlisted::Unusable(why, cause) => Unlisted::Unusable(mask.owned(why), cause),
    })?;
    listing.offer(&readings);
    let (table, warnings) = listing.finish(plan, &defaults);
    let warnings = warnings.into_iter().map(|warning| mask.owned(warning)).collect();
    Ok((Table { specs: mask.specs(table.specs), ..table }, warnings))
}

/// All pages of its tools.
async fn pages(mcp: &Mcp, deadline: Instant, limit: Duration, mask: &Mask) -> Result<Listing, Unlisted> {
    let unusable = |why: String| Unlisted::Unusable(why, Cause::Broken);
    let mut listing = Listing::default();
    let mut cursor: Option<String> = None;
    loop {
        let reply = tokio::time::timeout_at(deadline, mcp.conn.page(cursor.as_deref()).end()).await;
        let page = match reply {
            Ok(Reply::Result(page)) => page,
            Ok(Reply::Error { code: -32601, .. }) if cursor.is_none() => {
                listing.warnings.push("the server offers no tools at all".to_owned());
                return Ok(listing);
            }
            Ok(Reply::Error { code, message }) => {
                let message = vance_shared::show::quoted(&mask.text(&message), 300);
                return Err(unusable(format!("its tools/list failed: {message} (JSON-RPC error {code})")));
            }
            Ok(Reply::Lost { why, .. }) => return Err(Unlisted::Lost(why)),
            Ok(Reply::Refused(why)) => return Err(unusable(why)),
            Ok(Reply::TooLarge { bytes }) => {
                let most = crate::stdio::MAX_LINE_BYTES;
                let why = format!("a page of its tools/list has {bytes} bytes in one line, expected at most {most}");
                return Err(unusable(why));
            }
            Ok(Reply::Busy) => return Err(unusable("it does not read its input".to_owned())),
            Err(_) => return Err(unusable(format!("no answer to tools/list within {} s", limit.as_secs_f64()))),
        };
        cursor = listing.take(page.get()).map_err(unusable)?;
        if cursor.is_none() {
            return Ok(listing);
        }
    }
}

/// Waits before a server that failed is tried again; a login wakes it. True: it is to stop.
async fn rest(shared: &Shared, stop: &CancellationToken) -> bool {
    let store = shared.login_store();
    let before = store.as_ref().map(Store::mark);
    let login = async {
        let Some(store) = store else { return std::future::pending().await };
        while Some(store.mark()) == before {
            tokio::time::sleep(LOOK_FOR_LOGIN).await;
        }
    };
    tokio::select! {
        () = stop.cancelled() => true,
        () = login => false,
        () = tokio::time::sleep(SLOW_RETRY) => false,
    }
}

/// Calls are taken while this lives; also a panic ends that.
struct UpUntilDropped<'a>(&'a Shared);

impl<'a> UpUntilDropped<'a> {
    fn new(shared: &'a Shared, live: Arc<Live>) -> Self {
        shared.up(live);
        Self(shared)
    }
}

impl Drop for UpUntilDropped<'_> {
    fn drop(&mut self) {
        self.0.down(HostState::Restarting { reason: "it ended".to_owned() });
    }
}
