//! Lines over the values of a parameter, and points between two measures.

use std::fmt::Write as _;

use super::scale::Scale;
use super::{escaped, short};

const WIDTH: f64 = 480.0;
const HEIGHT: f64 = 300.0;
const LEFT: f64 = 52.0;
const RIGHT: f64 = 12.0;
const TOP: f64 = 16.0;
const BOTTOM: f64 = 44.0;
/// A line of the key.
const KEY_LINE: f64 = 18.0;
/// What an entry of the key takes beside its text, and a letter of that.
const KEY_SIGN: f64 = 26.0;
const LETTER: f64 = 7.0;

/// How wide the box of a middle half is.
const HALF_WIDTH: f64 = 12.0;

/// Series of one chart: as many as there are colours.
const SERIES_MOST: usize = 8;

/// A value, and how far several runs are apart.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct ChartPoint {
    /// The median.
    pub(crate) value: f64,
    /// The smallest and the largest.
    pub(crate) range: (f64, f64),
    /// The middle half of the runs, which is drawn as a box; `None`: there are too few for one.
    pub(crate) middle_half: Option<(f64, f64)>,
}

/// A line of a chart: a point, or none, for each value of the parameter.
#[derive(Clone, Debug)]
pub(crate) struct ChartSeries {
    /// Its name in the key.
    pub(crate) name: String,
    /// Its points.
    pub(crate) points: Vec<Option<ChartPoint>>,
}

impl ChartSeries {
    /// Figures that were measured once each.
    pub(crate) fn of_single(
        name: &str,
        values: impl IntoIterator<Item = Option<f64>>,
    ) -> ChartSeries {
        let point = |value: f64| ChartPoint {
            value,
            range: (value, value),
            middle_half: None,
        };
        ChartSeries {
            name: name.to_owned(),
            points: values.into_iter().map(|value| value.map(point)).collect(),
        }
    }
}

/// Lines over the values of a parameter, which stand at equal distances.
#[derive(Debug)]
pub(crate) struct LineChart<'a> {
    /// What is drawn, for who does not see it.
    pub(crate) title: &'a str,
    /// The values.
    pub(crate) labels: &'a [String],
    /// The parameter.
    pub(crate) below: &'a str,
    /// What the lines are.
    pub(crate) series: &'a [ChartSeries],
    /// Whether each factor of ten is equally high.
    pub(crate) is_log: bool,
}

/// A point between two measures, and what stands beside it.
pub(crate) type NamedPoint = (f64, f64, String);

/// Points between two measures, joined in the order of a parameter.
#[derive(Debug)]
pub(crate) struct PointChart<'a> {
    /// What is drawn.
    pub(crate) title: &'a str,
    /// What is to the right.
    pub(crate) below: &'a str,
    /// For each series its name, and its points: right, up, and what stands beside it.
    pub(crate) series: &'a [(String, Vec<NamedPoint>)],
}

/// Lines with their title as the caption, if they have any point. `across` is the values of the
/// parameter, and the parameter.
pub(crate) fn lines_with_caption(
    title: &str,
    across: (&[String], &str),
    series: &[ChartSeries],
    is_log: bool,
) -> Option<(String, String)> {
    let (labels, below) = across;
    let chart = LineChart {
        title,
        labels,
        below,
        series,
        is_log,
    };
    chart.with_caption()
}

