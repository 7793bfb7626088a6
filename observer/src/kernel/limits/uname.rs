//! Which kernel runs.

/// What `uname` says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Uname {
    /// `6.12.117-amd64`.
    pub release: String,
    /// `#1 SMP PREEMPT_DYNAMIC Debian 6.12.117-1`.
    pub version: String,
    /// `x86_64`: the kernel's, which may differ from what this program was built for.
    pub arch: String,
}

impl Uname {
    /// Asks the kernel.
    pub fn get() -> Self {
        // SAFETY: utsname consists of arrays of characters, for which zeros are valid.
        let mut names: libc::utsname = unsafe { std::mem::zeroed() };
        // SAFETY: the pointer is to a utsname of ours, which the call fills.
        if unsafe { libc::uname(&raw mut names) } != 0 {
            return Self::default();
        }
        Self {
            release: text(&names.release),
            version: text(&names.version),
            arch: text(&names.machine),
        }
    }
}

/// The characters before the first NUL.
fn text(field: &[libc::c_char]) -> String {
    // c_char is i8 on some architectures, u8 on others; the bits are meant.
    let bytes: Vec<u8> = field.iter().map(|c| c.to_ne_bytes()[0]).take_while(|c| *c != 0).collect();
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn agrees_with_procfs() {
        let uname = Uname::get();
        let proc = |name: &str| std::fs::read_to_string(format!("/proc/sys/kernel/{name}"));
        assert_eq!(Some(uname.release.as_str()), proc("osrelease").ok().as_deref().map(str::trim));
        assert_eq!(Some(uname.version.as_str()), proc("version").ok().as_deref().map(str::trim));
    }

    #[test]
    fn takes_text_up_to_the_nul() {
        let field = b"6.12\0junk".map(|byte| libc::c_char::from_ne_bytes([byte]));
        assert_eq!(text(&field), "6.12");
        assert_eq!(text(&field[..2]), "6.");
        assert_eq!(text(&[]), "");
    }
}
