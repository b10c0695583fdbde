//! Where a server finds people: for a login, and for a question in the middle of a call.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use serde_json::{Map, Value, json};
use vance_shared::json::Raw;
use vance_shared::names::PackName;
use vance_shared::schema::check_arguments;

use crate::auth::OnAuthorize;

/// Why a server gets no answer from a model.
pub(crate) const SAMPLING_IS_OFF: &str = "the server asks for a model's answer (sampling/createMessage), and sampling is off: no pack uses up somebody's model";
/// A question: more is a document.
const MAX_MESSAGE_CHARS: usize = 4_000;

/// Where a server finds people, if there are any. The default is nobody.
#[derive(Clone, Default)]
pub struct People {
    /// Brings somebody to a login.
    pub authorize: Option<OnAuthorize>,
    /// Asks somebody. Without it every question is declined, and servers are told beforehand that nobody can be asked.
    pub elicit: Option<Elicit>,
}

/// How many questions of one server wait for a person: meanwhile its calls wait, too.
#[derive(Debug, Default)]
pub(crate) struct Asking(AtomicU32);

impl Asking {
    /// A question begins; it ends with what is given back.
    pub(crate) fn begin(&self) -> impl Drop + '_ {
        self.0.fetch_add(1, Ordering::AcqRel);
        Asked(self)
    }

    pub(crate) fn is_open(&self) -> bool {
        self.0.load(Ordering::Acquire) > 0
    }
}

struct Asked<'a>(&'a Asking);

impl Drop for Asked<'_> {
    fn drop(&mut self) {
        self.0.0.fetch_sub(1, Ordering::AcqRel);
    }
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
    /// The answer to an `elicitation/create`, as it goes to the server.
    pub(crate) async fn ask(&self, pack: &PackName, params: &Value) -> Value {
        let said = |word: &str| json!({ "action": word });
        let text = |name: &str| params.get(name).and_then(Value::as_str).unwrap_or_default();
        let declined = |why: &str| {
            tracing::warn!(pack = %pack, "a question of the server is declined: {why}");
            said("decline")
        };
        let Some(elicit) = &self.elicit else { return declined("nobody can be asked here") };
        if !matches!(text("mode"), "" | "form") {
            return declined("it wants more than the fields of a form");
        }
        let schema = params.get("requestedSchema").cloned().unwrap_or_else(|| json!({ "type": "object" }));
        let message = text("message").chars().take(MAX_MESSAGE_CHARS).collect();
        match elicit(Question { pack: pack.clone(), message, schema: schema.clone() }).await {
            Elicited::Declined => said("decline"),
            Elicited::Cancelled => said("cancel"),
            Elicited::Accepted(mut fields) => {
                fill_in(&schema, &mut fields);
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

/// Adds the schema's defaults for fields without a value.
fn fill_in(schema: &Value, fields: &mut Map<String, Value>) {
    let properties = schema.get("properties").and_then(Value::as_object);
    for (key, property) in properties.into_iter().flatten() {
        if let Some(default) = property.get("default")
            && !fields.contains_key(key)
        {
            fields.insert(key.clone(), default.clone());
        }
    }
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
            (saying(fields(json!({}))), &url, json!({"action": "decline"})),
        ] {
            assert_eq!(people.ask(&pack, params).await, want, "{params}");
        }
    }
}
