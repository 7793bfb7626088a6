//! Medians and quartiles: the machine is shared, so means would be somebody else's.

/// A sample in three numbers.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Quartiles {
    /// A quarter lies below.
    pub low: f64,
    /// Half lies below.
    pub median: f64,
    /// Three quarters lie below.
    pub high: f64,
    /// How many values.
    pub count: usize,
}

impl Quartiles {
    /// None of no values. Between two values it takes the point in proportion.
    pub fn of(values: impl IntoIterator<Item = f64>) -> Option<Self> {
        let mut sorted: Vec<f64> = values.into_iter().collect();
        sorted.sort_by(f64::total_cmp);
        let at = |part: f64| {
            let place = part * (sorted.len().checked_sub(1)?) as f64;
            let (below, above) = (place.floor() as usize, place.ceil() as usize);
            Some(sorted[below] + (sorted[above] - sorted[below]) * place.fract())
        };
        Some(Self { low: at(0.25)?, median: at(0.5)?, high: at(0.75)?, count: sorted.len() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quartiles_by_hand() {
        assert_eq!(Quartiles::of([]), None);
        let one = Quartiles { low: 7.0, median: 7.0, high: 7.0, count: 1 };
        assert_eq!(Quartiles::of([7.0]), Some(one));
        let five = Quartiles { low: 2.0, median: 3.0, high: 4.0, count: 5 };
        assert_eq!(Quartiles::of([5.0, 1.0, 4.0, 2.0, 3.0]), Some(five));
        let even = Quartiles { low: 1.75, median: 2.5, high: 3.25, count: 4 };
        assert_eq!(Quartiles::of([4.0, 1.0, 3.0, 2.0]), Some(even));
    }
}
