//! An initramfs: a cpio archive in the "newc" form, written without compression.
//!
//! The format is the kernel's Documentation/driver-api/early-userspace/buffer-format.rst: a header of
//! 13 eight-digit hexadecimal fields, the name with its NUL, the content, each padded to 4 bytes.

use std::collections::BTreeSet;

const FILE_TYPE: u32 = 0o170_000;
const DIRECTORY: u32 = 0o040_000;
const REGULAR: u32 = 0o100_000;
const CHARACTER_DEVICE: u32 = 0o020_000;
const SYMBOLIC_LINK: u32 = 0o120_000;

/// An archive that grows by each entry; folders come by themselves.
#[derive(Default)]
pub struct Archive {
    bytes: Vec<u8>,
    entries: u32,
    folders: BTreeSet<String>,
}

impl Archive {
    /// Adds a folder and those above it, unless they are there.
    pub fn folder(&mut self, path: &str) {
        let path = path.trim_matches('/');
        if path.is_empty() || self.folders.contains(path) {
            return;
        }
        if let Some((above, _)) = path.rsplit_once('/') {
            self.folder(above);
        }
        self.folders.insert(path.to_owned());
        self.entry(path, DIRECTORY | 0o755, (0, 0), &[]);
    }

    /// Adds a file with its permissions. At most 4 GiB: the format's fields have 32 bits.
    pub fn file(&mut self, path: &str, mode: u32, content: &[u8]) {
        self.parents(path);
        self.entry(path, REGULAR | mode, (0, 0), content);
    }

    /// Adds a symbolic link: its content is where it points to.
    pub fn link(&mut self, path: &str, to: &str) {
        self.parents(path);
        self.entry(path, SYMBOLIC_LINK | 0o777, (0, 0), to.as_bytes());
    }

    /// Adds a character device.
    pub fn device(&mut self, path: &str, mode: u32, major: u32, minor: u32) {
        self.parents(path);
        self.entry(path, CHARACTER_DEVICE | mode, (major, minor), &[]);
    }

    /// The whole archive.
    pub fn finish(mut self) -> Vec<u8> {
        self.entry("TRAILER!!!", 0, (0, 0), &[]);
        self.bytes
    }

    fn parents(&mut self, path: &str) {
        if let Some((above, _)) = path.rsplit_once('/') {
            self.folder(above);
        }
    }

    fn entry(&mut self, path: &str, mode: u32, device: (u32, u32), content: &[u8]) {
        let name = path.trim_start_matches('/');
        self.entries += 1;
        let links = if mode & FILE_TYPE == DIRECTORY { 2 } else { 1 };
        let fields = [
            self.entries, // inode
            mode,
            0, // user
            0, // group
            links,
            0, // time of change: the same input gives the same archive
            to_u32(content.len()),
            0, // device that holds it: major, minor
            0,
            device.0,
            device.1,
            to_u32(name.len() + 1),
            0, // checksum: not in this form
        ];
        self.bytes.extend_from_slice(b"070701");
        for field in fields {
            self.bytes.extend_from_slice(format!("{field:08x}").as_bytes());
        }
        self.bytes.extend_from_slice(name.as_bytes());
        self.bytes.push(0);
        self.pad();
        self.bytes.extend_from_slice(content);
        self.pad();
    }

    fn pad(&mut self) {
        self.bytes.resize(self.bytes.len().next_multiple_of(4), 0);
    }
}

fn to_u32(len: usize) -> u32 {
    u32::try_from(len).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Path, mode, device and content.
    type Entry = (String, u32, (u32, u32), Vec<u8>);

    /// A reader of its own, straight from the format's description.
    fn read(bytes: &[u8]) -> Vec<Entry> {
        let mut entries = Vec::new();
        let mut at = 0;
        loop {
            assert_eq!(at % 4, 0);
            assert_eq!(&bytes[at..at + 6], b"070701");
            let header = at + 6;
            let field = |n: usize| {
                let start = header + 8 * n;
                u32::from_str_radix(str::from_utf8(&bytes[start..start + 8]).unwrap(), 16).unwrap()
            };
            let (mode, size, name_size) = (field(1), field(6) as usize, field(11) as usize);
            let name_end = at + 110 + name_size;
            let name = str::from_utf8(&bytes[at + 110..name_end - 1]).unwrap().to_owned();
            assert_eq!(bytes[name_end - 1], 0);
            let start = name_end.next_multiple_of(4);
            let content = bytes[start..start + size].to_vec();
            at = (start + size).next_multiple_of(4);
            if name == "TRAILER!!!" {
                assert_eq!(at, bytes.len());
                return entries;
            }
            entries.push((name, mode, (field(9), field(10)), content));
        }
    }

    #[test]
    fn what_is_written_can_be_read() {
        let mut archive = Archive::default();
        archive.device("/dev/console", 0o600, 5, 1);
        archive.file("/bin/tool", 0o755, b"12345");
        archive.file("/bin/other", 0o644, b"");
        archive.folder("/a/b/c");
        archive.link("/a/link", "/bin/tool");
        let entries = read(&archive.finish());
        let short: Vec<_> = entries.iter().map(|e| (e.0.as_str(), e.1, e.2, e.3.len())).collect();
        assert_eq!(
            short,
            [
                ("dev", 0o040_755, (0, 0), 0),
                ("dev/console", 0o020_600, (5, 1), 0),
                ("bin", 0o040_755, (0, 0), 0),
                ("bin/tool", 0o100_755, (0, 0), 5),
                ("bin/other", 0o100_644, (0, 0), 0),
                ("a", 0o040_755, (0, 0), 0),
                ("a/b", 0o040_755, (0, 0), 0),
                ("a/b/c", 0o040_755, (0, 0), 0),
                ("a/link", 0o120_777, (0, 0), 9),
            ]
        );
        assert_eq!(entries[8].3, b"/bin/tool");
        assert_eq!(entries[3].3, b"12345");
    }

    #[test]
    fn an_empty_archive_is_its_trailer() {
        assert_eq!(read(&Archive::default().finish()), []);
    }
}
