//! `vance-brain secret`: what server packs and settings name by `{{secret:NAME}}`. Values come from standard input and go nowhere else.

use std::io::{self, IsTerminal as _, Read as _};
use std::os::fd::AsFd as _;

use nix::poll::{PollFd, PollFlags, poll};
use nix::sys::termios::{LocalFlags, SetArg, SpecialCharacterIndices, Termios, tcgetattr, tcsetattr};
use serde_json::{Value, json};
use vance_shared::show::plain;
use zeroize::Zeroizing;

use super::args::SecretCommand;
use super::{EXIT_FAILED, EXIT_OK, EXIT_USAGE, Screen, at_home};
use crate::home::Home;
use crate::hub::now_ms;
use crate::rows::time;
use crate::secrets::unset;
use crate::secrets::{Listed, MAX_VALUE_BYTES, Vault, VaultError};

pub(super) fn run(json: bool, command: SecretCommand) -> u8 {
    match command {
        SecretCommand::Set { name, home } => at_home(json, home, |home, screen| {
            let value = match typed(&name, screen)? {
                Ok(value) => value,
                Err(error) => {
                    let text = format!("standard input: {error}");
                    return screen.failure("stdin", &text, &Value::Null).map(|()| EXIT_FAILED);
                }
            };
            set(home, &name, &value, screen)
        }),
        SecretCommand::List(home) => at_home(json, home, list),
        SecretCommand::Rm { name, home } => at_home(json, home, |home, screen| rm(home, &name, screen)),
        SecretCommand::Rotate(home) => at_home(json, home, rotate),
    }
}

fn vault(home: &Home) -> Vault {
    Vault::new(&home.data())
}

/// The value: a line that does not show, or all of standard input but a line break at its end.
fn typed(name: &str, screen: &mut Screen<'_>) -> io::Result<io::Result<Zeroizing<String>>> {
    let stdin = io::stdin();
    if stdin.is_terminal() {
        write!(screen.remarks, "Value of {} (it does not show): ", plain(name))?;
        screen.remarks.flush()?;
        let read = Quiet::new().and_then(|_quiet| typed_line(name));
        screen.remark("")?;
        return Ok(read);
    }
    let mut value = Zeroizing::new(String::new());
    let read = stdin.lock().take(MAX_VALUE_BYTES as u64 + 3).read_to_string(&mut value);
    let kept = value.strip_suffix('\n').map_or(value.len(), |line| line.strip_suffix('\r').unwrap_or(line).len());
    value.truncate(kept);
    Ok(read.map(|_| value))
}

/// After a line this long, what still comes is a paste of several lines.
const MORE_WAIT_MS: u16 = 200;

/// One line from the terminal. The terminal itself would cut it at 4,095 bytes without a word, so it hands over each byte; and of several
/// lines the first would be taken for the value and the others by the shell.
fn typed_line(name: &str) -> io::Result<Zeroizing<String>> {
    let stdin = io::stdin();
    let mut typing = Typing::default();
    let mut bytes = Zeroizing::new([0; 4096]);
    loop {
        let mut ready = [PollFd::new(stdin.as_fd(), PollFlags::POLLIN)];
        if typing.has_ended && poll(&mut ready, MORE_WAIT_MS)? == 0 {
            break;
        }
        let count = nix::unistd::read(&stdin, bytes.as_mut())?;
        if count == 0 {
            break;
        }
        bytes.iter().take(count).for_each(|byte| typing.take(*byte));
    }
    typing.value(name)
}

/// What was typed so far. A terminal that hands over each byte leaves erasing to the program.
#[derive(Default)]
struct Typing {
    line: Zeroizing<Vec<u8>>,
    has_ended: bool,
    has_more: bool,
}

impl Typing {
    fn take(&mut self, byte: u8) {
        const BACKSPACE: u8 = 0x08;
        const DELETE: u8 = 0x7f;
        const END: u8 = 0x04;
        const ERASE_LINE: u8 = 0x15;
        match byte {
            _ if self.has_ended => self.has_more = true,
            b'\n' | b'\r' | END => self.has_ended = true,
            BACKSPACE | DELETE => while self.line.pop().is_some_and(|byte| byte & 0xC0 == 0x80) {},
            ERASE_LINE => self.line.clear(),
            // One more than may be, which is then refused with its size.
            _ if self.line.len() <= MAX_VALUE_BYTES => self.line.push(byte),
            _ => {}
        }
    }

    fn value(self, name: &str) -> io::Result<Zeroizing<String>> {
        if self.has_more || self.line.starts_with(b"-----BEGIN ") {
            let name = plain(name);
            let why = format!(
                "more than one line came, and nothing was set; `vance-brain secret set {name} < FILE` takes several"
            );
            return Err(io::Error::other(why));
        }
        let text = std::str::from_utf8(&self.line).map_err(|_| io::Error::other("no UTF-8; encode it in base64"))?;
        Ok(Zeroizing::new(text.to_owned()))
    }
}

