//! Where a server finds people: for a login, and for a question in the middle of a call.

use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use serde_json::{Map, Value, json};
use tokio::time::Instant;
use vance_shared::json::Raw;
use vance_shared::names::PackName;
use vance_shared::question::{MAX_MESSAGE_CHARS, MAX_SCHEMA_BYTES, MAX_URL_BYTES};
use vance_shared::schema::{add_defaults, check_arguments};

use crate::auth::OnAuthorize;

/// Why a server gets no answer from a model.
pub(crate) const SAMPLING_IS_OFF: &str = "the server asks for a model's answer (sampling/createMessage), and sampling is off: no pack uses up somebody's model";

/// Where a server finds people, if there are any. The default is nobody.
#[derive(Clone, Default)]
pub struct People {
    /// Brings somebody to a login.
    pub authorize: Option<OnAuthorize>,
    /// Asks somebody. Without it every question is declined, and servers are told beforehand that nobody can be asked.
    pub elicit: Option<Elicit>,
}

/// How many questions wait for a person now, and how long one was waited for altogether. Clones are the same one.
#[derive(Debug, Clone, Default)]
pub struct Asking(Arc<Mutex<Asked>>);

#[derive(Debug, Default)]
struct Asked {
    open: u32,
    since: Option<Instant>,
    before: Duration,
}

impl Asking {
    /// A question begins; it ends with what is given back.
    pub fn begin(&self) -> impl Drop + use<> {
        let mut asked = self.asked();
        asked.open += 1;
        asked.since.get_or_insert_with(Instant::now);
        drop(asked);
        Open(self.clone())
    }

    /// A person is waited for now.
    pub fn is_open(&self) -> bool {
        self.asked().open > 0
    }

    /// How long a person was waited for, until now.
    pub fn total(&self) -> Duration {
        let asked = self.asked();
        asked.before + asked.since.map_or(Duration::ZERO, |since| since.elapsed())
    }

    /// Of that time, what is not in `known` yet, and is from here on.
    pub fn more(&self, known: &mut Duration) -> Duration {
        let total = self.total();
        let more = total.saturating_sub(*known);
        *known = total;
        more
    }

    /// Held to read or write three numbers.
    fn asked(&self) -> MutexGuard<'_, Asked> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

struct Open(Asking);

impl Drop for Open {
    fn drop(&mut self) {
        let mut asked = self.0.asked();
        asked.open -= 1;
        if asked.open == 0
            && let Some(since) = asked.since.take()
        {
            asked.before += since.elapsed();
        }
    }
}

/// The person behind one call.
#[derive(Clone, Default)]
pub struct Person {
    /// Asks them. Without it the server's own people are asked, if there are any.
    pub elicit: Option<Elicit>,
    /// How long they have been asked: meanwhile the call's time stands still, for everybody who measures it.
    pub asked: Asking,
}

/// Puts a question to a person. Dropping the future withdraws the question.
pub type Elicit = Arc<dyn Fn(Question) -> Pin<Box<dyn Future<Output = Elicited> + Send>> + Send + Sync>;

/// What a server wants to know.
#[derive(Debug, Clone, PartialEq)]
pub struct Question {
    /// Whose server asks.
    pub pack: PackName,
    /// The server's words: foreign text, to be shown through [`vance_shared::show::plain`].
    pub message: String,
    /// JSON Schema of the answer: an object of plain fields.
    pub schema: Value,
    /// To be opened by the person, instead of fields.
    pub url: Option<String>,
}

/// What a person says to a question.
#[derive(Debug, Clone, PartialEq)]
pub enum Elicited {
    /// The fields that were filled in; the schema's defaults are added for the others.
    Accepted(Map<String, Value>),
    /// No, but go on.
    Declined,
    /// Neither.
    Cancelled,
    /// Nobody was there. To the server that is the same as neither.
    Unanswered,
}

impl std::fmt::Debug for People {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("People")
            .field("authorize", &self.authorize.is_some())
            .field("elicit", &self.elicit.is_some())
            .finish()
    }
}

impl People {
    /// The answer to an `elicitation/create`, as it goes to the server. `person`: who is behind the call that asks.
    pub(crate) async fn ask(&self, pack: &PackName, person: Option<&Person>, params: &Value) -> Value {
        let said = |word: &str| json!({ "action": word });
        let text = |name: &str| params.get(name).and_then(Value::as_str).unwrap_or_default();
        let declined = |why: &str| {
            tracing::warn!(pack = %pack, "a question of the server is declined: {why}");
            said("decline")
        };
        let Some(elicit) = person.and_then(|person| person.elicit.as_ref()).or(self.elicit.as_ref()) else {
            return declined("nobody can be asked here");
        };
        let url = match text("mode") {
            "" | "form" => None,
            "url" => Some(text("url").to_owned()),
            _ => return declined("it wants something else than fields or an address to open"),
        };
        if url.as_ref().is_some_and(|url| url.len() > MAX_URL_BYTES) {
            return declined("its address is too long");
        }
        if url.as_ref().is_some_and(|url| !may_be_opened(url)) {
            return declined("its address is neither https nor http on this machine");
        }
        let schema = params.get("requestedSchema").cloned().unwrap_or_else(|| json!({ "type": "object" }));
        if schema.to_string().len() > MAX_SCHEMA_BYTES {
            return declined("its schema is too large");
        }
        let message = text("message").chars().take(MAX_MESSAGE_CHARS).collect();
        let has_fields = url.is_none();
        match elicit(Question { pack: pack.clone(), message, schema: schema.clone(), url }).await {
            Elicited::Declined => said("decline"),
            Elicited::Cancelled | Elicited::Unanswered => said("cancel"),
            Elicited::Accepted(_) if !has_fields => said("accept"),
            Elicited::Accepted(mut fields) => {
                add_defaults(&schema, &mut fields);
                let content = Value::Object(fields);
                match check_arguments(&Raw::from(schema), &content) {
                    Ok(()) => json!({ "action": "accept", "content": content }),
                    Err(fault) => {
                        tracing::warn!(pack = %pack, "the answer does not fit the server's question: {fault}");
                        said("cancel")
                    }
                }
            }
        }
    }
}

