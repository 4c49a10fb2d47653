//! A field for each pair of values of two parameters.

use std::fmt::Write as _;

use super::{escaped, short};

const LEFT: f64 = 84.0;
const WIDTH: f64 = 480.0;
const ROW: f64 = 30.0;
const TOP: f64 = 8.0;
const BOTTOM: f64 = 44.0;

/// A field for each pair of values.
#[derive(Debug)]
pub(crate) struct HeatMap<'a> {
    /// What is drawn.
    pub(crate) title: &'a str,
    /// The parameter to the right, and its values.
    pub(crate) across: (&'a str, &'a [String]),
    /// The parameter upwards, and its values.
    pub(crate) upward: (&'a str, &'a [String]),
    /// A list for each value upwards.
    pub(crate) values: &'a [Vec<Option<f64>>],
}

impl HeatMap<'_> {
    /// Draws it: the fuller a field, the more. A field has its figure, so that nobody has to read
    /// it from the colour.
    pub(crate) fn svg(&self) -> String {
        let rows = self.upward.1.len();
        let height = TOP + rows as f64 * ROW + BOTTOM;
        let step = (WIDTH - LEFT) / self.across.1.len().max(1) as f64;
        let most = self.values.iter().flatten().flatten();
        let most = most
            .copied()
            .filter(|value| value.is_finite())
            .fold(0.0, f64::max);
        let mut out = format!(
            "<svg viewBox=\"0 0 {WIDTH} {height}\" role=\"img\" aria-label=\"{}\">\n",
            escaped(self.title)
        );
        for (number, (label, row)) in self.upward.1.iter().zip(self.values).enumerate() {
            // The first value is the lowest.
            let y = TOP + (rows - 1 - number) as f64 * ROW;
            let _ = writeln!(
                out,
                "<text class=\"weak\" x=\"{:.0}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>",
                LEFT - 6.0,
                y + ROW / 2.0 + 4.0,
                escaped(label)
            );
            for (column, value) in row.iter().enumerate() {
                let x = LEFT + step * column as f64;
                let value = value.filter(|value| value.is_finite());
                let share = value
                    .filter(|_| most > 0.0)
                    .map_or(0.0, |value| value / most);
                let told = value.map_or("–".into(), short);
                let _ = writeln!(
                    out,
                    "<rect x=\"{x:.1}\" y=\"{y:.1}\" width=\"{:.1}\" height=\"{:.1}\" \
                     style=\"fill:var(--s0);fill-opacity:{:.2}\"/>",
                    step - 1.0,
                    ROW - 1.0,
                    0.05 + 0.55 * share.clamp(0.0, 1.0)
                );
                let _ = writeln!(
                    out,
                    "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{told}</text>",
                    x + step / 2.0,
                    y + ROW / 2.0 + 4.0
                );
            }
        }
        for (column, label) in self.across.1.iter().enumerate() {
            let _ = writeln!(
                out,
                "<text class=\"weak\" x=\"{:.1}\" y=\"{:.0}\" text-anchor=\"middle\">{}</text>",
                LEFT + step * (column as f64 + 0.5),
                height - BOTTOM + 16.0,
                escaped(label)
            );
        }
        let _ = writeln!(
            out,
            "<text x=\"{:.0}\" y=\"{:.0}\" text-anchor=\"middle\">{} (upwards: {})</text>\n</svg>",
            (LEFT + WIDTH) / 2.0,
            height - 8.0,
            escaped(self.across.0),
            escaped(self.upward.0)
        );
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_pair_has_a_field_with_its_figure() {
        let svg = HeatMap {
            title: "calls/s",
            across: ("in-flight", &["1".into(), "2".into(), "4".into()]),
            upward: ("connections", &["1".into(), "<8>".into()]),
            values: &[
                vec![Some(10.0), Some(20.0), None],
                vec![Some(30.0), Some(40.0), Some(f64::NAN)],
            ],
        }
        .svg();
        assert_eq!(svg.matches("<rect").count(), 6);
        assert!(
            svg.contains(">40</text>") && svg.contains(">–</text>"),
            "{svg}"
        );
        assert!(
            svg.contains("fill-opacity:0.60"),
            "the most is the fullest: {svg}"
        );
        assert!(svg.contains("&lt;8&gt;"), "{svg}");
        assert!(!svg.contains("opacity:NaN"), "{svg}");
    }

    #[test]
    fn nothing_measured_is_an_empty_field() {
        let svg = HeatMap {
            title: "",
            across: ("a", &["1".into()]),
            upward: ("b", &["1".into()]),
            values: &[vec![None]],
        }
        .svg();
        assert!(svg.contains("fill-opacity:0.05"), "{svg}");
    }
}
