//! SETTINGS: what the peer told us, and what we tell it. RFC 9113 section 6.5.

use super::config::{Config, Role};
use super::error::ConnectionError;
use super::frame::{self, DEFAULT_WINDOW, MAX_31_BIT, SETTING_BYTES, setting};
use crate::limits;

/// What binds us.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct PeerSettings {
    header_table_bytes: u32,
    /// Streams that we may open.
    max_streams: u32,
    initial_window: u32,
    max_frame_bytes: u32,
    /// Advisory (RFC 9113 section 6.5.2).
    max_header_list_bytes: u32,
}

impl Default for PeerSettings {
    fn default() -> PeerSettings {
        PeerSettings {
            header_table_bytes: 4_096,
            max_streams: u32::MAX,
            initial_window: DEFAULT_WINDOW,
            max_frame_bytes: limits::MAX_FRAME_BYTES as u32,
            max_header_list_bytes: u32::MAX,
        }
    }
}

impl PeerSettings {
    /// Returns the largest dynamic table of our encoder.
    pub(crate) fn header_table_bytes(&self) -> u32 {
        self.header_table_bytes
    }

    /// Returns how many streams we may have open.
    #[inline]
    pub(crate) fn max_streams(&self) -> u32 {
        self.max_streams
    }

    /// Returns the send window with which a stream begins.
    #[inline]
    pub(crate) fn initial_window(&self) -> u32 {
        self.initial_window
    }

    /// Returns the largest header list that the peer accepts.
    pub(crate) fn max_header_list_bytes(&self) -> u32 {
        self.max_header_list_bytes
    }

    /// Applies the payload of a SETTINGS frame, entry after entry in the order in which they stand:
    /// "values in the SETTINGS frame MUST be processed in the order they appear" (RFC 9113 section
    /// 6.5.3).
    pub(crate) fn apply(&mut self, payload: &[u8], role: Role) -> Result<(), ConnectionError> {
        if !payload.len().is_multiple_of(SETTING_BYTES) {
            return Err(ConnectionError::frame_size(
                "the length of a SETTINGS frame is not a multiple of six",
            ));
        }
        if payload.len() / SETTING_BYTES > limits::MAX_SETTINGS_ENTRIES {
            return Err(ConnectionError::calm(
                "too many entries in a SETTINGS frame",
            ));
        }
        let mut entries = frame::read_settings(payload);
        entries.try_for_each(|(identifier, value)| self.apply_entry(identifier, value, role))
    }

    /// Whether the peer takes the smallest answer that we can give.
    pub(crate) fn can_be_answered(&self) -> bool {
        self.max_header_list_bytes >= limits::MIN_PEER_HEADER_LIST_BYTES
    }

    fn apply_entry(
        &mut self,
        identifier: u16,
        value: u32,
        role: Role,
    ) -> Result<(), ConnectionError> {
        match identifier {
            setting::HEADER_TABLE_SIZE => self.header_table_bytes = value,
            // "A client MUST treat receipt of a SETTINGS frame with SETTINGS_ENABLE_PUSH set to 1
            // as a connection error" (RFC 9113 section 6.5.2).
            setting::ENABLE_PUSH if value > 1 || (value == 1 && role == Role::Client) => {
                return Err(ConnectionError::protocol(
                    "SETTINGS_ENABLE_PUSH has a value that is not allowed",
                ));
            }
            setting::MAX_CONCURRENT_STREAMS => self.max_streams = value,
            setting::INITIAL_WINDOW_SIZE if value > MAX_31_BIT => {
                return Err(ConnectionError::flow_control(
                    "SETTINGS_INITIAL_WINDOW_SIZE is above 2^31-1",
                ));
            }
            setting::INITIAL_WINDOW_SIZE => self.initial_window = value,
            setting::MAX_FRAME_SIZE if !(16_384..=0xff_ffff).contains(&value) => {
                return Err(ConnectionError::protocol(
                    "SETTINGS_MAX_FRAME_SIZE is outside of 2^14 to 2^24-1",
                ));
            }
            setting::MAX_FRAME_SIZE => self.max_frame_bytes = value,
            setting::MAX_HEADER_LIST_SIZE => self.max_header_list_bytes = value,
            // "An endpoint that receives a SETTINGS frame with any unknown or unsupported
            // identifier MUST ignore that setting" (RFC 9113 section 6.5.2).
            _ => {}
        }
        Ok(())
    }
}

