//! Durations as users write them and read them, and the clock that two processes share.

use std::time::Duration;

/// Reads `5s`, `500ms`, `1.5m`, `2h`, `1d`; a number alone is seconds, as in timeout(1).
pub fn parse(text: &str) -> Result<Duration, String> {
    let digits = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let seconds_per_unit = match unit.trim() {
        "ms" => 0.001,
        "" | "s" => 1.0,
        "m" | "min" => 60.0,
        "h" => 3_600.0,
        "d" => 86_400.0,
        _ => return Err("write a duration as 500ms, 30s, 5m, 2h or 1d".to_owned()),
    };
    number
        .parse::<f64>()
        .ok()
        .and_then(|number| Duration::try_from_secs_f64(number * seconds_per_unit).ok())
        .filter(|duration| *duration <= Duration::from_secs(366 * 86_400))
        .ok_or_else(|| "write a duration as 500ms, 30s, 5m, 2h or 1d, of a year at most".to_owned())
}

/// A time for people: `1.5 s`, or its two greatest units.
pub fn show(duration: Duration) -> String {
    let seconds = duration.as_secs();
    let (minutes, hours, days) = (seconds / 60, seconds / 3_600, seconds / 86_400);
    match (days, hours, minutes) {
        (0, 0, 0) if duration < Duration::from_secs(1) => format!("{} ms", duration.as_millis()),
        (0, 0, 0) if duration.subsec_millis() < 50 => format!("{seconds} s"),
        (0, 0, 0) => format!("{:.1} s", duration.as_secs_f64()),
        (0, 0, _) => format!("{minutes} min {} s", seconds % 60),
        (0, ..) => format!("{hours} h {} min", minutes % 60),
        _ => format!("{days} d {} h", hours % 24),
    }
}

/// A time of day in UTC, given in milliseconds since 1970: `2026-11-26T10:28:45Z`.
pub fn date(millis: u64) -> String {
    let at = i64::try_from(millis).ok().and_then(|at| jiff::Timestamp::from_millisecond(at).ok());
    at.map_or_else(|| "?".to_owned(), |at| at.strftime("%FT%TZ").to_string())
}

/// Now, in milliseconds of a clock that is the same in all processes of this host and that goes on
/// while the host sleeps.
pub fn boot_millis() -> u64 {
    #[cfg(any(target_os = "linux", target_os = "android"))]
    let clock = rustix::time::ClockId::Boottime;
    #[cfg(not(any(target_os = "linux", target_os = "android")))]
    let clock = rustix::time::ClockId::Monotonic;
    let now = rustix::time::clock_gettime(clock);
    let seconds = u64::try_from(now.tv_sec).unwrap_or(0);
    seconds * 1_000 + u64::try_from(now.tv_nsec).unwrap_or(0) / 1_000_000
}

pub fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_read_with_their_units() {
        for (text, millis) in
            [("5", 5_000), ("5s", 5_000), ("1.5m", 90_000), ("250ms", 250), ("2h", 7_200_000)]
        {
            assert_eq!(parse(text), Ok(Duration::from_millis(millis)), "{text}");
        }
        for wrong in ["", "s", "-1s", "5 weeks", "1e9d", "99999999d", "."] {
            assert!(parse(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn durations_are_shown_in_their_greatest_units() {
        for (millis, text) in
            [(20, "20 ms"), (1_500, "1.5 s"), (3_000, "3 s"), (61_000, "1 min 1 s")]
        {
            assert_eq!(show(Duration::from_millis(millis)), text);
        }
        assert_eq!(show(Duration::from_secs(90_000)), "1 d 1 h");
        assert_eq!(date(1_795_688_925_000), "2026-11-26T10:28:45Z");
        assert_eq!(date(u64::MAX), "?");
    }
}
