//! The number of rows and a hash of them that does not depend on their order.

use crate::store::db::Value;
use sha2::{Digest, Sha256};

/// What was read of a table.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(super) struct Tally {
    rows: u64,
    /// The sum of the hashes of the rows, so that equal rows do not cancel each other.
    sum: u128,
}

impl Tally {
    pub(super) fn add(&mut self, row: &[Value]) {
        let mut hash = Sha256::new();
        for value in row {
            let (kind, bytes): (u8, &[u8]) = match value {
                Value::Null => (0, &[]),
                Value::Integer(value) => (1, &value.to_be_bytes()),
                Value::Real(value) => (2, &value.to_be_bytes()),
                Value::Text(text) => (3, text.as_bytes()),
                Value::Blob(bytes) => (4, bytes),
            };
            hash.update([kind]);
            hash.update((bytes.len() as u64).to_be_bytes());
            hash.update(bytes);
        }
        let hash: [u8; 32] = hash.finalize().into();
        let (half, _) = hash.split_first_chunk().expect("32 bytes");
        self.sum = self.sum.wrapping_add(u128::from_be_bytes(*half));
        self.rows += 1;
    }

    pub(super) fn rows(&self) -> u64 {
        self.rows
    }

    /// The hash in hexadecimal.
    pub(super) fn hash(&self) -> String {
        format!("{:032x}", self.sum)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hash_depends_on_values_and_not_on_order() {
        let tally = |rows: &[&[Value]]| {
            let mut tally = Tally::default();
            rows.iter().for_each(|row| tally.add(row));
            tally
        };
        let (one, two) = (
            [Value::Text("ab".to_owned()), Value::Null],
            [Value::Text("a".to_owned()), Value::Text("b".to_owned())],
        );
        assert_eq!(tally(&[&one, &two]), tally(&[&two, &one]));
        assert_ne!(tally(&[&one]), tally(&[&two]));
        assert_ne!(tally(&[&one, &one]).hash(), tally(&[]).hash());
        let moved = [
            [Value::Text("a".to_owned()), Value::Text("bc".to_owned())],
            [Value::Text("ab".to_owned()), Value::Text("c".to_owned())],
        ];
        assert_ne!(tally(&[&moved[0]]), tally(&[&moved[1]]));
        assert_ne!(
            tally(&[&[Value::Integer(1)]]),
            tally(&[&[Value::Text("\0\0\0\0\0\0\0\u{1}".to_owned())]])
        );
    }
}
