//! `cargo xtask test`: the test tiers, from the cheapest to the dearest.

use std::{
    io,
    process::{Command, ExitCode},
    time::{Duration, Instant},
};

use anyhow::Result;

use crate::{
    counts::Counts,
    exec::{self, Root},
    lint,
    project::Project,
    setup::{self, Wanted},
    toolchain::{self, Toolchain},
    vm,
};

/// Run the test tiers.
#[derive(clap::Args)]
pub struct Arguments {
    /// Every setup of the kernel matrix in virtual machines, not only a few
    #[arg(long)]
    full: bool,
    /// Only tests with this in their name, without lint and virtual machines
    filter: Option<String>,
}

/// Runs every tier, also after a failed one.
///
/// # Errors
/// When setup fails. A tier that fails is told by the exit status.
pub fn task(project: &Project, arguments: &Arguments) -> Result<ExitCode> {
    let filter = arguments.filter.as_deref();
    let wanted = if filter.is_some() { Wanted::BuildQuietly } else { Wanted::Tests };
    if wanted == Wanted::Tests {
        title("setup");
    }
    let toolchain = setup::ensure(project, wanted)?;
    let mut tiers = Vec::new();
    if filter.is_none() {
        tiers.push(tier("lint", || lint_tier(project, &toolchain)));
    }
    tiers.push(tier("unit", || unit_tier(project, filter)));
    // The root-only tests are ignored there and run here.
    let unit = tiers.last().map_or(Counts::default(), |tier| tier.counts);
    tiers.push(tier("live", || live_tier(project, filter)));
    let live = tiers.last().map_or(Counts::default(), |tier| tier.counts);
    if let Some(tier) = tiers.iter_mut().find(|tier| tier.name == "unit") {
        tier.counts.skipped = unit.skipped.saturating_sub(live.ran() + live.skipped);
    }
    if filter.is_none() {
        tiers.push(tier("vm", || vm_tier(project, arguments.full)));
    }
    Ok(conclude(&tiers, filter))
}

/// What a tier came to.
struct Tier {
    name: &'static str,
    counts: Counts,
    took: Duration,
}

fn title(name: &str) {
    println!("\n== {name} ==");
}

/// Runs a tier. An error counts as one failed test where no test says so itself.
fn tier(name: &'static str, run: impl FnOnce() -> Result<Counts>) -> Tier {
    title(name);
    let started = Instant::now();
    let counts = run().unwrap_or_else(|error| {
        println!("{name}: {error:#}");
        Counts { failed: 1, ..Counts::default() }
    });
    Tier { name, counts, took: started.elapsed() }
}

fn lint_tier(project: &Project, toolchain: &Toolchain) -> Result<Counts> {
    let skipped = lint::lint(project, toolchain)?;
    // Lints are no tests: they add nothing to the number of those that passed.
    Ok(Counts { skipped: skipped.len() as u64, ..Counts::default() })
}

fn unit_tier(project: &Project, filter: Option<&str>) -> Result<Counts> {
    let mut cargo = project.cargo("test");
    cargo.args(["--workspace", "--exclude", "observer-ebpf", "--no-fail-fast"]).args(filter);
    run_tests(&mut cargo, filter, &mut io::stdout())
}

fn live_tier(project: &Project, filter: Option<&str>) -> Result<Counts> {
    let mut cargo = project.cargo("test");
    match Root::find() {
        Root::Direct => {}
        Root::Sudo => {
            let triple = toolchain::host_triple()?.to_uppercase().replace('-', "_");
            cargo.env(format!("CARGO_TARGET_{triple}_RUNNER"), "sudo -n -E");
        }
        Root::No => return Ok(skipped("live: neither root nor sudo without a password")),
    }
    cargo.args(["--release", "--package", "observer", "--test", "live*", "--no-fail-fast"]);
    cargo.args(filter).args(["--", "--ignored", "--test-threads=1"]);
    run_tests(&mut cargo, filter, &mut io::stdout())
}

fn vm_tier(project: &Project, full: bool) -> Result<Counts> {
    let mut arguments = vm::Arguments::default();
    if full {
        let all = vm::matrix::SETUPS.iter().map(|setup| setup.name.to_owned());
        arguments.kernels = all.collect();
    }
    vm::run(project, &arguments)
}

