//! `cargo xtask vm`: runs tests on stock Debian kernels, each in a virtual machine of its own.

mod cases;
mod cpio;
mod cross;
mod fetch;
mod guest;
pub mod kernels;
pub mod matrix;
mod qemu;
mod records;
mod report;
mod sources;
mod support;

use std::{
    fs,
    path::{Path, PathBuf},
    process::ExitCode,
    sync::Mutex,
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail};
use xtask::plan::{self, Plan};

use self::{
    cases::Case,
    cross::Cross,
    fetch::Image,
    kernels::{Arch, Kernel},
    matrix::{SETUPS, Setup, Suite},
    qemu::Machine,
    support::Finding,
};
use crate::{
    apt,
    counts::Counts,
    exec,
    project::Project,
    setup::{self, Wanted},
};

/// More machines at a time only get slower: each keeps one core busy, and CI has two.
const AT_A_TIME: usize = 2;

/// Run tests on stock Debian kernels in virtual machines.
#[derive(clap::Args, Default)]
pub struct Arguments {
    /// Setups or kernels by name (see --list); a few short ones when none is named
    #[arg(value_name = "KERNEL")]
    pub kernels: Vec<String>,
    /// Add to the kernel's command line, such as preempt=full
    #[arg(long, value_name = "ARGS", default_value = "", allow_hyphen_values = true)]
    pub append: String,
    /// Virtual CPUs, where the setup's number is not wanted
    #[arg(long, value_name = "N")]
    pub smp: Option<u32>,
    /// Tie guest time to the number of instructions, so that a slow host changes nothing: the default
    #[arg(long, overrides_with = "no_icount")]
    pub icount: bool,
    /// Let guest time follow the host's clock: faster, and not repeatable
    #[arg(long)]
    pub no_icount: bool,
    /// End a guest that has been silent for so long; by default a minute more than its longest test may take
    #[arg(long, value_name = "SECS")]
    pub timeout: Option<u64>,
    /// Run this shell line in the guest instead of the tests; may be given several times
    #[arg(long = "command", value_name = "LINE")]
    pub commands: Vec<String>,
    /// Also run observer's live tests in the guest
    #[arg(long)]
    pub live: bool,
    /// Keep what was found: the table of kernels in the README, and the verifier's counts
    #[arg(long)]
    pub record: bool,
    /// Show setups and tests and run nothing
    #[arg(long)]
    pub list: bool,
    /// Tests by name; all when none is named
    #[arg(last = true)]
    pub tests: Vec<String>,
}

