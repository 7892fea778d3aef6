//! # Suite `apps`: redis
//!
//! A server on a unix socket without persistence, loaded by `redis-benchmark`
//! with many clients and pipelining; the rate, and the server's own peak.
//! Debian's server links jemalloc, so the C library's malloc is preloaded
//! explicitly for `glibc`.

use crate::bench::peer::{self, Peer, find_library, missing};
use crate::bench::process::{self, Limits};
use crate::bench::rows::mib;
use crate::bench::suite::{Case, Contender, Sample, Setup, higher, lower};
use crate::proc::Status;
use crate::run::search;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

const NAME: &str = "redis";
const ABOUT: &str = "redis-server under redis-benchmark: SET, LPUSH, 20 clients, pipelined";
/// Longer to start or stop means hung.
const PATIENCE: Duration = Duration::from_secs(20);

/// The case.
pub fn case(setup: &Setup) -> Case {
    let (Some(server), Some(load)) = (search(OsStr::new("redis-server")), search(OsStr::new("redis-benchmark"))) else {
        return Case::skipped(NAME, ABOUT, missing("redis-server", "redis-server, redis-tools"));
    };
    let contenders = setup.peers.iter().map(|peer| {
        let (peer, setup, server, load) = (peer.clone(), setup.clone(), server.clone(), load.clone());
        Contender::new(peer.name.clone(), move |warm| run(&setup, &peer, &server, &load, warm))
    });
    Case::new(NAME, ABOUT, 1, contenders.collect())
}

/// A server that never outlives its owner.
struct Server {
    child: Child,
    socket: PathBuf,
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = std::fs::remove_file(&self.socket);
    }
}

fn start(setup: &Setup, peer: &Peer, program: &Path) -> Result<Server, String> {
    let socket = setup.scratch.join("redis.sock");
    let _ = std::fs::remove_file(&socket);
    let mut command = Command::new(program);
    peer::apply(Some(peer), &mut command, setup.conf.as_deref(), "");
    // (One that makes the C library's malloc win over what the program links.)
    let preload = peer.library.clone().or_else(|| find_library(&["libc.so.6"]));
    if let Some(preload) = &preload {
        command.env("LD_PRELOAD", preload);
    }
    command.args(["--port", "0", "--save", "", "--appendonly", "no", "--daemonize", "no", "--unixsocket"]).arg(&socket);
    command.arg("--dir").arg(&setup.scratch);
    let child = command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .map_err(|error| format!("redis-server: {error}"))?;
    let mut server = Server { child, socket };
    if let Some(preload) = preload
        && !process::wait_mapped(server.child.id(), &preload)
    {
        return Err("redis-server: the preload did not take".into());
    }
    let began = Instant::now();
    while std::os::unix::net::UnixStream::connect(&server.socket).is_err() {
        if server.child.try_wait().ok().flatten().is_some() || began.elapsed() > PATIENCE {
            return Err("redis-server did not start".into());
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    Ok(server)
}

fn run(setup: &Setup, peer: &Peer, server: &Path, load: &Path, warm: bool) -> Result<Vec<Sample>, String> {
    let server = start(setup, peer, server)?;
    let requests = if warm {
        "20000"
    } else if setup.quick {
        "200000"
    } else {
        "1000000"
    };
    let mut samples = Vec::new();
    for (test, metric) in [("set", "set"), ("lpush", "lpush")] {
        let mut command = Command::new(load);
        command.env_remove("LD_PRELOAD").arg("-s").arg(&server.socket);
        command.args(["-t", test, "-n", requests, "-r", "100000", "-d", "100", "-c", "20", "-P", "16", "--csv"]);
        let outcome = process::run(&mut command, Limits::default())?;
        let value = rate(&outcome.output).ok_or("redis-benchmark gave no rate")?;
        samples.push(higher(metric, "requests/s").is(value));
    }
    let peak = Status::of(server.child.id()).map_err(|_| "redis-server ended under load")?.peak;
    samples.push(lower("rss", "MiB").is(mib(peak)));
    Ok(samples)
}

/// The rate in a line of `redis-benchmark --csv`: `"SET","123456.78",…`.
fn rate(output: &str) -> Option<f64> {
    let line = output.lines().rfind(|line| line.starts_with('"') && !line.starts_with("\"test\""))?;
    line.split(',').nth(1)?.trim_matches('"').parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rate_is_read() {
        let new = "\"test\",\"rps\",\"avg_latency_ms\"\n\"SET\",\"271739.12\",\"0.1\"\n";
        assert_eq!(rate(new), Some(271_739.12));
        assert_eq!(rate("\"LPUSH\",\"5.0\"\n"), Some(5.0));
        assert_eq!(rate(""), None);
    }
}
