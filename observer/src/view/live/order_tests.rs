use super::*;
use crate::model::group::Process;

fn thread(tid: u32, oncpu_ns: u64) -> TaskFigures {
    TaskFigures {
        account: u64::from(tid),
        tid,
        tgid: 7,
        start_ns: 100 + u64::from(tid),
        comm: b"work".to_vec(),
        state: if tid == 9 { "running" } else { "exited" },
        oncpu_ns,
        ..TaskFigures::default()
    }
}

fn folded(process: Option<Process>, members: u64, figures: TaskFigures) -> Folded {
    Folded { members, process, figures: TaskFigures { account: 0, ..figures }, ..Folded::default() }
}

fn rows(wanted: Wanted) -> Rows {
    let mut rows = Rows::default();
    rows.want(|other| *other = wanted);
    rows
}

#[test]
fn a_process_keeps_what_its_folded_threads_had_and_who_it_is() {
    let mut rows = rows(Wanted { processes: true, ..Wanted::default() });
    rows.take(vec![thread(7, 500), thread(8, 30), thread(9, 4)], Vec::new());
    let before = rows.key(0);
    // The leader and a thread lose their figures; the last one has run on.
    let leader = folded(Some((7, Some(107))), 2, TaskFigures { oncpu_ns: 530, ..thread(7, 0) });
    rows.take(vec![thread(9, 6)], vec![leader]);
    assert_eq!((rows.len(), rows.key(0)), (1, before));
    let (_, then, now) = rows.row(0).unwrap();
    assert_eq!((then.map(|then| then.oncpu_ns), now.oncpu_ns), (Some(534), 536));
    assert_eq!((rows.threads(), now.state), ((3, 2), "running"));
}

#[test]
fn those_without_a_row_are_in_the_sum_since_the_begin() {
    let all = vec![
        folded(Some((7, Some(107))), 2, thread(7, 500)),
        folded(None, 1_000, TaskFigures { tgid: 3, ..thread(3, 20_000) }),
    ];
    for (processes, count) in [(false, 1), (true, 1)] {
        let mut rows = rows(Wanted { processes, cumulative: true, ..Wanted::default() });
        rows.take(vec![thread(9, 6)], all.clone());
        assert_eq!((rows.len(), rows.sum().1.oncpu_ns), (count, 20_506), "{processes}");
        assert_eq!(rows.threads(), (1_003, 1_002));
        rows.want(|wanted| wanted.cumulative = false);
        let (then, now) = rows.sum();
        assert!(then.is_some() && now.oncpu_ns <= 506, "they have added nothing");
        rows.want(|wanted| (wanted.cumulative, wanted.filter) = (true, "9".to_owned()));
        assert!(rows.sum().1.oncpu_ns <= 506, "nobody knows their names");
        rows.want(|wanted| wanted.filter.clear());
        rows.purge();
        assert!(rows.sum().1.oncpu_ns <= 506);
    }
}
