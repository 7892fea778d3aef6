//! Real programs under Allotment: what they compute is compared
//! with the same program without it, and the statistics must show that the
//! preload took. `ALLOTMENT_TEST_LONG=1` makes the workloads longer.
//!
//! A program that is not here is skipped, with the Debian package that has it.

use crate::common::{BOTH, Done, Mode, Program, Scratch, find, long, modes, need, skip, stop_group};
use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// Runs `words` without and with Allotment: same output, same status.
fn same(words: &[&str], directory: &Path, allocs: u64) {
    let plain = Program::new(Mode::Plain, words).within(directory).run();
    for mode in modes(BOTH) {
        let done = Program::new(mode, words).within(directory).run();
        assert_eq!(done.status.code(), plain.status.code(), "{}\n{}{}", done.what, done.out, done.err);
        assert!(done.out == plain.out, "{}\n--- with\n{}\n--- without\n{}", done.what, done.out, plain.out);
        done.took(mode, allocs);
    }
}

/// The Pythons here: the distribution's and the first on the path, by real file.
fn pythons() -> Vec<PathBuf> {
    let mut found = BTreeSet::new();
    for candidate in ["/usr/bin/python3", "python3.11", "python3"] {
        let script = "import sys, os; print(os.path.realpath(sys.executable))";
        let Ok(output) = Command::new(candidate).args(["-c", script]).stderr(Stdio::null()).output() else { continue };
        if output.status.success() {
            found.insert(PathBuf::from(String::from_utf8_lossy(&output.stdout).trim()));
        }
    }
    found.into_iter().collect()
}

const PYTHON_SHORT: &str =
    "test_json test_gc test_threading_local test_thread test_mmap test_posix test_popen test_dict";
const PYTHON_LONG: &str = "test_deque test_list test_memoryio test_array test_pickle test_queue test_bytes test_unicode test_zlib test_bz2 test_lzma test_hashlib test_io test_tempfile test_csv
    test_re test_set test_sort test_struct test_string test_weakref test_descr test_generators test_itertools test_decimal
    test_asyncio test_socket test_socketserver test_select test_signal test_fork1 test_subprocess test_mmap test_sqlite3
    test_dbm test_threading test_concurrent_futures test_multiprocessing_fork test_multiprocessing_spawn
    test_multiprocessing_forkserver test_multiprocessing_main_handling test_xml_etree test_xml_etree_c test_ctypes
    test_capi test_exceptions test_compile test_ast test_email test_collections test_marshal test_buffer test_memoryview";

/// The tests that failed or were not there, from the words of `python3 -m test`.
fn failed(text: &str) -> BTreeSet<String> {
    let mut failed = BTreeSet::new();
    let mut collecting = false;
    for line in text.lines() {
        if line.contains("failed:") || line.contains("altered the execution environment:") {
            collecting = line.contains("failed:");
        } else if line.starts_with("    test_") && collecting {
            failed.extend(line.split_whitespace().map(str::to_owned));
        } else if !line.starts_with(' ') {
            collecting = false;
        }
    }
    failed
}

fn python_tests(python: &str, mode: Mode, tests: &str) -> Done {
    let scratch = Scratch::new("python");
    // Sockets to a hypervisor wait for ever inside of some.
    // Much of the long list waits for clocks: three at a time, each in a process of its own.
    let workers: &[&str] = if tests.split_whitespace().count() > 30 { &["-j3"] } else { &[] };
    let words = [&[python, "-m", "test", "--timeout", "900", "-i", "*VSOCK*"], workers].concat();
    let words: Vec<&str> = words.into_iter().chain(tests.split_whitespace()).collect();
    Program::new(mode, &words)
        .within(scratch.path())
        .set("PYTHONMALLOC", "malloc")
        .set("TMPDIR", scratch.path().to_str().unwrap())
        .run()
}

