//! What a syscall costs more: a loop of getppid.

use anyhow::Result;

use super::{
    Section,
    job::Job,
    paired,
    setup::{Bench, Kind, Observed, Setup},
};

/// Calls.
const CALLS: u64 = 500_000;

/// The loop alone, with an empty pair, and observed.
///
/// # Errors
/// When it fails.
pub fn run(place: &Bench) -> Result<Vec<Section>> {
    let (cpu, count) = (place.cpu.to_string(), CALLS.to_string());
    let words = ["taskset", "-c", &cpu].map(Into::into).into_iter();
    let words = words.chain([std::env::current_exe()?.into()]);
    let command = words.chain(["bench", "load", "getppid", &count].map(Into::into)).collect();
    let job = Job { command, units: CALLS as f64 };
    let observer = |name: &str, observed, options: &[&str]| {
        let options = options.iter().map(|option| (*option).to_owned()).collect();
        Setup::new(name, Kind::Observer(observed, options))
    };
    let setups = [
        Setup::new(
            "empty programs at sys_enter and sys_exit",
            Kind::Empty(super::present(&["sys_enter", "sys_exit"])),
        ),
        observer("observer, another observed", Observed::Another, &[]),
        observer("observer, observed", Observed::Job, &[]),
        observer("observer --all", Observed::All, &[]),
        observer("observer --no-split, observed", Observed::Job, &["--no-split"]),
    ];
    let rows = paired::rows(place, &job, &setups)?;
    let mut section = Section::paired("syscall", "syscall", &rows);
    let added =
        |name: &str| rows.iter().find(|row| row.name.starts_with(name)).map(|row| row.added.median);
    if let (Some(floor), Some(other)) = (added("empty"), added("observer, another")) {
        section.text += &format!(
            "\nA syscall of a task that is not observed: {:.2} times an empty pair (goal: 1.3).\n",
            other / floor
        );
    }
    Ok(vec![section])
}
