//! Stories of slots and wake-ups, and a property over random trees with tasks that answer in any order.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use super::*;

mod random_trees;
mod retries;

fn tid(n: usize) -> TaskId {
    TaskId::parse(&format!("task_{n}")).unwrap()
}

fn number(id: &TaskId) -> usize {
    id.as_str().trim_start_matches("task_").parse().unwrap()
}

fn tool(n: usize) -> ToolName {
    ToolName::parse(&format!("tool_{n}")).unwrap()
}

fn foot(n: usize) -> ClientId {
    ClientId::parse(&format!("foot_{n}")).unwrap()
}

fn session() -> SessionId {
    SessionId::parse("sess_1").unwrap()
}

fn call(n: usize) -> CallId {
    CallId::parse(&format!("call_{n}")).unwrap()
}

fn entry(n: usize) -> Entry {
    Entry {
        task_id: tid(n),
        id: format!("t{n}"),
        tree_id: TreeId::parse("tree_1").unwrap(),
        session_id: session(),
        parent: None,
        has_children: false,
        depends_on: Vec::new(),
        run_if: RunIf::Success,
        state: State::Pending,
        wait: None,
        wake_on: Vec::new(),
        held: None,
        max_parallel: None,
        tree_max_parallel: None,
        autonomous: false,
        waits_since: 0,
    }
}

fn child(n: usize, parent: usize) -> Entry {
    Entry { parent: Some(tid(parent)), ..entry(n) }
}

fn parent(n: usize) -> Entry {
    Entry { has_children: true, ..entry(n) }
}

fn after(n: usize, dependencies: &[usize]) -> Entry {
    Entry { depends_on: dependencies.iter().map(|d| tid(*d)).collect(), ..entry(n) }
}

fn online(clients: &[(usize, &[usize])]) -> HashMap<ClientId, Offer> {
    clients.iter().map(|(c, tools)| (foot(*c), Arc::new(tools.iter().map(|t| tool(*t)).collect()))).collect()
}

fn needs(n: usize) -> Wait {
    Wait::Client { tool: tool(n), queued: false }
}

fn suspended(client: usize) -> Wait {
    Wait::Suspended { tool: tool(0), client_id: foot(client), call_id: call(0) }
}

/// Orders as `3 start`, `4 skip: …`, `5 cancel: …`, `6 children Done`.
fn shown(orders: &[Order]) -> Vec<String> {
    let one = |order: &Order| {
        let what = match &order.input {
            Input::Start => "start".to_owned(),
            Input::DependencyFailed { reason } => format!("skip: {reason}"),
            Input::Cancel { reason } => format!("cancel: {reason}"),
            Input::ChildrenEnded(end) => format!("children {end:?}"),
            other => panic!("{other:?}"),
        };
        format!("{} {what}", number(&order.task_id))
    };
    orders.iter().map(one).collect()
}

#[test]
fn tasks_start_after_their_dependencies_and_within_the_slots() {
    let mut board = Board::new(2);
    let orders = board.add(vec![entry(0), entry(1), entry(2), after(3, &[0, 2])]);
    assert_eq!(shown(&orders), ["0 start", "1 start"]);
    assert_eq!(shown(&board.ended(&tid(0), State::Completed)), ["2 start"]);
    assert_eq!(shown(&board.ended(&tid(2), State::Completed)), ["3 start"]);
    assert_eq!(shown(&board.ended(&tid(2), State::Completed)), Vec::<String>::new());
    board.ended(&tid(1), State::Completed);
    board.ended(&tid(3), State::Completed);
    assert_eq!((board.trees(), board.counts(), board.has(&tid(0))), (0, (0, 0), false));
}

