//! Calls without a task.

use tokio::sync::mpsc;
use vance_brain_core::session::{Input, News};
use vance_supervise::{Handler, Message};

use super::{SessionActor, WithCall};

/// A call that is not a task's: its news go to whoever called.
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub struct DirectCall {
    /// The call.
    pub with: WithCall,
    /// Its news. Boxed: a channel makes room for 32 at once, and a call has one or two.
    pub news: mpsc::Sender<Box<News>>,
}

impl Handler<DirectCall> for SessionActor {
    type Result = ();

    fn handle(&mut self, DirectCall { with, news }: DirectCall, ctx: &mut Self::Context) {
        let Some(client_id) = with.client_id else { return };
        self.direct.insert(with.call.call_id.clone(), news);
        self.turn(Input::Dispatch { client_id, call: with.call, replay: with.replay }, ctx);
    }
}
