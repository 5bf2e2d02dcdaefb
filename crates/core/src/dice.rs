//! Chance, for jitter and samples: core is told a seed and throws no dice of its own.

/// A small generator of pseudo-random numbers (SplitMix64): the same seed gives the same numbers
/// everywhere. Not for secrets: whoever sees a few numbers knows all others.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Dice {
    state: u64,
}

impl Dice {
    /// Dice that fall as `seed` says; any seed is as good as another.
    pub fn new(seed: u64) -> Self {
        Self { state: seed }
    }

    /// 64 random bits.
    pub fn next_u64(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.state;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number from 0 up to but not including `n`, each as likely as the others; 0 if `n` is 0.
    pub fn below(&mut self, n: u64) -> u64 {
        if n == 0 {
            return 0;
        }
        // The high half of a 128-bit product (Lemire): the few low halves that would make some numbers
        // likelier are thrown again, which at worst happens every other time.
        let unfair = n.wrapping_neg() % n;
        loop {
            let product = u128::from(self.next_u64()) * u128::from(n);
            let (high, low) = ((product >> 64) as u64, product as u64);
            if low >= unfair {
                return high;
            }
        }
    }

    /// A number from 0 up to but not including 1.
    pub fn fraction(&mut self) -> f64 {
        // The 53 bits that a float holds exactly.
        (self.next_u64() >> 11) as f64 / (1_u64 << 53) as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_numbers_are_those_of_splitmix64() {
        let mut dice = Dice::new(1_234_567);
        let numbers: Vec<u64> = (0..5).map(|_| dice.next_u64()).collect();
        assert_eq!(
            numbers,
            [
                6_457_827_717_110_365_317,
                3_203_168_211_198_807_973,
                9_817_491_932_198_370_423,
                4_593_380_528_125_082_431,
                16_408_922_859_458_223_821
            ]
        );
    }

    #[test]
    fn every_side_falls_about_as_often() {
        let mut dice = Dice::new(7);
        let mut sides = [0_u32; 6];
        (0..60_000).for_each(|_| sides[usize::try_from(dice.below(6)).unwrap()] += 1);
        // Six standard deviations; the seed is fixed, so this cannot be bad luck.
        assert!(sides.iter().all(|n| n.abs_diff(10_000) < 550), "{sides:?}");
    }

    proptest! {
        #[test]
        fn numbers_stay_in_their_range(seed: u64, n: u64) {
            let mut dice = Dice::new(seed);
            prop_assert!(dice.below(n) < n.max(1));
            prop_assert!(dice.below(n % 10) < (n % 10).max(1));
            let fraction = dice.fraction();
            prop_assert!((0.0..1.0).contains(&fraction));
        }
    }
}
