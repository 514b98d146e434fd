//! Money: fixed-point decimals, exact as delivered, and the one rule by which a sum is split.
//!
//! **MODEL-1**: money is an integer at a scale with a currency; no float ever holds it.

use std::cmp::Ordering;
use std::fmt;
use std::str::FromStr;

use num_bigint::{BigInt, BigUint};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// The most digits a decimal may hold: `i128` carries 38 of them whole.
pub const DECIMAL_DIGITS_MAX: usize = 38;

/// The least scale of a billing scope (ACCOUNTING section 8).
pub const SCOPE_SCALE_MIN: u8 = 10;

/// An exact decimal number: `mantissa` x 10^-`scale`.
#[derive(Clone, Copy, Debug)]
pub struct Decimal {
    /// The digits, with their sign.
    pub mantissa: i128,
    /// How many of the digits stand behind the point.
    pub scale: u8,
}

/// Why a text is not a decimal, or an operation left the range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DecimalError {
    /// The text is not an optional sign, digits, one point and an optional exponent.
    NotANumber,
    /// More than 38 digits are needed.
    TooLong,
}

impl fmt::Display for DecimalError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            DecimalError::NotANumber => "not a plain decimal number",
            DecimalError::TooLong => "needs more than 38 digits",
        })
    }
}

impl std::error::Error for DecimalError {}

impl Decimal {
    /// Zero.
    pub const ZERO: Decimal = Decimal { mantissa: 0, scale: 0 };

    /// An integer as a decimal.
    pub fn from_integer(value: i128) -> Decimal {
        Decimal { mantissa: value, scale: 0 }
    }

    /// The decimal that a float64 cell means: its shortest text that reads back as the same float
    /// (ACCOUNTING section 8). NaN and infinities are refused.
    pub fn from_f64_shortest(value: f64) -> Result<Decimal, DecimalError> {
        if !value.is_finite() {
            return Err(DecimalError::NotANumber);
        }
        format!("{value}").parse()
    }

    /// The same number at another scale, if no digit is lost and it fits.
    pub fn rescaled(self, scale: u8) -> Option<Decimal> {
        let mantissa = match scale.cmp(&self.scale) {
            Ordering::Equal => self.mantissa,
            Ordering::Greater => {
                let factor = 10i128.checked_pow(u32::from(scale - self.scale))?;
                self.mantissa.checked_mul(factor)?
            }
            Ordering::Less => {
                let factor = 10i128.checked_pow(u32::from(self.scale - scale))?;
                if self.mantissa % factor != 0 {
                    return None;
                }
                self.mantissa / factor
            }
        };
        Some(Decimal { mantissa, scale })
    }

    /// The sum, at the larger of the two scales; `None` when it leaves 128 bits.
    pub fn checked_add(self, other: Decimal) -> Option<Decimal> {
        let scale = self.scale.max(other.scale);
        let left = self.rescaled(scale)?;
        let right = other.rescaled(scale)?;
        Some(Decimal { mantissa: left.mantissa.checked_add(right.mantissa)?, scale })
    }

    /// The difference, at the larger of the two scales; `None` when it leaves 128 bits.
    pub fn checked_sub(self, other: Decimal) -> Option<Decimal> {
        self.checked_add(Decimal { mantissa: other.mantissa.checked_neg()?, scale: other.scale })
    }

    /// Without trailing zeros behind the point.
    pub fn normalized(self) -> Decimal {
        let mut out = self;
        while out.scale > 0 && out.mantissa % 10 == 0 {
            out.mantissa /= 10;
            out.scale -= 1;
        }
        out
    }

    /// Whether the number is zero.
    pub fn is_zero(self) -> bool {
        self.mantissa == 0
    }

    /// Whether the number has no part behind the point.
    pub fn is_integral(self) -> bool {
        self.normalized().scale == 0
    }

    /// The nearest float, for ratios and charts only; never stored as money.
    pub fn to_f64(self) -> f64 {
        self.mantissa as f64 / 10f64.powi(i32::from(self.scale))
    }

    /// Rounded once, for display, half away from zero, to `places` behind the point.
    pub fn rounded(self, places: u8) -> Decimal {
        if places >= self.scale {
            return self.rescaled(places).unwrap_or(self);
        }
        let factor = 10i128.pow(u32::from(self.scale - places).min(38));
        let half = factor / 2;
        let shifted = if self.mantissa < 0 { self.mantissa.saturating_sub(half) } else { self.mantissa.saturating_add(half) };
        Decimal { mantissa: shifted / factor, scale: places }
    }
}

