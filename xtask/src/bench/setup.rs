//! What is attached while a job runs: nothing, empty programs, observer, or another tool.

use std::{
    ffi::OsString,
    fs::{self, File},
    io::{BufRead as _, BufReader, Read as _},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, anyhow, bail, ensure};

use super::floor::Floor;

/// observer samples its own cost for 50 ms with the kernel's program statistics on, which cost time themselves;
/// they go off at its next look, 50 ms later at most.
const SETTLE: Duration = Duration::from_millis(250);
/// perf and bpftrace do not say when they are attached.
const TOOL_START: Duration = Duration::from_millis(1500);

/// Whom observer observes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Observed {
    /// The job.
    Job,
    /// A process that sleeps meanwhile.
    Another,
    /// Every task.
    All,
}

/// One way to observe.
#[derive(Clone, Debug)]
pub enum Kind {
    /// An empty program at each of these tracepoints.
    Empty(Vec<&'static str>),
    /// observer with these options.
    Observer(Observed, Vec<String>),
    /// A program that runs meanwhile; `{pid}` is the job, `{file}` a file to write to.
    Tool(Vec<&'static str>),
    /// A program that runs the job.
    Wrapper(Vec<&'static str>),
}

/// A way to observe, with its name in the table.
#[derive(Clone, Debug)]
pub struct Setup {
    /// The row's name.
    pub name: String,
    /// What it does.
    pub kind: Kind,
}

impl Setup {
    /// A row.
    pub fn new(name: impl Into<String>, kind: Kind) -> Self {
        Self { name: name.into(), kind }
    }

    /// What goes in front of the job's command.
    pub fn prefix(&self) -> Vec<OsString> {
        match &self.kind {
            Kind::Wrapper(words) => words.iter().map(OsString::from).collect(),
            _ => Vec::new(),
        }
    }

    /// The tool that this needs and the machine may not have.
    pub fn tool(&self) -> Option<&'static str> {
        match &self.kind {
            Kind::Tool(words) | Kind::Wrapper(words) => words.first().copied(),
            _ => None,
        }
    }

    /// Attaches it for a job that waits.
    ///
    /// # Errors
    /// When it cannot be attached, with what it said.
    pub fn attach(&self, place: &Bench, job: u32) -> Result<Attached> {
        match &self.kind {
            Kind::Empty(tracepoints) => Ok(Attached::Floor { _floor: Floor::attach(tracepoints)? }),
            Kind::Observer(observed, options) => {
                let target = target(*observed, job);
                let running = Observer::start(place, &target, options)?;
                thread::sleep(SETTLE);
                Ok(Attached::Observer { _observer: running })
            }
            Kind::Tool(words) => {
                let file = place.folder.join("tool.data");
                let word = |word: &&str| {
                    word.replace("{pid}", &job.to_string())
                        .replace("{file}", &file.to_string_lossy())
                };
                let said = File::create(place.folder.join("tool.log"))?;
                let mut child = with_tracefs()
                    .args(words.iter().map(word))
                    .stdin(Stdio::null())
                    .stdout(said.try_clone()?)
                    .stderr(said)
                    .spawn()
                    .with_context(|| format!("cannot start {}", words[0]))?;
                thread::sleep(TOOL_START);
                if let Some(status) = child.try_wait()? {
                    let said = fs::read_to_string(place.folder.join("tool.log"))?;
                    bail!("{} ended at once ({status}): {}", words[0], said.trim());
                }
                Ok(Attached::Tool(child))
            }
            Kind::Wrapper(_) => Ok(Attached::Nothing),
        }
    }
}

fn target(observed: Observed, job: u32) -> Vec<String> {
    match observed {
        Observed::Job => vec!["--pid".to_owned(), job.to_string()],
        Observed::Another => {
            vec!["--pid".to_owned(), std::process::id().to_string(), "--no-follow".to_owned()]
        }
        Observed::All => vec!["--all".to_owned()],
    }
}

/// Where the benchmarks find observer and keep their files.
#[derive(Clone, Debug)]
pub struct Bench {
    /// The binary under test.
    pub observer: PathBuf,
    /// Files that may be overwritten.
    pub folder: PathBuf,
    /// Rounds of interleaved pairs.
    pub rounds: usize,
    /// The CPU that jobs are pinned to.
    pub cpu: usize,
}

/// observer, attached.
pub struct Observer {
    child: Child,
    /// Its first record.
    pub header: serde_json::Value,
    end_asked: Instant,
    output: Option<thread::JoinHandle<std::io::Result<Vec<u8>>>>,
}

impl Observer {
    /// Starts it and returns when it is attached: the header comes after that.
    ///
    /// # Errors
    /// When it ends before, with what it said.
    pub fn start(place: &Bench, target: &[String], options: &[String]) -> Result<Self> {
        let mut command = Command::new("nice");
        // As fast as it would be without the machine's other programs.
        command.args(["-n", "-20"]).arg(&place.observer);
        command.args(target).args(options).args(["--format", "jsonl", "-o", "-"]);
        if !options.iter().any(|option| option == "-i") {
            command.args(["-i", "86400"]);
        }
        let log = place.folder.join("observer.log");
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(File::create(&log)?);
        let mut child = command.spawn().context("cannot start observer")?;
        let stdout = child.stdout.take().context("observer has no output")?;
        let mut reader = BufReader::new(stdout);
        let mut header = String::new();
        reader.read_line(&mut header)?;
        if header.is_empty() {
            let status = child.wait()?;
            bail!("observer ended ({status}): {}", said(&log));
        }
        let header = serde_json::from_str(&header).context("observer's header")?;
        // Read on, or observer would wait for us.
        let output = thread::spawn(move || {
            let mut rest = Vec::new();
            reader.read_to_end(&mut rest).map(|_| rest)
        });
        Ok(Self { child, header, end_asked: Instant::now(), output: Some(output) })
    }

    /// Its process.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Ends it, and returns its records after the header, and how long its end took.
    ///
    /// # Errors
    /// When it fails.
    pub fn stop(mut self) -> Result<(Vec<u8>, Duration)> {
        self.end_asked = Instant::now();
        interrupt(&self.child);
        let status = self.child.wait()?;
        ensure!(status.success(), "observer failed: {status}");
        let took = self.end_asked.elapsed();
        let output = self.output.take().context("observer's output was taken")?;
        let records = output.join().map_err(|_| anyhow!("the reader of observer's output died"))?;
        Ok((records.context("observer's output")?, took))
    }
}

impl Drop for Observer {
    fn drop(&mut self) {
        interrupt(&self.child);
        let _ = self.child.wait();
    }
}

/// What is attached; its drop ends that and waits for the end.
pub enum Attached {
    /// Nothing runs beside the job.
    Nothing,
    /// Empty programs.
    Floor {
        /// Held for its drop.
        _floor: Floor,
    },
    /// observer.
    Observer {
        /// Held for its drop.
        _observer: Observer,
    },
    /// Another tool.
    Tool(Child),
}

impl Drop for Attached {
    fn drop(&mut self) {
        if let Self::Tool(child) = self {
            end(child);
        }
    }
}

/// A command that runs its arguments where tracefs is mounted: perf and bpftrace take tracepoints from there. If it
/// is not, it is mounted for them alone.
fn with_tracefs() -> Command {
    const MOUNT: &str = "mount -t tracefs none /sys/kernel/tracing && exec \"$@\"";
    if Path::new("/sys/kernel/tracing/events").exists() {
        return Command::new("env");
    }
    let mut command = Command::new("unshare");
    command.args(["-m", "sh", "-c", MOUNT, "sh"]);
    command
}

/// Asks a tool to end, and sees to it: one that was started where SIGINT is ignored does not hear it.
fn end(child: &mut Child) {
    for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGKILL] {
        if let Ok(pid) = i32::try_from(child.id()) {
            // SAFETY: a signal to a child of ours that was not reaped yet.
            unsafe { libc::kill(pid, signal) };
        }
        for _ in 0..100 {
            if !matches!(child.try_wait(), Ok(None)) {
                return;
            }
            thread::sleep(Duration::from_millis(20));
        }
    }
}

fn interrupt(child: &Child) {
    if let Ok(pid) = i32::try_from(child.id()) {
        // SAFETY: a signal to a child of ours that was not reaped yet.
        unsafe { libc::kill(pid, libc::SIGINT) };
    }
}

fn said(log: &Path) -> String {
    fs::read_to_string(log).unwrap_or_default().trim().to_owned()
}