impl LineChart<'_> {
    /// Draws it with its title as the caption, if it has any point.
    pub(crate) fn with_caption(&self) -> Option<(String, String)> {
        let mut points = self.series.iter().flat_map(|one| &one.points);
        let has_any = points.any(Option::is_some);
        has_any.then(|| (self.title.to_owned(), self.svg()))
    }

    /// Draws it.
    pub(crate) fn svg(&self) -> String {
        let series = self.series.get(..SERIES_MOST).unwrap_or(self.series);
        let ranges = || {
            let points = series.iter().flat_map(|one| one.points.iter().flatten());
            points.flat_map(|point| [point.value, point.range.0, point.range.1])
        };
        let scale = match self.is_log {
            true => Scale::logarithmic(ranges()),
            false => Scale::from_zero(ranges()),
        };
        let names: Vec<&str> = series.iter().map(|one| one.name.as_str()).collect();
        let mut chart = Chart::new(self.title, &names);
        chart.upward_axis(&scale);
        let step = chart.width() / self.labels.len().max(1) as f64;
        let x_of = |index: usize| LEFT + step * (index as f64 + 0.5);
        // Labels that would meet are left out.
        let longest = self.labels.iter().map(|label| label.chars().count()).max();
        let every = ((longest.unwrap_or(0) as f64 * LETTER + 8.0) / step)
            .ceil()
            .max(1.0) as usize;
        for (index, label) in self.labels.iter().enumerate().step_by(every) {
            chart.label_below(x_of(index), label);
        }
        chart.title_below(self.below);
        for (number, one) in series.iter().enumerate() {
            let placed = one.points.iter().enumerate().filter_map(|(index, point)| {
                let point = (*point)?;
                let y = chart.y_of(&scale, point.value)?;
                Some((index, point, y))
            });
            let placed: Vec<(usize, ChartPoint, f64)> = placed.collect();
            let line: Vec<(f64, f64)> = placed
                .iter()
                .map(|(index, _, y)| (x_of(*index), *y))
                .collect();
            chart.line(number, &line);
            for (index, point, y) in &placed {
                let x = x_of(*index);
                let ends = [point.range.0, point.range.1].map(|end| chart.y_of(&scale, end));
                if let [Some(low), Some(high)] = ends {
                    chart.range(number, x, low, high);
                }
                let half = point.middle_half;
                let half = half
                    .and_then(|(low, high)| chart.y_of(&scale, low).zip(chart.y_of(&scale, high)));
                if let Some((low, high)) = half {
                    chart.middle_half(number, x, low, high);
                }
                let label = self.labels.get(*index).map_or("", String::as_str);
                let (least, most) = point.range;
                let runs = match least < most {
                    true => format!(" (runs from {} to {})", short(least), short(most)),
                    false => String::new(),
                };
                let told = format!("{} {label}: {}{runs}", one.name, short(point.value));
                chart.point(number, x, *y, &told);
            }
        }
        chart.end()
    }
}

impl PointChart<'_> {
    /// Draws it.
    pub(crate) fn svg(&self) -> String {
        let series = self.series.get(..SERIES_MOST).unwrap_or(self.series);
        let points = || series.iter().flat_map(|(_, points)| points.iter());
        let across = Scale::from_zero(points().map(|point| point.0));
        let upward = Scale::logarithmic(points().map(|point| point.1));
        let names: Vec<&str> = series.iter().map(|(name, _)| name.as_str()).collect();
        let mut chart = Chart::new(self.title, &names);
        chart.upward_axis(&upward);
        let width = chart.width();
        let x_of = |value: f64| Some(LEFT + width * across.share(value)?);
        for tick in across.ticks() {
            if let Some(x) = x_of(tick) {
                chart.label_below(x, &short(tick));
            }
        }
        chart.title_below(self.below);
        for (number, (name, points)) in series.iter().enumerate() {
            let placed = points.iter().filter_map(|(right, up, label)| {
                Some((x_of(*right)?, chart.y_of(&upward, *up)?, right, up, label))
            });
            let placed: Vec<_> = placed.collect();
            let line: Vec<(f64, f64)> = placed.iter().map(|(x, y, ..)| (*x, *y)).collect();
            chart.line(number, &line);
            for (x, y, right, up, label) in placed {
                let told = format!("{name} {label}: {} at {}", short(*up), short(*right));
                chart.point(number, x, y, &told);
                chart.beside(x, y, label);
            }
        }
        chart.end()
    }
}

/// What is drawn so far.
struct Chart {
    out: String,
    top: f64,
    height: f64,
}

impl Chart {
    /// A frame with the key of the series, if there are several.
    fn new(title: &str, names: &[&str]) -> Chart {
        let places = key_places(names);
        let lines = places.iter().map(|(_, line)| line + 1).max().unwrap_or(0);
        let top = TOP + lines as f64 * KEY_LINE;
        let height = HEIGHT + lines as f64 * KEY_LINE;
        let title = escaped(title);
        let mut chart = Chart {
            out: format!(
                "<svg viewBox=\"0 0 {WIDTH} {height}\" role=\"img\" aria-label=\"{title}\">\n"
            ),
            top,
            height,
        };
        for (number, (name, (x, line))) in names.iter().zip(&places).enumerate() {
            let y = 12.0 + *line as f64 * KEY_LINE;
            chart.sign(number, x + 8.0, y - 4.0, name);
            let name = escaped(name);
            let _ = writeln!(
                chart.out,
                "<text x=\"{:.0}\" y=\"{y:.0}\">{name}</text>",
                x + 18.0
            );
        }
        chart
    }

    fn width(&self) -> f64 {
        WIDTH - LEFT - RIGHT
    }

    fn bottom(&self) -> f64 {
        self.height - BOTTOM
    }

    fn y_of(&self, scale: &Scale, value: f64) -> Option<f64> {
        Some(self.bottom() - (self.bottom() - self.top) * scale.share(value)?)
    }

