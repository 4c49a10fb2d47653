//! The picture: calls as bars on each connection, and what lies between them.

use std::fmt::Write as _;

use super::call::TappedCall;
use super::summary::TapSummary;
use super::verdict::time;
use crate::page::Page;

/// Calls that are drawn: more than an eye tells apart, few enough for any browser.
const DRAWN_CALLS: usize = 1_500;

/// Connections that are drawn.
const DRAWN_CONNECTIONS: usize = 16;

/// Rows of bars for one connection; calls beyond them share the last.
const ROWS_OF_CONNECTION: usize = 64;

/// What the colours of bars mean.
const KEY: [(&str, &str); 4] = [
    ("#2a78d6", "request"),
    ("#9aa0a6", "waiting for the server"),
    ("#1a9850", "answer"),
    ("#d73027", "answer that is an error"),
];

const WIDTH: f64 = 1_200.0;
const LEFT: f64 = 60.0;
const ROW: f64 = 7.0;
const GAP_BETWEEN: f64 = 16.0;
const HEAD: f64 = 24.0;

/// The stretch of time that is drawn.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Stretch {
    from_ns: u64,
    until_ns: u64,
}

impl Stretch {
    fn x(self, ns: u64) -> f64 {
        let length_ns = self.until_ns.saturating_sub(self.from_ns).max(1) as f64;
        let at_ns = ns.clamp(self.from_ns, self.until_ns) - self.from_ns;
        LEFT + (WIDTH - LEFT) * at_ns as f64 / length_ns
    }
}

/// A connection's calls, each with its row.
struct ConnectionRows<'a> {
    connection: usize,
    calls: Vec<(&'a TappedCall, usize)>,
    rows: usize,
}

/// A file with a picture of the last calls.
pub(super) fn svg(summary: &TapSummary) -> String {
    picture(summary, "xmlns=\"http://www.w3.org/2000/svg\" ")
}

/// Draws the last calls. `namespace`: what a file needs to be one of SVG.
fn picture(summary: &TapSummary, namespace: &str) -> String {
    let drawn = summary.totals.recent.len().saturating_sub(DRAWN_CALLS);
    let calls: Vec<&TappedCall> = summary.totals.recent.iter().skip(drawn).collect();
    let stretch = Stretch {
        from_ns: calls.iter().map(|call| call.begin_ns).min().unwrap_or(0),
        until_ns: calls.iter().map(|call| call.end_ns).max().unwrap_or(1),
    };
    let connections = rows_by_connection(&calls);
    let rows: usize = connections.iter().map(|one| one.rows).sum();
    let height = HEAD + rows as f64 * ROW + connections.len() as f64 * GAP_BETWEEN + 8.0;
    let mut out = format!(
        "<svg {namespace}viewBox=\"0 0 {WIDTH} {height}\" \
         role=\"img\" aria-label=\"calls on each connection over time\" \
         font-family=\"system-ui, sans-serif\" font-size=\"11\">\n\
         <title>blue: request, grey: waiting for the server, green: answer, red: an error</title>\n\
         <style>.b{{fill:#fff}}.q{{fill:#2a78d6}}.s{{fill:#9aa0a6}}.r{{fill:#1a9850}}\
         .f{{fill:#d73027}}.t{{fill:#555}}.a{{stroke:#8884;stroke-width:1}}\
         @media (prefers-color-scheme: dark){{.t{{fill:#bbb}}.b{{fill:#111}}}}</style>\n\
         <rect class=\"b\" width=\"{WIDTH}\" height=\"{height}\"/>\n"
    );
    axis(&mut out, stretch, height);
    let mut top = HEAD;
    for connection in &connections {
        draw_connection(&mut out, connection, stretch, top);
        top += connection.rows as f64 * ROW + GAP_BETWEEN;
    }
    out.push_str("</svg>\n");
    out
}

fn axis(out: &mut String, stretch: Stretch, height: f64) {
    let length_ns = stretch.until_ns.saturating_sub(stretch.from_ns);
    for step in 0..=6_u64 {
        let at_ns = length_ns * step / 6;
        let x = stretch.x(stretch.from_ns + at_ns);
        let anchor = if step == 6 { "end" } else { "middle" };
        let _ = writeln!(
            out,
            "<line class=\"a\" x1=\"{x:.1}\" x2=\"{x:.1}\" y1=\"16\" y2=\"{height:.0}\"/>\
             <text class=\"t\" x=\"{x:.1}\" y=\"11\" text-anchor=\"{anchor}\">{}</text>",
            time(at_ns)
        );
    }
}

