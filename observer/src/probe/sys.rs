//! Syscalls that aya does not hand out.

use std::{
    io,
    os::fd::{AsFd, AsRawFd, FromRawFd as _, OwnedFd},
};

use aya_obj::generated::{PERF_FLAG_FD_CLOEXEC, bpf_prog_info, perf_event_attr};

/// `BPF_OBJ_GET_INFO_BY_FD` (include/uapi/linux/bpf.h).
const BPF_OBJ_GET_INFO_BY_FD: libc::c_long = 15;
/// `BPF_MAP_UPDATE_ELEM`.
const BPF_MAP_UPDATE_ELEM: libc::c_long = 2;

#[repr(C)]
struct InfoAttr {
    fd: u32,
    length: u32,
    info: u64,
}

/// A program's statistics.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ProgramStats {
    /// Time in the program while statistics were on.
    pub run_time_ns: u64,
    /// Runs while statistics were on.
    pub run_count: u64,
    /// Runs that the kernel left out since the program was running on that CPU already.
    pub recursion_misses: u64,
}

/// Reads them.
pub fn program_stats(program: impl AsFd) -> io::Result<ProgramStats> {
    // SAFETY: a struct of integers; all zero is valid, and means that nothing more is asked for.
    let mut info: bpf_prog_info = unsafe { std::mem::zeroed() };
    let attr = InfoAttr {
        fd: program.as_fd().as_raw_fd() as u32,
        length: size_of::<bpf_prog_info>() as u32,
        info: (&raw mut info) as u64,
    };
    // SAFETY: the attribute and the info live over the call and have the sizes that are passed.
    let result = unsafe {
        libc::syscall(libc::SYS_bpf, BPF_OBJ_GET_INFO_BY_FD, &raw const attr, size_of::<InfoAttr>())
    };
    if result != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(ProgramStats {
        run_time_ns: info.run_time_ns,
        run_count: info.run_cnt,
        recursion_misses: info.recursion_misses,
    })
}

/// The member of `union bpf_attr` for one element.
#[repr(C)]
struct ElementAttr {
    map_fd: u64,
    key: u64,
    value: u64,
    flags: u64,
}

/// Puts a descriptor into an array of such.
pub fn map_update_fd(map: impl AsFd, index: u32, value: impl AsFd) -> io::Result<()> {
    let value = value.as_fd().as_raw_fd();
    let attr = ElementAttr {
        map_fd: map.as_fd().as_raw_fd() as u64,
        key: (&raw const index) as u64,
        value: (&raw const value) as u64,
        flags: 0,
    };
    // SAFETY: the attribute, the key and the value live over the call; both are 4 bytes, as in each such map.
    let result = unsafe {
        libc::syscall(libc::SYS_bpf, BPF_MAP_UPDATE_ELEM, &raw const attr, size_of::<ElementAttr>())
    };
    if result != 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Opens a counter: of a thread (0 is the caller, -1 all), on a CPU (`None` is any).
pub fn perf_event_open(
    attributes: &perf_event_attr,
    pid: libc::pid_t,
    cpu: Option<i32>,
) -> io::Result<OwnedFd> {
    let no_group = -1;
    // SAFETY: the attributes live over the call and name their own size.
    let result = unsafe {
        libc::syscall(
            libc::SYS_perf_event_open,
            std::ptr::from_ref(attributes),
            pid,
            cpu.unwrap_or(-1),
            no_group,
            libc::c_ulong::from(PERF_FLAG_FD_CLOEXEC),
        )
    };
    let fd =
        i32::try_from(result).ok().filter(|fd| *fd >= 0).ok_or_else(io::Error::last_os_error)?;
    // SAFETY: a new descriptor that nobody else knows.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}