#[test]
fn python_runs_its_own_tests() {
    let name = "python_runs_its_own_tests";
    let mut ran = 0;
    for python in pythons() {
        let python = python.to_str().unwrap();
        let has = |module: &str| {
            let script = format!("import test.{module}, test.support");
            Command::new(python)
                .args(["-c", &script])
                .stderr(Stdio::null())
                .status()
                .is_ok_and(|status| status.success())
        };
        if !has("test_json") {
            skip(name, &format!("{python} has no test suite (Debian package libpython3.11-testsuite)"));
            continue;
        }
        ran += 1;
        // (The long list with one of them.)
        let is_long = long() && ran == 1;
        let list = if is_long { format!("{PYTHON_SHORT} {PYTHON_LONG}") } else { PYTHON_SHORT.to_owned() };
        for mode in modes(BOTH) {
            let done = python_tests(python, mode, &list);
            let mut worse = failed(&done.out);
            assert!(done.status.code().is_some(), "{}: {}\n{}", done.what, done.status, done.err);
            let done = done.took(mode, if is_long { 1000 } else { 100_000 });
            // What failed may be unsteady, or fail without any preload: it must fail twice, and not there.
            let again = |mode, tests: &BTreeSet<String>| {
                let tests: Vec<&str> = tests.iter().map(String::as_str).collect();
                python_tests(python, mode, &tests.join(" "))
            };
            if !worse.is_empty() {
                let second = again(mode, &worse);
                worse = &worse & &failed(&second.out);
                let plain = if worse.is_empty() { BTreeSet::new() } else { failed(&again(Mode::Plain, &worse).out) };
                assert!(
                    worse.is_subset(&plain),
                    "{}: {worse:?} fail, without Allotment only {plain:?}\n{}{}",
                    done.what,
                    second.out,
                    second.err
                );
            }
        }
    }
    if ran == 0 {
        skip(name, "no python3 with its tests here (Debian packages python3, libpython3.11-testsuite)");
    }
}

/// Threads, forks, pools of processes and large objects in one script.
#[test]
fn python_script() {
    let script = r#"
import json, hashlib, threading, multiprocessing, gc, sys, subprocess, mmap, pickle
def work(n):
    rows = [{"k": i, "text": "x" * (i % 300)} for i in range(n)]
    return hashlib.sha256(json.dumps(rows).encode()).hexdigest()
out = []
threads = [threading.Thread(target=lambda i=i: out.append((i, work(4000 + i)))) for i in range(6)]
[t.start() for t in threads]; [t.join() for t in threads]
print(sorted(out))
with multiprocessing.get_context("fork").Pool(3) as pool:
    print(pool.map(work, [1000, 2000, 3000, 4000]))
print(subprocess.run([sys.executable, "-c", "print(sum(range(100000)))"], capture_output=True).stdout)
big = bytearray(50_000_000); big.extend(b"y" * 30_000_000); print(len(big), big[-1])
m = mmap.mmap(-1, 1 << 20); m.write(b"z" * 1000); print(m[:3])
print(len(pickle.dumps([list(range(1000))] * 100 + [work(500)])), gc.collect() >= 0)
"#;
    let scratch = Scratch::new("python");
    let all = pythons();
    if all.is_empty() {
        skip("python_script", "no python3 here (Debian package python3)");
    }
    for python in all {
        let words = [python.to_str().unwrap(), "-c", script];
        let plain = Program::new(Mode::Plain, &words).within(scratch.path()).set("PYTHONMALLOC", "malloc").run();
        for mode in modes(BOTH) {
            let done = Program::new(mode, &words).within(scratch.path()).set("PYTHONMALLOC", "malloc").run().ended(0);
            assert_eq!(done.out, plain.out, "{}", done.what);
            done.took(mode, 100_000);
        }
    }
}

/// A server of ours, stopped at the end however the test ends.
struct Server {
    child: std::process::Child,
    scratch: Scratch,
}

