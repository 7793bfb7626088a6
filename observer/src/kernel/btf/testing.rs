//! A small writer of BTF, for tests: this module's, and those of whoever looks things up in BTF.

use super::Btf;

/// Builds a blob type by type; ids count from 1, as in BTF.
pub(crate) struct Builder {
    types: Vec<u8>,
    strings: Vec<u8>,
    layout: Vec<u8>,
    count: u32,
}

/// `kind_flag` of a record.
pub(crate) const FLAG: u32 = 1 << 31;

/// Bits of the encoding of an integer.
pub(crate) const SIGNED: u32 = 1 << 24;
/// See [`SIGNED`].
pub(crate) const BOOL: u32 = 4 << 24;

impl Builder {
    pub(crate) fn new() -> Self {
        Self { types: Vec::new(), strings: vec![0], layout: Vec::new(), count: 0 }
    }

    /// The offset of a new string; 0 for the empty one.
    pub(crate) fn string(&mut self, text: &str) -> u32 {
        if text.is_empty() {
            return 0;
        }
        let at = self.strings.len() as u32;
        self.strings.extend_from_slice(text.as_bytes());
        self.strings.push(0);
        at
    }

    /// A record with any content; returns its id.
    pub(crate) fn record(&mut self, name: &str, info: u32, size_or_type: u32, rest: &[u32]) -> u32 {
        let name = self.string(name);
        for word in [name, info, size_or_type].iter().chain(rest) {
            self.types.extend_from_slice(&word.to_ne_bytes());
        }
        self.count += 1;
        self.count
    }

    /// The id that the next record gets, for references to types that come later.
    pub(crate) fn next_id(&self) -> u32 {
        self.count + 1
    }

    pub(crate) fn int(&mut self, name: &str, size: u32, encoding: u32) -> u32 {
        self.record(name, 1 << 24, size, &[encoding | (size * 8)])
    }

    /// PTR, TYPEDEF, CONST and the like, by number.
    pub(crate) fn reference(&mut self, kind: u32, name: &str, target: u32) -> u32 {
        self.record(name, kind << 24, target, &[])
    }

    pub(crate) fn pointer(&mut self, target: u32) -> u32 {
        self.reference(2, "", target)
    }

    pub(crate) fn typedef(&mut self, name: &str, target: u32) -> u32 {
        self.reference(8, name, target)
    }

    pub(crate) fn array(&mut self, element: u32, count: u32) -> u32 {
        self.record("", 3 << 24, 0, &[element, element, count])
    }

    /// A struct; members are (name, type, offset word).
    pub(crate) fn strukt(&mut self, name: &str, size: u32, members: &[(&str, u32, u32)]) -> u32 {
        self.composite(4 << 24, name, size, members)
    }

    pub(crate) fn union(&mut self, name: &str, size: u32, members: &[(&str, u32, u32)]) -> u32 {
        self.composite(5 << 24, name, size, members)
    }

    pub(crate) fn composite(
        &mut self,
        info: u32,
        name: &str,
        size: u32,
        members: &[(&str, u32, u32)],
    ) -> u32 {
        let words: Vec<u32> =
            members.iter().flat_map(|(name, ty, at)| [self.string(name), *ty, *at]).collect();
        self.record(name, info | members.len() as u32, size, &words)
    }

    /// A FUNC_PROTO; parameters are (name, type).
    pub(crate) fn proto(&mut self, params: &[(&str, u32)]) -> u32 {
        let words: Vec<u32> =
            params.iter().flat_map(|(name, ty)| [self.string(name), *ty]).collect();
        self.record("", 13 << 24 | params.len() as u32, 0, &words)
    }

    pub(crate) fn func(&mut self, name: &str, params: &[(&str, u32)]) -> u32 {
        let proto = self.proto(params);
        self.record(name, 12 << 24 | 1, proto, &[])
    }

    /// A tracepoint as the kernel writes it: `typedef void (*btf_trace_<name>)(void *, ...)`.
    pub(crate) fn tracepoint(&mut self, name: &str, args: &[(&str, u32)]) -> u32 {
        let void = self.pointer(0);
        let mut params = vec![("", void)];
        params.extend_from_slice(args);
        let proto = self.proto(&params);
        let pointer = self.pointer(proto);
        self.typedef(&format!("btf_trace_{name}"), pointer)
    }

    /// An ENUM; `flag` is 0 or [`FLAG`].
    pub(crate) fn enumeration(&mut self, name: &str, flag: u32, values: &[(&str, i32)]) -> u32 {
        let words: Vec<u32> =
            values.iter().flat_map(|(name, value)| [self.string(name), *value as u32]).collect();
        self.record(name, 6 << 24 | flag | values.len() as u32, 4, &words)
    }

    pub(crate) fn enumeration64(&mut self, name: &str, values: &[(&str, u64)]) -> u32 {
        let words: Vec<u32> = values
            .iter()
            .flat_map(|(name, value)| [self.string(name), *value as u32, (*value >> 32) as u32])
            .collect();
        self.record(name, 19 << 24 | values.len() as u32, 8, &words)
    }

    /// Adds a layout section that covers the kinds up to `kind`, which gets these lengths.
    pub(crate) fn layout(&mut self, kind: u8, info: u8, element: u8) {
        self.layout.resize((usize::from(kind) + 1) * 4, 0);
        let at = usize::from(kind) * 4;
        self.layout[at..at + 2].copy_from_slice(&[info, element]);
    }

    pub(crate) fn bytes(&self) -> Vec<u8> {
        let with_layout = !self.layout.is_empty();
        let header: u32 = if with_layout { 32 } else { 24 };
        let (types, strings) = (self.types.len() as u32, self.strings.len() as u32);
        let mut bytes = 0xeb9f_u16.to_ne_bytes().to_vec();
        bytes.extend_from_slice(&[1, 0]);
        let mut words = vec![header, 0, types, types, strings];
        if with_layout {
            words.extend([types + strings, self.layout.len() as u32]);
        }
        for word in words {
            bytes.extend_from_slice(&word.to_ne_bytes());
        }
        for section in [&self.types, &self.strings, &self.layout] {
            bytes.extend_from_slice(section);
        }
        bytes
    }

    pub(crate) fn build(&self) -> Btf {
        Btf::parse(self.bytes()).expect("the builder writes valid BTF")
    }
}
