//! The TFRecord frame around a message: its length, and checksums of both.
//! <https://www.tensorflow.org/tutorials/load_data/tfrecord#tfrecords_format_details>

/// Castagnoli's polynomial, with reversed bits.
const POLYNOMIAL: u32 = 0x82f6_3b78;

const TABLE: [u32; 256] = table();

const fn table() -> [u32; 256] {
    let mut table = [0; 256];
    let mut byte = 0;
    while byte < 256 {
        let mut checksum = byte as u32;
        let mut bit = 0;
        while bit < 8 {
            checksum = if checksum & 1 == 1 { checksum >> 1 ^ POLYNOMIAL } else { checksum >> 1 };
            bit += 1;
        }
        table[byte] = checksum;
        byte += 1;
    }
    table
}

/// The CRC-32C checksum, which differs from the CRC-32 of the journal.
fn crc32c(bytes: &[u8]) -> u32 {
    !bytes.iter().fold(!0, |checksum, byte| TABLE[(checksum as u8 ^ byte) as usize] ^ checksum >> 8)
}

/// The masked checksum that the format requires, because a checksum of data that contains its own checksum is weak.
fn masked(bytes: &[u8]) -> u32 {
    crc32c(bytes).rotate_right(15).wrapping_add(0xa282_ead8)
}

/// The message in a TFRecord frame.
pub fn framed(message: &[u8]) -> Vec<u8> {
    let length = (message.len() as u64).to_le_bytes();
    [&length[..], &masked(&length).to_le_bytes(), message, &masked(message).to_le_bytes()].concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The test values of RFC 3720, appendix B.4.
    #[test]
    fn checksums_are_those_of_the_rfc() {
        assert_eq!(crc32c(&[0; 32]), 0x8a91_36aa);
        assert_eq!(crc32c(&[0xff; 32]), 0x62a8_ab43);
        assert_eq!(crc32c(&(0..32).collect::<Vec<u8>>()), 0x46dd_794e);
    }

    #[test]
    fn record_is_length_checksum_message_checksum() {
        let record = framed(b"it");
        assert_eq!(record.len(), 8 + 4 + 2 + 4);
        assert_eq!((&record[..8], &record[12..14]), (&2_u64.to_le_bytes()[..], &b"it"[..]));
    }
}
