//! FTRL-Proximal (McMahan et al., "Ad click prediction: a view from the trenches", 2013, algorithm 1): an online linear
//! model with a learning rate for each weight, which holds useless weights at 0.

/// Meaning of the sum of weights.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum LinkFunction {
    /// A logit; the loss is the log loss.
    Logistic,
    /// The value itself; the loss is half the squared error.
    Identity,
}

/// Learning rates and regularisation, under the paper's names.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct LearningRates {
    pub(super) alpha: f64,
    pub(super) beta: f64,
    pub(super) l1: f64,
    pub(super) l2: f64,
}

#[derive(Debug, Clone, Copy, Default)]
struct Coordinate {
    z: f64,
    n: f64,
    root: f64,
    weight: f64,
}

/// A model during training. Features are binary.
#[derive(Debug)]
pub(super) struct FtrlModel {
    link: LinkFunction,
    rates: LearningRates,
    intercept: f64,
    coordinates: Vec<Coordinate>,
}

impl FtrlModel {
    /// Starts with a fixed intercept and without weights.
    pub(super) fn new(link: LinkFunction, rates: LearningRates, intercept: f64, places: usize) -> Self {
        Self { link, rates, intercept, coordinates: vec![Coordinate::default(); places] }
    }

    pub(super) fn predict(&self, places: &[u16]) -> f64 {
        let weight = |place: &u16| self.coordinates.get(usize::from(*place)).map_or(0.0, |one| one.weight);
        let sum = self.intercept + places.iter().map(weight).sum::<f64>();
        match self.link {
            LinkFunction::Logistic => 1.0 / (1.0 + (-sum).exp()),
            LinkFunction::Identity => sum,
        }
    }

    pub(super) fn learn(&mut self, places: &[u16], target: f64) {
        let gradient = self.predict(places) - target;
        for place in places {
            if let Some(one) = self.coordinates.get_mut(usize::from(*place)) {
                one.learn(gradient, &self.rates);
            }
        }
    }

    pub(super) fn weights(&self) -> impl Iterator<Item = f64> + '_ {
        self.coordinates.iter().map(|one| one.weight)
    }
}

impl Coordinate {
    fn learn(&mut self, gradient: f64, rates: &LearningRates) {
        let n = self.n + gradient * gradient;
        let root = n.sqrt();
        self.z += gradient - (root - self.root) / rates.alpha * self.weight;
        (self.n, self.root) = (n, root);
        self.weight = if self.z.abs() <= rates.l1 {
            0.0
        } else {
            -(self.z - self.z.signum() * rates.l1) / ((rates.beta + root) / rates.alpha + rates.l2)
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The algorithm as printed in the paper: a loop over vectors, with weights computed from z and n when needed.
    fn printed(examples: &[(Vec<u16>, f64)], rates: LearningRates, intercept: f64, places: u16) -> Vec<f64> {
        let (mut z, mut n) = (vec![0.0f64; places.into()], vec![0.0f64; places.into()]);
        let weight = |z: f64, n: f64| {
            let LearningRates { alpha, beta, l1, l2 } = rates;
            if z.abs() <= l1 { 0.0 } else { -((beta + n.sqrt()) / alpha + l2).recip() * (z - z.signum() * l1) }
        };
        for (there, target) in examples {
            let x: Vec<f64> = (0..places).map(|place| f64::from(u8::from(there.contains(&place)))).collect();
            let w: Vec<f64> = z.iter().zip(&n).map(|(z, n)| weight(*z, *n)).collect();
            let sum: f64 = x.iter().zip(&w).map(|(x, w)| x * w).sum();
            let p = 1.0 / (1.0 + (-(sum + intercept)).exp());
            for (((x, w), z), n) in x.iter().zip(&w).zip(&mut z).zip(&mut n) {
                let g = (p - target) * x;
                let sigma = ((*n + g * g).sqrt() - n.sqrt()) / rates.alpha;
                *z += g - sigma * w;
                *n += g * g;
            }
        }
        z.into_iter().zip(n).map(|(z, n)| weight(z, n)).collect()
    }

    #[test]
    fn it_learns_what_the_printed_algorithm_learns() {
        let rates = LearningRates { alpha: 0.1, beta: 1.0, l1: 3.0, l2: 0.5 };
        let mut state = 88_172_645_463_325_252u64;
        let mut examples = Vec::new();
        for _ in 0..3_000 {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            let [a, b, c, d, ..] = state.to_le_bytes();
            let places = vec![u16::from(a % 10), 10 + u16::from(b % 10), 20 + u16::from(c % 40)];
            examples.push((places, f64::from(u8::from(d < 40 + 10 * (a % 10)))));
        }
        let mut learner = FtrlModel::new(LinkFunction::Logistic, rates, -1.0, 60);
        examples.iter().for_each(|(places, target)| learner.learn(places, *target));
        let found: Vec<f64> = learner.weights().collect();
        let expected = printed(&examples, rates, -1.0, 60);
        assert!(found.iter().zip(&expected).all(|(a, b)| (a - b).abs() < 1e-9), "{found:?} {expected:?}");
        assert!(found.contains(&0.0), "some are worth nothing");
        assert!(found.iter().any(|weight| *weight > 0.2) && found.iter().any(|weight| *weight < -0.2));
    }
}
