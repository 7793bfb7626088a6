//! Groups of tasks: exact sums of their members, exited ones included.
//!
//! A sum has a figure only if every member has it: a sum that leaves out what one member did not measure
//! would be a wrong number, and `None` says that it is not known.

use std::{
    collections::{BTreeMap, BTreeSet},
    hash::{Hash as _, Hasher as _},
};

use serde::{Serialize, Serializer, ser::Error as _};
use serde_json::Value;

use super::{
    ended::Folded,
    report::{TaskFigures, escape, unescape},
};

/// The key of the ended tasks that have no group of their own any more.
const ENDED: &str = "(ended)";

/// The fields of a task that say who it is, and have no sum.
pub const IDENTITY: [&str; 10] = [
    "account",
    "tid",
    "tgid",
    "parent_tgid",
    "start_ns",
    "comm",
    "cgroup_id",
    "state",
    "tracer_tid",
    "former_tid",
];

/// What makes tasks a group.
#[derive(clap::ValueEnum, Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum By {
    /// Each task alone
    Thread,
    /// The threads of a process
    Process,
    /// Tasks of one name
    Comm,
    /// Tasks that were last seen in one cgroup (version 2)
    Cgroup,
}

impl By {
    /// The word for it in files and on the screen.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Thread => "thread",
            Self::Process => "process",
            Self::Comm => "comm",
            Self::Cgroup => "cgroup",
        }
    }
}

/// What the kernel says of a cgroup in `cpu.stat`, over the session.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CgroupUse {
    /// `usage_usec`, in ns.
    pub usage_ns: u64,
    /// `user_usec`, in ns.
    pub user_ns: u64,
    /// `system_usec`, in ns.
    pub system_ns: u64,
    /// How much longer the time between the two readings of `cpu.stat` may be than the observation, or how much
    /// shorter: the figures may differ by as much per busy CPU.
    pub read_gap_ns: u64,
}

/// A cgroup by its id.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Cgroup {
    /// Path below the mount, from `/`.
    pub path: String,
    /// `None` where `cpu.stat` could not be read, for instance since the cgroup is gone.
    pub used: Option<CgroupUse>,
}

/// Several tasks as one.
#[derive(Clone, Debug)]
pub struct Group {
    /// What its members have in common.
    pub by: By,
    /// The thread id, process id, name or path that they share.
    pub key: String,
    /// A name for people: of the thread, of the process, of the cgroup.
    pub name: String,
    /// Tasks in it.
    pub members: u64,
    /// Of them, exited.
    pub exited: u64,
    /// Sums over the members; the fields of [`IDENTITY`] are empty.
    pub figures: TaskFigures,
    /// A cgroup's own figures.
    pub cgroup: Option<CgroupUse>,
}

impl Group {
    /// As one task, for views that know only tasks: named as the group, with an account of its own.
    #[must_use]
    pub fn as_task(&self) -> TaskFigures {
        let mut hasher = std::hash::DefaultHasher::new();
        (self.by.name(), &self.key).hash(&mut hasher);
        TaskFigures {
            account: hasher.finish(),
            tid: self.key.parse().ok().filter(|_| self.by == By::Process).unwrap_or(0),
            comm: unescape(&self.name),
            state: if self.exited == self.members { "exited" } else { "running" },
            ..self.figures.clone()
        }
    }
}

/// The groups of tasks and of sums of ended ones, by on-CPU time, largest first. `cgroups` names those that are known,
/// by id.
#[must_use]
pub fn groups(
    tasks: &[TaskFigures],
    folded: &[Folded],
    by: By,
    cgroups: &BTreeMap<u64, Cgroup>,
) -> Vec<Group> {
    let mut leaders = Leaders::of(tasks);
    for folded in folded {
        if let Some((tgid, Some(start_ns))) = folded.process {
            leaders.add(tgid, start_ns);
        }
    }
    // With how many more members the sums stand for.
    let mut sorted: BTreeMap<Key, (Vec<&TaskFigures>, u64)> = BTreeMap::new();
    for task in tasks {
        let key = match by {
            By::Thread => Key::Thread(task.tid, task.opened_ns, task.account),
            By::Process => Key::Process(leaders.process_of(task)),
            By::Comm => Key::Comm(&task.comm),
            By::Cgroup => Key::Cgroup(task.cgroup_id),
        };
        sorted.entry(key).or_default().0.push(task);
    }
    for sum in folded {
        let key = match by {
            By::Thread => Key::Ended,
            By::Process => sum.process.map_or(Key::Ended, Key::Process),
            By::Comm => Key::Comm(&sum.figures.comm),
            By::Cgroup => Key::Cgroup(sum.figures.cgroup_id),
        };
        let (members, more) = sorted.entry(key).or_default();
        members.push(&sum.figures);
        *more += sum.members.saturating_sub(1);
    }
    let mut groups: Vec<Group> = sorted
        .iter()
        .map(|(key, (members, more))| {
            let group = group(key, by, members, cgroups);
            Group { members: group.members + more, exited: group.exited + more, ..group }
        })
        .collect();
    groups.sort_by(|a, b| b.figures.oncpu_ns.cmp(&a.figures.oncpu_ns).then(a.key.cmp(&b.key)));
    groups
}

