//! The kernel side of observer.
//!
//! This library is empty on purpose: `observer` names the crate as a build dependency so that cargo rebuilds
//! the object when the kernel side changes. The programs are in the binary.
#![no_std]