    fn upward_axis(&mut self, scale: &Scale) {
        for tick in scale.ticks() {
            let Some(y) = self.y_of(scale, tick) else {
                continue;
            };
            let _ = writeln!(
                self.out,
                "<line class=\"axis\" x1=\"{LEFT}\" x2=\"{:.0}\" y1=\"{y:.1}\" y2=\"{y:.1}\"/>\
                 <text class=\"weak\" x=\"{:.0}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>",
                WIDTH - RIGHT,
                LEFT - 6.0,
                y + 4.0,
                short(tick)
            );
        }
        let y = self.bottom();
        let _ = writeln!(
            self.out,
            "<line class=\"edge\" x1=\"{LEFT}\" x2=\"{:.0}\" y1=\"{y:.1}\" y2=\"{y:.1}\"/>",
            WIDTH - RIGHT
        );
    }

    fn label_below(&mut self, x: f64, label: &str) {
        let y = self.bottom() + 16.0;
        let label = escaped(label);
        let _ = writeln!(
            self.out,
            "<text class=\"weak\" x=\"{x:.1}\" y=\"{y:.0}\" text-anchor=\"middle\">{label}</text>"
        );
    }

    fn title_below(&mut self, title: &str) {
        let (x, y) = (LEFT + self.width() / 2.0, self.height - 8.0);
        let title = escaped(title);
        let _ = writeln!(
            self.out,
            "<text x=\"{x:.0}\" y=\"{y:.0}\" text-anchor=\"middle\">{title}</text>"
        );
    }

    fn line(&mut self, number: usize, points: &[(f64, f64)]) {
        let points: Vec<String> = points
            .iter()
            .map(|(x, y)| format!("{x:.1},{y:.1}"))
            .collect();
        let _ = writeln!(
            self.out,
            "<polyline class=\"series\" style=\"stroke:var(--s{number})\" points=\"{}\"/>",
            points.join(" ")
        );
    }

    fn range(&mut self, number: usize, x: f64, low: f64, high: f64) {
        let _ = writeln!(
            self.out,
            "<line class=\"range\" style=\"stroke:var(--s{number})\" x1=\"{x:.1}\" \
             x2=\"{x:.1}\" y1=\"{low:.1}\" y2=\"{high:.1}\"/>"
        );
    }

    fn middle_half(&mut self, number: usize, x: f64, low: f64, high: f64) {
        let (left, height) = (x - HALF_WIDTH / 2.0, (low - high).max(0.5));
        let _ = writeln!(
            self.out,
            "<rect class=\"half\" style=\"stroke:var(--s{number})\" x=\"{left:.1}\" \
             y=\"{high:.1}\" width=\"{HALF_WIDTH}\" height=\"{height:.1}\"/>"
        );
    }

    fn point(&mut self, number: usize, x: f64, y: f64, told: &str) {
        self.sign(number, x, y, told);
    }

    /// The sign of a series: a colour, and a shape for those who do not see it.
    fn sign(&mut self, number: usize, x: f64, y: f64, told: &str) {
        let shape = match number % 4 {
            0 => format!("<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"3.5\""),
            1 => format!(
                "<rect x=\"{:.1}\" y=\"{:.1}\" width=\"6.4\" height=\"6.4\"",
                x - 3.2,
                y - 3.2
            ),
            2 => format!("<path d=\"M{x:.1} {:.1}l4.2 7.4h-8.4z\"", y - 4.4),
            _ => format!(
                "<path d=\"M{x:.1} {:.1}l4.4 4.4l-4.4 4.4l-4.4 -4.4z\"",
                y - 4.4
            ),
        };
        let tag = shape
            .get(1..)
            .and_then(|rest| rest.split(' ').next())
            .unwrap_or("g");
        let told = escaped(told);
        let _ = writeln!(
            self.out,
            "{shape} style=\"fill:var(--s{number})\"><title>{told}</title></{tag}>"
        );
    }

    /// A word beside a point, on the side where there is room.
    fn beside(&mut self, x: f64, y: f64, label: &str) {
        let is_right = x > WIDTH - RIGHT - 60.0;
        let (x, anchor) = match is_right {
            true => (x - 7.0, "end"),
            false => (x + 7.0, "start"),
        };
        let label = escaped(label);
        let _ = writeln!(
            self.out,
            "<text class=\"weak\" x=\"{x:.1}\" y=\"{:.1}\" text-anchor=\"{anchor}\">{label}</text>",
            y - 5.0
        );
    }

    fn end(mut self) -> String {
        self.out.push_str("</svg>\n");
        self.out
    }
}