/// What the members of a group have in common.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
enum Key<'a> {
    /// Id, opening, account: ids are used again.
    Thread(u32, u64, u64),
    Process(Process),
    Comm(&'a [u8]),
    Cgroup(Option<u64>),
    Ended,
}

/// Id of a process, and start of its leader, where that was observed.
pub type Process = (u32, Option<u64>);

/// When the leaders of the observed processes started: a process id may be used again within a session.
#[derive(Default)]
pub struct Leaders(BTreeSet<(u32, u64)>);

impl Leaders {
    fn of(tasks: &[TaskFigures]) -> Self {
        let leaders = tasks.iter().filter(|task| task.tid == task.tgid);
        Self(leaders.map(|task| (task.tgid, task.start_ns)).collect())
    }

    /// A leader started then.
    pub fn add(&mut self, tgid: u32, start_ns: u64) {
        self.0.insert((tgid, start_ns));
    }

    /// Nobody will ask for it any more.
    pub fn remove(&mut self, process: Process) {
        if let (tgid, Some(start_ns)) = process {
            self.0.remove(&(tgid, start_ns));
        }
    }

    /// Who has the id now, or had it last.
    #[must_use]
    pub fn latest(&self, tgid: u32) -> Process {
        let leader = self.0.range((tgid, 0)..=(tgid, u64::MAX)).next_back();
        (tgid, leader.map(|leader| leader.1))
    }

    /// With the last leader that was there when the task started.
    #[must_use]
    pub fn process_of(&self, task: &TaskFigures) -> Process {
        let leader = self.0.range((task.tgid, 0)..=(task.tgid, task.start_ns)).next_back();
        (task.tgid, leader.map(|leader| leader.1))
    }
}

fn group(
    key: &Key<'_>,
    by: By,
    members: &[&TaskFigures],
    cgroups: &BTreeMap<u64, Cgroup>,
) -> Group {
    let cgroup = match key {
        Key::Cgroup(Some(id)) => cgroups.get(id),
        _ => None,
    };
    let words = match key {
        Key::Thread(tid, ..) => tid.to_string(),
        Key::Process((tgid, _)) => tgid.to_string(),
        Key::Comm(name) => escape(name),
        Key::Ended => ENDED.to_owned(),
        Key::Cgroup(None) => "(not known)".to_owned(),
        Key::Cgroup(Some(id)) => {
            cgroup.map_or_else(|| format!("id {id}"), |cgroup| escape(cgroup.path.as_bytes()))
        }
    };
    let name = match key {
        Key::Thread(..) | Key::Process(_) => main_name(members),
        Key::Comm(_) | Key::Cgroup(_) | Key::Ended => words.clone(),
    };
    let exited = members.iter().filter(|task| task.state == "exited").count();
    Group {
        by,
        key: words,
        name,
        members: members.len() as u64,
        exited: exited as u64,
        figures: sum(members),
        cgroup: cgroup.and_then(|cgroup| cgroup.used),
    }
}

/// The name of the leader; without it, that of the member with most time on a CPU.
fn main_name(members: &[&TaskFigures]) -> String {
    let best =
        members.iter().max_by_key(|task| (task.tid == task.tgid, task.updated_ns, task.oncpu_ns));
    best.map_or_else(String::new, |task| escape(&task.comm))
}

