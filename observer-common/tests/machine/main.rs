//! Arbitrary sequences of events: what holds after each of them, whatever came before and whatever was lost.
//!
//! [`world`] is a kernel without sense: it knows who runs where, and makes any event at any time. The hooks that
//! it calls are those of observer-ebpf, step by step. [`books`] says what must hold. [`truth`] is a kernel with
//! sense: it knows what the tasks really did, and the books must say the same.

mod books;
mod script;
mod truth;
mod world;
