//! # Suite `apps`: whole programs
//!
//! Real programs on generated input, timed from start to end, with the peak of
//! resident memory. Input is made once and is the same for every contender. A
//! program that is missing is skipped, with the Debian package that has it.

mod redis;

use crate::bench::peer;
use crate::bench::process::{self, Limits, Outcome};
use crate::bench::suite::{Case, Contender, Sample, Setup, Suite, lower};
use crate::run::search;
use std::cell::OnceCell;
use std::ffi::OsStr;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::rc::Rc;

/// A program's case: the commands are made from its files.
struct App {
    name: &'static str,
    about: &'static str,
    program: &'static str,
    package: &'static str,
    /// Makes the input in the scratch directory, once, without any preload.
    prepare: fn(&Setup) -> Result<(), String>,
    /// What is timed.
    command: fn(&Setup, &Path) -> Command,
}

const APPS: &[App] = &[
    App {
        name: "python",
        about: "CPython, PYTHONMALLOC=malloc: dicts, JSON, objects",
        program: "python3",
        package: "python3",
        prepare: python_prepare,
        command: python,
    },
    App {
        name: "sqlite",
        about: "sqlite3: a table of rows in memory, indexed, joined, deleted",
        program: "sqlite3",
        package: "sqlite3",
        prepare: nothing,
        command: sqlite,
    },
    App {
        name: "gcc",
        about: "g++ -O1 on a generated file",
        program: "g++",
        package: "g++",
        prepare: gcc_prepare,
        command: gcc,
    },
    App {
        name: "git-pack",
        about: "git pack-objects, all deltas anew, on a generated history",
        program: "git",
        package: "git",
        prepare: git_prepare,
        command: git_pack,
    },
    App {
        name: "git-log",
        about: "git log -p on the same history",
        program: "git",
        package: "git",
        prepare: git_prepare,
        command: git_log,
    },
    App {
        name: "perl",
        about: "perl: hashes, splits, joins",
        program: "perl",
        package: "perl",
        prepare: nothing,
        command: perl,
    },
];

/// The suite.
pub const SUITE: Suite = Suite::new("apps", "whole programs", cases);

fn cases(setup: &Setup) -> Vec<Case> {
    let mut cases: Vec<Case> = APPS.iter().map(|app| case(app, setup)).collect();
    cases.push(redis::case(setup));
    cases
}

/// The real file of a program: not a shell shim, which a preload reaches too.
fn real(program: &str) -> Option<PathBuf> {
    let found = search(OsStr::new(program))?;
    if program != "python3" {
        return Some(found);
    }
    let asked = Command::new(&found)
        .args(["-c", "import sys; print(sys.executable)"])
        .env_remove("LD_PRELOAD")
        .output()
        .ok()?;
    let path = PathBuf::from(String::from_utf8_lossy(&asked.stdout).trim());
    path.is_file().then_some(path)
}

fn case(app: &'static App, setup: &Setup) -> Case {
    let Some(program) = real(app.program) else {
        return Case::skipped(app.name, app.about, peer::missing(app.program, app.package));
    };
    let ready: Rc<OnceCell<Result<(), String>>> = Rc::new(OnceCell::new());
    let contenders = setup.peers.iter().map(|peer| {
        let (peer, setup, program, ready) = (peer.clone(), setup.clone(), program.clone(), Rc::clone(&ready));
        Contender::new(peer.name.clone(), move |_| {
            ready.get_or_init(|| (app.prepare)(&setup)).clone()?;
            let mut command = (app.command)(&setup, &program);
            peer::apply(Some(&peer), &mut command, setup.conf.as_deref(), "");
            let limits = Limits { mapped: peer.library.clone(), ..Limits::default() };
            Ok(samples(&process::run(&mut command, limits)?))
        })
    });
    Case::new(app.name, app.about, 1, contenders.collect())
}

fn samples(outcome: &Outcome) -> Vec<Sample> {
    let rss = outcome.rss.map(|mib| lower("rss", "MiB").is(mib));
    [lower("time", "s").is(outcome.wall)].into_iter().chain(rss).collect()
}

/// Sizes shrink in quick runs.
const fn sized(setup: &Setup, full: u32) -> u32 {
    if setup.quick { full / 5 } else { full }
}

fn write(path: &Path, text: &str) -> Result<(), String> {
    std::fs::write(path, text).map_err(|error| format!("{}: {error}", path.display()))
}

fn nothing(_: &Setup) -> Result<(), String> {
    Ok(())
}

fn python_prepare(setup: &Setup) -> Result<(), String> {
    let script = "import json, sys
n = int(sys.argv[1])
rows = [{'id': i, 'name': 'name %d' % i, 'tags': [str(i % 97), str(i % 89)], 'value': i * 0.5} for i in range(n)]
text = json.dumps(rows)
back = json.loads(text)
assert back == rows
index = {}
for row in back:
    index.setdefault(row['tags'][0], []).append(row)
words = sorted(set(w for row in back for w in row['name'].split()))
class Node:
    def __init__(self, left, right): self.left, self.right = left, right
def tree(d): return Node(None, None) if d == 0 else Node(tree(d - 1), tree(d - 1))
for _ in range(8): tree(13)
print(len(text), len(index), len(words))
";
    write(&setup.scratch.join("load.py"), script)
}

