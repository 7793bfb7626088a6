//! What keys change.

use std::time::Duration;

use super::{
    help,
    keys::{self, Action, Press},
    pairs,
    state::{Model, Tab},
    tasks,
};

/// What is to be done outside of the view.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Nothing.
    None,
    /// End.
    Quit,
    /// Stop this process until it is continued.
    Suspend,
    /// Write everything to the terminal again.
    Redraw,
    /// Read this often from now on.
    Interval(Duration),
    /// Write [`super::csv`] into a file, and say where with [`Model::say`].
    Export,
}

/// Times between two readings that `+` and `-` choose from, ms.
const INTERVALS_MS: [u64; 11] =
    [100, 200, 500, 1000, 2000, 3000, 5000, 10_000, 20_000, 30_000, 60_000];

/// More would not be read, and a terminal that pastes must not fill memory.
const LONGEST_FILTER: usize = 64;

impl Model {
    /// A key was pressed.
    pub fn press(&mut self, press: Press) -> Effect {
        self.message = None;
        if self.typing.is_some() && press != Press::Ctrl('c') && press != Press::Ctrl('z') {
            self.type_filter(press);
            return Effect::None;
        }
        keys::action(press).map_or(Effect::None, |action| self.act(action))
    }

    /// Does what a key stands for.
    pub fn act(&mut self, action: Action) -> Effect {
        match action {
            Action::Quit => return Effect::Quit,
            Action::Suspend => return Effect::Suspend,
            Action::Redraw => return Effect::Redraw,
            Action::Export => return Effect::Export,
            Action::Faster => return self.change_interval(false),
            Action::Slower => return self.change_interval(true),
            Action::Help => {
                (self.has_help, self.help_top) = (!self.has_help, 0);
            }
            Action::Pause => self.pause(),
            Action::Sort => self.sort(1),
            Action::SortBack => self.sort(-1),
            Action::Reverse => match self.tab {
                Tab::Tasks => self.rows.want(|wanted| wanted.reversed = !wanted.reversed),
                Tab::Pairs => self.pairs.reversed = !self.pairs.reversed,
                Tab::Cpus | Tab::Hooks => {}
            },
            Action::Filter => {
                self.has_help = false;
                self.typing = Some(self.rows.wanted().filter.clone());
            }
            Action::Next => self.scroll(1),
            Action::Previous => self.scroll(-1),
            Action::PageDown => self.scroll_page(true),
            Action::PageUp => self.scroll_page(false),
            Action::First => self.scroll(isize::MIN),
            Action::Last => self.scroll(isize::MAX),
            Action::Detail => self.open_detail(),
            Action::Back => self.back(),
            Action::NextTab => self.turn(1),
            Action::PreviousTab => self.turn(Tab::ALL.len() - 1),
            Action::Processes => self.change_processes(),
            Action::Tree => self.rows.want(|wanted| wanted.tree = !wanted.tree),
            Action::Cumulative => {
                self.rows.want(|wanted| wanted.cumulative = !wanted.cumulative);
            }
            Action::Purge => {
                let count = self.rows.purge();
                let rows = if count == 1 { "row" } else { "rows" };
                self.say(format!("{count} {rows} hidden; the summary still has them"));
            }
        }
        self.reorder_pairs();
        self.follow();
        Effect::None
    }

    fn type_filter(&mut self, press: Press) {
        let before = self.typing.clone().unwrap_or_default();
        match press {
            Press::Enter => self.typing = None,
            Press::Esc => {
                self.typing = None;
                self.rows.want(|wanted| wanted.filter = before);
            }
            Press::Backspace => self.rows.want(|wanted| {
                wanted.filter.pop();
            }),
            Press::Ctrl('u') => self.rows.want(|wanted| wanted.filter.clear()),
            Press::Char(character) if !character.is_control() => self.rows.want(|wanted| {
                if wanted.filter.chars().count() < LONGEST_FILTER {
                    wanted.filter.push(character);
                }
            }),
            Press::Up => self.scroll(-1),
            Press::Down => self.scroll(1),
            _ => {}
        }
        self.reorder_pairs();
        self.follow();
    }

    fn change_interval(&mut self, longer: bool) -> Effect {
        let now = self.interval;
        let mut choices = INTERVALS_MS.map(Duration::from_millis).into_iter();
        let next = if longer {
            choices.find(|choice| *choice > now)
        } else {
            choices.rfind(|choice| *choice < now)
        };
        match next {
            Some(interval) => {
                self.interval = interval;
                Effect::Interval(interval)
            }
            None => Effect::None,
        }
    }

