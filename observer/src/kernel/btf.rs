//! The kernel's own type information (BTF): where members lie, which functions and tracepoints
//! there are, what their arguments are.
//!
//! aya finds type ids by name, and no more; its programs carry no CO-RE relocations either. So the
//! layout of the running kernel is looked up here at start, and handed to the programs as
//! constants.
//!
//! The reader takes any bytes: it checks once that all type records lie inside the blob, bounds
//! every chain and every search, and answers `None` where a reference leads nowhere.

mod raw;
#[cfg(test)]
pub(crate) mod testing;
#[cfg(test)]
mod tests;

use std::{fs, io, path::Path};

use raw::{Blob, Kind, Type};

/// Where the kernel offers its BTF (since 5.4, `kernel/bpf/sysfs_btf.c`).
pub const VMLINUX: &str = "/sys/kernel/btf/vmlinux";

/// The longest chain of typedefs, qualifiers and arrays that is followed. The kernel itself follows
/// 32 (`MAX_RESOLVE_DEPTH`, `kernel/bpf/btf.c`).
const MAX_CHAIN: usize = 64;

/// How deep anonymous structs and unions may nest.
const MAX_NESTING: u32 = 16;

/// Members that one lookup may visit. The largest structs of a kernel have some hundreds of them,
/// with all that is anonymous inside; the bound only ends lookups in damaged BTF, whose anonymous
/// members contain themselves.
const MAX_VISITS: u32 = 1 << 18;

/// Why there is no usable BTF. One line says what is wrong; [`BtfError::way_out`] what to do.
#[derive(Debug, thiserror::Error)]
pub enum BtfError {
    /// The kernel has no BTF.
    #[error("{0} is not there: this kernel was built without CONFIG_DEBUG_INFO_BTF")]
    Missing(String),
    /// There is no sysfs to look into.
    #[error("{0} is not there, nor is anything else of sysfs")]
    NoSysfs(String),
    /// The file is there and cannot be read.
    #[error("cannot read {path}: {source}")]
    Read {
        /// The file that was to be read.
        path: String,
        /// What the system said.
        source: io::Error,
    },
    /// The bytes are no BTF, or a damaged one.
    #[error("the BTF is damaged: {0}")]
    Malformed(&'static str),
    /// The BTF comes from a machine of the other byte order.
    #[error("the BTF has the other byte order: it belongs to another machine")]
    OtherEndian,
    /// A format that this reader does not know.
    #[error("the BTF has version {0}, and only version 1 is known")]
    Version(u8),
    /// A kind of type that this reader does not know, and that the BTF does not say how to skip.
    #[error("the BTF has a type of unknown kind {kind} (type id {id})")]
    UnknownKind {
        /// The id of the type.
        id: usize,
        /// Its kind.
        kind: u8,
    },
}

impl BtfError {
    /// What the user can do about it, in one clause.
    pub fn way_out(&self) -> &'static str {
        match self {
            Self::Missing(_) => "boot a kernel that has it (those of current distributions do)",
            Self::NoSysfs(_) => "mount it: mount -t sysfs sysfs /sys",
            Self::Read { .. } => "run as root, and let this process read that file",
            Self::Malformed(_) | Self::OtherEndian => "use the BTF that the running kernel offers",
            Self::Version(_) | Self::UnknownKind { .. } => "use a newer observer",
        }
    }
}

/// Where a member lies in a struct.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Member {
    /// Bytes from the start of the outermost struct.
    pub offset: u64,
    /// Bytes to load at `offset`: the size of the member's type, the whole size of an array; for a
    /// bitfield the size (1, 2, 4 or 8) of an integer that holds it.
    pub size: u64,
    /// Set when the member is a bitfield.
    pub bitfield: Option<Bitfield>,
}

/// Where a bitfield lies in the integer that was loaded for it, in the byte order of this machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bitfield {
    /// Bits below the field.
    pub shift: u32,
    /// Bits of the field, 1 to 64.
    pub width: u32,
}

impl Bitfield {
    /// The field out of the loaded integer, without regard to its sign.
    pub fn extract(self, loaded: u64) -> u64 {
        let mask = u64::MAX.checked_shr(64u32.saturating_sub(self.width)).unwrap_or(0);
        loaded.checked_shr(self.shift).unwrap_or(0) & mask
    }
}

/// One argument of a tracepoint or a function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arg<'a> {
    /// The name of the parameter; BTF has none for most tracepoints.
    pub name: &'a str,
    /// What it is.
    pub ty: ArgType<'a>,
}

