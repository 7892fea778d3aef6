//! OpenMetrics: parsers, collectors, units, rules.

use super::watched::{Watched, allotment, done, list, until};
use crate::common::{ALLOTMENT, Scratch, find, need, skip};
use serde_json::Value;
use std::fs;
use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// A parser that Prometheus' own client library brings accepts the exposition, and finds our families.
#[test]
fn prometheus_reads_the_exposition() {
    let test = "prometheus_reads_the_exposition";
    let Some(watched) = Watched::start(&[]) else { return };
    let text = watched.done("stat", &["--openmetrics"]);
    assert!(text.ends_with("# EOF\n"));
    let Some(python) = find("python3") else { return skip(test, "no python3 here (Debian package python3)") };
    let scratch = Scratch::new("prometheus");
    let venv = scratch.join("venv");
    let run = |program: &Path, words: &[&str]| {
        Command::new(program)
            .args(words)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status()
            .is_ok_and(|status| status.success())
    };
    let pip = venv.join("bin/pip");
    if !run(&python, &["-m", "venv", venv.to_str().unwrap()]) || !run(&pip, &["install", "-q", "prometheus_client"]) {
        return skip(test, "prometheus_client cannot be installed here");
    }
    fs::write(scratch.join("metrics"), &text).unwrap();
    let script = "
import sys
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse
families = {family.name: family for family in parse(open(sys.argv[1]).read())}
for name, kind in [('allotment_in_use_bytes', 'gauge'), ('allotment_alloc_slowpath', 'counter'),
                   ('allotment_refill_seconds', 'histogram'), ('allotment_process_info', 'gauge')]:
    assert families[name].type == kind, name
print(int(sum(sample.value * int(sample.labels['class']) for sample in families['allotment_class_objects'].samples)),
      int(families['allotment_in_use_bytes'].samples[0].value - families['allotment_areas_bytes'].samples[0].value))
";
    let output = Command::new(venv.join("bin/python"))
        .args(["-c", script, scratch.join("metrics").to_str().unwrap()])
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    let line = String::from_utf8(output.stdout).unwrap();
    let (classes, total) = line.trim().split_once(' ').unwrap();
    assert_eq!(classes, total);
}

/// A port that nobody listens on just now.
fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

/// The body of an answer; nothing while nobody answers.
fn get(port: u16, path: &str) -> String {
    let ask = || {
        let mut stream = TcpStream::connect(("127.0.0.1", port))?;
        stream.set_read_timeout(Some(Duration::from_secs(10)))?;
        write!(stream, "GET {path} HTTP/1.0\r\nHost: localhost\r\n\r\n")?;
        let mut text = String::new();
        stream.read_to_string(&mut text).map(|_| text)
    };
    let text = ask().unwrap_or_default();
    text.split_once("\r\n\r\n").map_or_else(String::new, |(_, body)| body.to_owned())
}

/// A process that ends with its owner.
struct Ending(Child);

