//! What the kernel accounts CPU time with: every reported figure is to be read against this.

mod config;
mod preempt;

use std::fmt;

pub use preempt::Preempt;
use rustix::time::{ClockId, clock_getres};

use self::config::Config;
use super::{Btf, CpuList, limits::Uname, read_text};

/// Where utime and stime come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AccountingMode {
    /// Sampled at the tick: the whole tick is charged to the mode that it interrupts.
    Tick,
    /// The kernel could time every crossing (`VIRT_CPU_ACCOUNTING_GEN`) and does not: no CPU is
    /// `nohz_full`.
    VtimeDormant,
    /// The CPUs of [`Accounting::vtime_cpus`] time every crossing; the others sample at the tick.
    VtimeActive,
    /// The architecture times every crossing (`VIRT_CPU_ACCOUNTING_NATIVE`: powerpc, s390).
    Native,
}

impl AccountingMode {
    /// The name of the mode, for headers.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Tick => "tick",
            Self::VtimeDormant => "vtime dormant",
            Self::VtimeActive => "vtime active",
            Self::Native => "native",
        }
    }
}

impl fmt::Display for AccountingMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

/// How this kernel accounts CPU time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Accounting {
    /// Where utime and stime come from.
    pub mode: AccountingMode,
    /// The CPUs that time every crossing; empty unless the mode is [`AccountingMode::VtimeActive`].
    pub vtime_cpus: CpuList,
    /// Ticks per second; 0 when the kernel does not say.
    pub hz: u32,
    /// One tick, in nanoseconds: the quantum of sampled time.
    pub tick_ns: u64,
    /// The preemption model.
    pub preempt: Preempt,
    /// Built in: interrupt time may be kept out of `clock_task`, hence out of every runtime. It can
    /// be off at run time (no usable clock, `tsc=noirqtime`).
    pub irq_time: bool,
    /// Built in: stolen time may be kept out of `clock_task`. It is on only where the hypervisor
    /// reports steal.
    pub steal_in_clock_task: bool,
    /// The clock source of timekeeping; "unknown" when sysfs does not say.
    pub clocksource: String,
    /// Units per second of the times in `/proc/PID/stat`.
    pub user_hz: u32,
    /// What does not fit together, in whole sentences.
    pub notes: Vec<String>,
}

impl Accounting {
    /// Looks at the running kernel.
    pub fn detect(btf: &Btf) -> Self {
        let uname = Uname::get();
        let tick_ns = tick_ns();
        let hz = hz_of_tick(tick_ns);
        let (config, notes) = trusted_config(Config::read(&uname.release), hz);
        let nohz_full = CpuList::read("/sys/devices/system/cpu/nohz_full").unwrap_or_default();
        let possible = CpuList::read("/sys/devices/system/cpu/possible").unwrap_or_default();
        let (mode, vtime_cpus) = mode(btf, nohz_full, possible, config.as_ref());
        Self {
            mode,
            vtime_cpus,
            hz,
            tick_ns,
            preempt: detect_preempt(btf, &uname.version, config.as_ref()),
            // `struct rq`, `kernel/sched/sched.h`: CONFIG_IRQ_TIME_ACCOUNTING,
            // CONFIG_PARAVIRT_TIME_ACCOUNTING.
            irq_time: btf.member("rq", "prev_irq_time").is_some(),
            steal_in_clock_task: btf.member("rq", "prev_steal_time_rq").is_some(),
            clocksource: read_text(
                "/sys/devices/system/clocksource/clocksource0/current_clocksource",
            )
            .filter(|name| !name.is_empty())
            .unwrap_or_else(|| "unknown".to_owned()),
            user_hz: user_hz(),
            notes,
        }
    }
}

