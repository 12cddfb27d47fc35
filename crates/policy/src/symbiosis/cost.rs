//! What one thread costs another at each level of sharing, fitted to what kernels suffered on this machine.
//!
//! The logarithm of a slowdown is taken for a sum over neighbours of terms:
//!
//! - the products of what the one uses of a resource and the other of the same or another one (divisions keep additions
//!   waiting), or of what only one of them uses (a thread that hides delays by many loads at once has half of the
//!   core's window, whatever its neighbour is);
//! - for each resource by how much more both want of it than there is;
//! - what a shared cache can no longer hold of the one because of the other.
//!
//! Their coefficients, never negative, are
//! those that explain the couplings of the calibration best (least squares). A slowdown that is not significant counts as
//! none, and every coupling weighs the less the less sure it is: e² / (e² + s²), where s is its standard error and e what
//! the terms cannot explain (weights of a sum of two independent errors; e is from a first fit without weights). The terms are perch's own; that slowdowns
//! follow from one's sensitivity times the other's pressure, resource by resource, is Bubble-Up's and SMiTe's idea
//! (Mars et al., MICRO 2011; Zhang et al., MICRO 2014).

use super::uses::{Basis, Resource, of_kernel};
use crate::calibration::{Calibration, Coupling, Share};
use ndarray::{Array1, Array2};

/// A small pull of all coefficients towards 0, as a part of the number of couplings: kernels that are alike must not
/// make them arbitrary.
const RIDGE: f64 = 0.1;

/// No neighbour is taken to cost more (logarithm): beyond what kernels suffered nothing is known.
const MOST: f64 = 1.5;

/// What no fit explains (logarithm): the resolution of a calibration's windows.
const LEAST_ERROR: f64 = 1e-3;

/// Terms of each cache.
const PER_CACHE: usize = 4;

/// What is known of a thread or a kernel: its uses alone, way by way.
pub(super) type Uses = [f64];

/// The fitted costs of one machine.
#[derive(Debug, Clone)]
pub(super) struct Costs {
    pub basis: Basis,
    /// The largest use of any kernel, way by way.
    scale: Vec<f64>,
    /// Bytes of the caches of level 1, 2 and of the last, as far as the topology contains them.
    caches: Vec<Cache>,
    /// Those levels at which anything was measured.
    pub levels: Vec<Level>,
}

#[derive(Debug, Clone, Copy)]
struct Cache {
    bytes: f64,
    /// The way that counts accesses to it, and the one that counts those that miss it.
    accesses: Option<usize>,
    misses: Option<usize>,
}

/// The costs at one level.
#[derive(Debug, Clone)]
pub(super) struct Level {
    pub share: Share,
    coefficients: Vec<f64>,
    /// Root mean square of what the fit leaves unexplained, in the logarithm of slowdowns.
    error: f64,
}

impl Costs {
    /// Fits a calibration, its kernels read by this basis. `caches` are bytes by level, 1 first.
    pub fn fit(calibration: &Calibration, basis: Basis, caches: &[Option<u64>; 3]) -> Self {
        let kernels: Vec<(&str, Vec<f64>)> = calibration
            .kernels
            .iter()
            .filter_map(|kernel| {
                let uses = basis.read(&of_kernel(&kernel.metrics))?;
                Some((kernel.name.as_str(), uses))
            })
            .collect();
        let largest = |way: usize| {
            let all = kernels.iter().map(|(_, uses)| uses[way]);
            Some(all.fold(0.0, f64::max))
                .filter(|largest| *largest > 0.0)
                .unwrap_or(1.0)
        };
        let behind = [
            (Resource::Access, Resource::L1),
            (Resource::L1, Resource::L2),
            (Resource::L2, Resource::Bus),
        ];
        let caches = caches
            .iter()
            .zip(behind)
            .filter_map(|(bytes, (hit, miss))| {
                Some(Cache {
                    bytes: (*bytes)? as f64,
                    accesses: basis.place(hit),
                    misses: basis.place(miss),
                })
            });
        let mut costs = Self {
            scale: (0..basis.ways.len()).map(largest).collect(),
            caches: caches.collect(),
            basis,
            levels: Vec::new(),
        };
        let find = |name: &str| {
            let found = kernels.iter().find(|(known, _)| *known == name);
            found.map(|(_, uses)| uses.as_slice())
        };
        let mut shares: Vec<Share> = Vec::new();
        for coupling in &calibration.couplings {
            if !shares.contains(&coupling.share) {
                shares.push(coupling.share);
            }
        }
        for share in shares {
            let of_level = calibration.couplings.iter().filter(|c| c.share == share);
            let rows: Vec<Row> = of_level
                .filter_map(|coupling| {
                    let error = standard_error(coupling)?;
                    let own = find(&coupling.kernel)?;
                    let mut terms = vec![0.0; costs.terms()];
                    for name in &coupling.beside {
                        costs.add_terms(own, find(name)?, &mut terms);
                    }
                    Some(Row {
                        terms,
                        wanted: coupling.known().ln(),
                        error,
                    })
                })
                .collect();
            if let Some(level) = solve(share, &rows) {
                costs.levels.push(level);
            }
        }
        costs
    }