/// Gives each call of a connection a row in which no other one is under way.
fn rows_by_connection<'a>(calls: &[&'a TappedCall]) -> Vec<ConnectionRows<'a>> {
    let mut connections: Vec<usize> = calls.iter().map(|call| call.connection).collect();
    connections.sort_unstable();
    connections.dedup();
    connections.truncate(DRAWN_CONNECTIONS);
    let drawn = |&connection: &usize| {
        let own = calls.iter().filter(|call| call.connection == connection);
        let mut own: Vec<&TappedCall> = own.copied().collect();
        own.sort_by_key(|call| call.begin_ns);
        let mut busy_until_ns: Vec<u64> = Vec::new();
        let mut placed = Vec::with_capacity(own.len());
        for call in own {
            let free = busy_until_ns
                .iter()
                .position(|&until_ns| until_ns <= call.begin_ns);
            let row = free
                .unwrap_or(busy_until_ns.len())
                .min(ROWS_OF_CONNECTION - 1);
            match busy_until_ns.get_mut(row) {
                Some(until_ns) => *until_ns = call.end_ns.max(*until_ns),
                None => busy_until_ns.push(call.end_ns),
            }
            placed.push((call, row));
        }
        ConnectionRows {
            connection,
            calls: placed,
            rows: busy_until_ns.len(),
        }
    };
    connections.iter().map(drawn).collect()
}

fn draw_connection(out: &mut String, drawn: &ConnectionRows<'_>, stretch: Stretch, top: f64) {
    let _ = writeln!(
        out,
        "<text class=\"t\" x=\"2\" y=\"{:.1}\">conn. {}</text>",
        top + ROW,
        drawn.connection
    );
    for (call, row) in &drawn.calls {
        let y = top + *row as f64 * ROW;
        let response = if call.end.is_success() { "r" } else { "f" };
        for (class, from_ns, until_ns) in [
            ("q", call.begin_ns, call.request_end_ns),
            ("s", call.request_end_ns, call.response_begin_ns),
            (response, call.response_begin_ns, call.end_ns),
        ] {
            let (x, end) = (stretch.x(from_ns), stretch.x(until_ns));
            // What took no time is seen all the same.
            let width = (end - x).max(if class == "s" { 0.0 } else { 0.6 });
            if width > 0.0 {
                let _ = writeln!(
                    out,
                    "<rect class=\"{class}\" x=\"{x:.2}\" y=\"{y:.1}\" width=\"{width:.2}\" \
                     height=\"{:.1}\"/>",
                    ROW - 1.5
                );
            }
        }
    }
}

/// A page with the picture and the report. `title`: the verdict.
pub(super) fn html(title: &str, text: &str, summary: &TapSummary) -> String {
    let mut page = Page::new(title);
    page.paragraph("Each bar is a call. Where there is no bar, nothing was asked.");
    page.key(&KEY);
    page.picture(&picture(summary, ""));
    let lines: Vec<String> = text.lines().map(str::to_owned).collect();
    page.lines(&lines);
    page.html()
}

#[cfg(test)]
mod tests {
    use super::super::call::CallEnd;
    use super::*;
    use client::Code;

    fn call(connection: usize, begin_ns: u64, end_ns: u64) -> TappedCall {
        TappedCall {
            connection,
            method: 0,
            begin_ns,
            request_end_ns: begin_ns,
            response_begin_ns: end_ns,
            end_ns,
            request_bytes: 0,
            response_bytes: 0,
            end: CallEnd::Grpc(Code::Ok),
        }
    }

    #[test]
    fn calls_at_the_same_time_have_rows_of_their_own() {
        let calls = [
            call(0, 0, 10),
            call(0, 5, 20),
            call(1, 6, 7),
            call(0, 10, 12),
            call(0, 13, 14),
        ];
        let calls: Vec<_> = calls.iter().collect();
        let connections = rows_by_connection(&calls);
        let rows: Vec<Vec<usize>> = connections
            .iter()
            .map(|drawn| drawn.calls.iter().map(|(_, row)| *row).collect())
            .collect();
        assert_eq!(rows, [vec![0, 1, 0, 0], vec![0]]);
        assert_eq!((connections[0].rows, connections[1].rows), (2, 1));
    }

    #[test]
    fn rows_are_bounded() {
        let calls: Vec<_> = (0..200).map(|number| call(0, number, 1_000)).collect();
        let calls: Vec<_> = calls.iter().collect();
        assert_eq!(rows_by_connection(&calls)[0].rows, ROWS_OF_CONNECTION);
    }

    #[test]
    fn times_are_mapped_onto_the_width() {
        let stretch = Stretch {
            from_ns: 100,
            until_ns: 300,
        };
        assert_eq!(stretch.x(100), LEFT);
        assert_eq!(stretch.x(300), WIDTH);
        assert_eq!(stretch.x(200), (LEFT + WIDTH) / 2.0);
        assert_eq!((stretch.x(0), stretch.x(999)), (LEFT, WIDTH));
    }
}
