//! What people declare in annotations and comments: shares in parts per million, lists of times.

use gpuledger_model::time::parse_time;
use jiff::tz::TimeZone;

/// One whole device.
pub(crate) const WHOLE_PPM: u32 = 1_000_000;

/// A plain decimal (`0.25`, `.5`, `1`) times `unit_ppm`, as parts per million, rounded half up.
/// `None` if it is no plain decimal or the result is above one device.
pub(crate) fn parse_ppm(text: &str, unit_ppm: u64) -> Option<u32> {
    let text = text.trim();
    let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
    let is_plain = |part: &str| part.bytes().all(|b| b.is_ascii_digit());
    if (whole.is_empty() && fraction.is_empty()) || !is_plain(whole) || !is_plain(fraction) || whole.len() > 9 {
        return None;
    }
    // Nine decimals are more than a share can mean; what follows them is dropped.
    let fraction = fraction.get(..9).unwrap_or(fraction);
    let scale = 10u128.pow(u32::try_from(fraction.len()).ok()?);
    let digits = |part: &str| if part.is_empty() { Some(0u128) } else { part.parse::<u128>().ok() };
    let value = digits(whole)?.checked_mul(scale)?.checked_add(digits(fraction)?)?;
    let ppm = value.checked_mul(u128::from(unit_ppm))?.checked_mul(2)?.checked_add(scale)? / (2 * scale);
    u32::try_from(ppm).ok().filter(|&ppm| ppm <= WHOLE_PPM)
}

/// `part / whole` as parts per million, rounded half up, at most one device; `None` without a whole.
pub(crate) fn ratio_ppm(part: u64, whole: u64) -> Option<u32> {
    if whole == 0 {
        return None;
    }
    let (part, whole) = (u128::from(part.min(whole)), u128::from(whole));
    u32::try_from((part * 2 * u128::from(WHOLE_PPM) + whole) / (2 * whole)).ok()
}

/// The times of a comma list; the texts that are none come back as errors.
pub(crate) fn parse_times(text: &str, zone: &TimeZone) -> (Vec<i64>, Vec<String>) {
    let mut times = Vec::new();
    let mut wrong = Vec::new();
    for part in text.split(',').map(str::trim).filter(|part| !part.is_empty()) {
        match parse_time(part, zone) {
            Some(time) => times.push(time),
            None => wrong.push(part.to_string()),
        }
    }
    times.sort_unstable();
    times.dedup();
    (times, wrong)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_are_read_without_floats() {
        assert_eq!(parse_ppm("0.25", 1_000_000), Some(250_000));
        assert_eq!(parse_ppm(".5", 1_000_000), Some(500_000));
        assert_eq!(parse_ppm("0.3333333", 1_000_000), Some(333_333));
        assert_eq!(parse_ppm("33.3", 10_000), Some(333_000));
        assert_eq!(parse_ppm("100", 10_000), Some(1_000_000));
        for text in ["", ".", "1.5", "-1", "1e-1", "half", "99999999999999999999"] {
            assert_eq!(parse_ppm(text, 1_000_000), None, "{text}");
        }
        assert_eq!(ratio_ppm(1, 3), Some(333_333));
        assert_eq!(ratio_ppm(2, 3), Some(666_667));
        assert_eq!(ratio_ppm(9, 3), Some(1_000_000));
        assert_eq!(ratio_ppm(1, 0), None);
    }
}
