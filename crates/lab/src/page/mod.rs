//! Pages with charts: one file of HTML that needs nothing else, drawn as SVG without scripts.

mod chart;
mod heat_map;
mod scale;

pub(crate) use chart::{ChartPoint, ChartSeries, LineChart, PointChart, lines_with_caption};
pub(crate) use heat_map::HeatMap;

/// Text that stands in HTML as it is.
pub(crate) fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            // What a parser would refuse, or a terminal take for a command.
            c if c.is_control() && c != '\n' && c != '\t' => out.push('\u{fffd}'),
            c => out.push(c),
        }
    }
    out
}

/// A figure of about three digits.
pub(crate) fn short(value: f64) -> String {
    let size = value.abs();
    match size {
        _ if size >= 999_500.0 => format!("{}M", digits(value / 1e6)),
        _ if size >= 9_995.0 => format!("{}k", digits(value / 1e3)),
        _ => digits(value),
    }
}

fn digits(value: f64) -> String {
    let size = value.abs();
    let places = match size {
        _ if size >= 99.95 || size == 0.0 => 0,
        _ if size >= 9.995 => 1,
        _ => 2,
    };
    let text = format!("{value:.places$}");
    match text.contains('.') {
        true => text.trim_end_matches('0').trim_end_matches('.').to_owned(),
        false => text,
    }
}

/// A page: its title, and what it consists of.
#[derive(Debug)]
pub(crate) struct Page {
    title: String,
    body: String,
}

impl Page {
    /// A page with nothing on it but its title.
    pub(crate) fn new(title: &str) -> Page {
        Page {
            title: escaped(title),
            body: String::new(),
        }
    }

    /// Adds a line that is read first.
    pub(crate) fn lead(&mut self, text: &str) {
        self.body += &format!("<p class=\"lead\">{}</p>\n", escaped(text));
    }

    /// Adds a paragraph.
    pub(crate) fn paragraph(&mut self, text: &str) {
        self.body += &format!("<p>{}</p>\n", escaped(text));
    }

    /// Adds charts, which stand beside each other where there is room.
    pub(crate) fn charts(&mut self, charts: &[(String, String)]) {
        self.body += "<div class=\"charts\">\n";
        for (caption, svg) in charts {
            let caption = escaped(caption);
            self.body += &format!("<figure><figcaption>{caption}</figcaption>\n{svg}</figure>\n");
        }
        self.body += "</div>\n";
    }

    /// Adds a picture that is as wide as the page, or wider where that is narrow.
    pub(crate) fn picture(&mut self, svg: &str) {
        self.body += &format!("<div class=\"picture\">\n{svg}</div>\n");
    }

    /// Adds what the colours of a picture mean: for each its name in CSS, and what it is.
    pub(crate) fn key(&mut self, colours: &[(&str, &str)]) {
        let entries = colours.iter().map(|(colour, text)| {
            let text = escaped(text);
            format!("<span style=\"background:{colour}\"></span>{text} ")
        });
        self.body += &format!("<p class=\"key\">{}</p>\n", entries.collect::<String>());
    }

    /// Adds lines whose columns stand below each other.
    pub(crate) fn lines(&mut self, lines: &[String]) {
        self.body += &format!("<pre>{}</pre>\n", escaped(&lines.join("\n")));
    }

    /// Adds a table; the first column are names, the others figures.
    pub(crate) fn table(&mut self, head: &[String], rows: &[Vec<String>]) {
        let row = |cells: &[String], tag: &str| {
            let cells = cells
                .iter()
                .map(|cell| format!("<{tag}>{}</{tag}>", escaped(cell)));
            format!("<tr>{}</tr>\n", cells.collect::<String>())
        };
        let rows: String = rows.iter().map(|cells| row(cells, "td")).collect();
        self.body += &format!(
            "<div class=\"table\"><table>\n<thead>{}</thead>\n<tbody>\n{rows}</tbody>\n\
             </table></div>\n",
            row(head, "th")
        );
    }

    /// The file.
    pub(crate) fn html(&self) -> String {
        let Page { title, body } = self;
        format!(
            "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
             <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
             <title>{title}</title>\n<style>\n{STYLE}</style>\n</head>\n<body>\n\
             <h1>{title}</h1>\n{body}</body>\n</html>\n"
        )
    }
}

