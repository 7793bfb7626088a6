//! Which hooks the user wants.

use observer_common::names::hook;

use super::hooks::{HOOKS, Hook, Via};

/// The choice of `--hooks`, `--without` and `--no-split`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Selection {
    /// From what to begin.
    pub base: Base,
    /// Names of hooks to leave out.
    pub without: Vec<String>,
    /// Totals only: nothing that only the split into user and system needs.
    pub no_split: bool,
    /// No pairs: nothing that only they need.
    pub no_pairs: bool,
}

/// What `--hooks` says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Base {
    /// All that work, but for those that are only attached on request.
    #[default]
    Auto,
    /// Only those without which observer cannot run.
    Minimal,
    /// As `Auto`, and these.
    AutoAnd(Vec<String>),
    /// These, and those without which observer cannot run.
    Only(Vec<String>),
}

impl Base {
    /// Reads `auto`, `minimal`, or names with commas between them.
    ///
    /// # Errors
    /// A name that is not in the table, in one line with those that are.
    pub fn parse(text: &str) -> Result<Self, String> {
        match text {
            "auto" => Ok(Self::Auto),
            "minimal" => Ok(Self::Minimal),
            names => {
                let names = names.split(',').map(str::trim).filter(|name| *name != "auto");
                let named = names.map(parse_name).collect::<Result<Vec<_>, _>>()?;
                let with_auto = text.split(',').any(|name| name.trim() == "auto");
                Ok(if with_auto { Self::AutoAnd(named) } else { Self::Only(named) })
            }
        }
    }
}

/// Checks the name of a hook.
///
/// # Errors
/// As [`Base::parse`].
pub fn parse_name(name: &str) -> Result<String, String> {
    if HOOKS.iter().any(|hook| hook.name == name) {
        return Ok(name.to_owned());
    }
    let names: Vec<&str> = HOOKS.iter().map(|hook| hook.name).collect();
    Err(format!("no hook is called {name:?}; there are: {}", names.join(", ")))
}

/// Checks the name of a hook that may be left out.
///
/// # Errors
/// As [`Base::parse`], and for one that is needed.
pub fn parse_without(name: &str) -> Result<String, String> {
    let name = parse_name(name)?;
    match HOOKS.iter().find(|hook| hook.name == name && hook.required) {
        Some(hook) => Err(format!("observer cannot run without {}: {}", hook.name, hook.lost)),
        None => Ok(name),
    }
}

impl Selection {
    /// Why a hook is not wanted; `None` if it is.
    #[must_use]
    pub fn excludes(&self, hook: &Hook) -> Option<&'static str> {
        if hook.required {
            return None;
        }
        if self.without.iter().any(|name| name == hook.name) {
            return Some("left out by --without");
        }
        if self.no_split && only_for_the_split(hook) {
            return Some("left out by --no-split");
        }
        if self.is_totals() && beyond_totals(hook) && !self.names(hook) {
            return Some(FOR_TOTALS);
        }
        if self.no_pairs && hook.index == hook::PAIRS {
            let by_totals = "left out by --no-split; --max-pairs N keeps pairs";
            return Some(if self.no_split { by_totals } else { "left out by --max-pairs 0" });
        }
        match &self.base {
            Base::Auto | Base::AutoAnd(_) if hook.on_request && !self.names(hook) => {
                Some("attached only on request: --hooks auto,NAME")
            }
            Base::Auto | Base::AutoAnd(_) => None,
            Base::Minimal => Some("left out by --hooks minimal"),
            Base::Only(_) if self.names(hook) => None,
            Base::Only(_) => Some("not named by --hooks"),
        }
    }

    /// Totals and nothing else: neither the split nor pairs.
    #[must_use]
    pub fn is_totals(&self) -> bool {
        self.no_split && self.no_pairs
    }

    /// True if the user named it.
    #[must_use]
    pub fn names(&self, hook: &Hook) -> bool {
        match &self.base {
            Base::Auto | Base::Minimal => false,
            Base::AutoAnd(names) | Base::Only(names) => names.iter().any(|name| name == hook.name),
        }
    }

    /// True if the hook of this index is wanted.
    #[must_use]
    pub fn wants(&self, index: usize) -> bool {
        HOOKS.iter().any(|hook| hook.index == index && self.excludes(hook).is_none())
    }
}

/// Why totals do without a hook.
const FOR_TOTALS: &str = "left out by --no-split: totals do without it";

