//! A call through the Brain whose server asks in the middle of it: the person who called is there to answer.

use std::collections::HashSet;
use std::pin::Pin;
use std::sync::atomic::Ordering;
use std::time::Duration;

use vance_shared::ids::QuestionId;
use vance_shared::limits::ANSWER_WITHIN;

use crate::api::{Answer, ApiError, Brain, CallRequest, Called, OpenQuestion};
use crate::cli::args::CallArgs;
use crate::cli::ask::Over;
use crate::cli::context::Context;
use crate::cli::failure::Failure;
use crate::cli::tasks::answer::ask_for_call;

/// How often it is looked whether a question is open: most calls are over before the first look.
const LOOK: Duration = Duration::from_secs(1);
/// Questions that one call is asked here: more are answered elsewhere.
const MOST: usize = 64;

/// Calls, and asks meanwhile. None: the person gave up.
pub(super) async fn answered(
    context: &mut Context,
    brain: &Brain,
    args: &CallArgs,
    request: &CallRequest,
) -> Option<Result<Answer<Called>, ApiError>> {
    let wait = if request.ask { args.timeout.saturating_add(ANSWER_WITHIN) } else { args.timeout };
    // At the prompt its Foot asks.
    let asks = request.ask && !context.general.no_ui;
    let mut seen: HashSet<QuestionId> = HashSet::new();
    let call = brain.call(args.tool.as_str(), request, wait);
    tokio::pin!(call);
    // What was open before is not this call's.
    let before: Vec<QuestionId> =
        if asks { open(brain, args).await.into_iter().map(|q| q.question.id).collect() } else { Vec::new() };
    loop {
        tokio::select! {
            answer = &mut call => return Some(answer),
            _ = context.interrupts.next() => return None,
            () = tokio::time::sleep(LOOK), if asks && seen.len() < MOST => {}
        }
        let is_news = |q: &OpenQuestion| !before.contains(&q.question.id) && !seen.contains(&q.question.id);
        let Some(question) = open(brain, args).await.into_iter().find(is_news) else { continue };
        let id = question.question.id.clone();
        seen.insert(id.clone());
        match ask(context, brain, &question, call.as_mut()).await {
            First::Said(Ok(())) => {}
            First::Said(Err(failure)) => {
                context.screen.failure(&failure);
                context.screen.remark(&format!("the call goes on once it is answered: vancetope tasks answer {id}"));
            }
            First::Called(answer) => return Some(answer),
        }
    }
}

/// Which came first.
enum First<T> {
    Said(Result<(), Failure>),
    Called(T),
}

/// Asks the person, unless the call ends before they have answered: elsewhere somebody did, or nobody waits any more.
async fn ask<F: Future>(
    context: &Context,
    brain: &Brain,
    question: &OpenQuestion,
    call: Pin<&mut F>,
) -> First<F::Output> {
    let over = Over::default();
    let asking = ask_for_call(context, brain, question, &over);
    tokio::pin!(asking);
    tokio::select! {
        said = &mut asking => First::Said(said),
        answer = call => {
            over.store(true, Ordering::Relaxed);
            // The terminal is given back before anything is printed.
            let late = asking.await;
            tracing::debug!("the call ended while its question stood there: {late:?}");
            First::Called(answer)
        }
    }
}

/// Open questions of calls of the same tool without a task.
async fn open(brain: &Brain, args: &CallArgs) -> Vec<OpenQuestion> {
    let open = match brain.questions().await {
        Ok(answer) => answer.value.questions,
        Err(error) => {
            tracing::debug!("open questions are not known: {error}");
            return Vec::new();
        }
    };
    open.into_iter().filter(|open| open.task_id.is_none() && open.tool == args.tool.as_str()).collect()
}