    /// Root mean square of what the fit leaves unexplained: the largest of all levels.
    pub fn error(&self) -> f64 {
        let errors = self.levels.iter().map(|level| level.error);
        errors.fold(0.0, f64::max)
    }

    fn terms(&self) -> usize {
        let ways = self.scale.len();
        (ways + 1).pow(2) + ways + self.caches.len() * PER_CACHE
    }

    /// Adds the terms of one neighbour.
    fn add_terms(&self, own: &Uses, other: &Uses, terms: &mut [f64]) {
        let ways = self.scale.len();
        // The last is being there.
        let use_of = |uses: &Uses, way: usize| match self.scale.get(way) {
            Some(scale) => uses[way] / scale,
            None => 1.0,
        };
        let (products, rest) = terms.split_at_mut((ways + 1).pow(2));
        for (way, terms) in products.chunks_mut(ways + 1).enumerate() {
            let own = use_of(own, way);
            for (other_way, term) in terms.iter_mut().enumerate() {
                *term += own * use_of(other, other_way);
            }
        }
        let (over, of_caches) = rest.split_at_mut(ways);
        for (way, term) in over.iter_mut().enumerate() {
            let (own, other) = (use_of(own, way), use_of(other, way));
            *term += own * (own + other - 1.0).max(0.0);
        }
        let speed = self.basis.place(Resource::Issue);
        let speed = speed.map_or(0.0, |way| use_of(own, way));
        for (terms, cache) in of_caches.chunks_mut(PER_CACHE).zip(&self.caches) {
            let values = self.crowding(cache, own, other, speed);
            for (term, value) in terms.iter_mut().zip(values) {
                *term += value;
            }
        }
    }

    /// What a shared cache no longer holds of one thread because of another: if the footprints of both do not fit, the
    /// one keeps a part in proportion to its accesses, but no less than the other leaves; of what hit before, as much
    /// misses as no longer fits.
    fn crowding(&self, cache: &Cache, own: &Uses, other: &Uses, speed: f64) -> [f64; PER_CACHE] {
        let Some(footprint) = self.basis.place(Resource::Footprint) else {
            return [0.0; PER_CACHE];
        };
        let held = |uses: &Uses| uses[footprint].min(cache.bytes);
        let (mine, theirs) = (held(own), held(other));
        let over = mine + theirs - cache.bytes;
        if over <= 0.0 || mine <= 0.0 {
            return [0.0; PER_CACHE];
        }
        let scaled = |uses: &Uses, way: Option<usize>| {
            // Scaled by accesses to the first level, so that hits are accesses less misses.
            way.map_or(0.0, |way| uses[way] / self.scale_of_accesses())
        };
        let accesses = |uses: &Uses| scaled(uses, cache.accesses);
        let hits = match cache.accesses {
            Some(_) => (accesses(own) - scaled(own, cache.misses)).max(0.0),
            None => 1.0,
        };
        let both = accesses(own) + accesses(other);
        let part = if both > 0.0 {
            accesses(own) / both
        } else {
            0.5
        };
        let kept = (cache.bytes - theirs).max(cache.bytes * part).min(mine);
        let least = (cache.bytes - theirs).max(cache.bytes / 2.0).min(mine);
        let lost = hits * (1.0 - kept / mine);
        let at_half = hits * (1.0 - least / mine);
        [
            lost,
            at_half,
            hits * over / cache.bytes,
            lost / (speed + 0.1),
        ]
    }

    fn scale_of_accesses(&self) -> f64 {
        let place = self.basis.place(Resource::Access);
        place.map_or(1.0, |way| self.scale[way])
    }

