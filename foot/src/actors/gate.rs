//! The trust gate: every pack passes here on its way from its file to its start. A pack of the user's own passes by itself; one that came
//! with the working directory needs consent. Questions are put one at a time.
//!
//! ```text
//! loader ─ decide ─▶ [judge, beside] ─┬─ trusted ───────────────────────────────▶ launch
//!                                     ├─ denied, nobody to ask, given up ───────▶ reason
//!                                     └─ ask ─▶ queue ─▶ terminal ─▶ [write down] ─▶ launch or reason
//! ```
//!
//! If the gate falls, whoever waits gets a no. What was allowed once is forgotten with it and asked again.

use std::collections::{HashSet, VecDeque};
use std::sync::Arc;

use tokio::sync::oneshot;
use vance_shared::gate::audit::Event;
use vance_shared::gate::{Answer, Digest, Nobody, Once, Patience, Question, TrustedLaunch, Unasked, Verdict};
use vance_shared::launch::{LaunchPlan, NeedsConsent, Origin};
use vance_shared::names::PackName;
use vance_shared::show::plain;
use vance_supervise::{
    Actor, ActorFutureExt as _, ActorRef, AsyncContext as _, Context, Handler, Message, WrapFuture as _,
};

use crate::trust::{self, Consent, Counts, Prompt, Reading, Reply, Trust, Yes};

/// Questions that wait for their turn: every pack of a folder at once. More is nobody's to answer.
const MAX_WAITING: usize = 64;

/// The terminal belongs to another program now.
const IN_BACKGROUND: Nobody =
    Nobody { why: "this program runs in the background", way_out: "bring it to the foreground and reload" };

/// The launch, or why there is none.
pub(crate) type Decision = Result<TrustedLaunch, String>;

/// The way through the gate.
#[derive(Clone)]
pub(crate) struct Gate(pub(crate) ActorRef<TrustGate>);

impl Gate {
    /// A load begins: silence before it does not count any more, and what is odd about the store is said again.
    pub(crate) async fn begin_load(&self) {
        if let Err(refusal) = self.0.send(BeginLoad).await {
            tracing::warn!("the trust gate is {refusal}");
        }
    }

    /// Whether a question stands at the terminal.
    pub(crate) async fn is_asking(&self) -> bool {
        self.0.send(IsAsking).await.unwrap_or_default()
    }

    /// Lets a pack through, or says why not. `replaces`: the user's own pack of the same name. Waits for as long as a person may think.
    pub(crate) async fn decide(&self, plan: LaunchPlan, replaces: Option<LaunchPlan>) -> Decision {
        let plan = match TrustedLaunch::own_home(plan) {
            Ok(launch) => return Ok(launch),
            Err(needs) => {
                let NeedsConsent(plan) = *needs;
                plan
            }
        };
        let (tell, told) = oneshot::channel();
        let no = |why: &str| Err(format!("the trust gate {why}, which counts as no; /tools reload asks again"));
        match self.0.post(Decide { plan: Box::new(plan), replaces: replaces.map(Box::new), tell }).await {
            Ok(()) => told.await.unwrap_or_else(|_| no("fell over the question")),
            Err(refusal) => no(&format!("is {refusal}")),
        }
    }

    /// Forgets what was allowed once for a pack, as a revocation does.
    pub(crate) async fn forget(&self, pack: PackName) {
        if let Err(refusal) = self.0.send(Forget(pack)).await {
            tracing::debug!("the trust gate is {refusal}: what it knew is forgotten");
        }
    }
}

/// What the gate needs, and what outlives it.
#[derive(Clone)]
pub(crate) struct Shared {
    pub(crate) me: ActorRef<TrustGate>,
    pub(crate) trust: Arc<Trust>,
    /// The terminal; without one nobody is asked.
    pub(crate) person: Option<Arc<dyn Consent>>,
    /// Why there is none.
    pub(crate) nobody: Nobody,
    /// The folder of the user's own packs, for the way out.
    pub(crate) own_packs: String,
}

#[derive(Message)]
#[rtype(result = "()")]
struct BeginLoad;

#[derive(Message)]
#[rtype(result = "bool")]
struct IsAsking;

#[derive(Message)]
#[rtype(result = "()")]
struct Forget(PackName);

#[derive(Message)]
#[rtype(result = "()")]
struct Decide {
    plan: Box<LaunchPlan>,
    replaces: Option<Box<LaunchPlan>>,
    tell: oneshot::Sender<Decision>,
}

