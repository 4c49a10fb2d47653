//! The statistics of a pool as Prometheus text
//! (<https://prometheus.io/docs/instrumenting/exposition_formats/>).

use std::fmt::Write as _;

use super::endpoint::EndpointHealth;
use super::statistics::PoolStatistics;

/// One value of a family: its labels but for that of the pool, and the value.
type Sample = (String, f64);

impl PoolStatistics {
    /// Returns the statistics as Prometheus text. `pool` is the value of the label `pool` of each
    /// line. Families of several pools must not be put one behind the other in one page: use
    /// [`PoolStatistics::prometheus_of`].
    pub fn prometheus(&self, pool: &str) -> String {
        PoolStatistics::prometheus_of(&[(pool, self)])
    }

    /// Returns the statistics of several pools, each with its name.
    pub fn prometheus_of(pools: &[(&str, &PoolStatistics)]) -> String {
        let mut page = String::new();
        for family in FAMILIES {
            let kind = if family.name.ends_with("_total") {
                "counter"
            } else {
                "gauge"
            };
            let name = family.name;
            // Writing to a String does not fail.
            let _ = write!(
                page,
                "# HELP {name} {}\n# TYPE {name} {kind}\n",
                family.help
            );
            for (pool, statistics) in pools {
                for (labels, value) in (family.samples)(statistics) {
                    let comma = if labels.is_empty() { "" } else { "," };
                    let pool = escaped(pool);
                    let _ = writeln!(page, "{name}{{pool=\"{pool}\"{comma}{labels}}} {value}");
                }
            }
        }
        page
    }
}

struct Family {
    name: &'static str,
    help: &'static str,
    samples: fn(&PoolStatistics) -> Vec<Sample>,
}

const FAMILIES: &[Family] = &[
    Family {
        name: "pelton_client_calls_in_flight",
        help: "Calls that have been sent and have not ended.",
        samples: |all| one(all.in_flight as u64),
    },
    Family {
        name: "pelton_client_calls_waiting",
        help: "Calls that wait in the pool, by what they wait for.",
        samples: |all| {
            by(
                "for",
                &[
                    ("permit", all.waiting_for_permit as u64),
                    ("connection", all.waiting_for_connection as u64),
                    ("stream", all.waiting_for_stream as u64),
                    ("pause", all.waiting_for_pause as u64),
                ],
            )
        },
    },
    Family {
        name: "pelton_client_wait_seconds_total",
        help: "How long calls have waited in the pool, summed up over the calls, by what for.",
        samples: |all| {
            let times = &all.wait_times;
            seconds(
                "for",
                &[
                    ("permit", times.permit_ns),
                    ("connection", times.connection_ns),
                    ("stream", times.stream_ns),
                    ("pause", times.pause_ns),
                ],
            )
        },
    },
    Family {
        name: "pelton_client_send_wait_seconds_total",
        help: "How long connections had something to send and could not, by what kept them.",
        samples: |all| {
            let traffic = &all.traffic;
            seconds(
                "for",
                &[
                    ("socket", traffic.socket_wait_ns),
                    ("window", traffic.window_wait_ns),
                ],
            )
        },
    },
    Family {
        name: "pelton_client_calls_total",
        help: "Calls that have ended, by how. Those refused at once never began.",
        samples: |all| {
            let counters = &all.counters;
            by(
                "end",
                &[
                    ("succeeded", counters.succeeded),
                    ("failed", counters.failed),
                    ("cancelled", counters.cancelled),
                    ("refused", counters.refused),
                ],
            )
        },
    },
    Family {
        name: "pelton_client_retries_total",
        help: "Attempts beyond the first of a call.",
        samples: |all| one(all.counters.retries),
    },
    Family {
        name: "pelton_client_dials_total",
        help: "Connections that were begun, by what became of them.",
        samples: |all| {
            let counters = &all.counters;
            by(
                "end",
                &[
                    ("opened", counters.opened),
                    ("failed", counters.failed_dials),
                ],
            )
        },
    },
    Family {
        name: "pelton_client_bytes_total",
        help: "Bytes of HTTP/2, by direction.",
        samples: |all| {
            let traffic = &all.traffic;
            by(
                "direction",
                &[("in", traffic.bytes_in), ("out", traffic.bytes_out)],
            )
        },
    },
    Family {
        name: "pelton_client_system_calls_total",
        help: "Reads that brought something, and writes.",
        samples: |all| {
            let traffic = &all.traffic;
            by(
                "call",
                &[("read", traffic.reads), ("write", traffic.writes)],
            )
        },
    },
    Family {
        name: "pelton_client_connections",
        help: "Connections that take calls, or will, by address.",
        samples: |all| by_address(all, |state| state.connections as u64),
    },
    Family {
        name: "pelton_client_address_healthy",
        help: "Whether an address serves: 1 or 0.",
        samples: |all| {
            by_address(all, |state| {
                u64::from(state.health == EndpointHealth::Healthy && state.last_failure.is_none())
            })
        },
    },
    Family {
        name: "pelton_client_connection_calls_in_flight",
        help: "Calls in flight, by connection.",
        samples: |all| {
            let connections = all.connections.iter();
            connections
                .map(|connection| {
                    let slot = connection.slot;
                    let address = all.endpoints.get(connection.endpoint);
                    let name = escaped(address.map_or("", |address| &address.name));
                    let labels = format!("address=\"{name}\",connection=\"{slot}\"");
                    (labels, connection.in_flight as f64)
                })
                .collect()
        },
    },
];

