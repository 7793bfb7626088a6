//! One boot of a test kernel.

use std::{
    fs::{self, File},
    path::{Path, PathBuf},
    process::{Child, Command, ExitStatus, Stdio},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, Result};
use xtask::wire::{self, Stream};

use super::kernels::Arch;
use crate::exec;

/// What the virtual machine is made of.
#[derive(Clone, Debug)]
pub struct Machine {
    /// Emulator and serial ports.
    pub arch: &'static Arch,
    /// Virtual CPUs.
    pub smp: u32,
    /// Tie guest time to the number of instructions.
    pub icount: bool,
    /// More of the kernel command line.
    pub append: String,
    /// The guest counts as hung when nothing comes from it for so long.
    pub silence: Duration,
}

/// How the emulator ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ended {
    /// The guest powered off or restarted, which a panic does too.
    ByGuest,
    /// We ended it: it was silent for this time.
    Hung(Duration),
    /// It failed, and said this.
    Failed(String),
}

/// All that a boot left.
#[derive(Debug)]
pub struct Boot {
    /// The guest's results.
    pub stream: Stream,
    /// From the emulator's start to the guest's first frame.
    pub ready_after: Option<Duration>,
    /// The whole run.
    pub took: Duration,
    /// How it ended.
    pub ended: Ended,
    /// The kernel's console.
    pub console: String,
}

/// Boots a kernel and waits for its end. Console, results and the emulator's words stay in `folder`.
///
/// # Errors
/// When the emulator cannot be started or its output not read. A guest that fails is no error.
pub fn boot(machine: &Machine, vmlinuz: &Path, initramfs: &Path, folder: &Path) -> Result<Boot> {
    fs::create_dir_all(folder).with_context(|| folder.display().to_string())?;
    let files = Files::in_folder(folder);
    for old in [&files.console, &files.results] {
        fs::write(old, "").with_context(|| format!("cannot write {}", old.display()))?;
    }
    let mut command = command(machine, vmlinuz, initramfs, &files);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(File::create(&files.words)?);
    let started = Instant::now();
    let child = command.spawn();
    let mut emulator =
        Emulator(child.with_context(|| format!("cannot start `{}`", exec::show(&command)))?);
    let (ended, ready_after) = watch(&mut emulator.0, &files, machine.silence)?;
    let took = started.elapsed();
    let console = fs::read(&files.console)?;
    Ok(Boot {
        stream: wire::parse(&fs::read(&files.results)?),
        ready_after,
        took,
        ended,
        console: String::from_utf8_lossy(&console).into_owned(),
    })
}

/// Ends the emulator on every way out.
struct Emulator(Child);

impl Drop for Emulator {
    fn drop(&mut self) {
        // Both fail when it has ended already, which is the usual case.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

struct Files {
    console: PathBuf,
    results: PathBuf,
    words: PathBuf,
}

impl Files {
    fn in_folder(folder: &Path) -> Self {
        Self {
            console: folder.join("console.log"),
            results: folder.join("results"),
            words: folder.join("qemu.log"),
        }
    }
}

fn command(machine: &Machine, vmlinuz: &Path, initramfs: &Path, files: &Files) -> Command {
    let mut command = Command::new(machine.arch.qemu);
    command.args(machine.arch.machine).args(["-m", "1G", "-smp", &machine.smp.to_string()]);
    if machine.icount {
        // One instruction is 2 ns of guest time, and idle time passes at once.
        command.args(["-icount", "shift=1,sleep=off"]);
    }
    // A restart, which is what panic=-1 makes of a panic, ends the emulator.
    command.args(["-no-reboot", "-display", "none", "-vga", "none", "-monitor", "none"]);
    command.args(["-nic", "none"]);
    command.arg("-serial").arg(format!("file:{}", files.console.display()));
    command.arg("-chardev").arg(format!("file,id=results,path={}", files.results.display()));
    command.args(machine.arch.port);
    let console = machine.arch.console;
    let own = machine.arch.kernel_line;
    let kernel_line = format!("console={console} panic=-1 rdinit=/init {own} {}", machine.append);
    command.arg("-kernel").arg(vmlinuz).arg("-initrd").arg(initramfs);
    command.args(["-append", kernel_line.trim_end()]);
    command
}

fn watch(child: &mut Child, files: &Files, silence: Duration) -> Result<(Ended, Option<Duration>)> {
    let started = Instant::now();
    let (mut ready_after, mut last_len, mut last_news) = (None, 0, started);
    loop {
        let status = child.try_wait().context("waiting for the emulator")?;
        // The console does not count as news: a kernel that is stuck may still complain every minute.
        let len = files.results.metadata().map_or(0, |data| data.len());
        if len != last_len {
            (last_len, last_news) = (len, Instant::now());
            ready_after = ready_after.or_else(|| Some(started.elapsed()));
        }
        if let Some(status) = status {
            return Ok((ended_with(status, &files.words), ready_after));
        }
        if last_news.elapsed() > silence {
            return Ok((Ended::Hung(silence), ready_after));
        }
        thread::sleep(Duration::from_millis(20));
    }
}

fn ended_with(status: ExitStatus, words: &Path) -> Ended {
    if status.success() {
        return Ended::ByGuest;
    }
    let words = fs::read_to_string(words).unwrap_or_default();
    Ended::Failed(format!("{status}: {}", words.trim()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::vm::kernels::X86_64;

    #[test]
    fn the_options_reach_the_emulator() {
        let machine = Machine {
            arch: &X86_64,
            smp: 2,
            icount: true,
            append: "preempt=full".into(),
            silence: Duration::from_secs(180),
        };
        let files = Files::in_folder(Path::new("/f"));
        let shown = exec::show(&command(&machine, Path::new("/k"), Path::new("/i"), &files));
        for part in [
            "-smp 2",
            "-icount shift=1,sleep=off",
            "-serial file:/f/console.log -chardev file,id=results,path=/f/results -serial chardev:results",
            "-append 'console=ttyS0 panic=-1 rdinit=/init clocksource=tsc tsc=reliable preempt=full'",
        ] {
            assert!(shown.contains(part), "{shown}");
        }
    }

    fn watched(script: &str, silence: Duration) -> (Ended, Option<Duration>) {
        let folder = std::env::temp_dir().join(format!(
            "xtask-qemu-{}-{}",
            std::process::id(),
            script.len()
        ));
        fs::create_dir_all(&folder).unwrap();
        let files = Files::in_folder(&folder);
        let mut shell = Command::new("sh");
        shell.args(["-c", script]).current_dir(&folder).stderr(File::create(&files.words).unwrap());
        let mut emulator = Emulator(shell.spawn().unwrap());
        let result = watch(&mut emulator.0, &files, silence).unwrap();
        drop(emulator);
        fs::remove_dir_all(folder).unwrap();
        result
    }

    #[test]
    fn an_end_a_failure_and_silence_are_told_apart() {
        let long = Duration::from_secs(60);
        let (ended, ready) = watched("echo frame > results", long);
        assert_eq!(ended, Ended::ByGuest);
        assert!(ready.is_some());
        let (ended, ready) = watched("echo no such machine >&2; exit 1", long);
        assert_eq!(ended, Ended::Failed("exit status: 1: no such machine".into()));
        assert_eq!(ready, None);
        let short = Duration::from_millis(100);
        let (ended, _) = watched("exec sleep 60", short);
        assert_eq!(ended, Ended::Hung(short));
    }
}
