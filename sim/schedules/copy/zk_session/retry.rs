//! Replaces the library's file: no request to a server fails here, so no time counts from one.

pub struct Retry;

impl Retry {
    pub fn sends(&self) {}

    pub fn cut_short(&self) {}
}