fn one(value: u64) -> Vec<Sample> {
    vec![(String::new(), value as f64)]
}

fn by(label: &str, values: &[(&str, u64)]) -> Vec<Sample> {
    let samples = values.iter();
    samples
        .map(|(name, value)| (format!("{label}=\"{name}\""), *value as f64))
        .collect()
}

fn seconds(label: &str, values: &[(&str, u64)]) -> Vec<Sample> {
    let mut samples = by(label, values);
    for (_, value) in &mut samples {
        *value /= 1e9;
    }
    samples
}

fn by_address(
    all: &PoolStatistics,
    value: fn(&super::statistics::EndpointStatistics) -> u64,
) -> Vec<Sample> {
    let endpoints = all.endpoints.iter();
    endpoints
        .map(|state| {
            let name = escaped(&state.name);
            (format!("address=\"{name}\""), value(state) as f64)
        })
        .collect()
}

/// The value of a label.
fn escaped(text: &str) -> String {
    let text = text.replace('\\', "\\\\").replace('"', "\\\"");
    text.replace('\n', "\\n")
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;
    use crate::pool::{PoolEndpoint, PoolEngine, PoolOptions};

    fn statistics() -> PoolStatistics {
        let endpoint = PoolEndpoint {
            name: "a\"b:1".into(),
            authority: "a:1".into(),
        };
        let mut engine = PoolEngine::new(vec![endpoint], PoolOptions::default(), 1, 0);
        engine.poll(0, &mut |_| {});
        let call = crate::pool::PoolCall {
            path: "/a.B/C",
            ..crate::pool::PoolCall::default()
        };
        engine.begin(1, &call, 0, |_| {}).expect("it may wait");
        engine.statistics(1_500_000_000)
    }

    #[test]
    fn each_family_has_its_kind_and_its_values() {
        let page = statistics().prometheus("orders");
        for line in [
            "# TYPE pelton_client_calls_in_flight gauge",
            "pelton_client_calls_in_flight{pool=\"orders\"} 0",
            "pelton_client_calls_waiting{pool=\"orders\",for=\"connection\"} 1",
            "pelton_client_calls_waiting{pool=\"orders\",for=\"stream\"} 0",
            "# TYPE pelton_client_wait_seconds_total counter",
            "pelton_client_wait_seconds_total{pool=\"orders\",for=\"connection\"} 1.5",
            "pelton_client_connections{pool=\"orders\",address=\"a\\\"b:1\"} 1",
        ] {
            assert!(page.lines().any(|found| found == line), "{line}\n{page}");
        }
    }

    #[test]
    fn several_pools_share_the_head_of_a_family_and_no_series() {
        let statistics = statistics();
        let page = PoolStatistics::prometheus_of(&[("a", &statistics), ("b", &statistics)]);
        let heads = page.lines().filter(|line| line.starts_with("# TYPE"));
        assert_eq!(heads.count(), FAMILIES.len());
        let mut seen = HashSet::new();
        for line in page.lines().filter(|line| !line.starts_with('#')) {
            let (series, value) = line.rsplit_once(' ').expect("a series and a value");
            assert!(seen.insert(series.to_owned()), "{series} twice");
            value.parse::<f64>().expect("a number");
        }
    }
}
