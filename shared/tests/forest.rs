//! Connected components, compared with petgraph.
#![expect(clippy::indexing_slicing, reason = "a test may fail")]

use causeway_shared::identity::people::Forest;
use petgraph::unionfind::UnionFind;
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::test_runner::RngSeed;

/// The smallest vertex of each vertex's component, by petgraph.
fn expected(vertices: u32, edges: &[(u32, u32)]) -> Vec<u32> {
    let mut sets = UnionFind::<u32>::new(vertices as usize);
    for (a, b) in edges {
        sets.union(*a, *b);
    }
    let labels = sets.into_labeling();
    let mut smallest = vec![u32::MAX; vertices as usize];
    for (vertex, label) in (0..vertices).zip(&labels) {
        smallest[*label as usize] = smallest[*label as usize].min(vertex);
    }
    labels.iter().map(|label| smallest[*label as usize]).collect()
}

/// A graph with few or many edges, and a vertex with most of them.
fn graph() -> impl Strategy<Value = (u32, Vec<(u32, u32)>)> {
    (1_u32..300).prop_flat_map(|vertices| {
        let edge = prop_oneof![3 => (0..vertices, 0..vertices), 1 => (Just(vertices / 2), 0..vertices)];
        (Just(vertices), vec(edge, 0..400))
    })
}

proptest! {
    #![proptest_config(ProptestConfig { rng_seed: RngSeed::Fixed(5), ..ProptestConfig::with_cases(10_000) })]

    #[test]
    fn connected_components_equal_those_of_petgraph_in_any_order((vertices, edges) in graph(), turn in any::<prop::sample::Index>()) {
        let expected = expected(vertices, &edges);
        let mut forest = Forest::new(vertices);
        edges.iter().for_each(|(a, b)| forest.join(*a, *b));
        let mut other = Forest::new(vertices);
        let (first, last) = edges.split_at(turn.index(edges.len() + 1));
        for (a, b) in last.iter().chain(first).rev() {
            // Calls of `root` in between change nothing.
            prop_assert!(other.root(*a) <= *a);
            other.join(*b, *a);
        }
        prop_assert_eq!((0..vertices).map(|vertex| other.root(vertex)).collect::<Vec<_>>(), &expected[..]);
        prop_assert_eq!(other.labels(), &expected[..]);
        prop_assert_eq!(forest.labels(), expected);
    }
}

#[test]
fn a_vertex_that_is_not_there_changes_nothing() {
    let mut forest = Forest::new(2);
    forest.join(0, 2);
    forest.join(7, 1);
    assert_eq!((forest.root(9), forest.labels()), (9, vec![0, 1]));
}
