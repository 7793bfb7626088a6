//! What the two sides of a test kernel share: the host (`cargo xtask vm`) and the guest (`vm-init`).
//!
//! The host writes a [`plan::Plan`] into the guest's file system, the guest runs it and answers with
//! [`wire::Frame`]s over a serial port of its own.

pub mod plan;
pub mod wire;