/// Says loudly that a tier did not run.
fn skipped(why: &str) -> Counts {
    println!("SKIPPED: {why}");
    Counts { skipped: 1, ..Counts::default() }
}

/// Runs cargo test and sums up its test programs.
fn run_tests(cargo: &mut Command, filter: Option<&str>, out: &mut dyn io::Write) -> Result<Counts> {
    let mut counts = Counts::default();
    let status = exec::tee(cargo, out, |line| counts.add_line(line))?;
    if !status.success() {
        // A build that fails, or a test program that dies, has no line that says so.
        counts.failed = counts.failed.max(1);
        println!("`{}` failed: {status}", exec::show(cargo));
    } else if counts.ran() == 0 && filter.is_none() {
        counts.failed = 1;
        println!("`{}` ran no test", exec::show(cargo));
    }
    Ok(counts)
}

/// Prints the table and the line that sums up, which must stay the last one.
fn conclude(tiers: &[Tier], filter: Option<&str>) -> ExitCode {
    let mut sum = Counts::default();
    title("summary");
    println!(
        "{:<8}{:<10}{:>8}{:>8}{:>9}{:>10}",
        "tier", "result", "passed", "failed", "skipped", "time"
    );
    for Tier { name, counts, took } in tiers {
        sum += *counts;
        let Counts { passed, failed, skipped } = *counts;
        let took = format!("{:.1} s", took.as_secs_f64());
        println!("{name:<8}{:<10}{passed:>8}{failed:>8}{skipped:>9}{took:>10}", result(*counts));
    }
    if let Some(filter) = filter.filter(|_| sum.ran() == 0) {
        println!("no test that could run has {filter:?} in its name");
        sum.failed += 1;
    }
    println!("tests: {sum}");
    if sum.failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn result(counts: Counts) -> &'static str {
    match counts {
        Counts { failed: 1.., .. } => "FAILED",
        Counts { passed: 0, skipped: 1.., .. } => "SKIPPED",
        _ => "ok",
    }
}

#[cfg(test)]
mod tests {
    use anyhow::bail;

    use super::*;

    const PASSED: Counts = Counts { passed: 3, failed: 0, skipped: 1 };

    fn script(text: &str) -> Command {
        let mut command = Command::new("sh");
        command.args(["-c", text]);
        command
    }

    const SUM: &str = "echo 'test result: ok. 3 passed; 0 failed; 1 ignored; 0 measured'";

    #[test]
    fn a_tier_fails_with_its_tests_its_build_and_its_absence() {
        let run = |text: &str| run_tests(&mut script(text), None, &mut io::sink()).unwrap();
        assert_eq!(run(SUM), PASSED);
        // A test program that died after another had passed.
        assert_eq!(run(&format!("{SUM}; exit 101")).failed, 1);
        assert_eq!(run("exit 101").failed, 1);
        assert_eq!(run("true").failed, 1);
        // With a filter, one tier may have nothing to run.
        let filtered = run_tests(&mut script("true"), Some("name"), &mut io::sink()).unwrap();
        assert_eq!(filtered, Counts::default());
    }

    #[test]
    fn an_error_of_a_tier_is_a_failure() {
        let failed = tier("unit", || bail!("broken"));
        assert_eq!(failed.counts, Counts { passed: 0, failed: 1, skipped: 0 });
    }

    #[test]
    fn a_tier_that_only_skipped_is_not_called_ok() {
        assert_eq!(result(skipped("why")), "SKIPPED");
        assert_eq!(result(PASSED), "ok");
        assert_eq!(result(Counts { failed: 1, ..PASSED }), "FAILED");
    }

    #[test]
    fn the_exit_status_follows_the_sum() {
        let with = |counts| [Tier { name: "unit", counts, took: Duration::ZERO }];
        assert_eq!(conclude(&with(PASSED), None), ExitCode::SUCCESS);
        assert_eq!(conclude(&with(Counts { failed: 1, ..PASSED }), None), ExitCode::FAILURE);
        assert_eq!(conclude(&with(Counts::default()), Some("x")), ExitCode::FAILURE);
    }
}
