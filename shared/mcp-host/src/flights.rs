//! The calls of one server that are under way, and whom its questions are for.
//!
//! A server that asks over its connection does not say for which call. With one call under way there is no doubt; with several it
//! is the one that began last and is not asking yet. If that ends while the question is open, the next one is asked for.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;
use vance_shared::names::PackName;

use crate::call::ProgressSink;
use crate::handle::{CallRequest, Progress};
use crate::people::{Asking, People, Person};

/// Between two signs of life while a person is asked: well within a call's usual time.
const BEAT: Duration = Duration::from_secs(10);
/// What they say.
pub(crate) const WAITS: &str = "its server waits for a person's answer";

/// Calls by their order. A lock, because callers come and go on their own tasks while the connection asks; one map operation each.
#[derive(Default)]
pub(crate) struct Flights {
    asking: Asking,
    calls: Mutex<(u64, BTreeMap<u64, Arc<Flight>>)>,
}

/// One call under way.
pub(crate) struct Flight {
    person: Person,
    ended: CancellationToken,
    /// One question of a call after the other.
    turn: tokio::sync::Mutex<()>,
    beat: Option<ProgressSink>,
    every: Duration,
}

/// A call's place; given back when it is dropped.
pub(crate) struct Boarded<'a> {
    flights: &'a Flights,
    number: u64,
    pub(crate) flight: Arc<Flight>,
}

impl Drop for Boarded<'_> {
    fn drop(&mut self) {
        self.flights.calls().1.remove(&self.number);
        self.flight.ended.cancel();
    }
}

impl Flights {
    /// Questions of the server that wait for a person: meanwhile its other calls wait, too.
    pub(crate) fn asking(&self) -> &Asking {
        &self.asking
    }

