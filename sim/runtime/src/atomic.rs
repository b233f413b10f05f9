//! Atomics with std's interface. Each access is a scheduling point, and all orderings are
//! sequentially consistent.

use std::sync::atomic as real;
pub use std::sync::atomic::Ordering;

use crate::core;
use crate::trace::Op;

macro_rules! atomic {
    ($($name:ident($value:ty): $($also:ident)*;)*) => { $(
        #[doc = concat!("See `std::sync::atomic::", stringify!($name), "`.")]
        #[derive(Debug, Default)]
        pub struct $name(real::$name);

        impl $name {
            /// With this value.
            pub const fn new(value: $value) -> $name {
                $name(real::$name::new(value))
            }

            /// As std's.
            pub fn load(&self, _: Ordering) -> $value {
                core::point(Op::Atomic, 0);
                self.0.load(Ordering::SeqCst)
            }

            /// As std's.
            pub fn store(&self, value: $value, _: Ordering) {
                core::point(Op::Atomic, 1);
                self.0.store(value, Ordering::SeqCst);
            }

            /// As std's.
            pub fn compare_exchange(
                &self,
                current: $value,
                new: $value,
                _: Ordering,
                _: Ordering,
            ) -> Result<$value, $value> {
                core::point(Op::Atomic, 2);
                self.0.compare_exchange(current, new, Ordering::SeqCst, Ordering::SeqCst)
            }

            /// As std's: the exclusive reference needs no scheduling point.
            pub fn get_mut(&mut self) -> &mut $value {
                self.0.get_mut()
            }

            $(
                /// As std's.
                pub fn $also(&self, value: $value, _: Ordering) -> $value {
                    core::point(Op::Atomic, 2);
                    self.0.$also(value, Ordering::SeqCst)
                }
            )*
        }
    )* };
}

atomic! {
    AtomicBool(bool): swap fetch_or fetch_and;
    AtomicU8(u8): swap fetch_or fetch_and;
    AtomicU32(u32): swap fetch_add fetch_sub fetch_max;
    AtomicU64(u64): swap fetch_add fetch_sub fetch_max;
    AtomicUsize(usize): swap fetch_add fetch_sub fetch_max;
}
