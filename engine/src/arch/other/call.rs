//! # System calls by the C library
//!
//! Cost: the call.
#![allow(unsafe_code)] // the boundary to the kernel

pub use super::nr;

/// One system call; what it returns.
///
/// # Safety
/// As the call itself.
pub unsafe fn call(number: usize, a: [usize; 6]) -> isize {
    unsafe extern "C" {
        fn syscall(number: core::ffi::c_long, ...) -> core::ffi::c_long;
        fn __errno_location() -> *mut i32;
    }
    // SAFETY: libc's own entry; errno is put back as it was.
    unsafe {
        let errno = __errno_location();
        let before = *errno;
        let result = syscall(number as core::ffi::c_long, a[0], a[1], a[2], a[3], a[4], a[5]);
        let code = *errno;
        *errno = before;
        if result == -1 { -(code as isize) } else { result as isize }
    }
}

/// Always `ENOSYS`.
///
/// # Safety
/// None needed.
pub unsafe fn clone(_: [usize; 5], _: extern "C" fn(usize) -> !, _: usize) -> isize {
    -38
}
