// about: Rust's own library: threads with destructors in their storage, panics that unwind, channels, children, a process that ends by a panic
// args: 0
// args: panic

use std::cell::RefCell;
use std::collections::HashMap;
use std::process::Command;
use std::sync::mpsc::channel;
use std::thread;

struct Last(Vec<String>);
impl Drop for Last {
    fn drop(&mut self) {
        let words: Vec<String> = self.0.iter().map(|word| word.repeat(3)).collect();
        assert!(words.iter().all(|word| word.len() % 3 == 0));
    }
}
thread_local!(static LAST: RefCell<Last> = const { RefCell::new(Last(Vec::new())) });

fn main() {
    std::panic::set_hook(Box::new(|_| {}));
    let (sender, receiver) = channel();
    let threads: Vec<_> = (0..8)
        .map(|number: usize| {
            let sender = sender.clone();
            thread::spawn(move || {
                for round in 0..60 {
                    LAST.with_borrow_mut(|last| last.0.push(format!("{number} {round}")));
                    let map: HashMap<usize, Vec<u8>> =
                        (0..50).map(|key| (key, vec![number as u8; key * round])).collect();
                    sender.send(map).unwrap();
                    if round % 20 == 0 {
                        let caught = std::panic::catch_unwind(|| panic!("{}", "x".repeat(round)));
                        assert!(caught.is_err());
                    }
                }
                assert!(Command::new("true").status().unwrap().success());
                if number % 4 == 3 {
                    panic!("as it should");
                }
            })
        })
        .collect();
    drop(sender);
    let mut bytes = 0;
    for map in receiver {
        for value in map.values() {
            assert!(value.windows(2).all(|pair| pair[0] == pair[1]));
            bytes += value.len();
        }
    }
    let panicked = threads.into_iter().map(thread::JoinHandle::join).filter(Result::is_err).count();
    println!("{bytes} {panicked}");
    if std::env::args().nth(1).as_deref() == Some("panic") {
        panic!("the end");
    }
}
