//! # `dlopen`, without `RTLD_DEEPBIND`
//!
//! With that flag a plug-in finds the C library's `malloc` and `free` before
//! ours, although the program and the C library itself use ours: the first
//! pointer that crosses crashes the process (php's extensions do so under every
//! preloaded allocator). So the flag is dropped, unless the program's owner
//! asks to keep it.
//!
//! The C library looks for the file where the *caller* says (`RUNPATH`), and
//! knows the caller by its return address. So this is a jump, not a call; and
//! it goes to `dlmopen` in the base namespace, which is the same thing under a
//! name that we do not define ourselves. Before the first it calls what is to be done before plug-ins are loaded.
//!
//! The assembly is each processor's own (`wrap`): `define_dlopen!`.
