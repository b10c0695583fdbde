//! `vancetope trust log`.

use serde_json::{Value, json};
use vance_shared::gate::audit::{self, Event};

use super::desk::Desk;
use crate::cli::context::Context;
use crate::cli::failure::{EXIT_OK, Failure};
use crate::paths::shown;

/// Shows every decision; a log that somebody has cut or changed is an error.
pub(super) fn log(context: &mut Context) -> Result<u8, Failure> {
    let desk = Desk::new(context)?;
    let log = desk.trust.log();
    let file = shown(log.file());
    // First: what is written meanwhile is beyond it.
    let end = log.read_end();
    let text = log.read().map_err(|error| Failure::File { file: file.clone(), why: error.to_string() })?;
    let lines = audit::read(&text)
        .and_then(|lines| {
            end.as_ref().ok().and_then(Option::as_ref).map_or(Ok(()), |end| end.check(&text)).map(|()| lines)
        })
        .map_err(|broken| Failure::Foot(format!("{file}: {broken}; somebody has changed the log")))?;
    let word = |line: &audit::Line| match serde_json::to_value(line.event) {
        Ok(Value::String(word)) => word,
        Ok(_) | Err(_) => String::new(),
    };
    let screen = &mut context.screen;
    match end {
        Err(why) => screen.remark(&format!("vancetope: {why}; decisions may be missing")),
        Ok(None) if !text.is_empty() => screen.remark(&format!(
            "vancetope: {file}: nothing says how far the log went: {} is gone; decisions may be missing",
            shown(&log.file().with_extension("end"))
        )),
        Ok(_) => {}
    }
    for (event, what) in [
        (Event::Torn, "a torn line, as a crash leaves it: that decision may be missing"),
        (Event::Cut, "the log was cut off or changed: decisions may be missing"),
    ] {
        if lines.iter().any(|line| line.event == event) {
            screen.remark(&format!("vancetope: {file}: {what}"));
        }
    }
    if screen.json {
        let lines: Vec<Value> = lines.iter().map(|line| json!(line)).collect();
        screen.value(&json!({ "log": file, "lines": lines }))?;
        return Ok(EXIT_OK);
    }
    let dash = |text: &Option<String>| text.clone().unwrap_or_else(|| "-".to_owned());
    let rows = lines.iter().map(|line| {
        let what = line.reason.clone().or_else(|| line.reach.clone());
        [line.at.clone(), word(line), dash(&line.pack), dash(&what), dash(&line.project)]
    });
    screen.table(["WHEN", "WHAT", "PACK", "REACH OR REASON", "FOLDER"], rows.collect(), "no decision so far")?;
    Ok(EXIT_OK)
}
