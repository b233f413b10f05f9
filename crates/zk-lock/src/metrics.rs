//! Metrics in the text format of Prometheus.

use std::collections::HashMap;

use prometheus::{GaugeVec, Opts, Registry, TextEncoder};

use crate::exit::Failure;

/// What a metric is; all of ours are gauges.
pub struct Metric {
    pub name: &'static str,
    pub help: &'static str,
    pub labels: &'static [&'static str],
}

/// Some metrics with their values at one moment.
#[derive(Default)]
pub struct Metrics {
    registry: Registry,
    families: HashMap<&'static str, GaugeVec>,
}

impl Metrics {
    /// Sets the value that a metric has with these values of its labels.
    pub fn set(&mut self, metric: &Metric, labels: &[&str], value: f64) -> Result<(), Failure> {
        let family = match self.families.get(metric.name) {
            Some(family) => family,
            None => {
                let options = Opts::new(metric.name, metric.help);
                let family = GaugeVec::new(options, metric.labels).map_err(failed)?;
                self.registry.register(Box::new(family.clone())).map_err(failed)?;
                self.families.entry(metric.name).or_insert(family)
            }
        };
        family.get_metric_with_label_values(labels).map_err(failed)?.set(value);
        Ok(())
    }

    pub fn text(&self) -> Result<String, Failure> {
        TextEncoder::new().encode_to_string(&self.registry.gather()).map_err(failed)
    }
}

fn failed(error: prometheus::Error) -> Failure {
    Failure::system(format!("metrics: {error}"))
}

/// Every metric of a set has a name, a meaning and labels that Prometheus takes.
#[cfg(test)]
pub fn check(all: &[&Metric]) {
    let mut metrics = Metrics::default();
    for metric in all {
        let values = vec!["x"; metric.labels.len()];
        metrics.set(metric, &values, 1.0).unwrap_or_else(|e| panic!("{}: {e:?}", metric.name));
        assert!(metric.name.starts_with("zk_lock_") && !metric.help.is_empty(), "{}", metric.name);
    }
}