/// The sums of all figures; `opened_ns` is the first, `updated_ns` the last. Saturates beyond 64 bits, which
/// is 584 years of CPU time.
#[must_use]
pub fn sum(tasks: &[&TaskFigures]) -> TaskFigures {
    let all = |pick: fn(&TaskFigures) -> u64| {
        tasks.iter().fold(0, |sum: u64, task| sum.saturating_add(pick(task)))
    };
    let known = |pick: fn(&TaskFigures) -> Option<u64>| {
        tasks.iter().try_fold(0, |sum: u64, task| Some(sum.saturating_add(pick(task)?)))
    };
    let signed = |pick: fn(&TaskFigures) -> Option<i64>| {
        tasks.iter().try_fold(0, |sum: i64, task| Some(sum.saturating_add(pick(task)?)))
    };
    TaskFigures {
        opened_ns: tasks.iter().map(|task| task.opened_ns).min().unwrap_or(0),
        updated_ns: tasks.iter().map(|task| task.updated_ns).max().unwrap_or(0),
        oncpu_ns: all(|task| task.oncpu_ns),
        user_ns: known(|task| task.user_ns),
        system_ns: known(|task| task.system_ns),
        hardirq_ns: known(|task| task.hardirq_ns),
        softirq_ns: known(|task| task.softirq_ns),
        unclassified_ns: known(|task| task.unclassified_ns),
        crossings: known(|task| task.crossings),
        crossing_ns: known(|task| task.crossing_ns),
        crossing_cut_ns: known(|task| task.crossing_cut_ns),
        reported_user_ns: all(|task| task.reported_user_ns),
        reported_system_ns: all(|task| task.reported_system_ns),
        reported_runtime_ns: all(|task| task.reported_runtime_ns),
        raw_utime_ns: all(|task| task.raw_utime_ns),
        raw_stime_ns: all(|task| task.raw_stime_ns),
        delta_user_ns: signed(|task| task.delta_user_ns),
        delta_system_ns: signed(|task| task.delta_system_ns),
        delta_runtime_ns: signed(|task| Some(task.delta_runtime_ns)).unwrap_or(0),
        delta_user_split_ns: signed(|task| task.delta_user_split_ns),
        delta_user_total_ns: signed(|task| task.delta_user_total_ns),
        skip_in: known(|task| task.skip_in),
        skip_in_ns: known(|task| task.skip_in_ns),
        skip_out: known(|task| task.skip_out),
        skip_out_ns: known(|task| task.skip_out_ns),
        path_in_ns: known(|task| task.path_in_ns),
        path_out_ns: known(|task| task.path_out_ns),
        left_out_ns: known(|task| task.left_out_ns),
        residual_ns: signed(|task| task.residual_ns),
        wait_ns: known(|task| task.wait_ns),
        waits: known(|task| task.waits),
        wakeups: known(|task| task.wakeups),
        wakes_made: known(|task| task.wakes_made),
        wakeup_cost_ns: known(|task| task.wakeup_cost_ns),
        switches_voluntary: all(|task| task.switches_voluntary),
        switches_involuntary: all(|task| task.switches_involuntary),
        migrations: all(|task| task.migrations),
        ptrace_stops: all(|task| task.ptrace_stops),
        ptrace_stopped_ns: all(|task| task.ptrace_stopped_ns),
        job_stops: all(|task| task.job_stops),
        job_stopped_ns: all(|task| task.job_stopped_ns),
        cycles_user: known(|task| task.cycles_user),
        cycles_system: known(|task| task.cycles_system),
        cycles_discarded: known(|task| task.cycles_discarded),
        ..TaskFigures::default()
    }
}

impl Serialize for Group {
    /// Flat: the group's own fields, then those of a task without [`IDENTITY`].
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        #[derive(Serialize)]
        struct Record<'a> {
            by: By,
            key: &'a str,
            name: &'a str,
            members: u64,
            exited: u64,
            cgroup_usage_ns: Option<u64>,
            cgroup_user_ns: Option<u64>,
            cgroup_system_ns: Option<u64>,
            cgroup_read_gap_ns: Option<u64>,
            #[serde(flatten)]
            figures: serde_json::Map<String, Value>,
        }
        let figures = match serde_json::to_value(&self.figures).map_err(S::Error::custom)? {
            Value::Object(fields) => fields,
            _ => serde_json::Map::new(),
        };
        let used = |pick: fn(CgroupUse) -> u64| self.cgroup.map(pick);
        let record = Record {
            by: self.by,
            key: &self.key,
            name: &self.name,
            members: self.members,
            exited: self.exited,
            cgroup_usage_ns: used(|used| used.usage_ns),
            cgroup_user_ns: used(|used| used.user_ns),
            cgroup_system_ns: used(|used| used.system_ns),
            cgroup_read_gap_ns: used(|used| used.read_gap_ns),
            figures: figures
                .into_iter()
                .filter(|(name, _)| !IDENTITY.contains(&name.as_str()))
                .collect(),
        };
        record.serialize(serializer)
    }
}

#[cfg(test)]
#[path = "group_tests.rs"]
mod tests;
