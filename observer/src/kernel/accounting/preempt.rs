//! Which preemption model runs. It decides how often a wakeup skips the update of the run-queue
//! clock.

use std::{
    fmt,
    fs::OpenOptions,
    io::{ErrorKind, Read as _},
    os::unix::fs::OpenOptionsExt as _,
};

use super::config::Config;

/// The preemption model of the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Preempt {
    /// Only user mode is preempted.
    None,
    /// Also at `might_sleep` points.
    Voluntary,
    /// Nearly everywhere.
    Full,
    /// As full, but fair tasks wait for the tick (since 6.13).
    Lazy,
    /// `PREEMPT_RT`.
    Rt,
    /// Nothing readable tells.
    Unknown,
}

impl Preempt {
    /// The name of the model, as `preempt=` spells it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Voluntary => "voluntary",
            Self::Full => "full",
            Self::Lazy => "lazy",
            Self::Rt => "rt",
            Self::Unknown => "unknown",
        }
    }

    /// The models that `preempt=` and the debug file know (`preempt_modes`, `kernel/sched/core.c`).
    fn from_word(word: &str) -> Option<Self> {
        [Self::None, Self::Voluntary, Self::Full, Self::Lazy]
            .into_iter()
            .find(|model| model.as_str() == word)
    }
}

impl fmt::Display for Preempt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

/// Everything that may tell the model.
#[derive(Clone, Copy, Default)]
pub(super) struct Sources<'a> {
    /// `uname -v`.
    pub(super) version: &'a str,
    /// `/sys/kernel/debug/sched/preempt`.
    pub(super) debug_file: Option<&'a str>,
    /// What the kernel said last in its log.
    pub(super) logged: Option<Preempt>,
    /// `/proc/cmdline`.
    pub(super) cmdline: Option<&'a str>,
    pub(super) config: Option<&'a Config>,
    /// Whether the kernel has lazy preemption at all.
    pub(super) knows_lazy: bool,
}

/// Weighs the sources, the most direct one first. Where the model can be chosen at boot, the log
/// and the command line go before the configuration, which only holds the default. The log goes
/// before the command line: a kernel may refuse the model that was asked for (7.x with lazy
/// preemption knows no `preempt=none`).
pub(super) fn decide(sources: Sources<'_>) -> Preempt {
    let flavour = Flavour::of(sources.version);
    if flavour == Flavour::Rt {
        return Preempt::Rt;
    }
    let configured = sources.config.and_then(from_config);
    let told = if flavour == Flavour::Dynamic {
        sources
            .debug_file
            .and_then(from_debug_file)
            .or(sources.logged)
            .or_else(|| sources.cmdline.and_then(from_cmdline))
            .or(configured)
    } else {
        configured
    };
    told.unwrap_or(match flavour {
        // A kernel that is lazy by its configuration calls itself PREEMPT as well
        // (`init/Makefile`).
        Flavour::Preempt if !sources.knows_lazy => Preempt::Full,
        _ => Preempt::Unknown,
    })
}

/// What `uname -v` says: one word out of `init/Makefile`, `preempt-flag-y`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Flavour {
    /// No word: none or voluntary.
    Silent,
    /// `PREEMPT`: full or lazy, for good.
    Preempt,
    /// `PREEMPT_DYNAMIC`: chosen at boot.
    Dynamic,
    /// `PREEMPT_RT`, or `PREEMPT RT` of the patches before 5.10.
    Rt,
}

impl Flavour {
    pub(super) fn of(version: &str) -> Self {
        let words: Vec<&str> = version.split_whitespace().collect();
        if words.contains(&"PREEMPT_RT") || words.windows(2).any(|pair| pair == ["PREEMPT", "RT"]) {
            Self::Rt
        } else if words.contains(&"PREEMPT_DYNAMIC") {
            Self::Dynamic
        } else if words.contains(&"PREEMPT") {
            Self::Preempt
        } else {
            Self::Silent
        }
    }
}

/// `none voluntary (full) lazy`: the active one is in parentheses (`sched_dynamic_show`,
/// `kernel/sched/debug.c`).
fn from_debug_file(text: &str) -> Option<Preempt> {
    text.split_whitespace()
        .find_map(|word| word.strip_prefix('(')?.strip_suffix(')'))
        .and_then(Preempt::from_word)
}

