//! The tables of pairs, read many entries to a syscall.

use std::{
    io,
    os::fd::{AsFd, AsRawFd, OwnedFd},
};

use observer_common::{pair::PairKey, ptrace::Trace};

/// `BPF_MAP_LOOKUP_BATCH` (include/uapi/linux/bpf.h), 5.6 and later.
const LOOKUP_BATCH: libc::c_long = 24;
/// `BPF_MAP_DELETE_ELEM`.
const DELETE_ELEM: libc::c_long = 3;
/// Entries to a syscall: about a megabyte.
const CHUNK: usize = 512;

/// The `batch` member of `union bpf_attr`.
#[repr(C)]
#[derive(Default)]
struct BatchAttr {
    in_batch: u64,
    out_batch: u64,
    keys: u64,
    values: u64,
    count: u32,
    map_fd: u32,
    elem_flags: u64,
    flags: u64,
}

/// The member of `union bpf_attr` for one element.
#[repr(C)]
struct ElementAttr {
    map_fd: u64,
    key: u64,
    value: u64,
    flags: u64,
}

/// A hash map from [`PairKey`] to `V`.
pub struct Table<V> {
    fd: OwnedFd,
    keys: Vec<PairKey>,
    values: Vec<V>,
}

impl<V: aya::Pod + Default> Table<V> {
    /// Reads through this descriptor.
    pub fn new(fd: impl AsFd) -> io::Result<Self> {
        Ok(Self {
            fd: fd.as_fd().try_clone_to_owned()?,
            keys: vec![PairKey::default(); CHUNK],
            values: vec![V::default(); CHUNK],
        })
    }

    /// Shows every entry once. One that is being written may be seen half written: each field is whole.
    pub fn for_each(&mut self, mut see: impl FnMut(&PairKey, &V)) -> io::Result<()> {
        // The kernel's place in its table: an opaque u32 for a hash map.
        let mut place = 0_u32;
        let mut is_first = true;
        loop {
            let mut next = 0_u32;
            let mut attr = BatchAttr {
                in_batch: if is_first { 0 } else { (&raw const place) as u64 },
                out_batch: (&raw mut next) as u64,
                keys: self.keys.as_mut_ptr() as u64,
                values: self.values.as_mut_ptr() as u64,
                count: CHUNK as u32,
                map_fd: self.fd.as_raw_fd() as u32,
                ..BatchAttr::default()
            };
            // SAFETY: the buffers hold `count` keys and values of the map's own sizes (both multiples of 8,
            // asserted below), and live over the call.
            let result = unsafe {
                libc::syscall(libc::SYS_bpf, LOOKUP_BATCH, &raw mut attr, size_of::<BatchAttr>())
            };
            let error = (result != 0).then(io::Error::last_os_error);
            let is_last = match &error {
                None => false,
                // ENOENT: that was all (__htab_map_lookup_and_delete_batch, kernel/bpf/hashtab.c).
                Some(error) if error.raw_os_error() == Some(libc::ENOENT) => true,
                Some(_) => return Err(error.unwrap_or_else(io::Error::last_os_error)),
            };
            let count = (attr.count as usize).min(CHUNK);
            self.keys.iter().zip(&self.values).take(count).for_each(|(key, value)| see(key, value));
            if is_last || count == 0 {
                return Ok(());
            }
            (place, is_first) = (next, false);
        }
    }

    /// Takes an entry out. One that is gone already is no fault.
    pub fn remove(&self, key: &PairKey) -> io::Result<()> {
        let attr = ElementAttr {
            map_fd: self.fd.as_raw_fd() as u64,
            key: std::ptr::from_ref(key) as u64,
            value: 0,
            flags: 0,
        };
        // SAFETY: the attribute and the key live over the call.
        let result = unsafe {
            libc::syscall(libc::SYS_bpf, DELETE_ELEM, &raw const attr, size_of::<ElementAttr>())
        };
        match (result != 0).then(io::Error::last_os_error) {
            Some(error) if error.raw_os_error() != Some(libc::ENOENT) => Err(error),
            _ => Ok(()),
        }
    }
}

// The kernel copies values at multiples of their size rounded up to 8.
const _: () = assert!(size_of::<observer_common::pair::Pair>().is_multiple_of(8));
const _: () = assert!(size_of::<Trace>().is_multiple_of(8));
