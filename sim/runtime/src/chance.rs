//! Random numbers. All of them come from the seed.

use crate::core;

/// A stream of random numbers.
pub type Rng = fastrand::Rng;

/// Makes the stream of one use. Each use has a stream of its own: if the code draws one more number
/// for one use, the numbers of the other uses stay the same.
pub(crate) fn stream(seed: u64, number: u64) -> Rng {
    let mut rng = Rng::with_seed(seed ^ number.wrapping_mul(0x9e37_79b9_7f4a_7c15));
    rng.u64(..);
    rng
}

/// A number that is at least zero and below one.
pub fn random() -> f64 {
    core::with(|sim| sim.library_rng.borrow_mut().f64())
}

/// Brings the items into a random order.
pub fn shuffle<T>(items: &mut [T]) {
    core::with(|sim| sim.library_rng.borrow_mut().shuffle(items));
}

/// A random one.
pub fn new_uuid() -> uuid::Uuid {
    core::with(|sim| {
        let bytes = sim.library_rng.borrow_mut().u128(..).to_be_bytes();
        uuid::Builder::from_random_bytes(bytes).into_uuid()
    })
}

/// A random number between `least` and `most`. On a logarithmic scale all sizes are equally likely.
pub(crate) fn log_uniform(rng: &mut Rng, least: u64, most: u64) -> u64 {
    if most <= least {
        return least;
    }
    let (low, high) = ((least.max(1) as f64).ln(), (most as f64).ln());
    ((low + rng.f64() * (high - low)).exp() as u64).clamp(least, most)
}
