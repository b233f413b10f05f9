//! Stand-ins for the types that the machine only passes on, and the rule of the lease's end.

#[path = "session/heard.rs"]
pub(crate) mod heard;
#[path = "session/nonce.rs"]
pub(crate) mod nonce;

pub(crate) mod connection {
    #[path = "../../session/connection/codec.rs"]
    pub(crate) mod codec;
    #[path = "../../session/connection/machine/mod.rs"]
    pub(crate) mod machine;
}

pub(crate) mod generation {
    #[derive(Hash)]
    pub(crate) struct FolderWatch(String);

    impl FolderWatch {
        pub(crate) fn dir(&self) -> &str {
            &self.0
        }
    }
}

pub(crate) mod leased_node {
    #[derive(Hash)]
    pub(crate) struct LeasedNode(String);

    impl LeasedNode {
        pub(crate) fn path(&self) -> &str {
            &self.0
        }
    }
}

pub(crate) mod acl {
    use zk_wire::record::Writer;

    #[derive(Clone, Debug)]
    pub(crate) struct Acl;

    impl Acl {
        pub(crate) fn encode(&self, w: Writer) -> Writer {
            w.i32(0)
        }
    }
}

pub(crate) mod lease {
    use std::time::Duration;

    use crate::clock::BootTime;

    /// The lease's state, without the nodes.
    #[derive(Clone, Debug, Default, Hash)]
    pub(crate) struct LeaseState {
        pub(crate) timeout: Duration,
        pub(crate) heard: Option<BootTime>,
    }

    impl LeaseState {
        pub(crate) fn ends(&self) -> Option<BootTime> {
            self.end()
        }

        //= session/lease.rs: fn end(&self) -> Option<BootTime> {
    }
}