/// The mode, and the CPUs on which vtime is active.
///
/// `task_struct.vtime` is there if and only if VIRT_CPU_ACCOUNTING_GEN is built in, and
/// `prev_cputime` has members if and only if VIRT_CPU_ACCOUNTING_NATIVE is not
/// (`include/linux/sched.h`; the member `prev_cputime` itself is always there). GEN is active where
/// context tracking is: on `nohz_full` CPUs, or everywhere in kernels built with
/// CONTEXT_TRACKING_USER_FORCE (CONTEXT_TRACKING_FORCE before 6.0), which only the configuration
/// tells.
fn mode(
    btf: &Btf,
    nohz_full: CpuList,
    possible: CpuList,
    config: Option<&Config>,
) -> (AccountingMode, CpuList) {
    let none = CpuList::default();
    if btf.member("task_struct", "prev_cputime.utime").is_none() {
        return (AccountingMode::Native, none);
    }
    if btf.member("task_struct", "vtime").is_none() {
        return (AccountingMode::Tick, none);
    }
    let forced = config.is_some_and(|config| {
        config.is_set("CONTEXT_TRACKING_USER_FORCE") || config.is_set("CONTEXT_TRACKING_FORCE")
    });
    let tracked = if forced { possible } else { nohz_full };
    if tracked.is_empty() {
        (AccountingMode::VtimeDormant, none)
    } else {
        (AccountingMode::VtimeActive, tracked)
    }
}

/// A configuration whose HZ is not that of the running kernel belongs to another build: it is put
/// aside, and said so.
fn trusted_config(config: Option<Config>, hz: u32) -> (Option<Config>, Vec<String>) {
    match config.as_ref().and_then(Config::hz) {
        Some(configured) if configured != hz => {
            let note = format!(
                "the configuration file of this release says HZ={configured}, the running kernel \
                 ticks at {hz}: the file is ignored"
            );
            (None, vec![note])
        }
        _ => (config, Vec::new()),
    }
}

/// The length of a tick in nanoseconds: the resolution of the coarse clocks is `TICK_NSEC`
/// (`posix_get_coarse_res`, `kernel/time/posix-timers.c`; `LOW_RES_NSEC` in the vdso).
fn tick_ns() -> u64 {
    let resolution = clock_getres(ClockId::MonotonicCoarse);
    let seconds = u64::try_from(resolution.tv_sec).unwrap_or(0);
    let nanoseconds = u64::try_from(resolution.tv_nsec).unwrap_or(0);
    seconds.saturating_mul(1_000_000_000).saturating_add(nanoseconds)
}

/// HZ from the length of a tick, which the kernel rounds:
/// `TICK_NSEC = (NSEC_PER_SEC + HZ/2) / HZ` (`include/linux/jiffies.h`).
fn hz_of_tick(tick_ns: u64) -> u32 {
    let hz = 1_000_000_000u64.saturating_add(tick_ns / 2).checked_div(tick_ns);
    hz.and_then(|hz| u32::try_from(hz).ok()).unwrap_or(0)
}

/// USER_HZ. 100 nearly everywhere (`include/asm-generic/param.h`).
fn user_hz() -> u32 {
    // SAFETY: sysconf only takes a number, and touches no memory of ours.
    let ticks = unsafe { libc::sysconf(libc::_SC_CLK_TCK) };
    u32::try_from(ticks).ok().filter(|ticks| *ticks != 0).unwrap_or(100)
}

fn detect_preempt(btf: &Btf, version: &str, config: Option<&Config>) -> Preempt {
    let dynamic = preempt::Flavour::of(version) == preempt::Flavour::Dynamic;
    let debug_file = read_text("/sys/kernel/debug/sched/preempt");
    // The log is long; it is read only where the model can have been chosen, and the debug file is
    // closed.
    let logged = (dynamic && debug_file.is_none()).then(preempt::from_kernel_log).flatten();
    let cmdline = read_text("/proc/cmdline");
    preempt::decide(preempt::Sources {
        version,
        debug_file: debug_file.as_deref(),
        logged,
        cmdline: cmdline.as_deref(),
        config,
        // In every kernel with lazy preemption, and in none before (6.13, `kernel/sched/core.c`).
        knows_lazy: btf.has_func("resched_curr_lazy"),
    })
}

#[cfg(test)]
mod tests {
    use super::{
        super::btf::{VMLINUX, testing::Builder},
        *,
    };

    fn cpus(text: &str) -> CpuList {
        text.parse().expect("a list of CPUs")
    }