/// A question and who waits for its answer.
struct Asked {
    question: Box<Question>,
    tell: oneshot::Sender<Decision>,
}

pub(crate) struct TrustGate {
    shared: Shared,
    once: Once,
    waiting: VecDeque<Asked>,
    is_asking: bool,
    patience: Patience,
    /// What was said about the store in this load.
    said: HashSet<String>,
}

impl TrustGate {
    pub(crate) fn new(shared: Shared) -> Self {
        Self {
            shared,
            once: Once::default(),
            waiting: VecDeque::new(),
            is_asking: false,
            patience: Patience::default(),
            said: HashSet::new(),
        }
    }

    fn decide(&mut self, Decide { plan, replaces, tell }: Decide, ctx: &mut Context<Self>) {
        let (trust, once) = (Arc::clone(&self.shared.trust), self.once.clone());
        let pack = plan.pack.clone();
        let judging = tokio::task::spawn_blocking(move || trust.judge(*plan, &once, replaces.as_deref()));
        ctx.spawn(judging.into_actor(self).map(move |judged, gate, ctx| match judged {
            Ok((verdict, reading)) => gate.judged(verdict, reading, tell, ctx),
            Err(error) => {
                answer(tell, Err(format!("pack '{pack}' could not be judged: {}", plain(&error.to_string()))))
            }
        }));
    }

    fn judged(&mut self, verdict: Verdict, reading: Reading, tell: oneshot::Sender<Decision>, ctx: &mut Context<Self>) {
        let Reading { book: _, distrust, notices } = reading;
        if let Some(warning) = distrust.filter(|why| self.said.insert(why.clone())) {
            // Loud in every command: consents that were given do not count.
            tracing::error!("{warning}");
        }
        for notice in notices {
            // Also where a command prints the load's summary itself: this is not in it.
            tracing::warn!("NOTICE: {notice}");
        }
        match verdict {
            Verdict::Trusted(launch) => answer(tell, Ok(launch)),
            Verdict::Denied(reason) => answer(tell, Err(reason)),
            Verdict::Ask(question) if self.shared.person.is_none() => {
                self.unasked(*question, Unasked::Nobody(self.shared.nobody), tell)
            }
            Verdict::Ask(question) if self.waiting.len() >= MAX_WAITING => {
                let reason =
                    format!("not asked, as {MAX_WAITING} other packs wait for an answer; /tools reload asks again");
                tracing::debug!("pack '{}' is {reason}", question.plan().pack);
                answer(tell, Err(reason));
            }
            Verdict::Ask(question) => {
                self.waiting.push_back(Asked { question, tell });
                self.ask_next(ctx);
            }
        }
    }

    fn ask_next(&mut self, ctx: &mut Context<Self>) {
        while !self.is_asking {
            let Some(Asked { question, tell }) = self.waiting.pop_front() else { return };
            if tell.is_closed() {
                continue;
            }
            let Some(person) = self.shared.person.clone() else {
                self.unasked(*question, Unasked::Nobody(self.shared.nobody), tell);
                continue;
            };
            if !self.patience.asks() {
                self.unasked(*question, Unasked::GivenUp, tell);
                continue;
            }
            self.is_asking = true;
            let about = format!("pack '{}'", question.plan().pack);
            let asking = person.consent(Prompt { text: question.text().to_owned(), about });
            ctx.spawn(asking.into_actor(self).map(move |reply, gate, ctx| {
                gate.is_asking = false;
                gate.answered(*question, &reply, tell, ctx);
                gate.ask_next(ctx);
            }));
        }
    }

