//! Connected components of numbered vertices: union-find in one flat array.

/// A forest over the vertices 0 to n-1, in which every tree's root is its smallest vertex. Numbered in the order of their
/// ids, a root is a master.
///
/// Rem's algorithm with splicing (Patwary, Blair, Manne, "Experiments on Union-Find Algorithms for the Disjoint-Set Data
/// Structure", SEA 2010): both vertices climb in turn, the one whose parent is larger, and what it leaves gets the smaller
/// parent. There are no ranks beside the parents, and no vertex is visited twice.
#[derive(Debug, Clone)]
pub struct Forest(Vec<u32>);

impl Forest {
    /// So many vertices, each by itself.
    #[must_use]
    pub fn new(vertices: u32) -> Self {
        Self((0..vertices).collect())
    }

    /// Puts two vertices in one tree. One that is not there changes nothing.
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
            // Of the other one the parent is as it was: one read a step, and each may miss the cache.
            let Some(up) = self.parent(a) else { return };
            up_a = up;
        }
    }

    /// The smallest vertex of a vertex's tree; of one that is not there itself.
    pub fn root(&mut self, mut at: u32) -> u32 {
        while let Some(up) = self.parent(at).filter(|up| *up != at) {
            // Halves the path for those who come after.
            let upper = self.parent(up).unwrap_or(up);
            self.set(at, upper);
            at = upper;
        }
        at
    }

    /// The root of every vertex. A parent is never larger than its child: in one pass each is done before it is asked.
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
