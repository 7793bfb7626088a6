//! What every view and every file is made from: the contract of schema [`SCHEMA`].
//!
//! The field names here are those of the files. Integers; `_ns` is nanoseconds; `None` is not measured, which
//! is not the same as zero.

use observer_common::{
    cpu::{Cpu, owner},
    task::mode,
};
use serde::{Deserialize, Deserializer, Serialize};

use super::{ended::Folded, pair::PairFigures};

/// The name and version of the files' contract. Fields may be added, none is ever renamed.
pub const SCHEMA: &str = "observer/1";

/// One hook of the header.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct HookLine {
    /// The event's name, as the kernel has it.
    pub name: String,
    /// How its program meets it: `tp_btf`, `tail`, `fentry`, `fexit`, `kprobe`, `kretprobe`, `perf`, `iter`, `run`.
    pub via: String,
    /// The kernel function that it meets, where there is a choice.
    pub function: Option<String>,
    /// `active`, `off` (by an option), `absent`, `refused`.
    pub state: String,
    /// Why it is not active.
    pub reason: Option<String>,
    /// What is lost without it.
    pub lost: Option<String>,
    /// It only refines what other hooks give too.
    pub refines: bool,
}

/// The first record: what was measured on, and how.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Header {
    /// Name and version of the contract.
    pub schema: String,
    /// observer's version.
    pub version: String,
    /// Kernel release.
    pub kernel: String,
    /// Machine architecture.
    pub arch: String,
    /// Ticks per second.
    pub hz: u32,
    /// Length of a tick: the quantum of raw user and system time under tick accounting.
    pub tick_ns: u64,
    /// `tick`, `vtime dormant`, `vtime active`, `native`.
    pub accounting: String,
    /// `none`, `voluntary`, `full`, `lazy`, `rt`, `unknown`.
    pub preempt: String,
    /// Online CPUs at the start.
    pub cpus: u64,
    /// The clock of all times here.
    pub clock: String,
    /// The machine's clock source.
    pub clocksource: String,
    /// Wall-clock time of the start, ns since 1970.
    pub started_unix_ns: u64,
    /// The same moment by `clock`.
    pub started_ns: u64,
    /// Every hook and what became of it.
    pub hooks: Vec<HookLine>,
    /// What one crossing of each kind costs here, ns; `None` where it could not be calibrated.
    pub crossing_costs_ns: Vec<(String, Option<u64>)>,
    /// How far the calibrations of each kind lay apart (half of the range between their quartiles), ns.
    pub crossing_spreads_ns: Vec<(String, Option<u64>)>,
    /// What is observed, in words.
    pub target: String,
    /// `counted`, `off`, `absent`, `refused`.
    pub cycles: String,
    /// Why cycles are not counted.
    pub cycles_reason: Option<String>,
}

/// One of a few words. (A name for it, since serde takes a reference for something to borrow from the text.)
pub type Word = &'static str;

