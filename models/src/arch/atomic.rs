//! Atomics whose every access is a choice of the checker's and whose stores wait in a
//! store buffer. As large as the real ones, and valid when zeroed, so that the
//! engine's layouts hold.
#![allow(unsafe_code)] // a buffered store is known by its address

use crate::machine;
use core::marker::PhantomData;
pub use core::sync::atomic::{Ordering, compiler_fence};

macro_rules! atomic {
    ($($name:ident $real:ident $int:ty;)*) => {$(
        /// As in `core`.
        #[repr(transparent)]
        #[derive(Debug, Default)]
        pub struct $name(core::sync::atomic::$real);

        impl $name {
            /// A value.
            #[must_use]
            pub const fn new(value: $int) -> Self {
                Self(core::sync::atomic::$real::new(value))
            }
            /// What this thread sees now, in the middle of a step.
            #[must_use]
            pub fn peek(&self) -> $int {
                match machine::buffered(self.0.as_ptr() as usize) {
                    Some(value) => value as $int,
                    None => self.0.load(Ordering::Relaxed),
                }
            }
            /// A plain store in the middle of a step.
            pub fn poke(&self, value: $int) {
                machine::trace(|| format!("  {:x} = {value:x}", self.0.as_ptr() as usize));
                machine::buffer(self.0.as_ptr() as usize, size_of::<$int>(), value as u64);
            }
            /// As in `core`.
            pub fn load(&self, ordering: Ordering) -> $int {
                if !machine::quiet(self.0.as_ptr() as usize) {
                    machine::point_of(self.0.as_ptr() as usize, ordering == Ordering::Relaxed);
                }
                self.peek()
            }
            /// As in `core`.
            pub fn store(&self, value: $int, ordering: Ordering) {
                if ordering == Ordering::SeqCst || machine::quiet(self.0.as_ptr() as usize) {
                    self.swap(value, ordering);
                } else {
                    self.poke(value);
                }
            }
            fn change<T>(&self, change: impl FnOnce(&core::sync::atomic::$real) -> T) -> T {
                if !machine::quiet(self.0.as_ptr() as usize) {
                    machine::point();
                    machine::flush();
                }
                change(&self.0)
            }
            /// As in `core`.
            pub fn swap(&self, value: $int, ordering: Ordering) -> $int {
                machine::trace(|| format!("  {:x} swapped for {value:x}", self.0.as_ptr() as usize));
                self.change(|real| real.swap(value, ordering))
            }
            /// As in `core`.
            pub fn fetch_add(&self, value: $int, ordering: Ordering) -> $int {
                self.change(|real| real.fetch_add(value, ordering))
            }
            /// As in `core`.
            pub fn fetch_sub(&self, value: $int, ordering: Ordering) -> $int {
                self.change(|real| real.fetch_sub(value, ordering))
            }
            /// As in `core`.
            pub fn fetch_or(&self, value: $int, ordering: Ordering) -> $int {
                self.change(|real| real.fetch_or(value, ordering))
            }
            /// As in `core`.
            pub fn fetch_and(&self, value: $int, ordering: Ordering) -> $int {
                self.change(|real| real.fetch_and(value, ordering))
            }
            /// As in `core`.
            pub fn fetch_max(&self, value: $int, ordering: Ordering) -> $int {
                self.change(|real| real.fetch_max(value, ordering))
            }
            /// As in `core`.
            ///
            /// # Errors
            /// Another value.
            pub fn compare_exchange(&self, old: $int, new: $int, good: Ordering, bad: Ordering) -> Result<$int, $int> {
                self.change(|real| real.compare_exchange(old, new, good, bad))
            }
        }
    )*};
}
atomic! {
    AtomicU8 AtomicU8 u8;
    AtomicU16 AtomicU16 u16;
    AtomicU32 AtomicU32 u32;
    AtomicU64 AtomicU64 u64;
    AtomicUsize AtomicUsize usize;
    AtomicIsize AtomicIsize isize;
}

/// As in `core`.
#[derive(Debug)]
pub struct AtomicBool(AtomicU8);
impl AtomicBool {
    /// As in `core`.
    #[must_use]
    pub const fn new(value: bool) -> Self {
        Self(AtomicU8::new(value as u8))
    }
    /// As in `core`.
    pub fn load(&self, ordering: Ordering) -> bool {
        self.0.load(ordering) != 0
    }
    /// As in `core`.
    pub fn store(&self, value: bool, ordering: Ordering) {
        self.0.store(value.into(), ordering);
    }
}

/// As in `core`.
#[derive(Debug)]
pub struct AtomicPtr<T>(AtomicUsize, PhantomData<*mut T>);
// SAFETY: a number.
unsafe impl<T> Sync for AtomicPtr<T> {}
// SAFETY: a number.
unsafe impl<T> Send for AtomicPtr<T> {}
impl<T> AtomicPtr<T> {
    /// None.
    #[must_use]
    pub const fn new(_: *mut T) -> Self {
        Self(AtomicUsize::new(0), PhantomData)
    }
    /// As in `core`.
    pub fn load(&self, ordering: Ordering) -> *mut T {
        self.0.load(ordering) as *mut T
    }
    /// As in `core`.
    pub fn store(&self, pointer: *mut T, ordering: Ordering) {
        self.0.store(pointer as usize, ordering);
    }
}

/// As in `core`.
pub fn fence(ordering: Ordering) {
    if ordering == Ordering::SeqCst {
        machine::point();
        machine::flush();
    }
}