    fn answered(
        &mut self,
        question: Question,
        reply: &Reply,
        tell: oneshot::Sender<Decision>,
        ctx: &mut Context<Self>,
    ) {
        match reply {
            Reply::Silence => self.patience.timed_out(),
            Reply::Line(_) | Reply::Broken => self.patience.answered(),
            Reply::Nobody => {}
        }
        let said = match reply {
            Reply::Line(line) => Answer::of(line),
            Reply::Silence => return self.unasked(question, Unasked::TimedOut, tell),
            Reply::Nobody => return self.unasked(question, Unasked::Nobody(IN_BACKGROUND), tell),
            Reply::Broken => Answer::No,
        };
        let refusal = question.reason(Unasked::Refused, &self.shared.own_packs);
        let digest = question.digest();
        let plan = question.plan().clone();
        let is_about_document = question.is_about_document();
        let Some((launch, entry)) = question.answered(said, &trust::today()) else {
            self.record(Event::Refused, plan, digest, None);
            return answer(tell, Err(refusal));
        };
        // Also where it is to last: if it cannot be written down it holds for this run.
        self.once.add(&launch);
        let (trust, person) = (Arc::clone(&self.shared.trust), self.shared.person.clone());
        let lasts = entry.is_some();
        let writing = tokio::task::spawn_blocking(move || {
            let event = if lasts { Event::AllowedAlways } else { Event::AllowedOnce };
            let yes = Yes { event, plan: &plan, digest, entry: entry.as_ref() };
            let counts = trust.remember(&yes, Event::AllowedOnce);
            // A yes to the pack is one to the tools that it starts with now: they are pinned anew. One to hosts is none to changed tools.
            if !is_about_document
                && !matches!(counts, Ok(Counts::No(_)))
                && let Err(why) = trust.pins().forget(Origin::Project, &plan.pack)
            {
                tracing::warn!("pack '{}': its earlier tools are still remembered: {why}", plan.pack);
            }
            counts
        });
        ctx.spawn(writing.into_actor(self).map(move |written, gate, _| {
            let pack = &launch.plan().pack;
            let remark = |text: String| {
                if let Some(person) = &person {
                    person.remark(&text);
                }
            };
            match written {
                Ok(Ok(Counts::Yes)) => {}
                Ok(Ok(Counts::No(why))) => {
                    gate.once.forget(pack);
                    remark(format!("pack '{pack}' is not loaded: {why}"));
                    return answer(tell, Err(why));
                }
                Ok(Err(why)) if lasts => {
                    remark(format!("pack '{pack}' is allowed once; it was not remembered: {why}"));
                }
                Ok(Err(why)) => tracing::debug!("whether pack '{pack}' was denied meanwhile cannot be told: {why}"),
                Err(error) => {
                    let why = plain(&error.to_string());
                    remark(format!("pack '{pack}' is allowed once; it was not remembered: {why}"));
                }
            }
            // A revocation came while it was written down.
            if !gate.once.has(&launch) {
                return answer(tell, Err("its consent was taken back meanwhile; /tools reload asks again".to_owned()));
            }
            answer(tell, Ok(launch));
        }));
    }

    fn unasked(&self, question: Question, why: Unasked, tell: oneshot::Sender<Decision>) {
        let event = match why {
            Unasked::TimedOut => Event::TimedOut,
            Unasked::Nobody(_) | Unasked::GivenUp => Event::NotAsked,
            Unasked::Refused => Event::Refused,
        };
        let reason = question.reason(why, &self.shared.own_packs);
        self.record(event, question.plan().clone(), question.digest(), Some(reason.clone()));
        answer(tell, Err(reason));
    }

    fn record(&self, event: Event, plan: LaunchPlan, digest: Digest, reason: Option<String>) {
        let trust = Arc::clone(&self.shared.trust);
        drop(tokio::task::spawn_blocking(move || trust.record(event, Some(&plan), Some(digest), reason.as_deref())));
    }
}

/// Who does not wait any more needs no answer.
fn answer(tell: oneshot::Sender<Decision>, decision: Decision) {
    if tell.send(decision).is_err() {
        tracing::debug!("a decision about a pack came after its load had ended");
    }
}

impl Actor for TrustGate {
    type Context = Context<Self>;
}

impl Handler<BeginLoad> for TrustGate {
    type Result = ();

    fn handle(&mut self, _: BeginLoad, _: &mut Self::Context) {
        self.patience = Patience::default();
        self.said.clear();
        let trust = Arc::clone(&self.shared.trust);
        drop(tokio::task::spawn_blocking(move || {
            for file in trust.pretenders() {
                tracing::warn!("{file} has no effect: only the one in {} counts", crate::paths::shown(trust.home()));
            }
        }));
    }
}

impl Handler<IsAsking> for TrustGate {
    type Result = bool;

    fn handle(&mut self, _: IsAsking, _: &mut Self::Context) -> bool {
        self.is_asking
    }
}

impl Handler<Forget> for TrustGate {
    type Result = ();

    fn handle(&mut self, Forget(pack): Forget, _: &mut Self::Context) {
        self.once.forget(&pack);
    }
}

impl Handler<Decide> for TrustGate {
    type Result = ();

    fn handle(&mut self, message: Decide, ctx: &mut Self::Context) {
        self.decide(message, ctx);
    }
}

#[cfg(test)]
mod tests;
