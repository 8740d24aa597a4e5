//! Random keys and tokens.

/// Generates an idempotency key. Keys start with the time, so that the store inserts new keys next
/// to each other.
#[must_use]
pub fn fresh_key() -> String {
    format!("{:012x}{}", crate::clock::now().0, random_hex::<10>())
}

/// Generates `N` random bytes and returns them in lower-case hex.
#[must_use]
pub fn random_hex<const N: usize>() -> String {
    let mut bytes = [0_u8; N];
    getrandom::fill(&mut bytes).expect("the kernel gives random bytes");
    adjutant_core::hex(bytes)
}
