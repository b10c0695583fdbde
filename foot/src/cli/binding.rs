//! The Brain that a project names in its `project.eddie.yaml`: used only after a yes, and never with a token of the user's.

use vance_shared::gate::audit::Event;
use vance_shared::gate::{Answer, Nobody};

use super::args::brain_url;
use super::context::Context;
use super::failure::Failure;
use crate::trust::{Prompt, Reply, Trust, today};

/// Binds this run to what the project names, if the person wants that. What they have named themselves comes first.
pub(super) async fn bind(context: &mut Context) -> Result<(), Failure> {
    if context.general.no_local {
        return Ok(());
    }
    let place = |why: std::io::Error| Failure::Foot(format!("the working directory cannot be told: {why}"));
    let project_dir = std::env::current_dir().map_err(place)?;
    let trust = Trust::new(&context.home()?, &project_dir);
    let (mut wish, odd) = match trust.binding() {
        Ok(Some(found)) => found,
        Ok(None) => return Ok(()),
        Err(why) => {
            tracing::warn!("{why}; it has no effect");
            return Ok(());
        }
    };
    odd.iter().for_each(|odd| tracing::warn!("{odd}"));
    let brain = match wish.brain.as_deref().map(brain_url).transpose() {
        Ok(brain) => brain.filter(|brain| *brain != context.general.brain),
        Err(why) => {
            tracing::warn!("{}: `brain`: {}; the file has no effect", wish.file, vance_shared::show::plain(&why));
            return Ok(());
        }
    };
    wish.brain = brain.as_ref().map(ToString::to_string);
    let Ok(project) = trust.project() else { return Ok(()) };
    if wish.brain.is_none() && wish.session.is_none() {
        return Ok(());
    }
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
    if let Some(brain) = brain {
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
