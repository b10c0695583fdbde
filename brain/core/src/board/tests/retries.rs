//! What a retry takes along, and that it waits for what is on its way.

use super::*;

fn done(entry: Entry, state: State) -> Entry {
    Entry { state, ..entry }
}

/// All that it means is pending again.
fn retry(board: &mut Board, n: usize) -> Vec<Order> {
    let closure = board.begin_retry(&tid(n));
    let all = closure.iter().cloned().collect();
    board.retried(&closure, &all)
}

#[test]
fn a_retry_takes_failed_ancestors_and_what_was_skipped_because_of_it() {
    // 0 { 1 failed, 2 skipped after 1, 3 completed }, 4 skipped after 0, 5 cancelled by a person after 0; 6 { 7 failed, 8 cancelled }
    let mut board = Board::new(1);
    board.add(vec![
        done(parent(0), State::Failed),
        done(child(1, 0), State::Failed),
        done(Entry { depends_on: vec![tid(1)], ..child(2, 0) }, State::Skipped),
        done(child(3, 0), State::Completed),
        done(after(4, &[0]), State::Skipped),
        done(after(5, &[0]), State::Cancelled),
        done(parent(6), State::Failed),
        done(child(7, 6), State::Failed),
        done(child(8, 6), State::Cancelled),
    ]);
    let closure = |board: &Board, n| board.retry_closure(&tid(n)).iter().map(number).collect::<Vec<_>>();
    assert_eq!(closure(&board, 1), [0, 4, 1, 2]);
    assert_eq!(closure(&board, 0), [0, 4, 1, 2]);
    assert_eq!(closure(&board, 6), [6, 7, 8]);
    assert_eq!(closure(&board, 7), [6, 7], "a sibling stays as it ended");
    assert_eq!(shown(&retry(&mut board, 1)), ["0 start"]);
    assert_eq!(shown(&board.children_may_run(&tid(0))), ["1 start"]);
    assert_eq!(shown(&board.ended(&tid(1), State::Completed)), ["2 start"]);
    assert_eq!(shown(&board.ended(&tid(2), State::Completed)), ["0 children Done"]);
    assert_eq!(shown(&board.ended(&tid(0), State::Completed)), ["4 start"]);
    assert_eq!(board.trees(), 1);
    board.ended(&tid(4), State::Completed);
    assert_eq!(board.trees(), 0);
}

#[test]
fn a_retry_reaches_what_was_skipped_within_another_parent_and_that_parent() {
    let mut board = Board::new(1);
    board.add(vec![
        done(entry(0), State::Cancelled),
        done(parent(1), State::Cancelled),
        done(Entry { depends_on: vec![tid(0)], ..child(2, 1) }, State::Skipped),
        done(child(3, 1), State::Cancelled),
        done(after(4, &[1]), State::Skipped),
    ]);
    let ids = board.retry_closure(&tid(0));
    assert_eq!(ids.iter().map(number).collect::<Vec<_>>(), [0, 1, 4, 2], "the parent too, its other child not");
    assert_eq!(shown(&retry(&mut board, 0)), ["0 start"]);
    assert_eq!(shown(&board.ended(&tid(0), State::Completed)), ["1 start"]);
    assert_eq!(shown(&board.children_may_run(&tid(1))), ["2 start"]);
}

#[test]
fn a_skipped_child_of_a_completed_parent_can_be_retried() {
    let mut board = Board::new(1);
    board.add(vec![done(parent(0), State::Completed), done(child(1, 0), State::Skipped)]);
    assert_eq!(shown(&retry(&mut board, 1)), ["1 start"]);
    assert_eq!(shown(&board.ended(&tid(1), State::Completed)), Vec::<String>::new());
    assert_eq!(board.trees(), 0);
}

/// 0; 1 { 2 after 0, 3 }
fn two_below_one() -> Vec<Entry> {
    vec![entry(0), parent(1), Entry { depends_on: vec![tid(0)], ..child(2, 1) }, child(3, 1)]
}