/// Colours by role, so that dark and print only change those. The series' colours are told apart
/// by those who see few (after Okabe and Ito), and each series has a shape of its own besides.
const STYLE: &str = "\
:root { color-scheme: light dark; --page: #fff; --text: #1b1f24; --weak: #5c6670; --line: #c9d1d9;
  --s0: #0072b2; --s1: #d55e00; --s2: #009e73; --s3: #a8478a; --s4: #8a6d00;
  --s5: #3f87a6; --s6: #555; --s7: #b22; }
@media (prefers-color-scheme: dark) { :root { --page: #14171a; --text: #e6e9ec; --weak: #9aa4ae;
  --line: #3a424a; --s0: #58b4f0; --s1: #ff8a4c; --s2: #35cfa0; --s3: #e08ac4;
  --s4: #d8b93c; --s5: #8ccbe6; --s6: #bbb; --s7: #f77; } }
@media print { :root { color-scheme: light; --page: #fff; --text: #000; --weak: #444;
  --line: #bbb; --s0: #0072b2; --s1: #d55e00; --s2: #009e73; --s3: #a8478a;
  --s4: #8a6d00; --s5: #3f87a6; --s6: #555; --s7: #b22; } body { margin: 0; }
  figure, tr { break-inside: avoid; } }
body { background: var(--page); color: var(--text); font: 16px/1.5 system-ui, sans-serif;
  margin: 1.5rem auto; max-width: 75rem; padding: 0 1rem; }
h1 { font-size: 1.35rem; line-height: 1.25; overflow-wrap: anywhere; }
p { color: var(--weak); font-size: 0.85rem; margin: 0.35rem 0; overflow-wrap: anywhere; }
.lead { color: var(--text); font-size: 1rem; font-weight: 600; margin: 0.9rem 0; }
.table { overflow-x: auto; }
.charts { display: grid; gap: 1.25rem; grid-template-columns: repeat(auto-fit,
  minmax(min(100%, 26rem), 1fr)); }
figure { margin: 0; } figcaption { font-weight: 600; margin-bottom: 0.3rem; }
svg { display: block; width: 100%; height: auto; }
svg text { fill: var(--text); font-size: 12px; }
@media (max-width: 35rem) { svg text { font-size: 14px; } }
svg .weak { fill: var(--weak); }
.axis { stroke: var(--line); stroke-width: 1; } .edge { stroke: var(--weak); stroke-width: 1; }
.series { fill: none; stroke-width: 2; } .range { stroke-width: 1.5; }
.half { fill: none; stroke-width: 1.5; }
.picture { overflow-x: auto; } .picture svg { min-width: 60rem; }
@media print { .picture svg { min-width: 0; } }
.key span { display: inline-block; width: 0.8rem; height: 0.8rem; margin: 0 0.3rem 0 0.9rem;
  vertical-align: -1px; }
pre { overflow-x: auto; font-size: 0.8rem; line-height: 1.4; }
@media print { pre { white-space: pre-wrap; } }
table { border-collapse: collapse; font-size: 0.85rem; font-variant-numeric: tabular-nums; }
th, td { border-bottom: 1px solid var(--line); padding: 0.25rem 0.6rem; text-align: right;
  white-space: nowrap; } th:first-child, td:first-child { text-align: left; }
";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_of_others_is_no_markup() {
        assert_eq!(
            escaped("<a b='\"&\u{1b}'>\n"),
            "&lt;a b=&#39;&quot;&amp;\u{fffd}&#39;&gt;\n"
        );
        let mut page = Page::new("<title>");
        page.lead("<b>");
        page.paragraph("<i>");
        page.table(&["<th>".into()], &[vec!["<td>".into()]]);
        page.charts(&[("<caption>".into(), String::new())]);
        page.lines(&["<pre2>".into()]);
        page.key(&[("red", "<key>")]);
        let html = page.html();
        for markup in [
            "<b>",
            "<i>",
            "<caption>",
            "<pre2>",
            "<key>",
            "<title><",
            "<td><td>",
            "<th><th>",
        ] {
            assert!(!html.contains(markup), "{markup} in {html}");
        }
    }

    #[test]
    fn figures_have_three_digits() {
        for (value, text) in [
            (0.0, "0"),
            (0.25, "0.25"),
            (1.5, "1.5"),
            (12.34, "12.3"),
            (123.4, "123"),
            (9_994.0, "9994"),
            (12_340.0, "12.3k"),
            (999_400.0, "999k"),
            (1_234_567.0, "1.23M"),
            (100.0, "100"),
            (-7.126, "-7.13"),
        ] {
            assert_eq!(short(value), text);
        }
    }
}
