use std::collections::BTreeMap;

use super::*;
use crate::model::{By, Group, group::groups};

const LIMIT: usize = 3;

fn task(account: u64, tgid: u32, oncpu_ns: u64) -> TaskFigures {
    TaskFigures {
        account,
        tid: account as u32,
        tgid,
        start_ns: account,
        opened_ns: account,
        comm: format!("comm{}", account % 3).into_bytes(),
        cgroup_id: Some(account % 2),
        state: "exited",
        updated_ns: account,
        oncpu_ns,
        user_ns: Some(oncpu_ns / 2),
        reported_runtime_ns: oncpu_ns + 3,
        delta_runtime_ns: 3,
        delta_user_ns: Some(-(account as i64)),
        residual_ns: Some(-1),
        ..TaskFigures::default()
    }
}

/// What ends in each reading, by process and time. The first of a process leads it.
fn live(hands_out: bool, lives: &[Vec<(u32, u64)>]) -> (Ended, Vec<TaskFigures>, Vec<TaskFigures>) {
    let (mut ended, mut all, mut evicted) = (Ended::with_limit(hands_out, LIMIT), vec![], vec![]);
    let mut leaders = HashSet::new();
    for (number, reading) in lives.iter().enumerate() {
        for (tgid, ns) in reading {
            let account = all.len() as u64 + 100;
            let one = if leaders.insert(*tgid) {
                TaskFigures { tid: *tgid, ..task(account, *tgid, *ns) }
            } else {
                task(account, *tgid, *ns)
            };
            all.push(one.clone());
            ended.add(one);
        }
        let alive = || lives[number + 1..].iter().flatten().map(|(tgid, _)| *tgid).collect();
        if ended.is_crowded() {
            ended.relieve(alive);
        } else {
            ended.begin_reading(alive);
        }
        ended.show();
        evicted.extend(ended.take_evicted());
    }
    (ended, all, evicted)
}

fn json(task: &TaskFigures) -> serde_json::Value {
    serde_json::to_value(task).unwrap()
}

fn grouped(ended: &Ended, by: By) -> Vec<Group> {
    let tasks: Vec<TaskFigures> = ended.tasks().cloned().collect();
    let folded: Vec<Folded> = ended.folded().cloned().collect();
    groups(&tasks, &folded, by, &BTreeMap::new())
}

fn members(ended: &Ended) -> u64 {
    ended.folded().map(|folded| folded.members).sum()
}

#[test]
fn a_task_is_recent_until_a_reading_has_shown_it() {
    let mut ended = Ended::with_limit(false, LIMIT);
    ended.add(task(1, 1, 10));
    ended.begin_reading(HashSet::new);
    ended.add(task(2, 1, 20));
    ended.show();
    assert_eq!(ended.recent().len(), 2);
    ended.add(task(3, 1, 30));
    ended.begin_reading(HashSet::new);
    ended.show();
    assert_eq!(ended.recent().iter().map(|task| task.account).collect::<Vec<_>>(), [3]);
    assert_eq!((ended.tasks().count(), ended.take_unshown()), (3, 0));
}

#[test]
fn without_a_reading_memory_does_not_grow_and_what_none_shows_is_counted() {
    let mut ended = Ended::with_limit(false, LIMIT);
    for number in 0..1_000 {
        // Each is a process of its own.
        ended
            .add(TaskFigures { tid: 7 + number as u32, ..task(number, 7 + number as u32, number) });
        ended.relieve(HashSet::new);
        assert!(ended.tasks().count() <= 4 * LIMIT + 1, "{}", ended.tasks().count());
        // Beside the processes, one of each name and cgroup.
        assert!(ended.folded().count() <= 4 * LIMIT + 6, "{}", ended.folded().count());
    }
    let recent = ended.recent().len() as u64;
    assert_eq!(ended.take_unshown() + recent, 1_000);
    assert_eq!(members(&ended) + ended.tasks().count() as u64, 1_000);
    assert!(ended.take_evicted().is_empty(), "nobody wants them");
}

#[test]
fn the_greatest_are_kept() {
    let lives = vec![vec![(1, 5), (1, 900), (1, 6), (1, 800), (1, 700), (1, 4), (1, 3)], vec![]];
    let (ended, ..) = live(false, &lives);
    let mut kept: Vec<u64> = ended.tasks().map(|task| task.oncpu_ns).collect();
    kept.sort_unstable();
    assert_eq!(kept, [700, 800, 900]);
    let sums: u64 = ended.folded().map(|folded| folded.figures.oncpu_ns).sum();
    assert_eq!((members(&ended), sums), (4, 18));
    assert_eq!(ended.folded().map(|folded| folded.apart_ns).max(), Some(3));
    assert_eq!(ended.folded().filter_map(|folded| folded.parts_apart_ns).max(), Some(106));
}

