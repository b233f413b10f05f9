//! Replaces the contenders' names: each name is an id.

/// The number of the session, and the number of the node.
pub type NodeKey = (u64, i64);

#[derive(Clone, Copy)]
pub enum Kind {
    Lock,
}

pub struct Name<'a> {
    pub id: &'a str,
}

pub fn parse(id: &str) -> Option<Name<'_>> {
    Some(Name { id })
}
