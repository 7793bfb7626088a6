//! The bytes of a BTF blob: header, type records, strings, and the index of names.
//!
//! Source of the format: `include/uapi/linux/btf.h`, `kernel/bpf/btf.c`. `info` is read in its
//! widest form: 24 bits of vlen and 7 bits of kind. Older kernels define 16 and 5 bits and keep the
//! others zero (`btf_check_meta` refuses anything else), so the wide form reads both.

use std::ops::Range;

use super::BtfError;

/// The longest name that the index holds, in bytes: the kernel allows no longer symbol
/// (`KSYM_NAME_LEN`, `include/linux/kallsyms.h`). Bounds the work on a blob whose strings never
/// end.
const MAX_NAME: usize = 512;

/// Bytes of `struct btf_type`, which every type record begins with.
const TYPE_LEN: usize = 12;

/// Bytes of the header up to and including `str_len`.
const HEADER_LEN: usize = 24;

const MAGIC: u16 = 0xeb9f;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Int,
    Ptr,
    Array,
    Struct,
    Union,
    Enum,
    Fwd,
    Typedef,
    Volatile,
    Const,
    Restrict,
    Func,
    FuncProto,
    Var,
    DataSec,
    Float,
    DeclTag,
    TypeTag,
    Enum64,
    /// A kind that came after ENUM64: skipped with the help of the layout section.
    Newer,
}

impl Kind {
    /// `None` for 0, which no record may have.
    fn from_number(number: u8) -> Option<Self> {
        Some(match number {
            0 => return None,
            1 => Self::Int,
            2 => Self::Ptr,
            3 => Self::Array,
            4 => Self::Struct,
            5 => Self::Union,
            6 => Self::Enum,
            7 => Self::Fwd,
            8 => Self::Typedef,
            9 => Self::Volatile,
            10 => Self::Const,
            11 => Self::Restrict,
            12 => Self::Func,
            13 => Self::FuncProto,
            14 => Self::Var,
            15 => Self::DataSec,
            16 => Self::Float,
            17 => Self::DeclTag,
            18 => Self::TypeTag,
            19 => Self::Enum64,
            _ => Self::Newer,
        })
    }

    /// Kinds that are looked up by name.
    fn is_indexed(self) -> bool {
        matches!(
            self,
            Self::Struct | Self::Union | Self::Enum | Self::Enum64 | Self::Typedef | Self::Func
        )
    }

    pub(super) fn is_composite(self) -> bool {
        matches!(self, Self::Struct | Self::Union)
    }

    pub(super) fn is_enum(self) -> bool {
        matches!(self, Self::Enum | Self::Enum64)
    }

    pub(super) fn is_func(self) -> bool {
        self == Self::Func
    }

    pub(super) fn is_typedef(self) -> bool {
        self == Self::Typedef
    }

    /// Kinds that only wrap the type they refer to.
    pub(super) fn is_modifier(self) -> bool {
        matches!(
            self,
            Self::Typedef | Self::Volatile | Self::Const | Self::Restrict | Self::TypeTag
        )
    }

    /// Bytes that follow `struct btf_type`, for `vlen` elements; `None` for a newer kind.
    fn extra_len(self, vlen: usize) -> Option<usize> {
        match self {
            Self::Ptr
            | Self::Fwd
            | Self::Typedef
            | Self::Volatile
            | Self::Const
            | Self::Restrict
            | Self::Func
            | Self::Float
            | Self::TypeTag => Some(0),
            Self::Int | Self::Var | Self::DeclTag => Some(4),
            Self::Array => Some(12),
            Self::Enum | Self::FuncProto => vlen.checked_mul(8),
            Self::Struct | Self::Union | Self::DataSec | Self::Enum64 => vlen.checked_mul(12),
            Self::Newer => None,
        }
    }
}

/// One type record. `data` is where its elements begin in the blob; they are known to lie inside
/// it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Type {
    pub(super) name: u32,
    pub(super) kind: Kind,
    pub(super) flag: bool,
    pub(super) vlen: u32,
    /// `size` or `type` of the record, by kind.
    pub(super) size_or_type: u32,
    pub(super) data: usize,
}

/// A validated blob: every type record lies inside the type section.
pub(super) struct Blob {
    bytes: Vec<u8>,
    strings: Range<usize>,
    types_start: usize,
    /// Offset of type id `i + 1`, from `types_start`.
    offsets: Vec<u32>,
    index: NameIndex,
}

impl Blob {
    pub(super) fn parse(bytes: Vec<u8>) -> Result<Self, BtfError> {
        let sections = Sections::read(&bytes)?;
        let offsets = walk_types(&bytes, &sections)?;
        let index = NameIndex::build(&bytes, &sections, &offsets);
        let Sections { types, strings, .. } = sections;
        Ok(Self { bytes, strings, types_start: types.start, offsets, index })
    }

