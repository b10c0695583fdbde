//! `vancetope doctor`: looks at everything that a Foot needs, and says what to type where something is wrong. It changes nothing.

use serde_json::{Value, json};
use vance_shared::doc::Problem;
use vance_shared::show::plain;

use super::context::Context;
use super::failure::{EXIT_FAILED, EXIT_OK, Failure};

mod brain;
mod files;
mod programs;
mod state;

pub(super) const EXAMPLES: &str = "\
Examples:
  vancetope doctor                         what is well, what is not, and what to type
  vancetope doctor --json | jq '.findings[] | select(.level == \"fix\")'

Looks at the home and its files, PATH, the packs' programs and variables, the Brain, the token, the clock, the state folder.
Exit codes: 0 all is well, 1 there is something to fix.";

/// How much a finding matters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Level {
    /// As it should be.
    Ok,
    /// Worth knowing.
    Note,
    /// To be mended.
    Fix,
}

impl Level {
    fn word(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Note => "note",
            Self::Fix => "fix",
        }
    }
}

/// One thing that was looked at.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Finding {
    /// What was looked at.
    check: &'static str,
    level: Level,
    message: String,
    /// What to type or do.
    fix: Option<String>,
    /// Where, if it is in a file.
    file: Option<(String, u32)>,
}

impl Finding {
    fn ok(check: &'static str, message: impl Into<String>) -> Self {
        Self { check, level: Level::Ok, message: message.into(), fix: None, file: None }
    }

    fn note(check: &'static str, message: impl Into<String>) -> Self {
        Self { level: Level::Note, ..Self::ok(check, message) }
    }

    fn fix(check: &'static str, message: impl Into<String>, fix: impl Into<String>) -> Self {
        Self { level: Level::Fix, fix: Some(fix.into()), ..Self::ok(check, message) }
    }

    /// A mistake in a file.
    fn mistake(check: &'static str, Problem { file, line, message }: Problem) -> Self {
        let fix = format!("edit {file}, line {line}");
        Self { file: Some((file.clone(), line)), ..Self::fix(check, format!("{file}:{line}: {message}"), fix) }
    }

    fn to_json(&self) -> Value {
        let (file, line) = self.file.clone().unzip();
        json!({
            "check": self.check, "level": self.level.word(), "message": self.message, "fix": self.fix, "file": file, "line": line,
        })
    }
}

/// Looks at everything.
pub(super) async fn doctor(context: &mut Context) -> Result<u8, Failure> {
    let mut findings = files::look(context)?;
    findings.extend(programs::look(context).await?);
    findings.extend(brain::look(context).await?);
    findings.extend(state::look(context)?);
    let wrong = findings.iter().filter(|finding| finding.level == Level::Fix).count();
    let screen = &mut context.screen;
    if screen.json {
        let findings: Vec<Value> = findings.iter().map(Finding::to_json).collect();
        screen.value(&json!({"ok": wrong == 0, "findings": findings}))?;
    } else {
        for finding in &findings {
            screen.line(&format!("{:<5} {:<10} {}", finding.level.word(), finding.check, plain(&finding.message)))?;
            if let Some(fix) = &finding.fix {
                screen.line(&format!("{:<16} \u{2192} {}", "", plain(fix)))?;
            }
        }
        screen.line(&match wrong {
            0 => "all is well".to_owned(),
            1 => "1 thing to fix".to_owned(),
            n => format!("{n} things to fix"),
        })?;
    }
    Ok(if wrong == 0 { EXIT_OK } else { EXIT_FAILED })
}
