//! The messages of `grpc.testing`, as far as the cases need them: a few fields by number.

/// Builds one message field by field.
#[derive(Clone, Default)]
pub struct Fields(Vec<u8>);

impl Fields {
    pub fn new() -> Fields {
        Fields::default()
    }

    pub fn number(mut self, field: u8, value: u64) -> Fields {
        self.0.push(field << 3);
        varint(value, &mut self.0);
        self
    }

    pub fn bytes(mut self, field: u8, bytes: &[u8]) -> Fields {
        self.0.push(field << 3 | 2);
        varint(bytes.len() as u64, &mut self.0);
        self.0.extend_from_slice(bytes);
        self
    }

    pub fn message(self, field: u8, message: &Fields) -> Fields {
        let bytes = message.0.clone();
        self.bytes(field, &bytes)
    }

    pub fn encode(&self) -> &[u8] {
        &self.0
    }
}

/// `Payload` of so many zeros.
pub fn payload(size: usize) -> Fields {
    Fields::new().bytes(2, &vec![0; size])
}

/// `BoolValue`
pub fn boolean(value: bool) -> Fields {
    match value {
        true => Fields::new().number(1, 1),
        false => Fields::new(),
    }
}

/// `SimpleRequest`: `response_size` and `payload`.
pub fn simple_request(response_size: u64, payload_size: usize) -> Fields {
    Fields::new()
        .number(2, response_size)
        .message(3, &payload(payload_size))
}

/// `EchoStatus`
pub fn echo_status(code: u64, message: &str) -> Fields {
    Fields::new().number(1, code).bytes(2, message.as_bytes())
}

/// `ResponseParameters`
pub fn wanted(size: u64, interval_us: u64, compressed: Option<bool>) -> Fields {
    let fields = Fields::new().number(1, size).number(2, interval_us);
    match compressed {
        Some(compressed) => fields.message(3, &boolean(compressed)),
        None => fields,
    }
}

/// `StreamingOutputCallRequest`
pub fn output_request(wanted: &[Fields], payload_size: usize) -> Fields {
    let fields = wanted
        .iter()
        .fold(Fields::new(), |fields, one| fields.message(2, one));
    fields.message(3, &payload(payload_size))
}

/// The body of the payload, field 1, of a `SimpleResponse` or a `StreamingOutputCallResponse`.
pub fn payload_body(response: &[u8]) -> Option<&[u8]> {
    match find(response, 1) {
        Some(Value::Bytes(payload)) => match find(payload, 2) {
            Some(Value::Bytes(body)) => Some(body),
            _ => Some(&[]),
        },
        _ => None,
    }
}

/// Field 1 of a `StreamingInputCallResponse`.
pub fn aggregated_size(response: &[u8]) -> u64 {
    match find(response, 1) {
        Some(Value::Number(number)) => number,
        _ => 0,
    }
}

enum Value<'a> {
    Number(u64),
    Bytes(&'a [u8]),
}

/// The last field of this number; `None` also if the message is damaged.
fn find(mut message: &[u8], wanted: u64) -> Option<Value<'_>> {
    let mut found = None;
    while !message.is_empty() {
        let key = take_varint(&mut message)?;
        let value = match key & 7 {
            0 => Value::Number(take_varint(&mut message)?),
            2 => {
                let length = usize::try_from(take_varint(&mut message)?).ok()?;
                let (bytes, rest) = message.split_at_checked(length)?;
                message = rest;
                Value::Bytes(bytes)
            }
            _ => return None,
        };
        if key >> 3 == wanted {
            found = Some(value);
        }
    }
    found
}

fn varint(mut value: u64, out: &mut Vec<u8>) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

fn take_varint(bytes: &mut &[u8]) -> Option<u64> {
    let mut value = 0;
    for shift in (0..64).step_by(7) {
        let (&byte, rest) = bytes.split_first()?;
        *bytes = rest;
        value |= u64::from(byte & 0x7f) << shift;
        if byte < 0x80 {
            return Some(value);
        }
    }
    None
}