#[test]
fn a_process_that_may_get_more_threads_keeps_its_group() {
    let mut lives: Vec<_> = (1..40).map(|tgid| vec![(tgid, 100 + u64::from(tgid))]).collect();
    // Threads of the smallest two end after everybody else.
    lives.push(vec![(1, 1), (2, 1)]);
    let (ended, ..) = live(false, &lives);
    let groups = grouped(&ended, By::Process);
    assert!(groups.len() <= 3 * LIMIT + 6, "{}", groups.len());
    for (key, members) in [("1", 2), ("2", 2), ("39", 1)] {
        let group = groups.iter().find(|group| group.key == key).unwrap();
        assert_eq!((group.members, group.exited), (members, members));
    }
    let others: Vec<&Group> = groups.iter().filter(|group| group.key == "(ended)").collect();
    assert_eq!((others.len(), others[0].name.as_str()), (1, "(ended)"));
    assert_eq!(groups.iter().map(|group| group.members).sum::<u64>(), 41);
}

#[test]
fn a_living_thread_is_in_the_group_of_the_leader_that_was_folded() {
    let mut ended = Ended::with_limit(false, 0);
    ended.add(TaskFigures { tid: 7, ..task(100, 7, 50) });
    ended.add(task(101, 7, 20));
    ended.relieve(|| [7].into());
    assert_eq!(ended.tasks().count(), 0);
    let living = TaskFigures { state: "running", ..task(300, 7, 5) };
    let folded: Vec<Folded> = ended.folded().cloned().collect();
    let groups = groups(&[living], &folded, By::Process, &BTreeMap::new());
    assert_eq!(groups.len(), 1);
    assert_eq!((groups[0].members, groups[0].exited, groups[0].figures.oncpu_ns), (3, 2, 75));
    assert_eq!(groups[0].name, "comm1", "the leader's");
}

#[test]
fn two_processes_with_one_id_stay_apart() {
    let mut ended = Ended::with_limit(false, 0);
    for start in [100, 200] {
        ended.add(TaskFigures { tid: 7, ..task(start, 7, start) });
        ended.add(task(start + 1, 7, 1));
        ended.relieve(|| [7].into());
    }
    let mut sums: Vec<u64> =
        grouped(&ended, By::Process).iter().map(|group| group.figures.oncpu_ns).collect();
    sums.sort_unstable();
    assert_eq!(sums, [101, 201]);
}

#[test]
fn an_id_that_is_used_again_keeps_nobody_who_had_it_before() {
    let mut ended = Ended::with_limit(false, LIMIT);
    for number in 0..1_000_u64 {
        // Four ids in turn, each of them needed: by those with most time, and one by a living process.
        let id = 7 + (number % 4) as u32;
        let oncpu_ns = if number < 8 { 1_000_000 } else { number };
        ended.add(TaskFigures { tid: id, ..task(number, id, oncpu_ns) });
        ended.relieve(|| [7].into());
        assert!(ended.folded().count() <= 4 * LIMIT + 6, "{}", ended.folded().count());
    }
    assert_eq!(members(&ended) + ended.tasks().count() as u64, 1_000);
}

#[test]
fn what_one_lacks_its_sum_lacks() {
    let mut ended = Ended::with_limit(false, 0);
    ended.add(task(1, 7, 50));
    ended.add(TaskFigures { user_ns: None, ..task(7, 7, 50) });
    ended.relieve(HashSet::new);
    let sums = grouped(&ended, By::Thread);
    assert_eq!((sums.len(), sums[0].members, sums[0].figures.user_ns), (1, 2, None));
    assert_eq!(sums[0].figures.residual_ns, Some(-2));
}

proptest::proptest! {
    #[test]
    fn no_sum_depends_on_who_is_kept(
        lives in proptest::collection::vec(proptest::collection::vec((1_u32..30, 0_u64..1000), 0..12), 1..12)
    ) {
        let (ended, all, evicted) = live(true, &lives);
        let wanted = json(&sum(&all.iter().collect::<Vec<_>>()));
        let sums = ended.folded().map(|folded| &folded.figures);
        let rows: Vec<&TaskFigures> = ended.tasks().chain(sums).collect();
        proptest::prop_assert_eq!(json(&sum(&rows)), wanted.clone());
        // Each has its own figures once: here, or handed out.
        let mut accounts: Vec<u64> =
            ended.tasks().chain(&evicted).map(|task| task.account).collect();
        accounts.sort_unstable();
        proptest::prop_assert_eq!(accounts, (100..100 + all.len() as u64).collect::<Vec<_>>());
        proptest::prop_assert_eq!(evicted.len() as u64, members(&ended));
        for by in [By::Thread, By::Process, By::Comm, By::Cgroup] {
            let groups = grouped(&ended, by);
            let figures: Vec<&TaskFigures> = groups.iter().map(|group| &group.figures).collect();
            if !all.is_empty() {
                proptest::prop_assert_eq!(json(&sum(&figures)), wanted.clone());
            }
            proptest::prop_assert_eq!(groups.iter().map(|group| group.members).sum::<u64>(), all.len() as u64);
            // What is a group of its own is what it would be if everybody had been kept.
            let whole = super::super::group::groups(&all, &[], by, &BTreeMap::new());
            for group in groups.iter().filter(|group| group.key != "(ended)") {
                let same = whole.iter().find(|other| other.key == group.key).unwrap();
                proptest::prop_assert_eq!(
                    (group.members, group.exited, &group.name, json(&group.figures)),
                    (same.members, same.exited, &same.name, json(&same.figures))
                );
            }
        }
    }
}
