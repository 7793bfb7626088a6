//! Tasks of the observer workspace, started as `cargo xtask TASK`. One module per task.

mod apt;
mod bench;
mod build;
mod counts;
mod exec;
mod lint;
mod picture;
mod project;
mod run;
mod setup;
mod test;
mod toolchain;
mod vm;

use std::process::ExitCode;

use anyhow::Result;
use clap::{Parser, Subcommand};

use crate::{project::Project, setup::Wanted};

#[derive(Parser)]
#[command(name = "cargo xtask", about = "Tasks of the observer workspace")]
struct Arguments {
    #[command(subcommand)]
    task: Task,
}

#[derive(Subcommand)]
enum Task {
    /// Find or install what a build needs; asks nothing, may be run again
    Setup {
        /// Also what all test tiers need: QEMU, clippy of the eBPF compiler
        #[arg(long)]
        tests: bool,
    },
    /// Build everything and say where the binary is
    Build {
        /// Optimised, as it is meant to be used
        #[arg(long)]
        release: bool,
    },
    /// Build observer and run it as root
    Run(run::Arguments),
    /// Check the format and run clippy on both sides of the kernel border
    Lint,
    /// Run the test tiers: lint, unit, live on this kernel, a test kernel in a virtual machine
    Test(test::Arguments),
    /// Record the picture of the live view for the README; needs root and strace
    Picture,
    /// Run tests on stock Debian kernels in virtual machines
    Vm(vm::Arguments),
    /// Measure what observer costs and how far it reaches; needs root
    Bench(bench::Arguments),
}

fn main() -> ExitCode {
    match perform(Arguments::parse().task) {
        Ok(code) => code,
        Err(error) => {
            eprintln!("xtask: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn perform(task: Task) -> Result<ExitCode> {
    let project = Project::find()?;
    match task {
        Task::Setup { tests } => {
            let wanted = if tests { Wanted::Tests } else { Wanted::Build };
            setup::ensure(&project, wanted)?;
        }
        Task::Build { release } => {
            setup::ensure(&project, Wanted::Build)?;
            build::everything(&project, release)?;
        }
        Task::Run(arguments) => {
            setup::ensure(&project, Wanted::BuildQuietly)?;
            run::run(&project, &arguments)?;
        }
        Task::Picture => {
            setup::ensure(&project, Wanted::BuildQuietly)?;
            picture::task(&project)?;
        }
        Task::Lint => return lint::task(&project),
        Task::Test(arguments) => return test::task(&project, &arguments),
        Task::Vm(arguments) => return vm::task(&project, &arguments),
        Task::Bench(arguments) => return bench::task(&project, &arguments),
    }
    Ok(ExitCode::SUCCESS)
}
