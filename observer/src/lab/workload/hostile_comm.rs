//! `hostile-comm`: spins under a command name of arbitrary bytes.

use anyhow::{Context as _, Result, bail};
use nix::errno::Errno;
use serde_json::Value;

use super::os::Place;
use super::report::Report;
use super::spin::{LONGEST_MS, spin_as};

/// `TASK_COMM_LEN` less the closing NUL (`include/linux/sched.h`).
const COMM_BYTES: usize = 15;

/// Options of `hostile-comm`.
#[derive(clap::Args, Clone, Debug)]
pub struct HostileCommArgs {
    /// The command name, two hexadecimal digits per byte: up to 15 bytes other than 00
    #[arg(long, value_name = "HEX", value_parser = comm_from_hex)]
    pub name_hex: Comm,
    /// Own user time to use, milliseconds
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..=LONGEST_MS))]
    pub ms: u64,
    #[command(flatten)]
    /// Where to run
    pub place: Place,
}

/// A command name: any bytes but NUL.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Comm(pub Vec<u8>);

/// Parses a command name given in hexadecimal digits.
///
/// # Errors
/// A line that says what is wrong with it.
pub fn comm_from_hex(text: &str) -> Result<Comm, String> {
    let digits: Option<Vec<u8>> =
        text.chars().map(|c| c.to_digit(16).and_then(|digit| u8::try_from(digit).ok())).collect();
    let digits = digits.ok_or("only hexadecimal digits, two per byte")?;
    if digits.len() % 2 != 0 {
        return Err("an odd number of digits: two per byte".to_owned());
    }
    let bytes: Vec<u8> = digits.chunks(2).map(|pair| pair[0] << 4 | pair[1]).collect();
    if bytes.len() > COMM_BYTES {
        return Err(format!("{} bytes: the kernel keeps {COMM_BYTES}", bytes.len()));
    }
    if bytes.contains(&0) {
        return Err("a byte 00 would end the name".to_owned());
    }
    Ok(Comm(bytes))
}

/// Spins under another command name.
///
/// # Errors
/// If the CPU is not allowed or the kernel did not take the name.
pub fn run(args: &HostileCommArgs) -> Result<Value> {
    args.place.apply()?;
    set_comm(&args.name_hex.0)?;
    let name_hex: String = args.name_hex.0.iter().map(|byte| format!("{byte:02x}")).collect();
    spin_as(Report::new("hostile-comm").with("comm_hex", name_hex), args.ms, None)
}

fn set_comm(name: &[u8]) -> Result<()> {
    let mut wanted = [0_u8; COMM_BYTES + 1];
    let mut kept = wanted;
    for (to, from) in wanted.iter_mut().zip(name) {
        *to = *from;
    }
    // SAFETY: PR_SET_NAME reads up to 16 bytes and PR_GET_NAME writes 16; both arrays have 16.
    let done = unsafe {
        libc::prctl(libc::PR_SET_NAME, wanted.as_ptr());
        libc::prctl(libc::PR_GET_NAME, kept.as_mut_ptr())
    };
    Errno::result(done).context("cannot set the command name")?;
    if kept != wanted {
        bail!("the kernel did not take the command name: asked for {wanted:?}, got {kept:?}");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hex_names() {
        assert_eq!(comm_from_hex("").unwrap(), Comm(vec![]));
        assert_eq!(comm_from_hex("1b5B6dff0a22").unwrap().0, b"\x1b[m\xff\n\"");
        assert_eq!(comm_from_hex(&"ff".repeat(15)).unwrap().0, [0xff; 15]);
    }

    #[test]
    fn hex_names_that_cannot_be() {
        for (text, words) in [
            ("abc", "odd number"),
            ("zz", "hexadecimal"),
            ("é0", "hexadecimal"),
            ("61006a", "00"),
            (&*"61".repeat(16), "16 bytes"),
        ] {
            let error = comm_from_hex(text).unwrap_err();
            assert!(error.contains(words), "{text}: {error}");
        }
    }

    #[test]
    fn a_hostile_name_reaches_the_kernel() {
        let name = Comm(b"\x1b[2J\xff\xfe)\n(".to_vec());
        let args = HostileCommArgs { name_hex: name.clone(), ms: 1, place: Place::default() };
        let report = run(&args).unwrap();
        let tid = report["tid"].as_i64().unwrap();
        assert_eq!(report["comm_hex"], "1b5b324afffe290a28");
        let kept = std::fs::read(format!("/proc/self/task/{tid}/comm")).unwrap();
        assert_eq!(kept, [name.0.as_slice(), b"\n"].concat());
    }
}
