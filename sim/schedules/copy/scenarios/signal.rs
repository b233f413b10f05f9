//! Values that are set at most once, and the signals for their readers.

use std::sync::Arc;

use zk_session::cancel::CancelToken;
use zk_session::limit::{Ended, Limit};
use zk_session::signal::{Once, Signal};
use zk_session::world::{bounded, explore, spawn};

fn is_ready<T: Copy>(signal: &Signal<T>) -> bool {
    signal.receiver().try_recv().is_err_and(|e| e.is_disconnected())
}

pub fn a_signal_that_is_ready_has_its_value() {
    explore(|| {
        let signal = Signal::new();
        let raiser = {
            let signal = signal.clone();
            spawn(move || signal.raise(1))
        };
        assert!(signal.receiver().recv().is_err(), "a signal carries no message");
        assert_eq!(signal.value(), Some(1), "the signal is ready without a value");
        raiser.join().unwrap();
    });
}

pub fn of_two_values_the_first_counts_for_everybody() {
    explore(|| {
        let (once, signal) = (Arc::new(Once::default()), Signal::new());
        once.join(&signal);
        let other = {
            let once = once.clone();
            spawn(move || (once.happen(1), once.value()))
        };
        let (is_mine, mine) = (once.happen(2), once.value());
        let (is_other, others) = other.join().unwrap();
        assert!(is_mine != is_other, "only one thread sets the value");
        assert_eq!(mine, Some(if is_mine { 2 } else { 1 }), "the value of the first");
        assert_eq!((others, signal.value()), (mine, mine), "everybody sees one value");
        assert!(is_ready(&signal), "the signal");
    });
}

pub fn a_signal_that_joins_while_it_happens_is_raised() {
    explore(|| {
        let (once, signal) = (Arc::new(Once::default()), Signal::new());
        let other = {
            let once = once.clone();
            spawn(move || once.happen(1))
        };
        once.join(&signal);
        other.join().unwrap();
        assert_eq!(signal.value(), Some(1), "the signal joined and was not raised");
        assert!(is_ready(&signal), "the signal has a value and is not ready");
    });
}

pub fn a_signal_that_has_parted_changes_no_more() {
    explore(|| {
        let (once, signal) = (Arc::new(Once::default()), Signal::new());
        once.join(&signal);
        let other = {
            let once = once.clone();
            spawn(move || once.happen(1))
        };
        once.part(&signal);
        let before = (signal.value(), is_ready(&signal));
        other.join().unwrap();
        assert_eq!((signal.value(), is_ready(&signal)), before, "the signal was raised after it had parted");
    });
}

pub fn a_cancelled_token_ends_the_wait() {
    explore(|| {
        let token = CancelToken::new();
        let (sender, receiver) = bounded::<()>(1);
        let other = {
            let token = token.clone();
            spawn(move || token.cancel())
        };
        match Limit::cancelled_by(&token).recv(&receiver) {
            Ended::Cancelled => assert!(token.is_cancelled(), "the wait was cancelled, and the token is not"),
            _ => panic!("this wait cannot end in another way"),
        }
        assert!(Limit::cancelled_by(&token).is_cancelled(), "cancelling is sticky");
        other.join().unwrap();
        drop(sender);
    });
}
