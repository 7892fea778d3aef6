//! # Threads of tests
//!
//! The standard library compiles `scope` and `spawn` anew for each closure: the tests' 150 were a tenth of what the compiler was
//! given. These box what they run, so that a thread is started by one function for each type that it returns.

extern crate std;
use std::boxed::Box;
use std::thread::{self, JoinHandle, Scope, ScopedJoinHandle};

/// As [`std::thread::scope`].
pub fn scope<'env, T>(body: impl for<'scope> FnOnce(Threads<'scope, 'env>) -> T) -> T {
    let (mut body, mut done) = (Some(body), None);
    scope_of(&mut |threads| done = body.take().map(|body| body(threads)));
    done.expect("it was called")
}
fn scope_of<'env>(body: &mut dyn for<'scope> FnMut(Threads<'scope, 'env>)) {
    thread::scope(|scope| body(Threads(scope)));
}

/// As [`std::thread::Scope`].
#[derive(Clone, Copy)]
pub struct Threads<'scope, 'env>(&'scope Scope<'scope, 'env>);

impl<'scope> Threads<'scope, '_> {
    /// Starts one more.
    pub fn spawn<T: Send + 'scope>(self, body: impl FnOnce() -> T + Send + 'scope) -> ScopedJoinHandle<'scope, T> {
        let body: Box<dyn FnOnce() -> T + Send + 'scope> = Box::new(body);
        self.0.spawn(body)
    }
}

/// As [`std::thread::spawn`].
pub fn spawn<T: Send + 'static>(body: impl FnOnce() -> T + Send + 'static) -> JoinHandle<T> {
    let body: Box<dyn FnOnce() -> T + Send> = Box::new(body);
    thread::spawn(body)
}
