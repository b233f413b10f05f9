//! Tests of single scenes, and of random histories, in a small simulated world.

mod random;
mod scenes;
mod world;
