"""Distances between two sets of feature vectors, with intervals: kernel, Frechet, precision and recall.

None of them is FID, which is defined for one feature network. Name a figure by its distance and its encoder.

Every interval has a stated estimand and is over prompts (`jaxspec.statistics`): several images of one prompt are a cluster,
and pairs within a cluster are not independent.

| figure | estimand | interval |
|---|---|---|
| `kernel_distance_interval` | squared maximum mean discrepancy of the two distributions | inverted score test |
| `frechet_interval` | expected distance of sets of these sizes | jackknife over groups, of the root |
| `precision_recall_interval` | precision and recall of sets of ``set_size`` vectors | projections of a U-statistic |

Two methods with the same prompts are compared by `kernel_distance_difference` and `precision_recall_difference`; their
intervals are narrower than those of the two figures, which share the real images and the prompts.
"""

from jaxspec.evaluation.distances.features import squared_distances
from jaxspec.evaluation.distances.frechet import frechet_distance, frechet_interval
from jaxspec.evaluation.distances.kernel import (
  KernelDistance,
  detectable_kernel_distance,
  kernel_distance,
  kernel_distance_difference,
  kernel_distance_interval,
  kernel_distance_p_value,
  required_kernel_count,
)
from jaxspec.evaluation.distances.manifold_intervals import (
  SET_SIZE,
  PrecisionRecallDifferences,
  PrecisionRecallIntervals,
  precision_recall_difference,
  precision_recall_interval,
)
from jaxspec.evaluation.distances.manifolds import Coverage, PrecisionRecall, coverage, harmonic_mean, precision_recall

__all__ = [
  "SET_SIZE",
  "Coverage",
  "KernelDistance",
  "PrecisionRecall",
  "PrecisionRecallDifferences",
  "PrecisionRecallIntervals",
  "coverage",
  "detectable_kernel_distance",
  "frechet_distance",
  "frechet_interval",
  "harmonic_mean",
  "kernel_distance",
  "kernel_distance_difference",
  "kernel_distance_interval",
  "kernel_distance_p_value",
  "precision_recall",
  "precision_recall_difference",
  "precision_recall_interval",
  "required_kernel_count",
  "squared_distances",
]
