//! Encoding of names in headers, and comparison of versions.

/// Encodes a text as visible ASCII, for a header.
#[must_use]
pub fn encode_name(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte {
            b'!'..=b'~' if byte != b'%' => out.push(char::from(byte)),
            _ => out.push_str(&format!("%{byte:02X}")),
        }
    }
    out
}

/// Decodes the result of [`encode_name`].
#[must_use]
pub fn decode_name(text: &str) -> Option<String> {
    let mut out = Vec::with_capacity(text.len());
    let mut bytes = text.bytes();
    while let Some(byte) = bytes.next() {
        if byte != b'%' {
            out.push(byte);
            continue;
        }
        let digits = [bytes.next()?, bytes.next()?];
        out.push(u8::from_str_radix(std::str::from_utf8(&digits).ok()?, 16).ok()?);
    }
    String::from_utf8(out).ok()
}

/// Returns whether version `a` is older than version `b`, by their three numbers.
#[must_use]
pub fn is_older(a: &str, b: &str) -> bool {
    fn numbers(text: &str) -> Option<[u64; 3]> {
        let mut parts = text.split(['.', '-', '+']).map(|part| part.parse().ok());
        Some([parts.next()??, parts.next()??, parts.next()??])
    }
    matches!((numbers(a), numbers(b)), (Some(a), Some(b)) if a < b)
}