/// Where each entry of the key begins: how far to the right, and in which line. One series needs
/// no key.
fn key_places(names: &[&str]) -> Vec<(f64, usize)> {
    if names.len() < 2 {
        return Vec::new();
    }
    let (mut x, mut line) = (0.0, 0);
    let place = |name: &&str| {
        let width = KEY_SIGN + name.chars().count() as f64 * LETTER;
        if x > 0.0 && x + width > WIDTH {
            (x, line) = (0.0, line + 1);
        }
        let place = (x, line);
        x += width;
        place
    };
    names.iter().map(place).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn series(name: &str, values: &[Option<f64>]) -> ChartSeries {
        let point = |value: &Option<f64>| {
            value.map(|value| ChartPoint {
                value,
                range: (value * 0.9, value * 1.1),
                middle_half: None,
            })
        };
        ChartSeries {
            name: name.into(),
            points: values.iter().map(point).collect(),
        }
    }

    fn drawn(series: &[ChartSeries], is_log: bool) -> String {
        LineChart {
            title: "a & b",
            labels: &["1".into(), "2".into(), "<4>".into()],
            below: "in flight",
            series,
            is_log,
        }
        .svg()
    }

    #[test]
    fn each_point_is_drawn_with_its_range() {
        let svg = drawn(&[series("one", &[Some(1.0), Some(2.0), Some(4.0)])], false);
        assert_eq!(svg.matches("<circle").count(), 3);
        assert_eq!(svg.matches("class=\"range\"").count(), 3);
        assert_eq!(svg.matches("<polyline").count(), 1);
        assert!(svg.contains("one 2: 2 (runs from 1.8 to 2.2)"), "{svg}");
        assert!(
            svg.contains("&lt;4&gt;") && svg.contains("a &amp; b"),
            "{svg}"
        );
    }

    #[test]
    fn what_was_measured_once_has_no_range() {
        let once = ChartSeries::of_single("once", [Some(2.0), None]);
        let svg = drawn(std::slice::from_ref(&once), false);
        assert!(
            svg.contains("once 1: 2<") && !svg.contains("runs from"),
            "{svg}"
        );
        let chart = |series: &[ChartSeries]| {
            let labels = ["1".to_owned()];
            let (title, below, is_log) = ("t", "b", false);
            let labels = labels.as_slice();
            LineChart {
                title,
                labels,
                below,
                series,
                is_log,
            }
            .with_caption()
        };
        assert_eq!(chart(&[once]).map(|(caption, _)| caption), Some("t".into()));
        assert_eq!(chart(&[ChartSeries::of_single("none", [None])]), None);
    }

    #[test]
    fn a_middle_half_is_a_box_between_its_ends() {
        let mut boxed = series("one", &[Some(10.0), Some(20.0)]);
        let first = boxed.points.first_mut().and_then(Option::as_mut);
        first.expect("there are two").middle_half = Some((9.5, 10.5));
        let svg = drawn(&[boxed], false);
        assert_eq!(svg.matches("class=\"half\"").count(), 1, "{svg}");
        // 0 to 23.1 are 240 high, so that 1 is 10.4.
        assert!(svg.contains("width=\"12\" height=\"10.4\""), "{svg}");
    }

    #[test]
    fn what_was_not_measured_is_not_drawn() {
        let svg = drawn(&[series("one", &[Some(1.0), None, Some(0.0)])], true);
        assert_eq!(svg.matches("<circle").count(), 1, "0 has no place: {svg}");
        let none = drawn(&[], false);
        assert!(none.ends_with("</svg>\n") && !none.contains("<polyline"));
        assert!(!none.contains("NaN") && !none.contains("inf"), "{none}");
    }

    #[test]
    fn several_series_have_a_key_and_shapes_of_their_own() {
        let two = [series("p50", &[Some(1.0)]), series("p99", &[Some(2.0)])];
        let svg = drawn(&two, true);
        assert_eq!(svg.matches("<circle").count(), 2, "its point and the key");
        assert_eq!(svg.matches("<rect").count(), 2, "{svg}");
        assert!(svg.contains(">p50</text>") && svg.contains(">p99</text>"));
        let long = "a rather long name of a series";
        assert_eq!(
            key_places(&[long, long, long]),
            [(0.0, 0), (236.0, 0), (0.0, 1)]
        );
    }

    #[test]
    fn throughput_against_latency_names_its_points() {
        let points = vec![
            (100.0, 10.0, "1".to_owned()),
            (180.0, 12.0, "2".to_owned()),
            (f64::NAN, 12.0, "3".to_owned()),
        ];
        let svg = PointChart {
            title: "t",
            below: "calls/s",
            series: &[("in-flight".into(), points)],
        }
        .svg();
        assert_eq!(svg.matches("<circle").count(), 2, "{svg}");
        assert!(
            svg.contains(">1</text>") && svg.contains(">2</text>"),
            "{svg}"
        );
        assert!(!svg.contains("NaN"), "{svg}");
    }
}
