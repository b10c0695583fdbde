//! Which open questions the clients of a session are shown: those of others, the oldest first, until they are over.
//!
//! Level, not edge: what is due follows from what is open and from what each connection was told, so a frame that found no room is due again.
//!
//! | the question is | not told | told |
//! |---|---|---|
//! | open, asked by another | `Show`, if there is room | - |
//! | open, asked by this client | - | - |
//! | not open (any more) | - | `Over` |

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use vance_shared::ids::{CallId, ClientId, QuestionId, SessionId, TaskId};
use vance_shared::question::Question;
use vance_shared::wire::Elicit;

/// Questions that one client is shown at a time: more than a person answers in a row, and few enough frames of up to 70 KiB for a new
/// connection. The others follow as these end.
pub const MAX_SHOWN: usize = 16;

/// A question that waits for a person.
#[derive(Debug, Clone, PartialEq)]
pub struct OpenQuestion {
    /// What is asked.
    pub question: Question,
    /// The session of its task or call.
    pub session_id: SessionId,
    /// No client is expected there, so its owner's others are asked.
    pub autonomous: bool,
    /// The task that waits with it; none: a call without one.
    pub task_id: Option<TaskId>,
    /// The tool whose server asks.
    pub tool: String,
    /// The client that runs the call, where its own person was asked already; none: the server.
    pub asker: Option<ClientId>,
    /// Its machine.
    pub machine: Option<String>,
    /// Milliseconds since 1970.
    pub asked_at: i64,
}

impl OpenQuestion {
    /// The frame for another client.
    pub fn frame(&self) -> Elicit {
        let Question { call_id, question_id, message, schema, url } = self.question.clone();
        let (task_id, tool, machine) = (self.task_id.clone(), self.tool.clone(), self.machine.clone());
        Elicit { call_id, question_id, message, schema, url, task_id, tool, machine }
    }
}

/// A frame that is due.
#[derive(Debug, Clone, PartialEq)]
pub enum Due {
    /// Ask this client's person.
    Show {
        /// Whom.
        client_id: ClientId,
        /// What.
        question: Arc<OpenQuestion>,
    },
    /// It is not open any more.
    Over {
        /// Who was shown it.
        client_id: ClientId,
        /// Its call.
        call_id: CallId,
        /// Which.
        question_id: QuestionId,
    },
}

/// What each connection was told.
#[derive(Debug, Default)]
pub struct Showing {
    told: HashMap<ClientId, Told>,
}

#[derive(Debug, Default)]
struct Told {
    epoch: u64,
    shown: BTreeMap<QuestionId, CallId>,
}

impl Showing {
    /// What is due, with `open` from the oldest on and `online` the connections as they are. A later connection knows of nothing.
    pub fn due<'a>(
        &mut self,
        open: &[Arc<OpenQuestion>],
        online: impl IntoIterator<Item = (&'a ClientId, u64)>,
    ) -> Vec<Due> {
        let mut due = Vec::new();
        let mut before = std::mem::take(&mut self.told);
        for (client_id, epoch) in online {
            let told = before.remove(client_id).filter(|told| told.epoch == epoch);
            let told = told.unwrap_or_else(|| Told { epoch, ..Told::default() });
            let is_open = |id: &QuestionId| open.iter().any(|q| q.question.question_id == *id);
            let over = told.shown.iter().filter(|(id, _)| !is_open(id));
            due.extend(over.map(|(question_id, call_id)| Due::Over {
                client_id: client_id.clone(),
                call_id: call_id.clone(),
                question_id: question_id.clone(),
            }));
            let room = MAX_SHOWN.saturating_sub(told.shown.keys().filter(|id| is_open(id)).count());
            let news = open.iter().filter(|q| q.asker.as_ref() != Some(client_id));
            let news = news.filter(|q| !told.shown.contains_key(&q.question.question_id)).take(room);
            due.extend(news.map(|q| Due::Show { client_id: client_id.clone(), question: q.clone() }));
            self.told.insert(client_id.clone(), told);
        }
        due
    }

