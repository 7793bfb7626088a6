//! For people: pure functions from figures to text.

mod interval;
pub mod live;
#[cfg(test)]
mod samples;
pub mod table;
mod text;
pub mod verdict;