#[test]
fn what_depends_on_a_failure_is_skipped_with_its_name_unless_it_always_runs() {
    for (state, word) in
        [(State::Failed, "failed"), (State::Cancelled, "was cancelled"), (State::Skipped, "was skipped")]
    {
        let mut board = Board::new(4);
        let always = Entry { run_if: RunIf::Always, ..after(2, &[0]) };
        board.add(vec![entry(0), after(1, &[0]), always, after(3, &[1])]);
        let orders = board.ended(&tid(0), state);
        assert_eq!(shown(&orders), [format!("1 skip: dependency t0 {word}"), "2 start".to_owned()]);
        let orders = board.ended(&tid(1), State::Skipped);
        assert_eq!(shown(&orders), ["3 skip: dependency t1 was skipped"]);
    }
}

#[test]
fn a_parent_holds_no_slot_and_ends_as_its_children_do() {
    for (ends, want) in [
        ([State::Completed, State::Skipped], "Done"),
        ([State::Failed, State::Cancelled], "Failed { child: \"t1\" }"),
        ([State::Cancelled, State::Completed], "Cancelled { child: \"t1\" }"),
    ] {
        let mut board = Board::new(1);
        assert_eq!(shown(&board.add(vec![parent(0), child(1, 0), child(2, 0)])), ["0 start"]);
        assert_eq!(shown(&board.children_may_run(&tid(0))), ["1 start"]);
        assert_eq!(shown(&board.ended(&tid(1), ends[0])), ["2 start"]);
        assert_eq!(shown(&board.ended(&tid(2), ends[1])), [format!("0 children {want}")]);
    }
}

#[test]
fn children_end_with_their_parent() {
    let tree = || vec![parent(0), child(1, 0), Entry { depends_on: vec![tid(1)], ..child(2, 0) }];
    for (state, want) in [
        (State::Cancelled, ["2 cancel: parent task t0 was cancelled", "1 cancel: parent task t0 ended"]),
        (State::Failed, ["2 skip: parent task t0 failed", "1 cancel: parent task t0 ended"]),
    ] {
        let mut board = Board::new(4);
        board.add(tree());
        board.children_may_run(&tid(0));
        assert_eq!(shown(&board.ended(&tid(0), state)), want);
        // The Brain died before the children were told.
        let mut entries = tree();
        (entries[0].state, entries[1].state) = (state, State::Running);
        let orders = shown(&Board::new(0).add(entries));
        assert!(want.iter().all(|w| orders.iter().any(|o| o == w)), "{orders:?}");
    }
}

#[test]
fn a_waiting_task_gives_its_slot_away_and_wakes_with_its_tool_first_in_first_out() {
    let mut board = Board::new(1);
    board.add((0..4).map(entry).collect());
    for n in 0..3 {
        assert_eq!(shown(&board.parked(&tid(n), needs(1), &[tool(1)], 0)), [format!("{} start", n + 1)]);
    }
    assert_eq!(board.counts(), (1, 3));
    assert_eq!(shown(&board.presence(&session(), 1, online(&[(0, &[2])]))), Vec::<String>::new());
    board.ended(&tid(3), State::Completed);
    assert_eq!(shown(&board.presence(&session(), 2, online(&[(0, &[2, 1])]))), ["0 start"]);
    assert_eq!(shown(&board.ended(&tid(0), State::Completed)), ["1 start"]);
    assert_eq!(shown(&board.ended(&tid(1), State::Completed)), ["2 start"]);
}

#[test]
fn a_client_that_came_while_the_task_decided_wakes_it_at_once() {
    let mut board = Board::new(1);
    board.add(vec![entry(0)]);
    board.presence(&session(), 6, online(&[(0, &[1])]));
    assert_eq!(shown(&board.parked(&tid(0), needs(1), &[tool(1)], 5)), ["0 start"]);
    // It decided on that very view: the client is not for it. It is not told again and again.
    assert_eq!(shown(&board.parked(&tid(0), needs(1), &[tool(1)], 6)), Vec::<String>::new());
    assert_eq!(shown(&board.presence(&session(), 7, online(&[(0, &[1]), (1, &[1])]))), ["0 start"]);
}