/// The last `preempt=` that names a model; the kernel applies them in order, and warns about others
/// (`setup_preempt_mode`, `kernel/sched/core.c`). What follows `--` is for init.
fn from_cmdline(text: &str) -> Option<Preempt> {
    text.split_whitespace()
        .take_while(|word| *word != "--")
        .filter_map(|word| Preempt::from_word(word.strip_prefix("preempt=")?))
        .last()
}

fn from_config(config: &Config) -> Option<Preempt> {
    [
        ("PREEMPT_RT", Preempt::Rt),
        ("PREEMPT_LAZY", Preempt::Lazy),
        ("PREEMPT", Preempt::Full),
        ("PREEMPT_VOLUNTARY", Preempt::Voluntary),
        ("PREEMPT_NONE", Preempt::None),
    ]
    .into_iter()
    .find_map(|(option, model)| config.is_set(option).then_some(model))
}

/// The model that one record of `/dev/kmsg` announces: `6,87,202258,-;Dynamic Preempt: none`
/// (`preempt_dynamic_init` and `__sched_dynamic_update`, `kernel/sched/core.c`).
pub(super) fn from_log_record(record: &str) -> Option<Preempt> {
    let (prefix, text) = record.split_once(';')?;
    let priority: u32 = prefix.split(',').next()?.parse().ok()?;
    // Facility 0 is the kernel; anything that user space writes to /dev/kmsg has another one.
    let by_kernel = priority < 8;
    let word = text.lines().next()?.strip_prefix("Dynamic Preempt: ")?;
    Preempt::from_word(word.trim()).filter(|_| by_kernel)
}

/// What the kernel said last about its model, as far as the log still reaches back and may be read.
pub(super) fn from_kernel_log() -> Option<Preempt> {
    /// Ends the reading of a log that is being written faster than it is read.
    const MAX_RECORDS: usize = 1 << 18;

    let mut log = OpenOptions::new()
        .read(true)
        .custom_flags(libc::O_NONBLOCK | libc::O_CLOEXEC)
        .open("/dev/kmsg")
        .ok()?;
    // One read gives one record, of 8 KiB at most (`PRINTKRB_RECORD_MAX`,
    // `kernel/printk/printk.c`).
    let mut buffer = [0; 8192];
    let mut last = None;
    for _ in 0..MAX_RECORDS {
        match log.read(&mut buffer) {
            Ok(0) => break,
            Ok(length) => {
                let record = buffer.get(..length).map(String::from_utf8_lossy).unwrap_or_default();
                last = from_log_record(&record).or(last);
            }
            // EPIPE: the record was overwritten meanwhile; the next read goes on with the oldest
            // one.
            Err(error) if error.kind() == ErrorKind::BrokenPipe => {}
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(_) => break,
        }
    }
    last
}

#[cfg(test)]
mod tests {
    use super::*;

    const DYNAMIC: &str = "#1 SMP PREEMPT_DYNAMIC Debian 6.12.117-1 (2026-11-01)";
    const SILENT: &str = "#1 SMP Debian 5.10.223-1 (2024-08-10)";
    const STATIC: &str = "#7 SMP PREEMPT Thu Jan 1 00:00:00 UTC 2026";

    fn config(line: &str) -> Config {
        Config::parse(&format!("CONFIG_HZ=250\n{line}\n"))
    }

    #[test]
    fn reads_the_flavour_from_whole_words() {
        assert_eq!(Flavour::of(DYNAMIC), Flavour::Dynamic);
        assert_eq!(Flavour::of(SILENT), Flavour::Silent);
        assert_eq!(Flavour::of(STATIC), Flavour::Preempt);
        assert_eq!(Flavour::of("#1 SMP PREEMPT_RT Debian 6.1"), Flavour::Rt);
        assert_eq!(Flavour::of("#1 SMP PREEMPT RT Wed"), Flavour::Rt);
        assert_eq!(Flavour::of("#1 NOPREEMPT RT xPREEMPT_RT"), Flavour::Silent);
        assert_eq!(Flavour::of(""), Flavour::Silent);
    }

