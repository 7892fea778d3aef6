//! A database server of many threads, with clients of its own: what it answers is what it answers without Allotment.

use crate::common::{BOTH, Mode, Program, Scratch, find, long, modes, need, skip};
use std::fs::{self, File};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Clients at a time.
const CLIENTS: usize = 6;

/// What each client asks: rows that come and go, temporary tables, sorts, long strings and blobs, a procedure, a transaction that is
/// taken back.
const SCRIPT: &str = "
set session group_concat_max_len = 4000000;
create table t (id int primary key auto_increment, k int, v varchar(400), b longblob, key (k)) engine = innodb;
insert into t (k, v, b) select seq % 97, repeat(char(97 + seq % 26), seq % 400), repeat('b', seq * 37 % 30000) from seq_1_to_ROWS;
select count(*), sum(length(v)), sum(length(b)), md5(group_concat(md5(v) order by id)) from t;
select k, count(*), max(length(b)) from t group by k order by count(*) desc, k limit 5;
select md5(group_concat(x.v, y.v order by x.id, y.id)) from t x join t y on x.k = y.k and x.id < 200 and y.id < 200;
update t set b = concat(b, b), v = reverse(v) where id % 3 = 0;
delete from t where id % 7 = 0;
start transaction; delete from t; insert into t (k, v) values (1, 'gone'); rollback;
create temporary table s as select k, group_concat(v order by id) all_v from t group by k;
select count(*), md5(group_concat(md5(all_v) order by k)) from s;
insert into t (k, v, b) values (1, 'large', repeat('xy', 3000000));
select length(b), md5(b) from t where v = 'large';
delimiter //
create procedure p(n int) begin declare i int default 0; declare a longtext default '';
  while i < n do set a = concat(a, md5(i)), i = i + 1; end while; select length(a), md5(a); end//
delimiter ;
call p(3000);
select sum(json_length(j)), md5(group_concat(md5(j) order by k)) from (select k, json_arrayagg(v order by id) j from t group by k) q;
alter table t add column c int default 5, add index (v(20));
select count(*), sum(c), md5(group_concat(v order by v, id)) from t where v like 'a%';
drop table t;
";

/// A server on a directory of its own, stopped at the end however the test ends.
struct Server {
    child: Child,
    scratch: Scratch,
}

impl Server {
    /// `None` where this user may have none.
    fn start(mode: Mode) -> Option<Self> {
        let scratch = Scratch::new("db");
        let (data, socket) = (scratch.join("data"), scratch.join("s"));
        fs::create_dir(&data).unwrap();
        let data = format!("--datadir={}", data.display());
        let name = Command::new("id").arg("-un").output().unwrap().stdout;
        let user = format!("--user={}", String::from_utf8_lossy(&name).trim());
        let words = ["mariadb-install-db", "--no-defaults", "--auth-root-authentication-method=normal", &data, &user];
        let made = Program::new(mode, &words).without_stats().run();
        if !made.status.success() {
            skip("mariadb_answers_alike", &format!("mariadb-install-db: {}", made.err.lines().next().unwrap_or("?")));
            return None;
        }
        let socket = format!("--socket={}", socket.display());
        let server = find("mariadbd").map_or_else(|| "/usr/sbin/mariadbd".into(), |path| path.display().to_string());
        let words = [
            &server,
            "--no-defaults",
            &data,
            &user,
            &socket,
            "--skip-networking",
            "--innodb-buffer-pool-size=24M",
            "--max-allowed-packet=64M",
            "--innodb-flush-log-at-trx-commit=0",
            "--skip-log-bin",
        ];
        let child = Program::new(mode, &words).start(&scratch.join("log"), &scratch.join("stats.json"));
        let mut server = Self { child, scratch };
        let begin = Instant::now();
        while server.client("").arg("-e").arg("select 1").output().is_ok_and(|done| !done.status.success()) {
            assert!(
                server.child.try_wait().unwrap().is_none() && begin.elapsed() < Duration::from_secs(60),
                "{}",
                server.log()
            );
            std::thread::sleep(Duration::from_millis(30));
        }
        Some(server)
    }
    fn log(&self) -> String {
        fs::read_to_string(self.scratch.join("log")).unwrap_or_default()
    }
    fn client(&self, database: &str) -> Command {
        let mut client = Command::new("mariadb");
        client.arg("--no-defaults").arg(format!("--socket={}", self.scratch.join("s").display()));
        client.args(["--user=root", "--batch", "--skip-column-names", "--max-allowed-packet=64M", database]);
        client.stderr(Stdio::piped());
        client
    }
    fn ask(&self, sql: &str) {
        let done = self.client("").arg("-e").arg(sql).output().unwrap();
        assert!(done.status.success(), "{sql}: {}\n{}", String::from_utf8_lossy(&done.stderr), self.log());
    }
    /// What one client is told.
    fn answers(&self, client: usize, script: &Path) -> String {
        self.ask(&format!("create database d{client}"));
        let done = self.client(&format!("d{client}")).stdin(File::open(script).unwrap()).output().unwrap();
        assert!(done.status.success(), "{}\n{}", String::from_utf8_lossy(&done.stderr), self.log());
        String::from_utf8(done.stdout).unwrap()
    }
    /// Told to end, it does.
    fn stop(&mut self) {
        self.ask("shutdown");
        let status = self.child.wait().unwrap();
        assert_eq!(status.code(), Some(0), "{status}\n{}", self.log());
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if self.child.try_wait().is_ok_and(|status| status.is_none()) {
            crate::common::stop_group(self.child.id());
            let _ = self.child.wait();
        }
    }
}

#[test]
fn mariadb_answers_alike() {
    let test = "mariadb_answers_alike";
    let (Some(_), Some(_)) =
        (need(test, "mariadb-install-db", "mariadb-server-core"), need(test, "mariadb", "mariadb-client-core"))
    else {
        return;
    };
    let scratch = Scratch::new("sql");
    let script = scratch.join("script.sql");
    fs::write(&script, SCRIPT.replace("ROWS", if long() { "6000" } else { "1500" })).unwrap();
    let all = |mode: Mode| {
        let mut server = Server::start(mode)?;
        let answers: Vec<String> = std::thread::scope(|scope| {
            let clients: Vec<_> = (0..CLIENTS)
                .map(|client| {
                    scope.spawn({
                        let (server, script) = (&server, &script);
                        move || server.answers(client, script)
                    })
                })
                .collect();
            clients.into_iter().map(|client| client.join().unwrap()).collect()
        });
        server.stop();
        if mode != Mode::Plain {
            let stats: serde_json::Value =
                serde_json::from_slice(&fs::read(server.scratch.join("stats.json")).unwrap()).unwrap();
            let number = |name: &str| stats.pointer(name).and_then(serde_json::Value::as_u64).unwrap();
            assert!(number("/operations/allocs") > 50_000, "did the preload take?");
            assert_eq!(number("/events/bad_free"), 0);
        }
        Some(answers)
    };
    let Some(plain) = all(Mode::Plain) else { return };
    assert!(plain.iter().all(|answers| *answers == plain[0] && answers.lines().count() == 12), "{}", plain[0]);
    for mode in modes(BOTH).into_iter().filter(|&mode| mode != Mode::Plain) {
        let answers = all(mode).expect("it was there a moment ago");
        assert!(answers == plain, "[{}] {}\ninstead of\n{}", mode.name(), answers[0], plain[0]);
    }
}
