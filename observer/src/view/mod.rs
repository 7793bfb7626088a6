//! For people: pure functions from figures to text.

pub mod table;
pub mod verdict;
