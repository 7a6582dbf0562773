//! Connected components of numbered vertices: union-find in one flat array.

/// A forest over the vertices 0 to n-1. Each tree's root is its smallest vertex; if vertices are numbered in the order
/// of visitor ids, a root is a master.
///
/// Rem's algorithm with splicing (Patwary, Blair, Manne, "Experiments on Union-Find Algorithms for the Disjoint-Set
/// Data Structure", SEA 2010). Two cursors climb in turn, always the one with the larger parent, and each vertex that a
/// cursor leaves gets the smaller parent. The parents are the only data, and no vertex is visited twice.
#[derive(Debug, Clone)]
pub struct Forest(Vec<u32>);

impl Forest {
    /// A forest of this many vertices, each a tree of its own.
    #[must_use]
    pub fn new(vertices: u32) -> Self {
        Self((0..vertices).collect())
    }

    /// Joins the trees of two vertices. A vertex out of range changes nothing.
    pub fn join(&mut self, mut a: u32, mut b: u32) {
        let (Some(mut up_a), Some(mut up_b)) = (self.parent(a), self.parent(b)) else { return };
        while up_a != up_b {
            if up_a < up_b {
                (a, b, up_a, up_b) = (b, a, up_b, up_a);
            }
            self.set(a, up_b);
            if a == up_a {
                return;
            }
            a = up_a;
            // The other cursor's parent is unchanged. A step therefore has one read, which may miss the cache.
            let Some(up) = self.parent(a) else { return };
            up_a = up;
        }
    }

    /// The smallest vertex of a vertex's tree. A vertex out of range is its own root.
    pub fn root(&mut self, mut at: u32) -> u32 {
        while let Some(up) = self.parent(at).filter(|up| *up != at) {
            // Halves the path for later calls.
            let upper = self.parent(up).unwrap_or(up);
            self.set(at, upper);
            at = upper;
        }
        at
    }

    /// The root of every vertex. One pass suffices, because a parent is never larger than its child.
    #[must_use]
    pub fn labels(mut self) -> Vec<u32> {
        for vertex in 0..self.0.len() {
            let label = self.0.get(vertex).and_then(|up| self.parent(*up));
            if let (Some(slot), Some(label)) = (self.0.get_mut(vertex), label) {
                *slot = label;
            }
        }
        self.0
    }

    fn parent(&self, of: u32) -> Option<u32> {
        self.0.get(of as usize).copied()
    }

    fn set(&mut self, of: u32, parent: u32) {
        if let Some(slot) = self.0.get_mut(of as usize) {
            *slot = parent;
        }
    }
}
