//! `cargo xtask vm`: runs tests on stock Debian kernels, each in a virtual machine of its own.

mod cases;
mod cpio;
mod fetch;
mod guest;
pub mod kernels;
mod qemu;
mod report;
mod sources;

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
    fetch::Image,
    kernels::{Arch, Kernel},
    qemu::Machine,
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
    /// Kernels by name (see --list); 6.12 when none is named
    pub kernels: Vec<String>,
    /// Add to the kernel's command line, such as preempt=full
    #[arg(long, value_name = "ARGS", default_value = "", allow_hyphen_values = true)]
    pub append: String,
    /// Virtual CPUs; one by default
    #[arg(long, value_name = "N")]
    pub smp: Option<u32>,
    /// Tie guest time to the number of instructions: slower, and repeatable
    #[arg(long)]
    pub icount: bool,
    /// End a guest that has been silent for so long; by default a minute more than its longest test may take
    #[arg(long, value_name = "SECS")]
    pub timeout: Option<u64>,
    /// Run this shell line in the guest instead of the tests; may be given several times
    #[arg(long = "command", value_name = "LINE")]
    pub commands: Vec<String>,
    /// Also run observer's live tests in the guest
    #[arg(long)]
    pub live: bool,
    /// Show kernels and tests and run nothing
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
    println!("kernels:");
    for kernel in kernels::KERNELS {
        let state = fetch::cached(&cache(project), kernel);
        let state = state.map_or("not fetched".to_owned(), |image| image.package);
        println!("  {:<8} {} {:<10} {state}", kernel.name, kernel.arch.debian, kernel.suite);
    }
    println!("tests:");
    for case in cases::smoke() {
        println!("  {:<12} {}", case.name, case.command);
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
    let kernels = kernels::choose(&arguments.kernels)?;
    let mut cases = choose_cases(arguments)?;
    let mut counts = Counts::default();
    let mut ready = Vec::new();
    for kernel in kernels {
        match available(project, kernel) {
            Ok(found) => ready.push(found),
            Err(why) => {
                println!("SKIPPED: vm {}: {why:#}", kernel.name);
                counts.skipped += 1;
            }
        }
    }
    let Some(first) = ready.first() else {
        return Ok(counts);
    };
    let arch = first.kernel.arch;
    let live = arguments.live && arguments.commands.is_empty();
    let programs = build(project, arch, &cases, live)?;
    cases.extend(programs.live_in_guest().iter().map(|(name, path)| cases::live(name, path)));
    let initramfs = write_initramfs(project, arch, &programs, &first.busybox, &cases)?;
    let longest = cases.iter().map(|case| case.timeout_s).max().unwrap_or_default();
    // Under --icount, guest time passes several times slower than ours.
    let by_default = (longest + 60) * if arguments.icount { 4 } else { 1 };
    let machine = Machine {
        arch,
        smp: arguments.smp.unwrap_or(1),
        icount: arguments.icount,
        append: arguments.append.clone(),
        silence: Duration::from_secs(arguments.timeout.unwrap_or(by_default)),
    };
    let results =
        side_by_side(&ready, |ready| try_kernel(project, &machine, ready, &initramfs, &cases));
    fs::remove_file(&initramfs)?;
    for result in results {
        counts += result?;
    }
    Ok(counts)
}

fn choose_cases(arguments: &Arguments) -> Result<Vec<Case>> {
    if !arguments.commands.is_empty() {
        if let Some(line) = arguments.commands.iter().find(|line| line.contains('\n')) {
            bail!("--command takes one line, not {line:?}");
        }
        let commands = (1..).zip(&arguments.commands);
        return Ok(commands.map(|(number, line)| cases::ad_hoc(number, line)).collect());
    }
    let all = cases::smoke();
    if let Some(unknown) = arguments.tests.iter().find(|name| all.iter().all(|c| c.name != **name))
    {
        bail!("there is no test {unknown} (see cargo xtask vm --list)");
    }
    let wanted = |case: &Case| arguments.tests.is_empty() || arguments.tests.contains(&case.name);
    Ok(all.into_iter().filter(wanted).collect())
}

/// A kernel with all that its boot needs from outside.
struct Ready {
    kernel: &'static Kernel,
    image: Image,
    busybox: PathBuf,
}

fn available(project: &Project, kernel: &'static Kernel) -> Result<Ready> {
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
    Ok(Ready { kernel, image, busybox })
}

fn build(project: &Project, arch: &Arch, cases: &[Case], live: bool) -> Result<guest::Programs> {
    let observer = live || cases.iter().any(|case| case.needs_observer);
    if observer {
        setup::ensure(project, Wanted::BuildQuietly)?;
    }
    let started = Instant::now();
    let programs = guest::build(project, arch, observer, live)?;
    println!("vm: the guest's programs built in {:.1} s", started.elapsed().as_secs_f64());
    Ok(programs)
}

fn write_initramfs(
    project: &Project,
    arch: &Arch,
    programs: &guest::Programs,
    busybox: &Path,
    cases: &[Case],
) -> Result<PathBuf> {
    let planned = cases.iter().map(|case| plan::Case {
        name: case.name.clone(),
        timeout_s: case.timeout_s,
        command: case.command.clone(),
        files: case.files.clone(),
    });
    let plan = Plan { channel: arch.channel.to_owned(), cases: planned.collect() };
    let folder = runs(project);
    fs::create_dir_all(&folder)?;
    let file = folder.join(format!("initramfs-{}.cpio", std::process::id()));
    fs::write(&file, programs.initramfs(busybox, &plan)?)
        .with_context(|| format!("cannot write {}", file.display()))?;
    Ok(file)
}

/// Where the last run of each kernel can be looked at.
fn runs(project: &Project) -> PathBuf {
    project.target.join("vm/run")
}

fn try_kernel(
    project: &Project,
    machine: &Machine,
    ready: &Ready,
    initramfs: &Path,
    cases: &[Case],
) -> Result<Counts> {
    let name = ready.kernel.name;
    let folder = runs(project).join(name);
    let boot = qemu::boot(machine, &ready.image.vmlinuz, initramfs, &folder)?;
    report::keep(&boot, &folder)?;
    let report = report::judge(cases, &boot);
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
    Ok(report.counts)
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
        let chosen = |tests: &[&str], commands: &[&str]| {
            let owned = |list: &[&str]| list.iter().map(|text| (*text).to_owned()).collect();
            choose_cases(&Arguments {
                tests: owned(tests),
                commands: owned(commands),
                ..Default::default()
            })
            .map(|cases| cases.into_iter().map(|case| case.name).collect::<Vec<_>>())
        };
        assert_eq!(chosen(&[], &[]).unwrap(), ["doctor", "run-jsonl"]);
        assert_eq!(chosen(&["run-jsonl"], &[]).unwrap(), ["run-jsonl"]);
        assert_eq!(chosen(&[], &["true", "false"]).unwrap(), ["command-1", "command-2"]);
        assert!(chosen(&["docter"], &[]).unwrap_err().to_string().contains("docter"));
        assert!(chosen(&[], &["a\nb"]).is_err());
    }
}
