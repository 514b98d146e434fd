//! Seeded chance. **SIM-1**: one seed, one world; every stream is a function of the seed and a number of its own.

use rand_pcg::Pcg32;
use rand_pcg::rand_core::Rng;

/// A stream of chance.
#[derive(Clone, Debug)]
pub struct Chance(Pcg32);

impl Chance {
    /// The stream of a seed and a number.
    pub fn new(seed: u64, stream: u64) -> Chance {
        let mut own = Chance(Pcg32::new(seed ^ 0x9e37_79b9_7f4a_7c15, stream));
        // Neighbouring seeds start near each other; a few steps part them.
        for _ in 0..8 {
            own.0.next_u32();
        }
        own
    }

    /// A number in `0..bound`; 0 for a bound of 0.
    pub fn below(&mut self, bound: u32) -> u32 {
        ((u64::from(self.0.next_u32()) * u64::from(bound)) >> 32) as u32
    }

    /// A number in `low..=high`.
    pub fn between(&mut self, low: i64, high: i64) -> i64 {
        let span = u32::try_from(high.saturating_sub(low)).unwrap_or(0).saturating_add(1);
        low + i64::from(self.below(span))
    }

    /// True in so many cases of a hundred.
    pub fn percent(&mut self, percent: u32) -> bool {
        self.below(100) < percent
    }

    /// One of a list that is not empty.
    pub fn pick<'a, T>(&mut self, from: &'a [T]) -> &'a T {
        &from[self.below(from.len() as u32) as usize]
    }

    /// So many lower-case hexadecimal digits.
    pub fn hex(&mut self, digits: usize) -> String {
        const DIGITS: &[u8; 16] = b"0123456789abcdef";
        (0..digits).map(|_| DIGITS[self.below(16) as usize] as char).collect()
    }

    /// A random UUID's text.
    pub fn uuid(&mut self) -> String {
        format!("{}-{}-4{}-a{}-{}", self.hex(8), self.hex(4), self.hex(3), self.hex(3), self.hex(12))
    }

    /// The list in another order.
    pub fn shuffle<T>(&mut self, list: &mut [T]) {
        for at in (1..list.len()).rev() {
            list.swap(at, self.below(at as u32 + 1) as usize);
        }
    }

    /// A raw number, for noise.
    pub fn number(&mut self) -> u32 {
        self.0.next_u32()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sim_1_a_stream_is_a_function_of_seed_and_number() {
        let draw = |seed, stream| (0..4).map(|_| Chance::new(seed, stream).number()).collect::<Vec<_>>();
        assert_eq!(draw(7, 1), draw(7, 1));
        assert_ne!(draw(7, 1), draw(8, 1));
        assert_ne!(draw(7, 1), draw(7, 2));
        let mut chance = Chance::new(1, 1);
        assert!((0..1000).all(|_| (3..=9).contains(&chance.between(3, 9))));
        assert_eq!(chance.uuid().len(), 36);
    }
}
