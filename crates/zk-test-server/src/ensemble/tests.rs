//! Tests of single scenarios, and of random histories, in a small simulated world.

mod random;
mod scenes;
mod world;
