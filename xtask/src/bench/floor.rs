//! The floor: what a program at a tracepoint costs that does nothing.
//!
//! Two instructions need no compiler and no loader, and nothing of this is in the product: the types of the
//! tracepoints are found by name in the kernel's BTF, and the program is loaded by bpf(2) itself.

use std::{
    fs, io,
    os::fd::{AsRawFd as _, FromRawFd as _, OwnedFd},
};

use anyhow::{Context as _, Result, ensure};

/// `BPF_PROG_LOAD`, `BPF_RAW_TRACEPOINT_OPEN` (include/uapi/linux/bpf.h).
const PROG_LOAD: libc::c_long = 5;
const RAW_TRACEPOINT_OPEN: libc::c_long = 17;
/// `BPF_PROG_TYPE_TRACING`, `BPF_TRACE_RAW_TP`.
const TRACING: u32 = 26;
const TRACE_RAW_TP: u32 = 23;
/// `mov64 r0, 0` and `exit`.
const PROGRAM: [u64; 2] = [0xb7, 0x95];

/// `union bpf_attr` for `BPF_PROG_LOAD`, up to `attach_btf_id`.
#[repr(C)]
#[derive(Default)]
struct LoadAttr {
    prog_type: u32,
    insn_cnt: u32,
    insns: u64,
    license: u64,
    log_level: u32,
    log_size: u32,
    log_buf: u64,
    kern_version: u32,
    prog_flags: u32,
    prog_name: [u8; 16],
    prog_ifindex: u32,
    expected_attach_type: u32,
    prog_btf_fd: u32,
    func_info_rec_size: u32,
    func_info: u64,
    func_info_cnt: u32,
    line_info_rec_size: u32,
    line_info: u64,
    line_info_cnt: u32,
    attach_btf_id: u32,
}

/// `union bpf_attr` for `BPF_RAW_TRACEPOINT_OPEN`.
#[repr(C)]
struct OpenAttr {
    name: u64,
    prog_fd: u32,
    _pad: u32,
}

/// Empty programs, attached until this is dropped.
pub struct Floor {
    _programs: Vec<(OwnedFd, OwnedFd)>,
}

impl Floor {
    /// Attaches one empty program to each tracepoint; a name that comes twice gets two.
    ///
    /// # Errors
    /// When the kernel has no such tracepoint or refuses the program.
    pub fn attach(tracepoints: &[&str]) -> Result<Self> {
        let btf = fs::read("/sys/kernel/btf/vmlinux").context("the kernel's BTF")?;
        let types = Types::read(&btf).context("the kernel's BTF cannot be read")?;
        let one = |name: &&str| -> Result<(OwnedFd, OwnedFd)> {
            let id = types.typedef(&format!("btf_trace_{name}"));
            let id = id.with_context(|| format!("this kernel has no tracepoint {name}"))?;
            let program = load(id).with_context(|| format!("an empty program for {name}"))?;
            let link = open(&program).with_context(|| format!("cannot attach to {name}"))?;
            Ok((program, link))
        };
        Ok(Self { _programs: tracepoints.iter().map(one).collect::<Result<_>>()? })
    }

    /// True when this kernel has the tracepoint.
    pub fn has(tracepoint: &str) -> bool {
        let Ok(btf) = fs::read("/sys/kernel/btf/vmlinux") else { return false };
        Types::read(&btf)
            .is_some_and(|types| types.typedef(&format!("btf_trace_{tracepoint}")).is_some())
    }
}

fn load(btf_id: u32) -> io::Result<OwnedFd> {
    let attr = LoadAttr {
        prog_type: TRACING,
        insn_cnt: PROGRAM.len() as u32,
        insns: PROGRAM.as_ptr() as u64,
        license: c"GPL".as_ptr() as u64,
        prog_name: *b"bench_floor\0\0\0\0\0",
        expected_attach_type: TRACE_RAW_TP,
        attach_btf_id: btf_id,
        ..LoadAttr::default()
    };
    bpf(PROG_LOAD, &attr)
}

fn open(program: &OwnedFd) -> io::Result<OwnedFd> {
    // The name is in the program already (its BTF id).
    bpf(RAW_TRACEPOINT_OPEN, &OpenAttr { name: 0, prog_fd: program.as_raw_fd() as u32, _pad: 0 })
}

