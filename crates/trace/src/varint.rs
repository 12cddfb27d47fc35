//! Whole numbers in as few bytes as they need: seven bits a byte, the lowest first, the highest bit set where more follow.

/// Appends a number.
#[inline]
pub(crate) fn put(bytes: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        bytes.push(number as u8 | 0x80);
        number >>= 7;
    }
    bytes.push(number as u8);
}

/// Appends a difference: small ones of either sign are short.
#[inline]
pub(crate) fn put_signed(bytes: &mut Vec<u8>, number: i64) {
    put(bytes, ((number << 1) ^ (number >> 63)) as u64);
}

/// Takes a number off the front at `at`; `None` if the bytes end within it or it has more than 64 bits.
#[inline]
pub(crate) fn get(bytes: &[u8], at: &mut usize) -> Option<u64> {
    let first = *bytes.get(*at)?;
    *at += 1;
    if first < 0x80 {
        return Some(u64::from(first));
    }
    let mut number = u64::from(first & 0x7f);
    let mut shift = 7;
    loop {
        let byte = *bytes.get(*at)?;
        *at += 1;
        let bits = u64::from(byte & 0x7f);
        if shift == 63 && bits > 1 {
            return None;
        }
        number |= bits << shift;
        if byte < 0x80 {
            return Some(number);
        }
        shift += 7;
        if shift > 63 {
            return None;
        }
    }
}

/// Takes a difference off the front at `at`.
#[inline]
pub(crate) fn get_signed(bytes: &[u8], at: &mut usize) -> Option<i64> {
    let number = get(bytes, at)?;
    Some((number >> 1) as i64 ^ -((number & 1) as i64))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn numbers_come_back(numbers in proptest::collection::vec((any::<u64>(), 0u32..64, any::<i64>()), 0..20)) {
            let mut bytes = Vec::new();
            for (number, shift, signed) in &numbers {
                put(&mut bytes, number >> shift);
                put_signed(&mut bytes, signed >> shift);
            }
            let mut at = 0;
            for (number, shift, signed) in &numbers {
                prop_assert_eq!(get(&bytes, &mut at), Some(number >> shift));
                prop_assert_eq!(get_signed(&bytes, &mut at), Some(signed >> shift));
            }
            prop_assert_eq!(at, bytes.len());
            prop_assert_eq!(get(&bytes, &mut at), None);
        }

        #[test]
        fn any_bytes_are_read_without_a_panic(bytes in proptest::collection::vec(any::<u8>(), 0..24)) {
            let mut at = 0;
            while get(&bytes, &mut at).is_some() {}
            prop_assert!(at <= bytes.len());
        }
    }
}
