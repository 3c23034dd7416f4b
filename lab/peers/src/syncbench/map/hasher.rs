//! The hash that all maps share.

use std::hash::{BuildHasher, Hasher};

/// A builder of [`Mixer`]s. The hash is cheap, so that the maps dominate the times; and good in the upper and in the
/// lower bits, as maps differ in the bits that they use.
#[derive(Clone, Copy, Default, Debug)]
pub struct Mix;

/// The finaliser of splitmix64. A single multiplication would not suffice: the upper bits of the product hardly differ
/// between neighbouring keys, and that makes some maps a hundred times slower.
#[derive(Debug)]
pub struct Mixer(u64);

impl BuildHasher for Mix {
    type Hasher = Mixer;

    #[inline]
    fn build_hasher(&self) -> Mixer {
        Mixer(0)
    }
}

impl Hasher for Mixer {
    #[inline]
    fn write_u64(&mut self, n: u64) {
        let mut x = self.0 ^ n;
        x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        self.0 = x ^ (x >> 31);
    }

    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|&byte| self.write_u64(byte.into()));
    }

    #[inline]
    fn finish(&self) -> u64 {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    /// Expects about 63 in 100 places to be taken, when keys fall into as many places as there are keys.
    #[test]
    fn the_upper_bits_and_the_lower_ones_are_spread() {
        let hashes = || (0..1024_u64).map(|key| Mix.hash_one(key));
        for (what, places) in [
            ("upper", hashes().map(|hash| hash >> 54).collect::<HashSet<_>>()),
            ("lower", hashes().map(|hash| hash & 1023).collect()),
        ] {
            assert!((580..=720).contains(&places.len()), "{what}: {}", places.len());
        }
        assert_eq!(hashes().collect::<HashSet<_>>().len(), 1024);
    }
}