/// The stream window that we advertise.
pub(crate) fn our_initial_window(config: &Config) -> u32 {
    config
        .stream_window
        .unwrap_or(limits::STREAM_WINDOW_BYTES)
        .min(MAX_31_BIT)
}

/// Appends our SETTINGS.
pub(crate) fn write_ours(config: &Config, out: &mut Vec<u8>) {
    let mut entries = [(0, 0); 4];
    let mut count = 0;
    let mut add = |identifier, value| {
        entries[count] = (identifier, value);
        count += 1;
    };
    match config.role {
        Role::Server => add(setting::MAX_CONCURRENT_STREAMS, config.max_streams),
        Role::Client => add(setting::ENABLE_PUSH, 0),
    }
    let window = our_initial_window(config);
    if window != DEFAULT_WINDOW {
        add(setting::INITIAL_WINDOW_SIZE, window);
    }
    add(
        setting::MAX_HEADER_LIST_SIZE,
        limits::MAX_FIELD_LIST_BYTES as u32,
    );
    frame::write_settings(out, &entries[..count]);
}

#[cfg(test)]
mod tests {
    use super::super::error::ErrorCode;
    use super::*;

    fn payload(entries: &[(u16, u32)]) -> Vec<u8> {
        let mut out = Vec::new();
        frame::write_settings(&mut out, entries);
        out.split_off(frame::HEADER_BYTES)
    }

    fn apply(entries: &[(u16, u32)]) -> Result<PeerSettings, ErrorCode> {
        let mut settings = PeerSettings::default();
        settings
            .apply(&payload(entries), Role::Server)
            .map(|()| settings)
            .map_err(|error| error.code)
    }

    #[test]
    fn the_last_of_several_values_counts() {
        assert_eq!(
            apply(&[(4, 100), (4, 1)]).map(|settings| settings.initial_window),
            Ok(1)
        );
    }

    #[test]
    fn values_out_of_range_are_refused() {
        assert_eq!(apply(&[(2, 2)]), Err(ErrorCode::ProtocolError));
        assert_eq!(apply(&[(4, 0x8000_0000)]), Err(ErrorCode::FlowControlError));
        assert_eq!(apply(&[(5, 16_383)]), Err(ErrorCode::ProtocolError));
        assert_eq!(apply(&[(5, 0x100_0000)]), Err(ErrorCode::ProtocolError));
        assert!(apply(&[(2, 1), (4, 0x7fff_ffff), (5, 0xff_ffff), (0x99, 7)]).is_ok());
    }

    #[test]
    fn a_client_refuses_push() {
        let refused = PeerSettings::default().apply(&payload(&[(2, 1)]), Role::Client);
        assert_eq!(
            refused.map_err(|error| error.code),
            Err(ErrorCode::ProtocolError)
        );
    }

    #[test]
    fn lengths_and_counts_are_checked() {
        let odd = PeerSettings::default().apply(&[0; 7], Role::Server);
        assert_eq!(
            odd.map_err(|error| error.code),
            Err(ErrorCode::FrameSizeError)
        );
        assert!(apply(&[(9, 9); limits::MAX_SETTINGS_ENTRIES]).is_ok());
        assert_eq!(
            apply(&[(9, 9); limits::MAX_SETTINGS_ENTRIES + 1]),
            Err(ErrorCode::EnhanceYourCalm)
        );
    }
}
