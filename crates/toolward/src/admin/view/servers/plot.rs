//! Latency over the last minutes as a small SVG plot, drawn with attributes only, because the content security
//! policy allows no inline styles.

use toolward_gateway::metrics::calls::{SPANS, Span};

use crate::audit_log::row::took;

/// The size of the plot.
pub(super) const WIDTH: usize = 180;
pub(super) const HEIGHT: usize = 40;
/// The margin around the lines.
const MARGIN: f64 = 4.0;

pub(super) struct Plot {
    pub(super) width: usize,
    pub(super) height: usize,
    /// `points` attributes; a gap is an interval without calls.
    pub(super) p50: Vec<String>,
    pub(super) p95: Vec<String>,
    /// The positions of intervals with errors.
    pub(super) errors: Vec<String>,
    /// The value of its upper edge.
    pub(super) top: String,
    pub(super) empty: bool,
}

impl Plot {
    pub(super) fn of(spans: &[Span]) -> Plot {
        let highest = spans.iter().filter_map(|span| span.percentile(95)).max();
        let top = highest.unwrap_or(0).max(1);
        let x = |at: usize| MARGIN + at as f64 * (WIDTH as f64 - 2.0 * MARGIN) / (SPANS - 1) as f64;
        let y = |micros: u64| {
            let share = micros as f64 / top as f64;
            (HEIGHT as f64 - 2.0 * MARGIN) * (1.0 - share) + MARGIN
        };
        // There are no intervals before the process started: the last one is now.
        let first = SPANS.saturating_sub(spans.len());
        let line = |percent: u64| {
            let mut lines: Vec<Vec<(f64, f64)>> = vec![Vec::new()];
            for (at, span) in spans.iter().enumerate() {
                match (span.percentile(percent), lines.last_mut()) {
                    (Some(micros), Some(line)) => line.push((x(first + at), y(micros))),
                    (None, Some(line)) if !line.is_empty() => lines.push(Vec::new()),
                    _ => {}
                }
            }
            lines.into_iter().filter(|line| !line.is_empty()).map(points).collect()
        };
        let failed = spans.iter().enumerate().filter(|(_, span)| span.errors > 0);
        Plot {
            width: WIDTH,
            height: HEIGHT,
            p50: line(50),
            p95: line(95),
            errors: failed.map(|(at, _)| format!("{:.1}", x(first + at))).collect(),
            top: took(top),
            empty: highest.is_none(),
        }
    }
}

/// A single point becomes a short line, so that it is visible.
fn points(mut line: Vec<(f64, f64)>) -> String {
    if let [(x, y)] = line[..] {
        line = vec![(x - 1.5, y), (x + 1.5, y)];
    }
    let points = line.iter().map(|(x, y)| format!("{x:.1},{y:.1}"));
    points.collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn where_nothing_was_called_nothing_is_drawn() {
        let plot = Plot::of(&vec![Span::default(); SPANS]);
        assert!(plot.empty && plot.p50.is_empty() && plot.p95.is_empty());
        assert!(Plot::of(&[]).empty);
    }

    #[test]
    fn a_lone_point_can_be_seen() {
        assert_eq!(points(vec![(10.0, 5.0)]), "8.5,5.0 11.5,5.0");
        assert_eq!(points(vec![(0.0, 1.0), (6.0, 2.25)]), "0.0,1.0 6.0,2.2");
    }
}
