//! Each JSON line that a scenario sees is as `schema/zk-lock.schema.json` describes it.
//!
//! This reads the part of JSON Schema that the file uses, and no more: it refuses other keywords. It
//! is stricter in one thing: a member that the file does not describe is an error here.

use serde_json::{Map, Value};

use crate::support::Ended;

const SCHEMA: &str = include_str!("../../schema/zk-lock.schema.json");

/// What the program has written with `--json`: nothing else is on stderr. (The commands of these
/// scenarios write nothing there.)
#[track_caller]
pub fn check_all(is_json: bool, ended: &Ended) {
    for line in ended.err.lines().filter(|_| is_json) {
        assert!(line.starts_with('{'), "with --json this is on stderr: {line:?}");
    }
}

/// Checks a line of zk-lock's, if it is JSON.
#[track_caller]
pub fn check_if_json(line: &str) {
    if line.starts_with('{') {
        check(line).unwrap_or_else(|why| panic!("{why}: {line}"));
    }
}

fn check(line: &str) -> Result<(), String> {
    let schema: Value = serde_json::from_str(SCHEMA).map_err(|e| format!("the schema: {e}"))?;
    let value: Value = serde_json::from_str(line).map_err(|e| e.to_string())?;
    let invisible = line.chars().find(|c| c.is_control() || "\u{200b}\u{202e}".contains(*c));
    if let Some(c) = invisible {
        return Err(format!("{c:?} is not escaped"));
    }
    fits(&schema, &schema, &value)
}

fn fits(root: &Value, schema: &Value, value: &Value) -> Result<(), String> {
    let rules = schema.as_object().ok_or("a schema that is no object")?;
    for (keyword, rule) in rules {
        match keyword.as_str() {
            "$schema" | "title" | "description" | "$defs" => {}
            "$ref" => {
                let place = rule.as_str().and_then(|text| text.strip_prefix('#'));
                let part = place.and_then(|place| root.pointer(place));
                fits(root, part.ok_or_else(|| format!("{rule} leads nowhere"))?, value)?;
            }
            "type" => {
                let all = rule.as_array().map_or(std::slice::from_ref(rule), Vec::as_slice);
                if !all.iter().any(|one| is_a(one, value)) {
                    return Err(format!("{value} is no {rule}"));
                }
            }
            "const" if rule == value => {}
            "const" => return Err(format!("{value} is not {rule}")),
            "enum" if rule.as_array().is_some_and(|all| all.contains(value)) => {}
            "enum" => return Err(format!("{value} is none of {rule}")),
            "oneOf" => {
                let tried: Vec<_> =
                    rule.as_array().into_iter().flatten().map(|s| fits(root, s, value)).collect();
                if tried.iter().filter(|one| one.is_ok()).count() != 1 {
                    let why: Vec<String> = tried.into_iter().filter_map(Result::err).collect();
                    return Err(format!("of the alternatives not exactly one fits: {why:?}"));
                }
            }
            "items" => {
                let all = value.as_array().into_iter().flatten();
                all.into_iter().try_for_each(|one| fits(root, rule, one))?;
            }
            "properties" => {
                for (name, member) in value.as_object().into_iter().flatten() {
                    let described = rule.get(name);
                    let described = described.ok_or_else(|| format!("{name:?} is undescribed"))?;
                    fits(root, described, member).map_err(|why| format!("{name}: {why}"))?;
                }
            }
            "required" => {
                let has = |name: &Value| value.get(name.as_str().unwrap_or_default()).is_some();
                if let Some(name) = rule.as_array().into_iter().flatten().find(|one| !has(one)) {
                    return Err(format!("there is no {name}"));
                }
            }
            other => return Err(format!("a keyword that is not known here: {other}")),
        }
    }
    Ok(())
}

fn is_a(name: &Value, value: &Value) -> bool {
    match name.as_str() {
        Some("string") => value.is_string(),
        Some("integer") => value.is_i64() || value.is_u64(),
        Some("number") => value.is_number(),
        Some("boolean") => value.is_boolean(),
        Some("null") => value.is_null(),
        Some("array") => value.is_array(),
        Some("object") => value.is_object(),
        _ => false,
    }
}

/// The check notices what it is for.
#[test]
fn a_line_that_is_not_as_described_is_noticed() {
    let right = r#"{"v":1,"event":"released","message":"x"}"#;
    assert_eq!(check(right), Ok(()));
    for wrong in [
        r#"{"event":"released","message":"x"}"#,
        r#"{"v":2,"event":"released","message":"x"}"#,
        r#"{"v":1,"event":"nonsense","message":"x"}"#,
        r#"{"v":1,"event":"released"}"#,
        r#"{"v":1,"event":"released","message":7}"#,
        r#"{"v":1,"event":"released","message":"x","more":1}"#,
        "{\"v\":1,\"event\":\"released\",\"message\":\"\u{202e}\"}",
        "no JSON",
    ] {
        assert!(check(wrong).is_err(), "{wrong}");
    }
}

/// Every event has a description, and none has two.
#[test]
fn the_schema_describes_each_event_once() {
    let schema: Value = serde_json::from_str(SCHEMA).expect("JSON");
    let definitions: &Map<String, Value> = schema["$defs"].as_object().expect("definitions");
    let mut events = Vec::new();
    for one in schema["oneOf"].as_array().expect("alternatives") {
        let name = one["$ref"].as_str().and_then(|text| text.strip_prefix("#/$defs/"));
        let event = &definitions[name.expect("a reference")]["properties"]["event"];
        let all = event["oneOf"].as_array().map_or(std::slice::from_ref(event), Vec::as_slice);
        events.extend(all.iter().map(|one| one["const"].as_str().expect("a name").to_owned()));
    }
    let count = events.len();
    events.sort();
    events.dedup();
    assert!(events.len() == count && count > 30, "{events:?}");
}