fn bpf<T>(command: libc::c_long, attr: &T) -> io::Result<OwnedFd> {
    // SAFETY: the attribute and what it points to live over the call, and its size is passed.
    let fd =
        unsafe { libc::syscall(libc::SYS_bpf, command, std::ptr::from_ref(attr), size_of::<T>()) };
    match i32::try_from(fd) {
        // SAFETY: a descriptor that the kernel has just given to us alone.
        Ok(fd) if fd >= 0 => Ok(unsafe { OwnedFd::from_raw_fd(fd) }),
        _ => Err(io::Error::last_os_error()),
    }
}

/// As much of a BTF as it takes to find a typedef (Documentation/bpf/btf.rst).
struct Types<'a> {
    types: &'a [u8],
    strings: &'a [u8],
}

const KIND_TYPEDEF: u32 = 8;

impl<'a> Types<'a> {
    fn read(btf: &'a [u8]) -> Option<Self> {
        let word = |at: usize| u32_at(btf, at).map(|word| word as usize);
        if btf.get(..2)? != 0xeb9f_u16.to_ne_bytes() {
            return None;
        }
        let header = word(4)?;
        let section = |offset: usize, length: usize| btf.get(header + offset..)?.get(..length);
        let types = section(word(8)?, word(12)?)?;
        Some(Self { types, strings: section(word(16)?, word(20)?)? })
    }

    /// The id of the typedef of this name.
    fn typedef(&self, name: &str) -> Option<u32> {
        let (mut at, mut id) = (0, 1);
        loop {
            let (name_at, info) = (u32_at(self.types, at)?, u32_at(self.types, at + 4)?);
            let kind = info >> 24 & 0x1f;
            if kind == KIND_TYPEDEF && self.is_named(name_at as usize, name) {
                return Some(id);
            }
            at += 12 + extra_bytes(kind, (info & 0xffff) as usize)?;
            id += 1;
        }
    }

    fn is_named(&self, at: usize, name: &str) -> bool {
        let rest = self.strings.get(at..).unwrap_or_default();
        rest.starts_with(name.as_bytes()) && rest.get(name.len()) == Some(&0)
    }
}

/// What follows `struct btf_type` for this kind and number of members.
fn extra_bytes(kind: u32, members: usize) -> Option<usize> {
    Some(match kind {
        // int, var, decl_tag
        1 | 14 | 17 => 4,
        // ptr, fwd, typedef, volatile, const, restrict, func, float, type_tag
        2 | 7..=12 | 16 | 18 => 0,
        // array
        3 => 12,
        // struct, union, datasec, enum64
        4 | 5 | 15 | 19 => members * 12,
        // enum, func_proto
        6 | 13 => members * 8,
        _ => return None,
    })
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    bytes.get(at..)?.first_chunk().map(|word| u32::from_ne_bytes(*word))
}

/// Fails where the benchmarks cannot attach anything.
pub fn check() -> Result<()> {
    ensure!(
        crate::exec::is_root(),
        "the benchmarks attach programs to the kernel: run them as root"
    );
    ensure!(fs::exists("/sys/kernel/btf/vmlinux")?, "this kernel has no BTF");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An int, a struct of one member, and two typedefs.
    fn btf() -> Vec<u8> {
        let strings = b"\0int\0btf_trace_x_long\0btf_trace_x\0";
        let types: [u32; 16] = [
            1,
            1 << 24,
            4,
            32, // int
            0,
            4 << 24 | 1,
            4,
            0,
            1,
            0, // struct
            5,
            8 << 24,
            1, // btf_trace_x_long
            22,
            8 << 24,
            1, // btf_trace_x
        ];
        let mut bytes = Vec::new();
        bytes.extend(0xeb9f_u16.to_ne_bytes());
        bytes.extend([1, 0]);
        let length = size_of_val(&types) as u32;
        for word in [24, 0, length, length, strings.len() as u32] {
            bytes.extend(word.to_ne_bytes());
        }
        types.iter().for_each(|word| bytes.extend(word.to_ne_bytes()));
        bytes.extend(strings);
        bytes
    }

    #[test]
    fn a_typedef_is_found_by_its_whole_name() {
        let bytes = btf();
        let types = Types::read(&bytes).unwrap();
        assert_eq!(types.typedef("btf_trace_x"), Some(4));
        assert_eq!(types.typedef("btf_trace_x_long"), Some(3));
        assert_eq!(types.typedef("int"), None, "no typedef");
    }

    #[test]
    fn what_is_no_btf_is_refused() {
        assert!(Types::read(b"").is_none());
        assert!(Types::read(&[0; 64]).is_none());
        let mut cut = btf();
        cut.truncate(40);
        assert!(Types::read(&cut).is_none());
    }
}