    pub(crate) fn begin(&self, request: &CallRequest) -> Boarded<'_> {
        let flight = Arc::new(Flight {
            person: request.person.clone(),
            ended: CancellationToken::new(),
            turn: tokio::sync::Mutex::default(),
            beat: request.progress.clone(),
            every: BEAT.min(request.timeout / 2),
        });
        let mut calls = self.calls();
        calls.0 += 1;
        let number = calls.0;
        calls.1.insert(number, Arc::clone(&flight));
        drop(calls);
        Boarded { flights: self, number, flight }
    }

    /// The answer to an `elicitation/create` that came over the connection, as it goes to the server.
    pub(crate) async fn ask(&self, people: &People, pack: &PackName, params: &Value) -> Value {
        let _asking = self.asking.begin();
        let mut had_one = false;
        loop {
            let flight = match self.latest() {
                Some(flight) => flight,
                None if had_one => return json!({ "action": "cancel" }),
                None => return people.ask(pack, None, params).await,
            };
            had_one = true;
            tokio::select! {
                biased;
                // With its call a question is withdrawn: that is not what a person said.
                answer = flight.ask(people, pack, params) => {
                    if !(flight.ended.is_cancelled() && answer["action"] == "cancel") {
                        return answer;
                    }
                }
                () = flight.ended.cancelled() => {}
            }
        }
    }

    fn latest(&self) -> Option<Arc<Flight>> {
        let calls = self.calls();
        let quiet = calls.1.values().rev().find(|flight| !flight.person.asked.is_open());
        quiet.or_else(|| calls.1.values().next_back()).cloned()
    }

    fn calls(&self) -> MutexGuard<'_, (u64, BTreeMap<u64, Arc<Flight>>)> {
        self.calls.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Flight {
    /// The answer to a question of this call. Meanwhile the call's own time stands still, and whoever waits for it hears that it lives.
    pub(crate) async fn ask(&self, people: &People, pack: &PackName, params: &Value) -> Value {
        let _turn = self.turn.lock().await;
        let _asked = self.person.asked.begin();
        let mut answer = std::pin::pin!(people.ask(pack, Some(&self.person), params));
        loop {
            tokio::select! {
                biased;
                answer = &mut answer => return answer,
                () = tokio::time::sleep(self.every) => {
                    if let Some(beat) = &self.beat {
                        beat(Progress { fraction: None, message: Some(WAITS.to_owned()) });
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::sync::atomic::{AtomicU32, Ordering};

    use tokio::sync::mpsc;
    use vance_shared::ids::CallId;
    use vance_shared::json::Raw;
    use vance_shared::names::ToolName;
    use vance_shared::trace::TraceContext;

    use super::*;
    use crate::people::{Elicit, Elicited};

    fn request(elicit: Option<Elicit>, beat: Option<ProgressSink>) -> CallRequest {
        CallRequest {
            call_id: CallId::generate(),
            tool: ToolName::parse("p__t").unwrap(),
            arguments: Raw::empty_object(),
            timeout: Duration::from_secs(60),
            cap: Duration::from_secs(60),
            trace: TraceContext::root(),
            cancel: CancellationToken::new(),
            progress: beat,
            person: Person { elicit, ..Person::default() },
        }
    }

    /// Somebody who says who was asked, and whose answer is waited for.
    fn somebody(name: &'static str, asked: &mpsc::Sender<&'static str>, after: Duration) -> Option<Elicit> {
        let asked = asked.clone();
        Some(Arc::new(move |_| {
            asked.try_send(name).unwrap();
            Box::pin(async move {
                tokio::time::sleep(after).await;
                Elicited::Declined
            })
        }))
    }

    #[tokio::test(start_paused = true)]
    async fn a_question_is_for_the_last_call_and_for_the_next_if_that_ends() {
        let (tell, mut asked) = mpsc::channel(16);
        let flights = Flights::default();
        let (people, pack, params) = (People::default(), PackName::parse("p").unwrap(), json!({"message": "?"}));
        let day = Duration::from_secs(86_400);
        let first = flights.begin(&request(somebody("first", &tell, day), None));
        let second = flights.begin(&request(somebody("second", &tell, day), None));
        let minute = Duration::from_secs(60);
        let soon = async {
            tokio::time::sleep(minute).await;
            drop(second);
            tokio::time::sleep(2 * day).await;
            drop(first);
        };
        let later = async {
            tokio::time::sleep(Duration::from_secs(1)).await;
            flights.ask(&people, &pack, &params).await
        };
        let (one, two, ()) = tokio::join!(flights.ask(&people, &pack, &params), later, soon);
        assert_eq!((one, two), (json!({"action": "decline"}), json!({"action": "decline"})));
        let all: Vec<&str> = std::iter::from_fn(|| asked.try_recv().ok()).collect();
        assert_eq!(all, ["second", "first", "first"], "one after the other");
        assert!(!flights.asking().is_open());
        assert_eq!(flights.ask(&people, &pack, &params).await, json!({"action": "decline"}), "nobody to ask");
    }

    #[tokio::test(start_paused = true)]
    async fn a_question_that_is_withdrawn_with_its_call_goes_on_to_the_next_one() {
        let (tell, mut asked) = mpsc::channel(16);
        let flights: &'static Flights = Box::leak(Box::default());
        let _first = flights.begin(&request(somebody("first", &tell, Duration::from_secs(1)), None));
        // Whoever asks for a call ends its questions with it.
        let second = Arc::new(Mutex::new(None));
        let taken = Arc::clone(&second);
        let withdrawn: Option<Elicit> = Some(Arc::new(move |_| {
            let taken = Arc::clone(&taken);
            Box::pin(async move {
                tokio::time::sleep(Duration::from_secs(60)).await;
                drop(taken.lock().unwrap().take());
                Elicited::Cancelled
            })
        }));
        *second.lock().unwrap() = Some(flights.begin(&request(withdrawn, None)));
        let (people, pack, params) = (People::default(), PackName::parse("p").unwrap(), json!({"message": "?"}));
        assert_eq!(flights.ask(&people, &pack, &params).await, json!({"action": "decline"}));
        assert_eq!(asked.try_recv(), Ok("first"));
    }

    #[tokio::test(start_paused = true)]
    async fn a_question_whose_calls_all_ended_is_cancelled() {
        let (tell, _asked) = mpsc::channel(16);
        let flights = Flights::default();
        let call = flights.begin(&request(somebody("one", &tell, Duration::from_secs(86_400)), None));
        let (people, pack, params) = (People::default(), PackName::parse("p").unwrap(), json!({"message": "?"}));
        let ends = async {
            tokio::time::sleep(Duration::from_secs(5)).await;
            drop(call);
        };
        let (answer, ()) = tokio::join!(flights.ask(&people, &pack, &params), ends);
        assert_eq!(answer, json!({"action": "cancel"}));
        assert!(!flights.asking().is_open());
    }

    #[tokio::test(start_paused = true)]
    async fn a_call_shows_that_it_lives_while_a_person_is_asked_and_its_time_stands_still() {
        let (tell, _asked) = mpsc::channel(16);
        let beats = Arc::new(AtomicU32::new(0));
        let ear = Arc::clone(&beats);
        let sink: ProgressSink = Arc::new(move |_| {
            ear.fetch_add(1, Ordering::Relaxed);
        });
        let flights = Flights::default();
        let call = flights.begin(&request(somebody("one", &tell, Duration::from_secs(35)), Some(sink)));
        let (people, pack, params) = (People::default(), PackName::parse("p").unwrap(), json!({"message": "?"}));
        call.flight.ask(&people, &pack, &params).await;
        tokio::time::sleep(Duration::from_secs(35)).await;
        assert_eq!((beats.load(Ordering::Relaxed), call.flight.person.asked.total().as_secs()), (3, 35));
    }
}
