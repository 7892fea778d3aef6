//! # Every process that publishes
//!
//! `stat --all --openmetrics` looks at all that may be looked into, in containers too, and asks none of them for
//! anything.

use super::find;
use super::metrics;
use super::view::View;
use crate::proc;
use crate::term::printable;

/// The metrics of all.
pub fn exposition() -> String {
    let views: Vec<View> = find::all()
        .filter_map(|target| View::take(&target, false).ok())
        // (One that ended meanwhile has no name any more.)
        .filter(|view| !proc::name(view.pid).is_empty())
        .collect();
    metrics::of_all(views.iter().map(|view| (labels(view.pid), view)))
}

/// Whose a sample is.
fn labels(pid: u32) -> Vec<(&'static str, String)> {
    let cgroups = proc::cgroups(pid);
    vec![("pid", pid.to_string()), ("name", proc::name(pid)), ("cgroup", printable(memory_cgroup(&cgroups)))]
}

/// The cgroup that counts a process's memory: that of the controller where it has a hierarchy of its own, or the common one.
fn memory_cgroup(text: &str) -> &str {
    let of = |controller: &str| {
        text.lines().find_map(|line| {
            let (_, rest) = line.split_once(':')?;
            let (controllers, path) = rest.split_once(':')?;
            controllers.split(',').any(|name| name == controller).then_some(path)
        })
    };
    of("memory").or_else(|| of("")).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cgroup_is_that_of_memory() {
        assert_eq!(memory_cgroup("0::/system.slice/x.service\n"), "/system.slice/x.service");
        assert_eq!(memory_cgroup("9:cpu,cpuacct:/a\n4:memory:/b:c\n0::/\n"), "/b:c");
        assert_eq!(memory_cgroup("9:cpu:/a\n"), "");
    }
}
