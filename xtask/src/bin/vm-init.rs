//! The whole user space of a test kernel: mounts what a test may need, runs the plan, powers off.
//!
//! It is the first process of the guest. When it ends by an error, the kernel panics or powers off
//! without a `done` frame, and the host reports that with the console's last lines.

use std::{
    env,
    ffi::{CString, c_char, c_int, c_long},
    fs::{self, File, OpenOptions},
    io::{self, Write},
    mem,
    os::fd::AsRawFd,
    os::unix::process::{CommandExt, ExitStatusExt},
    path::Path,
    process::{Child, Command, ExitStatus, Stdio},
    ptr, thread,
    time::{Duration, Instant},
};

use xtask::{
    plan::{self, Case, Plan},
    wire::{End, Frame},
};

/// File system type and where it goes, in this order. One that a kernel does not have is left out:
/// the tests that need it say so themselves.
const MOUNTS: &[(&str, &str)] = &[
    ("proc", "/proc"),
    ("sysfs", "/sys"),
    ("devtmpfs", "/dev"),
    ("tmpfs", "/tmp"),
    ("tmpfs", "/run"),
    ("debugfs", "/sys/kernel/debug"),
    ("tracefs", "/sys/kernel/tracing"),
    ("securityfs", "/sys/kernel/security"),
    ("cgroup2", "/sys/fs/cgroup"),
    ("bpf", "/sys/fs/bpf"),
];

fn main() {
    if env::args().nth(1).as_deref() == Some("bpf-programs") {
        println!("{}", bpf_programs());
        return;
    }
    if let Err(error) = run() {
        // Goes to the console, which the host keeps.
        eprintln!("vm-init: {error}");
    }
    power_off();
}

fn run() -> io::Result<()> {
    for (kind, target) in MOUNTS {
        if let Err(error) = mount(kind, target) {
            eprintln!("vm-init: {kind} on {target}: {error}");
        }
    }
    loopback_up()?;
    let applets = Command::new("/bin/busybox").args(["--install", "-s", "/bin"]).status()?;
    if !applets.success() {
        return Err(io::Error::other("busybox --install failed"));
    }
    let text = fs::read_to_string(plan::PATH)?;
    let plan = Plan::parse(&text).map_err(io::Error::other)?;
    let mut channel = open_channel(&plan.channel)?;
    Frame::Ready.write(&mut channel)?;
    for case in &plan.cases {
        Frame::Begin { case: case.name.clone() }.write(&mut channel)?;
        run_case(case, &mut channel)?;
        kill_all_others();
    }
    Frame::Done.write(&mut channel)?;
    // SAFETY: tcdrain only waits until the open descriptor's output is sent.
    unsafe { libc::tcdrain(channel.as_raw_fd()) };
    Ok(())
}

/// Runs one command and sends what it wrote, the files of the plan and its end.
fn run_case(case: &Case, channel: &mut File) -> io::Result<()> {
    // Files and not pipes: a process that outlives the command cannot keep us waiting.
    let (out_path, err_path) = ("/run/case.stdout", "/run/case.stderr");
    let started = Instant::now();
    let child = Command::new("/bin/sh")
        .args(["-c", &case.command])
        .env_clear()
        .env("PATH", "/bin")
        .env("HOME", "/root")
        .env("TERM", "dumb")
        .current_dir("/tmp")
        .stdin(Stdio::null())
        .stdout(File::create(out_path)?)
        .stderr(File::create(err_path)?)
        .process_group(0)
        .spawn();
    let end = match child {
        Ok(mut child) => wait(&mut child, Duration::from_secs(case.timeout_s))?,
        Err(error) => End::NotStarted(error.to_string()),
    };
    let took_ms = u64::try_from(started.elapsed().as_millis()).unwrap_or(u64::MAX);
    let name = || case.name.clone();
    Frame::Stdout { case: name(), bytes: fs::read(out_path)? }.write(channel)?;
    Frame::Stderr { case: name(), bytes: fs::read(err_path)? }.write(channel)?;
    for path in &case.files {
        // A file that is not there is not sent: the host's check says what is missing.
        if let Ok(bytes) = fs::read(path) {
            Frame::File { case: name(), path: path.clone(), bytes }.write(channel)?;
        }
    }
    Frame::End { case: name(), end, took_ms }.write(channel)
}

