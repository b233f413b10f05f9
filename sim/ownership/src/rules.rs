//! The weaker rules. Each is a copy of the machine in which a little code is replaced.

/// One weaker rule.
pub struct Weaker {
    pub name: &'static str,
    /// What the rule leaves out.
    pub what: &'static str,
    /// The item, a code that stands once in it, and its replacement (`sim/copies.rs`).
    pub edits: &'static [(&'static str, &'static str, &'static str)],
    /// The worlds in which the search finds a history, and words of what goes wrong in it.
    pub found_in: &'static [(&'static str, &'static str)],
}

pub const WEAKER: &[Weaker] = &[
    Weaker {
        name: "proof_is_final",
        what: "once a write on a new connection is acknowledged, no earlier request can come",
        edits: &[(
            "not_found",
            "if self.was_done { RemovalNext::Gone } else { RemovalNext::Absent }",
            "RemovalNext::Gone",
        )],
        found_in: &[("handshakes", "forgotten"), ("overtaking", "forgotten")],
    },
    Weaker {
        name: "no_look_on_a_new_connection",
        what: "a late create is remembered, but nobody looks for its node on a new connection",
        edits: &[("Background::cut", "self.late.dirs()", "Vec::<String>::new()")],
        found_in: &[("overtaking", "stays")],
    },
    Weaker {
        name: "sync_shows_a_move",
        what: "a sync, and no write, is to show that the session has moved",
        edits: &[(
            "next_renewal",
            "let is_late = !self.background.late.is_empty();",
            "let is_late = false;",
        )],
        found_in: &[("overtaking", "stays")],
    },
    Weaker {
        name: "short_memory",
        what: "a late create is remembered for 2 T, though streams may stand still for 10 T",
        edits: &[("late_bound", "(timeout * 10).max(Duration::from_secs(60))", "timeout")],
        found_in: &[("long outage", "forgotten")],
    },
    Weaker {
        name: "no_proof_before_the_look",
        what: "a removal looks for the node without a write before, on the same connection",
        edits: &[(
            "restart",
            "KnownPart::Shared(_) => RemovalStep::Prove",
            "KnownPart::Shared(_) => RemovalStep::Read",
        )],
        found_in: &[("overtaking", "stays")],
    },
    Weaker {
        name: "delete_in_any_version",
        what: "a node with a common name is deleted in whatever version it has",
        edits: &[("answered", "Delete(Some(version))", "Delete(None)")],
        found_in: &[("common names", "deleted"), ("common names and leaders", "deleted")],
    },
    Weaker {
        name: "forgotten_by_time",
        what: "a late create is forgotten at its time, though nobody has looked since an outage",
        edits: &[
            ("look_for_past", "|| self.all.values().any(is_look)", ""),
            ("look_for_past", "self.look_again(dir, now)", "self.forget_late(&dir, now)"),
        ],
        found_in: &[("long outage", "stays")],
    },
    Weaker {
        name: "lost_writes_do_not_count",
        what: "a delete names version 1, though a write without an answer may give that to a node",
        edits: &[(
            "restart",
            "self.lost_writes += i32::from(matches!(self.step, RemovalStep::Write(_)));",
            "",
        )],
        found_in: &[("late writes", "deleted")],
    },
    Weaker {
        name: "lease_without_a_lag",
        what: "a request counts as heard as soon as it is answered, before the leader has sent a ping",
        edits: &[("answered_before", "*answered + self.lag <= now", "*answered <= now")],
        found_in: &[("lease", "lease")],
    },
    Weaker {
        name: "lease_from_the_answer",
        what: "the lease counts from the answer to the handshake, and not from its sending",
        edits: &[("Heard::attached", "self.relayed = Some(sent);", "self.relayed = Some(now);")],
        found_in: &[("lease and leaders", "lease")],
    },
    Weaker {
        name: "lease_by_handshake",
        what: "a handshake renews the lease, without a write that is acknowledged behind it",
        edits: &[(
            "handshake_answered",
            "self.heard.attached(self.lag(), self.timeout(), sent, now);",
            "self.heard.attached(self.lag(), self.timeout(), sent, now);\n        self.outputs.push_back(Output::Heard(sent));",
        )],
        found_in: &[("lease and leaders", "lease")],
    },
];