    pub(super) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// The record of a type id; `None` for 0 (void) and for ids that the blob does not have.
    pub(super) fn ty(&self, id: u32) -> Option<Type> {
        let index = usize::try_from(id).ok()?.checked_sub(1)?;
        let offset = usize::try_from(*self.offsets.get(index)?).ok()?;
        type_at(&self.bytes, self.types_start.checked_add(offset)?)
    }

    pub(super) fn types(&self) -> impl Iterator<Item = Type> {
        // The header gives lengths in 32 bits, so no id overflows u32.
        (1..=self.offsets.len() as u32).filter_map(|id| self.ty(id))
    }

    /// The `index`-th group of `N` words behind a type record.
    pub(super) fn words<const N: usize>(&self, ty: &Type, index: u32) -> Option<[u32; N]> {
        let skip = usize::try_from(index).ok()?.checked_mul(4 * N)?;
        let start = ty.data.checked_add(skip)?;
        let mut words = [0; N];
        for (i, word) in words.iter_mut().enumerate() {
            *word = u32_at(&self.bytes, start.checked_add(4 * i)?)?;
        }
        Some(words)
    }

    /// The name at an offset of the string section; empty when there is none, or it is not UTF-8.
    pub(super) fn name(&self, offset: u32) -> &str {
        let tail = self.string_tail(offset);
        let tail = tail.get(..MAX_NAME).unwrap_or(tail);
        let end = tail.iter().position(|byte| *byte == 0).unwrap_or(0);
        tail.get(..end).and_then(|name| str::from_utf8(name).ok()).unwrap_or("")
    }

    pub(super) fn name_is(&self, offset: u32, name: &str) -> bool {
        self.string_tail(offset)
            .strip_prefix(name.as_bytes())
            .is_some_and(|rest| rest.first() == Some(&0))
    }

    /// All types of the wanted kinds that have this name, lowest id first.
    pub(super) fn named(&self, name: &str, wanted: fn(Kind) -> bool) -> impl Iterator<Item = Type> {
        self.index.candidates(hash(name.as_bytes())).filter_map(move |id| {
            self.ty(id).filter(|ty| wanted(ty.kind) && self.name_is(ty.name, name))
        })
    }

    fn string_tail(&self, offset: u32) -> &[u8] {
        string_tail(&self.bytes, &self.strings, offset)
    }
}

/// The string section from an offset on; empty when the offset lies outside.
fn string_tail<'a>(bytes: &'a [u8], strings: &Range<usize>, offset: u32) -> &'a [u8] {
    usize::try_from(offset)
        .ok()
        .and_then(|offset| bytes.get(strings.clone())?.get(offset..))
        .unwrap_or(&[])
}

/// Where the sections lie in the blob.
struct Sections {
    types: Range<usize>,
    strings: Range<usize>,
    /// `struct btf_layout` per kind, written by newer kernels so that older readers can skip kinds
    /// which they do not know. Empty when there is none.
    layout: Range<usize>,
}

impl Sections {
    fn read(bytes: &[u8]) -> Result<Self, BtfError> {
        let magic = bytes
            .first_chunk::<2>()
            .map(|raw| u16::from_ne_bytes(*raw))
            .ok_or(BtfError::Malformed("it is shorter than its header"))?;
        if magic == MAGIC.swap_bytes() {
            return Err(BtfError::OtherEndian);
        }
        if magic != MAGIC {
            return Err(BtfError::Malformed("it does not begin with the magic number of BTF"));
        }
        match bytes.get(2) {
            Some(1) => {}
            Some(version) => return Err(BtfError::Version(*version)),
            None => return Err(BtfError::Malformed("it is shorter than its header")),
        }
        let word =
            |at| u32_at(bytes, at).ok_or(BtfError::Malformed("it is shorter than its header"));
        let header_len = word(4)? as usize;
        if header_len < HEADER_LEN || header_len > bytes.len() {
            return Err(BtfError::Malformed("its header has an impossible length"));
        }
        let section = |at: usize| {
            let start = header_len.checked_add(word(at)? as usize);
            let end = start.zip(word(at + 4).ok()).and_then(|(s, len)| s.checked_add(len as usize));
            match (start, end) {
                (Some(start), Some(end)) if end <= bytes.len() => Ok(start..end),
                _ => Err(BtfError::Malformed("a section reaches beyond its end")),
            }
        };
        let (types, strings) = (section(8)?, section(16)?);
        let layout = if header_len >= HEADER_LEN + 8 { section(24)? } else { 0..0 };
        let text = &bytes[strings.clone()];
        if text.first() != Some(&0) || text.last() != Some(&0) {
            return Err(BtfError::Malformed("its strings do not begin and end with a NUL"));
        }
        Ok(Self { types, strings, layout })
    }
}