impl Server {
    fn start(mode: Mode) -> Self {
        let scratch = Scratch::new("redis");
        let path = scratch.path().to_str().unwrap().to_owned();
        let socket = scratch.join("s");
        let mut words =
            vec!["redis-server", "--port", "0", "--unixsocket", socket.to_str().unwrap(), "--dir", &path, "--save", ""];
        // Since version 7 DEBUG, which compares and reloads whole data sets, must be asked for.
        let version = Command::new("redis-server").arg("--version").output().unwrap().stdout;
        let version = String::from_utf8_lossy(&version);
        let major = version.split("v=").nth(1).and_then(|rest| rest.split('.').next()?.parse::<u32>().ok());
        if major.is_some_and(|major| major >= 7) {
            words.extend(["--enable-debug-command", "local"]);
        }
        let child = Program::new(mode, &words).start(&scratch.join("log"), &scratch.join("stats.json"));
        let mut server = Self { child, scratch };
        let begin = Instant::now();
        while server.ask(&["PING"]) != "PONG" {
            assert!(
                server.child.try_wait().unwrap().is_none() && begin.elapsed() < Duration::from_secs(60),
                "{}",
                server.log()
            );
            std::thread::sleep(Duration::from_millis(10));
        }
        server
    }
    fn log(&self) -> String {
        fs::read_to_string(self.scratch.join("log")).unwrap_or_default()
    }
    fn ask(&self, words: &[&str]) -> String {
        let output = Command::new("redis-cli").arg("-s").arg(self.scratch.join("s")).args(words).output().unwrap();
        String::from_utf8_lossy(&output.stdout).trim().to_owned()
    }
    fn load(&self, words: &[&str]) {
        let mut command = Command::new("redis-benchmark");
        let output = command.arg("-s").arg(self.scratch.join("s")).args(["-q"]).args(words).output().unwrap();
        assert!(output.status.success(), "{words:?} {}\n{}", String::from_utf8_lossy(&output.stderr), self.log());
    }
    /// Waits for the background save and checks that it went well.
    fn saved(&self) {
        let begin = Instant::now();
        while !self.ask(&["INFO", "persistence"]).contains("rdb_bgsave_in_progress:0") {
            assert!(begin.elapsed() < Duration::from_secs(300), "{}", self.log());
            std::thread::sleep(Duration::from_millis(20));
        }
        assert!(self.ask(&["INFO", "persistence"]).contains("rdb_last_bgsave_status:ok"), "{}", self.log());
    }
    fn stop(&mut self) {
        let _ = self.ask(&["SHUTDOWN", "NOSAVE"]);
        let status = self.child.wait().unwrap();
        assert_eq!(status.code(), Some(0), "{status}\n{}", self.log());
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if self.child.try_wait().is_ok_and(|status| status.is_none()) {
            stop_group(self.child.id());
            let _ = self.child.wait();
        }
    }
}

#[test]
fn redis_keeps_its_data() {
    let test = "redis_keeps_its_data";
    let (Some(_), Some(_)) = (need(test, "redis-server", "redis-server"), need(test, "redis-benchmark", "redis-tools"))
    else {
        return;
    };
    let requests = if long() { "400000" } else { "60000" };
    for mode in modes(BOTH) {
        let mut server = Server::start(mode);
        server.ask(&["SET", "checked", "before"]);
        let types = "set,get,incr,lpush,rpop,sadd,hset,zadd,lrange_100,mset";
        server.load(&["-c", "50", "-P", "16", "-n", requests, "-r", "20000", "-d", "200", "-t", types]);
        // A save forks while the clients go on.
        server.ask(&["BGSAVE"]);
        server.load(&["-c", "50", "-P", "16", "-n", requests, "-r", "20000", "-d", "3000", "-t", "set,get,lpush,hset"]);
        server.saved();
        // Everything but what a restart forgets: reload from a dump, compare all of it.
        let (keys, digest) = (server.ask(&["DBSIZE"]), server.ask(&["DEBUG", "DIGEST"]));
        assert!(server.ask(&["SAVE"]).contains("OK"), "{}", server.log());
        assert_eq!(server.ask(&["DEBUG", "RELOAD"]), "OK", "{}", server.log());
        assert_eq!(digest, server.ask(&["DEBUG", "DIGEST"]), "after a reload");
        assert!(digest.len() == 40 && digest.contains(|letter| letter != '0'), "{digest}");
        assert_eq!(keys, server.ask(&["DBSIZE"]));
        assert!(keys.parse::<u64>().unwrap() > 10_000, "{keys}");
        assert_eq!(server.ask(&["GET", "checked"]), "before");
        server.ask(&["MEMORY", "PURGE"]);
        server.ask(&["FLUSHALL"]);
        server.load(&["-c", "50", "-P", "16", "-n", "20000", "-t", "set,get"]);
        assert_eq!(server.ask(&["DBSIZE"]), "1");
        server.stop();
        if mode != Mode::Plain {
            let text = fs::read(server.scratch.join("stats.json")).unwrap();
            let stats: serde_json::Value = serde_json::from_slice(&text).unwrap();
            // Debian's links jemalloc; a preload goes before it.
            let allocs = stats.pointer("/operations/allocs").and_then(serde_json::Value::as_u64).unwrap();
            assert!(allocs > 100_000, "{allocs} allocations: did the preload take?");
            assert_eq!(stats.pointer("/events/bad_free").and_then(serde_json::Value::as_u64), Some(0));
            assert!(stats.pointer("/events/fork").and_then(serde_json::Value::as_u64).unwrap() >= 1);
        }
    }
}

