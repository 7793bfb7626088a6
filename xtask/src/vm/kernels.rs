//! The kernels that can be tried, and the machines that they run on.

use anyhow::{Result, anyhow};

/// A processor architecture, as each tool calls it, and its virtual machine.
#[derive(Debug, PartialEq, Eq)]
pub struct Arch {
    /// Debian's name.
    pub debian: &'static str,
    /// The triple that the guest's programs are built for.
    pub triple: &'static str,
    /// `e_machine` of its executables (elf.h).
    pub elf_machine: u16,
    /// The emulator and its package.
    pub qemu: &'static str,
    /// The Debian package of the emulator.
    pub qemu_package: &'static str,
    /// Arguments that choose machine and processor.
    pub machine: &'static [&'static str],
    /// The kernel's console: the first serial port.
    pub console: &'static str,
    /// What its kernels need on their command line.
    pub kernel_line: &'static str,
    /// Arguments that make a port of the character device `results`: a second serial port. Its driver is
    /// built into all the kernels below, where virtio's are modules in some.
    pub port: &'static [&'static str],
    /// That port, as the guest sees it.
    pub channel: &'static str,
}

/// The machine that this project is built on.
pub const X86_64: Arch = Arch {
    debian: "amd64",
    triple: "x86_64-unknown-linux-gnu",
    elf_machine: 62,
    qemu: "qemu-system-x86_64",
    qemu_package: "qemu-system-x86",
    // One thread for all virtual CPUs: under several, attaching a trampoline to update_rq_clock was
    // seen to end in an int3 panic.
    machine: &["-accel", "tcg,thread=single", "-cpu", "max"],
    console: "ttyS0",
    // An emulated TSC is exact; without this the kernel finds the host's pauses in it and takes another
    // clock, which needs a syscall.
    kernel_line: "clocksource=tsc tsc=reliable",
    port: &["-serial", "chardev:results"],
    channel: "/dev/ttyS1",
};

/// Emulated on whatever machine this is; its programs are cross-built ([`super::cross`]).
pub const ARM64: Arch = Arch {
    debian: "arm64",
    triple: "aarch64-unknown-linux-gnu",
    elf_machine: 183,
    qemu: "qemu-system-aarch64",
    qemu_package: "qemu-system-arm",
    machine: &["-M", "virt", "-accel", "tcg,thread=single", "-cpu", "max"],
    console: "ttyAMA0",
    kernel_line: "",
    // The board's only serial port of its own is the console.
    port: &["-device", "pci-serial,chardev=results"],
    channel: "/dev/ttyS0",
};

/// A stock kernel of a Debian suite.
#[derive(Debug, PartialEq, Eq)]
pub struct Kernel {
    /// What it is called on the command line: its version, as far as the suite fixes it.
    pub name: &'static str,
    /// The suite that has it.
    pub suite: &'static str,
    /// The package that depends on the suite's newest kernel.
    pub meta_package: &'static str,
    /// What it runs on.
    pub arch: &'static Arch,
}

/// All of them, oldest first.
pub const KERNELS: &[Kernel] = &[
    kernel("5.10", "bullseye"),
    kernel("6.1", "bookworm"),
    kernel("6.12", "trixie"),
    kernel("7.x", "sid"),
    arm64("5.10-arm64", "bullseye"),
    arm64("6.12-arm64", "trixie"),
];

const fn kernel(name: &'static str, suite: &'static str) -> Kernel {
    Kernel { name, suite, meta_package: "linux-image-cloud-amd64", arch: &X86_64 }
}

const fn arm64(name: &'static str, suite: &'static str) -> Kernel {
    Kernel { name, suite, meta_package: "linux-image-cloud-arm64", arch: &ARM64 }
}

/// The kernel of this name.
///
/// # Errors
/// On a name that is not in the table.
pub fn find(name: &str) -> Result<&'static Kernel> {
    KERNELS.iter().find(|kernel| kernel.name == name).ok_or_else(|| {
        let known: Vec<_> = KERNELS.iter().map(|kernel| kernel.name).collect();
        anyhow!("there is no kernel {name}; known are {}", known.join(", "))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kernels_are_found_by_name() {
        assert_eq!(find("6.12").unwrap().suite, "trixie");
        let error = find("6.6").unwrap_err().to_string();
        assert_eq!(
            error,
            "there is no kernel 6.6; known are 5.10, 6.1, 6.12, 7.x, 5.10-arm64, 6.12-arm64"
        );
    }
}
