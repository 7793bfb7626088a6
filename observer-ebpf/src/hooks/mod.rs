//! The programs, one module per hook family. The names are those of the modules of `observer-common`.

mod cycles;
mod fault;
mod irq;
mod lifecycle;
mod pair;
mod ptrace;
mod read;
mod switch;
mod syscall;
mod wakeup;