    /// A kernel whose task has, or lacks, what the accounting modes differ in.
    fn kernel(native: bool, vtime: bool) -> Btf {
        let mut b = Builder::new();
        let long = b.int("long unsigned int", 8, 0);
        let times = [("utime", long, 0), ("stime", long, 64)];
        let prev = b.strukt("prev_cputime", 16, if native { &[] } else { &times });
        let state = b.strukt("vtime", 8, &[("utime", long, 0)]);
        let mut members = vec![("utime", long, 0), ("prev_cputime", prev, 64)];
        if vtime {
            members.push(("vtime", state, 192));
        }
        b.strukt("task_struct", 64, &members);
        b.build()
    }

    #[test]
    fn hz_follows_from_the_rounded_tick() {
        for hz in [24, 48, 100, 128, 250, 256, 300, 512, 1000, 1024, 1200] {
            let tick_ns = (1_000_000_000 + hz / 2) / hz;
            assert_eq!(hz_of_tick(tick_ns), hz as u32);
        }
        assert_eq!((hz_of_tick(0), hz_of_tick(u64::MAX)), (0, 0));
    }

    #[test]
    fn the_mode_follows_from_the_task_and_the_nohz_full_cpus() {
        let none = CpuList::default();
        let of = |btf: &Btf, nohz_full: &str, config: Option<&Config>| {
            mode(btf, cpus(nohz_full), cpus("0-3"), config)
        };
        assert_eq!(of(&kernel(false, false), "1", None), (AccountingMode::Tick, none.clone()));
        assert_eq!(
            of(&kernel(false, true), "", None),
            (AccountingMode::VtimeDormant, none.clone())
        );
        let active = (AccountingMode::VtimeActive, cpus("1-3"));
        assert_eq!(of(&kernel(false, true), "1-3", None), active);
        assert_eq!(of(&kernel(true, false), "", None), (AccountingMode::Native, none));
        let forced = Config::parse("CONFIG_HZ=250\nCONFIG_CONTEXT_TRACKING_USER_FORCE=y");
        let everywhere = (AccountingMode::VtimeActive, cpus("0-3"));
        assert_eq!(of(&kernel(false, true), "", Some(&forced)), everywhere);
    }

    #[test]
    fn a_configuration_of_another_kernel_is_put_aside() {
        let config = Config::parse("CONFIG_HZ=1000\nCONFIG_PREEMPT=y");
        assert_eq!(trusted_config(Some(config.clone()), 1000), (Some(config.clone()), vec![]));
        let (ignored, notes) = trusted_config(Some(config), 250);
        assert_eq!(ignored, None);
        assert!(notes[0].contains("HZ=1000") && notes[0].contains("250"), "{notes:?}");
        assert_eq!(trusted_config(None, 250), (None, vec![]));
    }

    #[test]
    fn the_modes_have_names() {
        let modes = [
            (AccountingMode::Tick, "tick"),
            (AccountingMode::VtimeDormant, "vtime dormant"),
            (AccountingMode::VtimeActive, "vtime active"),
            (AccountingMode::Native, "native"),
        ];
        for (mode, name) in modes {
            assert_eq!(mode.to_string(), name);
        }
    }

    /// What must hold on any kernel, whatever it is.
    #[test]
    fn describes_the_running_kernel() {
        let Ok(btf) = Btf::from_sysfs() else {
            eprintln!("SKIPPED: {VMLINUX} is not readable, so the accounting mode is unknown");
            return;
        };
        let accounting = Accounting::detect(&btf);
        eprintln!("{accounting:?}");
        assert!((24..=2000).contains(&accounting.hz), "{accounting:?}");
        assert_eq!(
            accounting.tick_ns,
            (1_000_000_000 + u64::from(accounting.hz) / 2) / u64::from(accounting.hz)
        );
        assert!(accounting.user_hz >= 1, "{accounting:?}");
        let active = accounting.mode == AccountingMode::VtimeActive;
        assert_eq!(active, !accounting.vtime_cpus.is_empty(), "{accounting:?}");
        let flavour = preempt::Flavour::of(&Uname::get().version);
        assert_eq!(accounting.preempt == Preempt::Rt, flavour == preempt::Flavour::Rt);
    }
}