fn wait(child: &mut Child, limit: Duration) -> io::Result<End> {
    let started = Instant::now();
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(end_of(status));
        }
        if started.elapsed() > limit {
            kill_all_others();
            return Ok(End::Timeout);
        }
        thread::sleep(Duration::from_millis(10));
    }
}

fn end_of(status: ExitStatus) -> End {
    match (status.code(), status.signal()) {
        (Some(code), _) => End::Exit(code),
        (None, Some(signal)) => End::Signal(signal),
        (None, None) => End::NotStarted(status.to_string()),
    }
}

/// Ends what a case has left running, so that the next one starts on an idle machine.
fn kill_all_others() {
    // SAFETY: as process 1, kill(-1) reaches every process but this one; waitpid with a null status
    // only reaps. Both are called while no `Child` of ours is waited for.
    unsafe {
        libc::kill(-1, libc::SIGKILL);
        while libc::waitpid(-1, ptr::null_mut(), 0) > 0 {}
    }
}

fn mount(kind: &str, target: &str) -> io::Result<()> {
    if !Path::new(target).exists() {
        fs::create_dir_all(target)?;
    }
    let (kind, target) = (CString::new(kind)?, CString::new(target)?);
    // SAFETY: both strings live through the call, and these file systems take a null data argument.
    let result =
        unsafe { libc::mount(kind.as_ptr(), target.as_ptr(), kind.as_ptr(), 0, ptr::null()) };
    checked(result).map(drop)
}

/// Sets the interface `lo` up, which gives 127.0.0.1 to the tests.
fn loopback_up() -> io::Result<()> {
    // SAFETY: an all-zero ifreq is a valid value.
    let mut request: libc::ifreq = unsafe { mem::zeroed() };
    for (to, from) in request.ifr_name.iter_mut().zip(b"lo") {
        *to = c_char::from_ne_bytes([*from]);
    }
    let up = libc::c_short::try_from(libc::IFF_UP | libc::IFF_RUNNING).unwrap_or_default();
    request.ifr_ifru.ifru_flags = up;
    // SAFETY: the socket is closed here and passed on to nobody; the ioctl reads the request only.
    unsafe {
        let socket = checked(libc::socket(libc::AF_INET, libc::SOCK_DGRAM, 0))?;
        let result = checked(libc::ioctl(socket, libc::SIOCSIFFLAGS, &raw const request));
        libc::close(socket);
        result.map(drop)
    }
}

/// Opens the port and takes the terminal's translations off it: frames carry any byte.
fn open_channel(path: &str) -> io::Result<File> {
    let port = OpenOptions::new().read(true).write(true).open(path)?;
    // SAFETY: an all-zero termios is a valid value, filled in by tcgetattr before it is used.
    let mut settings: libc::termios = unsafe { mem::zeroed() };
    // SAFETY: the descriptor is open, and `settings` lives through the calls.
    unsafe {
        checked(libc::tcgetattr(port.as_raw_fd(), &raw mut settings))?;
        libc::cfmakeraw(&raw mut settings);
        checked(libc::tcsetattr(port.as_raw_fd(), libc::TCSANOW, &raw const settings))?;
    }
    Ok(port)
}

/// How many BPF programs the kernel holds: a tool for tests, `/init bpf-programs`.
fn bpf_programs() -> usize {
    /// `BPF_PROG_GET_NEXT_ID` (include/uapi/linux/bpf.h).
    const NEXT_ID: c_long = 11;
    /// The attribute of that command: from this id on, the next id.
    #[repr(C)]
    struct NextId {
        start: u32,
        next: u32,
        open_flags: u32,
    }
    let mut attribute = NextId { start: 0, next: 0, open_flags: 0 };
    let next = |attribute: &mut NextId| {
        // SAFETY: the attribute lives over the call and has the size that is passed.
        let result = unsafe {
            libc::syscall(libc::SYS_bpf, NEXT_ID, &raw mut *attribute, size_of::<NextId>())
        };
        attribute.start = attribute.next;
        result == 0
    };
    let mut count = 0;
    while next(&mut attribute) {
        count += 1;
    }
    count
}

fn power_off() {
    // The console may be a busy port: let its last line out.
    let _ = io::stderr().flush();
    // SAFETY: neither call takes memory of ours. With -no-reboot a restart also ends the virtual
    // machine, which serves a kernel that cannot power off.
    unsafe {
        libc::sync();
        libc::reboot(libc::RB_POWER_OFF);
        libc::reboot(libc::RB_AUTOBOOT);
    }
}

fn checked(result: c_int) -> io::Result<c_int> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}