/// One task.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct TaskFigures {
    /// Thread id, in the initial pid namespace.
    pub tid: u32,
    /// Process id.
    pub tgid: u32,
    /// Process id of the parent when the account was opened.
    pub parent_tgid: u32,
    /// Start of the task, ns since boot: with `tid` its identity.
    pub start_ns: u64,
    /// Thread name. On a terminal and in files every byte that is not printable is escaped.
    #[serde(serialize_with = "serialize_comm", deserialize_with = "deserialize_comm")]
    pub comm: Vec<u8>,
    /// The cgroup (version 2) it was last seen in: the inode number of its folder.
    pub cgroup_id: Option<u64>,
    /// `running` (alive) or `exited`.
    #[serde(deserialize_with = "deserialize_state")]
    pub state: Word,
    /// When it was first and last accounted, by the header's clock.
    pub opened_ns: u64,
    /// See `opened_ns`.
    pub updated_ns: u64,

    /// Measured time on a CPU.
    pub oncpu_ns: u64,
    /// Of it in user mode.
    pub user_ns: Option<u64>,
    /// In the kernel, on its own behalf.
    pub system_ns: Option<u64>,
    /// In hard interrupts.
    pub hardirq_ns: Option<u64>,
    /// In soft interrupts.
    pub softirq_ns: Option<u64>,
    /// User or system, not known which.
    pub unclassified_ns: Option<u64>,
    /// Borders between user and system that no hook sees.
    pub crossings: Option<u64>,
    /// What they cost; part of `system_ns`.
    pub crossing_ns: Option<u64>,
    /// What they would have cost above the user time that there was: the calibration is that wrong here.
    pub crossing_cut_ns: Option<u64>,

    /// User time that the kernel reports (`getrusage`, `/proc/PID/task/TID/stat`), since the account was opened.
    pub reported_user_ns: u64,
    /// System time, likewise.
    pub reported_system_ns: u64,
    /// Run time that the scheduler billed (`sum_exec_runtime`).
    pub reported_runtime_ns: u64,
    /// Raw user time before scaling (`utime`): ticks.
    pub raw_utime_ns: u64,
    /// Raw system time before scaling (`stime`).
    pub raw_stime_ns: u64,

    /// Reported minus measured user time.
    pub delta_user_ns: Option<i64>,
    /// Reported minus measured system time; interrupts are part of the measured side.
    pub delta_system_ns: Option<i64>,
    /// Reported minus measured run time.
    pub delta_runtime_ns: i64,
    /// The part of `delta_user_ns` that comes from splitting user and system by ticks.
    pub delta_user_split_ns: Option<i64>,
    /// The part that comes from the run time itself.
    pub delta_user_total_ns: Option<i64>,

    /// Switches to it with a skipped clock update.
    pub skip_in: Option<u64>,
    /// What they added to its bill.
    pub skip_in_ns: Option<u64>,
    /// Switches away with a skipped clock update.
    pub skip_out: Option<u64>,
    /// What they took from its bill.
    pub skip_out_ns: Option<u64>,
    /// What ordinary switches added.
    pub path_in_ns: Option<u64>,
    /// What ordinary switches took.
    pub path_out_ns: Option<u64>,
    /// Interrupt and steal time that the kernel left out of the bill.
    pub left_out_ns: Option<u64>,
    /// What of `delta_runtime_ns` none of these explains.
    pub residual_ns: Option<i64>,

    /// Time waiting on a run queue.
    pub wait_ns: Option<u64>,
    /// Waits that ended.
    pub waits: Option<u64>,
    /// Times it was woken.
    pub wakeups: Option<u64>,
    /// Wakeups that it made.
    pub wakes_made: Option<u64>,
    /// Its time inside the wakeups that it made, where their end was seen.
    pub wakeup_cost_ns: Option<u64>,
    /// Switches away while it could not run on.
    pub switches_voluntary: u64,
    /// Switches away while it could have run on.
    pub switches_involuntary: u64,
    /// Switch-ins on another CPU.
    pub migrations: u64,
    /// Ptrace stops.
    pub ptrace_stops: u64,
    /// Time in them.
    pub ptrace_stopped_ns: u64,
    /// Job-control stops (SIGSTOP and its like, not by a tracer).
    pub job_stops: u64,
    /// Time in them.
    pub job_stopped_ns: u64,
    /// Tracer at the last stop.
    pub tracer_tid: Option<u32>,
    /// Its tid before an exec from a thread that was not the leader.
    pub former_tid: Option<u32>,
    /// The account, unique in a session: tids are used again, and change at an exec.
    pub account: u64,
    /// Cycles in user mode, where a PMU counts them.
    pub cycles_user: Option<u64>,
    /// Cycles in the kernel, interrupts included.
    pub cycles_system: Option<u64>,
    /// Its runs whose cycles are not known, and so in neither.
    pub cycles_discarded: Option<u64>,
}

impl TaskFigures {
    /// User time in percent of the time on a CPU; `None` where it was not measured, or nothing ran.
    #[must_use]
    pub fn user_percent_by_time(&self) -> Option<f64> {
        percent(self.user_ns?, self.oncpu_ns)
    }

    /// User cycles in percent of all, where they were counted.
    #[must_use]
    pub fn user_percent_by_cycles(&self) -> Option<f64> {
        percent(self.cycles_user?, self.cycles_user?.saturating_add(self.cycles_system?))
    }
}

