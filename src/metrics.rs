//! `MetricsObserver`: an observer that feeds the recorder of the crate `metrics`. No other file
//! knows that crate.

use std::collections::HashMap;
use std::time::Duration;

use metrics::{
    Counter, Gauge, Histogram, Unit, counter, describe_counter, describe_gauge, describe_histogram,
    gauge, histogram,
};

use crate::error::LossReason;
use crate::observer::{LockLabel, Observer, WaitOutcome};
use zk_session::SessionEvent;

/// The reasons with which a lock or a session can be lost. Their counters exist at zero before the
/// first loss: Prometheus does not take a counter that appears at one for an increase. `Forked` is
/// not among them: a forked child has no thread that could report its losses.
const REASONS: [LossReason; 8] = [
    LossReason::LeaseExpired,
    LossReason::SessionExpired,
    LossReason::AuthFailed,
    LossReason::SessionClosed,
    LossReason::NodeDeleted,
    LossReason::HeldTooLong,
    LossReason::Resigned,
    LossReason::Internal,
];

/// An [`Observer`] that keeps metrics, through the crate [`metrics`]. Only with the feature
/// `metrics`.
///
/// Install the recorder of your exporter before you connect the session: a recorder that is
/// installed later gets nothing of it.
///
/// ```no_run
/// # fn main() -> zk_mutex::Result<()> {
/// use zk_mutex::{MetricsObserver, ZkMutex, ZkSession};
///
/// // Before this: metrics_exporter_prometheus::PrometheusBuilder::new().install()
/// let session = ZkSession::builder("zk1:2181").observer(MetricsObserver::default()).connect()?;
/// let mutex = ZkMutex::builder(&session, "/locks/orders").name("orders").build()?;
/// # Ok(())
/// # }
/// ```
///
#[doc = include_str!("guide/metric_names.md")]
///
/// In the folder `docs` of the repository are a dashboard for Grafana and alert rules for
/// Prometheus.
pub struct MetricsObserver {
    locks: Vec<LockMetrics>,
    /// The places in `locks`, by recipe and name.
    places: HashMap<&'static str, HashMap<String, usize>>,
    /// The place of the lock that was found last: events in a row are mostly about one lock, and
    /// the search takes longer than all that is counted.
    last: usize,
    requests: HashMap<&'static str, Histogram>,
    session: Option<SessionMetrics>,
}

struct LockMetrics {
    recipe: &'static str,
    name: String,
    /// By [`WaitOutcome`].
    waits: [Histogram; 4],
    holds: Histogram,
    contended: Counter,
    handed_over: Counter,
    waiters: Gauge,
    held: Gauge,
}

struct SessionMetrics {
    /// The state in which the session is counted.
    state: Option<Gauge>,
    connections_lost: Counter,
    reconnects: Counter,
    lease_margin: Histogram,
    missed: Counter,
}

impl MetricsObserver {
    fn lock(&mut self, lock: &LockLabel) -> &LockMetrics {
        let is_it = |of: &LockMetrics| of.name == lock.name && of.recipe == lock.recipe;
        if !self.locks.get(self.last).is_some_and(is_it) {
            let of_recipe = self.places.entry(lock.recipe).or_default();
            self.last = of_recipe.get(&lock.name).copied().unwrap_or_else(|| {
                self.locks.push(LockMetrics::new(lock)); // the recorder may panic here
                let place = self.locks.len() - 1;
                of_recipe.insert(lock.name.clone(), place);
                place
            });
        }
        &self.locks[self.last]
    }

    fn session(&mut self) -> &mut SessionMetrics {
        self.session.get_or_insert_with(|| {
            let _ = REASONS.map(sessions_lost);
            SessionMetrics {
                state: None,
                connections_lost: counter!("zkmutex_connections_lost_total"),
                reconnects: counter!("zkmutex_reconnects_total"),
                lease_margin: histogram!("zkmutex_lease_margin_seconds"),
                missed: counter!("zkmutex_events_missed_total"),
            }
        })
    }

    /// Counts the session in another state; `None`: in none.
    fn state(&mut self, state: Option<&'static str>) {
        let session = self.session();
        if let Some(before) = session.state.take() {
            before.decrement(1.0);
        }
        session.state = state.map(|state| gauge!("zkmutex_session_state", "state" => state));
        if let Some(now) = &session.state {
            now.increment(1.0);
        }
    }
}

