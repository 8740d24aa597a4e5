//! Random keys.

/// Draws a fresh idempotency key. Keys begin with the time, so that the store finds the place for a
/// new one beside the last.
#[must_use]
pub fn fresh_key() -> String {
    format!("{:012x}{}", crate::clock::now().0, random_hex::<10>())
}

/// Draws `N` random bytes as lower-case hex: keys and tokens.
#[must_use]
pub fn random_hex<const N: usize>() -> String {
    let mut bytes = [0_u8; N];
    getrandom::fill(&mut bytes).expect("the kernel gives random bytes");
    let digit = |half: u8| char::from_digit(half.into(), 16).unwrap_or('0');
    bytes.iter().flat_map(|byte| [digit(byte >> 4), digit(byte & 15)]).collect()
}
