//! The checks of a listener on loopback. Any process and any web page on this machine can call it.

/// Returns whether an authority names a port on loopback. The name of a web page that resolves to
/// this address does not.
#[must_use]
pub fn is_own_name(authority: &str, own_port: u16) -> bool {
    let Some((host, port)) = authority.rsplit_once(':') else {
        return false;
    };
    matches!(host, "127.0.0.1" | "localhost") && port.parse() == Ok(own_port)
}

/// Compares in constant time.
#[must_use]
pub fn is_equal(a: &[u8], b: &[u8]) -> bool {
    a.len() == b.len()
        && a.iter()
            .zip(b)
            .fold(0, |difference, (a, b)| difference | (a ^ b))
            == 0
}
