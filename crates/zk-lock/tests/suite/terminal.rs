//! zk-lock in a pseudo-terminal.
