//! A place in a list that keeps to what was chosen, whatever row that is in.

use std::ops::Range;

/// What is chosen, and the first row that is shown.
#[derive(Clone, Debug)]
pub struct Cursor<K> {
    /// What is chosen; it may be out of the list for now (a filter).
    chosen: Option<K>,
    /// The row it was last seen in.
    row: usize,
    top: usize,
}

impl<K> Default for Cursor<K> {
    fn default() -> Self {
        Self { chosen: None, row: 0, top: 0 }
    }
}

impl<K: PartialEq> Cursor<K> {
    /// What is chosen.
    pub fn chosen(&self) -> Option<&K> {
        self.chosen.as_ref()
    }

    /// Chooses nothing, and goes to the top.
    pub fn clear(&mut self) {
        *self = Self::default();
    }

    /// Chooses this row.
    pub fn choose(&mut self, key: K, row: usize) {
        (self.chosen, self.row) = (Some(key), row);
    }

    /// The list has changed: `row` is where what was chosen is now. The view follows it.
    pub fn follow(&mut self, row: Option<usize>, rows: usize, page: usize) {
        if let Some(row) = row {
            self.row = row;
        }
        self.row = self.row.min(rows.saturating_sub(1));
        self.show(row.is_some(), rows, page);
    }

    /// The row that `by` rows lead to. The first step into a list chooses the first row that is shown.
    #[must_use]
    pub fn step(&self, by: isize, rows: usize) -> usize {
        let row = match self.chosen {
            Some(_) => self.row.saturating_add_signed(by),
            None => self.top.saturating_add_signed(if by.abs() <= 1 { 0 } else { by }),
        };
        row.min(rows.saturating_sub(1))
    }

    /// Moves the view as little as needed to show the chosen row.
    fn show(&mut self, has_chosen: bool, rows: usize, page: usize) {
        if has_chosen {
            let least = (self.row + 1).saturating_sub(page);
            self.top = self.top.clamp(least, self.row.max(least));
        }
        self.top = self.top.min(rows.saturating_sub(page));
    }

    /// The rows that are shown.
    #[must_use]
    pub fn window(&self, rows: usize, page: usize) -> Range<usize> {
        let top = self.top.min(rows);
        top..rows.min(top + page)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_view_moves_as_little_as_needed() {
        let mut cursor = Cursor::<u32>::default();
        assert_eq!(cursor.step(1, 100), 0);
        cursor.choose(7, 0);
        cursor.follow(Some(9), 100, 10);
        assert_eq!(cursor.window(100, 10), 0..10);
        cursor.follow(Some(10), 100, 10);
        assert_eq!(cursor.window(100, 10), 1..11);
        cursor.follow(Some(50), 100, 10);
        assert_eq!(cursor.window(100, 10), 41..51);
        cursor.follow(Some(0), 100, 10);
        assert_eq!(cursor.window(100, 10), 0..10);
    }

    #[test]
    fn steps_stay_in_the_list() {
        let mut cursor = Cursor::<u32>::default();
        cursor.choose(1, 5);
        assert_eq!(cursor.step(-9, 10), 0);
        assert_eq!(cursor.step(9, 10), 9);
        assert_eq!(cursor.step(isize::MAX, 10), 9);
        assert_eq!(cursor.step(1, 0), 0);
    }

    #[test]
    fn a_list_that_shrinks_leaves_no_empty_page() {
        let mut cursor = Cursor::<u32>::default();
        cursor.choose(1, 99);
        cursor.follow(Some(99), 100, 10);
        cursor.follow(None, 12, 10);
        assert_eq!(cursor.window(12, 10), 2..12);
        cursor.follow(None, 0, 10);
        assert_eq!(cursor.window(0, 10), 0..0);
    }
}
