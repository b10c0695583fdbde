//! `vancetope trust review`: be asked about everything that waits.

use vance_shared::gate::audit::Event;
use vance_shared::gate::pins::Drift;
use vance_shared::gate::{Answer, Verdict};
use vance_shared::launch::Origin;
use vance_shared::names::PackName;
use vance_shared::show::ascii;

use super::desk::{Desk, unchanged};
use crate::cli::binding;
use crate::cli::context::Context;
use crate::cli::failure::{EXIT_FAILED, EXIT_OK, Failure};
use crate::trust::{Counts, Prompt, Reply, Yes, today};

/// Asks about packs that wait, then about tools that changed.
pub(super) async fn review(context: &mut Context) -> Result<u8, Failure> {
    let desk = Desk::new(context)?;
    let person = crate::cli::ask::at_terminal(context)?.and_then(|asker| asker.consent());
    let Some(person) = person else {
        return Err(Failure::Foot(
            "a review needs a terminal; `vancetope trust allow --pack NAME --digest sha256:DIGEST` allows without one"
                .to_owned(),
        ));
    };
    let (mut asked, mut exit) = (0, EXIT_OK);
    for candidate in &desk.candidates {
        let (verdict, _) = desk.judge(candidate);
        let about = format!("pack '{}'", candidate.plan.pack);
        let question = match verdict {
            Verdict::Trusted(_) => continue,
            Verdict::Denied(reason) => {
                context.screen.remark(&format!("vancetope: {about}: {reason}"));
                continue;
            }
            Verdict::Ask(question) => question,
        };
        asked += 1;
        let reply = person.consent(Prompt { text: question.text().to_owned(), about: about.clone() }).await;
        let Reply::Line(line) = reply else { return Ok(EXIT_OK) };
        let digest = question.digest();
        match question.answered(Answer::of(&line), &today()) {
            Some((launch, Some(entry))) => {
                let yes = Yes { event: Event::AllowedAlways, plan: launch.plan(), digest, entry: Some(&entry) };
                if let Counts::No(why) = desk.trust.remember(&yes, Event::NotAsked).map_err(unchanged)? {
                    exit = EXIT_FAILED;
                    context.screen.remark(&format!("vancetope: {about}: {why}"));
                }
            }
            Some((_, None)) => context
                .screen
                .remark(&format!("vancetope: {about}: a review starts nothing, so it asks again when it is loaded")),
            None => desk.trust.record(Event::Refused, Some(&candidate.plan), Some(digest), None),
        }
    }
    let theirs = desk.candidates.iter().map(|candidate| (Origin::Project, &candidate.plan.pack));
    let own = desk.own.iter().map(|pack| (Origin::Global, pack));
    for (origin, pack) in theirs.chain(own) {
        let shown = desk.trust.pins().waiting(origin, pack).map_err(unchanged)?;
        if shown.drift.is_empty() {
            continue;
        }
        asked += 1;
        let about = format!("tools of pack '{pack}'");
        let reply = person.consent(Prompt { text: changed_tools(origin, pack, &shown.drift), about }).await;
        match reply {
            Reply::Line(line) if line.trim() == "2" => {
                let project =
                    (origin == Origin::Project).then(|| desk.project().map(|p| p.key().to_owned())).transpose()?;
                let note = || desk.trust.record_name(Event::ToolsAccepted, project.as_deref(), Some(pack.as_str()));
                if !desk.trust.pins().accept(origin, pack, &shown, note).map_err(unchanged)? {
                    exit = EXIT_FAILED;
                    context.screen.remark(&format!(
                        "vancetope: the tools of pack '{pack}' have changed again since they were shown; nothing was accepted, \
                         `vancetope trust review` shows them as they are now"
                    ));
                    continue;
                }
            }
            Reply::Line(_) => {}
            Reply::Silence | Reply::Broken | Reply::Nobody => return Ok(exit),
        }
    }
    if let Some(waiting) = binding::waiting(context, &desk.trust) {
        asked += 1;
        let about = "the project's Brain".to_owned();
        let Reply::Line(line) = person.consent(Prompt { text: waiting.text.clone(), about }).await else {
            return Ok(exit);
        };
        if !binding::reviewed(&desk.trust, &waiting, &line).map_err(unchanged)? {
            context
                .screen
                .remark("vancetope: the project's Brain: a review reaches nothing, so it asks again when it is used");
        }
    }
    if asked == 0 {
        context.screen.remark("vancetope: nothing waits");
    }
    Ok(exit)
}

fn changed_tools(origin: Origin, pack: &PackName, drift: &Drift) -> String {
    let (whose, ask) = match origin {
        Origin::Project => ("project tool pack", "Offer them? [2] always for this project  [3] no \u{203a}"),
        Origin::Global | Origin::Server => ("your global pack", "Take note of it? [2] yes  [3] not now \u{203a}"),
    };
    let mut text = format!("Tools of {whose} '{pack}' are not what they were when it first started\n");
    for (what, tools) in [("new:", &drift.added), ("changed:", &drift.changed)] {
        for tool in tools {
            text.push_str(&format!("  {what:<13} {}\n", ascii(tool)));
        }
    }
    text.push_str(ask);
    text
}