impl PartialEq for Decimal {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}
impl Eq for Decimal {}
impl PartialOrd for Decimal {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}
impl Ord for Decimal {
    fn cmp(&self, other: &Self) -> Ordering {
        let scale = self.scale.max(other.scale);
        match (self.rescaled(scale), other.rescaled(scale)) {
            (Some(left), Some(right)) => left.mantissa.cmp(&right.mantissa),
            _ => {
                let widen = |d: &Decimal| BigInt::from(d.mantissa) * BigInt::from(10u8).pow(u32::from(scale - d.scale));
                widen(self).cmp(&widen(other))
            }
        }
    }
}
impl std::hash::Hash for Decimal {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        let plain = self.normalized();
        plain.mantissa.hash(state);
        plain.scale.hash(state);
    }
}

impl FromStr for Decimal {
    type Err = DecimalError;

    /// Reads `-12.50`, `7.21947119616E-7`, `4e+2`. No blanks, separators or currency signs.
    /// Digits behind the point are kept as delivered (`12.50` has scale 2).
    fn from_str(text: &str) -> Result<Decimal, DecimalError> {
        let bytes = text.as_bytes();
        let mut at = 0;
        let negative = match bytes.first() {
            Some(b'-') => {
                at = 1;
                true
            }
            Some(b'+') => {
                at = 1;
                false
            }
            _ => false,
        };
        let mut mantissa: i128 = 0;
        let mut digits = 0usize;
        let mut seen_digit = false;
        let mut seen_point = false;
        let mut scale: i64 = 0;
        while let Some(&byte) = bytes.get(at) {
            match byte {
                b'0'..=b'9' => {
                    seen_digit = true;
                    if mantissa != 0 || byte != b'0' {
                        digits += 1;
                    }
                    if digits > DECIMAL_DIGITS_MAX {
                        return Err(DecimalError::TooLong);
                    }
                    mantissa =
                        mantissa.checked_mul(10).and_then(|m| m.checked_add(i128::from(byte - b'0'))).ok_or(DecimalError::TooLong)?;
                    if seen_point {
                        scale += 1;
                    }
                }
                b'.' if !seen_point => seen_point = true,
                b'e' | b'E' => break,
                _ => return Err(DecimalError::NotANumber),
            }
            at += 1;
        }
        if !seen_digit {
            return Err(DecimalError::NotANumber);
        }
        if at < bytes.len() {
            let exponent_text = &text[at + 1..];
            if exponent_text.is_empty() || exponent_text.len() > 6 {
                return Err(DecimalError::NotANumber);
            }
            let exponent: i64 = exponent_text.parse().map_err(|_| DecimalError::NotANumber)?;
            scale -= exponent;
        }
        if negative {
            mantissa = -mantissa;
        }
        if mantissa == 0 {
            return Ok(Decimal { mantissa: 0, scale: scale.clamp(0, DECIMAL_DIGITS_MAX as i64) as u8 });
        }
        if scale < 0 {
            let factor = u32::try_from(-scale).ok().and_then(|s| 10i128.checked_pow(s)).ok_or(DecimalError::TooLong)?;
            mantissa = mantissa.checked_mul(factor).ok_or(DecimalError::TooLong)?;
            scale = 0;
        }
        while scale > DECIMAL_DIGITS_MAX as i64 {
            if mantissa % 10 != 0 {
                return Err(DecimalError::TooLong);
            }
            mantissa /= 10;
            scale -= 1;
        }
        Ok(Decimal { mantissa, scale: scale as u8 })
    }
}

impl fmt::Display for Decimal {
    /// Plain digits with every digit of the scale, no exponent.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let digits = self.mantissa.unsigned_abs().to_string();
        let scale = usize::from(self.scale);
        if self.mantissa < 0 {
            f.write_str("-")?;
        }
        if scale == 0 {
            return f.write_str(&digits);
        }
        if digits.len() > scale {
            let (whole, fraction) = digits.split_at(digits.len() - scale);
            write!(f, "{whole}.{fraction}")
        } else {
            write!(f, "0.{}{digits}", "0".repeat(scale - digits.len()))
        }
    }
}

