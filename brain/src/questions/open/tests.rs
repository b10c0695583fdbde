#![allow(clippy::unwrap_used)]
use serde_json::json;
use vance_shared::ids::{CallId, ClientId, SessionId};
use vance_shared::json::Raw;
use vance_shared::question::{Action, Question};

use super::*;

fn task(n: usize) -> TaskId {
    TaskId::parse(&format!("task_{n}")).unwrap()
}

fn id(n: usize) -> QuestionId {
    QuestionId::parse(&format!("question_{n}")).unwrap()
}

fn question(n: usize, task_id: Option<TaskId>) -> OpenQuestion {
    let call_id = CallId::parse(&format!("call_{n}")).unwrap();
    OpenQuestion {
        question: Question { call_id, question_id: id(n), message: "?".into(), schema: Raw::empty_object(), url: None },
        session_id: SessionId::parse("s").unwrap(),
        autonomous: false,
        task_id,
        tool: "t".to_owned(),
        asker: ClientId::parse("foot_a").ok(),
        machine: None,
        asked_at: i64::try_from(n).unwrap(),
    }
}

/// Numbers of the open questions.
fn open(table: &OpenQuestions, owner: &str) -> Vec<i64> {
    table.of(owner).iter().map(|q| q.asked_at).collect()
}

fn ended(table: &OpenQuestions, owner: &str, n: usize) -> Option<(QuestionEnd, Option<String>)> {
    match table.find(owner, &id(n)) {
        Found::Ended(ended) => Some((ended.how, ended.by)),
        Found::Open(_) | Found::Nowhere => None,
    }
}

#[test]
fn a_task_stands_with_one_question_and_who_answered_the_last_is_remembered() {
    let table = OpenQuestions::default();
    assert!(!table.task_stands("ada", &task(1), None, None), "no news");
    assert!(table.task_stands("ada", &task(1), Some(question(1, Some(task(1)))), None));
    assert!(!table.task_stands("ada", &task(1), Some(question(1, Some(task(1)))), None), "said twice");
    assert!(table.task_stands("ada", &task(2), Some(question(2, Some(task(2)))), None));
    assert!(table.task_stands("ada", &task(1), Some(question(3, Some(task(1)))), Some((&id(1), "bob"))));
    assert_eq!(open(&table, "ada"), [2, 3]);
    assert_eq!(ended(&table, "ada", 1), Some((QuestionEnd::Answered, Some("bob".to_owned()))));
    // An older answer is not to this one.
    assert!(table.task_stands("ada", &task(1), None, Some((&id(1), "bob"))));
    assert_eq!(ended(&table, "ada", 3), Some((QuestionEnd::Withdrawn, None)));
    assert_eq!(open(&table, "ada"), [2]);
}

#[test]
fn nobody_finds_or_answers_anothers_question() {
    let table = OpenQuestions::default();
    let mut waits = table.call_asks("ada", question(1, None)).unwrap();
    let answer = Answer { action: Action::Accept, content: Some(Raw::from(json!({"n": 1}))) };
    assert!(matches!(table.find("ada", &id(1)), Found::Open(_)));
    assert_eq!((table.find("bob", &id(1)), open(&table, "bob")), (Found::Nowhere, vec![]));
    assert!(!table.tell_call("bob", &id(1), &answer, "bob"));
    assert!(waits.try_recv().is_err() && open(&table, "ada") == [1]);
    assert!(table.tell_call("ada", &id(1), &answer, "ada"));
    assert!(!table.tell_call("ada", &id(1), &answer, "ada"), "once");
    assert_eq!(waits.try_recv().unwrap(), answer);
    assert_eq!(ended(&table, "ada", 1), Some((QuestionEnd::Answered, Some("ada".to_owned()))));
    // A task's is its task's to take.
    table.task_stands("ada", &task(2), Some(question(2, Some(task(2)))), None);
    assert!(!table.tell_call("ada", &id(2), &answer, "ada") && open(&table, "ada") == [2]);
}

#[test]
fn what_is_stored_takes_the_place_of_what_tasks_said_and_leaves_calls_alone() {
    let table = OpenQuestions::default();
    let _waits = table.call_asks("ada", question(1, None)).unwrap();
    table.task_stands("ada", &task(2), Some(question(2, Some(task(2)))), None);
    let stored =
        || vec![("bob".to_owned(), question(4, Some(task(4)))), ("ada".to_owned(), question(3, Some(task(3))))];
    assert!(table.of_tasks(stored()));
    assert_eq!((open(&table, "ada"), open(&table, "bob")), (vec![1, 3], vec![4]));
    assert!(!table.of_tasks(stored()), "reading twice is the same as once");
    assert_eq!(ended(&table, "ada", 2), Some((QuestionEnd::Withdrawn, None)));
}

#[test]
fn it_is_bounded_for_each_owner_by_itself() {
    let table = OpenQuestions::default();
    for n in 0..MAX_OPEN {
        assert!(table.task_stands("ada", &task(n), Some(question(n, Some(task(n)))), None));
    }
    table.task_stands("ada", &task(9_999), Some(question(9_999, Some(task(9_999)))), None);
    assert_eq!(open(&table, "ada").len(), MAX_OPEN);
    assert!(table.call_asks("ada", question(10_000, None)).is_none());
    assert!(table.call_asks("bob", question(1, None)).is_some());
    for n in 0..MAX_OPEN {
        assert!(table.task_stands("ada", &task(n), None, None));
        assert!(
            table
                .call_asks("ada", question(20_000 + n, None))
                .is_some_and(|_| { table.call_waits_no_more("ada", &id(20_000 + n), QuestionEnd::Expired) })
        );
    }
    let remembered = table.table().get("ada").unwrap().ended.len();
    assert!(open(&table, "ada").is_empty() && remembered == MAX_ENDED);
}