#[test]
fn a_retry_waits_for_the_end_of_a_parent_that_was_told_of_its_childrens_ends_and_takes_it_along() {
    let mut board = Board::new(4);
    let all = two_below_one();
    board.add(all.clone());
    board.children_may_run(&tid(1));
    let stored = |ended: &[usize]| {
        let as_stored =
            |e: &Entry| if ended.contains(&number(&e.task_id)) { done(e.clone(), State::Cancelled) } else { e.clone() };
        all.iter().map(as_stored).collect::<Vec<_>>()
    };

    assert!(!board.is_settled(&stored(&[0])), "its end has not been heard of");
    assert_eq!(shown(&board.ended(&tid(0), State::Cancelled)), ["2 skip: dependency t0 was cancelled"]);
    assert!(!board.is_settled(&stored(&[0])), "2 is about to be skipped");
    board.ended(&tid(2), State::Skipped);
    assert!(board.is_settled(&stored(&[0])));

    let told = board.ended(&tid(3), State::Cancelled);
    assert_eq!(shown(&told), [r#"1 children Cancelled { child: "t3" }"#]);
    assert!(!board.is_settled(&stored(&[0, 3])), "1 is about to be cancelled");
    board.ended(&tid(1), State::Cancelled);
    assert!(board.is_settled(&stored(&[0, 1, 3])), "the tree has ended");

    board.add(vec![
        done(entry(0), State::Cancelled),
        done(parent(1), State::Cancelled),
        done(Entry { depends_on: vec![tid(0)], ..child(2, 1) }, State::Skipped),
        done(child(3, 1), State::Cancelled),
    ]);
    assert_eq!(shown(&retry(&mut board, 0)), ["0 start", "1 start"]);
    board.children_may_run(&tid(1));
    assert_eq!(shown(&board.ended(&tid(0), State::Completed)), ["2 start"], "and nobody cancels it");
}

#[test]
fn while_a_retry_is_being_stored_nothing_is_concluded_from_the_ends_that_it_undoes() {
    let mut board = Board::new(4);
    board.add(two_below_one());
    board.children_may_run(&tid(1));
    board.ended(&tid(0), State::Cancelled);
    board.ended(&tid(2), State::Skipped);

    let closure = board.begin_retry(&tid(0));
    assert_eq!(closure.iter().map(number).collect::<Vec<_>>(), [0, 2], "1 runs");
    assert_eq!(shown(&board.ended(&tid(3), State::Cancelled)), Vec::<String>::new(), "2 is about to run again");
    assert_eq!(shown(&board.ended(&tid(2), State::Skipped)), Vec::<String>::new(), "said twice");
    let all = closure.iter().cloned().collect();
    assert_eq!(shown(&board.retried(&closure, &all)), ["0 start"]);
    assert_eq!(shown(&board.ended(&tid(0), State::Completed)), ["2 start"]);
    assert_eq!(shown(&board.ended(&tid(2), State::Completed)), [r#"1 children Cancelled { child: "t3" }"#]);
    board.ended(&tid(1), State::Cancelled);
    assert_eq!((board.trees(), board.counts()), (0, (0, 0)));
}

#[test]
fn a_retry_that_is_refused_leaves_all_as_it_ended_and_what_waited_for_it_is_told() {
    let mut board = Board::new(4);
    board.add(two_below_one());
    board.children_may_run(&tid(1));
    board.ended(&tid(0), State::Cancelled);
    board.ended(&tid(2), State::Skipped);
    let closure = board.begin_retry(&tid(0));
    board.ended(&tid(3), State::Completed);
    assert_eq!(shown(&board.retried(&closure, &HashSet::new())), ["1 children Done"]);
    board.ended(&tid(1), State::Completed);
    assert_eq!(board.trees(), 0);

    let mut board = Board::new(4);
    board.add(vec![entry(0)]);
    let closure = board.begin_retry(&tid(0));
    assert_eq!(shown(&board.retried(&closure, &HashSet::new())), Vec::<String>::new(), "it runs");
    assert_eq!((board.trees(), board.counts()), (1, (1, 0)));
    board.ended(&tid(0), State::Cancelled);
    assert_eq!(board.trees(), 0);
}

#[test]
fn one_whose_end_was_never_heard_of_runs_again_all_the_same() {
    for heard in [false, true] {
        let mut board = Board::new(4);
        board.add(vec![entry(0), entry(1)]);
        let closure = board.begin_retry(&tid(0));
        if heard {
            board.ended(&tid(0), State::Failed);
        }
        let all = closure.iter().cloned().collect();
        assert_eq!(shown(&board.retried(&closure, &all)), ["0 start"]);
        board.ended(&tid(1), State::Completed);
        assert_eq!((board.trees(), board.counts()), (1, (1, 0)));
        board.ended(&tid(0), State::Completed);
        assert_eq!(board.trees(), 0);
    }
}
