//! Scenes, and histories by chance, in a small world.

mod random;
mod scenes;
mod world;
