//! Marks that a return from the kernel by `iret` wipes out (see the parent module).

use anyhow::{Context as _, Result};

pub use arch::{clear, is_gone, set};

use super::super::memory::Pages;

/// Sets a mark and takes a page fault, which returns to user mode by `iret`.
pub fn work() -> Result<bool> {
    if !arch::EXISTS {
        return Ok(false);
    }
    let page = Pages::map(1).context("cannot map a page")?;
    set();
    let kept = !is_gone();
    page.touch(0);
    let replaced = is_gone();
    clear();
    Ok(kept && replaced)
}

#[cfg(target_arch = "x86_64")]
mod arch {
    use std::arch::asm;

    pub const EXISTS: bool = true;
    const SELECTOR: u16 = 1;

    #[inline]
    fn load(selector: u16) {
        // SAFETY: 0 and 1 are null selectors, which may always be loaded into ES; 64-bit code never
        // uses ES, so no access changes its meaning. Not nomem: no access may move across it.
        unsafe { asm!("mov es, {0:x}", in(reg) selector, options(nostack, preserves_flags)) }
    }

    #[inline]
    pub fn set() {
        load(SELECTOR);
    }

    #[inline]
    pub fn clear() {
        load(0);
    }

    #[inline]
    pub fn is_gone() -> bool {
        let selector: u16;
        // SAFETY: only reads a segment selector into a register.
        unsafe {
            asm!("mov {0:x}, es", out(reg) selector, options(nostack, preserves_flags));
        }
        selector != SELECTOR
    }
}

#[cfg(not(target_arch = "x86_64"))]
mod arch {
    pub const EXISTS: bool = false;
    pub fn set() {}
    pub fn clear() {}
    pub fn is_gone() -> bool {
        false
    }
}
