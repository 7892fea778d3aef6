//! # `vfork` and `clone`, wrapped
//!
//! The child of a `vfork` runs in our memory, with our thread's rseq area but
//! without a registration: its sequences would not be aborted and would lose
//! updates. While one is in flight every index therefore points at the void
//! set: `before` closes the sets, `after` (in the parent, once the child has
//! gone its way) opens them again, also for what that child had begun itself and was killed in
//! ([`Begun`](super::gate::Begun), in a register that the system call keeps).
//!
//! It returns twice on one stack, so it is assembly: the return address waits
//! in a register that the system call keeps, because the child overwrites the
//! stack slot it came from.
//!
//! The C library's `clone` starts such a child, too, on a stack of its own, if it is told to share memory: a thread, too, whose area
//! nobody has registered, whatever thread-local storage it is given. With `CLONE_VFORK` the parent sleeps until the child has gone its way; without, both go on for as long as they
//! like, and the sets stay closed.
//!
//! The assembly is each processor's own (`wrap`): `define_vfork!` and `define_clone!`.

/// `clone`'s flags: memory is shared; the parent sleeps.
pub const CLONE_VM: i32 = 0x100;
/// See there.
pub const CLONE_VFORK: i32 = 0x4000;
