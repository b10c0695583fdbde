#![allow(clippy::unwrap_used)]
use serde_json::{Map, json};
use tokio::sync::mpsc;
use tokio::sync::oneshot;
use vance_shared::ids::CallId;

use super::*;

fn elicit(n: usize, url: Option<&str>) -> Elicit {
    Elicit {
        call_id: CallId::parse(&format!("call_{n}")).unwrap(),
        question_id: QuestionId::parse(&format!("question_{n}")).unwrap(),
        message: "?".to_owned(),
        schema: Raw::empty_object(),
        url: url.map(str::to_owned),
        task_id: None,
        tool: "t".to_owned(),
        machine: None,
    }
}

type Put = (Elsewhere, oneshot::Sender<Elicited>);

/// A person who is asked, and what they are asked.
fn seat() -> (Arc<Shown>, mpsc::Receiver<Put>) {
    let (ask, asked) = mpsc::channel(8);
    let person: AskElsewhere = Arc::new(move |question| {
        let (ask, (tell, said)) = (ask.clone(), oneshot::channel());
        Box::pin(async move {
            ask.send((question, tell)).await.ok();
            said.await.unwrap_or(Elicited::Cancelled)
        })
    });
    (Arc::new(Shown::new(Some(person), None)), asked)
}

/// Waits until it is settled, and gives what a further `elicit` is answered with.
async fn again(shown: &Arc<Shown>, elicit: &Elicit) -> Option<ElicitReply> {
    while matches!(shown.table().get(&elicit.question_id), Some(Stand::Asked { .. })) {
        tokio::task::yield_now().await;
    }
    shown.asked(elicit.clone())
}

fn end(n: usize, how: QuestionEnd, by: Option<&str>) -> ElicitEnd {
    let Elicit { call_id, question_id, .. } = elicit(n, None);
    ElicitEnd { by: by.map(str::to_owned), ..ElicitEnd::of(call_id, question_id, how) }
}

#[tokio::test]
async fn an_answer_is_given_until_it_is_over_and_what_is_left_is_nobodys_answer() {
    let fields = || Map::from_iter([("n".to_owned(), json!(1))]);
    let content = Some(Raw::from(json!({"n": 1})));
    for (said, url, want) in [
        (Elicited::Accepted(fields()), None, Some(Answer { action: Action::Accept, content })),
        (Elicited::Accepted(Map::new()), Some("https://x"), Some(Answer::bare(Action::Accept))),
        (Elicited::Declined, None, Some(Answer::bare(Action::Decline))),
        (Elicited::Cancelled, None, None),
        (Elicited::Unanswered, None, None),
    ] {
        let (shown, mut asked) = seat();
        let question = elicit(1, url);
        assert_eq!(shown.asked(question.clone()), None);
        assert_eq!(shown.asked(question.clone()), None, "asked once");
        let (put, tell) = asked.recv().await.unwrap();
        assert_eq!(put.elicit, question);
        tell.send(said.clone()).unwrap();
        let reply = again(&shown, &question).await.map(|reply| (reply.question_id, reply.action, reply.content));
        let want = want.map(|want| (question.question_id.clone(), want.action, want.content));
        assert_eq!(reply, want, "{said:?}");
        shown.line_gone();
        assert_eq!(again(&shown, &question).await.is_some(), want.is_some(), "on the next line too");
        assert!(asked.try_recv().is_err(), "and nobody is asked twice");
        shown.over(&end(1, QuestionEnd::Answered, None));
        assert!(shown.table().is_empty());
    }
}

#[tokio::test]
async fn one_is_asked_at_a_time_and_taken_back_with_the_reason() {
    let (shown, mut asked) = seat();
    for n in 1..=3 {
        shown.asked(elicit(n, None));
    }
    let (first, tell) = asked.recv().await.unwrap();
    tokio::task::yield_now().await;
    assert!(asked.try_recv().is_err(), "the others wait");
    shown.over(&end(1, QuestionEnd::Answered, Some("a\u{1b}[2Jda")));
    assert_eq!(first.over.get().unwrap(), "a\\x1b[2Jda has answered it elsewhere");
    let (second, _waits) = asked.recv().await.unwrap();
    assert!(tell.is_closed(), "taken back");
    assert_eq!(second.elicit.question_id.as_str(), "question_2");
    shown.line_gone();
    assert!(second.over.get().unwrap().contains("line") && shown.table().is_empty());
    assert_eq!(shown.asked(elicit(2, None)), None);
    assert_eq!(asked.recv().await.unwrap().0.elicit.question_id.as_str(), "question_2", "asked again");
}

#[tokio::test]
async fn without_a_terminal_it_is_ignored_and_with_one_it_is_bounded() {
    let nobody = Arc::new(Shown::new(None, None));
    assert!(nobody.asked(elicit(1, None)).is_none() && nobody.table().is_empty());
    let (shown, _asked) = seat();
    for n in 0..MAX_SHOWN + 5 {
        shown.asked(elicit(n, None));
    }
    assert_eq!(shown.table().len(), MAX_SHOWN);
}
