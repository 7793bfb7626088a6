//! Opens a counter of user cycles and one of kernel cycles on each CPU, and hands them to the programs.

use std::{
    fs::File,
    io::{self, Read as _},
    os::fd::{AsFd as _, OwnedFd},
};

use anyhow::{Context as _, Result, anyhow};
use aya::{Ebpf, maps::Map};
use aya_obj::generated::{perf_event_attr, perf_hw_id, perf_type_id};
use observer_common::{cycles::Sample, names};

use super::sys;
use crate::kernel::{CpuList, Unsupported};

/// `PERF_FORMAT_TOTAL_TIME_ENABLED | PERF_FORMAT_TOTAL_TIME_RUNNING` (include/uapi/linux/perf_event.h).
const WITH_TIMES: u64 = 1 | 2;

/// What `--cycles` says.
#[derive(clap::ValueEnum, Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Choice {
    /// Where the machine has a PMU that can be used
    #[default]
    Auto,
    /// Never: each reading costs time at a switch
    Off,
    /// Or end with status 3
    Require,
}

/// Whether cycles are counted, and if not, why.
#[derive(Debug)]
pub enum Cycles {
    /// These count.
    Counted(Counters),
    /// Not wanted.
    Off,
    /// The machine has no counters.
    Absent(String),
    /// It has, but they are not ours.
    Refused(String),
}

/// The counters, by CPU.
#[derive(Debug)]
pub struct Counters {
    user: Vec<(u32, OwnedFd)>,
    system: Vec<(u32, OwnedFd)>,
}

impl Cycles {
    /// Opens what is wanted.
    ///
    /// # Errors
    /// If they are required and cannot be had.
    pub fn choose(choice: Choice, online: &CpuList) -> Result<Self, Unsupported> {
        if choice == Choice::Off {
            return Ok(Self::Off);
        }
        let cycles = match Counters::open(online) {
            Ok(counters) => Self::Counted(counters),
            Err((cpu, error)) => refusal(cpu, &error),
        };
        match cycles.reason() {
            Some(why) if choice == Choice::Require => Err(Unsupported {
                what: "cannot count cycles".to_owned(),
                why: why.to_owned(),
                way_out: "leave out --cycles require, or run where there is a PMU".to_owned(),
            }),
            _ => Ok(cycles),
        }
    }

    /// True if they are counted.
    #[must_use]
    pub fn is_counted(&self) -> bool {
        matches!(self, Self::Counted(_))
    }

    /// `counted`, `off`, `absent`, `refused`.
    #[must_use]
    pub fn word(&self) -> &'static str {
        match self {
            Self::Counted(_) => "counted",
            Self::Off => "off",
            Self::Absent(_) => "absent",
            Self::Refused(_) => "refused",
        }
    }

    /// Why they are not counted.
    #[must_use]
    pub fn reason(&self) -> Option<&str> {
        match self {
            Self::Counted(_) => None,
            Self::Off => Some("left out by --cycles off"),
            Self::Absent(why) | Self::Refused(why) => Some(why),
        }
    }

    /// Hands the counters to the programs; from here on each CPU reads its own.
    ///
    /// # Errors
    /// If a map does not take one.
    pub fn hand_over(&self, ebpf: &mut Ebpf) -> Result<()> {
        let Self::Counted(counters) = self else { return Ok(()) };
        for (name, counters) in
            [(names::CYCLES_USER, &counters.user), (names::CYCLES_SYSTEM, &counters.system)]
        {
            // The kernel takes them out again when this very descriptor is closed (perf_event_fd_array_release,
            // kernel/bpf/arraymap.c), so it must be the one that lives as long as the programs.
            let Some(Map::PerfEventArray(map)) = ebpf.map(name) else {
                return Err(anyhow!("the object has no map {name}"));
            };
            for (cpu, counter) in counters {
                sys::map_update_fd(map.fd(), *cpu, counter)
                    .with_context(|| format!("{name} of CPU {cpu}"))?;
            }
        }
        Ok(())
    }
}

impl Counters {
    /// Opens both on each CPU. All or nothing: a task that moves to a CPU without would lose its cycles there.
    fn open(online: &CpuList) -> Result<Self, (u32, io::Error)> {
        let mut counters = Self { user: Vec::new(), system: Vec::new() };
        for cpu in online.iter() {
            counters.user.push((cpu, counter(cpu, false).map_err(|error| (cpu, error))?));
            counters.system.push((cpu, counter(cpu, true).map_err(|error| (cpu, error))?));
        }
        Ok(counters)
    }
}

/// Opens one, of all tasks on a CPU, and sees that it counts.
fn counter(cpu: u32, in_kernel: bool) -> io::Result<OwnedFd> {
    let fd = sys::perf_event_open(&attributes(in_kernel, true), -1, i32::try_from(cpu).ok())?;
    // One that found no place in the PMU is open all the same, but has nothing to read (perf_read, kernel/events/core.c).
    if read(&fd)?.is_none() {
        return Err(io::ErrorKind::ResourceBusy.into());
    }
    Ok(fd)
}

