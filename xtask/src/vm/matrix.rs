//! The matrix: which kernel is booted how, and which suite of cases runs there.

use anyhow::{Result, bail};

use super::kernels::{self, Kernel};

/// A set of cases.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Suite {
    /// Hooks, known answers, identities, controls.
    Matrix,
    /// Lockdown, missing rights, missing files.
    Refusals,
    /// The kernel's own exact times on a `nohz_full` CPU.
    Oracle,
    /// The same where guest time follows the host's clock: without what this distorts.
    OracleByHost,
}

/// One boot.
#[derive(Debug, PartialEq, Eq)]
pub struct Setup {
    /// What it is called on the command line: the kernel's name, and what is special.
    pub name: &'static str,
    /// The name of its kernel.
    kernel: &'static str,
    /// More of the kernel's command line.
    pub append: &'static str,
    /// Virtual CPUs.
    pub smp: u32,
    /// What runs there.
    pub suite: Suite,
}

impl Setup {
    /// Its kernel.
    ///
    /// # Errors
    /// When the table of kernels has lost it.
    pub fn kernel(&self) -> Result<&'static Kernel> {
        kernels::find(self.kernel)
    }
}

/// All boots, oldest kernel first. One CPU where a suite needs no more: then everything preempts everything.
pub const SETUPS: &[Setup] = &[
    matrix("5.10", "5.10", ""),
    matrix("6.1", "6.1", ""),
    matrix("6.12-none", "6.12", "preempt=none"),
    matrix("6.12-voluntary", "6.12", "preempt=voluntary"),
    matrix("6.12-full", "6.12", "preempt=full"),
    matrix("7.x-lazy", "7.x", "preempt=lazy"),
    matrix("7.x-full", "7.x", "preempt=full"),
    // The only PMU that can be had with a kernel this old.
    matrix("5.10-arm64", "5.10-arm64", ""),
    matrix("6.12-arm64", "6.12-arm64", ""),
    Setup { suite: Suite::Refusals, ..matrix("6.12-refusals", "6.12", "") },
    // With guest time tied to instructions it hangs while it wakes its second CPU (QEMU 7.2).
    Setup { suite: Suite::OracleByHost, ..oracle("6.1-oracle", "6.1", "nohz_full=1") },
    oracle("6.12-oracle", "6.12", "nohz_full=1 preempt=full"),
    oracle("7.x-oracle", "7.x", "nohz_full=1 preempt=full"),
];

/// Taken when none is named: the strictest verifier, and the kernel that shifts most.
pub const DEFAULT: &[&str] = &["6.1", "6.12-full"];

const fn matrix(name: &'static str, kernel: &'static str, append: &'static str) -> Setup {
    Setup { name, kernel, append, smp: 1, suite: Suite::Matrix }
}

const fn oracle(name: &'static str, kernel: &'static str, append: &'static str) -> Setup {
    Setup { name, kernel, append, smp: 2, suite: Suite::Oracle }
}

/// The setups of these names, in the table's order; the name of a kernel means all of its setups. Without a
/// name, [`DEFAULT`].
///
/// # Errors
/// On a name that is in neither table.
pub fn choose(names: &[String]) -> Result<Vec<&'static Setup>> {
    let is_meant = |setup: &Setup, name: &str| setup.name == name || setup.kernel == name;
    for name in names {
        if !SETUPS.iter().any(|setup| is_meant(setup, name)) {
            let known: Vec<_> = SETUPS.iter().map(|setup| setup.name).collect();
            bail!("there is no kernel or setup {name}; known are {}", known.join(", "));
        }
    }
    let wanted = |setup: &&Setup| {
        if names.is_empty() {
            DEFAULT.contains(&setup.name)
        } else {
            names.iter().any(|name| is_meant(setup, name))
        }
    };
    Ok(SETUPS.iter().filter(wanted).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chosen(names: &[&str]) -> Result<Vec<&'static str>> {
        let names: Vec<_> = names.iter().map(|name| (*name).to_owned()).collect();
        choose(&names).map(|setups| setups.iter().map(|setup| setup.name).collect())
    }

    #[test]
    fn setups_are_chosen_by_their_name_or_their_kernels() {
        assert_eq!(chosen(&[]).unwrap(), DEFAULT);
        assert_eq!(chosen(&["7.x-full", "5.10"]).unwrap(), ["5.10", "7.x-full"]);
        assert_eq!(chosen(&["7.x"]).unwrap(), ["7.x-lazy", "7.x-full", "7.x-oracle"]);
        let error = chosen(&["6.6"]).unwrap_err().to_string();
        assert!(error.starts_with("there is no kernel or setup 6.6; known are 5.10, "), "{error}");
    }

    #[test]
    fn every_setup_has_a_name_of_its_own_and_a_kernel() {
        let names: std::collections::BTreeSet<_> = SETUPS.iter().map(|setup| setup.name).collect();
        assert_eq!(names.len(), SETUPS.len());
        for setup in SETUPS {
            setup.kernel().unwrap();
        }
    }
}
