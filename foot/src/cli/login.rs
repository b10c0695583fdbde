//! `vancetope login`: pairs this home with a Brain, once its address and its token are known to work; and logs in to the server of a pack.

use std::io::{IsTerminal as _, Read as _};

use clap::Args;
use reqwest::Url;
use serde_json::json;
use vance_shared::names::PackName;

use super::access::{Access, is_encrypted_or_here};
use super::args::brain_url;
use super::ask::{self, Reply};
use super::context::Context;
use super::failure::{EXIT_OK, Failure};
use crate::api::{ApiError, Brain, Token};
use crate::paths::shown;

mod pack;

/// Longest token that is read, in bytes.
const MAX_TOKEN_BYTES: u64 = 4096;

pub(super) const EXAMPLES: &str = "\
Examples:
  vancetope login https://brain.example.org            asks for the token, without showing it
  vancetope login https://brain.example.org < token    from standard input
  ssh brain vance-brain token new --name alice | vancetope login https://brain.example.org
  vancetope login jira                                 in the browser, for the pack 'jira' whose server wants OAuth
  vancetope login jira --device                        the same by a code, for a browser on another machine
  vancetope login jira --forget

Pairing writes <home>/access.yaml, which only you can read. From then on every command uses that Brain, unless --brain or VANCE_BRAIN
names another one. The token is sent to that Brain alone. On the Brain's own machine there is nothing to do: its token is found.";

#[derive(Debug, Args)]
pub(super) struct LoginArgs {
    /// A Brain's address, or the name of a pack whose server wants a login
    #[arg(value_name = "URL|PACK", value_parser = target)]
    target: Target,

    /// The token; better typed or piped in, since a command line can be read by others on this machine
    #[arg(long, value_name = "TOKEN")]
    token: Option<String>,

    /// Let the token travel unencrypted to another machine
    #[arg(long)]
    allow_insecure: bool,

    /// Log in to a pack by a code that is typed on another machine
    #[arg(long, conflicts_with_all = ["token", "allow_insecure", "forget"])]
    device: bool,

    /// Forget a pack's login
    #[arg(long, conflicts_with_all = ["token", "allow_insecure"])]
    forget: bool,
}

/// Where to log in.
#[derive(Debug, Clone)]
enum Target {
    Brain(Url),
    Pack(PackName),
}

fn target(text: &str) -> Result<Target, String> {
    if text.contains("://") {
        return brain_url(text).map(Target::Brain);
    }
    PackName::parse(text)
        .map(Target::Pack)
        .map_err(|_| "expected a Brain's address such as https://brain.example.org, or a pack's name".to_owned())
}

/// Logs in.
pub(super) async fn login(context: &mut Context, args: &LoginArgs) -> Result<u8, Failure> {
    match &args.target {
        Target::Brain(_) if args.forget => {
            let file = shown(&Access::file(&context.home()?));
            Err(Failure::Usage(format!("--forget is for packs; to end the pairing: rm {file}")))
        }
        Target::Brain(_) if args.device => {
            Err(Failure::Usage("--device is for packs; a Brain takes a token".to_owned()))
        }
        Target::Brain(url) => pair(context, args, url).await,
        Target::Pack(pack) => pack::login(context, pack, args.forget, args.device).await,
    }
}

async fn pair(context: &mut Context, args: &LoginArgs, url: &Url) -> Result<u8, Failure> {
    let home = context.home()?;
    if !is_encrypted_or_here(url) && !args.allow_insecure {
        return Err(Failure::Usage(format!(
            "{url} is not encrypted, and everybody on the way could read the token; use https, an SSH tunnel to a port of this machine, or --allow-insecure"
        )));
    }
    // Whoever answers there gets no token before it has shown to be a Brain.
    let stranger = Brain::new(url.clone(), None)?;
    stranger.ready().await.map_err(|error| explained(error, &stranger))?;
    let token = token(context, args).await?;
    let brain = Brain::new(url.clone(), Some(token.clone()))?;
    let foot_only = match brain.sessions().await {
        Ok(_) => false,
        Err(ApiError::Refused { status: 401, .. }) => {
            let message = format!("the Brain at {} does not know this token; nothing was written", brain.url());
            return Err(Failure::Call { code: "unauthorized".to_owned(), message });
        }
        // A token for a Foot alone.
        Err(ApiError::Refused { status: 403, .. }) => true,
        Err(error) => return Err(explained(error, &brain)),
    };
    let access =
        Access { brain: url.clone(), token, allow_insecure: args.allow_insecure && !is_encrypted_or_here(url) };
    let path = access
        .write(&home)
        .map_err(|error| Failure::File { file: shown(&Access::file(&home)), why: error.to_string() })?;
    let screen = &mut context.screen;
    if screen.json {
        screen.value(&json!({"brain": brain.url(), "file": shown(&path), "foot_only": foot_only}))?;
        return Ok(EXIT_OK);
    }
    screen.line(&format!("paired with {} ({})", brain.url(), shown(&path)))?;
    if foot_only {
        screen.remark(
            "this token lets this machine offer its tools, but not submit or list tasks (it lacks the scope api)",
        );
    }
    if context.environment.token.is_some() {
        screen.remark("VANCE_TOKEN is set and comes before what was just stored: unset VANCE_TOKEN");
    }
    if context.environment.brain_of_variable && context.general.brain != *url {
        let brain = context.general.brain.as_str().trim_end_matches('/');
        screen
            .remark(&format!("VANCE_BRAIN ({brain}) is set and comes before what was just stored: unset VANCE_BRAIN"));
    }
    screen.remark("next: `vancetope doctor` checks the rest; `vancetope` offers this machine's tools");
    Ok(EXIT_OK)
}

/// What answers at the address is no Brain, or not yet.
fn explained(error: ApiError, brain: &Brain) -> Failure {
    let ApiError::Refused { status, .. } = error else { return error.into() };
    let what = match status {
        300..=399 => "answers with a redirect; log in at the address that it leads to".to_owned(),
        404 => "has no Brain at this path".to_owned(),
        status => format!("answered with HTTP {status}"),
    };
    Failure::Call { code: "no_brain".to_owned(), message: format!("{} {what}", brain.url()) }
}

async fn token(context: &Context, args: &LoginArgs) -> Result<Token, Failure> {
    let text = match &args.token {
        Some(text) => text.clone(),
        None if std::io::stdin().is_terminal() => match ask::hidden(context, "Token (it does not show): ").await? {
            Reply::Line(line) => line,
            Reply::Nothing => return Err(Failure::Foot("no token, so nothing was written".to_owned())),
            Reply::Nobody => {
                let why = "nobody can be asked here; pipe the token into standard input, or name it with --token";
                return Err(Failure::Usage(why.to_owned()));
            }
        },
        None => {
            let mut text = String::new();
            let read = std::io::stdin().lock().take(MAX_TOKEN_BYTES).read_to_string(&mut text);
            read.map_err(|error| Failure::File { file: "standard input".to_owned(), why: error.to_string() })?;
            text
        }
    };
    let token = Token::new(&text);
    if token.reveal().is_empty() || !token.reveal().chars().all(|c| c.is_ascii_graphic()) {
        return Err(Failure::Usage("that is no token: expected one line of printable characters".to_owned()));
    }
    Ok(token)
}