fn sessions_lost(reason: LossReason) -> Counter {
    counter!("zkmutex_sessions_lost_total", "reason" => reason.as_str())
}

impl LockMetrics {
    fn lost(lock: &LockLabel, reason: LossReason) -> Counter {
        let (recipe, name, reason) = (lock.recipe, lock.name.clone(), reason.as_str());
        counter!("zkmutex_lock_lost_total", "recipe" => recipe, "name" => name, "reason" => reason)
    }

    fn new(lock: &LockLabel) -> Self {
        let _ = REASONS.map(|reason| LockMetrics::lost(lock, reason));
        let (recipe, name) = (lock.recipe, lock.name.clone());
        let labels = [("recipe", recipe.to_owned()), ("name", name.clone())];
        let wait = |outcome: WaitOutcome| {
            let outcome = [("outcome", outcome.as_str().to_owned())];
            let labels: Vec<_> = labels.iter().cloned().chain(outcome).collect();
            histogram!("zkmutex_lock_wait_seconds", &labels)
        };
        use WaitOutcome::{Acquired, Cancelled, Failed, TimedOut};
        LockMetrics {
            recipe,
            name,
            waits: [Acquired, TimedOut, Cancelled, Failed].map(wait),
            holds: histogram!("zkmutex_lock_hold_seconds", &labels),
            contended: counter!("zkmutex_lock_contended_total", &labels),
            handed_over: counter!("zkmutex_lock_handed_over_total", &labels),
            waiters: gauge!("zkmutex_lock_waiters", &labels),
            held: gauge!("zkmutex_lock_held", &labels),
        }
    }
}

impl Default for MetricsObserver {
    /// Describes the metrics to the recorder.
    fn default() -> Self {
        let seconds = |name, what| describe_histogram!(name, Unit::Seconds, what);
        let count = |name, what| describe_counter!(name, Unit::Count, what);
        let now = |name, what| describe_gauge!(name, Unit::Count, what);
        seconds("zkmutex_lock_wait_seconds", "How long calls for a lock have waited");
        seconds("zkmutex_lock_hold_seconds", "How long holds have lasted that were released");
        count("zkmutex_lock_contended_total", "Calls that found somebody else ahead");
        count("zkmutex_lock_handed_over_total", "Calls that got the lock inside their process");
        count("zkmutex_lock_lost_total", "Holds that were lost");
        now("zkmutex_lock_waiters", "Calls that wait for a lock now");
        now("zkmutex_lock_held", "Holds that stand now");
        now("zkmutex_session_state", "Sessions in this state");
        count("zkmutex_connections_lost_total", "Connections that were lost");
        count("zkmutex_reconnects_total", "Connections after which the session was resumed");
        count("zkmutex_sessions_lost_total", "Sessions that were lost");
        seconds("zkmutex_request_seconds", "Round trips to a ZooKeeper server");
        seconds("zkmutex_lease_margin_seconds", "What was left of the lease when it was renewed");
        count("zkmutex_events_missed_total", "Events that were not reported");
        let (locks, places, last) = (Vec::new(), HashMap::new(), 0);
        MetricsObserver { locks, places, last, requests: HashMap::new(), session: None }
    }
}

impl Observer for MetricsObserver {
    fn wait_began(&mut self, lock: &LockLabel) {
        self.lock(lock).waiters.increment(1.0);
    }

    fn contended(&mut self, lock: &LockLabel) {
        self.lock(lock).contended.increment(1);
    }

    fn handed_over(&mut self, lock: &LockLabel) {
        self.lock(lock).handed_over.increment(1);
    }

    fn wait_ended(&mut self, lock: &LockLabel, outcome: WaitOutcome, waited: Duration) {
        let lock = self.lock(lock);
        lock.waiters.decrement(1.0);
        lock.waits[outcome as usize].record(waited);
        if outcome == WaitOutcome::Acquired {
            lock.held.increment(1.0);
        }
    }

    fn released(&mut self, lock: &LockLabel, held_for: Duration) {
        let lock = self.lock(lock);
        lock.held.decrement(1.0);
        lock.holds.record(held_for);
    }