/// The exit code of a command that Ctrl-C ended, as shells have it.
const EXIT_INTERRUPTED: i32 = 130;

/// A terminal that neither shows what is typed nor waits for a line, until this goes or Ctrl-C comes.
struct Quiet {
    before: Termios,
    interrupt: tokio::task::JoinHandle<()>,
}

impl Quiet {
    fn new() -> io::Result<Self> {
        let before = tcgetattr(io::stdin())?;
        let mut quiet = before.clone();
        quiet.local_flags.remove(LocalFlags::ECHO | LocalFlags::ICANON);
        // A read waits for one byte, for ever: what a terminal without lines did before may be otherwise.
        quiet.control_chars[SpecialCharacterIndices::VMIN as usize] = 1;
        quiet.control_chars[SpecialCharacterIndices::VTIME as usize] = 0;
        let restored = before.clone();
        // Beside, because this thread waits for the line.
        let interrupt = vance_supervise::beside(async move {
            if tokio::signal::ctrl_c().await.is_ok() {
                show_again(&restored);
                std::process::exit(EXIT_INTERRUPTED);
            }
        });
        tcsetattr(io::stdin(), SetArg::TCSAFLUSH, &quiet)?;
        Ok(Self { before, interrupt })
    }
}

impl Drop for Quiet {
    fn drop(&mut self) {
        self.interrupt.abort();
        show_again(&self.before);
    }
}

fn show_again(before: &Termios) {
    if let Err(error) = tcsetattr(io::stdin(), SetArg::TCSANOW, before) {
        tracing::warn!(%error, "the terminal does not show what is typed; `stty echo` mends that");
    }
}

fn set(home: &Home, name: &str, value: &str, screen: &mut Screen<'_>) -> io::Result<u8> {
    if let Err(error) = home.prepare() {
        return screen.failure("home", &error.to_string(), &Value::Null).map(|()| EXIT_FAILED);
    }
    if let Err(error) = vault(home).set(name, value, &time(now_ms())) {
        return failed(&error, screen);
    }
    if screen.json {
        screen.line(&json!({ "set": name }).to_string())?;
    } else {
        let (characters, lines) = (value.chars().count(), value.lines().count());
        let lines = if lines > 1 { format!(" in {lines} lines") } else { String::new() };
        screen.line(&format!("{name} is set ({characters} characters{lines})"))?;
    }
    Ok(EXIT_OK)
}

fn list(home: &Home, screen: &mut Screen<'_>) -> io::Result<u8> {
    let (secrets, logins) = match vault(home).list().and_then(|secrets| Ok((secrets, vault(home).logins()?))) {
        Ok(listed) => listed,
        Err(error) => return failed(&error, screen),
    };
    let unset = unset::find(home, &crate::home::load(home));
    if screen.json {
        let shown = |all: &[Listed]| -> Vec<Value> {
            let one = |s: &Listed| json!({ "name": s.name, "version": s.version, "changed_at": s.changed_at, "trouble": s.trouble });
            all.iter().map(one).collect()
        };
        let body = json!({ "secrets": shown(&secrets), "logins": shown(&logins), "unset": unset });
        screen.line(&body.to_string())?;
        return Ok(EXIT_OK);
    }
    let width = secrets.iter().chain(&logins).map(|listed| listed.name.len()).max().unwrap_or_default();
    let line =
        |listed: &Listed, kind: &str| format!("{:width$}  {}{kind}", plain(&listed.name), plain(&listed.changed_at));
    for secret in &secrets {
        screen.line(&line(secret, ""))?;
    }
    for login in &logins {
        screen.line(&line(login, "  a login of a pack"))?;
    }
    for trouble in secrets.iter().chain(&logins).filter_map(|listed| listed.trouble.as_ref()) {
        screen.remark(trouble)?;
    }
    if secrets.is_empty() {
        screen.remark("no secrets; `vance-brain secret set NAME` sets one")?;
    }
    for problem in unset {
        screen.remark(&problem.to_string())?;
    }
    Ok(EXIT_OK)
}

fn rm(home: &Home, name: &str, screen: &mut Screen<'_>) -> io::Result<u8> {
    match vault(home).remove(name) {
        Ok(true) if screen.json => screen.line(&json!({ "removed": name }).to_string())?,
        Ok(true) => screen.line(&format!("{name} is removed"))?,
        Ok(false) => {
            let text = format!("there is no secret {}", vance_shared::show::quoted(name, 80));
            return screen.failure("secret_not_found", &text, &Value::Null).map(|()| EXIT_FAILED);
        }
        Err(error) => return failed(&error, screen),
    }
    Ok(EXIT_OK)
}

fn rotate(home: &Home, screen: &mut Screen<'_>) -> io::Result<u8> {
    match vault(home).rotate() {
        Ok(records) if screen.json => screen.line(&json!({ "rotated": records }).to_string())?,
        Ok(records) => screen.line(&format!("another master key wraps {records} record(s) now"))?,
        Err(error) => return failed(&error, screen),
    }
    Ok(EXIT_OK)
}