    /// The logarithm of by how much `other` slows `own` down at a level, from 0 on.
    pub fn of(&self, level: usize, own: &Uses, other: &Uses, terms: &mut Vec<f64>) -> f64 {
        terms.clear();
        terms.resize(self.terms(), 0.0);
        self.add_terms(own, other, terms);
        let coefficients = &self.levels[level].coefficients;
        let products = terms.iter().zip(coefficients).map(|(a, b)| a * b);
        products.sum::<f64>().min(MOST)
    }
}

/// A coupling, as the fit takes it.
struct Row {
    terms: Vec<f64>,
    /// The logarithm of the slowdown.
    wanted: f64,
    /// The standard error of that.
    error: f64,
}

/// The standard error of a slowdown's logarithm: half of what its 95 % interval reaches to one side. `None` for one of
/// which nothing is known.
fn standard_error(coupling: &Coupling) -> Option<f64> {
    let is_unknown = coupling.significant == Some(false) && coupling.half().is_none();
    (!is_unknown).then(|| coupling.spread.unwrap_or(0.0) / 2.0)
}

/// Least squares with coefficients from 0 on, every row weighted by how sure it is.
fn solve(share: Share, rows: &[Row]) -> Option<Level> {
    let alike = vec![1.0; rows.len()];
    let first = fit(share, rows, &alike)?;
    if rows.iter().all(|row| row.error == 0.0) {
        return Some(first);
    }
    let unexplained = first.error.max(LEAST_ERROR).powi(2);
    let weights = rows
        .iter()
        .map(|row| unexplained / (unexplained + row.error.powi(2)));
    fit(share, rows, &weights.collect::<Vec<f64>>())
}

fn fit(share: Share, rows: &[Row], weights: &[f64]) -> Option<Level> {
    let terms = rows.first()?.terms.len();
    // All terms on one scale, so that the pull is the same for each.
    let scale: Vec<f64> = (0..terms)
        .map(|term| rows.iter().map(|row| row.terms[term]).fold(1e-12, f64::max))
        .collect();
    let weight: f64 = weights.iter().sum();
    let pull = (RIDGE * weight / terms as f64).sqrt();
    let matrix = Array2::from_shape_fn((rows.len() + terms, terms), |(at, term)| {
        match rows.get(at) {
            Some(row) => row.terms[term] / scale[term] * weights[at].sqrt(),
            None if at - rows.len() == term => pull,
            None => 0.0,
        }
    });
    let wanted = Array1::from_shape_fn(rows.len() + terms, |at| {
        rows.get(at)
            .map_or(0.0, |row| row.wanted * weights[at].sqrt())
    });
    let (found, _) = nnls::nnls(matrix.view(), wanted.view());
    let coefficients: Vec<f64> = found.iter().zip(&scale).map(|(c, s)| c / s).collect();
    let squares = rows.iter().zip(weights).map(|(row, weight)| {
        let predicted: f64 = row
            .terms
            .iter()
            .zip(&coefficients)
            .map(|(a, b)| a * b)
            .sum();
        weight * (predicted - row.wanted).powi(2)
    });
    let error = (squares.sum::<f64>() / weight).sqrt();
    Some(Level {
        share,
        coefficients,
        error,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(wanted: f64, error: f64) -> Row {
        Row {
            terms: vec![1.0],
            wanted,
            error,
        }
    }

    /// Nine slowdowns that are known to be 0.1 (logarithm) and a tenth of 2 that may be anything.
    #[test]
    fn a_slowdown_weighs_the_less_the_less_sure_it_is() {
        let found = |error: f64| {
            let mut rows: Vec<Row> = (0..9).map(|_| row(0.1, 0.01)).collect();
            rows.push(row(2.0, error));
            solve(Share::Core, &rows).unwrap().coefficients[0]
        };
        // The pull towards 0 takes a tenth.
        assert!((found(0.01) - 0.29 / 1.1).abs() < 0.01, "{}", found(0.01));
        assert!(
            found(1.0) < 0.19 && found(5.0) < 0.11,
            "{} {}",
            found(1.0),
            found(5.0)
        );
        assert!(found(5.0) > 0.08, "{}", found(5.0));
    }

    #[test]
    fn alike_slowdowns_weigh_alike() {
        let exact = solve(Share::Core, &[row(0.1, 0.0), row(0.3, 0.0)]).unwrap();
        let alike = solve(Share::Core, &[row(0.1, 0.02), row(0.3, 0.02)]).unwrap();
        assert!((exact.coefficients[0] - alike.coefficients[0]).abs() < 1e-12);
    }
}