/// Checks that every type record lies inside the type section, and notes where each begins.
fn walk_types(bytes: &[u8], sections: &Sections) -> Result<Vec<u32>, BtfError> {
    // Real kernels average about 40 bytes per type; too small a guess only costs a reallocation.
    let mut offsets = Vec::with_capacity(sections.types.len() / 32);
    let layout = bytes.get(sections.layout.clone()).unwrap_or(&[]);
    // No record reaches beyond the type section, so the walk is done on that section alone.
    let types = bytes.get(sections.types.clone()).unwrap_or(&[]);
    let mut at = 0;
    while at < types.len() {
        let info = u32_at(types, at + 4).ok_or(BtfError::Malformed("a type is cut short"))?;
        let (kind, vlen) = (kind_number(info), vlen(info) as usize);
        let extra = match Kind::from_number(kind) {
            Some(Kind::Newer) => newer_len(layout, kind, vlen),
            Some(known) => known.extra_len(vlen),
            None => None,
        };
        let extra = extra.ok_or(BtfError::UnknownKind { id: offsets.len() + 1, kind })?;
        let end = at.saturating_add(TYPE_LEN).saturating_add(extra);
        if end > types.len() {
            return Err(BtfError::Malformed("a type is cut short"));
        }
        // The length of the section is a u32, and so is every offset in it.
        offsets.push(at as u32);
        at = end;
    }
    Ok(offsets)
}

/// Bytes behind `struct btf_type` of a kind that this reader does not know
/// (`struct btf_layout { u8 info_sz; u8 elem_sz; u16 flags; }`, one for each kind).
fn newer_len(layout: &[u8], kind: u8, vlen: usize) -> Option<usize> {
    let at = usize::from(kind) * 4;
    let (info, element) = (layout.get(at)?, layout.get(at + 1)?);
    vlen.checked_mul(usize::from(*element))?.checked_add(usize::from(*info))
}

fn type_at(bytes: &[u8], at: usize) -> Option<Type> {
    let record = bytes.get(at..)?.first_chunk::<TYPE_LEN>()?;
    let info = u32_at(record, 4)?;
    Some(Type {
        name: u32_at(record, 0)?,
        kind: Kind::from_number(kind_number(info))?,
        flag: info >> 31 != 0,
        vlen: vlen(info),
        size_or_type: u32_at(record, 8)?,
        data: at + TYPE_LEN,
    })
}

fn kind_number(info: u32) -> u8 {
    (info >> 24) as u8 & 0x7f
}

fn vlen(info: u32) -> u32 {
    info & 0x00ff_ffff
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    bytes.get(at..)?.first_chunk::<4>().map(|raw| u32::from_ne_bytes(*raw))
}

/// Chained hash table from names to type ids. std's `HashMap` would need its own copy of the names,
/// or a struct that borrows from itself; and its hash costs more than the whole walk.
struct NameIndex {
    /// Per bucket: the lowest type id in it, 0 for none. The number of buckets is a power of two.
    heads: Vec<u32>,
    /// Per type id - 1: the next higher id of the same bucket, 0 at the end.
    next: Vec<u32>,
}

impl NameIndex {
    fn build(bytes: &[u8], sections: &Sections, offsets: &[u32]) -> Self {
        let count = offsets.len();
        let mut index = Self { heads: vec![0; count.next_power_of_two()], next: vec![0; count] };
        // Backwards, because an insertion goes to the front of its chain.
        for (slot, offset) in offsets.iter().enumerate().rev() {
            let ty = type_at(bytes, sections.types.start + *offset as usize);
            let Some(ty) = ty.filter(|ty| ty.name != 0 && ty.kind.is_indexed()) else {
                continue;
            };
            let tail = string_tail(bytes, &sections.strings, ty.name);
            let tail = tail.get(..MAX_NAME).unwrap_or(tail);
            let Some(hash) = hash_to_nul(tail) else {
                continue;
            };
            let bucket = index.bucket(hash);
            index.next[slot] = index.heads[bucket];
            index.heads[bucket] = slot as u32 + 1;
        }
        index
    }

    fn bucket(&self, hash: u32) -> usize {
        // The low bits of FNV alone are the weaker ones.
        (hash ^ (hash >> 15)) as usize & (self.heads.len() - 1)
    }

    /// The ids of a bucket in rising order, which is also why the iteration ends.
    fn candidates(&self, hash: u32) -> impl Iterator<Item = u32> {
        let first = self.heads.get(self.bucket(hash)).copied().unwrap_or(0);
        let next = |id: &u32| self.next.get((*id as usize).checked_sub(1)?).copied();
        std::iter::successors(Some(first), next).take_while(|id| *id != 0)
    }
}

const FNV_START: u32 = 0x811c_9dc5;

fn fnv_step(hash: u32, byte: u8) -> u32 {
    (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193)
}

fn hash(name: &[u8]) -> u32 {
    name.iter().fold(FNV_START, |hash, byte| fnv_step(hash, *byte))
}

/// The hash of the bytes before the first NUL; `None` when there is no NUL.
fn hash_to_nul(bytes: &[u8]) -> Option<u32> {
    let mut hash = FNV_START;
    for byte in bytes {
        if *byte == 0 {
            return Some(hash);
        }
        hash = fnv_step(hash, *byte);
    }
    None
}