impl Serialize for Decimal {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}
impl<'de> Deserialize<'de> for Decimal {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Decimal, D::Error> {
        let text = String::deserialize(deserializer)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}

/// Splits `total` over `weights` so that the parts sum to it exactly: every part is the weight's share
/// rounded towards zero, and the units left over go one each to the largest remainders, ties to the
/// earlier place. The caller therefore orders `weights` by the posting's key. The sign is kept.
///
/// Returns `None` when there are no weights above zero (there is nothing to put the total on).
pub fn split_largest_remainder(total: i128, weights: &[u128]) -> Option<Vec<i128>> {
    let mut sum: u128 = 0;
    let mut overflow = false;
    for weight in weights {
        match sum.checked_add(*weight) {
            Some(next) => sum = next,
            None => {
                overflow = true;
                break;
            }
        }
    }
    if overflow {
        let wide: Vec<BigUint> = weights.iter().map(|w| BigUint::from(*w)).collect();
        return split_largest_remainder_wide(total, &wide);
    }
    if sum == 0 {
        return None;
    }
    let magnitude = total.unsigned_abs();
    let mut parts = Vec::with_capacity(weights.len());
    let mut remainders: Vec<(u128, usize)> = Vec::with_capacity(weights.len());
    let mut placed: u128 = 0;
    for (at, weight) in weights.iter().enumerate() {
        let (quotient, remainder) = match magnitude.checked_mul(*weight) {
            Some(product) => (product / sum, product % sum),
            None => {
                let product = BigUint::from(magnitude) * BigUint::from(*weight);
                let wide_sum = BigUint::from(sum);
                (u128::try_from(&product / &wide_sum).ok()?, u128::try_from(product % wide_sum).ok()?)
            }
        };
        placed += quotient;
        parts.push(quotient as i128);
        remainders.push((remainder, at));
    }
    let left = (magnitude - placed) as usize;
    hand_out(&mut parts, remainders, left);
    if total < 0 {
        for part in &mut parts {
            *part = -*part;
        }
    }
    Some(parts)
}

/// The same split for weights beyond 128 bits.
pub fn split_largest_remainder_wide(total: i128, weights: &[BigUint]) -> Option<Vec<i128>> {
    let sum: BigUint = weights.iter().sum();
    if sum == BigUint::ZERO {
        return None;
    }
    let magnitude = BigUint::from(total.unsigned_abs());
    let mut parts = Vec::with_capacity(weights.len());
    let mut remainders = Vec::with_capacity(weights.len());
    let mut placed = BigUint::ZERO;
    for (at, weight) in weights.iter().enumerate() {
        let product = &magnitude * weight;
        let quotient = &product / &sum;
        remainders.push((product % &sum, at));
        parts.push(i128::try_from(&quotient).ok()?);
        placed += quotient;
    }
    let left = usize::try_from(&magnitude - &placed).ok()?;
    hand_out(&mut parts, remainders, left);
    if total < 0 {
        for part in &mut parts {
            *part = -*part;
        }
    }
    Some(parts)
}

fn hand_out<R: Ord>(parts: &mut [i128], mut remainders: Vec<(R, usize)>, left: usize) {
    remainders.sort_by(|a, b| b.0.cmp(&a.0).then(a.1.cmp(&b.1)));
    for (_, at) in remainders.into_iter().take(left) {
        parts[at] += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn reads_what_bills_hold_and_prints_it_plain() {
        for (text, plain) in [
            ("7.21947119616E-7", "0.000000721947119616"),
            ("4e+2", "400"),
            ("-0.50", "-0.50"),
            ("16.2969321366366446274854190000", "16.2969321366366446274854190000"),
            ("0", "0"),
            (".5", "0.5"),
            ("0E-10", "0.0000000000"),
        ] {
            assert_eq!(text.parse::<Decimal>().unwrap().to_string(), plain);
        }
        for text in ["", "-", "1,000", "$4", "1.2.3", "NaN", "inf", "1e", " 1", "0x1"] {
            assert_eq!(text.parse::<Decimal>(), Err(DecimalError::NotANumber), "{text}");
        }
        assert_eq!("1e99".parse::<Decimal>(), Err(DecimalError::TooLong));
        assert_eq!("0.1".parse::<Decimal>().unwrap(), Decimal::from_f64_shortest(0.1).unwrap());
    }

    proptest! {
        #[test]
        fn model_1_parts_sum_to_the_whole(total in any::<i64>(), weights in prop::collection::vec(0u64..1_000_000, 1..40)) {
            let weights: Vec<u128> = weights.into_iter().map(u128::from).collect();
            match split_largest_remainder(i128::from(total), &weights) {
                None => prop_assert!(weights.iter().all(|w| *w == 0)),
                Some(parts) => {
                    prop_assert_eq!(parts.iter().sum::<i128>(), i128::from(total));
                    let wide: Vec<BigUint> = weights.iter().map(|w| BigUint::from(*w)).collect();
                    prop_assert_eq!(split_largest_remainder_wide(i128::from(total), &wide).unwrap(), parts);
                }
            }
        }

        #[test]
        fn model_1_a_decimal_survives_its_text(mantissa in any::<i128>(), scale in 0u8..=38) {
            prop_assume!(mantissa.unsigned_abs() < 10u128.pow(38));
            let value = Decimal { mantissa, scale };
            let read: Decimal = value.to_string().parse().unwrap();
            prop_assert_eq!(read, value);
        }
    }
}
