//! Memory of the known-answer programs: pages to touch, and counters shared with children.

use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};

use anyhow::{Context as _, Result};
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous, munmap};

/// Anonymous memory, unmapped on drop.
#[derive(Debug)]
pub struct Pages {
    base: NonNull<u8>,
    bytes: usize,
    page_bytes: usize,
}

impl Pages {
    /// Private pages, none of them present, never huge.
    ///
    /// # Errors
    /// If the kernel does not give that much address space.
    pub fn map(count: usize) -> Result<Self> {
        let pages = Self::map_with(count, MapFlags::PRIVATE)?;
        // SAFETY: the range is the mapping just made; the advice changes no contents. A kernel
        // without huge pages answers EINVAL, and then there are none to avoid.
        let _ =
            unsafe { madvise(pages.base.as_ptr().cast(), pages.bytes, Advice::LinuxNoHugepage) };
        Ok(pages)
    }

    fn map_with(count: usize, flags: MapFlags) -> Result<Self> {
        let page_bytes = page_bytes()?;
        let bytes = count.checked_mul(page_bytes).context("too many pages")?;
        // SAFETY: a null address lets the kernel choose unused address space.
        let base = unsafe {
            mmap_anonymous(std::ptr::null_mut(), bytes, ProtFlags::READ | ProtFlags::WRITE, flags)
        }
        .with_context(|| format!("cannot map {count} pages"))?;
        let base = NonNull::new(base.cast()).context("the kernel mapped address 0")?;
        Ok(Self { base, bytes, page_bytes })
    }

    /// Writes one byte of page `index`; pages beyond the end are ignored.
    #[inline]
    pub fn touch(&self, index: usize) {
        let offset = index.saturating_mul(self.page_bytes);
        if offset < self.bytes {
            // SAFETY: the offset lies inside the mapping, which lives as long as self; volatile,
            // and no reference to the memory exists.
            unsafe { self.base.as_ptr().add(offset).write_volatile(1) }
        }
    }
}

impl Drop for Pages {
    fn drop(&mut self) {
        // SAFETY: base and bytes are those of the mapping, and nothing else points into it.
        let _ = unsafe { munmap(self.base.as_ptr().cast(), self.bytes) };
    }
}

/// Counters that a process shares with its children.
#[derive(Debug)]
pub struct Shared {
    pages: Pages,
}

// SAFETY: `&Shared` gives access to the memory through atomics alone; the mapping outlives every reference.
unsafe impl Sync for Shared {}

impl Shared {
    /// Counters in one block, all zero.
    pub const SLOTS: usize = 64;

    /// Maps a block and makes it present.
    ///
    /// # Errors
    /// If no page can be mapped.
    pub fn new() -> Result<Self> {
        let shared = Self { pages: Pages::map_with(1, MapFlags::SHARED)? };
        shared.set(0, 0);
        Ok(shared)
    }

    fn slot(&self, index: usize) -> &AtomicU64 {
        let index = index % Self::SLOTS;
        // SAFETY: a page holds more than SLOTS aligned u64, starts zeroed, lives as long as self,
        // and is only ever accessed through atomics.
        unsafe { AtomicU64::from_ptr(self.pages.base.as_ptr().cast::<u64>().add(index)) }
    }

    /// Reads a counter.
    #[must_use]
    pub fn get(&self, index: usize) -> u64 {
        self.slot(index).load(Ordering::Acquire)
    }

    /// Writes a counter.
    pub fn set(&self, index: usize, value: u64) {
        self.slot(index).store(value, Ordering::Release);
    }

    /// Adds to a counter and returns its old value.
    pub fn add(&self, index: usize, value: u64) -> u64 {
        self.slot(index).fetch_add(value, Ordering::AcqRel)
    }
}

fn page_bytes() -> Result<usize> {
    // SAFETY: sysconf only reads its argument.
    let bytes = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    usize::try_from(bytes).ok().filter(|&bytes| bytes > 0).context("the page size is unknown")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_count_and_wrap_around_the_block() {
        let shared = Shared::new().unwrap();
        assert_eq!(shared.get(3), 0);
        assert_eq!(shared.add(3, 5), 0);
        assert_eq!(shared.add(3, 2), 5);
        assert_eq!(shared.get(3), 7);
        shared.set(Shared::SLOTS + 3, 1);
        assert_eq!(shared.get(3), 1);
    }

    #[test]
    fn more_pages_than_the_address_space_is_an_error() {
        assert!(Pages::map(usize::MAX).is_err());
        assert!(Pages::map(usize::MAX / 8192).is_err());
    }

    #[test]
    fn touching_beyond_the_end_does_nothing() {
        let pages = Pages::map(2).unwrap();
        pages.touch(1);
        pages.touch(2);
        pages.touch(usize::MAX);
    }
}
