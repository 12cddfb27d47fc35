//! Draws distances of dependencies from any distribution in constant time: the alias method (Walker, An efficient method
//! for generating discrete random variables with general distributions, ACM TOMS 3, 1977; the table as in Vose, IEEE TSE
//! 17, 1991). `rand_distr` has it too, but draws several numbers, where one draw has to fit into the bits that a stream's
//! number has left.

use crate::workload::FURTHEST;

const PLACES: usize = FURTHEST as usize + 1;

/// Bits of a number that decide within a place.
const WITHIN: u32 = 14;

/// Bits of a random number that one draw needs.
pub const BITS: u32 = PLACES.ilog2() + WITHIN;

/// A place holds a distance, its own number, and part of another one.
#[derive(Debug, Clone, Copy, Default)]
struct Place {
    /// The own distance is drawn while the lower bits are below.
    below: u16,
    other: u16,
}

/// The distribution.
#[derive(Debug, Clone)]
pub struct Distances(Box<[Place; PLACES]>);

impl Distances {
    /// Of the share of each distance; they add up to 1.
    pub fn new(shares: &[f64]) -> Self {
        let mut left = [0.0; PLACES];
        for (left, share) in left.iter_mut().zip(shares) {
            *left = share * PLACES as f64;
        }
        let mut places = [Place::default(); PLACES];
        let (mut poor, mut rich): (Vec<usize>, Vec<usize>) =
            (0..PLACES).partition(|at| left[*at] < 1.0);
        while let Some(most) = rich.last().copied() {
            let Some(least) = poor.pop() else {
                break;
            };
            places[least] = Place {
                below: (left[least] * f64::from(1u32 << WITHIN)).round() as u16,
                other: most as u16,
            };
            left[most] -= 1.0 - left[least];
            if left[most] < 1.0 {
                rich.pop();
                poor.push(most);
            }
        }
        // What is left over is 1 but for rounding.
        for at in poor.into_iter().chain(rich) {
            places[at] = Place {
                below: 1 << WITHIN,
                other: at as u16,
            };
        }
        Self(Box::new(places))
    }

    /// The distance of [`BITS`] random bits.
    #[inline]
    pub fn draw(&self, bits: u64) -> u16 {
        let own = (bits >> WITHIN) as usize % PLACES;
        let place = self.0[own];
        match bits & ((1 << WITHIN) - 1) < u64::from(place.below) {
            true => own as u16,
            false => place.other,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// All numbers that can be drawn, counted.
        #[test]
        fn each_distance_has_its_share(weights in prop::collection::vec(0.0f64..1.0, PLACES), zero in 0usize..PLACES) {
            let mut weights = weights;
            weights[zero] = 0.0;
            let all: f64 = weights.iter().sum();
            prop_assume!(all > 0.0);
            let shares: Vec<f64> = weights.iter().map(|weight| weight / all).collect();
            let distances = Distances::new(&shares);
            let mut counted = [0u64; PLACES];
            for bits in 0..1u64 << BITS {
                counted[usize::from(distances.draw(bits))] += 1;
            }
            for (count, share) in counted.iter().zip(&shares) {
                let found = *count as f64 / (1u64 << BITS) as f64;
                prop_assert!((found - share).abs() < 1e-4, "{found} {share}");
            }
            prop_assert_eq!(counted[zero], 0);
        }
    }
}
