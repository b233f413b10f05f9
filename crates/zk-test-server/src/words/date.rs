//! A moment as Java prints it: "Sat Nov 21 14:33:12 UTC 2026".

// 1970-01-01 was a Thursday
const DAYS: [&str; 7] = ["Thu", "Fri", "Sat", "Sun", "Mon", "Tue", "Wed"];
const MONTHS: [&str; 12] =
    ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];

/// `ms` counts from 1970. An earlier time is shown as 1970.
pub(super) fn utc(ms: i64) -> String {
    let seconds = u64::try_from(ms).unwrap_or(0) / 1000;
    let (mut day, second) = (seconds / 86_400, seconds % 86_400);
    let weekday = pick(&DAYS, day % 7);
    let mut year = 1970;
    // 400 years are always the same number of days.
    year += day / 146_097 * 400;
    day %= 146_097;
    while day >= days_of(year) {
        day -= days_of(year);
        year += 1;
    }
    let mut month = 0;
    while day >= month_days(year, month) {
        day -= month_days(year, month);
        month += 1;
    }
    let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
    let month = pick(&MONTHS, month);
    format!("{weekday} {month} {:02} {hour:02}:{minute:02}:{second:02} UTC {year}", day + 1)
}

fn pick(names: &[&'static str], n: u64) -> &'static str {
    usize::try_from(n).ok().and_then(|n| names.get(n)).copied().unwrap_or_default()
}

fn is_leap(year: u64) -> bool {
    year % 4 == 0 && year % 100 != 0 || year % 400 == 0
}

fn days_of(year: u64) -> u64 {
    365 + u64::from(is_leap(year))
}

fn month_days(year: u64, month: u64) -> u64 {
    match month {
        1 => 28 + u64::from(is_leap(year)),
        3 | 5 | 8 | 10 => 30,
        _ => 31,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prints_dates_as_java_does() {
        assert_eq!(utc(0), "Thu Jan 01 00:00:00 UTC 1970");
        assert_eq!(utc(1_795_271_592_999), "Sat Nov 21 14:33:12 UTC 2026");
        assert_eq!(utc(951_782_400_000), "Tue Feb 29 00:00:00 UTC 2000");
        assert_eq!(utc(13_569_465_599_000), "Fri Dec 31 23:59:59 UTC 2399");
        assert_eq!(utc(-5), utc(0));
    }
}
