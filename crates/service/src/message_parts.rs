//! A message of which parts are shared with others.

use bytes::Bytes;

/// A message in parts: bytes of its own, and between them values that others hold too.
#[derive(Debug, Default)]
pub struct MessageParts {
    /// All bytes of its own, in order.
    pub own: Vec<u8>,
    /// What stands between them: behind so many of them, and the value.
    shared: Vec<(usize, Bytes)>,
    shared_bytes: usize,
}

/// One of the [`MessageParts`].
#[derive(Clone, Copy, Debug)]
pub enum MessagePart<'a> {
    /// Bytes of its own.
    Own(&'a [u8]),
    /// A value that others hold too.
    Shared(&'a Bytes),
}

impl MessageParts {
    /// Appends a value without copying it.
    pub fn share(&mut self, value: &Bytes) {
        self.shared_bytes += value.len();
        self.shared.push((self.own.len(), value.clone()));
    }

    /// Returns the bytes of the whole message.
    pub fn len(&self) -> usize {
        self.own.len() + self.shared_bytes
    }

    /// Returns whether there is nothing yet.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the parts in order.
    pub fn parts(&self) -> impl Iterator<Item = MessagePart<'_>> + Clone {
        let starts = std::iter::once(0).chain(self.shared.iter().map(|(at, _)| *at));
        let own = starts
            .zip(self.ends())
            .map(|(start, end)| &self.own[start..end]);
        let values = self.shared.iter().map(|(_, value)| Some(value));
        own.zip(values.chain(std::iter::once(None)))
            .flat_map(|(own, value)| {
                let own = (!own.is_empty()).then_some(MessagePart::Own(own));
                own.into_iter().chain(value.map(MessagePart::Shared))
            })
    }

    fn ends(&self) -> impl Iterator<Item = usize> + Clone + '_ {
        (self.shared.iter().map(|(at, _)| *at)).chain(std::iter::once(self.own.len()))
    }
}

#[cfg(test)]
#[test]
fn messages_in_parts_come_in_their_order() {
    let seen = |message: &MessageParts| -> Vec<(bool, Vec<u8>)> {
        let owned = |part| match part {
            MessagePart::Own(bytes) => (true, bytes.to_vec()),
            MessagePart::Shared(value) => (false, value.to_vec()),
        };
        message.parts().map(owned).collect()
    };
    let mut message = MessageParts::default();
    assert!(message.is_empty() && seen(&message).is_empty());
    // Two values with nothing between them, and nothing before the first.
    message.share(&b"a".as_slice().into());
    message.share(&b"bc".as_slice().into());
    message.own.extend_from_slice(b"def");
    message.share(&b"g".as_slice().into());
    message.own.push(b'h');
    assert_eq!((message.len(), message.is_empty()), (8, false));
    let expected = [
        (false, b"a".to_vec()),
        (false, b"bc".to_vec()),
        (true, b"def".to_vec()),
        (false, b"g".to_vec()),
        (true, b"h".to_vec()),
    ];
    assert_eq!(seen(&message), expected);
}
