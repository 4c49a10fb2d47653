//! Load reports (ORCA), which a client asks the test service to give back.

use api::interop::{
    CostEntry, OrcaCostEntry, OrcaLoadReport, OrcaUtilizationEntry, TestOrcaReport,
    UtilizationEntry,
};
use protobuf::DecodeError;

/// The trailer that has the report of one call, an `xds.data.orca.v3.OrcaLoadReport` in base64.
pub(super) const TRAILER: &[u8] = b"endpoint-load-metrics-bin";

/// Returns what `report` says as an encoded `OrcaLoadReport`: the same figures under other numbers.
pub(super) fn encode_report(report: &TestOrcaReport<'_>) -> Result<Vec<u8>, DecodeError> {
    let costs = report.request_cost.iter().map(|entry| {
        let CostEntry { key, value } = entry?;
        Ok(OrcaCostEntry { key, value })
    });
    let utilization = report.utilization.iter().map(|entry| {
        let UtilizationEntry { key, value } = entry?;
        Ok(OrcaUtilizationEntry { key, value })
    });
    let costs: Vec<_> = costs.collect::<Result<_, DecodeError>>()?;
    let utilization: Vec<_> = utilization.collect::<Result<_, DecodeError>>()?;
    let mut out = Vec::new();
    let report = OrcaLoadReport {
        cpu_utilization: report.cpu_utilization,
        mem_utilization: report.memory_utilization,
        request_cost: (&costs[..]).into(),
        utilization: (&utilization[..]).into(),
    };
    report.encode(&mut out);
    Ok(out)
}

/// Returns bytes as the value of a `-bin` trailer travels: base64 without padding (RFC 4648 section
/// 4).
pub(super) fn base64(bytes: &[u8]) -> Vec<u8> {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut out = Vec::with_capacity(bytes.len().div_ceil(3) * 4);
    for three in bytes.chunks(3) {
        let mut bits = [0; 4];
        bits[1..=three.len()].copy_from_slice(three);
        let bits = u32::from_be_bytes(bits);
        for digit in 0..=three.len() {
            out.push(DIGITS[(bits >> (18 - 6 * digit)) as usize & 63]);
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn base64_is_that_of_rfc_4648_without_padding() {
        let cases: [(&[u8], &str); 6] = [
            (b"", ""),
            (b"f", "Zg"),
            (b"fo", "Zm8"),
            (b"foo", "Zm9v"),
            (b"foobar", "Zm9vYmFy"),
            (&[0xfb, 0xff, 0xfe], "+//+"),
        ];
        for (bytes, text) in cases {
            assert_eq!(base64(bytes), text.as_bytes());
        }
    }
}
