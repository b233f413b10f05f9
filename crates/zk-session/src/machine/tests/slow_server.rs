//! Tests with a server that answers everything, but late: the lease must be renewed in time.

use super::*;

struct SlowServer {
    rig: Rig,
    /// The delay of each answer.
    answer_delay: Duration,
    /// The delay of the answer to a handshake.
    attach_delay: Duration,
    pending: VecDeque<(BootTime, i32, i32)>,
    attach_at: Option<BootTime>,
    attached: usize,
}

impl SlowServer {
    fn new(tick: Option<Duration>, answer_delay: Duration) -> Self {
        let mut rig = Rig::new(&[]);
        rig.machine.config.tick = tick;
        rig.attach(7);
        SlowServer {
            rig,
            answer_delay,
            attach_delay: answer_delay,
            pending: VecDeque::new(),
            attach_at: None,
            attached: 1,
        }
    }

    /// Lets time pass.
    fn serve(&mut self, span: Duration) {
        let until = self.rig.now + span;
        while self.rig.now < until {
            let now = self.rig.now;
            self.rig.tick();
            self.rig.deliver_outputs();
            if self.rig.machine.cut.take().is_some() {
                self.pending.clear();
                self.rig.connect();
                self.attach_at = Some(now + self.attach_delay);
            }
            if self.attach_at.is_some_and(|at| at <= now) {
                self.attach_at = None;
                self.attached += 1;
                self.rig.greet(7, T.as_millis() as i32);
            }
            if self.attach_at.is_none() {
                let answer_delay = self.answer_delay;
                self.pending.extend(
                    self.rig.sent().into_iter().map(|(xid, op, _)| (now + answer_delay, xid, op)),
                );
            }
            while let Some((_, xid, op)) = self.pending.pop_front_if(|(at, ..)| *at <= now) {
                let body = if op == op::GET_DATA { node(b"", 5, 7) } else { Vec::new() };
                self.rig.reply(xid, if op == op::DELETE { err::NO_NODE } else { err::OK }, &body);
            }
            self.rig.lapse();
            // No multiple of this step is a fraction of T, as on a real clock.
            self.rig.now = now + Duration::from_micros(5_003);
        }
    }
}

#[test]
fn a_caller_gets_a_fresh_lease_however_slow_the_server_and_however_long_the_tick() {
    for tick in [None, Some(T), Some(T * 9 / 10), Some(T / 2), Some(T / 10)] {
        for slow in [1000, 50, 20, 16, 13, 10, 7] {
            let mut slow_server = SlowServer::new(tick, T / slow);
            slow_server.serve(T);
            let (start, attached) = (slow_server.rig.now, slow_server.attached);
            let fresh = 'fresh: loop {
                let fresh = slow_server.rig.prove();
                loop {
                    slow_server.serve(T / 100);
                    match fresh.try_recv() {
                        // The session reconnects: the caller tries again.
                        Ok(Err(err::CONNECTION_LOSS)) => break,
                        Err(e) if e.is_disconnected() => break,
                        Ok(outcome) => break 'fresh outcome,
                        Err(_) => {}
                    }
                    assert!(slow_server.rig.now.since(start) < T, "tick {tick:?}, T/{slow}");
                }
            };
            assert_eq!(fresh, Ok(()));
            // It was fresh when the caller was answered, at most a step ago.
            let left = slow_server.rig.lease.remaining(slow_server.rig.now);
            assert!(left > T / 4 - T / 50, "tick {tick:?}, T/{slow}: {left:?}");
            let needs_reconnection = slow_server.attached > attached;
            let is_plain = tick.is_none_or(|tick| tick <= T / 2) && slow >= 20;
            assert!(!is_plain || !needs_reconnection, "tick {tick:?}, T/{slow}");
        }
    }
}

#[test]
fn an_idle_holder_keeps_its_lock_though_each_answer_takes_a_tenth_of_the_timeout() {
    let plain = [(None, 1000), (None, 50), (Some(T / 2), 50)];
    let slow = [(None, 20), (None, 10), (Some(T), 50), (Some(T), 10), (Some(T / 10), 10)];
    for (tick, slow) in plain.into_iter().chain(slow) {
        let mut slow_server = SlowServer::new(tick, T / slow);
        let hold = slow_server.rig.hold("/l/n");
        slow_server.serve(T * 6);
        assert_eq!(hold.loss(), None, "tick {tick:?}, T/{slow}");
        let is_plain = plain.contains(&(tick, slow));
        assert!(!is_plain || slow_server.attached == 1, "{}", slow_server.attached);
        assert!(slow_server.attached <= 12, "{}", slow_server.attached);
    }
}

#[test]
fn a_lock_that_is_granted_with_little_lease_left_outlasts_slow_answers() {
    for slow in [1000, 20, 13] {
        let mut slow_server = SlowServer::new(Some(T / 18), T / slow);
        // A handshake takes longer than an answer: a follower asks the leader.
        slow_server.attach_delay = T * 3 / slow;
        let before = slow_server.rig.hold("/l/before");
        slow_server.serve(T);
        slow_server.rig.lease.release(&before);
        // A waiter's lease runs down. It is granted the lock when its predecessor goes.
        while slow_server.rig.lease.remaining(slow_server.rig.now) > T * 28 / 100 {
            slow_server.serve(MS * 5);
        }
        let hold = slow_server.rig.hold("/l/n");
        // The event loop sleeps until it looks for new holds.
        slow_server.rig.now = slow_server.rig.now + T / 16;
        slow_server.serve(T * 2);
        assert_eq!(hold.loss(), None, "T/{slow}");
    }
}

#[test]
fn a_process_that_was_stopped_reconnects_though_it_reads_an_answer_first() {
    // The tick is short, so the lease is long.
    let mut slow_server = SlowServer::new(Some(T / 10), T / 1000);
    let hold = slow_server.rig.hold("/l/n");
    slow_server.serve(T);
    let is_long = |rig: &Rig| rig.lease.remaining(rig.now) > T * 3 / 8;
    while !(slow_server.pending.iter().any(|(_, _, op)| *op == op::SYNC)
        && is_long(&slow_server.rig))
    {
        slow_server.serve(MS * 5);
    }
    let sync =
        slow_server.pending.iter().find(|(_, _, op)| *op == op::SYNC).map(|(_, xid, _)| *xid);
    let rig = &mut slow_server.rig;
    rig.now = rig.now + T / 3 + MS;
    rig.reply(sync.unwrap(), err::OK, &[]);
    assert!(rig.machine.cut.is_some());
    assert_eq!(rig.sent(), []);
    slow_server.serve(T);
    assert_eq!((hold.loss(), slow_server.attached), (None, 2));
}
