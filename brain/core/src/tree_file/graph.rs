//! Who waits for whom. Each task has two events, its start and its end; a task starts after the end of what it depends on and after
//! the start of the task around it, and ends after its children. A circle among events would never run.

use std::collections::{BTreeMap, VecDeque};

use vance_shared::doc::{Problems, nearest, ticked};

use super::Draft;

/// Tasks by id.
pub(super) type Index<'a> = BTreeMap<&'a str, usize>;

/// Longest circle that is written out.
const MAX_SHOWN: usize = 12;

/// Finds each task by its id and reports ids that are there twice.
pub(super) fn index<'a>(drafts: &[Draft<'a>], problems: &Problems) -> Index<'a> {
    let mut index = Index::new();
    for (at, draft) in drafts.iter().enumerate() {
        let Some(id) = draft.id else { continue };
        match index.get(id).and_then(|first: &usize| drafts.get(*first)) {
            Some(first) => problems.add(
                draft.line,
                format!("the id `{id}` is there twice, first on line {}; ids are unique in a tree", first.line),
            ),
            None => {
                index.insert(id, at);
            }
        }
    }
    index
}

/// The nearest id, as the end of a message.
pub(super) fn did_you_mean(id: &str, index: &Index<'_>, problems: &Problems) -> String {
    // Nobody sees the hint of a problem beyond the last one that is kept.
    let near = if problems.is_full() { None } else { nearest(id, index.keys().copied()) };
    near.map_or_else(String::new, |near| format!(", did you mean `{near}`?"))
}

/// Events and what each comes after. The start of task `i` is `2 * i`, its end `2 * i + 1`.
pub(super) struct Order {
    after: Vec<Vec<u32>>,
    parents: Vec<Option<usize>>,
    /// The knot of each event, see [`Order::find_knots`].
    knots: Vec<usize>,
}

const fn start(task: usize) -> usize {
    2 * task
}

const fn end(task: usize) -> usize {
    2 * task + 1
}

impl Order {
    /// Builds the order and reports dependencies on tasks that are not there.
    pub(super) fn of(drafts: &[Draft<'_>], index: &Index<'_>, problems: &Problems) -> Self {
        let parents = drafts.iter().map(|draft| draft.parent).collect();
        let mut order = Self { after: vec![Vec::new(); 2 * drafts.len()], parents, knots: Vec::new() };
        for (at, draft) in drafts.iter().enumerate() {
            order.add(end(at), start(at));
            if let Some(parent) = draft.parent {
                order.add(start(at), start(parent));
                order.add(end(parent), end(at));
            }
            for (other, line) in &draft.depends_on {
                match index.get(other) {
                    Some(other) => order.add(start(at), end(*other)),
                    None => {
                        let hint = did_you_mean(other, index, problems);
                        problems.add(
                            *line,
                            format!("`depends_on` names {}, but there is no task of this id{hint}", ticked(other)),
                        );
                    }
                }
            }
        }
        order.knots = order.find_knots();
        order
    }

    fn add(&mut self, event: usize, earlier: usize) {
        // At most twice MAX_TASKS events: they fit.
        if let (Some(list), Ok(earlier)) = (self.after.get_mut(event), u32::try_from(earlier)) {
            list.push(earlier);
        }
    }

    fn earlier(&self, event: usize) -> impl Iterator<Item = usize> + '_ {
        self.after.get(event).into_iter().flatten().map(|e| *e as usize)
    }