/// Runs what was asked for.
///
/// # Errors
/// When the guest's programs cannot be built or an argument names nothing.
pub fn task(project: &Project, arguments: &Arguments) -> Result<ExitCode> {
    if arguments.list {
        list(project);
        return Ok(ExitCode::SUCCESS);
    }
    let counts = run(project, arguments)?;
    println!("vm: {counts}");
    // Who names a kernel wants it tried: skipped is not enough here.
    let good = counts.failed == 0 && counts.skipped == 0;
    Ok(if good { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn list(project: &Project) {
    println!("setups:");
    for setup in SETUPS {
        let state = setup.kernel().ok().and_then(|kernel| fetch::cached(&cache(project), kernel));
        let state = state.map_or("not fetched".to_owned(), |image| image.package);
        println!(
            "  {:<15} {:<9} {} {state}",
            setup.name,
            format!("{:?}", setup.suite),
            setup.append
        );
    }
    for suite in [Suite::Matrix, Suite::Refusals, Suite::Oracle, Suite::OracleByHost] {
        println!("tests of {suite:?}:");
        for case in cases::of_suite(suite) {
            println!("  {:<25} {}", case.name, case.command);
        }
    }
}

fn cache(project: &Project) -> PathBuf {
    project.cache().join("vm")
}

/// Runs the tests on each kernel. One that cannot be had is skipped, with the reason.
///
/// # Errors
/// When the guest's programs cannot be built or an argument names nothing.
pub fn run(project: &Project, arguments: &Arguments) -> Result<Counts> {
    support::IS_RECORDING.store(arguments.record, std::sync::atomic::Ordering::Relaxed);
    let setups = matrix::choose(&arguments.kernels)?;
    let own = own_cases(arguments)?;
    let mut counts = Counts::default();
    let mut ready = Vec::new();
    for setup in setups {
        let cases = own.clone().unwrap_or_else(|| chosen(cases::of_suite(setup.suite), arguments));
        if cases.is_empty() {
            continue;
        }
        match available(project, setup, cases) {
            Ok(found) => ready.push(found),
            Err(why) => {
                println!("SKIPPED: vm {}: {why:#}", setup.name);
                counts.skipped += 1;
            }
        }
    }
    // Each architecture has programs of its own.
    let mut built: Vec<(&Arch, guest::Programs)> = Vec::new();
    for first in &ready {
        let arch = first.kernel.arch;
        if built.iter().all(|(known, _)| *known != arch) {
            let of_arch = ready.iter().filter(|ready| ready.kernel.arch == arch);
            let live = arguments.live && own.is_none();
            let observer = of_arch.flat_map(|ready| &ready.cases).any(|case| case.needs_observer);
            built.push((arch, build(project, first, observer, live)?));
        }
    }
    let results = side_by_side(&ready, |ready| {
        let programs = built.iter().find(|(arch, _)| *arch == ready.kernel.arch);
        let (_, programs) = programs.context("no programs were built for it")?;
        try_kernel(project, arguments, ready, programs)
    });
    let mut findings = Vec::new();
    for result in results {
        let (more, finding) = result?;
        counts += more;
        findings.extend(finding);
    }
    if arguments.record {
        findings.extend(support::live(project)?);
        support::record(project, &findings)?;
    }
    Ok(counts)
}

/// The cases that were given on the command line, instead of those of the suites.
fn own_cases(arguments: &Arguments) -> Result<Option<Vec<Case>>> {
    if let Some(line) = arguments.commands.iter().find(|line| line.contains('\n')) {
        bail!("--command takes one line, not {line:?}");
    }
    let all = cases::all();
    let unknown = arguments.tests.iter().find(|name| all.iter().all(|case| case.name != **name));
    if let Some(unknown) = unknown {
        bail!("there is no test {unknown} (see cargo xtask vm --list)");
    }
    let commands = (1..).zip(&arguments.commands);
    let cases: Vec<_> = commands.map(|(number, line)| cases::ad_hoc(number, line)).collect();
    Ok(Some(cases).filter(|cases| !cases.is_empty()))
}

fn chosen(cases: Vec<Case>, arguments: &Arguments) -> Vec<Case> {
    let wanted = |case: &Case| arguments.tests.is_empty() || arguments.tests.contains(&case.name);
    cases.into_iter().filter(wanted).collect()
}

/// A setup with all that its boot needs from outside.
struct Ready {
    setup: &'static Setup,
    kernel: &'static Kernel,
    cases: Vec<Case>,
    cross: Cross,
    image: Image,
    busybox: PathBuf,
}

fn available(project: &Project, setup: &'static Setup, cases: Vec<Case>) -> Result<Ready> {
    let kernel = setup.kernel()?;
    if exec::which(kernel.arch.qemu).is_none() {
        println!("vm: installing {}", kernel.arch.qemu_package);
        apt::install(&[kernel.arch.qemu_package])
            .with_context(|| format!("{} is not installed", kernel.arch.qemu))?;
    }
    let started = Instant::now();
    let was_cached = fetch::cached(&cache(project), kernel).is_some();
    let image =
        fetch::kernel(&cache(project), kernel).context("the kernel could not be fetched")?;
    let busybox = fetch::busybox(&cache(project), kernel).context("no busybox for the guest")?;
    if !was_cached {
        let took = started.elapsed().as_secs_f64();
        println!("vm {}: fetched {} in {took:.1} s", kernel.name, image.package);
    }
    let cross = Cross::find(&cache(project), kernel.arch)
        .with_context(|| format!("this machine cannot build for {}", kernel.arch.debian))?;
    Ok(Ready { setup, kernel, cases, cross, image, busybox })
}

fn build(project: &Project, ready: &Ready, observer: bool, live: bool) -> Result<guest::Programs> {
    let observer = observer || live;
    if observer {
        setup::ensure(project, Wanted::BuildQuietly)?;
    }
    let started = Instant::now();
    let programs = guest::build(project, ready.kernel.arch, &ready.cross, observer, live)?;
    println!("vm: the guest's programs built in {:.1} s", started.elapsed().as_secs_f64());
    Ok(programs)
}

fn write_initramfs(
    ready: &Ready,
    programs: &guest::Programs,
    cases: &[Case],
    folder: &Path,
) -> Result<PathBuf> {
    let planned = cases.iter().map(|case| plan::Case {
        name: case.name.clone(),
        timeout_s: case.timeout_s,
        command: case.command.clone(),
        files: case.files.clone(),
    });
    let plan = Plan { channel: ready.kernel.arch.channel.to_owned(), cases: planned.collect() };
    fs::create_dir_all(folder)?;
    let file = folder.join(format!("initramfs-{}.cpio", std::process::id()));
    fs::write(&file, programs.initramfs(&ready.busybox, &plan)?)
        .with_context(|| format!("cannot write {}", file.display()))?;
    Ok(file)
}

/// Where the last run of each kernel can be looked at.
fn runs(project: &Project) -> PathBuf {
    project.target.join("vm/run")
}

fn try_kernel(
    project: &Project,
    arguments: &Arguments,
    ready: &Ready,
    programs: &guest::Programs,
) -> Result<(Counts, Option<Finding>)> {
    let name = ready.setup.name;
    let mut cases = ready.cases.clone();
    if ready.setup.suite == Suite::Matrix {
        cases.extend(programs.live_in_guest().iter().map(|(name, path)| cases::live(name, path)));
    }
    let folder = runs(project).join(name);
    let initramfs = write_initramfs(ready, programs, &cases, &folder)?;
    let machine = machine(arguments, ready, &cases);
    let boot = qemu::boot(&machine, &ready.image.vmlinuz, &initramfs, &folder);
    fs::remove_file(&initramfs)?;
    let boot = boot?;
    report::keep(&boot, &folder)?;
    let report = report::judge(&cases, &boot);
    let up = boot
        .ready_after
        .map_or("never up".to_owned(), |after| format!("up after {:.1} s", after.as_secs_f64()));
    // One call, so that two kernels' lines do not mix.
    println!(
        "vm {name}: {}: {up}, {:.1} s in all; kept in {}\n{}",
        ready.image.package,
        boot.took.as_secs_f64(),
        project.shown(&folder),
        indented(&report.text, &format!("vm {name}: ")),
    );
    let outcomes = report::collect(&boot.stream.frames);
    Ok((report.counts, Finding::of(name, &outcomes, report.counts)))
}

fn machine(arguments: &Arguments, ready: &Ready, cases: &[Case]) -> Machine {
    let icount = ready.setup.suite != Suite::OracleByHost && !arguments.no_icount;
    let longest = cases.iter().map(|case| case.timeout_s).max().unwrap_or_default();
    // Under icount, guest time passes several times slower than ours.
    let by_default = (longest + 60) * if icount { 6 } else { 1 };
    Machine {
        arch: ready.kernel.arch,
        smp: arguments.smp.unwrap_or(ready.setup.smp),
        icount,
        append: format!("{} {}", ready.setup.append, arguments.append).trim().to_owned(),
        silence: Duration::from_secs(arguments.timeout.unwrap_or(by_default)),
    }
}

fn indented(text: &str, prefix: &str) -> String {
    text.lines().map(|line| format!("{prefix}{line}")).collect::<Vec<_>>().join("\n")
}

/// Applies `action` to all items, a few at a time; the results keep the items' order.
fn side_by_side<T: Sync, R: Send>(items: &[T], action: impl Fn(&T) -> R + Sync) -> Vec<R> {
    let waiting = Mutex::new(items.iter().enumerate());
    let results = Mutex::new(Vec::new());
    // A poisoned lock means that another worker has panicked; the scope passes that on.
    let work = || {
        loop {
            let Ok(Some((index, item))) = waiting.lock().map(|mut waiting| waiting.next()) else {
                return;
            };
            let result = action(item);
            if let Ok(mut results) = results.lock() {
                results.push((index, result));
            }
        }
    };
    thread::scope(|scope| {
        for _ in 0..AT_A_TIME.min(items.len()) {
            scope.spawn(work);
        }
    });
    let mut results = results.into_inner().unwrap_or_default();
    results.sort_by_key(|(index, _)| *index);
    results.into_iter().map(|(_, result)| result).collect()
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    #[test]
    fn all_items_are_done_in_order_and_few_at_a_time() {
        let (now, most) = (AtomicUsize::new(0), AtomicUsize::new(0));
        let results = side_by_side(&[5, 1, 4, 2, 3], |n: &u64| {
            most.fetch_max(now.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
            thread::sleep(Duration::from_millis(5 * n));
            now.fetch_sub(1, Ordering::SeqCst);
            n * 10
        });
        assert_eq!(results, [50, 10, 40, 20, 30]);
        assert_eq!(most.into_inner(), AT_A_TIME);
    }

    #[test]
    fn tests_are_chosen_by_name() {
        let names = |tests: &[&str], commands: &[&str]| {
            let owned = |list: &[&str]| list.iter().map(|text| (*text).to_owned()).collect();
            let arguments =
                Arguments { tests: owned(tests), commands: owned(commands), ..Default::default() };
            own_cases(&arguments).map(|own| {
                let suite = || chosen(cases::of_suite(Suite::Matrix), &arguments);
                let cases = own.unwrap_or_else(suite);
                cases.into_iter().map(|case| case.name).collect::<Vec<_>>()
            })
        };
        assert_eq!(names(&[], &[]).unwrap()[..2], ["hooks", "doctor"]);
        assert_eq!(names(&["run-jsonl"], &[]).unwrap(), ["run-jsonl"]);
        assert!(names(&["vtime-spin"], &[]).unwrap().is_empty(), "a test of another suite");
        assert_eq!(names(&[], &["true", "false"]).unwrap(), ["command-1", "command-2"]);
        assert!(names(&["docter"], &[]).unwrap_err().to_string().contains("docter"));
        assert!(names(&[], &["a\nb"]).is_err());
    }
}
