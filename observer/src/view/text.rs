//! Text in terminal cells: cut, fill, wrap, and numbers in a fixed scale.

use unicode_width::UnicodeWidthStr as _;

/// A unit and a precision, chosen once for a whole table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Scale {
    /// The unit's name, for the title.
    pub unit: &'static str,
    unit_ns: u128,
    decimals: u32,
}

impl Scale {
    /// Milliseconds with microseconds.
    pub const FINE: Self = Self { unit: "ms", unit_ns: 1_000_000, decimals: 3 };
    /// Milliseconds with tenths.
    pub const COARSE: Self = Self { unit: "ms", unit_ns: 1_000_000, decimals: 1 };
    /// Seconds with tenths: for a narrow terminal.
    pub const SECONDS: Self = Self { unit: "s", unit_ns: 1_000_000_000, decimals: 1 };
    /// Whole seconds: the last resort of a narrow terminal.
    pub const WHOLE: Self = Self { unit: "s", unit_ns: 1_000_000_000, decimals: 0 };

    /// The scale in which the largest number of a table is still easy to read: from 100 s on, a microsecond
    /// is noise.
    pub fn for_largest(largest_ns: u64) -> Self {
        if largest_ns < 100_000_000_000 { Self::FINE } else { Self::COARSE }
    }

    /// `ns`, rounded; `-` is not measured.
    pub fn show(self, ns: Option<u64>) -> String {
        ns.map_or_else(|| "-".to_owned(), |ns| self.digits(self.steps(ns)))
    }

    /// `ns` with its sign; what rounds to zero has none.
    pub fn signed(self, ns: Option<i64>) -> String {
        let Some(ns) = ns else { return "-".to_owned() };
        let steps = self.steps(ns.unsigned_abs()).cast_signed();
        self.signed_steps(if ns < 0 { -steps } else { steps })
    }

    /// A number of steps of the last decimal, with its sign.
    pub fn signed_steps(self, steps: i128) -> String {
        let sign = match steps.signum() {
            0 => "",
            -1 => "-",
            _ => "+",
        };
        format!("{sign}{}", self.digits(steps.unsigned_abs()))
    }

    /// True when `ns` shows as something else than zero.
    pub fn shows(self, ns: u64) -> bool {
        self.steps(ns) != 0
    }

    /// `ns` in units of the last decimal, rounded half up.
    fn steps(self, ns: u64) -> u128 {
        let step_ns = self.step_ns();
        (u128::from(ns) + step_ns / 2) / step_ns
    }

    /// The size of the last decimal.
    fn step_ns(self) -> u128 {
        self.unit_ns / 10_u128.pow(self.decimals)
    }

    /// A sum and its parts in steps, rounded so that the parts add up to the sum. The parts that are furthest from
    /// their own rounding give way, each by one step.
    pub fn add_up<const N: usize>(self, parts_ns: [i128; N]) -> (i128, [i128; N]) {
        let step_ns = self.step_ns().cast_signed();
        let round = |ns: i128| (ns + ns.signum() * step_ns / 2) / step_ns;
        let sum = round(parts_ns.iter().sum());
        let mut parts = parts_ns.map(round);
        loop {
            let missing = sum - parts.iter().sum::<i128>();
            // The largest error in the direction that is missing.
            let error =
                |index: &usize| (parts_ns[*index] - parts[*index] * step_ns) * missing.signum();
            match (0..N).max_by_key(error) {
                Some(index) if missing != 0 => parts[index] += missing.signum(),
                _ => return (sum, parts),
            }
        }
    }

    fn digits(self, steps: u128) -> String {
        let one = 10_u128.pow(self.decimals);
        if self.decimals == 0 {
            return steps.to_string();
        }
        let width = self.decimals as usize;
        format!("{}.{:0width$}", steps / one, steps % one)
    }
}

/// Milliseconds in a sentence: with microseconds below 100 ms, with tenths from there on.
pub fn ms(ns: u64) -> String {
    let scale = if ns < 100_000_000 { Scale::FINE } else { Scale::COARSE };
    format!("{} ms", scale.show(Some(ns)))
}

