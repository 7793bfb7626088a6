//! The rows of the table: tasks or groups, the rest in one, and the sum of all.

use std::cmp::Reverse;

use crate::model::{By, Folded, Group, TaskFigures, group::sum, report::escape};

/// A task, a group, or the sum of several.
pub struct Row {
    /// Thread id, or process id of a process; `None` where there is not one.
    pub tid: Option<u32>,
    pub name: String,
    /// `exited`, or how many tasks a group has.
    pub note: String,
    pub is_exited: bool,
    /// False for the row of the rest and that of all.
    pub is_one: bool,
    pub figures: TaskFigures,
}

/// The `top` first ones, the rest, and all; those in `folded` are never among the first.
pub fn rows(tasks: &[TaskFigures], folded: &[Folded], groups: &[Group], top: usize) -> Vec<Row> {
    let mut sorted: Vec<&TaskFigures> = tasks.iter().collect();
    sorted.sort_by_key(|task| Reverse(task.oncpu_ns));
    let count = sorted.len() + folded.iter().map(|folded| folded.members as usize).sum::<usize>();
    let first = sorted.len().min(top);
    let what = if first == sorted.len() { "ended task" } else { "task" };
    sorted.extend(folded.iter().map(|folded| &folded.figures));
    let all = |is_wanted: bool| is_wanted.then(|| of_sum(format!("all {count} tasks"), &sorted));
    if groups.is_empty() {
        let (first, rest) = sorted.split_at(first);
        let mut rows: Vec<Row> = first.iter().map(|task| of_task(task)).collect();
        rows.extend(rest_of(rest, count - first.len(), what));
        rows.extend(all(count > 1));
        return rows;
    }
    let (first, rest) = groups.split_at(top.min(groups.len()));
    let mut rows: Vec<Row> = first.iter().map(of_group).collect();
    let rest: Vec<&TaskFigures> = rest.iter().map(|group| &group.figures).collect();
    rows.extend(rest_of(&rest, rest.len(), "group"));
    rows.extend(all(groups.len() > 1));
    rows
}

fn of_task(task: &TaskFigures) -> Row {
    let is_exited = task.state == "exited";
    Row {
        tid: Some(task.tid),
        name: escape(&task.comm),
        note: if is_exited { "exited" } else { "" }.to_owned(),
        is_exited,
        is_one: true,
        figures: task.clone(),
    }
}

fn of_group(group: &Group) -> Row {
    let plural = if group.members == 1 { "" } else { "s" };
    let tid = match group.by {
        By::Thread | By::Process => group.key.parse().ok(),
        By::Comm | By::Cgroup => None,
    };
    Row {
        tid,
        name: group.name.clone(),
        note: format!("{} task{plural}", group.members),
        is_exited: group.exited == group.members,
        is_one: true,
        figures: group.figures.clone(),
    }
}

fn rest_of(rest: &[&TaskFigures], count: usize, what: &str) -> Option<Row> {
    let plural = if count == 1 { "" } else { "s" };
    (!rest.is_empty()).then(|| of_sum(format!("{count} other {what}{plural}"), rest))
}

fn of_sum(name: String, tasks: &[&TaskFigures]) -> Row {
    let figures = sum(tasks);
    Row { tid: None, name, note: String::new(), is_exited: false, is_one: false, figures }
}
