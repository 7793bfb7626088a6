//! Pairs: the job alone and the job observed, one right after the other, round by round.

use anyhow::{Context as _, Result};

use super::{
    job::{Gate, Job, Spent},
    setup::{Bench, Setup},
    stats::Quartiles,
};

/// What one setup adds to one job.
#[derive(Clone, Debug)]
pub struct Row {
    /// The setup's name.
    pub name: String,
    /// The job alone, CPU ns per unit.
    pub base: Quartiles,
    /// What was added: differences of the pairs, CPU ns per unit.
    pub added: Quartiles,
    /// Ratios of the pairs, by CPU time.
    pub ratio: Quartiles,
    /// Ratios of the pairs, by elapsed time.
    pub wall: Quartiles,
}

/// Runs the job with and without each setup, all of them in each round.
///
/// # Errors
/// When the job fails; a setup that cannot be attached is said and left out.
pub fn rows(place: &Bench, job: &Job, setups: &[Setup]) -> Result<Vec<Row>> {
    let mut setups: Vec<&Setup> = setups.iter().filter(|setup| is_there(setup)).collect();
    let mut pairs: Vec<Vec<(Spent, Spent)>> = vec![Vec::new(); setups.len()];
    for round in 0..place.rounds {
        eprint!("\rround {} of {} ", round + 1, place.rounds);
        let mut failed = None;
        for (index, setup) in setups.iter().enumerate() {
            match pair(place, job, setup, round % 2 == 1) {
                Ok(pair) => pairs[index].push(pair),
                Err(error) if round == 0 => {
                    eprintln!("\n{}: left out: {error:#}", setup.name);
                    failed.get_or_insert_with(Vec::new).push(index);
                }
                Err(error) => return Err(error.context(setup.name.clone())),
            }
        }
        for index in failed.into_iter().flatten().rev() {
            setups.remove(index);
            pairs.remove(index);
        }
    }
    eprintln!();
    setups.iter().zip(&pairs).map(|(setup, pairs)| row(&setup.name, pairs)).collect()
}

fn is_there(setup: &Setup) -> bool {
    match setup.tool() {
        Some(tool) if crate::exec::which(tool).is_none() => {
            eprintln!("{}: left out: there is no {tool} here", setup.name);
            false
        }
        _ => true,
    }
}

fn pair(place: &Bench, job: &Job, setup: &Setup, setup_first: bool) -> Result<(Spent, Spent)> {
    if setup_first {
        let with = observed(place, job, setup)?;
        return Ok((Gate::start(job, &[])?.open()?, with));
    }
    let alone = Gate::start(job, &[])?.open()?;
    Ok((alone, observed(place, job, setup)?))
}

fn observed(place: &Bench, job: &Job, setup: &Setup) -> Result<Spent> {
    let gate = Gate::start(job, &setup.prefix())?;
    let attached = setup.attach(place, gate.pid())?;
    let spent = gate.open()?;
    drop(attached);
    Ok(spent)
}

fn row(name: &str, pairs: &[(Spent, Spent)]) -> Result<Row> {
    let of = |value: &dyn Fn(&(Spent, Spent)) -> f64| {
        Quartiles::of(pairs.iter().map(value)).with_context(|| format!("no pair of {name}"))
    };
    Ok(Row {
        name: name.to_owned(),
        base: of(&|(alone, _)| alone.cpu_ns)?,
        added: of(&|(alone, with)| with.cpu_ns - alone.cpu_ns)?,
        ratio: of(&|(alone, with)| with.cpu_ns / alone.cpu_ns)?,
        wall: of(&|(alone, with)| with.wall_ns / alone.wall_ns)?,
    })
}

/// The rows as a table in Markdown.
#[must_use]
pub fn table(unit: &str, rows: &[Row]) -> String {
    let mut text = format!(
        "| observed by | added, ns per {unit}: median (quartiles) | ratio of CPU time | ratio of elapsed time | alone, ns | pairs |\n\
         |---|---|---|---|---|---|\n"
    );
    for row in rows {
        let Row { name, base, added, ratio, wall } = row;
        text += &format!(
            "| {name} | {:+.0} ({:+.0} to {:+.0}) | {:.2} | {:.2} | {:.0} | {} |\n",
            added.median,
            added.low,
            added.high,
            ratio.median,
            wall.median,
            base.median,
            added.count
        );
    }
    text
}

/// The rows as JSON lines.
#[must_use]
pub fn json(bench: &str, unit: &str, rows: &[Row]) -> Vec<serde_json::Value> {
    let three = |q: &Quartiles| serde_json::json!([q.low, q.median, q.high]);
    rows.iter()
        .map(|row| {
            serde_json::json!({
                "bench": bench,
                "name": row.name,
                "unit": format!("ns per {unit}"),
                "pairs": row.added.count,
                "base": three(&row.base),
                "added": three(&row.added),
                "ratio": three(&row.ratio),
                "wall_ratio": three(&row.wall),
            })
        })
        .collect()
}
