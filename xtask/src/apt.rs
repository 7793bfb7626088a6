//! Debian packages of the machine itself.

use std::{
    collections::BTreeSet,
    io,
    process::{Command, Stdio},
};

use anyhow::{Context, Result, bail};

use crate::exec::{self, Root};

/// Installs packages, without a question to the user.
///
/// # Errors
/// When this machine or these rights do not allow it; the text names the command that a person can run.
pub fn install(packages: &[&str]) -> Result<()> {
    let by_hand = format!("sudo apt-get install --no-install-recommends {}", packages.join(" "));
    if exec::which("apt-get").is_none() {
        bail!("there is no apt-get here (on Debian it would be `{by_hand}`)");
    }
    let root = Root::find();
    if root == Root::No {
        bail!("neither root nor sudo without a password; run `{by_hand}`");
    }
    let mut missing = unavailable(packages)?;
    let fresh = !missing.is_empty();
    if fresh {
        // A new machine has no package lists.
        apt_get(root, &["update"])?;
        missing = unavailable(packages)?;
    }
    if !missing.is_empty() {
        bail!("the machine's apt sources do not have {}", missing.join(", "));
    }
    let mut arguments = vec!["install", "--yes", "--no-install-recommends"];
    arguments.extend_from_slice(packages);
    let first = apt_get(root, &arguments);
    if first.is_ok() || fresh {
        return first;
    }
    // Old lists name versions that the mirror no longer has.
    apt_get(root, &["update"])?;
    apt_get(root, &arguments).with_context(|| format!("run `{by_hand}` to see why"))
}

fn apt_get(root: Root, arguments: &[&str]) -> Result<()> {
    // `env` since sudo does not pass variables on.
    let Some(mut command) = root.command("env") else {
        bail!("neither root nor sudo without a password");
    };
    command.args(["DEBIAN_FRONTEND=noninteractive", "apt-get", "--quiet"]);
    command.args(["-o", "DPkg::Lock::Timeout=120"]).args(arguments);
    // What is said belongs to the words, not to the data, of whatever task needed the packages.
    exec::run(command.stdin(Stdio::null()).stdout(io::stderr()))
}

/// Those of `packages` that apt could not install.
fn unavailable<'a>(packages: &[&'a str]) -> Result<Vec<&'a str>> {
    let mut command = Command::new("apt-cache");
    command.env("LC_ALL", "C").arg("policy").args(packages);
    let known = candidates(&exec::output(&mut command)?);
    Ok(packages.iter().copied().filter(|name| !known.contains(*name)).collect())
}

/// The packages with a candidate version in the output of `apt-cache policy`.
fn candidates(policy: &str) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    let mut package = "";
    for line in policy.lines() {
        if let Some(name) = line.strip_suffix(':').filter(|_| !line.starts_with(' ')) {
            package = name;
        } else if let Some(version) = line.trim_start().strip_prefix("Candidate: ")
            && version != "(none)"
        {
            found.insert(package.to_owned());
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_packages_with_a_candidate_count() {
        let policy = "\
rustc-web:
  Installed: (none)
  Candidate: 1.96.0+dfsg1-1~deb12u2
  Version table:
     1.96.0+dfsg1-1~deb12u2 500
        500 http://mirror.example/debian bookworm/main amd64 Packages
only-a-virtual-name:
  Installed: (none)
  Candidate: (none)
  Version table:
";
        assert_eq!(candidates(policy), BTreeSet::from(["rustc-web".to_owned()]));
        assert!(candidates("").is_empty());
    }
}