fn failed(error: &VaultError, screen: &mut Screen<'_>) -> io::Result<u8> {
    let (code, exit) = match error {
        VaultError::BadName(_) => ("bad_name", EXIT_USAGE),
        VaultError::BadValue(_) => ("bad_value", EXIT_USAGE),
        VaultError::Unset(_) => ("secret_not_found", EXIT_FAILED),
        VaultError::NoMaster { .. } => ("no_master_key", EXIT_FAILED),
        VaultError::Distrust(_) | VaultError::NoRandomness(_) | VaultError::Broken { .. } => ("vault", EXIT_FAILED),
    };
    screen.failure(code, &error.to_string(), &Value::Null).map(|()| exit)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn run(json: bool, command: impl FnOnce(&mut Screen<'_>) -> io::Result<u8>) -> (u8, String, String) {
        let (mut out, mut remarks) = (Vec::new(), Vec::new());
        let exit = command(&mut Screen { out: &mut out, remarks: &mut remarks, json }).unwrap();
        (exit, String::from_utf8(out).unwrap(), String::from_utf8(remarks).unwrap())
    }

    #[test]
    fn a_typed_line_is_taken_whole_or_not_at_all() {
        let typed = |text: &str| {
            let mut typing = Typing::default();
            text.bytes().for_each(|byte| typing.take(byte));
            assert!(typing.has_ended, "{text}");
            typing.value("K").map(|value| value.to_string()).map_err(|error| error.to_string())
        };
        let long = "x".repeat(5_000);
        for (text, want) in [
            ("hunter2\n", "hunter2"),
            ("hu\u{e4}\u{7f}\u{8}\u{8}a b\r", "a b"),
            ("wrong\u{15}right\u{4}", "right"),
            ("\n", ""),
            (&format!("{long}\n"), &long),
        ] {
            assert_eq!(typed(text).as_deref(), Ok(want));
        }
        for text in ["one\ntwo\n", "-----BEGIN KEY-----\n", "{\n"] {
            let several = typed(&format!("{text}more"));
            assert!(several.is_err_and(|why| why.contains("secret set K < FILE")), "{text}");
        }
        assert!(typed("-----BEGIN KEY-----\n").is_err(), "whose other lines come late");
        assert_eq!(typed(&format!("{}\n", "x".repeat(70_000))).unwrap().len(), MAX_VALUE_BYTES + 1);
    }

    #[test]
    fn commands_say_names_and_what_is_missing_and_never_a_value() {
        let dir = tempfile::tempdir().unwrap();
        let home = Home::resolve(Some(&dir.path().join("h")), |_| None).unwrap();
        home.prepare().unwrap();
        std::fs::create_dir(home.packs()).unwrap();
        let pack = "{\"name\": \"jira\", \"type\": \"mcp_server\", \"parameters\": {\n\"transport\": \"http\", \"url\": \"https://j/mcp\",\n\"headers\": {\"X-A\": \"{{secret:A}}\", \"X-B\": \"{{secret:B}}\"}}}";
        std::fs::write(home.packs().join("jira.json"), pack).unwrap();
        let mut all = String::new();
        let mut say = |json: bool, command: &dyn Fn(&mut Screen<'_>) -> io::Result<u8>| {
            let (exit, out, remarks) = run(json, command);
            all += &format!("{out}{remarks}");
            (exit, out, remarks)
        };
        let (exit, _, remarks) = say(false, &|screen| list(&home, screen));
        assert!(exit == 0 && remarks.contains("no secrets"), "{remarks}");
        let line = "jira.json:3: the secret B is not set: run `vance-brain secret set B`";
        assert!(remarks.contains(line), "{remarks}");
        assert_eq!(say(false, &|screen| set(&home, "A", "hunter2", screen)).1, "A is set (7 characters)\n");
        let (_, out, _) = say(true, &|screen| list(&home, screen));
        let listed: Value = serde_json::from_str(&out).unwrap();
        assert_eq!(
            (listed["secrets"][0]["name"].as_str(), listed["unset"].as_array().map(Vec::len)),
            (Some("A"), Some(1))
        );
        let (exit, out, _) = say(true, &|screen| crate::cli::check::check(&home, screen));
        assert!(exit == 2 && out.contains("the secret B is not set") && !out.contains("the secret A"), "{out}");
        assert_eq!(say(false, &|screen| rotate(&home, screen)).1, "another master key wraps 1 record(s) now\n");
        assert_eq!(say(false, &|screen| rm(&home, "A", screen)).0, 0);
        assert_eq!(say(false, &|screen| rm(&home, "A", screen)).0, 1);
        assert_eq!(say(false, &|screen| set(&home, "a b", "hunter2", screen)).0, 2);
        assert!(!all.contains("hunter2"), "{all}");
    }
}
