//! Many tasks, forks, wakeups and pairs: what is lost, and what observer needs itself.

use std::{
    fs,
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, bail, ensure};
use serde_json::{Value, json};

use super::{
    Section,
    setup::{Bench, Observer},
};

/// Leave this many ids to everybody else.
const SPARE_IDS: usize = 8_000;

/// A load and how it is observed.
struct Case {
    name: String,
    load: Vec<String>,
    observer: Vec<String>,
}

/// Each load for a while, read at 1 Hz.
///
/// # Errors
/// When a load or observer fails.
pub fn run(place: &Bench, tasks: Option<usize>, seconds: u64) -> Result<Vec<Section>> {
    let pid_max: usize = fs::read_to_string("/proc/sys/kernel/pid_max")?.trim().parse()?;
    let tasks = tasks.unwrap_or(100_000).min(pid_max.saturating_sub(SPARE_IDS));
    let time = seconds.to_string();
    let case = |name: String, load: &[&str], observer: &[&str]| Case {
        name,
        load: load.iter().map(|word| (*word).to_owned()).collect(),
        observer: observer.iter().map(|word| (*word).to_owned()).collect(),
    };
    // They live from when each was born, and are all there only a while later.
    let (many, long) = (tasks.to_string(), (seconds + 90).to_string());
    let cases = [
        case("nothing else".into(), &["idle", "1", &time], &["--all"]),
        case("1,000 sleeping threads".into(), &["idle", "1000", &time], &[]),
        case(format!("{tasks} sleeping threads, --all"), &["idle", &many, &long], &["--all"]),
        case("up to 5,000 forks/s".into(), &["forks", "5000", &time], &[]),
        case("a ring of 1,000 threads, 100 awake".into(), &["ring", "1000", "100", &time], &[]),
        case("64 threads, each wakes each: 4,032 pairs".into(), &["mesh", "64", &time], &[]),
        case("200 threads, each wakes each: 39,800 pairs".into(), &["mesh", "200", &time], &[]),
    ];
    let mut text = "| load | tasks seen | lost: events, no room, pairs summed | unmatched | CPU % (user, system) | RSS, MB: first, last, peak | maps, MB |\n\
                    |---|---|---|---|---|---|---|\n"
        .to_owned();
    let mut lines = Vec::new();
    for case in cases {
        eprintln!("{} ...", case.name);
        let found = observe(place, &case, seconds, Duration::from_secs(1), |_, _| {})?;
        text += &found.row(&case.name);
        lines.push(found.json("scale", &case.name));
    }
    Ok(vec![Section { title: "scale".to_owned(), text, lines }])
}

/// A mixed load for long: the memory must stay flat.
///
/// # Errors
/// When a load or observer fails.
pub fn soak(place: &Bench, seconds: u64) -> Result<Vec<Section>> {
    let time = seconds.to_string();
    let case = Case {
        name: "soak".to_owned(),
        load: ["ring", "100", "10", &time].map(str::to_owned).to_vec(),
        observer: vec!["--all".to_owned()],
    };
    // Births and deaths beside it: everything is observed.
    let mut forks = load(&["forks".to_owned(), "200".to_owned(), time])?;
    let mut text = "| minute | RSS, MB | CPU s |\n|---|---|---|\n".to_owned();
    let mut lines = Vec::new();
    let mut next = 0;
    let found = observe(place, &case, seconds, Duration::from_secs(1), |at, (rss_mb, cpu)| {
        let minute = at.as_secs() / 60;
        if minute >= next {
            next = minute + 1;
            text += &format!("| {minute} | {rss_mb:.1} | {:.2} |\n", cpu.0 + cpu.1);
            lines.push(json!({ "bench": "soak", "minute": minute, "rss_mb": rss_mb, "cpu_s": [cpu.0, cpu.1] }));
        }
    })?;
    ensure!(forks.wait()?.success(), "the load failed");
    text += &format!("\n{}", found.losses());
    lines.push(found.json("soak", "end"));
    Ok(vec![Section { title: "soak".to_owned(), text, lines }])
}

/// What was found of one load.
struct Found {
    seconds: f64,
    /// User and system, s.
    cpu: (f64, f64),
    rss_mb: (f64, f64, f64),
    maps_mb: f64,
    tasks: usize,
    trailer: Value,
}

impl Found {
    fn count(&self, field: &str) -> u64 {
        self.trailer[field].as_u64().unwrap_or(0)
    }

    fn losses(&self) -> String {
        let fields = ["lost_events", "map_full", "pairs_folded", "missed_switches", "unmatched"];
        let counts: Vec<String> =
            fields.iter().map(|field| format!("{field} {}", self.count(field))).collect();
        format!("{} tasks; {}\n", self.tasks, counts.join(", "))
    }

    fn row(&self, name: &str) -> String {
        let percent = |s: f64| s / self.seconds * 100.0;
        format!(
            "| {name} | {} | {}, {}, {} | {} | {:.1} ({:.1}, {:.1}) | {:.0}, {:.0}, {:.0} | {:.0} |\n",
            self.tasks,
            self.count("lost_events"),
            self.count("map_full"),
            self.count("pairs_folded"),
            self.count("unmatched"),
            percent(self.cpu.0 + self.cpu.1),
            percent(self.cpu.0),
            percent(self.cpu.1),
            self.rss_mb.0,
            self.rss_mb.1,
            self.rss_mb.2,
            self.maps_mb,
        )
    }

