//! Matching a task's name against a pattern, in the kernel.
//!
//! A pattern is compiled to a bit-parallel automaton (one bit per position): matching takes one table
//! look-up and four operations per byte, without a loop that depends on the pattern, so the verifier sees
//! bounded work and the cost is the same for every pattern.

/// Length of `task_struct.comm` (`TASK_COMM_LEN`, include/linux/sched.h).
pub const COMM_LEN: usize = 16;

/// The longest pattern, counted in elements that consume a byte.
pub const MAX_POSITIONS: usize = 31;

/// A compiled pattern.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Glob {
    /// For each byte, the positions that accept it.
    pub accepts: [u32; 256],
    /// Positions at which a `*` stands: they keep any byte without moving on.
    pub stars: u32,
    /// The position that stands for the end of the pattern.
    pub end: u32,
}

/// Why a pattern cannot be compiled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GlobError {
    /// More than [`MAX_POSITIONS`] elements.
    TooLong,
    /// `[` without `]`, or an empty class.
    OpenClass,
    /// A `\` at the very end.
    OpenEscape,
}

impl Glob {
    /// The pattern that matches nothing but the empty name.
    pub const EMPTY: Self = Self { accepts: [0; 256], stars: 0, end: 1 };

    /// Compiles `*` (any bytes), `?` (any one byte), `[a-z]`, `[!a-z]` (one byte of a class), `\x` (x itself).
    pub fn compile(pattern: &[u8]) -> Result<Self, GlobError> {
        let mut glob = Self::EMPTY;
        let mut position = 0_usize;
        let mut rest = pattern;
        while let [first, after @ ..] = rest {
            rest = after;
            if *first == b'*' {
                glob.stars |= 1 << position;
                continue;
            }
            if position >= MAX_POSITIONS {
                return Err(GlobError::TooLong);
            }
            let bit = 1_u32 << position;
            match *first {
                b'?' => glob.accepts.iter_mut().for_each(|mask| *mask |= bit),
                b'[' => rest = glob.class(bit, after)?,
                b'\\' => {
                    let [escaped, after @ ..] = after else { return Err(GlobError::OpenEscape) };
                    glob.accepts[usize::from(*escaped)] |= bit;
                    rest = after;
                }
                byte => glob.accepts[usize::from(byte)] |= bit,
            }
            position += 1;
        }
        glob.end = 1 << position;
        Ok(glob)
    }

    /// Compiles the class whose text begins after the `[`; returns what follows the `]`.
    fn class<'a>(&mut self, bit: u32, text: &'a [u8]) -> Result<&'a [u8], GlobError> {
        let (negated, mut rest) = match text {
            [b'!' | b'^', after @ ..] => (true, after),
            _ => (false, text),
        };
        let mut members = [false; 256];
        let mut first = true;
        loop {
            match rest {
                [b']', after @ ..] if !first => {
                    rest = after;
                    break;
                }
                [low, b'-', high, after @ ..] if *high != b']' => {
                    (*low..=*high).for_each(|byte| members[usize::from(byte)] = true);
                    rest = after;
                }
                [byte, after @ ..] => {
                    members[usize::from(*byte)] = true;
                    rest = after;
                }
                [] => return Err(GlobError::OpenClass),
            }
            first = false;
        }
        for (mask, member) in self.accepts.iter_mut().zip(members) {
            if member != negated {
                *mask |= bit;
            }
        }
        Ok(rest)
    }

    /// True when the whole name, up to its first NUL, matches.
    #[must_use]
    #[inline(always)]
    pub fn matches(&self, comm: &[u8; COMM_LEN]) -> bool {
        let mut states = 1_u32;
        let mut running = true;
        let mut index = 0;
        while index < COMM_LEN {
            let byte = comm[index];
            running = running && byte != 0;
            if running {
                let moved = (states & self.accepts[usize::from(byte)]) << 1;
                states = moved | (states & self.stars);
            }
            index += 1;
        }
        states & self.end != 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::vec::Vec;

    fn comm(name: &[u8]) -> [u8; COMM_LEN] {
        let mut comm = [0; COMM_LEN];
        comm[..name.len().min(15)].copy_from_slice(&name[..name.len().min(15)]);
        comm
    }

    fn matches(pattern: &str, name: &str) -> bool {
        Glob::compile(pattern.as_bytes()).unwrap().matches(&comm(name.as_bytes()))
    }

    #[test]
    fn patterns_match_as_a_shell_would() {
        for (pattern, name, expected) in [
            ("gcc", "gcc", true),
            ("gcc", "gcc2", false),
            ("g*", "gcc", true),
            ("*", "", true),
            ("", "", true),
            ("", "a", false),
            ("*cc", "gcc", true),
            ("*c*c*", "cc", true),
            ("a*b*c", "a-b-b-c", true),
            ("a*b*c", "a-c-b", false),
            ("k?orker", "kworker", true),
            ("[a-f]*", "gcc", false),
            ("[!a-f]*", "gcc", true),
            ("[]]", "]", true),
            ("[a-]", "-", true),
            ("\\*", "*", true),
            ("\\*", "x", false),
            ("**a", "bba", true),
        ] {
            assert_eq!(matches(pattern, name), expected, "{pattern:?} on {name:?}");
        }
    }

    #[test]
    fn bad_patterns_are_refused() {
        assert_eq!(Glob::compile(b"[a"), Err(GlobError::OpenClass));
        assert_eq!(Glob::compile(b"a\\"), Err(GlobError::OpenEscape));
        assert_eq!(Glob::compile(&[b'a'; 32]), Err(GlobError::TooLong));
        assert!(Glob::compile(&[b'a'; 31]).is_ok());
    }

    /// The textbook definition, by recursion.
    fn reference(pattern: &[u8], name: &[u8]) -> bool {
        match pattern {
            [] => name.is_empty(),
            [b'*', rest @ ..] => (0..=name.len()).any(|skip| reference(rest, &name[skip..])),
            [b'?', rest @ ..] => !name.is_empty() && reference(rest, &name[1..]),
            [byte, rest @ ..] => name.first() == Some(byte) && reference(rest, &name[1..]),
        }
    }

    proptest::proptest! {
        #[test]
        fn agrees_with_the_definition(
            pattern in proptest::collection::vec(proptest::sample::select(Vec::from(*b"ab*?")), 0..10),
            name in proptest::collection::vec(proptest::sample::select(Vec::from(*b"ab")), 0..12),
        ) {
            let glob = Glob::compile(&pattern).unwrap();
            proptest::prop_assert_eq!(glob.matches(&comm(&name)), reference(&pattern, &name));
        }
    }
}
