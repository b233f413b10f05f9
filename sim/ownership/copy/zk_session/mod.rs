//! A stand-in for the lease, with the rule of its end.

pub(crate) mod acl;
pub(crate) mod clock;
pub(crate) mod error;
pub(crate) mod machine;
pub(crate) mod nonce;
pub(crate) mod world;

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