    fn json(&self, bench: &str, name: &str) -> Value {
        json!({
            "bench": bench, "name": name, "seconds": self.seconds, "tasks": self.tasks,
            "cpu_s": [self.cpu.0, self.cpu.1], "rss_mb": [self.rss_mb.0, self.rss_mb.1, self.rss_mb.2],
            "maps_mb": self.maps_mb, "trailer": self.trailer,
        })
    }
}

fn load(words: &[String]) -> Result<Child> {
    Command::new(std::env::current_exe()?)
        .args(["bench", "load"])
        .args(words)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .spawn()
        .context("cannot start a load")
}

/// Runs a load, observes it, and looks at observer each `every`: memory in MB, CPU time in s.
fn observe(
    place: &Bench,
    case: &Case,
    seconds: u64,
    every: Duration,
    mut see: impl FnMut(Duration, (f64, (f64, f64))),
) -> Result<Found> {
    let mut child = load(&case.load)?;
    // Its threads are there before observer counts them.
    wait_for_births()?;
    let target = match case.observer.as_slice() {
        [] => vec!["--pid".to_owned(), child.id().to_string()],
        words => words.to_vec(),
    };
    let observer = Observer::start(place, &target, &["-i".to_owned(), "1".to_owned()])?;
    let pid = observer.pid();
    let begin = Instant::now();
    let (cpu_before, first_mb) = (cpu_s(pid)?, memory_mb(pid, "VmRSS:")?);
    while begin.elapsed() + Duration::from_secs(4) < Duration::from_secs(seconds) {
        thread::sleep(every);
        see(begin.elapsed(), (memory_mb(pid, "VmRSS:")?, cpu_s(pid)?));
    }
    let elapsed = begin.elapsed().as_secs_f64();
    let cpu = cpu_s(pid)?;
    let rss_mb = (first_mb, memory_mb(pid, "VmRSS:")?, memory_mb(pid, "VmHWM:")?);
    let maps_mb = maps_mb(pid)?;
    let (records, _) = observer.stop()?;
    ensure!(child.wait()?.success(), "the load {} failed", case.name);
    let text = String::from_utf8_lossy(&records);
    let tasks = text.lines().filter(|line| line.starts_with("{\"type\":\"task\"")).count();
    let trailer = text.lines().last().context("observer wrote no records")?;
    Ok(Found {
        seconds: elapsed,
        cpu: (cpu.0 - cpu_before.0, cpu.1 - cpu_before.1),
        rss_mb,
        maps_mb,
        tasks,
        trailer: serde_json::from_str(trailer).context("observer's trailer")?,
    })
}

/// Until no more tasks come up than a machine at rest has: a hundred thousand take half a minute.
fn wait_for_births() -> Result<()> {
    let mut last = live_tasks()?;
    for _ in 0..120 {
        thread::sleep(Duration::from_secs(2));
        let now = live_tasks()?;
        if now <= last + 50 {
            return Ok(());
        }
        last = now;
    }
    bail!("the load still starts more tasks after four minutes")
}

/// How many tasks there are (`total` in /proc/loadavg).
fn live_tasks() -> Result<u64> {
    let text = fs::read_to_string("/proc/loadavg")?;
    let total = text.split_whitespace().nth(3).and_then(|field| field.split_once('/'));
    total.and_then(|(_, total)| total.parse().ok()).context("/proc/loadavg")
}

/// User and system time of a process, s.
fn cpu_s(pid: u32) -> Result<(f64, f64)> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat"))?;
    let after_name = stat.rsplit_once(") ").context("/proc/PID/stat")?.1;
    let fields: Vec<&str> = after_name.split(' ').collect();
    // SAFETY: a query without pointers.
    let ticks = unsafe { libc::sysconf(libc::_SC_CLK_TCK) } as f64;
    let field = |at: usize| -> Result<f64> {
        Ok(fields.get(at).context("/proc/PID/stat")?.parse::<f64>()? / ticks)
    };
    Ok((field(11)?, field(12)?))
}

fn memory_mb(pid: u32, field: &str) -> Result<f64> {
    let status = fs::read_to_string(format!("/proc/{pid}/status"))?;
    let value = status.lines().find_map(|line| line.strip_prefix(field));
    let kb = value.and_then(|value| value.split_whitespace().next()?.parse::<f64>().ok());
    Ok(kb.with_context(|| format!("no {field} of observer"))? / 1024.0)
}

/// Kernel memory of its maps (`memlock` in fdinfo), each once.
fn maps_mb(pid: u32) -> Result<f64> {
    let mut maps = std::collections::BTreeMap::new();
    for entry in fs::read_dir(format!("/proc/{pid}/fdinfo"))? {
        // It may have closed one meanwhile.
        let Ok(text) = fs::read_to_string(entry?.path()) else { continue };
        let field = |name: &str| {
            let value = text.lines().find_map(|line| line.strip_prefix(name))?;
            value.trim().parse::<u64>().ok()
        };
        if let (Some(id), Some(bytes)) = (field("map_id:"), field("memlock:")) {
            maps.insert(id, bytes);
        }
    }
    Ok(maps.values().sum::<u64>() as f64 / (1024.0 * 1024.0))
}
