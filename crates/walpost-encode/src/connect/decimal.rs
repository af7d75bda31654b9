use std::fmt;

/// A decimal number with as many digits as it takes: an integer, and how many
/// of its digits stand behind the point.
///
/// `Debug` shows its size, not the number.
#[derive(Clone, PartialEq, Eq)]
pub struct Decimal {
    is_negative: bool,
    /// Of the integer, without leading zeros; `0` alone.
    digits: String,
    scale: i32,
}

impl Decimal {
    /// Reads digits with at most one point and one sign, as PostgreSQL writes
    /// `numeric`; the scale is that of the text. `None` for anything else.
    pub fn parse(text: &str) -> Option<Self> {
        let (is_negative, unsigned) = match text.strip_prefix('-') {
            Some(rest) => (true, rest),
            None => (false, text),
        };
        let (integer, fraction) = unsigned.split_once('.').unwrap_or((unsigned, ""));
        let all = format!("{integer}{fraction}");
        if all.is_empty() || !all.bytes().all(|digit| digit.is_ascii_digit()) {
            return None;
        }
        Some(Self::from_digits(is_negative, &all, i32::try_from(fraction.len()).ok()?))
    }

    fn from_digits(is_negative: bool, digits: &str, scale: i32) -> Self {
        let digits = match digits.trim_start_matches('0') {
            "" => "0",
            digits => digits,
        };
        Self { is_negative: is_negative && digits != "0", digits: digits.to_owned(), scale }
    }

    /// Digits behind the point.
    pub fn scale(&self) -> i32 {
        self.scale
    }

    /// How many digits it has in all.
    #[cfg(feature = "avro")]
    pub(crate) fn precision(&self) -> usize {
        self.digits.len()
    }

    /// The same number with this scale; `None` if digits would be lost.
    #[must_use]
    pub fn with_scale(&self, scale: i32) -> Option<Self> {
        let digits = if scale >= self.scale {
            let more = if self.digits == "0" { 0 } else { scale.checked_sub(self.scale)? };
            format!("{}{}", self.digits, "0".repeat(usize::try_from(more).ok()?))
        } else {
            let less = usize::try_from(self.scale.checked_sub(scale)?).ok()?;
            let kept = self.digits.len().saturating_sub(less);
            let (kept, lost) = self.digits.split_at(kept);
            if lost.bytes().any(|digit| digit != b'0') {
                return None;
            }
            kept.to_owned()
        };
        Some(Self::from_digits(self.is_negative, &digits, scale))
    }

    /// The same number with this scale, rounded half away from zero.
    #[must_use]
    pub fn rounded(&self, scale: i32) -> Self {
        if let Some(exact) = self.with_scale(scale) {
            return exact;
        }
        let less = (self.scale - scale).unsigned_abs() as usize;
        let padded = format!("{:0>width$}", self.digits, width = less + 1);
        let (kept, lost) = padded.split_at(padded.len() - less);
        let kept = if lost.as_bytes()[0] >= b'5' { increment(kept) } else { kept.to_owned() };
        Self::from_digits(self.is_negative, &kept, scale)
    }

    /// The same number without zeros at its end: behind the point only, so that
    /// the scale does not fall below 0.
    #[must_use]
    pub fn normalized(&self) -> Self {
        if self.digits == "0" {
            return Self::from_digits(false, "0", 0);
        }
        if self.scale < 0 {
            return self.with_scale(0).unwrap_or_else(|| self.clone());
        }
        let zeros = self.digits.len() - self.digits.trim_end_matches('0').len();
        let zeros = zeros.min(usize::try_from(self.scale).unwrap_or(0));
        let digits = &self.digits[..self.digits.len() - zeros];
        Self::from_digits(self.is_negative, digits, self.scale - zeros as i32)
    }

    /// The number times ten to that power.
    #[must_use]
    pub(crate) fn shifted(&self, exponent: i32) -> Self {
        Self { scale: self.scale - exponent, ..self.clone() }
    }

    /// The same number without the digits behind that many.
    #[must_use]
    pub(crate) fn truncated(&self, scale: i32) -> Self {
        if self.scale <= scale {
            return self.clone();
        }
        let less = (self.scale - scale) as usize;
        let kept = &self.digits[..self.digits.len().saturating_sub(less)];
        Self::from_digits(self.is_negative, kept, scale)
    }

    /// The integer as two's complement, most significant byte first, in as few
    /// bytes as hold it.
    pub fn unscaled_bytes(&self) -> Vec<u8> {
        let mut bytes = magnitude(&self.digits);
        if bytes.first().is_none_or(|first| *first >= 0x80) {
            bytes.insert(0, 0);
        }
        if self.is_negative {
            negate(&mut bytes);
            while matches!(bytes.as_slice(), [0xff, second, ..] if *second >= 0x80) {
                bytes.remove(0);
            }
        }
        bytes
    }

    /// Without an exponent.
    pub fn plain(&self) -> String {
        let sign = if self.is_negative { "-" } else { "" };
        match usize::try_from(self.scale) {
            Ok(0) => format!("{sign}{}", self.digits),
            Ok(scale) => {
                let digits = format!("{:0>width$}", self.digits, width = scale + 1);
                let (integer, fraction) = digits.split_at(digits.len() - scale);
                format!("{sign}{integer}.{fraction}")
            }
            Err(_) if self.digits == "0" => "0".to_owned(),
            Err(_) => {
                let zeros = "0".repeat(self.scale.unsigned_abs() as usize);
                format!("{sign}{}{zeros}", self.digits)
            }
        }
    }

