use proptest::prelude::*;
use serde_json::json;

use super::*;

fn task(tid: u32, tgid: u32, start_ns: u64, comm: &str, oncpu_ns: u64) -> TaskFigures {
    TaskFigures {
        tid,
        tgid,
        start_ns,
        opened_ns: start_ns,
        comm: comm.as_bytes().to_vec(),
        state: "running",
        oncpu_ns,
        ..TaskFigures::default()
    }
}

fn grouped(tasks: &[TaskFigures], by: By) -> Vec<(String, String, u64, u64)> {
    groups(tasks, &[], by, &BTreeMap::new())
        .into_iter()
        .map(|group| (group.key, group.name, group.members, group.figures.oncpu_ns))
        .collect()
}

fn row(key: &str, name: &str, members: u64, oncpu_ns: u64) -> (String, String, u64, u64) {
    (key.to_owned(), name.to_owned(), members, oncpu_ns)
}

/// A task of which every figure is `value`.
fn filled(value: u64) -> TaskFigures {
    let Value::Object(mut fields) = serde_json::to_value(TaskFigures::default()).unwrap() else {
        panic!("an object");
    };
    for (name, field) in &mut fields {
        if !IDENTITY.contains(&name.as_str()) {
            *field = json!(value);
        }
    }
    serde_json::from_value(Value::Object(fields)).unwrap()
}

#[test]
fn no_figure_is_forgotten_in_a_sum() {
    let (a, b) = (filled(3), filled(4));
    let Value::Object(fields) = serde_json::to_value(sum(&[&a, &b])).unwrap() else {
        panic!("an object");
    };
    for (name, value) in fields {
        match name.as_str() {
            "opened_ns" => assert_eq!(value, 3),
            "updated_ns" => assert_eq!(value, 4),
            name if IDENTITY.contains(&name) => {}
            name => assert_eq!(value, 7, "{name}: add it to model::group::sum"),
        }
    }
}

#[test]
fn a_sum_lacks_what_one_member_lacks() {
    let some = TaskFigures { user_ns: Some(5), residual_ns: Some(-5), ..TaskFigures::default() };
    let none = TaskFigures::default();
    assert_eq!(sum(&[&some, &some]).user_ns, Some(10));
    assert_eq!(sum(&[&some, &some]).residual_ns, Some(-10));
    assert_eq!(sum(&[&some, &none]).user_ns, None);
    assert_eq!(sum(&[&some, &none]).residual_ns, None);
}

#[test]
fn b22_threads_of_a_process_sum_under_its_name() {
    let tasks = [
        task(10, 10, 1, "alpha", 1),
        task(11, 10, 2, "beta", 70),
        task(12, 10, 3, "gamma", 29),
        task(20, 20, 4, "beta", 50),
    ];
    assert_eq!(
        grouped(&tasks, By::Process),
        [row("10", "alpha", 3, 100), row("20", "beta", 1, 50)]
    );
    assert_eq!(
        grouped(&tasks, By::Comm),
        [row("beta", "beta", 2, 120), row("gamma", "gamma", 1, 29), row("alpha", "alpha", 1, 1)]
    );
    assert_eq!(grouped(&tasks, By::Thread).len(), 4);
}

#[test]
fn b37_a_member_that_has_exited_stays_in_the_sum() {
    let mut tasks = [task(10, 10, 1, "a", 5), task(11, 10, 2, "a", 6)];
    tasks[1].state = "exited";
    let groups = groups(&tasks, &[], By::Process, &BTreeMap::new());
    assert_eq!((groups[0].members, groups[0].exited, groups[0].figures.oncpu_ns), (2, 1, 11));
}

#[test]
fn a08_a_process_id_that_is_used_again_is_another_process() {
    let tasks = [
        task(10, 10, 100, "old", 1),
        task(11, 10, 150, "thread", 2),
        task(10, 10, 200, "new", 4),
        task(12, 10, 250, "thread", 8),
    ];
    assert_eq!(grouped(&tasks, By::Process), [row("10", "new", 2, 12), row("10", "old", 2, 3)]);
    assert_eq!(grouped(&tasks, By::Thread).len(), 4);
}

#[test]
fn e01_an_exec_by_another_thread_stays_in_its_process() {
    // The old leader ends; the thread that execs takes over its id and start.
    let mut leader = task(10, 10, 100, "sh", 1);
    leader.state = "exited";
    let execs = TaskFigures { former_tid: Some(11), ..task(10, 10, 100, "new", 500) };
    let execs = TaskFigures { opened_ns: 150, updated_ns: 900, ..execs };
    assert_eq!(grouped(&[leader, execs], By::Process), [row("10", "new", 2, 501)]);
}

