//! A server that asks a person in the middle of a call: while it waits for them, its calls show that they live.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use futures_util::future::BoxFuture;
use vance_mcp_host::{Elicit, Elicited, People};

use crate::actors::catalogue::Progress;

/// Between two signs of life: well within a call's usual time.
const EVERY: Duration = Duration::from_secs(10);

/// The open questions of one server; clones are the same ones.
#[derive(Debug, Clone, Default)]
pub(crate) struct Asking(Arc<AtomicU32>);

/// A question, until it is answered or taken back.
struct Open(Arc<AtomicU32>);

impl Drop for Open {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}

impl Asking {
    /// The person, for one server. Servers hear beforehand whether there is one.
    pub(super) fn people(&self, elicit: Option<Elicit>) -> People {
        let open = Arc::clone(&self.0);
        let elicit = elicit.map(|elicit| {
            Arc::new(move |question| -> BoxFuture<'static, Elicited> {
                open.fetch_add(1, Ordering::AcqRel);
                let (open, answer) = (Open(Arc::clone(&open)), elicit(question));
                Box::pin(async move {
                    let _open = open;
                    answer.await
                })
            }) as Elicit
        });
        People { elicit, ..People::default() }
    }

    /// Runs a call of that server. A person's time is not the tool's: while one is asked, the call reports progress, so that neither the
    /// Foot nor the Brain gives it up before its cap.
    pub(crate) async fn alive<T>(&self, timeout: Duration, progress: &Progress, call: impl Future<Output = T>) -> T {
        let mut call = std::pin::pin!(call);
        let every = EVERY.min(timeout / 2);
        loop {
            tokio::select! {
                biased;
                ended = &mut call => return ended,
                () = tokio::time::sleep(every) => {
                    if self.0.load(Ordering::Acquire) > 0 {
                        progress(None, Some("its server waits for an answer of the person at the terminal".to_owned()));
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use vance_mcp_host::Question;
    use vance_shared::names::PackName;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_call_shows_that_it_lives_while_a_person_is_asked_and_only_then() {
        let beats = Arc::new(AtomicU32::new(0));
        let ear = Arc::clone(&beats);
        let progress: Progress = Arc::new(move |_, _| {
            ear.fetch_add(1, Ordering::Relaxed);
        });
        let elicit: Elicit = Arc::new(|_| {
            Box::pin(async {
                tokio::time::sleep(Duration::from_secs(35)).await;
                Elicited::Declined
            })
        });
        let asking = Asking::default();
        assert!(asking.people(None).elicit.is_none());
        let ask = asking.people(Some(elicit)).elicit.unwrap();
        let question = || Question {
            pack: PackName::parse("a").unwrap(),
            message: String::new(),
            schema: serde_json::Value::Null,
        };
        let limit = Duration::from_secs(60);
        assert_eq!(asking.alive(limit, &progress, ask(question())).await, Elicited::Declined);
        assert_eq!(beats.load(Ordering::Relaxed), 3);
        drop(ask(question()));
        asking.alive(limit, &progress, tokio::time::sleep(Duration::from_secs(35))).await;
        assert_eq!(beats.load(Ordering::Relaxed), 3, "a question that was taken back is not open");
    }
}
