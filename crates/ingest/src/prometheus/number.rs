//! Numbers as sources write them, exactly: digits and a power of ten, never a float that drifts.

/// A finite number as written: `mantissa * 10^exponent`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Exact {
    /// Below zero.
    pub is_negative: bool,
    /// Significant digits as an integer; at most 24 digits are kept, more would change no step.
    pub mantissa: u128,
    /// Power of ten.
    pub exponent: i32,
}

/// What a value's text is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Number {
    /// A finite number.
    Finite(Exact),
    /// `NaN`.
    NotANumber,
    /// `+Inf` or `-Inf`.
    Infinite,
}

/// Digits kept: with six decimals of scaling and a factor of 10^6 the product stays below 10^38.
const MANTISSA_DIGITS: u32 = 24;
/// Exponents are clamped here; anything near it is far out of every range anyway.
const EXPONENT_LIMIT: i32 = 5_000;

impl Number {
    /// Reads decimal text with an optional exponent (`e+011` included), `NaN` and `Inf` in any case.
    pub fn parse(text: &[u8]) -> Option<Number> {
        let (is_negative, body) = match text.first()? {
            b'-' => (true, text.get(1..)?),
            b'+' => (false, text.get(1..)?),
            _ => (false, text),
        };
        let mut mantissa: u128 = 0;
        let mut kept = 0u32;
        let mut exponent: i32 = 0;
        let mut digits = 0usize;
        let mut is_fraction = false;
        let mut at = 0usize;
        while let Some(&byte) = body.get(at) {
            match byte {
                b'0'..=b'9' => {
                    digits += 1;
                    if kept < MANTISSA_DIGITS {
                        mantissa = mantissa * 10 + u128::from(byte - b'0');
                        kept += u32::from(mantissa != 0);
                        exponent -= i32::from(is_fraction);
                    } else {
                        exponent += i32::from(!is_fraction);
                    }
                }
                b'.' if !is_fraction => is_fraction = true,
                _ => break,
            }
            at += 1;
            if at > 2_000 {
                return None;
            }
        }
        if digits == 0 {
            return word(body);
        }
        let power = match body.get(at) {
            None => 0,
            Some(b'e' | b'E') => read_exponent(body.get(at + 1..)?)?,
            Some(_) => return None,
        };
        Some(Number::Finite(Exact { is_negative, mantissa, exponent: exponent.saturating_add(power) }))
    }

    /// The number a float stands for: its shortest decimal text that reads back as the same float.
    pub fn from_f64(value: f64) -> Number {
        if value.is_nan() {
            Number::NotANumber
        } else if value.is_infinite() {
            Number::Infinite
        } else {
            Number::parse(format!("{value:e}").as_bytes()).unwrap_or(Number::NotANumber)
        }
    }
}

fn word(body: &[u8]) -> Option<Number> {
    if body.eq_ignore_ascii_case(b"nan") {
        Some(Number::NotANumber)
    } else if body.eq_ignore_ascii_case(b"inf") || body.eq_ignore_ascii_case(b"infinity") {
        Some(Number::Infinite)
    } else {
        None
    }
}

fn read_exponent(text: &[u8]) -> Option<i32> {
    let (sign, digits) = match text.first()? {
        b'-' => (-1, text.get(1..)?),
        b'+' => (1, text.get(1..)?),
        _ => (1, text),
    };
    if digits.is_empty() || digits.len() > 20 {
        return None;
    }
    let mut value: i32 = 0;
    for &byte in digits {
        if !byte.is_ascii_digit() {
            return None;
        }
        value = (value * 10 + i32::from(byte - b'0')).min(EXPONENT_LIMIT);
    }
    Some(sign * value)
}

impl Exact {
    /// A whole number.
    pub fn from_i64(value: i64) -> Exact {
        Exact { is_negative: value < 0, mantissa: u128::from(value.unsigned_abs()), exponent: 0 }
    }

    /// The value as a whole number, if it is one and fits.
    pub fn as_integer(&self) -> Option<u128> {
        if self.mantissa == 0 {
            return Some(0);
        }
        if self.exponent >= 0 {
            return 10u128.checked_pow(self.exponent.unsigned_abs())?.checked_mul(self.mantissa);
        }
        let divisor = 10u128.checked_pow(self.exponent.unsigned_abs())?;
        self.mantissa.is_multiple_of(divisor).then(|| self.mantissa / divisor)
    }

    /// Milliseconds of a number of seconds or milliseconds, rounded half up.
    pub fn times_power_of_ten(&self, power: i32) -> Option<i64> {
        let shifted = Exact { exponent: self.exponent.saturating_add(power), ..*self };
        let value = Scale { numerator: 1, denominator: 1, steps_per_unit: 1 }.steps(&shifted)?;
        Some(if self.is_negative { -value } else { value })
    }
}

/// From a source's number to steps of a field: `number * numerator / denominator * steps_per_unit`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Scale {
    /// Numerator of source unit over canonical unit.
    pub numerator: u64,
    /// Denominator, above zero.
    pub denominator: u64,
    /// Steps of the stored integer in one canonical unit.
    pub steps_per_unit: u64,
}