/// A million rows in the long run.
#[test]
fn sqlite_many_rows() {
    let Some(_) = need("sqlite_many_rows", "sqlite3", "sqlite3") else { return };
    let scratch = Scratch::new("sqlite");
    let rows = if long() { 500_000 } else { 150_000 };
    let script = format!(
        "PRAGMA journal_mode=WAL; PRAGMA cache_size=-32000;
        CREATE TABLE t(id INTEGER PRIMARY KEY, name TEXT, value REAL, data BLOB);
        BEGIN;
        WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i+1 FROM n WHERE i < {rows})
          INSERT INTO t SELECT i, 'name ' || (i * 7919 % 100003), i * 0.5, zeroblob(i % 50) FROM n;
        COMMIT;
        CREATE INDEX by_name ON t(name);
        UPDATE t SET value = value + 1 WHERE id % 10 = 0;
        DELETE FROM t WHERE id % 17 = 0;
        SELECT count(*), sum(id), sum(value), sum(length(data)), count(DISTINCT name), max(name) FROM t;
        SELECT name, count(*), sum(value) FROM t GROUP BY name ORDER BY 3 DESC, 1 LIMIT 5;
        SELECT group_concat(id) FROM (SELECT id FROM t WHERE name LIKE 'name 77%' ORDER BY value LIMIT 1000);
        VACUUM; PRAGMA integrity_check;"
    );
    let run = |mode: Mode| {
        for suffix in ["", "-wal", "-shm"] {
            let _ = fs::remove_file(scratch.join(&format!("db{suffix}")));
        }
        let done = Program::new(mode, &["sqlite3", "db", &script]).within(scratch.path()).run().ended(0);
        assert!(done.out.trim_end().ends_with("ok"), "{}", done.out);
        done
    };
    let plain = run(Mode::Plain);
    for mode in modes(BOTH) {
        let done = run(mode);
        assert_eq!(done.out, plain.out, "{}", done.what);
        done.took(mode, 10_000);
        // The other way about: what was written under Allotment is read without it.
        let check = "PRAGMA integrity_check; SELECT count(*), sum(id) FROM t";
        let read = Program::new(Mode::Plain, &["sqlite3", "db", check]).within(scratch.path()).run().ended(0);
        assert!(read.out.starts_with("ok\n"), "{}", read.out);
    }
}

/// A project of some size, generated: structures, tables, recursion, and a checksum at the end.
fn generate(directory: &Path, files: usize) {
    let (mut makefile, mut declared, mut calls) = (String::new(), String::new(), String::new());
    for file in 0..files {
        let mut text =
            String::from("#include <stdio.h>\n#include <stdlib.h>\n#include <string.h>\n#include \"all.h\"\n");
        for function in 0..40 {
            writeln!(
                text,
                "struct s{file}_{function} {{ int a[{}]; double b; char *c; struct s{file}_{function} *next; }};\n\
                 static const int t{file}_{function}[] = {{ {} }};\n\
                 unsigned f{file}_{function}(unsigned n) {{\n\
                   struct s{file}_{function} s; unsigned sum = {function}; memset(&s, 0, sizeof s);\n\
                   for (unsigned i = 0; i < sizeof s.a / sizeof *s.a; i++) {{ s.a[i] = (int)(i * n) ^ t{file}_{function}[i % (sizeof t{file}_{function} / sizeof(int))]; sum = sum * 31 + (unsigned)s.a[i]; }}\n\
                   switch (n % 7) {{ case 0: sum += 3; break; case 1: sum ^= n; break; case 2: sum *= 5; break; case 3: sum -= n / 3; break; default: sum = sum << 1 | sum >> 31; }}\n\
                   return n > 2 ? sum ^ f{file}_{function}(n / 2) : sum;\n}}",
                function + 3,
                (0..60).map(|at| ((file * 7 + function * 13 + at * 17) % 1009).to_string()).collect::<Vec<_>>().join(","),
            )
            .unwrap();
            writeln!(declared, "unsigned f{file}_{function}(unsigned n);").unwrap();
            writeln!(calls, "  sum = sum * 33 + f{file}_{function}(1000u + {function});").unwrap();
        }
        fs::write(directory.join(format!("f{file}.c")), text).unwrap();
        writeln!(makefile, "OBJS += f{file}.o").unwrap();
    }
    fs::write(directory.join("all.h"), declared).unwrap();
    let main = format!(
        "#include <stdio.h>\n#include \"all.h\"\nint main(void) {{ unsigned sum = 0;\n{calls}  printf(\"%u\\n\", sum); return 0; }}\n"
    );
    fs::write(directory.join("main.c"), main).unwrap();
    let rules =
        "main: main.o $(OBJS)\n\tgcc -o $@ $^\n%.o: %.c all.h\n\tgcc -O2 -c -o $@ $<\nclean:\n\trm -f *.o main\n";
    fs::write(directory.join("Makefile"), format!("{makefile}{rules}")).unwrap();
}