#[test]
fn a_view_that_the_board_never_saw_loses_no_wake_up() {
    // The client left with view 6 and came back with 7; the board hears of 7 only.
    for (wait, wake_on) in [(needs(1), vec![tool(1)]), (suspended(0), vec![])] {
        let mut board = Board::new(1);
        board.add(vec![entry(0)]);
        board.presence(&session(), 5, online(&[(0, &[1])]));
        assert_eq!(shown(&board.parked(&tid(0), wait, &wake_on, 6)), Vec::<String>::new());
        assert_eq!(shown(&board.presence(&session(), 7, online(&[(0, &[1])]))), ["0 start"]);
    }
}

#[test]
fn a_suspended_task_is_not_asked_over_and_over_while_the_board_is_behind() {
    let mut board = Board::new(1);
    board.add(vec![entry(0)]);
    board.presence(&session(), 5, online(&[(0, &[])]));
    assert_eq!(shown(&board.parked(&tid(0), suspended(0), &[], 0)), ["0 start"]);
    assert_eq!(shown(&board.parked(&tid(0), suspended(0), &[], 0)), Vec::<String>::new(), "once for each view");
    assert_eq!(shown(&board.presence(&session(), 6, online(&[]))), Vec::<String>::new());
    assert_eq!(shown(&board.presence(&session(), 7, online(&[(0, &[])]))), ["0 start"]);
}

#[test]
fn server_tools_that_changed_while_the_task_decided_wake_it() {
    let mut board = Board::new(1);
    board.add(vec![entry(0)]);
    board.server_tools_changed(&|_| true);
    assert_eq!(shown(&board.parked(&tid(0), needs(1), &[tool(1)], 0)), ["0 start"]);
    assert_eq!(shown(&board.parked(&tid(0), needs(1), &[tool(1)], 0)), Vec::<String>::new());
    assert_eq!(shown(&board.server_tools_changed(&|_| true)), ["0 start"]);
    let unknown = Wait::Unknown { tool: tool(1), call_id: call(1) };
    board.parked(&tid(0), unknown, &[], 0);
    assert_eq!(shown(&board.server_tools_changed(&|_| true)), Vec::<String>::new(), "only a person answers");
    board.resumed(&tid(0));
    assert_eq!(board.counts(), (1, 0));
}

#[test]
fn calls_are_found_by_client_and_by_id() {
    let mut board = Board::new(1);
    board.add(vec![Entry { state: State::Running, held: Some((call(1), foot(0))), ..entry(0) }]);
    assert_eq!(board.held_on(&foot(0)), BTreeSet::from([call(1)]));
    assert_eq!(board.holder(&call(1), &foot(0)), Some(tid(0)));
    assert_eq!(board.holder(&call(1), &foot(1)), None, "another client's word");
    board.call_closed(&call(1));
    assert_eq!((board.held_on(&foot(0)).len(), board.holder(&call(1), &foot(0))), (0, None));
}

#[test]
fn a_task_that_rests_gives_its_slot_back_and_asks_for_one_again() {
    let mut board = Board::new(1);
    assert_eq!(shown(&board.add(vec![entry(0), entry(1), entry(2)])), ["0 start"]);
    assert_eq!(shown(&board.rests(&tid(0))), ["1 start"]);
    assert_eq!(shown(&board.rested(&tid(0))), Vec::<String>::new(), "behind those that wait already");
    assert_eq!(shown(&board.ended(&tid(1), State::Completed)), ["2 start"]);
    assert_eq!(shown(&board.ended(&tid(2), State::Completed)), ["0 start"]);
    // That it rests was not heard, that it has rested was: it has its slot.
    assert_eq!(shown(&board.rested(&tid(0))), ["0 start"]);
    // Its actor fell in its pause and looks again at once.
    board.rests(&tid(0));
    board.resumed(&tid(0));
    assert_eq!(board.counts(), (1, 0));
    board.ended(&tid(0), State::Completed);
    assert_eq!((shown(&board.rested(&tid(0))), board.counts()), (Vec::<String>::new(), (0, 0)));
}

