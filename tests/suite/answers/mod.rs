//! Whether answers are true: of a server that is behind, and while nodes come and go.
pub mod behind;
pub mod moments;

crate::support::tables![behind, moments];
