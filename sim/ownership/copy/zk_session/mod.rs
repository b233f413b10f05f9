//! Stand-ins for an ACL and for the lease, with the rule of the lease's end.

pub(crate) mod clock;
pub(crate) mod error;
pub(crate) mod machine;
pub(crate) mod nonce;
pub(crate) mod world;

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
    pub(crate) mod heard;

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

        //= LeaseState::end
    }
}