#[test]
fn who_waits_for_a_client_is_woken_wherever_it_comes_back() {
    let elsewhere = SessionId::parse("sess_2").unwrap();
    let mut board = Board::new(4);
    board.add(vec![entry(0), entry(1)]);
    board.presence(&session(), 1, online(&[(0, &[0])]));
    // Its call is suspended, and the client comes back to another session.
    board.presence(&session(), 2, online(&[]));
    board.parked(&tid(0), suspended(0), &[], 2);
    assert_eq!(shown(&board.presence(&elsewhere, 1, online(&[(0, &[])]))), ["0 start"]);
    // It is still suspended: woken once for each view of that session, not for ever.
    assert_eq!(shown(&board.parked(&tid(0), suspended(0), &[], 2)), Vec::<String>::new());
    assert_eq!(shown(&board.presence(&elsewhere, 2, online(&[(0, &[1])]))), ["0 start"]);
    // One that parks when the client is there already.
    assert_eq!(shown(&board.parked(&tid(1), suspended(0), &[], 2)), ["1 start"]);
    board.parked(&tid(1), suspended(0), &[], 2);
    assert_eq!(shown(&board.presence(&elsewhere, 3, online(&[]))), Vec::<String>::new());
    // A tool that is offered elsewhere is no use: that is another session's.
    board.parked(&tid(1), needs(1), &[tool(1)], 2);
    assert_eq!(shown(&board.presence(&elsewhere, 4, online(&[(0, &[1])]))), Vec::<String>::new());
}

#[test]
fn sessions_take_turns_and_within_one_the_first_is_first() {
    let mut board = Board::new(1);
    let of = |n: usize, session: &str, tree: &str| Entry {
        session_id: SessionId::parse(session).unwrap(),
        tree_id: TreeId::parse(tree).unwrap(),
        ..entry(n)
    };
    board.add((0..4).map(|n| of(n, "many", "tree_many")).collect());
    board.add(vec![of(9, "one", "tree_one")]);
    let mut order = Vec::new();
    for n in [0, 1, 9, 2] {
        order.extend(shown(&board.ended(&tid(n), State::Completed)));
    }
    assert_eq!(
        order,
        ["1 start", "9 start", "2 start", "3 start"],
        "the only one of a session waits for one of the other's"
    );
}

#[test]
fn a_tree_and_a_parent_run_no_more_than_they_may_and_who_waits_takes_no_place() {
    let limited = |n: usize| Entry { tree_max_parallel: Some(3), ..entry(n) };
    let below = |n: usize, p: usize| Entry { tree_max_parallel: Some(3), ..child(n, p) };
    let mut board = Board::new(16);
    let around = Entry { max_parallel: Some(1), has_children: true, ..limited(0) };
    let orders = board.add(vec![around, below(1, 0), below(2, 0), limited(3), limited(4), limited(5)]);
    // The parent has a slot until its children may run.
    assert_eq!(shown(&orders), ["0 start", "3 start", "4 start"]);
    assert_eq!(shown(&board.children_may_run(&tid(0))), ["5 start"]);
    assert_eq!(shown(&board.ended(&tid(3), State::Completed)), ["1 start"], "one below it, three of the tree");
    assert_eq!(shown(&board.ended(&tid(4), State::Completed)), Vec::<String>::new(), "the other one below it waits");
    // It waits for a client: its place is free.
    assert_eq!(shown(&board.parked(&tid(1), needs(1), &[tool(1)], 0)), ["2 start"]);
    assert_eq!(shown(&board.presence(&session(), 1, online(&[(0, &[1])]))), Vec::<String>::new());
    assert_eq!(shown(&board.ended(&tid(2), State::Failed)), ["1 start"], "and is back when there is room");
    board.ended(&tid(1), State::Completed);
    board.ended(&tid(5), State::Completed);
    board.ended(&tid(0), State::Completed);
    assert_eq!((board.trees(), board.counts()), (0, (0, 0)));
}

