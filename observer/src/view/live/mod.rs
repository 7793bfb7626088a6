//! The full-screen view: state, actions and drawing apart.
//!
//! A [`Reading`] or an [`Action`] changes the [`Model`]; what is to be done outside of it comes back as an
//! [`Effect`]. [`draw()`] is a pure function of the model. Nothing here knows a terminal, a clock or a file.

mod causes;
mod cpus;
mod cursor;
mod detail;
mod draw;
mod export;
mod figure;
mod grid;
mod help;
mod history;
mod hooks;
mod keys;
mod order;
mod pairs;
mod state;
pub mod svg;
mod tasks;
mod theme;
mod update;

#[cfg(test)]
mod samples;
#[cfg(test)]
mod tests;
pub use self::{
    draw::draw,
    export::csv,
    keys::{Action, Press},
    state::{HookRow, Model, Reading, Settings, Tab},
    theme::Theme,
    update::Effect,
};
