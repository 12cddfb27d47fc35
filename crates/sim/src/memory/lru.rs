//! In which order the ways of sets were used.

/// Ways whose order fits into a word, four bits each.
const IN_WORD: usize = 16;

/// The same number in all places of a word.
const EVERYWHERE: u64 = 0x1111_1111_1111_1111;

/// Ways by number, the first in the lowest place.
const COUNTED: u64 = 0xfedc_ba98_7654_3210;

/// True LRU: of each set the ways from the last used to the one that was not used for longest.
#[derive(Debug, Clone)]
pub(super) enum Lru {
    /// Few ways: a word a set, the last used in its lowest four bits. Places behind the last way stay as they are.
    Words {
        /// By set.
        orders: Box<[u64]>,
        /// Where the oldest is in a word, in bits.
        last: u32,
    },
    /// Many ways: a list a set.
    Lists {
        /// Set by set.
        orders: Box<[u32]>,
        /// How long a list is.
        ways: usize,
    },
}

impl Lru {
    /// Sets of `ways` ways, at least one. The way with the highest number is taken first.
    pub fn new(sets: usize, ways: usize) -> Self {
        if ways <= IN_WORD {
            Lru::Words {
                orders: vec![COUNTED; sets].into(),
                last: 4 * (ways as u32 - 1),
            }
        } else {
            let orders = (0..sets).flat_map(|_| 0..ways as u32).collect();
            Lru::Lists { orders, ways }
        }
    }

    /// A way is used.
    #[inline(always)]
    pub fn touch(&mut self, set: usize, way: usize) {
        match self {
            Lru::Words { orders, .. } => {
                let order = &mut orders[set];
                // The lowest place that holds it is where a borrow comes from first.
                let other = *order ^ (EVERYWHERE * way as u64);
                let found = other.wrapping_sub(EVERYWHERE) & !other & EVERYWHERE << 3;
                *order = to_front(*order, found.trailing_zeros() & !3);
            }
            Lru::Lists { orders, ways } => {
                let list = &mut orders[set * *ways..][..*ways];
                if let Some(place) = list.iter().position(|its| *its as usize == way) {
                    list[..=place].rotate_right(1);
                }
            }
        }
    }

    /// The way that was not used for longest; it is used now.
    #[inline(always)]
    pub fn replace(&mut self, set: usize) -> usize {
        match self {
            Lru::Words { orders, last } => {
                let order = &mut orders[set];
                *order = to_front(*order, *last);
                (*order & 15) as usize
            }
            Lru::Lists { orders, ways } => {
                let list = &mut orders[set * *ways..][..*ways];
                list.rotate_right(1);
                list[0] as usize
            }
        }
    }

    /// Of some ways, bit n for way n, the one that was not used for longest; it is used now. If there is none of them, it is
    /// the oldest of all.
    #[cold]
    pub fn replace_within(&mut self, set: usize, ways: u32) -> usize {
        let is_in = |way: usize| way < 32 && ways >> way & 1 == 1;
        let found = match self {
            Lru::Words { orders, last } => {
                let order = orders[set];
                let places = (0..=*last / 4).rev();
                places
                    .map(|place| (order >> (4 * place) & 15) as usize)
                    .find(|way| is_in(*way))
            }
            Lru::Lists { orders, ways } => {
                let list = orders[set * *ways..][..*ways].iter().rev();
                list.map(|way| *way as usize).find(|way| is_in(*way))
            }
        };
        let Some(way) = found else {
            return self.replace(set);
        };
        self.touch(set, way);
        way
    }

    /// A way is the first to be taken, as if it had never been used.
    pub fn retire(&mut self, set: usize, way: usize) {
        self.touch(set, way);
        match self {
            Lru::Words { orders, last } => {
                let order = &mut orders[set];
                let used = !(u64::MAX << *last << 4);
                *order = *order & !used | (*order & used) >> 4 | (way as u64) << *last;
            }
            Lru::Lists { orders, ways } => orders[set * *ways..][..*ways].rotate_left(1),
        }
    }
}

/// An order with what is in the place that begins at bit `at` moved to the front.
#[inline]
fn to_front(order: u64, at: u32) -> u64 {
    let moved = !(u64::MAX << at << 4);
    order & !moved | order << 4 & moved | order >> at & 15
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// Words and lists say what a plain list says.
        #[test]
        fn the_order_is_that_of_a_list(
            ways in 1usize..24,
            steps in proptest::collection::vec((0usize..3, 0u8..4, 0usize..24), 1..200),
            within in 1u32..1 << 24,
        ) {
            let mut lru = Lru::new(3, ways);
            let mut lists = vec![(0..ways).collect::<Vec<_>>(); 3];
            for (set, what, way) in steps {
                let (list, way) = (&mut lists[set], way % ways);
                match what {
                    0 => {
                        lru.touch(set, way);
                        list.retain(|its| *its != way);
                        list.insert(0, way);
                    }
                    1 => {
                        list.rotate_right(1);
                        prop_assert_eq!(lru.replace(set), list[0]);
                    }
                    2 => {
                        let oldest = list.iter().rposition(|its| within >> its & 1 == 1);
                        let taken = list.remove(oldest.unwrap_or(ways - 1));
                        list.insert(0, taken);
                        prop_assert_eq!(lru.replace_within(set, within), taken);
                    }
                    _ => {
                        lru.retire(set, way);
                        list.retain(|its| *its != way);
                        list.push(way);
                    }
                }
            }
        }
    }
}
