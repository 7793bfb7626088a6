//! What the kernel tells about a loaded program and aya does not hand out.

use std::{
    io,
    os::fd::{AsFd, AsRawFd},
};

use aya_obj::generated::bpf_prog_info;

/// `BPF_OBJ_GET_INFO_BY_FD` (include/uapi/linux/bpf.h).
const BPF_OBJ_GET_INFO_BY_FD: libc::c_long = 15;

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