    /// As Java's `BigDecimal.toString` has it: with an exponent where the scale
    /// is negative or more than six digits lie between point and number.
    pub fn java(&self) -> String {
        let exponent = self.digits.len() as i64 - 1 - i64::from(self.scale);
        if self.scale >= 0 && exponent >= -6 {
            return self.plain();
        }
        let sign = if self.is_negative { "-" } else { "" };
        let (first, rest) = self.digits.split_at(1);
        let point = if rest.is_empty() { "" } else { "." };
        let plus = if exponent >= 0 { "+" } else { "" };
        if exponent == 0 {
            return format!("{sign}{first}{point}{rest}");
        }
        format!("{sign}{first}{point}{rest}E{plus}{exponent}")
    }

    /// The nearest floating-point number.
    pub fn to_f64(&self) -> f64 {
        let sign = if self.is_negative { "-" } else { "" };
        let text = format!("{sign}{}e{}", self.digits, -i64::from(self.scale));
        text.parse().unwrap_or(f64::NAN)
    }
}

impl fmt::Debug for Decimal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Decimal({} digits)", self.digits.len())
    }
}

fn increment(digits: &str) -> String {
    let mut digits = digits.as_bytes().to_vec();
    for digit in digits.iter_mut().rev() {
        if *digit < b'9' {
            *digit += 1;
            return String::from_utf8_lossy(&digits).into_owned();
        }
        *digit = b'0';
    }
    format!("1{}", String::from_utf8_lossy(&digits))
}

/// Digits to base 256, most significant first, without leading zeros.
fn magnitude(digits: &str) -> Vec<u8> {
    // Least significant limb first.
    let mut limbs: Vec<u32> = Vec::new();
    for chunk in digits.as_bytes().chunks(9) {
        let shift = 10_u64.pow(chunk.len() as u32);
        let mut carry = chunk.iter().fold(0, |sum, digit| sum * 10 + u64::from(digit - b'0'));
        for limb in &mut limbs {
            let product = u64::from(*limb) * shift + carry;
            *limb = product as u32;
            carry = product >> 32;
        }
        if carry > 0 {
            limbs.push(carry as u32);
        }
    }
    let bytes: Vec<u8> = limbs.iter().rev().flat_map(|limb| limb.to_be_bytes()).collect();
    let zeros = bytes.iter().take_while(|byte| **byte == 0).count();
    bytes[zeros..].to_vec()
}

/// Two's complement of the negative number.
fn negate(bytes: &mut [u8]) {
    let mut carry = true;
    for byte in bytes.iter_mut().rev() {
        let (sum, overflowed) = (!*byte).overflowing_add(u8::from(carry));
        *byte = sum;
        carry = overflowed;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decimal(text: &str) -> Decimal {
        Decimal::parse(text).unwrap()
    }

    #[test]
    fn the_integer_is_twos_complement_in_as_few_bytes_as_hold_it() {
        let cases: [(&str, &[u8]); 11] = [
            ("0", &[0]),
            ("1", &[1]),
            ("-1", &[0xff]),
            ("127", &[0x7f]),
            ("128", &[0, 0x80]),
            ("-128", &[0x80]),
            ("-129", &[0xff, 0x7f]),
            ("12.30", &[0x04, 0xce]),
            ("-256", &[0xff, 0]),
            ("4294967296", &[1, 0, 0, 0, 0]),
            ("18446744073709551616000", &[0x03, 0xe8, 0, 0, 0, 0, 0, 0, 0, 0]),
        ];
        for (text, expected) in cases {
            assert_eq!(decimal(text).unscaled_bytes(), expected, "{text}");
        }
    }

    #[test]
    fn what_is_no_decimal_is_told() {
        for text in ["", "-", ".", "1e5", "NaN", "1.2.3", "+1", "1 "] {
            assert_eq!(Decimal::parse(text), None, "{text:?}");
        }
    }

    #[test]
    fn scales_change_without_loss_or_by_rounding() {
        assert_eq!(decimal("1.5").with_scale(3), Some(decimal("1.500")));
        assert_eq!(decimal("1.500").with_scale(1), Some(decimal("1.5")));
        assert_eq!(decimal("1.55").with_scale(1), None);
        assert_eq!(decimal("0").with_scale(2), Some(decimal("0.00")));
        assert_eq!(decimal("1.55").rounded(1), decimal("1.6"));
        assert_eq!(decimal("-9.95").rounded(1), decimal("-10.0"));
        assert_eq!(decimal("0.04").rounded(1), decimal("0.0"));
        assert_eq!(decimal("0.6").rounded(0), decimal("1"));
        assert_eq!(decimal("1200.00").normalized(), decimal("1200"));
        assert_eq!(decimal("0.000").normalized(), decimal("0"));
        assert_eq!(decimal("1.10").normalized(), decimal("1.1"));
    }

    #[test]
    fn text_is_plain_or_as_in_java() {
        let cases = [
            ("12.30", "12.30", "12.30"),
            ("0.000001", "0.000001", "0.000001"),
            ("0.0000001", "0.0000001", "1E-7"),
            ("-0.00000012", "-0.00000012", "-1.2E-7"),
            ("0.00000000", "0.00000000", "0E-8"),
            ("-0.0", "0.0", "0.0"),
        ];
        for (text, plain, java) in cases {
            assert_eq!(decimal(text).plain(), plain, "{text}");
            assert_eq!(decimal(text).java(), java, "{text}");
        }
        assert_eq!(decimal("-0.1").to_f64(), -0.1);
    }
}
