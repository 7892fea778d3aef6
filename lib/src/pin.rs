//! # A plug-in that has this crate inside stays mapped
//!
//! A shared library with the heap in it may be loaded by `dlopen` and closed again, but its code is needed to the
//! process's end: handlers of `fork` and `exit` are registered, threads' rseq areas lead to its sequences, the
//! keeper runs in it, its objects are somebody's. So it loads itself once more, for good (`RTLD_NODELETE`).
//!
//! That takes the loader's lock, which must not be waited for inside an allocation: another thread may hold it and wait
//! for a lock of the program that the allocating one has. So it is done in the constructor, where this thread has that
//! (recursive) lock anyhow, or is alone. Programs need none of it, nor the libraries that we link ourselves (`-z nodelete`).
//!
//! Cost: a program's start looks its own file up, without a system call.
#![allow(unsafe_code)] // calls the loader

use crate::unwind;
use core::ffi::{c_char, c_int, c_void};

extern "C" fn constructor() {
    const RTLD_NOW: c_int = 2;
    const RTLD_NOLOAD: c_int = 4;
    const RTLD_NODELETE: c_int = 0x1000;
    // (A weak name: a static program need not have a loader.)
    let (loader, name) =
        (allotment_engine::weak_address!("dlopen"), unwind::file_name(constructor as *const () as usize));
    // (The program itself has no name.)
    if loader == 0 || name.is_none_or(|name| name.is_empty()) {
        return;
    }
    // SAFETY: the C library's function with the name under which it has loaded this very file; it keeps `errno` only
    // if all goes well, and so do we: nobody asked for anything yet.
    unsafe {
        let loader: extern "C" fn(*const c_char, c_int) -> *mut c_void = core::mem::transmute(loader);
        loader(name.map_or(core::ptr::null(), core::ffi::CStr::as_ptr), RTLD_NOW | RTLD_NOLOAD | RTLD_NODELETE);
    }
}

#[used]
#[unsafe(link_section = ".init_array")]
static CONSTRUCTOR: extern "C" fn() = constructor;