    fn lost(&mut self, lock: &LockLabel, reason: LossReason) {
        self.lock(lock).held.decrement(1.0);
        LockMetrics::lost(lock, reason).increment(1);
    }

    fn request_answered(&mut self, operation: &'static str, took: Duration) {
        let new = || histogram!("zkmutex_request_seconds", "op" => operation);
        self.requests.entry(operation).or_insert_with(new).record(took);
    }

    fn lease_margin(&mut self, left: Duration) {
        self.session().lease_margin.record(left);
    }

    fn session_changed(&mut self, event: &SessionEvent) {
        let state = match event {
            SessionEvent::Connected { .. } => Some("connected"),
            SessionEvent::Suspended => {
                self.session().connections_lost.increment(1);
                Some("suspended")
            }
            SessionEvent::Reconnected => {
                self.session().reconnects.increment(1);
                Some("connected")
            }
            SessionEvent::Lost(reason) => {
                sessions_lost(*reason).increment(1);
                Some("lost")
            }
            SessionEvent::Closed => None,
            _ => return, // a change that a later version of the session's crate may have
        };
        self.state(state);
    }

    fn missed(&mut self, events: u64) {
        self.session().missed.increment(events);
    }
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};
    use std::sync::atomic::{AtomicU64, Ordering};
    use std::sync::{Arc, Mutex};

    use metrics::{HistogramFn, Key, KeyName, Metadata, Recorder, SharedString};

    use super::*;

    /// Keeps each metric by its name and labels: counters as they are, gauges as the bits of an
    /// `f64`, histograms by the number of values.
    #[derive(Default)]
    struct Kept {
        described: Mutex<BTreeSet<String>>,
        metrics: Mutex<BTreeMap<String, Arc<AtomicU64>>>,
    }

    impl Kept {
        fn metric(&self, key: &Key) -> Arc<AtomicU64> {
            let labels: Vec<_> =
                key.labels().map(|label| format!("{}={}", label.key(), label.value())).collect();
            let name = format!("{} {}", key.name(), labels.join(","));
            self.metrics.lock().unwrap().entry(name).or_default().clone()
        }

        fn get(&self, name: &str) -> u64 {
            self.metrics.lock().unwrap()[name].load(Ordering::SeqCst)
        }

        /// All our gauges are whole numbers.
        fn gauge(&self, name: &str) -> i64 {
            f64::from_bits(self.get(name)) as i64
        }
    }

    struct Values(Arc<AtomicU64>);

    impl HistogramFn for Values {
        fn record(&self, _: f64) {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
    }

    impl Recorder for &Kept {
        fn describe_counter(&self, name: KeyName, _: Option<Unit>, _: SharedString) {
            self.described.lock().unwrap().insert(name.as_str().to_owned());
        }
        fn describe_gauge(&self, name: KeyName, _: Option<Unit>, _: SharedString) {
            self.described.lock().unwrap().insert(name.as_str().to_owned());
        }
        fn describe_histogram(&self, name: KeyName, _: Option<Unit>, _: SharedString) {
            self.described.lock().unwrap().insert(name.as_str().to_owned());
        }
        fn register_counter(&self, key: &Key, _: &Metadata<'_>) -> Counter {
            Counter::from_arc(self.metric(key))
        }
        fn register_gauge(&self, key: &Key, _: &Metadata<'_>) -> Gauge {
            Gauge::from_arc(self.metric(key))
        }
        fn register_histogram(&self, key: &Key, _: &Metadata<'_>) -> Histogram {
            Histogram::from_arc(Arc::new(Values(self.metric(key))))
        }
    }

    /// Calls each method of an observer, so that each metric exists.
    fn play(observer: &mut MetricsObserver) {
        let path = "/locks/a-path".to_owned();
        let lock = LockLabel { recipe: "mutex", name: "orders".into(), path };
        let moment = Duration::from_millis(3);
        observer.session_changed(&SessionEvent::Connected { session_id: 1, timeout: moment });
        observer.session_changed(&SessionEvent::Suspended);
        observer.session_changed(&SessionEvent::Reconnected);
        for _ in 0..3 {
            observer.wait_began(&lock);
        }
        observer.contended(&lock);
        observer.wait_ended(&lock, WaitOutcome::TimedOut, moment);
        observer.handed_over(&lock);
        observer.wait_ended(&lock, WaitOutcome::Acquired, moment);
        observer.released(&lock, moment);
        observer.wait_ended(&lock, WaitOutcome::Acquired, moment);
        observer.lost(&lock, LossReason::NodeDeleted);
        observer.request_answered("create", moment);
        observer.lease_margin(moment);
        observer.missed(4);
        observer.session_changed(&SessionEvent::Lost(LossReason::SessionExpired));
    }

    #[test]
    fn each_event_is_in_the_metrics_that_are_described_and_no_path_is_a_label() {
        let kept = Kept::default();
        metrics::with_local_recorder(&&kept, || {
            let mut observer = MetricsObserver::default();
            play(&mut observer);
            let labels = "recipe=mutex,name=orders";
            let waits = |outcome| {
                kept.get(&format!("zkmutex_lock_wait_seconds {labels},outcome={outcome}"))
            };
            assert_eq!([waits("acquired"), waits("timed_out"), waits("failed")], [2, 1, 0]);
            let of = |name: &str| kept.get(&format!("zkmutex_lock_{name} {labels}"));
            let counts = ["hold_seconds", "contended_total", "handed_over_total"].map(of);
            assert_eq!(counts, [1, 1, 1]);
            let lost =
                |reason| kept.get(&format!("zkmutex_lock_lost_total {labels},reason={reason}"));
            // The others exist, at zero.
            assert_eq!(REASONS.map(|reason| lost(reason.as_str())), [0, 0, 0, 0, 1, 0, 0, 0]);
            let state = |state| kept.gauge(&format!("zkmutex_session_state state={state}"));
            let states = || ["connected", "suspended", "lost"].map(state);
            assert_eq!(states(), [0, 0, 1]);
            observer.session_changed(&SessionEvent::Closed);
            assert_eq!(states(), [0; 3]);
            let session = ["connections_lost_total", "reconnects_total", "lease_margin_seconds"];
            assert_eq!(session.map(|name| kept.get(&format!("zkmutex_{name} "))), [1, 1, 1]);
            assert_eq!(kept.get("zkmutex_events_missed_total "), 4);
            assert_eq!(kept.get("zkmutex_sessions_lost_total reason=session_expired"), 1);
            assert_eq!(kept.get("zkmutex_request_seconds op=create"), 1);
            let gauges = ["waiters", "held"]
                .map(|name| kept.gauge(&format!("zkmutex_lock_{name} {labels}")));
            assert_eq!(gauges, [0, 0]);
        });
        let metrics = kept.metrics.lock().unwrap();
        assert!(metrics.keys().all(|name| !name.contains("a-path")));
        let names: BTreeSet<String> =
            metrics.keys().filter_map(|name| Some(name.split_once(' ')?.0.to_owned())).collect();
        assert_eq!(names, *kept.described.lock().unwrap());
        assert_eq!(metrics.keys().filter(|name| name.contains("sessions_lost")).count(), 8);
    }

    /// The names of our metrics in a text; those of a histogram without what Prometheus appends.
    fn names(text: &str) -> BTreeSet<String> {
        let word = |c: char| !(c.is_ascii_alphanumeric() || c == '_');
        let names = text.split(word).filter(|word| word.starts_with("zkmutex_"));
        let base = |name: &str| {
            let histogram =
                ["_bucket", "_count", "_sum"].iter().find_map(|end| name.strip_suffix(end));
            histogram.unwrap_or(name).to_owned()
        };
        names.map(base).collect()
    }

    #[test]
    fn the_table_the_dashboard_and_the_alerts_name_metrics_that_there_are() {
        let kept = Kept::default();
        metrics::with_local_recorder(&&kept, || drop(MetricsObserver::default()));
        let described = kept.described.lock().unwrap();
        assert_eq!(names(include_str!("guide/metric_names.md")), *described);
        assert_eq!(names(include_str!("../docs/grafana-dashboard.json")), *described);
        let alerts = names(include_str!("../docs/alerts.yml"));
        assert!(alerts.len() > 4 && alerts.is_subset(&described), "{alerts:?}");
    }
}