/// The length of a tick as people write it: `4 ms`, `3.333 ms`.
pub fn tick(tick_ns: u64) -> String {
    let text = Scale::FINE.show(Some(tick_ns));
    format!("{} ms", text.trim_end_matches('0').trim_end_matches('.'))
}

/// A number with one decimal if that fits into `width` cells, else without, else its size only.
pub fn squeeze(value: f64, width: usize) -> String {
    [1, 0]
        .into_iter()
        .map(|decimals| format!("{value:.decimals$}"))
        .find(|text| text.len() <= width)
        .unwrap_or_else(|| format!("{value:.0e}"))
}

/// Without control characters: one text must stay on one line, and must not steer the terminal.
pub fn clean(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect()
}

/// At most `width` cells; what was longer ends in `…`.
pub fn cut(text: &str, width: usize) -> String {
    if text.width() <= width {
        return text.to_owned();
    }
    if width == 0 {
        return String::new();
    }
    format!("{}…", prefix(text, width - 1))
}

/// Exactly `width` cells: cut, or filled on the right.
pub fn pad(text: &str, width: usize) -> String {
    let mut text = cut(text, width);
    text.push_str(&" ".repeat(width.saturating_sub(text.width())));
    text
}

/// A name and an id in at most `width` cells: the name is cut, the id stays whole.
pub fn who(name: &str, id: Option<u32>, width: usize) -> String {
    match id {
        Some(id) => {
            let id = id.to_string();
            format!("{} {id}", cut(name, width.saturating_sub(1 + id.len())))
        }
        None => cut(name, width),
    }
}

/// A count in at most `width` cells (from 5 on): whole, or in thousands, millions and so on.
pub fn squeeze_count(count: u64, width: usize) -> String {
    let text = count.to_string();
    if text.len() <= width {
        return text;
    }
    let (mut value, mut units) = (count as f64, "kMGTPE".chars());
    loop {
        value /= 1000.0;
        let Some(unit) = units.next() else { return squeeze(count as f64, width) };
        for decimals in [1, 0] {
            let text = format!("{value:.decimals$}{unit}");
            if text.len() <= width {
                return text;
            }
        }
    }
}

/// The longest beginning of at most `width` cells. It measures whole strings, since the width of a sequence
/// is not always the sum of its characters' widths.
fn prefix(text: &str, width: usize) -> &str {
    text.char_indices()
        .map(|(start, character)| &text[..start + character.len_utf8()])
        .take_while(|beginning| beginning.width() <= width)
        .last()
        .unwrap_or("")
}

/// Appends `text` as lines of at most `width` cells; all but the first are indented by two.
pub fn wrap(out: &mut String, text: &str, width: usize) {
    let text = clean(text);
    let words: Vec<&str> = text.split(' ').filter(|word| !word.is_empty()).collect();
    fill(out, &words, " ", width);
}

