//! Maps, sets and sorted lists in little code. `collect` into a map and `sort` bring a routine of their own for every type
//! of element, each 5 to 25 KB of the edge's module. What is made here is made of few elements, or of ones in order.

use std::collections::BinaryHeap;

use litemap::LiteMap;

/// A map or a set of these, one after the other; of those of one key the last counts.
pub fn all<T, C: Default + Extend<T>>(items: impl IntoIterator<Item = T>) -> C {
    let mut all = C::default();
    all.extend(items);
    all
}

/// Sorts a list. At the edge more slowly than the standard library does, in a tenth of its code.
pub fn sort<T: Ord>(list: &mut Vec<T>) {
    if cfg!(target_arch = "wasm32") { small_sort(list) } else { list.sort_unstable() }
}

/// Sorts a list by keys; what has the same key stays in order.
pub fn sort_by_key<T: Copy, K: Ord>(list: &mut Vec<T>, key: impl Fn(&T) -> K) {
    if cfg!(target_arch = "wasm32") { small_sort_by_key(list, key) } else { list.sort_by_key(key) }
}

fn small_sort<T: Ord>(list: &mut Vec<T>) {
    if !list.is_sorted() {
        *list = BinaryHeap::from(std::mem::take(list)).into_sorted_vec();
    }
}

fn small_sort_by_key<T: Copy, K: Ord>(list: &mut Vec<T>, key: impl Fn(&T) -> K) {
    let mut places: Vec<(K, usize)> = list.iter().map(key).zip(0..).collect();
    small_sort(&mut places);
    *list = places.into_iter().filter_map(|(_, place)| list.get(place).copied()).collect();
}

/// A flat map of these, one after the other; of those of one key the last counts. In a tenth of a tree's code.
pub fn flat<K: Ord, V>(items: impl IntoIterator<Item = (K, V)>) -> LiteMap<K, V> {
    let mut all = LiteMap::new();
    for (key, value) in items {
        all.insert(key, value);
    }
    all
}

/// Keeps at most so many, the last; `drop` is told of each other, from the first on.
pub fn keep_last<K: Ord, V>(map: &mut LiteMap<K, V>, most: usize, mut drop: impl FnMut(&V)) {
    let mut over = map.len().saturating_sub(most);
    map.retain(|_, value| {
        let keeps = over == 0;
        if !keeps {
            over -= 1;
            drop(value);
        }
        keeps
    });
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn what_the_edge_sorts_is_as_the_library_sorts_it(list in vec((0..20_u8, any::<u8>()), 0..100)) {
            let (mut small, mut sorted) = (list.clone(), list.clone());
            small_sort(&mut small);
            sorted.sort_unstable();
            prop_assert_eq!(&small, &sorted);
            let (mut small, mut sorted) = (list.clone(), list.clone());
            small_sort_by_key(&mut small, |(key, _)| std::cmp::Reverse(*key));
            sorted.sort_by_key(|(key, _)| std::cmp::Reverse(*key));
            prop_assert_eq!(&small, &sorted);
            let (map, tree): (_, std::collections::BTreeMap<u8, u8>) = (flat(list.iter().copied()), all(list));
            prop_assert!(map.iter().eq(&tree));
        }

        #[test]
        fn the_last_are_kept_and_the_others_told_from_the_first(count in 0..20_u8, most in 0..20_usize) {
            let (mut map, mut dropped) = (flat((0..count).map(|n| (n, n))), Vec::new());
            keep_last(&mut map, most, |n| dropped.push(*n));
            prop_assert!(map.len() <= most && dropped.len() + map.len() == usize::from(count));
            prop_assert!(dropped.iter().chain(map.values()).copied().eq(0..count));
            prop_assert!(dropped.is_empty() || map.len() == most);
        }
    }
}