impl Scale {
    /// The magnitude in steps, rounded half up; `None` if it does not fit.
    pub fn steps(&self, number: &Exact) -> Option<i64> {
        let product = number.mantissa.checked_mul(u128::from(self.numerator))?.checked_mul(u128::from(self.steps_per_unit))?;
        if product == 0 {
            return Some(0);
        }
        let power = number.exponent.unsigned_abs();
        let (over, under) = if number.exponent >= 0 {
            (10u128.checked_pow(power)?.checked_mul(product)?, u128::from(self.denominator))
        } else {
            let tens = 10u128.checked_pow(power).and_then(|tens| tens.checked_mul(u128::from(self.denominator)));
            match tens {
                Some(under) => (product, under),
                // The divisor is above 10^38 and the product below: less than half a step.
                None => return Some(0),
            }
        };
        let (quotient, rest) = (over / under, over % under);
        let rounded = if rest >= under - rest { quotient.checked_add(1)? } else { quotient };
        i64::try_from(rounded).ok()
    }

    /// Steps of a float that is not negative and below 2^31, when float arithmetic cannot round it
    /// otherwise than [`Scale::steps`] of its shortest text would; `None` sends the caller there.
    pub fn quick_steps(&self, value: f64) -> Option<i64> {
        // Within 2^43 the product's error stays below 2^-8, so only values that near a half are unsure.
        const SAFE: f64 = (1u64 << 43) as f64;
        const NEAR_HALF: f64 = 1.0 / 256.0;
        let steps = value * (self.numerator as f64) * (self.steps_per_unit as f64) / (self.denominator as f64);
        if !(0.0..SAFE).contains(&steps) {
            return None;
        }
        let floor = steps.floor();
        let fraction = steps - floor;
        if (fraction - 0.5).abs() < NEAR_HALF {
            return None;
        }
        Some(floor as i64 + i64::from(fraction > 0.5))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const MICRO: Scale = Scale { numerator: 1, denominator: 1, steps_per_unit: 1_000_000 };

    fn steps(text: &str, scale: Scale) -> Option<i64> {
        match Number::parse(text.as_bytes())? {
            Number::Finite(number) => scale.steps(&number),
            _ => None,
        }
    }

    #[test]
    fn spellings_of_one_number_give_one_integer() {
        for text in ["0.156205", "0.1562050", "1.56205e-1", "156205E-06", "+.156205", "15.6205e-002"] {
            assert_eq!(steps(text, MICRO), Some(156_205), "{text}");
        }
        let milli = Scale { numerator: 1, denominator: 1_000, steps_per_unit: 1_000_000 };
        assert_eq!(steps("15152422938", milli), Some(15_152_422_938_000));
        assert_eq!(steps("1.5152422938e+010", milli), Some(15_152_422_938_000));
        assert_eq!(steps("0.0000005", MICRO), Some(1));
        assert_eq!(steps("0.00000049999999999999999999999999", MICRO), Some(0));
        assert_eq!(steps("1e-4000", MICRO), Some(0));
        assert_eq!(steps("1e400", MICRO), None);
        assert_eq!(steps("0e999999999999", MICRO), Some(0));
        for text in ["", "-", ".", "1e", "1e+", "0x10", "1_000", "12abc", "N/A", "1.2.3"] {
            assert_eq!(Number::parse(text.as_bytes()), None, "{text}");
        }
        assert_eq!(Number::parse(b"NaN"), Some(Number::NotANumber));
        assert_eq!(Number::parse(b"-Inf"), Some(Number::Infinite));
    }

    proptest! {
        #[test]
        fn floats_and_their_texts_agree(value in 0.0f64..2.0e9, denominator in prop::sample::select(vec![1u64, 100, 1_000, 1_000_000, 1_000_000_000])) {
            let scale = Scale { numerator: 1, denominator, steps_per_unit: 1_000_000 };
            let Number::Finite(exact) = Number::from_f64(value) else { panic!("finite") };
            if let Some(quick) = scale.quick_steps(value) {
                prop_assert_eq!(Some(quick), scale.steps(&exact));
            }
        }

        #[test]
        fn decimals_of_six_places_survive_a_float(steps in 0i64..4_000_000_000) {
            let text = format!("{}.{:06}", steps / 1_000_000, steps % 1_000_000);
            let value: f64 = text.parse().unwrap();
            let Number::Finite(exact) = Number::from_f64(value) else { panic!("finite") };
            prop_assert_eq!(MICRO.steps(&exact), Some(steps));
            if let Some(quick) = MICRO.quick_steps(value) {
                prop_assert_eq!(quick, steps);
            }
        }

        #[test]
        fn arbitrary_text_is_read_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..60)) {
            if let Some(Number::Finite(exact)) = Number::parse(&bytes) {
                let _ = MICRO.steps(&exact);
                let _ = exact.as_integer();
            }
        }
    }
}