/// What is counted. `pinned`: on the PMU always or not at all, never in turns.
fn attributes(in_kernel: bool, pinned: bool) -> perf_event_attr {
    // SAFETY: a struct of integers; all zero is valid, and asks for nothing.
    let mut attributes: perf_event_attr = unsafe { std::mem::zeroed() };
    attributes.type_ = perf_type_id::PERF_TYPE_HARDWARE as u32;
    attributes.size = size_of::<perf_event_attr>() as u32;
    attributes.config = perf_hw_id::PERF_COUNT_HW_CPU_CYCLES as u64;
    attributes.read_format = WITH_TIMES;
    attributes.set_pinned(u64::from(pinned));
    attributes.set_exclude_user(u64::from(in_kernel));
    attributes.set_exclude_kernel(u64::from(!in_kernel));
    attributes.set_exclude_hv(1);
    attributes
}

/// Reads a counter through its descriptor; `None` if the PMU has no place for it.
fn read(counter: &OwnedFd) -> io::Result<Option<Sample>> {
    let mut words = [0_u8; size_of::<Sample>()];
    let length = File::from(counter.as_fd().try_clone_to_owned()?).read(&mut words)?;
    if length == 0 {
        return Ok(None);
    }
    let word = |at: usize| {
        let bytes = words.get(at * 8..).and_then(|rest| rest.first_chunk::<8>());
        bytes.map_or(0, |bytes| u64::from_ne_bytes(*bytes))
    };
    Ok(Some(Sample { count: word(0), enabled_ns: word(1), running_ns: word(2) }))
}

/// Cycles that the calling thread itself spends, user and kernel: for programs that know their own answer.
#[derive(Debug)]
pub struct OwnCycles {
    user: OwnedFd,
    system: OwnedFd,
}

impl OwnCycles {
    /// Begins to count.
    ///
    /// # Errors
    /// If the kernel has or gives no counters.
    pub fn open() -> io::Result<Self> {
        let open = |in_kernel| sys::perf_event_open(&attributes(in_kernel, false), 0, None);
        Ok(Self { user: open(false)?, system: open(true)? })
    }

    /// Cycles so far, user and kernel. `None` if a counter did not run all the time.
    ///
    /// # Errors
    /// If a counter cannot be read.
    pub fn read(&self) -> io::Result<Option<(u64, u64)>> {
        let whole = |sample: Option<Sample>| sample?.since(&Sample::default());
        // In this order at both ends, so that no user cycle lies between.
        Ok(whole(read(&self.user)?).zip(whole(read(&self.system)?)))
    }
}

fn refusal(cpu: u32, error: &io::Error) -> Cycles {
    match error.raw_os_error() {
        // No PMU that knows cycles (perf_init_event, kernel/events/core.c), or none that is ready.
        Some(libc::ENOENT | libc::ENODEV | libc::EOPNOTSUPP | libc::ENXIO) => {
            Cycles::Absent(format!("no PMU on CPU {cpu} (virtual machines often have none)"))
        }
        Some(libc::EPERM | libc::EACCES) => Cycles::Refused(format!(
            "the kernel does not allow counters on CPU {cpu} (perf_event_open: {error})"
        )),
        None if error.kind() == io::ErrorKind::ResourceBusy => Cycles::Refused(format!(
            "all counters of CPU {cpu} are taken (by perf, or by kernel.nmi_watchdog)"
        )),
        _ => Cycles::Refused(format!("counting on CPU {cpu}: {error}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::Limits;

    #[test]
    fn each_refusal_has_its_word_and_its_reason() {
        let of = |errno| refusal(3, &io::Error::from_raw_os_error(errno));
        assert_eq!(of(libc::ENOENT).word(), "absent");
        assert_eq!(of(libc::EACCES).word(), "refused");
        let busy = refusal(3, &io::ErrorKind::ResourceBusy.into());
        assert!(busy.reason().unwrap().contains("nmi_watchdog"), "{busy:?}");
        for cycles in [of(libc::ENOENT), of(libc::EACCES), of(libc::EMFILE), busy] {
            assert!(!cycles.is_counted());
            assert!(cycles.reason().unwrap().contains("CPU 3"), "{cycles:?}");
        }
    }

    #[test]
    fn the_two_counters_share_all_cycles_between_them() {
        for (in_kernel, user, kernel) in [(false, 0, 1), (true, 1, 0)] {
            let attributes = attributes(in_kernel, true);
            assert_eq!((attributes.exclude_user(), attributes.exclude_kernel()), (user, kernel));
            assert_eq!((attributes.pinned(), attributes.inherit()), (1, 0));
        }
    }

    #[test]
    fn off_opens_nothing_and_require_says_why_not() {
        let online = Limits::detect(None).online_cpus;
        let off = Cycles::choose(Choice::Off, &online).unwrap();
        assert_eq!((off.word(), off.is_counted()), ("off", false));
        let auto = Cycles::choose(Choice::Auto, &online).unwrap();
        match Cycles::choose(Choice::Require, &online) {
            Ok(required) => assert!(required.is_counted() && auto.is_counted()),
            Err(error) => {
                assert!(!auto.is_counted());
                assert_eq!(Some(error.why.as_str()), auto.reason());
            }
        }
    }
}
