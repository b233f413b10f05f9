//! The fuzz target of the server: see [`zk_wire::fuzz`].

use crate::engine::hostile::server;
use zk_wire::fuzz::Target;

/// Each target by its name.
pub const TARGETS: &[(&str, Target)] = &[("server", server)];

#[cfg(test)]
mod tests {
    #[test]
    fn server() {
        zk_wire::fuzz::replay("server", super::server);
    }
}
