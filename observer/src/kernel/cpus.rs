//! Sets of CPUs, as the kernel writes them.

use std::{fmt, str::FromStr};

/// A set of CPUs in the kernel's list form, `0-11,16-27` (`%*pbl`, `lib/vsprintf.c`
/// `bitmap_list_string`). Kept as ranges: there is no limit on the number of CPUs, and holes are
/// normal.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CpuList {
    /// First and last CPU of each range; sorted, apart from each other.
    ranges: Vec<(u32, u32)>,
}

/// A text that is no list of CPUs.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is no list of CPUs like 0-3,8")]
pub struct CpuListError(String);

impl CpuList {
    /// How many CPUs are in the set.
    pub fn count(&self) -> u64 {
        self.ranges.iter().map(|(first, last)| u64::from(last - first) + 1).sum()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.ranges.is_empty()
    }

    /// Whether a CPU is in the set.
    pub fn contains(&self, cpu: u32) -> bool {
        self.ranges.iter().any(|(first, last)| (*first..=*last).contains(&cpu))
    }

    /// The highest CPU number; arrays indexed by CPU need one more.
    pub fn last(&self) -> Option<u32> {
        self.ranges.last().map(|(_, last)| *last)
    }

    /// All CPUs of the set, lowest first.
    pub fn iter(&self) -> impl Iterator<Item = u32> {
        self.ranges.iter().flat_map(|(first, last)| *first..=*last)
    }

    /// Reads a file that holds such a list; `None` when it is not there or holds something else.
    pub(super) fn read(path: &str) -> Option<Self> {
        super::read_text(path)?.parse().ok()
    }
}

impl FromStr for CpuList {
    type Err = CpuListError;

    fn from_str(text: &str) -> Result<Self, CpuListError> {
        let error = || CpuListError(text.to_owned());
        let text = text.trim();
        let mut ranges = Vec::new();
        // An empty set is an empty line.
        for part in text.split(',').map(str::trim).filter(|_| !text.is_empty()) {
            let (first, last) = part.split_once('-').unwrap_or((part, part));
            let first: u32 = first.parse().map_err(|_| error())?;
            let last: u32 = last.parse().map_err(|_| error())?;
            if last < first {
                return Err(error());
            }
            ranges.push((first, last));
        }
        ranges.sort_unstable();
        let mut list = Self::default();
        for (first, last) in ranges {
            match list.ranges.last_mut() {
                // Overlapping or touching: one range.
                Some((_, end)) if first <= end.saturating_add(1) => *end = last.max(*end),
                _ => list.ranges.push((first, last)),
            }
        }
        Ok(list)
    }
}

impl fmt::Display for CpuList {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, (first, last)) in self.ranges.iter().enumerate() {
            let comma = if index == 0 { "" } else { "," };
            if first == last {
                write!(f, "{comma}{first}")?;
            } else {
                write!(f, "{comma}{first}-{last}")?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn reads_what_the_kernel_writes() {
        let list: CpuList = "0-11,16-27\n".parse().expect("a list");
        assert_eq!(list.count(), 24);
        assert_eq!(list.last(), Some(27));
        assert!(list.contains(11) && !list.contains(12) && list.contains(16));
        assert_eq!(list.to_string(), "0-11,16-27");
        assert_eq!(list.iter().nth(12), Some(16));
        assert_eq!("3".parse::<CpuList>().expect("one").count(), 1);
        let empty: CpuList = "\n".parse().expect("an empty set");
        assert!(empty.is_empty() && empty.last().is_none() && empty.to_string().is_empty());
    }

    #[test]
    fn puts_odd_lists_in_order() {
        let list: CpuList = "8, 0-3,2-5,6".parse().expect("a list");
        assert_eq!((list.to_string().as_str(), list.count()), ("0-6,8", 8));
        let all: CpuList = "0-4294967295,4294967295".parse().expect("a list");
        assert_eq!(all.count(), 1 << 32);
    }

    #[test]
    fn refuses_what_is_no_list() {
        // "(null)" is what many kernels write for nohz_full when it was not given
        // (`drivers/base/cpu.c` `print_cpus_nohz_full`).
        for text in ["(null)", "a", "3-1", "1-", "-1", "1,,2", "1,", "0-3:1/2", "4294967296"] {
            let error = text.parse::<CpuList>().expect_err(text);
            assert!(error.to_string().contains(text), "{error}");
        }
    }

    proptest! {
        #[test]
        fn any_text_is_survived(text in "[0-9,\\- ]{0,40}") {
            if let Ok(list) = text.parse::<CpuList>() {
                prop_assert_eq!(list.to_string().parse::<CpuList>(), Ok(list));
            }
        }
    }
}