/// The type of an argument, as far as a program that reads it must know.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ArgType<'a> {
    /// A pointer to the struct or union of this name.
    PointerTo(&'a str),
    /// A pointer to anything else.
    Pointer,
    /// `bool`.
    Bool,
    /// An integer.
    Int {
        /// Bytes.
        size: u32,
        /// Whether it has a sign.
        signed: bool,
    },
    /// Anything else: an enum, a struct by value, a float.
    Other,
}

/// The place of the `nth` (from 0) argument that is a pointer to `struct strukt`.
///
/// Arguments moved between versions: `sched_switch` has (preempt, prev, next) up to 5.17, and
/// prev_state behind or before the two tasks since (`include/trace/events/sched.h`).
pub fn nth_pointer_to(args: &[Arg<'_>], strukt: &str, nth: usize) -> Option<usize> {
    args.iter()
        .enumerate()
        .filter(|(_, arg)| arg.ty == ArgType::PointerTo(strukt))
        .nth(nth)
        .map(|(place, _)| place)
}

/// Parsed BTF, indexed by name.
pub struct Btf {
    blob: Blob,
}

impl Btf {
    /// Reads the BTF of the running kernel.
    pub fn from_sysfs() -> Result<Self, BtfError> {
        Self::from_file(Path::new(VMLINUX))
    }

    fn from_file(path: &Path) -> Result<Self, BtfError> {
        let name = path.display().to_string();
        match fs::read(path) {
            Ok(bytes) => Self::parse(bytes),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                let sysfs = Path::new("/sys/kernel").is_dir();
                Err(if sysfs { BtfError::Missing(name) } else { BtfError::NoSysfs(name) })
            }
            Err(source) => Err(BtfError::Read { path: name, source }),
        }
    }

    /// Parses and indexes a BTF blob of this machine's byte order.
    pub fn parse(bytes: Vec<u8>) -> Result<Self, BtfError> {
        Blob::parse(bytes).map(|blob| Self { blob })
    }

    /// The bytes that were parsed, for `aya::Btf::parse`.
    pub fn bytes(&self) -> &[u8] {
        self.blob.bytes()
    }

    /// Where a member lies in a struct or union. `path` may be dotted through embedded structs
    /// (`se.sum_exec_runtime`), and anonymous structs and unions need not be named. Pointers and
    /// arrays are not followed. `None` when there is no such struct or member, or it has no size.
    ///
    /// When several structs have the name, the first that has the member counts.
    pub fn member(&self, strukt: &str, path: &str) -> Option<Member> {
        self.blob.named(strukt, Kind::is_composite).find_map(|ty| self.walk(ty, path))
    }

    /// Bytes of a struct or union.
    pub fn struct_size(&self, name: &str) -> Option<u64> {
        let ty = self.blob.named(name, Kind::is_composite).next()?;
        Some(u64::from(ty.size_or_type))
    }

    /// Whether the kernel has a struct or union of this name.
    pub fn has_struct(&self, name: &str) -> bool {
        self.blob.named(name, Kind::is_composite).next().is_some()
    }

    /// Whether BTF describes a function of this name. It may still be one that cannot be attached
    /// to.
    pub fn has_func(&self, name: &str) -> bool {
        self.blob.named(name, Kind::is_func).next().is_some()
    }

    /// The value of an enumerator of the named enum. Unsigned 64-bit values above `i64::MAX` come
    /// back as their two's complement.
    pub fn enum_value(&self, enum_name: &str, enumerator: &str) -> Option<i64> {
        self.blob.named(enum_name, Kind::is_enum).find_map(|ty| self.enumerator_in(&ty, enumerator))
    }

    /// The value of an enumerator, whichever enum it is in (many enums have no name).
    pub fn enumerator(&self, enumerator: &str) -> Option<i64> {
        self.blob
            .types()
            .filter(|ty| ty.kind.is_enum())
            .find_map(|ty| self.enumerator_in(&ty, enumerator))
    }

    /// Whether the kernel has a tracepoint of this name.
    pub fn has_tracepoint(&self, name: &str) -> bool {
        self.tracepoint_proto(name).is_some()
    }

    /// The arguments of a tracepoint, as a `tp_btf` program sees them. `None` when there is no such
    /// tracepoint in the kernel proper; those of modules are not in its BTF.
    ///
    /// They are the parameters of `btf_trace_<name>` without its first, `void *__data`
    /// (`include/trace/bpf_probe.h`, `kernel/bpf/verifier.c` `bpf_check_attach_target`).
    pub fn tracepoint_args(&self, name: &str) -> Option<Vec<Arg<'_>>> {
        let proto = self.tracepoint_proto(name)?;
        Some(self.params(proto, 1))
    }

    /// The arguments of a function. When several functions have the name, those of the first.
    pub fn func_args(&self, name: &str) -> Option<Vec<Arg<'_>>> {
        let func = self.blob.named(name, Kind::is_func).next()?;
        let proto = self.blob.ty(func.size_or_type)?;
        (proto.kind == Kind::FuncProto).then(|| self.params(proto, 0))
    }

    fn tracepoint_proto(&self, name: &str) -> Option<Type> {
        self.blob.named(&format!("btf_trace_{name}"), Kind::is_typedef).find_map(|typedef| {
            let pointer = self.resolve(typedef.size_or_type)?;
            let proto =
                self.resolve((pointer.kind == Kind::Ptr).then_some(pointer.size_or_type)?)?;
            let is_void_pointer = |id| {
                self.resolve(id).is_some_and(|ty| {
                    ty.kind == Kind::Ptr && self.resolve(ty.size_or_type).is_none()
                })
            };
            let [_, first] = (proto.kind == Kind::FuncProto && proto.vlen > 0)
                .then(|| self.blob.words::<2>(&proto, 0))??;
            is_void_pointer(first).then_some(proto)
        })
    }

    fn params(&self, proto: Type, skip: u32) -> Vec<Arg<'_>> {
        (skip..proto.vlen)
            .map_while(|index| self.blob.words::<2>(&proto, index))
            .map(|[name, id]| Arg { name: self.blob.name(name), ty: self.arg_type(id) })
            .collect()
    }

    fn arg_type(&self, id: u32) -> ArgType<'_> {
        let Some(ty) = self.resolve(id) else {
            return ArgType::Other;
        };
        match ty.kind {
            Kind::Ptr => match self.resolve(ty.size_or_type) {
                Some(target)
                    if matches!(target.kind, Kind::Struct | Kind::Union | Kind::Fwd)
                        && target.name != 0 =>
                {
                    ArgType::PointerTo(self.blob.name(target.name))
                }
                _ => ArgType::Pointer,
            },
            Kind::Int => {
                let encoding = self.blob.words::<1>(&ty, 0).map_or(0, |[int]| int >> 24 & 0xf);
                if encoding & 4 != 0 {
                    ArgType::Bool
                } else {
                    ArgType::Int { size: ty.size_or_type, signed: encoding & 1 != 0 }
                }
            }
            _ => ArgType::Other,
        }
    }

    /// Follows typedefs and qualifiers. `None` for void, for a reference to nowhere, and for a
    /// chain without end.
    fn resolve(&self, mut id: u32) -> Option<Type> {
        for _ in 0..MAX_CHAIN {
            let ty = self.blob.ty(id)?;
            if !ty.kind.is_modifier() {
                return Some(ty);
            }
            id = ty.size_or_type;
        }
        None
    }

    fn size_of(&self, mut id: u32) -> Option<u64> {
        let mut factor = 1u64;
        for _ in 0..MAX_CHAIN {
            let ty = self.resolve(id)?;
            let size = match ty.kind {
                Kind::Int
                | Kind::Float
                | Kind::Struct
                | Kind::Union
                | Kind::Enum
                | Kind::Enum64
                | Kind::DataSec => u64::from(ty.size_or_type),
                // The kernel's pointers are as wide as ours: a 32-bit build cannot load 64-bit
                // programs.
                Kind::Ptr => size_of::<usize>() as u64,
                Kind::Array => {
                    let [element, _, count] = self.blob.words::<3>(&ty, 0)?;
                    factor = factor.checked_mul(u64::from(count))?;
                    id = element;
                    continue;
                }
                _ => return None,
            };
            return size.checked_mul(factor);
        }
        None
    }

    fn enumerator_in(&self, ty: &Type, enumerator: &str) -> Option<i64> {
        if ty.kind == Kind::Enum64 {
            return (0..ty.vlen)
                .map_while(|index| self.blob.words::<3>(ty, index))
                .find(|[name, ..]| self.blob.name_is(*name, enumerator))
                .map(|[_, low, high]| (u64::from(high) << 32 | u64::from(low)) as i64);
        }
        let [_, value] = (0..ty.vlen)
            .map_while(|index| self.blob.words::<2>(ty, index))
            .find(|[name, _]| self.blob.name_is(*name, enumerator))?;
        // The flag says "signed" since 6.0 (`kernel/bpf/btf.c` `btf_enum_check_meta`). Before, no
        // enum had it.
        Some(if ty.flag { i64::from(value as i32) } else { i64::from(value) })
    }

    /// Walks a dotted path through embedded structs, from `ty` on.
    fn walk(&self, mut ty: Type, path: &str) -> Option<Member> {
        let mut base_bits = 0u64;
        let mut visits = MAX_VISITS;
        let mut names = path.split('.').peekable();
        while let Some(name) = names.next() {
            let found = self.find(&ty, name, MAX_NESTING, &mut visits)?;
            base_bits = base_bits.checked_add(found.bits)?;
            if names.peek().is_none() {
                return self.place(Found { bits: base_bits, ..found });
            }
            ty = self.resolve(found.ty)?;
            if !ty.kind.is_composite() || found.width.is_some() {
                return None;
            }
        }
        None
    }

    /// Looks for a member in a struct and in the anonymous structs and unions inside it.
    fn find(&self, ty: &Type, name: &str, nesting: u32, visits: &mut u32) -> Option<Found> {
        for index in 0..ty.vlen {
            *visits = visits.checked_sub(1)?;
            let [member, id, offset] = self.blob.words::<3>(ty, index)?;
            let (bits, width) = if ty.flag {
                (offset & 0x00ff_ffff, Some(offset >> 24).filter(|width| *width != 0))
            } else {
                (offset, None)
            };
            let bits = u64::from(bits);
            if member == 0 {
                let inner = self.resolve(id).filter(|inner| inner.kind.is_composite());
                let found = inner
                    .zip(nesting.checked_sub(1))
                    .and_then(|(inner, nesting)| self.find(&inner, name, nesting, visits));
                if let Some(found) = found {
                    return Some(Found { bits: bits + found.bits, ..found });
                }
            } else if self.blob.name_is(member, name) {
                return Some(self.old_bitfield(Found { bits, width, ty: id }));
            }
        }
        None
    }

    /// Before `kind_flag` (5.0) the width of a bitfield was in its integer type, which had fewer
    /// bits than its size holds.
    fn old_bitfield(&self, found: Found) -> Found {
        let int = self.resolve(found.ty).filter(|ty| ty.kind == Kind::Int && found.width.is_none());
        let Some((ty, [encoding])) = int.and_then(|ty| Some((ty, self.blob.words::<1>(&ty, 0)?)))
        else {
            return found;
        };
        let (skip, width) = (u64::from(encoding >> 16 & 0xff), encoding & 0xff);
        let bits = found.bits + skip;
        let narrow = u64::from(width) != u64::from(ty.size_or_type) * 8 || !bits.is_multiple_of(8);
        Found { bits, width: (narrow && width != 0).then_some(width), ..found }
    }

    /// Turns bits into bytes to load.
    fn place(&self, found: Found) -> Option<Member> {
        let size = self.size_of(found.ty)?;
        let Some(width) = found.width else {
            let whole = found.bits.is_multiple_of(8);
            return whole.then_some(Member { offset: found.bits / 8, size, bitfield: None });
        };
        // The declared type first, at its natural place; packed structs need a wider load or one
        // that begins at the very byte.
        let natural = found.bits / 8 / size.max(1) * size.max(1);
        let loads = [(natural, size)];
        let wider = [1, 2, 4, 8].map(|size| (found.bits / 8, size));
        let fits = |(offset, size): &(u64, u64)| {
            matches!(size, 1 | 2 | 4 | 8) && found.bits + u64::from(width) <= (offset + size) * 8
        };
        let (offset, size) = loads.into_iter().chain(wider).find(fits)?;
        let below = u32::try_from(found.bits - offset * 8).ok()?;
        let shift = if cfg!(target_endian = "little") {
            below
        } else {
            u32::try_from(size * 8).ok()? - below - width
        };
        Some(Member { offset, size, bitfield: Some(Bitfield { shift, width }) })
    }
}

/// A member, in bits from the start of the struct that was searched.
#[derive(Clone, Copy)]
struct Found {
    bits: u64,
    width: Option<u32>,
    ty: u32,
}
