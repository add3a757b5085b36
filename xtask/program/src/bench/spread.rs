//! The spread of repeated measurements.

use std::fmt;

/// The median of several measurements, with minimum and maximum.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Spread {
    pub(super) median: f64,
    least: f64,
    most: f64,
}

impl Spread {
    pub(super) fn of(values: impl IntoIterator<Item = f64>) -> Spread {
        let mut values: Vec<f64> = values.into_iter().collect();
        values.sort_by(f64::total_cmp);
        let at = |index: usize| values.get(index).copied().unwrap_or(f64::NAN);
        let half = values.len() / 2;
        let median = match values.len() % 2 {
            0 => f64::midpoint(at(half.wrapping_sub(1)), at(half)),
            _ => at(half),
        };
        Spread { median, least: at(0), most: at(values.len().wrapping_sub(1)) }
    }
}

impl fmt::Display for Spread {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let digits = match self.median.abs() {
            size if size < 10.0 => 2,
            size if size < 1000.0 => 1,
            _ => 0,
        };
        let Spread { median, least, most } = self;
        write!(f, "{median:.digits$} ({least:.digits$}–{most:.digits$})")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_is_in_the_middle() {
        let spread = Spread::of([3.0, 1.0, 2.0]);
        assert_eq!(spread, Spread { median: 2.0, least: 1.0, most: 3.0 });
        assert_eq!(Spread::of([1.0, 2.0]).median, 1.5);
        assert!(Spread::of([]).median.is_nan());
    }

    #[test]
    fn larger_numbers_have_fewer_digits() {
        assert_eq!(Spread::of([2.345]).to_string(), "2.35 (2.35–2.35)");
        assert_eq!(Spread::of([123.45, 125.45, 127.0]).to_string(), "125.5 (123.5–127.0)");
        assert_eq!(Spread::of([78_123.4]).to_string(), "78123 (78123–78123)");
    }
}
