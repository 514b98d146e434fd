//! Figures for people: rounded once, grouped by thousands, harmless text.

use gpuledger_model::money::Decimal;

/// Digits behind the point that people are shown.
const DISPLAY_PLACES: u8 = 2;

/// `1,234.56`: rounded once, half away from zero.
pub fn format_amount(amount: Decimal) -> String {
    let text = amount.rounded(DISPLAY_PLACES).to_string();
    let (sign, digits) = match text.strip_prefix('-') {
        // A tiny negative amount rounds to zero, which has no sign.
        Some(rest) if rest.bytes().any(|b| (b'1'..=b'9').contains(&b)) => ("-", rest),
        Some(rest) => ("", rest),
        None => ("", text.as_str()),
    };
    let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
    let mut grouped = String::with_capacity(text.len() + whole.len() / 3 + 1);
    grouped.push_str(sign);
    group_thousands(whole, &mut grouped);
    if !fraction.is_empty() {
        grouped.push('.');
        grouped.push_str(fraction);
    }
    grouped
}

/// `12.3 %`, or a dash where there is no share.
pub fn format_share(share: Option<f64>) -> String {
    match share {
        Some(share) => format!("{:.1} %", share * 100.0 + 0.0).replace("-0.0 %", "0.0 %"),
        None => "-".to_string(),
    }
}

/// A quantity with one digit behind the point, grouped by thousands: `1,234.5`.
pub fn format_quantity(value: f64) -> String {
    let text = format!("{value:.1}");
    let (sign, digits) = match text.strip_prefix('-') {
        Some(rest) => ("-", rest),
        None => ("", text.as_str()),
    };
    let (whole, fraction) = digits.split_once('.').unwrap_or((digits, "0"));
    let mut grouped = sign.to_string();
    group_thousands(whole, &mut grouped);
    grouped + "." + fraction
}

/// A count grouped by thousands.
pub fn format_count(value: u64) -> String {
    let mut grouped = String::new();
    group_thousands(&value.to_string(), &mut grouped);
    grouped
}

/// Text from outside without characters that steer a terminal or turn the direction of writing.
pub fn harmless(text: &str) -> String {
    text.chars()
        .map(|c| match c {
            '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' => '\u{fffd}',
            c if c.is_control() => '\u{fffd}',
            c => c,
        })
        .collect()
}

fn group_thousands(whole: &str, out: &mut String) {
    for (at, digit) in whole.chars().enumerate() {
        if at > 0 && (whole.len() - at).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn amounts_are_rounded_once_and_grouped() {
        for (amount, want) in [
            ("0", "0.00"),
            ("1234567.895", "1,234,567.90"),
            ("-999.994", "-999.99"),
            ("-1000", "-1,000.00"),
            ("0.0049999999", "0.00"),
            ("-0.001", "0.00"),
            ("123.4", "123.40"),
        ] {
            assert_eq!(format_amount(amount.parse().unwrap()), want);
        }
    }

    #[test]
    fn shares_quantities_and_names() {
        assert_eq!(format_share(Some(0.1234)), "12.3 %");
        assert_eq!(format_share(Some(-0.00001)), "0.0 %");
        assert_eq!(format_share(None), "-");
        assert_eq!(format_quantity(12345.67), "12,345.7");
        assert_eq!(format_count(1000), "1,000");
        assert_eq!(harmless("pod\u{1b}[31m\n\u{202e}x"), "pod\u{fffd}[31m\u{fffd}\u{fffd}x");
    }
}