/// Appends `parts` with `separator` between those that share a line.
pub fn fill(out: &mut String, parts: &[&str], separator: &str, width: usize) {
    const INDENT: usize = 2;
    let mut line = String::new();
    for part in parts {
        let is_first = line.trim().is_empty();
        let needed = if is_first { 0 } else { separator.width() } + part.width();
        if !is_first && line.width() + needed > width {
            out.push_str(&line);
            out.push('\n');
            line = " ".repeat(INDENT);
        } else if !is_first {
            line.push_str(separator);
        }
        // A part that is longer than a line is cut into pieces.
        let mut rest = *part;
        while line.width() + rest.width() > width {
            let piece = prefix(rest, width.saturating_sub(line.width()));
            if piece.is_empty() {
                break;
            }
            line.push_str(piece);
            out.push_str(&line);
            out.push('\n');
            line = " ".repeat(INDENT);
            rest = &rest[piece.len()..];
        }
        line.push_str(rest);
    }
    out.push_str(&line);
    out.push('\n');
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_rounded_and_signed() {
        assert_eq!(Scale::FINE.show(Some(1_234_567)), "1.235");
        assert_eq!(Scale::FINE.show(Some(0)), "0.000");
        assert_eq!(Scale::FINE.show(None), "-");
        assert_eq!(Scale::COARSE.show(Some(123_456_789_012)), "123456.8");
        assert_eq!(Scale::WHOLE.show(Some(1_500_000_000)), "2");
        assert_eq!(Scale::FINE.signed(Some(-1_500)), "-0.002");
        assert_eq!(Scale::FINE.signed(Some(-499)), "0.000");
        assert_eq!(Scale::FINE.signed(Some(12_000)), "+0.012");
        assert_eq!(Scale::FINE.signed(None), "-");
        assert_eq!(Scale::COARSE.signed(Some(i64::MIN)), "-9223372036854.8");
        assert_eq!((tick(4_000_000), tick(3_333_333)), ("4 ms".into(), "3.333 ms".into()));
        assert_eq!((ms(12_345_678), ms(1_234_567_890)), ("12.346 ms".into(), "1234.6 ms".into()));
        assert_eq!(squeeze(99.96, 5), "100.0");
        assert_eq!(squeeze(12_345.6, 5), "12346");
        assert_eq!(squeeze(1_234_567.0, 5), "1e6");
        assert_eq!(squeeze_count(123_456, 6), "123456");
        assert_eq!(squeeze_count(123_456, 5), "123k");
        assert_eq!(squeeze_count(1_234_567, 4), "1.2M");
        assert_eq!(squeeze_count(u64::MAX, 5), "18.4E");
    }

    #[test]
    fn parts_are_rounded_so_that_they_add_up() {
        // Each of them alone would be rounded down.
        assert_eq!(Scale::FINE.add_up([400, 400, 400]), (1, [0, 0, 1]));
        assert_eq!(Scale::FINE.add_up([1_600, -600, 0]), (1, [2, -1, 0]));
        assert_eq!(Scale::FINE.add_up([-1_600, 700, 0]), (-1, [-2, 1, 0]));
    }

    proptest::proptest! {
        #[test]
        fn parts_always_add_up(parts in proptest::array::uniform4(i64::MIN..=i64::MAX)) {
            for scale in [Scale::FINE, Scale::COARSE, Scale::SECONDS, Scale::WHOLE] {
                let step_ns = scale.step_ns().cast_signed();
                let parts_ns = parts.map(i128::from);
                let (sum, shown) = scale.add_up(parts_ns);
                proptest::prop_assert_eq!(shown.iter().sum::<i128>(), sum);
                for (shown, ns) in shown.iter().zip(parts_ns) {
                    // At most four halves are spread over four parts.
                    proptest::prop_assert!((shown * step_ns - ns).abs() <= step_ns * 3 / 2);
                }
            }
        }
    }

    #[test]
    fn text_is_cut_by_cells() {
        assert_eq!(pad("日本語", 5), "日本…");
        assert_eq!(pad("日本語", 4), "日… ");
        assert_eq!(pad("e\u{301}x", 4), "e\u{301}x  ");
        assert_eq!(cut("abc", 0), "");
        assert_eq!(who("a-long-name", Some(4_194_303), 13), "a-lo… 4194303");
        assert_eq!(who("idle", None, 3), "id…");
        for width in 0..20 {
            for name in ["日本語の名前", "❤\u{fe0f}❤\u{fe0f}❤\u{fe0f}", "\u{301}a\u{301}b", "plain"]
            {
                assert_eq!(pad(name, width).width(), width, "{name:?} in {width}");
            }
        }
    }

    #[test]
    fn lines_are_wrapped_and_long_words_broken() {
        let mut out = String::new();
        wrap(&mut out, "one two\nthree \x1b[31mfour", 9);
        assert_eq!(out, "one two\n  three\n  [31mfou\n  r\n");
        let mut out = String::new();
        fill(&mut out, &["a b", "c d", "e f"], " · ", 10);
        assert_eq!(out, "a b · c d\n  e f\n");
    }
}