fn percent(part: u64, whole: u64) -> Option<f64> {
    (whole != 0).then(|| part as f64 * 100.0 / whole as f64)
}

/// One CPU.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct CpuFigures {
    /// Its number.
    pub cpu: u32,
    /// Time between its first and its last event.
    pub elapsed_ns: u64,
    /// Of it with a task.
    pub busy_ns: u64,
    /// Of it idle.
    pub idle_ns: u64,
    /// In hard interrupts, whoever was interrupted.
    pub hardirq_ns: u64,
    /// In soft interrupts.
    pub softirq_ns: u64,
    /// Of `busy_ns` with an observed task.
    pub observed_ns: u64,
    /// Elapsed minus everything above: zero, or the accounting is wrong.
    pub residual_ns: i64,
}

/// The last record: what was lost, and what it cost.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Trailer {
    /// Time observed.
    pub elapsed_ns: u64,
    /// Accounts whose last reading was missed.
    pub lost_events: u64,
    /// Tasks not observed since no slot was free (`--max-tasks`).
    pub map_full: u64,
    /// Events of pairs that found no room (`--max-pairs`): they are in the pair `(other)`.
    pub pairs_folded: u64,
    /// Runs that the kernel left out, the program being active on that CPU already.
    pub recursion_misses: Option<u64>,
    /// Events whose time lay before the one booked last on their CPU.
    pub clock_backwards: u64,
    /// Switches at which both ways to a clock's staleness were compared (`--hooks auto,update_rq_clock`).
    pub clocks_compared: u64,
    /// Of them, those at which only one of both ways saw a skip.
    pub clocks_disagreed: u64,
    /// How far they lay apart, all together.
    pub clocks_apart_ns: u64,
    /// The most.
    pub clocks_apart_max_ns: u64,
    /// Switches whose clocks had jumped.
    pub clock_jumps: u64,
    /// Switches whose program did not run; made good where `sched_exit_tp` is active.
    pub missed_switches: u64,
    /// Ends without a begin (interrupts that began before the hooks were attached are among them).
    pub unmatched: u64,
    /// observer's own CPU time, user and system.
    pub observer_cpu_ns: u64,
    /// Runs of the kernel-side programs.
    pub hook_runs: u64,
    /// Time in them, estimated: runs times the mean of a sample. `None` where the kernel keeps no statistics.
    pub hook_ns: Option<u64>,
    /// Sum of the tasks' residuals.
    pub residual_ns: Option<i64>,
    /// Runs and wakeups whose cycles are not known.
    pub cycles_discarded: u64,
}

/// Everything there is to say at one moment.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// The first record.
    pub header: Header,
    /// Every task, exited ones included, by on-CPU time, largest first; but for those in `folded`.
    pub tasks: Vec<TaskFigures>,
    /// The ended tasks with least time, if there were many.
    pub folded: Vec<Folded>,
    /// Every pair of which at least one side is observed, by time moved, largest first.
    pub pairs: Vec<PairFigures>,
    /// Every CPU that had an event.
    pub cpus: Vec<CpuFigures>,
    /// The last record.
    pub trailer: Trailer,
    /// Sentences that say why: the verdict. Filled in by [`crate::view::verdict`].
    pub sentences: Vec<String>,
    /// What `wait4` said of the command, if one was run: user and system, ns.
    pub rusage_ns: Option<(u64, u64)>,
}

