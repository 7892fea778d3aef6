//! A plug-in in Rust with a heap of its own: a shared library for a program in C that loads it with `dlopen`.
//! `cargo build -p allotment --example plugin` makes `target/debug/examples/libplugin.so`.

use std::sync::Mutex;
use std::thread;

#[global_allocator]
static GLOBAL: allotment::Allotment = allotment::Allotment;

static KEPT: Mutex<Vec<Vec<u64>>> = Mutex::new(Vec::new());

/// Allocates `megabytes` in blocks of many sizes, in this thread and another; keeps a tenth; 0 if all is as it was
/// written.
#[unsafe(no_mangle)]
#[allow(unsafe_code, reason = "a name for C")]
pub extern "C" fn plugin_work(megabytes: usize) -> i32 {
    let work = move |seed: usize| {
        let (mut blocks, mut bytes) = (Vec::new(), 0);
        while bytes < megabytes << 20 {
            let words = 1 + (blocks.len() * 7919 + seed) % 3000;
            blocks.push(vec![(words ^ seed) as u64; words]);
            bytes += words * 8;
        }
        let good = blocks.iter().all(|block| block.iter().all(|&word| word == (block.len() ^ seed) as u64));
        let mut number = 0;
        blocks.retain(|_| {
            number += 1;
            number % 10 == 0
        });
        (good, blocks)
    };
    let other = thread::spawn(move || work(1));
    let (good, mine) = work(2);
    let (good_too, others) = other.join().unwrap_or_default();
    KEPT.lock().unwrap_or_else(std::sync::PoisonError::into_inner).extend(mine.into_iter().chain(others));
    i32::from(!(good && good_too))
}

/// A string that the caller gives to [`plugin_done`], perhaps after it has closed this library.
#[unsafe(no_mangle)]
#[allow(unsafe_code, reason = "a name for C")]
pub extern "C" fn plugin_text() -> *mut std::ffi::c_char {
    std::ffi::CString::from(c"a text of the plug-in's heap").into_raw()
}

/// Frees it.
///
/// # Safety
/// It came from [`plugin_text`], once.
#[unsafe(no_mangle)]
#[allow(unsafe_code, reason = "a name for C")]
pub unsafe extern "C" fn plugin_done(text: *mut std::ffi::c_char) {
    // SAFETY: the caller's promise.
    drop(unsafe { std::ffi::CString::from_raw(text) });
}