    #[test]
    fn the_debug_file_marks_the_active_model() {
        assert_eq!(from_debug_file("(none) voluntary full \n"), Some(Preempt::None));
        assert_eq!(from_debug_file("none voluntary (full)"), Some(Preempt::Full));
        assert_eq!(from_debug_file("full (lazy) \n"), Some(Preempt::Lazy));
        for odd in ["", "none full", "(", "()", "(other)", "(full", "full)"] {
            assert_eq!(from_debug_file(odd), None, "{odd}");
        }
    }

    #[test]
    fn the_last_valid_word_of_the_command_line_counts() {
        assert_eq!(from_cmdline("quiet preempt=full ro"), Some(Preempt::Full));
        assert_eq!(from_cmdline("preempt=full preempt=none preempt=odd"), Some(Preempt::None));
        assert_eq!(from_cmdline("quiet -- preempt=full"), None);
        for odd in ["", "preempt", "preempt=", "xpreempt=full", "preempt=rt", "preempt=unknown"] {
            assert_eq!(from_cmdline(odd), None, "{odd}");
        }
    }

    #[test]
    fn only_the_kernel_is_believed_in_its_log() {
        assert_eq!(from_log_record("6,87,202258,-;Dynamic Preempt: none\n"), Some(Preempt::None));
        let with_dictionary = "6,1,2,-;Dynamic Preempt: lazy\n SUBSYSTEM=x\n";
        assert_eq!(from_log_record(with_dictionary), Some(Preempt::Lazy));
        for odd in [
            "12,87,202258,-;Dynamic Preempt: none\n",
            "4,1,2,-;Dynamic Preempt: unsupported mode: none\n",
            "6,1,2,-;said Dynamic Preempt: none\n",
            "Dynamic Preempt: none",
            ";Dynamic Preempt: none",
            "",
        ] {
            assert_eq!(from_log_record(odd), None, "{odd}");
        }
    }

    #[test]
    fn the_most_direct_source_wins() {
        let voluntary = config("CONFIG_PREEMPT_VOLUNTARY=y");
        let mut sources = Sources {
            version: DYNAMIC,
            debug_file: Some("none voluntary full (lazy)"),
            logged: Some(Preempt::Full),
            cmdline: Some("preempt=none"),
            config: Some(&voluntary),
            knows_lazy: true,
        };
        assert_eq!(decide(sources), Preempt::Lazy);
        sources.debug_file = Some("garbage");
        assert_eq!(decide(sources), Preempt::Full);
        sources.logged = None;
        assert_eq!(decide(sources), Preempt::None);
        sources.cmdline = Some("quiet");
        assert_eq!(decide(sources), Preempt::Voluntary);
        sources.config = None;
        assert_eq!(decide(sources), Preempt::Unknown);
        sources.version = "#1 SMP PREEMPT_RT";
        sources.cmdline = Some("preempt=full");
        assert_eq!(decide(sources), Preempt::Rt);
    }

    #[test]
    fn a_kernel_without_a_choice_ignores_the_command_line() {
        let none = config("CONFIG_PREEMPT_NONE=y");
        let cmdline = Some("preempt=full");
        let silent = Sources { version: SILENT, cmdline, ..Sources::default() };
        assert_eq!(decide(silent), Preempt::Unknown);
        assert_eq!(decide(Sources { config: Some(&none), ..silent }), Preempt::None);
        let fixed = Sources { version: STATIC, ..Sources::default() };
        assert_eq!(decide(fixed), Preempt::Full);
        assert_eq!(decide(Sources { knows_lazy: true, ..fixed }), Preempt::Unknown);
        let lazy = config("CONFIG_PREEMPT_LAZY=y\nCONFIG_PREEMPT_BUILD=y");
        assert_eq!(
            decide(Sources { knows_lazy: true, config: Some(&lazy), ..fixed }),
            Preempt::Lazy
        );
    }

    #[test]
    fn every_model_reads_back_from_its_name() {
        for model in [Preempt::None, Preempt::Voluntary, Preempt::Full, Preempt::Lazy] {
            assert_eq!(Preempt::from_word(&model.to_string()), Some(model));
        }
        assert_eq!(Preempt::from_word("rt"), None);
        assert_eq!(format!("{:>5}|{}", Preempt::Rt, Preempt::Unknown), "   rt|unknown");
    }
}
