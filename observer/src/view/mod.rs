//! For people: pure functions from figures to text.

mod causes;
pub mod explain;
mod groups;
mod interval;
pub mod live;
mod pairs;
mod rows;
#[cfg(test)]
mod samples;
pub mod table;
mod text;
mod tracer;
pub mod verdict;