    fn sort(&mut self, by: isize) {
        let width = self.size.0;
        match self.tab {
            Tab::Tasks => {
                let next = next(&tasks::sortable(width), self.rows.wanted().sort, by);
                self.rows.want(|wanted| (wanted.sort, wanted.reversed) = (next, false));
            }
            Tab::Pairs => {
                self.pairs.sort = next(&pairs::sortable(width), self.pairs.sort, by);
                self.pairs.reversed = false;
            }
            Tab::Cpus | Tab::Hooks => {}
        }
    }

    fn scroll_page(&mut self, down: bool) {
        if self.has_detail && !self.has_help && self.takes_detail() {
            let by = usize::from(self.areas().detail.height / 2).max(1);
            self.detail_top =
                if down { self.detail_top + by } else { self.detail_top.saturating_sub(by) };
            return;
        }
        let page = isize::try_from(self.page().max(1)).unwrap_or(1);
        self.scroll(if down { page } else { -page });
    }

    fn scroll(&mut self, by: isize) {
        if self.has_help {
            self.help_top = self.help_top.saturating_add_signed(by).min(help::LINES);
            return;
        }
        self.detail_top = 0;
        match self.tab {
            Tab::Tasks => {
                let row = self.cursor.step(by, self.rows.len());
                if let Some(key) = self.rows.key(row) {
                    self.cursor.choose(key, row);
                }
            }
            Tab::Pairs => {
                let row = self.pair_cursor.step(by, self.pairs.len());
                if let Some((_, pair)) = self.pairs.row(row, true) {
                    self.pair_cursor.choose(pairs::key(pair), row);
                }
            }
            Tab::Cpus => {
                let row = self.cpu_cursor.step(by, self.cpus().len());
                if let Some(cpu) = self.cpus().get(row) {
                    self.cpu_cursor.choose(cpu.cpu, row);
                }
            }
            Tab::Hooks => {
                let row = self.hook_cursor.step(by, self.hooks().len());
                if row < self.hooks().len() {
                    self.hook_cursor.choose(row, row);
                }
            }
        }
    }

    /// Tabs whose rows have more to tell.
    pub(super) fn takes_detail(&self) -> bool {
        matches!(self.tab, Tab::Tasks | Tab::Pairs)
    }

    fn open_detail(&mut self) {
        if !self.takes_detail() {
            return;
        }
        (self.has_detail, self.has_help) = (true, false);
        self.choose_for_detail();
    }

    /// The detail pane is about a row: the first one, if none is chosen.
    fn choose_for_detail(&mut self) {
        let is_chosen = match self.tab {
            Tab::Tasks => self.chosen_row().is_some(),
            _ => self.pair_cursor.chosen().is_some_and(|key| self.pairs.find(key).is_some()),
        };
        if !is_chosen {
            self.scroll(0);
        }
    }

    fn back(&mut self) {
        if self.has_help {
            self.has_help = false;
        } else if self.has_detail {
            (self.has_detail, self.detail_top) = (false, 0);
        } else if !self.rows.wanted().filter.is_empty() {
            self.rows.want(|wanted| wanted.filter.clear());
        } else {
            self.cursor.clear();
            self.pair_cursor.clear();
            self.cpu_cursor.clear();
            self.hook_cursor.clear();
        }
    }

    fn turn(&mut self, by: usize) {
        let now = Tab::ALL.iter().position(|tab| *tab == self.tab).unwrap_or(0);
        self.tab = Tab::ALL[(now + by) % Tab::ALL.len()];
        (self.has_help, self.detail_top) = (false, 0);
        if self.has_detail {
            self.choose_for_detail();
        }
    }

    /// The choice goes from a thread to its process and back.
    fn change_processes(&mut self) {
        let tgid =
            self.chosen_row().and_then(|row| self.rows.row(row)).map(|(_, _, task)| task.tgid);
        self.rows.want(|wanted| wanted.processes = !wanted.processes);
        self.cursor.clear();
        if let Some(row) = tgid.and_then(|tgid| self.rows.find_process(tgid))
            && let Some(key) = self.rows.key(row)
        {
            self.cursor.choose(key, row);
        }
    }
}

/// The one that comes `by` steps after `now`, around the end; the first if `now` is not there.
fn next<T: Copy + PartialEq>(all: &[T], now: T, by: isize) -> T {
    let Some(first) = all.first() else { return now };
    let Some(place) = all.iter().position(|one| *one == now) else { return *first };
    let count = isize::try_from(all.len()).unwrap_or(1);
    let place = isize::try_from(place).unwrap_or(0);
    all.get((place + by).rem_euclid(count) as usize).copied().unwrap_or(now)
}
