//! The Brain that a project names in its `project.eddie.yaml`: used only after a yes, and never with a token of the user's.

use vance_shared::gate::audit::Event;
use vance_shared::gate::{Answer, Binding, Nobody};

use super::args::brain_url;
use super::context::Context;
use super::failure::Failure;
use crate::trust::{Distrust, Prompt, Reply, Trust, today};

/// What the project names and nobody has said yes to, if this run would ask about it.
pub(super) struct Waiting {
    wish: Binding,
    /// All of the question, the choices last.
    pub(super) text: String,
}

impl Waiting {
    /// The Brain, or whose session, on one line.
    pub(super) fn reach(&self) -> String {
        self.wish.reach()
    }
}

/// Looks only: nothing is asked, written or reached.
pub(super) fn waiting(context: &Context, trust: &Trust) -> Option<Waiting> {
    if context.general.no_local {
        return None;
    }
    let (wish, _) = trust.binding().ok()??;
    let wish = ours(context, wish).ok()??;
    let (project, reading) = (trust.project().ok()?, trust.brains().read());
    let text = wish.question(project, &reading.book);
    (!wish.is_allowed(project, &reading.book)).then_some(Waiting { wish, text })
}

/// Takes a line as the answer, as a review does: only what lasts has an effect. False if it was neither a lasting yes nor a no.
pub(super) fn reviewed(trust: &Trust, Waiting { wish, .. }: &Waiting, line: &str) -> Result<bool, Distrust> {
    let (Ok(project), answer) = (trust.project(), Answer::of(line)) else { return Ok(false) };
    match answer {
        Answer::Always => {
            if let Some(entry) = wish.entry(&today()) {
                trust.brains().edit(|book| book.allow(project, &entry))?;
            }
            trust.record_binding(Event::AllowedAlways, wish);
        }
        Answer::No => trust.record_binding(Event::Refused, wish),
        Answer::Once => return Ok(false),
    }
    Ok(true)
}

/// The wish with its address in its normal form; nothing if it is what this run does anyway.
fn ours(context: &Context, mut wish: Binding) -> Result<Option<Binding>, String> {
    let brain = wish.brain.as_deref().map(brain_url).transpose()?;
    wish.brain = brain.filter(|brain| *brain != context.general.brain).map(|brain| brain.to_string());
    Ok((wish.brain.is_some() || wish.session.is_some()).then_some(wish))
}

/// Binds this run to what the project names, if the person wants that. What they have named themselves comes first.
pub(super) async fn bind(context: &mut Context) -> Result<(), Failure> {
    if context.general.no_local {
        return Ok(());
    }
    let place = |why: std::io::Error| Failure::Foot(format!("the working directory cannot be told: {why}"));
    let project_dir = std::env::current_dir().map_err(place)?;
    let trust = Trust::new(&context.home()?, &project_dir);
    let (wish, odd) = match trust.binding() {
        Ok(Some(found)) => found,
        Ok(None) => return Ok(()),
        Err(why) => {
            tracing::warn!("{why}; it has no effect");
            return Ok(());
        }
    };
    odd.iter().for_each(|odd| tracing::warn!("{odd}"));
    let file = wish.file.clone();
    let wish = match ours(context, wish) {
        Ok(Some(wish)) => wish,
        Ok(None) => return Ok(()),
        Err(why) => {
            tracing::warn!("{file}: `brain`: {}; the file has no effect", vance_shared::show::plain(&why));
            return Ok(());
        }
    };
    let Ok(project) = trust.project() else { return Ok(()) };
    let reading = trust.brains().read();
    for line in reading.notices.iter().chain(&reading.distrust) {
        tracing::warn!("{line}");
    }
    if !wish.is_allowed(project, &reading.book) {
        let Some(person) = super::ask::at_terminal(context)?.and_then(|asker| asker.consent()) else {
            let Nobody { why, way_out } = super::ask::nobody(context).unwrap_or_default();
            tracing::warn!(
                "{} names {}, which needs consent, and {why}: it has no effect; {way_out}, or name it with --brain or --session",
                wish.file,
                wish.reach()
            );
            trust.record_binding(Event::NotAsked, &wish);
            return Ok(());
        };
        let text = wish.question(project, &reading.book);
        let reply = person.consent(Prompt { text, about: "the project's Brain".to_owned() }).await;
        let (answer, event) = match &reply {
            Reply::Line(line) => match Answer::of(line) {
                Answer::Once => (Answer::Once, Event::AllowedOnce),
                Answer::Always => (Answer::Always, Event::AllowedAlways),
                Answer::No => (Answer::No, Event::Refused),
            },
            Reply::Silence => (Answer::No, Event::TimedOut),
            Reply::Nobody => (Answer::No, Event::NotAsked),
            Reply::Broken => (Answer::No, Event::Refused),
        };
        trust.record_binding(event, &wish);
        match answer {
            Answer::No => return Ok(()),
            Answer::Once => {}
            Answer::Always => {
                let written = wish.entry(&today()).map(|entry| trust.brains().edit(|book| book.allow(project, &entry)));
                if let Some(Err(why)) = written {
                    context.screen.remark(&format!("vancetope: used once; it was not remembered: {why}"));
                }
            }
        }
    }
    context.screen.remark(&format!("vancetope: using {}, as {} says", wish.reach(), wish.file));
    if let Some(brain) = wish.brain.as_deref().and_then(|brain| brain_url(brain).ok()) {
        // Whatever was given to this program was given for another Brain.
        context.environment.project_brain = Some(brain.clone());
        context.general.brain = brain;
    }
    if let Some(session) = wish.session {
        context.general.session = Some(session);
        context.general.new_session = false;
    }
    Ok(())
}
