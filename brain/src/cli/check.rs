//! `vance-brain check`: all problems of all files, each at its line.

use std::io;

use serde_json::json;
use vance_brain_core::config::BrainConfig;
use vance_shared::doc::Problem;
use vance_shared::show::plain;

use super::{EXIT_OK, EXIT_USAGE, Screen};
use crate::home::{self, Home};
use crate::secrets::unset;
use crate::serve::listen_addr;
use crate::tls::Tls;

/// Prints what is wrong. Problems are the result and go to standard output; warnings are remarks.
pub(super) fn check(home: &Home, screen: &mut Screen<'_>) -> io::Result<u8> {
    let mut loaded = home::load(home);
    loaded.problems.extend(unset::find(home, &loaded));
    loaded.problems.extend(loaded.config.as_ref().map(|config| refused(home, config)).unwrap_or_default());
    let ok = loaded.problems.is_empty();
    if screen.json {
        let body = json!({ "ok": ok, "problems": loaded.problems, "warnings": loaded.warnings });
        screen.line(&body.to_string())?;
    } else {
        let brain = plain(&home.brain().display().to_string());
        if !home.brain().is_dir() {
            writeln!(screen.remarks, "{brain} is not there: everything has its default")?;
        }
        for warning in &loaded.warnings {
            writeln!(screen.remarks, "{}:{}: warning: {}", plain(&warning.file), warning.line, warning.message)?;
        }
        for problem in &loaded.problems {
            screen.line(&problem.to_string())?;
        }
        if ok {
            screen
                .line(&format!("no problems in {}", vance_shared::show::plain(&home.brain().display().to_string())))?;
        }
    }
    Ok(if ok { EXIT_OK } else { EXIT_USAGE })
}

/// Settings that are good as text, and with which `serve` does not start.
fn refused(home: &Home, config: &BrainConfig) -> Vec<Problem> {
    let tls = config.tls.as_ref().and_then(|files| Tls::load(files, &home.brain()).err());
    let all = [("listen", listen_addr(None, config).err()), ("tls", tls.map(|error| error.to_string()))];
    // Read a moment ago, and good.
    let text = std::fs::read_to_string(home.config()).unwrap_or_default();
    let line = |key: &str| {
        let at =
            text.lines().position(|line| line.strip_prefix(key).is_some_and(|rest| rest.trim_start().starts_with(':')));
        at.and_then(|at| u32::try_from(at + 1).ok()).unwrap_or(1)
    };
    let file = home.config().display().to_string();
    all.into_iter().filter_map(|(key, why)| Some(Problem::new(file.clone(), line(key), why?))).collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn run(home: &Home, json: bool) -> (u8, String, String) {
        let (mut out, mut remarks) = (Vec::new(), Vec::new());
        let mut screen = Screen { out: &mut out, remarks: &mut remarks, json };
        let exit = check(home, &mut screen).unwrap();
        (exit, String::from_utf8(out).unwrap(), String::from_utf8(remarks).unwrap())
    }

    #[test]
    fn what_serve_refuses_check_finds_with_its_line() {
        let dir = tempfile::tempdir().unwrap();
        let home = Home::resolve(Some(dir.path()), |_| None).unwrap();
        home.prepare().unwrap();
        for (text, want) in [
            ("\nlisten: 0.0.0.0:9990\n", "brain.yaml:2: listen: 0.0.0.0:9990 is reachable from other machines"),
            ("listen: 0.0.0.0:9990\ntls: {cert: a, key: b}\n", "brain.yaml:2: tls: cannot read"),
        ] {
            std::fs::write(home.config(), text).unwrap();
            let (exit, out, _) = run(&home, false);
            assert!(exit == 2 && out.contains(want), "{text}: {out}");
        }
        std::fs::write(home.config(), "listen: 0.0.0.0:9990\nallow_insecure: true\n").unwrap();
        assert_eq!(run(&home, false).0, 0);
    }

    #[test]
    fn an_empty_home_has_no_problems_and_mistakes_of_several_files_come_all_at_once() {
        let dir = tempfile::tempdir().unwrap();
        let home = Home::resolve(Some(dir.path()), |_| None).unwrap();
        let (exit, out, _) = run(&home, false);
        assert!(exit == 0 && out.starts_with("no problems in "), "{out}");
        home.prepare().unwrap();
        std::fs::write(home.config(), "listen: 127.0.0.1:1\nlisten_on: x\n").unwrap();
        std::fs::write(home.registry(), "tools:\n- name: a b\n  location: moon\n").unwrap();
        let (exit, out, _) = run(&home, false);
        assert_eq!(exit, 2, "{out}");
        assert!(out.contains("brain.yaml:2: ") && out.contains("tools.yaml:"), "{out}");
        let (exit, out, remarks) = run(&home, true);
        let body: serde_json::Value = serde_json::from_str(&out).unwrap();
        assert!(exit == 2 && remarks.is_empty() && body["ok"] == false, "{out}");
        assert!(body["problems"].as_array().unwrap().iter().any(|p| p["line"] == 2), "{out}");
    }
}