    /// Reports one circle of each knot of tasks that wait for each other.
    pub(super) fn report_circles(&self, drafts: &[Draft<'_>], problems: &Problems) {
        let mut reported = vec![false; self.after.len()];
        for (at, draft) in drafts.iter().enumerate() {
            let knot = self.knots.get(start(at)).copied().unwrap_or_default();
            let Some(done) = reported.get_mut(knot) else { continue };
            if *done {
                continue;
            }
            let Some(circle) = self.circle(start(at)) else { continue };
            *done = true;
            let mut tasks: Vec<usize> = circle.iter().map(|event| event / 2).collect();
            tasks.dedup();
            if tasks.len() == 1 {
                // A task that waits for itself.
                tasks.push(at);
            }
            let names: Vec<&str> = tasks.iter().take(MAX_SHOWN).filter_map(|t| drafts.get(*t)?.id).collect();
            let more = if tasks.len() > MAX_SHOWN { " -> ..." } else { "" };
            let nested = tasks.windows(2).any(|pair| self.related(pair));
            let why = if nested { "; a task ends after its children and they start after it" } else { "" };
            let next = tasks.get(1).and_then(|t| drafts.get(*t)?.id);
            let line =
                draft.depends_on.iter().find(|(other, _)| Some(*other) == next).map_or(draft.line, |(_, line)| *line);
            problems.add(line, format!("tasks wait for each other in a circle: {}{more}{why}", names.join(" -> ")));
        }
    }

    fn related(&self, pair: &[usize]) -> bool {
        let parent_of = |a: &usize, b: &usize| self.parents.get(*a).copied().flatten() == Some(*b);
        matches!(pair, [a, b] if a != b && (parent_of(a, b) || parent_of(b, a)))
    }

    /// The shortest way from an event back to itself within its knot.
    fn circle(&self, from: usize) -> Option<Vec<usize>> {
        let knot = self.knots.get(from)?;
        let mut came_from: BTreeMap<usize, usize> = BTreeMap::new();
        let mut queue = VecDeque::from([from]);
        while let Some(event) = queue.pop_front() {
            for next in self.earlier(event).filter(|next| self.knots.get(*next) == Some(knot)) {
                if next == from {
                    let mut path = vec![from, event];
                    let mut at = event;
                    while at != from {
                        at = *came_from.get(&at)?;
                        path.push(at);
                    }
                    path.reverse();
                    return Some(path);
                }
                if next != from && !came_from.contains_key(&next) {
                    came_from.insert(next, event);
                    queue.push_back(next);
                }
            }
        }
        None
    }

    /// The knot (strongly connected component) of each event: Tarjan's algorithm with its own stack, since a chain of ten thousand
    /// tasks is a legal file. What comes earlier has the smaller number.
    fn find_knots(&self) -> Vec<usize> {
        const NEW: usize = usize::MAX;
        let count = self.after.len();
        let (mut number, mut low, mut knot) = (vec![NEW; count], vec![0; count], vec![NEW; count]);
        let (mut next_number, mut next_knot) = (0, 0);
        let mut open = Vec::new();
        for root in 0..count {
            if number[root] != NEW {
                continue;
            }
            let mut work: Vec<(usize, usize)> = vec![(root, 0)];
            while let Some((event, edge)) = work.pop() {
                if edge == 0 {
                    number[event] = next_number;
                    low[event] = next_number;
                    next_number += 1;
                    open.push(event);
                }
                if let Some(next) = self.after[event].get(edge).map(|e| *e as usize) {
                    work.push((event, edge + 1));
                    if number[next] == NEW {
                        work.push((next, 0));
                    } else if knot[next] == NEW {
                        low[event] = low[event].min(number[next]);
                    }
                    continue;
                }
                if low[event] == number[event] {
                    while let Some(member) = open.pop() {
                        knot[member] = next_knot;
                        if member == event {
                            break;
                        }
                    }
                    next_knot += 1;
                }
                if let Some((caller, _)) = work.last() {
                    low[*caller] = low[*caller].min(low[event]);
                }
            }
        }
        knot
    }

    /// Prepares questions about what is done before a task starts.
    pub(super) fn search(&self) -> Search<'_> {
        Search { order: self, ended: None }
    }

    /// By knot: which tasks have ended, a bit each, by the time its events happen. Knots are numbered so that what comes
    /// earlier has the smaller number, so one pass is enough; ten thousand tasks take 25 MiB for as long as the check lasts.
    fn ended(&self) -> Vec<Box<[u64]>> {
        let words = self.parents.len().div_ceil(64);
        let mut events: Vec<usize> = (0..self.after.len()).collect();
        events.sort_by_key(|event| self.knots.get(*event));
        let mut rows: Vec<Box<[u64]>> = Vec::new();
        for event in events {
            let knot = self.knots.get(event).copied().unwrap_or_default();
            if rows.len() <= knot {
                rows.push(vec![0; words].into_boxed_slice());
            }
            let (before, rest) = rows.split_at_mut(knot);
            let Some(row) = rest.first_mut() else { continue };
            if event % 2 == 1
                && let Some(word) = row.get_mut(event / 2 / 64)
            {
                *word |= 1 << (event / 2 % 64);
            }
            for next in self.earlier(event).filter_map(|next| self.knots.get(next)) {
                if let Some(earlier) = before.get(*next) {
                    row.iter_mut().zip(earlier).for_each(|(word, more)| *word |= more);
                }
            }
        }
        rows
    }
}

/// Answers what is done before a task starts. Most trees name their direct dependencies only and never ask.
pub(super) struct Search<'a> {
    order: &'a Order,
    ended: Option<Vec<Box<[u64]>>>,
}

impl Search<'_> {
    /// True if `other` has ended by the time `task` starts.
    pub(super) fn done_before(&mut self, task: usize, other: usize) -> bool {
        let ended = self.ended.get_or_insert_with(|| self.order.ended());
        let row = self.order.knots.get(start(task)).and_then(|knot| ended.get(*knot));
        row.and_then(|row| row.get(other / 64)).is_some_and(|word| word >> (other % 64) & 1 == 1)
    }

    /// True if `other` is a task around `task`.
    pub(super) fn around(&self, task: usize, other: usize) -> bool {
        let mut at = self.order.parents.get(task).copied().flatten();
        while let Some(parent) = at {
            if parent == other {
                return true;
            }
            at = self.order.parents.get(parent).copied().flatten();
        }
        false
    }
}