/// Hooks that cost each wakeup or switch something, and that no total needs: sched_switch tells a skip by itself, less
/// exactly, and makes a missed switch good at the next one.
fn beyond_totals(hook: &Hook) -> bool {
    let beyond =
        [hook::ENTRY, hook::LEAVE, hook::WAKING, hook::WAKEUP, hook::WAKEUP_NEW, hook::PREEMPT];
    beyond.contains(&hook.index)
}

/// Hooks that tell modes apart and nothing else.
fn only_for_the_split(hook: &Hook) -> bool {
    let schedules = [
        hook::ENTRY,
        hook::LEAVE,
        hook::RELEASE,
        hook::RENAME,
        hook::WAKING,
        hook::WAKEUP,
        hook::WAKEUP_NEW,
        hook::PAIRS,
        hook::PREEMPT,
        hook::CLOCK,
    ];
    !matches!(hook.via, Via::Reader | Via::TaskIterator) && !schedules.contains(&hook.index)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wanted(selection: &Selection) -> Vec<&'static str> {
        let hooks = HOOKS.iter().filter(|hook| selection.excludes(hook).is_none());
        hooks.map(|hook| hook.name).collect()
    }

    #[test]
    fn auto_takes_all_but_what_is_on_request() {
        let auto = wanted(&Selection::default());
        assert!(auto.contains(&"sys_enter") && auto.contains(&"wakeup_preempt"));
        assert!(!auto.contains(&"update_rq_clock"));
        assert_eq!(auto.len() + 1, HOOKS.len());
    }

    #[test]
    fn minimal_is_what_is_required() {
        let minimal = wanted(&Selection { base: Base::Minimal, ..Selection::default() });
        let required: Vec<&str> = HOOKS.iter().filter(|h| h.required).map(|h| h.name).collect();
        assert_eq!(minimal, required);
    }

    #[test]
    fn without_pairs_their_program_is_left_out() {
        let selection = Selection { no_pairs: true, ..Selection::default() };
        assert!(!selection.wants(hook::PAIRS) && selection.wants(hook::SWITCH));
    }

    #[test]
    fn totals_alone_watch_switches_and_what_the_user_names() {
        let totals = Selection { no_split: true, no_pairs: true, ..Selection::default() };
        let per_switch = [hook::ENTRY, hook::LEAVE, hook::WAKING, hook::WAKEUP, hook::WAKEUP_NEW];
        for index in per_switch {
            assert!(!totals.wants(index), "{index}");
        }
        assert!(totals.wants(hook::SWITCH));
        let base = Base::parse("auto,sched_waking").unwrap();
        let named = Selection { base, ..totals };
        assert!(named.wants(hook::WAKING));
    }

    #[test]
    fn totals_without_pairs_say_how_to_keep_them() {
        let selection = Selection { no_split: true, no_pairs: true, ..Selection::default() };
        let pairs = HOOKS.iter().find(|hook| hook.index == hook::PAIRS).unwrap();
        assert!(selection.excludes(pairs).unwrap().contains("--max-pairs N keeps pairs"));
    }

    #[test]
    fn names_add_to_what_is_required() {
        let base = Base::parse("sys_enter, sys_exit").unwrap();
        let selection = Selection { base, ..Selection::default() };
        assert!(selection.wants(hook::SYS_ENTER) && selection.wants(hook::SWITCH));
        assert!(!selection.wants(hook::IRQ_ENTER));
        let base = Base::parse("auto,update_rq_clock").unwrap();
        let all = Selection { base, ..Selection::default() };
        assert_eq!(wanted(&all).len(), HOOKS.len());
    }

    #[test]
    fn what_cannot_be_left_out_says_so() {
        assert!(parse_without("sched_switch").unwrap_err().contains("cannot run without"));
        assert!(parse_without("sys_enter").is_ok());
        let error = Base::parse("sys_enter,nonsense").unwrap_err();
        assert!(error.contains("\"nonsense\"") && error.contains("sched_waking"), "{error}");
    }

    #[test]
    fn without_the_split_only_the_scheduler_is_watched() {
        let totals = wanted(&Selection { no_split: true, ..Selection::default() });
        for name in ["sys_enter", "page_fault_user", "irq_handler_entry", "ptrace_stop"] {
            assert!(!totals.contains(&name), "{name}");
        }
        for name in ["sched_switch", "sched_wakeup", "sched_switch:pairs", "task"] {
            assert!(totals.contains(&name), "{name}");
        }
    }
}
