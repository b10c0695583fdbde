//! Randomness of the operating system, through ring's `SystemRandom`: the provider that TLS uses as well.

/// The operating system gave none.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the system gives no random numbers")]
pub struct NoRandomness;

/// Fills the bytes with numbers that nobody can guess.
pub fn fill(bytes: &mut [u8]) -> Result<(), NoRandomness> {
    rustls::crypto::ring::default_provider().secure_random.fill(bytes).map_err(|_| NoRandomness)
}