#[test]
fn gcc_and_make_build_a_project() {
    let test = "gcc_and_make_build_a_project";
    let (Some(_), Some(_)) = (need(test, "gcc", "gcc"), need(test, "make", "make")) else { return };
    let scratch = Scratch::new("project");
    generate(scratch.path(), if long() { 60 } else { 6 });
    let build = |mode: Mode| {
        Program::new(Mode::Plain, &["make", "-s", "clean"]).within(scratch.path()).run().ended(0);
        let done = Program::new(mode, &["make", "-s", "-j2", "main"]).within(scratch.path()).run().ended(0);
        (fs::read(scratch.join("f3.o")).unwrap(), done)
    };
    let (plain, _) = build(Mode::Plain);
    let answer = Command::new(scratch.join("main")).output().unwrap().stdout;
    for mode in modes(BOTH) {
        let (object, done) = build(mode);
        done.took(mode, 1000);
        assert!(object == plain, "another object file");
        assert_eq!(Command::new(scratch.join("main")).output().unwrap().stdout, answer);
        // The compiler proper, not only its driver.
        let Some(compiler) = Command::new("gcc").arg("-print-prog-name=cc1").output().ok() else { continue };
        let compiler = String::from_utf8(compiler.stdout).unwrap();
        Program::new(mode, &["gcc", "-E", "f1.c", "-o", "f1.i"]).within(scratch.path()).run().ended(0);
        let words = [compiler.trim(), "-quiet", "-O2", "-fpreprocessed", "f1.i", "-o", "f1.s"];
        Program::new(mode, &words).within(scratch.path()).run().ended(0).took(mode, 10_000);
        let words = ["g++", "-std=c++17", "-O1", "-c", "-o", "x.o", "x.cpp"];
        fs::write(scratch.join("x.cpp"), "#include <map>\n#include <regex>\n#include <string>\nint f(const std::string &s) { std::map<std::string, std::regex> m; m[s] = std::regex(s); return (int)m.size(); }\n").unwrap();
        if find("g++").is_some() {
            Program::new(mode, &words).within(scratch.path()).run().ended(0);
        }
    }
}

