//! What a context switch costs more: a pipe ping-pong of two processes on one CPU.

use anyhow::Result;

use super::{
    Section,
    job::Job,
    paired,
    setup::{Bench, Kind, Observed, Setup},
};

/// Round trips; each is two switches and four syscalls.
const TRIPS: u64 = 60_000;
/// The hook that the totals need per switch: the floor of `--no-split` has it empty.
const TOTALS: [&str; 1] = ["sched_switch"];
/// What exact skips, the pairs and the split into user and system need on top, where the kernel has it.
const SPLIT_AND_PAIRS: [&str; 6] =
    ["sched_entry_tp", "sched_exit_tp", "sched_waking", "sched_wakeup", "sys_enter", "sys_exit"];

/// The ping-pong of observer's own, and perf's.
///
/// # Errors
/// When one fails.
pub fn run(place: &Bench, each_hook: bool) -> Result<Vec<Section>> {
    let setups = setups(place, each_hook)?;
    let own = paired::rows(place, &pingpong(place), &setups)?;
    let title = if each_hook { "switch, each hook" } else { "switch" };
    let mut sections = vec![Section::paired(title, "switch", &own)];
    let few: Vec<Setup> =
        setups.into_iter().filter(|setup| FEW.contains(&setup.name.as_str())).collect();
    if crate::exec::which("perf").is_none() {
        eprintln!("perf bench sched pipe: left out: there is no perf here");
    } else if !each_hook {
        let perf = paired::rows(place, &perf_pipe(place), &few)?;
        sections.push(Section::paired("switch, perf bench sched pipe", "switch", &perf));
    }
    Ok(sections)
}

const TOTALS_NAME: &str = "observer --no-split, observed";
const AUTO_NAME: &str = "observer, observed";
/// What is also held against perf's own ping-pong.
const FEW: [&str; 2] = [TOTALS_NAME, AUTO_NAME];

fn pingpong(place: &Bench) -> Job {
    let cpu = place.cpu.to_string();
    let count = TRIPS.to_string();
    let words = ["workload", "pingpong", "--count", &count, "--cpu", &cpu];
    let command = [place.observer.clone().into()].into_iter().chain(words.map(Into::into));
    Job { command: command.collect(), units: (2 * TRIPS) as f64 }
}

fn perf_pipe(place: &Bench) -> Job {
    let (cpu, count) = (place.cpu.to_string(), TRIPS.to_string());
    let words = ["taskset", "-c", &cpu, "perf", "bench", "sched", "pipe", "-l", &count];
    Job { command: words.map(Into::into).to_vec(), units: (2 * TRIPS) as f64 }
}

fn setups(place: &Bench, each_hook: bool) -> Result<Vec<Setup>> {
    use Observed::{All, Another, Job};
    let observer = |name: &str, observed, options: &[&str]| {
        let options = options.iter().map(|option| (*option).to_owned()).collect();
        Setup::new(name, Kind::Observer(observed, options))
    };
    let minimal = || observer("observer --hooks minimal, observed", Job, &["--hooks", "minimal"]);
    if each_hook {
        let hooks = super::optional_hooks(place)?;
        let one = |hook: &String| observer(&format!("minimal,{hook}"), Job, &["--hooks", hook]);
        return Ok([minimal()].into_iter().chain(hooks.iter().map(one)).collect());
    }
    Ok(vec![
        Setup::new(
            "an empty program at sched_switch, as --no-split has",
            Kind::Empty(super::present(&TOTALS)),
        ),
        Setup::new(
            "empty programs where observer has its own",
            Kind::Empty(super::present(&[&TOTALS[..], &SPLIT_AND_PAIRS].concat())),
        ),
        minimal(),
        observer(TOTALS_NAME, Job, &["--no-split"]),
        observer(
            "observer --no-split --max-pairs 4096, observed",
            Job,
            &["--no-split", "--max-pairs", "4096"],
        ),
        observer("observer --no-split, another observed", Another, &["--no-split"]),
        observer("observer --no-split --all", All, &["--no-split"]),
        observer(AUTO_NAME, Job, &[]),
        observer("observer --max-pairs 0, observed", Job, &["--max-pairs", "0"]),
        observer("observer, another observed", Another, &[]),
        observer("observer --all", All, &[]),
        Setup::new(
            "bpftrace, counting sched_switch by pid",
            Kind::Tool(vec![
                "bpftrace",
                "-e",
                "tracepoint:sched:sched_switch { @[pid] = count(); }",
            ]),
        ),
        Setup::new(
            "perf sched record",
            Kind::Tool(vec!["perf", "sched", "record", "-o", "{file}", "sleep", "1000"]),
        ),
        Setup::new("perf trace -s -p", Kind::Tool(vec!["perf", "trace", "-s", "-p", "{pid}"])),
        Setup::new("strace -c -f", Kind::Wrapper(vec!["strace", "-c", "-f"])),
    ])
}