#[test]
fn a_process_without_its_leader_has_the_name_of_a_member() {
    let tasks = [task(11, 10, 2, "small", 5), task(12, 10, 3, "large", 6)];
    assert_eq!(grouped(&tasks, By::Process), [row("10", "large", 2, 11)]);
}

#[test]
fn cgroups_have_their_path_and_the_kernels_figures() {
    let mut tasks = [task(1, 1, 1, "a", 1), task(2, 2, 1, "b", 2), task(3, 3, 1, "c", 4)];
    tasks[0].cgroup_id = Some(7);
    tasks[1].cgroup_id = Some(8);
    let used = CgroupUse { usage_ns: 30, user_ns: 10, system_ns: 20, read_gap_ns: 3 };
    let cgroups =
        [(7, Cgroup { path: "/a\nb".to_owned(), used: Some(used) })].into_iter().collect();
    let groups = groups(&tasks, &[], By::Cgroup, &cgroups);
    let keys: Vec<&str> = groups.iter().map(|group| group.key.as_str()).collect();
    assert_eq!(keys, ["(not known)", "id 8", "/a\\x0ab"]);
    let record = serde_json::to_value(&groups[2]).unwrap();
    assert_eq!(record["cgroup_usage_ns"], 30);
    assert_eq!(record["cgroup_read_gap_ns"], 3);
    assert_eq!(serde_json::to_value(&groups[1]).unwrap()["cgroup_usage_ns"], Value::Null);
}

#[test]
fn a_record_has_the_figures_of_a_task_and_no_identity() {
    let group = &groups(&[filled(9)], &[], By::Comm, &BTreeMap::new())[0];
    let record = serde_json::to_value(group).unwrap();
    let Value::Object(figures) = serde_json::to_value(filled(9)).unwrap() else {
        panic!("an object");
    };
    for (name, value) in figures {
        if IDENTITY.contains(&name.as_str()) {
            assert!(record.get(&name).is_none(), "{name}");
        } else {
            assert_eq!(record[&name], value, "{name}");
        }
    }
    assert_eq!((&record["by"], &record["members"]), (&json!("comm"), &json!(1)));
}

#[test]
fn a_group_can_stand_for_a_task() {
    let tasks = [task(10, 10, 1, "a\n", 5), task(11, 10, 2, "b", 6)];
    let as_task = |by| groups(&tasks, &[], by, &BTreeMap::new())[0].as_task();
    let process = as_task(By::Process);
    assert_eq!((process.tid, process.comm.as_slice(), process.oncpu_ns), (10, &b"a\n"[..], 11));
    let comm = as_task(By::Comm);
    assert_eq!((comm.tid, comm.comm.as_slice(), comm.oncpu_ns), (0, &b"b"[..], 6));
    assert_ne!(comm.account, process.account);
    assert_eq!(comm.account, as_task(By::Comm).account);
}

proptest! {
    /// Whatever the grouping, nothing is lost and nothing is counted twice.
    #[test]
    fn groups_are_exact_sums(
        members in proptest::collection::vec((1_u32..9, 1_u32..4, 0_u64..5, 0_u64..1 << 40), 0..40),
    ) {
        let tasks: Vec<TaskFigures> = members
            .iter()
            .map(|(tid, tgid, start_ns, ns)| TaskFigures {
                user_ns: Some(*ns),
                delta_runtime_ns: -(*ns as i64),
                cgroup_id: Some(start_ns % 2),
                ..task(*tid, *tgid, *start_ns, &format!("t{}", tid % 3), *ns)
            })
            .collect();
        let whole: u64 = members.iter().map(|member| member.3).sum();
        for by in [By::Thread, By::Process, By::Comm, By::Cgroup] {
            let groups = groups(&tasks, &[], by, &BTreeMap::new());
            let sum_of = |pick: fn(&Group) -> u64| groups.iter().map(pick).sum::<u64>();
            prop_assert_eq!(sum_of(|group| group.figures.oncpu_ns), whole);
            prop_assert_eq!(sum_of(|group| group.figures.user_ns.unwrap()), whole);
            prop_assert_eq!(sum_of(|group| group.members), members.len() as u64);
            let delta: i64 = groups.iter().map(|group| group.figures.delta_runtime_ns).sum();
            prop_assert_eq!(delta, -(whole as i64));
        }
    }
}