#[test]
fn git_on_a_repository() {
    let test = "git_on_a_repository";
    let Some(_) = need(test, "git", "git") else { return };
    // This repository, or, where it came without its history, one made of its files.
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..").canonicalize().unwrap();
    let scratch = Scratch::new("git");
    let git = |mode: Mode, words: &[&str]| {
        let safe =
            ["git", "-c", "safe.directory=*", "-c", "user.name=t", "-c", "user.email=t@example.org", "-c", "gc.auto=0"];
        Program::new(mode, &[&safe, words].concat()).within(scratch.path()).set("GIT_CONFIG_GLOBAL", "/dev/null").run()
    };
    let source = if root.join(".git").exists() {
        root.to_str().unwrap().to_owned()
    } else {
        git(Mode::Plain, &["init", "-q", "made"]).ended(0);
        for (number, directory) in ["engine", "lib", "cli"].into_iter().enumerate() {
            let copied =
                Command::new("cp").arg("-r").arg(root.join(directory)).arg(scratch.join("made")).status().unwrap();
            assert!(copied.success());
            git(Mode::Plain, &["-C", "made", "add", "-A"]).ended(0);
            git(Mode::Plain, &["-C", "made", "commit", "-qm", &number.to_string()]).ended(0);
        }
        scratch.join("made").to_str().unwrap().to_owned()
    };
    let head = git(Mode::Plain, &["-C", &source, "rev-parse", "HEAD"]).ended(0).out;
    let log = git(Mode::Plain, &["-C", &source, "log", "-p", "--stat", head.trim()]).ended(0).out;
    for mode in modes(BOTH) {
        let name = mode.name();
        git(mode, &["clone", "-q", "--no-local", "--no-hardlinks", &source, name]).ended(0).took(mode, 100);
        git(mode, &["-C", name, "checkout", "-q", head.trim()]).ended(0);
        let hard: &[&str] = if long() { &["--aggressive"] } else { &[] };
        git(mode, &[&["-C", name, "gc", "-q", "--prune=now"], hard].concat()).ended(0);
        git(mode, &["-C", name, "repack", "-q", "-a", "-d", "-f", "--window=50", "--threads=4"]).ended(0);
        git(mode, &["-C", name, "fsck", "--full", "--strict"]).ended(0).took(mode, 100);
        let done = git(mode, &["-C", name, "log", "-p", "--stat", head.trim()]).ended(0);
        assert!(done.out == log, "another log");
        git(Mode::Plain, &["-C", name, "fsck", "--full"]).ended(0);
    }
}

#[test]
fn node_script() {
    let Some(_) = need("node_script", "node", "nodejs") else { return };
    let script = "const crypto = require('crypto'), zlib = require('zlib'), { Worker, isMainThread } = require('worker_threads');
        const buffers = []; for (let i = 0; i < 2000; i++) buffers.push(Buffer.alloc(1 + i * 37 % 90000, i % 251));
        const all = Buffer.concat(buffers); const hash = b => crypto.createHash('sha256').update(b).digest('hex');
        console.log(all.length, hash(all), hash(zlib.gunzipSync(zlib.gzipSync(all))));
        const map = new Map(); for (let i = 0; i < 300000; i++) map.set('k' + i, { i, s: 'v'.repeat(i % 20) });
        console.log(map.size, hash(JSON.stringify([...map].slice(0, 50000))));
        let done = 0; for (let n = 0; n < 4; n++) new Worker(\"const a = []; for (let i = 0; i < 500; i++) a.push(new ArrayBuffer(10000 + i)); require('worker_threads').parentPort.postMessage(a.length)\", { eval: true })
          .on('message', m => { done += m; if (done === 2000) console.log('workers', done) });
        zlib.deflate(all, (e, d) => crypto.pbkdf2('p', 's', 2000, 32, 'sha256', (e2, k) => console.log('async', k.toString('hex').length)));";
    let scratch = Scratch::new("node");
    let sorted = |text: &str| text.lines().map(str::to_owned).collect::<BTreeSet<_>>();
    let words = ["node", "-e", script];
    let plain = Program::new(Mode::Plain, &words).within(scratch.path()).run().ended(0);
    for mode in modes(BOTH) {
        let done = Program::new(mode, &words).within(scratch.path()).run().ended(0);
        assert_eq!(sorted(&done.out), sorted(&plain.out), "{}", done.what);
        done.took(mode, 10_000);
    }
}

#[test]
fn java_compiles_and_runs() {
    let test = "java_compiles_and_runs";
    let (Some(_), Some(_)) = (need(test, "javac", "default-jdk-headless"), need(test, "java", "default-jre-headless"))
    else {
        return;
    };
    let scratch = Scratch::new("java");
    let source = r#"
import java.nio.*; import java.util.*; import java.util.concurrent.*; import java.util.zip.*;
public class Main {
  public static void main(String[] a) throws Exception {
    ExecutorService pool = Executors.newFixedThreadPool(6); List<Future<Long>> f = new ArrayList<>();
    for (int t = 0; t < 12; t++) { final int n = t; f.add(pool.submit(() -> { long s = 0;
      for (int i = 0; i < 300; i++) { ByteBuffer b = ByteBuffer.allocateDirect(1000 + i * 97); b.putInt(0, i * n); s += b.getInt(0) + b.capacity();
        Deflater d = new Deflater(); d.setInput(new byte[5000 + i]); d.finish(); byte[] o = new byte[10000]; s += d.deflate(o); d.end(); }
      return s; })); }
    long sum = 0; for (Future<Long> x : f) sum += x.get(); pool.shutdown();
    StringBuilder sb = new StringBuilder(); Map<String, Integer> m = new TreeMap<>();
    for (int i = 0; i < 100000; i++) m.merge("k" + i % 977, i, Integer::sum);
    System.gc(); System.out.println(sum + " " + m.hashCode()); } }
"#;
    fs::write(scratch.join("Main.java"), source).unwrap();
    let compiled = |mode: Mode| Program::new(mode, &["javac", "Main.java"]).within(scratch.path()).run().ended(0);
    compiled(Mode::Plain);
    for mode in modes(BOTH) {
        compiled(mode).took(mode, 10_000);
    }
    same(&["java", "-Xmx128m", "Main"], scratch.path(), 10_000);
}

#[test]
fn perl_script() {
    let Some(_) = need("perl_script", "perl", "perl") else { return };
    let script = r#"my (%h, @a); srand(5); for my $i (1..300000) { $h{"key " . $i % 9973} .= "x$i"; push @a, [$i, "s" x ($i % 40)] if $i % 3 == 0;
        splice @a, 0, 500 if @a > 5000; } my $s = 0; $s = ($s * 31 + length $h{$_}) % 1000003 for sort keys %h; print "$s ", scalar @a, "\n";
        my $t = join ",", map { join ":", @$_ } @a; $t =~ s/(\d+):(s*)/length($2) . $1/ge; print length $t, "\n";
        for (1..5) { my $p = fork; if (!$p) { my @b = map { "y" x $_ } 1..2000; exit(@b == 2000 ? 0 : 1) } waitpid $p, 0; print "child $?\n" }"#;
    same(&["perl", "-e", script], Path::new("/"), 100_000);
}

