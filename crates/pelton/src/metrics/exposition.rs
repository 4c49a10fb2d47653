//! The text format of Prometheus, version 0.0.4:
//! <https://prometheus.io/docs/instrumenting/exposition_formats/>.

use std::fmt::{Display, Write as _};

use store::durations::{self, Durations};

/// `Content-Type` of a page.
pub const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// What a family of metrics is.
#[derive(Clone, Copy)]
pub enum FamilyKind {
    /// Only grows, and begins anew when the server does.
    Counter,
    /// Goes up and down.
    Gauge,
    Histogram,
}

/// Name and value of a label.
pub type MetricLabel<'a> = (&'a str, &'a str);

/// A page of metrics, family by family.
#[derive(Default)]
pub struct MetricsPage {
    text: String,
    /// The name of the family that samples now belong to.
    family: &'static str,
}

impl MetricsPage {
    /// Begins a family; its samples follow.
    pub fn family(&mut self, name: &'static str, kind: FamilyKind, help: &str) {
        let kind = match kind {
            FamilyKind::Counter => "counter",
            FamilyKind::Gauge => "gauge",
            FamilyKind::Histogram => "histogram",
        };
        self.family = name;
        let help = help.replace('\\', "\\\\").replace('\n', "\\n");
        self.write(format_args!("# HELP {name} {help}\n# TYPE {name} {kind}\n"));
    }

    /// A sample of the family.
    pub fn sample(&mut self, labels: &[MetricLabel<'_>], value: impl Display) {
        self.line("", labels, None, value);
    }

    /// A family of one sample.
    pub fn single(
        &mut self,
        name: &'static str,
        kind: FamilyKind,
        help: &str,
        value: impl Display,
    ) {
        self.family(name, kind, help);
        self.sample(&[], value);
    }

    /// All samples of one histogram of the family, in seconds.
    pub fn histogram(&mut self, labels: &[MetricLabel<'_>], durations: &Durations) {
        let mut count = 0;
        for (place, these) in durations.counts.iter().enumerate() {
            count += these;
            let bound = durations::bound_ns(place).map_or("+Inf".into(), seconds);
            self.line("_bucket", labels, Some(("le", &bound)), count);
        }
        self.line("_sum", labels, None, seconds(durations.sum_ns));
        self.line("_count", labels, None, count);
    }

    /// The whole page.
    pub fn finish(self) -> String {
        self.text
    }

    fn line(
        &mut self,
        suffix: &str,
        labels: &[MetricLabel<'_>],
        last: Option<MetricLabel<'_>>,
        value: impl Display,
    ) {
        self.text.push_str(self.family);
        self.text.push_str(suffix);
        let mut separator = '{';
        for (name, value) in labels.iter().chain(&last) {
            let value = escaped(value);
            self.write(format_args!("{separator}{name}=\"{value}\""));
            separator = ',';
        }
        if separator == ',' {
            self.text.push('}');
        }
        self.write(format_args!(" {value}\n"));
    }

    fn write(&mut self, text: std::fmt::Arguments<'_>) {
        self.text
            .write_fmt(text)
            .expect("a String takes what is written");
    }
}

/// Nanoseconds as seconds, exactly, without zeros at the end.
pub fn seconds(ns: u64) -> String {
    let text = format!("{}.{:09}", ns / 1_000_000_000, ns % 1_000_000_000);
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

fn escaped(value: &str) -> String {
    value
        .replace('\\', "\\\\")
        .replace('"', "\\\"")
        .replace('\n', "\\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn families_and_samples_are_written() {
        let mut page = MetricsPage::default();
        page.family("a_total", FamilyKind::Counter, "Of a \\ and\nb");
        page.sample(&[("name", "x\"\\\ny"), ("other", "")], 7);
        page.single("b", FamilyKind::Gauge, "Of b.", 0.5);
        let expected = "# HELP a_total Of a \\\\ and\\nb\n# TYPE a_total counter\n\
                        a_total{name=\"x\\\"\\\\\\ny\",other=\"\"} 7\n\
                        # HELP b Of b.\n# TYPE b gauge\nb 0.5\n";
        assert_eq!(page.finish(), expected);
    }

    #[test]
    fn the_counts_of_a_histogram_add_up() {
        let mut durations = Durations::default();
        for duration_ns in [1_000, 1_500, 1_500, 40_000_000_000] {
            durations.add(duration_ns);
        }
        let mut page = MetricsPage::default();
        page.family("took_seconds", FamilyKind::Histogram, "How long.");
        page.histogram(&[("of", "it")], &durations);
        let text = page.finish();
        for line in [
            "took_seconds_bucket{of=\"it\",le=\"0.000001\"} 1\n",
            "took_seconds_bucket{of=\"it\",le=\"0.000002\"} 3\n",
            "took_seconds_bucket{of=\"it\",le=\"33.554432\"} 3\n",
            "took_seconds_bucket{of=\"it\",le=\"+Inf\"} 4\n",
            "took_seconds_sum{of=\"it\"} 40.000004\n",
            "took_seconds_count{of=\"it\"} 4\n",
        ] {
            assert!(text.contains(line), "{line}{text}");
        }
    }

    #[test]
    fn seconds_are_exact() {
        for (ns, text) in [
            (0, "0"),
            (1, "0.000000001"),
            (1_500_000_000, "1.5"),
            (20_000_000_000, "20"),
            (u64::MAX, "18446744073.709551615"),
        ] {
            assert_eq!(seconds(ns), text);
        }
    }
}
