//! Maps that both sides share, read without a syscall.

use std::{ffi::c_void, io, marker::PhantomData, os::fd::AsFd, ptr::NonNull, time::Duration};

use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};

/// A `BPF_F_MMAPABLE` array of `T`, mapped into this process.
pub struct SharedArray<T> {
    base: NonNull<c_void>,
    bytes: usize,
    entries: usize,
    element: PhantomData<T>,
}

// SAFETY: the mapping is plain memory, read and written only through volatile accesses of whole fields.
unsafe impl<T: Send> Send for SharedArray<T> {}

impl<T: aya::Pod> SharedArray<T> {
    /// Elements lie at multiples of their size rounded up to 8 (kernel/bpf/arraymap.c, `array_map_alloc`).
    const STRIDE: usize = size_of::<T>().next_multiple_of(8);

    /// Maps the whole array.
    pub fn map(fd: impl AsFd, entries: u32) -> io::Result<Self> {
        let entries = entries as usize;
        let bytes = (entries * Self::STRIDE).next_multiple_of(rustix::param::page_size());
        // SAFETY: a new mapping at an address that the kernel chooses.
        let base = unsafe {
            mmap(
                std::ptr::null_mut(),
                bytes,
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::SHARED,
                fd,
                0,
            )
        }?;
        let base = NonNull::new(base).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(Self { base, bytes, entries, element: PhantomData })
    }

    /// How many elements there are.
    pub fn len(&self) -> usize {
        self.entries
    }

    /// The address of an element; `None` beyond the end.
    pub fn at(&self, index: usize) -> Option<NonNull<T>> {
        if index >= self.entries {
            return None;
        }
        // SAFETY: `index` is inside, so the result is inside the mapping.
        Some(unsafe { self.base.byte_add(index * Self::STRIDE) }.cast())
    }

    /// A copy of an element. Another CPU may be writing it: see the element's own rule.
    pub fn read(&self, index: usize) -> Option<T> {
        // SAFETY: inside the mapping, aligned, and every byte pattern is a valid T (Pod).
        self.at(index).map(|element| unsafe { element.read_volatile() })
    }
}

/// How long a copy is tried again. Whoever writes is done within a microsecond, unless a hypervisor takes its CPU away in
/// the middle: that lasts milliseconds.
#[derive(Default)]
pub struct Patience {
    tries: u32,
}

impl Patience {
    const SPINS: u32 = 64;
    const NAPS: u32 = 200;
    /// With the timer's slack some 150 us, so 30 ms in all.
    const NAP: Duration = Duration::from_micros(100);

    /// Waits before the next try; false when there have been enough.
    pub fn wait(&mut self) -> bool {
        self.tries += 1;
        if self.tries <= Self::SPINS {
            std::hint::spin_loop();
        } else {
            std::thread::sleep(Self::NAP);
        }
        self.tries <= Self::SPINS + Self::NAPS
    }
}

/// Copies, until one `is_settled` after the one before it: whoever writes may be in the middle, and so may a hook that
/// interrupts the copying itself. When that has been tried for long, the last copy.
pub fn settled<T>(
    mut copy: impl FnMut() -> Option<T>,
    is_settled: impl Fn(&T, &T) -> bool,
) -> Option<T> {
    let mut patience = Patience::default();
    let mut last = copy()?;
    loop {
        std::sync::atomic::fence(std::sync::atomic::Ordering::Acquire);
        let next = copy()?;
        if is_settled(&last, &next) || !patience.wait() {
            return Some(next);
        }
        last = next;
    }
}

impl<T> Drop for SharedArray<T> {
    fn drop(&mut self) {
        // SAFETY: mapped by us with this size, and nobody holds a reference into it.
        let _ = unsafe { munmap(self.base.as_ptr(), self.bytes) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_copy_is_taken_again_until_it_holds_still() {
        let read = |values: &[u32]| {
            let mut left = values.iter().copied();
            let copy = settled(|| left.next(), |a, b| a == b);
            (copy, left.count())
        };
        assert_eq!(read(&[1, 2, 3, 3, 4]), (Some(3), 1));
        assert_eq!(read(&[1, 1, 2]), (Some(1), 1));
        assert_eq!(read(&[]), (None, 0));
        let mut count = 0;
        let mut counted = || {
            count += 1;
            Some(count)
        };
        let never = settled(&mut counted, |a, b| a == b);
        assert_eq!(never, Some(2 + Patience::SPINS + Patience::NAPS), "the last of all tries");
    }

    #[test]
    fn a_writer_that_is_held_up_for_milliseconds_is_waited_for() {
        let begin = std::time::Instant::now();
        let held_up = Duration::from_millis(8);
        let is_whole = settled(|| Some(begin.elapsed() > held_up), |_, is_whole| *is_whole);
        assert_eq!(is_whole, Some(true));
    }
}