    /// The frame is on its way.
    pub fn told(&mut self, due: &Due) {
        match due {
            Due::Show { client_id, question } => {
                if let Some(told) = self.told.get_mut(client_id) {
                    let question = &question.question;
                    told.shown.insert(question.question_id.clone(), question.call_id.clone());
                }
            }
            Due::Over { client_id, question_id, .. } => {
                if let Some(told) = self.told.get_mut(client_id) {
                    told.shown.remove(question_id);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use vance_shared::json::Raw;

    use super::*;

    fn client(name: &str) -> ClientId {
        ClientId::parse(&format!("foot_{name}")).unwrap()
    }

    fn id(n: usize) -> QuestionId {
        QuestionId::parse(&format!("question_{n}")).unwrap()
    }

    fn open(n: usize, asker: Option<&str>) -> Arc<OpenQuestion> {
        let call_id = CallId::parse(&format!("call_{n}")).unwrap();
        let (message, schema) = ("?".to_owned(), Raw::empty_object());
        Arc::new(OpenQuestion {
            question: Question { call_id, question_id: id(n), message, schema, url: None },
            session_id: SessionId::parse("s").unwrap(),
            autonomous: false,
            task_id: None,
            tool: "t".to_owned(),
            asker: asker.map(client),
            machine: None,
            asked_at: 0,
        })
    }

    /// What goes out to whom, in short; all of it is taken, unless `full`.
    fn step(showing: &mut Showing, open: &[Arc<OpenQuestion>], online: &[(&str, u64)], full: bool) -> Vec<String> {
        let online: Vec<(ClientId, u64)> = online.iter().map(|(name, epoch)| (client(name), *epoch)).collect();
        let due = showing.due(open, online.iter().map(|(id, epoch)| (id, *epoch)));
        due.iter().filter(|_| !full).for_each(|due| showing.told(due));
        due.iter()
            .map(|due| match due {
                Due::Show { client_id, question } => format!("{client_id} +{}", question.question.question_id),
                Due::Over { client_id, question_id, .. } => format!("{client_id} -{question_id}"),
            })
            .collect()
    }

    #[test]
    fn others_are_asked_once_a_connection_and_told_when_it_is_over() {
        let mut showing = Showing::default();
        let one = [open(1, Some("a"))];
        let both = [("a", 1), ("b", 2)];
        assert_eq!(step(&mut showing, &one, &both, false), ["foot_b +question_1"], "not its own asker");
        assert!(step(&mut showing, &one, &both, false).is_empty(), "once");
        let three = [("a", 1), ("b", 2), ("c", 3)];
        assert_eq!(step(&mut showing, &one, &three, false), ["foot_c +question_1"], "who comes later");
        let again = [("a", 1), ("b", 4), ("c", 3)];
        assert_eq!(step(&mut showing, &one, &again, false), ["foot_b +question_1"], "on a new line anew");
        let two = [open(2, None)];
        let want = [
            "foot_a +question_2",
            "foot_b -question_1",
            "foot_b +question_2",
            "foot_c -question_1",
            "foot_c +question_2",
        ];
        assert_eq!(step(&mut showing, &two, &again, false), want, "the server's own is for all");
        assert_eq!(step(&mut showing, &[], &[("a", 1)], false), ["foot_a -question_2"]);
        assert!(step(&mut showing, &[], &again, false).is_empty(), "who is gone was told nothing on the next line");
    }

    #[test]
    fn what_found_no_room_is_due_again_and_a_client_is_shown_a_bounded_number() {
        let mut showing = Showing::default();
        let many: Vec<_> = (0..MAX_SHOWN + 3).map(|n| open(n, None)).collect();
        assert_eq!(step(&mut showing, &many, &[("a", 1)], true).len(), MAX_SHOWN);
        assert_eq!(step(&mut showing, &many, &[("a", 1)], false).len(), MAX_SHOWN);
        assert!(step(&mut showing, &many, &[("a", 1)], false).is_empty());
        let rest = &many[1..];
        let want = ["foot_a -question_0".to_owned(), format!("foot_a +question_{MAX_SHOWN}")];
        assert_eq!(step(&mut showing, rest, &[("a", 1)], true), want);
        assert_eq!(step(&mut showing, rest, &[("a", 1)], false), want, "both again");
    }
}