/// A machine without any of these programs: all is skipped, each with its package.
#[test]
fn missing_programs_are_skipped_with_their_packages() {
    let tests = [
        ("redis_keeps_its_data", "redis-server"),
        ("sqlite_many_rows", "sqlite3"),
        ("gcc_and_make_build_a_project", "gcc"),
        ("git_on_a_repository", "git"),
        ("node_script", "nodejs"),
        ("java_compiles_and_runs", "default-jdk-headless"),
        ("perl_script", "perl"),
        ("xz_round_trip", "xz-utils"),
    ];
    let mut again = Command::new(std::env::current_exe().unwrap());
    again.env("PATH", "/nonexistent").arg("--exact").args(tests.map(|test| format!("apps::{}", test.0)));
    let output = again.output().unwrap();
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{}{error}", String::from_utf8_lossy(&output.stdout));
    for (test, package) in tests {
        let line = error.lines().find(|line| line.starts_with(&format!("skipped: {test}: ")));
        assert!(line.is_some_and(|line| line.contains(&format!("(Debian package {package})"))), "{test}\n{error}");
    }
}

/// Threads of a compressor hand large blocks to each other.
#[test]
fn xz_round_trip() {
    let Some(_) = need("xz_round_trip", "xz", "xz-utils") else { return };
    let scratch = Scratch::new("xz");
    let mut state = 1_u64;
    let bytes: Vec<u8> = (0..if long() { 12_000_000 } else { 4_000_000 })
        .map(|at: u64| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            if at % 64 < 40 { (at / 64 % 251) as u8 } else { (state >> 56) as u8 }
        })
        .collect();
    fs::write(scratch.join("data"), &bytes).unwrap();
    for mode in modes(BOTH) {
        let pack = ["xz", "-k", "-f", "-2", "-T4", "--block-size=1MiB", "data"];
        Program::new(mode, &pack).within(scratch.path()).run().ended(0).took(mode, 10);
        fs::rename(scratch.join("data"), scratch.join("original")).unwrap();
        Program::new(mode, &["xz", "-d", "-k", "-f", "-T4", "data.xz"])
            .within(scratch.path())
            .run()
            .ended(0)
            .took(mode, 5);
        assert!(fs::read(scratch.join("data")).unwrap() == bytes, "another content");
        fs::remove_file(scratch.join("original")).unwrap();
    }
}
