//! Shows the client another limit on streams than the server has set.

use wire::http2::frame::{
    FrameHeader, HEADER_BYTES, flag, kind, read_settings, setting, write_settings,
};

use super::limits::WATCHED_FRAME_BYTES;

/// Changes SETTINGS of a server on its way; all other bytes stay as they are.
#[derive(Debug)]
pub(super) struct StreamLimitRewriter {
    limit: u32,
    /// What came of a header, or of SETTINGS with theirs, that is held back until it is whole.
    held: Vec<u8>,
    /// Bytes of another frame's payload that have yet to come.
    payload_left: usize,
    is_shown: bool,
}

impl StreamLimitRewriter {
    pub(super) fn new(limit: u32) -> StreamLimitRewriter {
        StreamLimitRewriter {
            limit,
            held: Vec::new(),
            payload_left: 0,
            is_shown: false,
        }
    }

    /// Appends to `out` what the client is to get of the server's next bytes.
    pub(super) fn push(&mut self, mut bytes: &[u8], out: &mut Vec<u8>) {
        while !bytes.is_empty() {
            if self.payload_left > 0 {
                let (passing, rest) = bytes.split_at(self.payload_left.min(bytes.len()));
                out.extend_from_slice(passing);
                self.payload_left -= passing.len();
                bytes = rest;
                continue;
            }
            let missing = self.wanted_bytes().saturating_sub(self.held.len());
            let (came, rest) = bytes.split_at(missing.min(bytes.len()));
            self.held.extend_from_slice(came);
            bytes = rest;
            self.release(out);
        }
    }

    /// The header of the frame that is held, once it is whole.
    fn header(&self) -> Option<FrameHeader> {
        self.held.first_chunk().map(FrameHeader::parse)
    }

    fn wanted_bytes(&self) -> usize {
        let payload = self.header().map_or(0, |header| header.length as usize);
        HEADER_BYTES + payload
    }

    /// Passes on what is held, if it is whole. SETTINGS that are longer than any server's pass as
    /// they are.
    fn release(&mut self, out: &mut Vec<u8>) {
        let Some(header) = self.header() else {
            return;
        };
        let is_short = header.length as usize <= WATCHED_FRAME_BYTES;
        if header.kind != kind::SETTINGS || header.has(flag::ACK) || !is_short {
            out.append(&mut self.held);
            self.payload_left = header.length as usize;
        } else if self.held.len() >= self.wanted_bytes() {
            self.rewrite(out);
        }
    }

    fn rewrite(&mut self, out: &mut Vec<u8>) {
        let payload = self.held.get(HEADER_BYTES..).unwrap_or_default();
        let mut entries: Vec<(u16, u32)> = read_settings(payload).collect();
        let mut is_named = false;
        for (identifier, value) in &mut entries {
            if *identifier == setting::MAX_CONCURRENT_STREAMS {
                *value = self.limit.min(*value);
                is_named = true;
            }
        }
        if !is_named && !self.is_shown {
            entries.push((setting::MAX_CONCURRENT_STREAMS, self.limit));
        }
        self.is_shown = true;
        self.held.clear();
        write_settings(out, &entries);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use wire::http2::frame::{SETTING_BYTES, write_header, write_ping, write_settings_ack};

    fn rewritten(bytes: &[u8], piece: usize) -> Vec<u8> {
        let mut rewriter = StreamLimitRewriter::new(7);
        let mut out = Vec::new();
        for part in bytes.chunks(piece) {
            rewriter.push(part, &mut out);
        }
        out
    }

    #[test]
    fn only_the_limit_is_changed_and_shown_once_if_the_server_has_none() {
        let (mut bytes, mut expected) = (Vec::new(), Vec::new());
        for (settings, seen) in [
            (vec![(4, 99)], vec![(4, 99), (3, 7)]),
            (vec![(3, 100), (5, 16_384)], vec![(3, 7), (5, 16_384)]),
            (vec![(3, 2)], vec![(3, 2)]),
            (vec![(1, 0)], vec![(1, 0)]),
        ] {
            write_settings(&mut bytes, &settings);
            write_settings(&mut expected, &seen);
            for out in [&mut bytes, &mut expected] {
                write_settings_ack(out);
                write_header(out, 40, kind::DATA, 0, 1);
                out.extend_from_slice(&[9; 40]);
                write_ping(out, 0, *b"12345678");
            }
        }
        for piece in 1..60 {
            assert_eq!(rewritten(&bytes, piece), expected, "in pieces of {piece}");
        }
    }

    #[test]
    fn settings_longer_than_any_pass_as_they_are() {
        let mut bytes = Vec::new();
        write_header(&mut bytes, WATCHED_FRAME_BYTES + 1, kind::SETTINGS, 0, 0);
        bytes.resize(bytes.len() + WATCHED_FRAME_BYTES + 1, 5);
        write_settings(&mut bytes, &[(3, 100)]);
        let shown = rewritten(&bytes, 1_000);
        let (long, settings) = bytes.split_at(bytes.len() - HEADER_BYTES - SETTING_BYTES);
        assert_eq!(shown.get(..long.len()), Some(long));
        assert_eq!(shown.len(), long.len() + settings.len());
        assert_eq!(shown.last(), Some(&7));
    }
}
