//! What is kept for the next start, in a file of this boot.

use std::{
    fs,
    os::unix::fs::{DirBuilderExt as _, MetadataExt as _},
    path::PathBuf,
    process,
};

use log::debug;

use super::judge;
use crate::{
    kernel::Limits,
    model::{Crossings, account::Able},
    probe::Probe,
};

/// The costs are of this boot, this build and these hooks.
pub fn key(probe: &Probe, limits: &Limits, able: Able) -> String {
    let active: String =
        probe.status().iter().map(|status| if status.is_active() { '1' } else { '0' }).collect();
    // Another build measures, or hooks, in another way; its file has another size or time.
    let build = fs::metadata("/proc/self/exe")
        .map(|file| format!("{}-{}.{:09}", file.size(), file.mtime(), file.mtime_nsec()))
        .unwrap_or_default();
    format!(
        "{}-{}-{build}-{active}{}",
        limits.boot_id.as_deref().unwrap_or("unknown"),
        env!("CARGO_PKG_VERSION"),
        // Reading counters lengthens each switch.
        if able.cycles { "c" } else { "" },
    )
}

fn path(key: &str) -> Option<PathBuf> {
    // Only root's word is taken: the folder must be ours.
    nix::unistd::Uid::effective().is_root().then(|| PathBuf::from("/run/observer").join(key))
}

/// None where nothing is kept, or it is damaged: only whole and steady costs are ever stored.
pub fn load(key: &str) -> Option<Crossings> {
    let text = fs::read_to_string(path(key)?).ok()?;
    let (cost_ps, spread_ps) = serde_json::from_str(&text).ok()?;
    Some(Crossings { cost_ps, spread_ps }).filter(judge::is_good)
}

pub fn store(key: &str, crossings: &Crossings) {
    let store = || -> Option<()> {
        let path = path(key)?;
        let _ = fs::DirBuilder::new().mode(0o755).create(path.parent()?);
        // Of this process alone: another may be storing at the same time.
        let draft = path.with_extension(format!("tmp{}", process::id()));
        fs::write(&draft, serde_json::to_vec(&(crossings.cost_ps, crossings.spread_ps)).ok()?)
            .ok()?;
        fs::rename(draft, path).ok()
    };
    if store().is_none() {
        debug!("the calibration could not be kept for the next start");
    }
}