fn python(setup: &Setup, program: &Path) -> Command {
    let mut command = Command::new(program);
    command.env("PYTHONMALLOC", "malloc").env("PYTHONHASHSEED", "0");
    command.arg("-S").arg(setup.scratch.join("load.py")).arg(sized(setup, 150_000).to_string());
    command
}

fn sqlite(setup: &Setup, program: &Path) -> Command {
    let rows = sized(setup, 1_000_000);
    let sql = format!(
        "create table t(id integer primary key, name text, value real, part integer);
with recursive n(i) as (select 1 union all select i + 1 from n where i < {rows})
insert into t select i, 'name ' || (i * 7919 % {rows}), i * 0.25, i % 1000 from n;
create index by_name on t(name);
create index by_part on t(part);
select count(*), sum(length(name)) from t where name like 'name 1%';
select part, avg(value), group_concat(substr(name, 6, 2)) from t group by part order by 2 desc limit 3;
select count(*) from t a join t b on a.name = 'name ' || b.id where b.part < 100;
delete from t where part % 2 = 0;
select count(*) from t;"
    );
    let mut command = Command::new(program);
    command.args([":memory:", &sql]);
    command
}

fn gcc_prepare(setup: &Setup) -> Result<(), String> {
    let mut text =
        String::from("#include <map>\n#include <memory>\n#include <string>\n#include <vector>\n#include <algorithm>\n");
    for at in 0..sized(setup, 60) {
        let _ = write!(
            text,
            "struct S{at} {{ int a[{size}]; std::string s; bool operator<(const S{at}& o) const {{ return a[0] < o.a[0]; }} }};
int f{at}(int n) {{
  std::map<std::string, std::vector<S{at}>> m;
  for (int i = 0; i < n; ++i) {{ S{at} x{{}}; x.a[0] = n * i % {size}; m[std::to_string(i % 7)].push_back(x); }}
  int sum = 0;
  for (auto& [k, v] : m) {{ std::sort(v.begin(), v.end()); sum += v.size() + k.size() + v.back().a[0]; }}
  auto p = std::make_shared<S{at}>(); return sum + p.use_count();
}}\n",
            size = at + 1
        );
    }
    write(&setup.scratch.join("big.cc"), &text)
}

fn gcc(setup: &Setup, program: &Path) -> Command {
    let mut command = Command::new(program);
    command.args(["-std=c++17", "-O1", "-c", "-o"]).arg(setup.scratch.join("big.o")).arg(setup.scratch.join("big.cc"));
    command
}

/// A history by `git fast-import`: files that change a little in every commit.
fn git_prepare(setup: &Setup) -> Result<(), String> {
    const FILES: u32 = 200;
    let repository = setup.scratch.join("repository");
    if repository.is_dir() {
        return Ok(());
    }
    let mut stream = String::new();
    let mut state = 1_u32;
    for commit in 0..sized(setup, 2_000) {
        let _ = writeln!(
            stream,
            "commit refs/heads/main\ncommitter A <a@example.org> {} +0000\ndata 7\ncommit\n",
            1_700_000_000 + commit
        );
        for _ in 0..5 {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            let file = (state >> 8) % FILES;
            let mut content = String::new();
            for line in 0..150 {
                let word = if line == commit % 150 { state } else { file * 1_000 + line };
                let _ = writeln!(content, "line {line} of file {file}: {:08x}", word.wrapping_mul(2_654_435_761));
            }
            let _ =
                write!(stream, "M 100644 inline dir{}/file{file}.txt\ndata {}\n{content}\n", file % 10, content.len());
        }
    }
    let input = setup.scratch.join("stream");
    write(&input, &stream)?;
    let init = Command::new("git").args(["init", "-q", "--bare"]).arg(&repository).status();
    let file = std::fs::File::open(&input).map_err(|error| error.to_string())?;
    let import =
        Command::new("git").arg("--git-dir").arg(&repository).args(["fast-import", "--quiet"]).stdin(file).status();
    match (init, import) {
        (Ok(init), Ok(import)) if init.success() && import.success() => Ok(()),
        _ => Err("the repository could not be made".into()),
    }
}

fn git(setup: &Setup, program: &Path) -> Command {
    let mut command = Command::new(program);
    // No user's or system's configuration: everybody packs alike.
    command.env("GIT_CONFIG_NOSYSTEM", "1").env("GIT_CONFIG_GLOBAL", "/dev/null");
    command.arg("--git-dir").arg(setup.scratch.join("repository"));
    command
}

fn git_pack(setup: &Setup, program: &Path) -> Command {
    let mut command = git(setup, program);
    command.args(["pack-objects", "--all", "--no-reuse-delta", "--no-reuse-object", "-q", "--window=30"]);
    command.arg(setup.scratch.join("pack"));
    command
}

fn git_log(setup: &Setup, program: &Path) -> Command {
    let mut command = git(setup, program);
    command.args(["--no-pager", "log", "-p", "--stat", "main"]);
    command
}

fn perl(setup: &Setup, program: &Path) -> Command {
    let script = "my $n = shift; my %h;
for my $i (1..$n) { my @w = split / /, \"word $i of many \" . ($i * 7919 % $n); $h{$w[4]}{$w[1]} = join '-', @w; }
my $t = 0; for my $k (sort keys %h) { for my $v (values %{$h{$k}}) { $t += length $v; } delete $h{$k} if $t % 2; }
print \"$t\\n\";";
    let mut command = Command::new(program);
    command.env("PERL_HASH_SEED", "0").args(["-e", script, &sized(setup, 600_000).to_string()]);
    command
}