#[test]
fn within_two_limits_a_place_goes_to_one_that_may_take_it() {
    let below = |n: usize, p: usize| Entry { tree_max_parallel: Some(2), ..child(n, p) };
    let mut board = Board::new(16);
    let around = Entry { max_parallel: Some(1), tree_max_parallel: Some(2), ..parent(0) };
    board.add(vec![around, below(1, 0), below(2, 0), below(3, 0)]);
    let other = |n: usize| Entry { tree_max_parallel: Some(2), ..entry(n) };
    assert_eq!(shown(&board.children_may_run(&tid(0))), ["1 start"]);
    board.add(vec![Entry { tree_id: TreeId::parse("tree_2").unwrap(), ..other(7) }]);
    assert_eq!(shown(&board.ended(&tid(1), State::Cancelled)), ["2 start"]);
    // Ended while it was held back: its place is passed on.
    board.ended(&tid(3), State::Cancelled);
    assert_eq!(shown(&board.ended(&tid(2), State::Completed)), ["0 children Cancelled { child: \"t1\" }"]);
}

#[test]
fn the_queue_keeps_its_order_over_a_restart() {
    let queued = |n: usize, since: i64| Entry {
        state: State::Queued,
        wait: Some(Wait::Client { tool: tool(n), queued: true }),
        wake_on: vec![tool(n), tool(99)],
        waits_since: since,
        tree_id: TreeId::parse(&format!("tree_{n}")).unwrap(),
        ..entry(n)
    };
    let mut board = Board::new(1);
    for (n, since) in [(1, 30), (2, 10), (3, 20)] {
        board.add(vec![queued(n, since)]);
    }
    board.add(vec![Entry { tree_id: TreeId::parse("tree_4").unwrap(), ..entry(4) }]);
    board.parked(&tid(4), Wait::Client { tool: tool(4), queued: true }, &[tool(4)], 0);
    board.add(vec![Entry { tree_id: TreeId::parse("tree_5").unwrap(), ..entry(5) }]);
    board.parked(&tid(5), needs(5), &[tool(5)], 0);
    let names = |board: &Board| board.queue(&session()).iter().map(|w| w.id.clone()).collect::<Vec<_>>();
    assert_eq!(names(&board), ["t2", "t3", "t1", "t4"], "the blocked one is not in it");
    let orders = board.presence(&session(), 1, online(&[(0, &[99])]));
    assert_eq!(shown(&orders), ["2 start"]);
    assert_eq!(names(&board), ["t4"]);
}

#[test]
fn an_autonomous_tree_rests_when_nothing_of_it_goes_on_by_itself() {
    let mut board = Board::new(1);
    let tree = TreeId::parse("tree_1").unwrap();
    let of = |n: usize| Entry { autonomous: true, ..entry(n) };
    board.add(vec![of(0), of(1)]);
    assert!(board.take_at_rest().is_empty() && board.is_busy(&tree));
    board.parked(&tid(0), needs(0), &[tool(0)], 0);
    assert!(board.take_at_rest().is_empty(), "the other one runs");
    board.ended(&tid(1), State::Completed);
    assert_eq!(board.take_at_rest(), std::slice::from_ref(&tree));
    assert!(board.take_at_rest().is_empty() && !board.is_busy(&tree));
    board.presence(&session(), 1, online(&[(0, &[0])]));
    assert!(board.is_busy(&tree));
    board.ended(&tid(0), State::Completed);
    assert_eq!((board.take_at_rest(), board.trees()), (vec![tree], 0), "its end is a rest, too");
    board.add(vec![Entry { tree_id: TreeId::parse("tree_2").unwrap(), ..entry(2) }]);
    board.ended(&tid(2), State::Completed);
    assert!(board.take_at_rest().is_empty(), "nobody asks how an interactive one stands");
}
