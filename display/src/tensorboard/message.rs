//! The part of Protocol Buffers' wire format that events need: <https://protobuf.dev/programming-guides/encoding>.

/// A message under construction.
#[derive(Default)]
pub struct Message(Vec<u8>);

impl Message {
    /// Adds a field with a whole number.
    pub fn int(mut self, field: u64, value: u64) -> Message {
        self.key(field, 0);
        self.varint(value);
        self
    }

    /// Adds a field with a number of 64 bits.
    pub fn double(mut self, field: u64, value: f64) -> Message {
        self.key(field, 1);
        self.0.extend(value.to_le_bytes());
        self
    }

    /// Adds a field with a number of 32 bits.
    pub fn float(mut self, field: u64, value: f32) -> Message {
        self.key(field, 5);
        self.0.extend(value.to_le_bytes());
        self
    }

    /// Adds a field with a text, bytes, or another message.
    pub fn bytes(mut self, field: u64, value: &[u8]) -> Message {
        self.key(field, 2);
        self.varint(value.len() as u64);
        self.0.extend(value);
        self
    }

    /// Adds a field with a text.
    pub fn text(self, field: u64, value: &str) -> Message {
        self.bytes(field, value.as_bytes())
    }

    /// Adds a field with another message.
    pub fn message(self, field: u64, value: Message) -> Message {
        self.bytes(field, &value.0)
    }

    /// The bytes of the message.
    pub fn finish(self) -> Vec<u8> {
        self.0
    }

    fn key(&mut self, field: u64, wire_type: u64) {
        self.varint(field << 3 | wire_type);
    }

    fn varint(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.0.push(value as u8 | 0x80);
            value >>= 7;
        }
        self.0.push(value as u8);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Tests with the examples of the format's documentation.
    #[test]
    fn fields_are_as_the_format_describes_them() {
        assert_eq!(Message::default().int(1, 150).finish(), [0x08, 0x96, 0x01]);
        assert_eq!(Message::default().text(2, "testing").finish(), *b"\x12\x07testing");
        let inner = Message::default().int(1, 150);
        assert_eq!(Message::default().message(3, inner).finish(), [0x1a, 0x03, 0x08, 0x96, 0x01]);
    }
}
