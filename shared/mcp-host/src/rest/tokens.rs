//! Tokens for requests: one is asked for at a time, whoever else needs it waits for that.

use std::sync::{Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;
use vance_rest::error::Code;
use vance_rest::request::TokenNeed;
use vance_rest::token::{self, Decision, Token, Tokens};
use vance_shared::call::Fault;

use super::send::{Lost, Sender};
use super::{now, outgoing};

/// Keeps the tokens of one pack.
#[derive(Default)]
pub(super) struct Keeper {
    tokens: Mutex<Tokens>,
    news: Notify,
}

impl Keeper {
    fn tokens(&self) -> MutexGuard<'_, Tokens> {
        self.tokens.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The token in hand, or a new one.
    pub(super) async fn get(&self, need: &TokenNeed, sender: &Sender) -> Result<String, Fault> {
        loop {
            let news = self.news.notified();
            tokio::pin!(news);
            // From here on no news is missed.
            news.as_mut().enable();
            let decision = self.tokens().decide(need, now());
            match decision {
                Decision::Use(token) => return Ok(token),
                Decision::Wait => news.await,
                Decision::Ask => {
                    let mut asking = Asking { keeper: self, need, got: None };
                    let token = ask(self, need, sender).await?;
                    asking.got = Some(token.clone());
                    return Ok(token.access);
                }
            }
        }
    }

    /// The server did not take it.
    pub(super) fn refused(&self, need: &TokenNeed) {
        let mut tokens = self.tokens();
        if let Some(access) = tokens.held(need).map(str::to_owned) {
            tokens.refused(need, &access);
        }
    }
}

/// However asking ends, whoever waits hears of it.
struct Asking<'a> {
    keeper: &'a Keeper,
    need: &'a TokenNeed,
    got: Option<Token>,
}

impl Drop for Asking<'_> {
    fn drop(&mut self) {
        self.keeper.tokens().answered(self.need, self.got.take());
        self.keeper.news.notify_waiters();
    }
}

async fn ask(keeper: &Keeper, need: &TokenNeed, sender: &Sender) -> Result<Token, Fault> {
    let once = async |in_body| {
        let request = keeper.tokens().request(need, in_body);
        let out = outgoing::outgoing(request, None).await?;
        sender.send(out).await.map_err(|lost| match lost {
            Lost::Connect(why) | Lost::Tls(why) | Lost::Broken(why) | Lost::Forbidden(why) => {
                Code::AuthFailed.fault(format!("the token endpoint cannot be reached: {why}"))
            }
            Lost::Timeout => Code::AuthFailed.fault("the token endpoint did not answer in time"),
            Lost::TooLarge(_) => Code::AuthFailed.fault("the token endpoint's answer is too large"),
        })
    };
    let answer = once(false).await?;
    let answer = match (answer.status, &need.client_secret) {
        // Servers that want the secret in the body say so with one of these.
        (400 | 401, Some(_)) => once(true).await?,
        _ => answer,
    };
    token::read(answer.status, &answer.body, now())
}
