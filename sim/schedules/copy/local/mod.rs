pub mod reentry;
pub mod turnstile;