/// Whether a person can be sent there: a script or a file of this machine is none.
fn may_be_opened(url: &str) -> bool {
    let Ok(url) = reqwest::Url::parse(url) else { return false };
    let Some(host) = url.host_str() else { return false };
    let is_here = || {
        let address = host.trim_matches(['[', ']']).parse();
        host == "localhost" || address.is_ok_and(|address: std::net::IpAddr| address.is_loopback())
    };
    url.scheme() == "https" || (url.scheme() == "http" && is_here())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn saying(said: Elicited) -> People {
        let elicit: Elicit = Arc::new(move |_| Box::pin(std::future::ready(said.clone())));
        People { authorize: None, elicit: Some(elicit) }
    }

    #[tokio::test]
    async fn questions_are_answered_by_a_person_or_declined() {
        let pack = PackName::parse("p").unwrap();
        let schema = json!({"type": "object", "properties": {"n": {"type": "integer", "default": 3}, "s": {"type": "string"}}, "required": ["n"]});
        let form = json!({"message": "how many?", "requestedSchema": schema});
        let url = json!({"mode": "url", "message": "go there", "url": "https://x"});
        let fields = |value: Value| Elicited::Accepted(value.as_object().unwrap().clone());
        let accept = |content: Value| json!({"action": "accept", "content": content});
        for (people, params, want) in [
            (People::default(), &form, json!({"action": "decline"})),
            (saying(Elicited::Declined), &form, json!({"action": "decline"})),
            (saying(Elicited::Cancelled), &form, json!({"action": "cancel"})),
            (saying(fields(json!({}))), &form, accept(json!({"n": 3}))),
            (saying(fields(json!({"n": 4, "s": "x"}))), &form, accept(json!({"n": 4, "s": "x"}))),
            (saying(fields(json!({"n": "four"}))), &form, json!({"action": "cancel"})),
            (saying(Elicited::Unanswered), &form, json!({"action": "cancel"})),
            (saying(fields(json!({}))), &url, json!({"action": "accept"})),
            (saying(fields(json!({}))), &json!({"mode": "dance", "message": "m"}), json!({"action": "decline"})),
            (
                saying(fields(json!({}))),
                &json!({"message": "m", "requestedSchema": {"d": "x".repeat(70_000)}}),
                json!({"action": "decline"}),
            ),
        ] {
            assert_eq!(people.ask(&pack, None, params).await, want, "{params}");
        }
    }

    #[test]
    fn nobody_is_sent_to_a_script_or_a_file() {
        for (url, may) in [
            ("https://login.example/x?y=1", true),
            ("http://127.0.0.1:8080/cb", true),
            ("http://[::1]/cb", true),
            ("http://localhost/cb", true),
            ("http://login.example/", false),
            ("http://localhost.example/", false),
            ("javascript:alert(1)", false),
            ("JavaScript:alert(1)", false),
            ("file:///etc/passwd", false),
            ("data:text/html,x", false),
            ("vscode://x", false),
            ("https:", false),
            ("", false),
        ] {
            assert_eq!(may_be_opened(url), may, "{url}");
        }
    }

    #[tokio::test]
    async fn the_person_behind_the_call_is_asked_first() {
        let pack = PackName::parse("p").unwrap();
        let person = Person { elicit: saying(Elicited::Declined).elicit, ..Person::default() };
        let (people, params) = (saying(Elicited::Cancelled), json!({"message": "?"}));
        assert_eq!(people.ask(&pack, Some(&person), &params).await["action"], "decline");
        assert_eq!(people.ask(&pack, Some(&Person::default()), &params).await["action"], "cancel");
    }

    #[tokio::test(start_paused = true)]
    async fn the_time_of_questions_is_counted_once_however_many_are_open() {
        let asking = Asking::default();
        let second = Duration::from_secs(1);
        let one = asking.begin();
        tokio::time::sleep(second).await;
        let two = asking.clone().begin();
        drop(one);
        tokio::time::sleep(second).await;
        assert_eq!((asking.is_open(), asking.total()), (true, 2 * second));
        drop(two);
        tokio::time::sleep(second).await;
        assert_eq!((asking.is_open(), asking.total()), (false, 2 * second));
    }
}
