//! The two levels as one list: the union by name, and the project wins.
//!
//! | the project's file | no global pack of its name | a global one | a global one that forbids it |
//! |---|---|---|---|
//! | a pack | contributes | redirects; the global one stays as what a "no" falls back to | is left out |
//! | `"enabled": false` | nothing | turns it off, with a notice | is left out |
//! | broken | fails | fails; the global one stays | fails; the global one stays |

use vance_shared::doc::Problem;
use vance_shared::show::plain;

use crate::merge::{Found, LeftOut, Merged};

/// The pack that counts for a name, and the one under it.
#[derive(Debug, Clone, PartialEq)]
pub struct Layered {
    /// The pack.
    pub found: Found,
    /// The user's own pack that the project's one would replace: active again if the project's is not allowed.
    pub below: Option<Found>,
}

/// What both levels come to.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Levels {
    /// One a name: the user's own order, then what the project contributes.
    pub packs: Vec<Layered>,
    /// Files of the project that the user's own packs forbid.
    pub skipped: Vec<LeftOut>,
    /// Files that cannot be loaded.
    pub failed: Vec<LeftOut>,
    /// Everything that is wrong, with file and line.
    pub problems: Vec<Problem>,
    /// What is odd in packs that load.
    pub warnings: Vec<Problem>,
    /// What the user should know although nothing is wrong: one line for each pack of theirs that the project turns off.
    pub notices: Vec<String>,
}

/// Lays the project's packs over the user's own. Without a project level: an empty one.
pub fn levels(global: Merged, project: Merged) -> Levels {
    let mut levels = Levels {
        packs: global.packs.into_iter().map(|found| Layered { found, below: None }).collect(),
        failed: global.failed,
        problems: global.problems,
        warnings: global.warnings,
        ..Levels::default()
    };
    levels.problems.extend(project.problems);
    levels.warnings.extend(project.warnings);
    for mut left_out in project.failed {
        if levels.packs.iter().any(|layered| layered.found.pack.name.as_str() == left_out.pack) {
            left_out.reason.push_str("; your global pack of that name stays active");
        }
        levels.failed.push(left_out);
    }
    for found in project.packs {
        levels.lay(found);
    }
    levels
}

impl Levels {
    fn lay(&mut self, found: Found) {
        let Some(layered) = self.packs.iter_mut().find(|layered| layered.found.pack.name == found.pack.name) else {
            self.packs.push(Layered { found, below: None });
            return;
        };
        let (name, own) = (found.pack.name.to_string(), &layered.found);
        if own.pack.project_override_forbidden {
            let verb = if found.pack.enabled { "redirect" } else { "turn off" };
            let reason = format!(
                "would {verb} your global pack '{name}', but {} says \"projectOverride\": \"forbid\"",
                plain(&own.file)
            );
            self.skipped.push(LeftOut { pack: name, file: found.file, reason });
            return;
        }
        if !found.pack.enabled && own.pack.enabled {
            self.notices.push(format!(
                "this project turns off your global pack '{name}' ({}); \"projectOverride\": \"forbid\" in {} would keep it",
                plain(&found.file),
                plain(&own.file)
            ));
        }
        let off = !found.pack.enabled;
        let own = std::mem::replace(&mut layered.found, found);
        layered.below = (own.pack.enabled && !off).then_some(own);
    }
}

#[cfg(test)]
mod tests;
