"""Features as arrays: of NumPy, or tensors of a dtype unknown to NumPy."""

import ml_dtypes
import numpy as np
import pytest

from jaxspec.families.text_features import read_features

FEATURES = np.arange(24, dtype=np.float32).reshape(2, 3, 4)
MASK = np.array([[True, True, False], [True, True, True]])


class Tensor:
  """Interface of a torch tensor on a GPU, which NumPy cannot read."""

  def __init__(self, values, dtype):
    self._values, self._dtype = values, dtype

  def detach(self):
    return self

  def cpu(self):
    return self

  def is_floating_point(self):
    return self._dtype != "bool"

  def float(self):
    return Tensor(self._values, "float32")

  def __array__(self, dtype=None, copy=None):
    if self._dtype == "bfloat16":
      raise TypeError("Got unsupported ScalarType BFloat16")
    return self._values


@pytest.mark.parametrize(
  "features, mask",
  [(Tensor(FEATURES, "bfloat16"), Tensor(MASK, "bool")), (FEATURES.astype(ml_dtypes.bfloat16), MASK.tolist())],
)
def test_tensors(features, mask):
  found = read_features({"features": features, "mask": mask}, prefix_len=3, width=4)
  assert found.features.dtype == np.float32 and found.mask.tolist() == [[False, True, True], [True, True, True]]
  np.testing.assert_array_equal(found.features[1], FEATURES[1])


def test_what_are_no_numbers():
  with pytest.raises(ValueError, match="Must have numbers as features in the features, we instead got object"):
    read_features({"features": np.full((2, 3, 4), object()), "mask": MASK}, prefix_len=3, width=4)
