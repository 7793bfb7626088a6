//! What is shown, as CSV: all rows of the tab in front, not only those that fit.

use super::{
    cpus, hooks, pairs,
    state::{Model, Tab},
    tasks,
};

/// The rows and columns shown, titles first.
#[must_use]
pub fn csv(model: &Model) -> Vec<u8> {
    let lines = match model.tab {
        Tab::Tasks => tasks::text(&model.rows, model.size.0, model.span_ns()),
        Tab::Pairs => pairs::text(model, model.size.0),
        Tab::Cpus => cpus::text(model),
        Tab::Hooks => hooks::text(model),
    };
    let mut writer = csv::Writer::from_writer(Vec::new());
    for line in lines {
        // Memory does not fail, and all lines have the same number of cells.
        if writer.write_record(line).is_err() {
            break;
        }
    }
    writer.into_inner().unwrap_or_default()
}
