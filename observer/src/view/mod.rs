//! For people: pure functions from figures to text.

mod interval;
#[cfg(test)]
mod samples;
pub mod table;
mod text;
pub mod verdict;