/// The figures of one CPU.
#[must_use]
pub fn cpu_figures(number: u32, cpu: &Cpu) -> CpuFigures {
    let owned = |kind: usize, mode: usize| cpu.owner_ns[kind][mode];
    let across = |mode: usize| (0..owner::COUNT).map(|kind| owned(kind, mode)).sum::<u64>();
    let whole = |kind: usize| cpu.owner_ns[kind].iter().sum::<u64>();
    let irq = |kind: usize| owned(kind, mode::HARDIRQ) + owned(kind, mode::SOFTIRQ);
    let idle_ns = whole(owner::IDLE) - irq(owner::IDLE);
    let observed_ns = whole(owner::TASK) - irq(owner::TASK);
    let busy_ns = observed_ns + whole(owner::OTHER) - irq(owner::OTHER);
    let (hardirq_ns, softirq_ns) = (across(mode::HARDIRQ), across(mode::SOFTIRQ));
    let accounted_ns = busy_ns + idle_ns + hardirq_ns + softirq_ns;
    CpuFigures {
        cpu: number,
        elapsed_ns: cpu.elapsed_ns(),
        busy_ns,
        idle_ns,
        hardirq_ns,
        softirq_ns,
        observed_ns,
        residual_ns: i64::try_from(i128::from(cpu.elapsed_ns()) - i128::from(accounted_ns))
            .unwrap_or(i64::MAX),
    }
}

/// A name as text: printable ASCII and printable UTF-8 as they are, everything else and the backslash as `\xNN`.
///
/// So any bytes are safe on a terminal, in CSV and in JSON, and can be got back.
#[must_use]
pub fn escape(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len());
    for chunk in bytes.utf8_chunks() {
        for character in chunk.valid().chars() {
            if character == '\\' || is_unprintable(character) {
                let mut buffer = [0; 4];
                for byte in character.encode_utf8(&mut buffer).bytes() {
                    push_escaped(&mut text, byte);
                }
            } else {
                text.push(character);
            }
        }
        for byte in chunk.invalid() {
            push_escaped(&mut text, *byte);
        }
    }
    text
}

/// Controls (C0, DEL, C1) and what changes the direction or the visibility of the text around it.
fn is_unprintable(character: char) -> bool {
    character.is_control()
        || matches!(character,
            '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}')
}

fn push_escaped(text: &mut String, byte: u8) {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    text.push_str("\\x");
    text.push(char::from(DIGITS[usize::from(byte >> 4)]));
    text.push(char::from(DIGITS[usize::from(byte & 15)]));
}

fn serialize_comm<S: serde::Serializer>(comm: &[u8], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(&escape(comm))
}

/// The bytes that [`escape`] made this text of.
#[must_use]
pub fn unescape(text: &str) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let [first, after @ ..] = rest {
        let escaped = match after {
            [b'x', high, low, ..] if *first == b'\\' => digit(*high).zip(digit(*low)),
            _ => None,
        };
        if let Some((high, low)) = escaped {
            bytes.push(high << 4 | low);
            rest = &after[3..];
        } else {
            bytes.push(*first);
            rest = after;
        }
    }
    bytes
}

fn digit(byte: u8) -> Option<u8> {
    u8::try_from(char::from(byte).to_digit(16)?).ok()
}

fn deserialize_comm<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<u8>, D::Error> {
    String::deserialize(deserializer).map(|text| unescape(&text))
}

fn deserialize_state<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Word, D::Error> {
    let word = String::deserialize(deserializer)?;
    Ok(if word == "exited" { "exited" } else { "running" })
}

#[cfg(test)]
mod tests {
    use super::{escape, unescape};

    #[test]
    fn hostile_names_lose_their_teeth() {
        assert_eq!(escape(b"bash"), "bash");
        assert_eq!(escape(b"\x1b[31mred"), "\\x1b[31mred");
        assert_eq!(escape(b"a\nb\tc\x07"), "a\\x0ab\\x09c\\x07");
        assert_eq!(escape(b"\x9b31m"), "\\x9b31m");
        assert_eq!(escape("\u{9b}x".as_bytes()), "\\xc2\\x9bx");
        assert_eq!(escape("日本".as_bytes()), "日本");
        assert_eq!(escape("\u{202e}evil".as_bytes()), "\\xe2\\x80\\xaeevil");
        assert_eq!(escape(b"a\\b"), "a\\x5cb");
        assert_eq!(escape(b"cut \xe6\x97"), "cut \\xe6\\x97");
    }

    proptest::proptest! {
        #[test]
        fn any_bytes_come_out_printable(bytes in proptest::collection::vec(0_u8.., 0..20)) {
            let text = escape(&bytes);
            proptest::prop_assert!(!text.chars().any(char::is_control));
            proptest::prop_assert_eq!(unescape(&text), bytes);
        }
    }
}
