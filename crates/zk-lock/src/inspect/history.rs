//! `zk-lock history`: the last runs of `run --record` at a path.

use std::time::Duration;

use serde_json::{Value, json};

use crate::cli::{Common, PathArgs};
use crate::connect;
use crate::exit::{Failure, NOTHING};
use crate::nodes::queue::Standing;
use crate::nodes::record::Record;
use crate::output::{Output, table};
use crate::time::{date, show};

pub fn run(common: &Common, args: &PathArgs, output: &Output) -> Result<u8, Failure> {
    let session = connect::session(common)?;
    let standing = Standing::read(&session, &args.path)?;
    let record = Record::read(&session, &args.path)?;
    if record.runs.is_empty() {
        let text = format!("no run is recorded of {}: `run` needs --record for it", args.path);
        output.warn("no_history", &text, json!({"path": args.path}));
        return Ok(NOTHING);
    }
    let mut rows = vec![["BEGAN", "TOOK", "ENDED", "HOST:PID"].map(str::to_owned).to_vec()];
    for run in &record.runs {
        let nodes = run["nodes"].as_str().unwrap_or_default();
        let holds = standing.iter().flat_map(Standing::holders);
        let is_running = holds.into_iter().any(|one| nodes.lines().any(|node| node == one.path));
        let state = match (run["ended_ms"].as_u64(), is_running) {
            (Some(_), _) => "ended",
            (None, true) => "running",
            // Its host has gone, or zk-lock was killed: nobody was left to note the end.
            (None, false) => "unknown",
        };
        if output.json {
            // Every client may write the record, and may have put other members there.
            let fields = json!({
                "path": args.path,
                "state": state,
                "began_ms": run["began_ms"].as_u64(),
                "ended_ms": run["ended_ms"].as_u64(),
                "status": run["status"].as_u64(),
                "lost": run["lost"].as_str(),
                "host": run["host"].as_str(),
                "nodes": run["nodes"].as_str(),
                "session": run["session"].as_str(),
            });
            output.report("run", fields, "")?;
        }
        rows.push(row(run, state));
    }
    if !output.json {
        output.result(&table(&rows))?;
    }
    Ok(0)
}

fn row(run: &Value, state: &str) -> Vec<String> {
    let (began, ended) = (run["began_ms"].as_u64().unwrap_or(0), run["ended_ms"].as_u64());
    let took = ended.map(|ended| show(Duration::from_millis(ended.saturating_sub(began))));
    let status = run["status"].as_u64().unwrap_or(0);
    let end = match (state, run["lost"].as_str()) {
        ("running", _) => "it runs".to_owned(),
        ("unknown", _) => {
            "not noted: zk-lock or its host has gone, or no server answered".to_owned()
        }
        (_, Some(reason)) => format!("status {status}, the lock was lost: {reason}"),
        _ => format!("status {status}"),
    };
    let host = run["host"].as_str().unwrap_or("-");
    vec![date(began), took.unwrap_or_else(|| "-".to_owned()), end, host.to_owned()]
}