impl Drop for Ending {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// node_exporter's textfile collector takes the metrics of one process and of all, and Prometheus those and ours.
#[test]
fn collectors_take_the_metrics() {
    let test = "collectors_take_the_metrics";
    let Some(watched) = Watched::start(&[]) else { return };
    let Some(exporter) = need(test, "prometheus-node-exporter", "prometheus-node-exporter") else { return };
    let scratch = Scratch::new("collectors");
    let file = scratch.join("allotment.prom");
    let write = |words: &[&str]| {
        let words = [&["stat"], words, &["--openmetrics", "--output", file.to_str().unwrap()]].concat();
        assert_eq!(done(&words), "");
        fs::read_to_string(&file).unwrap()
    };
    let pid = watched.pid.to_string();
    let one = write(&[&pid]);
    let port = free_port();
    let quiet = |command: &mut Command| {
        Ending(command.stdout(Stdio::null()).stderr(Stdio::null()).current_dir(scratch.path()).spawn().unwrap())
    };
    let _exporter = quiet(
        Command::new(exporter)
            .arg("--collector.disable-defaults")
            .arg("--collector.textfile")
            .arg(format!("--collector.textfile.directory={}", scratch.path().display()))
            .arg(format!("--web.listen-address=127.0.0.1:{port}")),
    );
    let scrape = |wanted: &str| {
        until(wanted, || get(port, "/metrics").lines().any(|line| line.starts_with(wanted)));
        let text = get(port, "/metrics");
        assert!(text.contains("\nnode_textfile_scrape_error 0\n"), "{text}");
        text
    };
    let text = scrape("allotment_in_use_bytes");
    // Every sample that was written is shown.
    let samples = |text: &str| text.lines().filter(|line| line.starts_with("allotment_")).count();
    assert_eq!(samples(&text), samples(&one));
    let all = write(&["--all"]);
    let label = format!("{{cgroup=\"{}\",name=\"watched\",pid=\"{pid}\"}}", cgroup_of(&all, &pid));
    let text = scrape(&format!("allotment_in_use_bytes{label} "));
    assert_eq!(samples(&text), samples(&all));
    // A bounded number, and nothing else in the directory.
    let own = all.lines().filter(|line| line.contains(&format!("pid=\"{pid}\""))).count();
    assert!((50..200).contains(&own), "{own}");
    assert_eq!(fs::read_dir(scratch.path()).unwrap().count(), 1);
    assert!(
        allotment(&["stat", "--all"]).status.code() == Some(2)
            && allotment(&["stat", &pid, "--all"]).status.code() == Some(2)
    );

    let Some(prometheus) = need(test, "prometheus", "prometheus") else { return };
    let server = TcpListener::bind("127.0.0.1:0").unwrap();
    let own = server.local_addr().unwrap().port();
    std::thread::spawn(move || {
        for stream in server.incoming() {
            let Ok(mut stream) = stream else { continue };
            let _ = stream.read(&mut [0; 4096]);
            let head =
                "HTTP/1.0 200 OK\r\nContent-Type: application/openmetrics-text; version=1.0.0; charset=utf-8\r\n\r\n";
            let _ = stream.write_all(head.as_bytes()).and_then(|()| stream.write_all(one.as_bytes()));
        }
    });
    let conf = format!(
        "global: {{scrape_interval: 1s}}\nscrape_configs:\n- job_name: node\n  static_configs: [{{targets: ['127.0.0.1:{port}']}}]\n\
         - job_name: own\n  static_configs: [{{targets: ['127.0.0.1:{own}']}}]\n"
    );
    fs::write(scratch.join("prometheus.yml"), conf).unwrap();
    let port = free_port();
    let _prometheus = quiet(
        Command::new(prometheus)
            .arg("--config.file=prometheus.yml")
            .arg("--storage.tsdb.path=data")
            .arg(format!("--web.listen-address=127.0.0.1:{port}")),
    );
    let has = |job: &str, name: &str| {
        let answer = get(port, &format!("/api/v1/query?query={name}%7Bjob=%22{job}%22%7D"));
        answer.contains(&format!("\"__name__\":\"{name}\"")) && answer.contains(job)
    };
    for name in ["allotment_in_use_bytes", "allotment_alloc_slowpath_total", "allotment_refill_seconds_bucket"] {
        until(name, || has("node", name) && has("own", name));
    }
}

/// The cgroup of a process among the metrics of all.
fn cgroup_of(all: &str, pid: &str) -> String {
    let line = all
        .lines()
        .find(|line| line.starts_with("allotment_in_use_bytes{") && line.contains(&format!("pid=\"{pid}\"")));
    let line = line.unwrap_or_else(|| panic!("no process {pid} in\n{all}"));
    line.split("cgroup=\"").nth(1).unwrap().split('"').next().unwrap().to_owned()
}

/// What the page and the dashboard tell operators to use: right by their own tools, and of metrics that there are.
#[test]
fn units_rules_and_dashboard_are_right() {
    let test = "units_rules_and_dashboard_are_right";
    let page = include_str!("../../../docs/observing.md");
    let scratch = Scratch::new("rules");
    let mut files = Vec::new();
    for block in page.split("\n```").filter(|block| block.starts_with("ini\n# ") || block.starts_with("yaml\n# ")) {
        let (name, text) = block.split_once("\n# ").unwrap().1.split_once('\n').unwrap();
        let name = name.rsplit('/').next().unwrap().to_owned();
        fs::write(scratch.join(&name), text.replace("/usr/local/bin/allotment", ALLOTMENT)).unwrap();
        files.push(name);
    }
    assert_eq!(
        files,
        ["allotment-metrics.service", "allotment-metrics.timer", "prometheus.yml", "allotment-rules.yml"]
    );
    let dashboard: Value = serde_json::from_str(include_str!("../../../docs/grafana.json")).unwrap();
    let targets = list(&dashboard, "/panels").iter().flat_map(|panel| list(panel, "/targets"));
    let queries: Vec<String> = targets
        .map(|target| target["expr"].as_str().unwrap().replace("$instance", ".*").replace("$name", ".*"))
        .collect();
    assert!(queries.len() >= 10, "{queries:?}");
    // Every metric is one that there is.
    if let Some(watched) = Watched::start(&[]) {
        let all = done(&["stat", "--all", "--openmetrics"]);
        assert!(all.contains(&format!("pid=\"{}\"", watched.pid)));
        let names: std::collections::BTreeSet<&str> =
            all.lines().filter_map(|line| line.split(['{', ' ']).next()).filter(|name| *name != "#").collect();
        let rules = fs::read_to_string(scratch.join("allotment-rules.yml")).unwrap();
        for text in queries.iter().map(String::as_str).chain([rules.as_str()]) {
            let words = text.split(|letter: char| !letter.is_ascii_alphanumeric() && !"_:".contains(letter));
            for word in words.filter(|word| word.starts_with("allotment_")) {
                assert!(names.contains(word), "there is no {word}\n{text}");
            }
        }
    }
    let checked = |program: &Path, words: &[&str]| {
        let output = Command::new(program).args(words).current_dir(scratch.path()).output().unwrap();
        let said = [output.stdout, output.stderr].concat();
        assert!(output.status.success(), "{words:?}\n{}", String::from_utf8_lossy(&said));
    };
    if let Some(analyze) = need(test, "systemd-analyze", "systemd") {
        checked(&analyze, &["verify", "--man=no", "./allotment-metrics.service", "./allotment-metrics.timer"]);
    }
    let Some(promtool) = need(test, "promtool", "prometheus") else { return };
    checked(&promtool, &["check", "config", "prometheus.yml"]);
    let rules: Vec<String> = queries
        .iter()
        .enumerate()
        .map(|(at, query)| format!("- record: query:{at}\n    expr: {}\n", Value::from(query.as_str())))
        .collect();
    fs::write(scratch.join("queries.yml"), format!("groups:\n- name: a\n  rules:\n  {}", rules.join("  "))).unwrap();
    checked(&promtool, &["check", "rules", "queries.yml"]);
    // Two of the alerts, on numbers: one fires, the other is too young to.
    let unit = "rule_files: [allotment-rules.yml]
evaluation_interval: 1m
tests:
- interval: 1m
  input_series:
  - {series: 'allotment_bad_free_total{name=\"a\",pid=\"7\"}', values: '0 0 1 1 1'}
  - {series: 'allotment_cached_bytes{name=\"a\",cgroup=\"/x\"}', values: '400000000+0x40'}
  - {series: 'allotment_lazy_bytes{name=\"a\",cgroup=\"/x\"}', values: '0+0x40'}
  - {series: 'allotment_pages_dirty_bytes{name=\"a\",cgroup=\"/x\"}', values: '0+0x40'}
  - {series: 'allotment_in_use_bytes{name=\"a\",cgroup=\"/x\"}', values: '1000000+0x40'}
  alert_rule_test:
  - eval_time: 1m
    alertname: AllotmentBadPointer
  - eval_time: 3m
    alertname: AllotmentBadPointer
    exp_alerts:
    - exp_labels: {severity: critical, name: a, pid: '7'}
      exp_annotations: {summary: 'a (7) freed a pointer that is foreign, misplaced or freed already'}
  - eval_time: 20m
    alertname: AllotmentKeepsMemory
  - eval_time: 35m
    alertname: AllotmentKeepsMemory
    exp_alerts:
    - exp_labels: {severity: warning, name: a, cgroup: /x}
      exp_annotations: {summary: 'a keeps 381.5MiB that nothing uses; `allotment purge` gives it back'}
";
    fs::write(scratch.join("unit.yml"), unit).unwrap();
    checked(&promtool, &["test", "rules", "unit.yml"]);
}
