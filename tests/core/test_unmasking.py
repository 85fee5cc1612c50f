"""The unmasking schedule and its buckets."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jaxspec.models.mar.mar import MARConfig, multiply_adds
from jaxspec.sampling import unmasking


def test_schedule_equals_the_published_sequences():
  assert unmasking.mask_lengths(256, 8) == (251, 236, 212, 181, 142, 97, 49, 1)
  sixty_four = unmasking.mask_lengths(256, 64)
  assert sixty_four[:13] == tuple(range(255, 242, -1)) and sixty_four[-4:] == (18, 12, 6, 1)
  assert all(i.count == 1 for i in unmasking.iterations(256, 256))


@settings(max_examples=40, deadline=None)
@given(num_tokens=st.integers(1, 80), num_iter=st.integers(1, 120), num_buckets=st.integers(1, 6))
def test_every_token_is_generated_once(num_tokens, num_iter, num_buckets):
  schedule = unmasking.iterations(num_tokens, num_iter)
  assert sum(i.count for i in schedule) == num_tokens and min(i.count for i in schedule) > 0
  known = np.cumsum([0, *(i.count for i in schedule)])
  assert [i.known for i in schedule] == known[:-1].tolist()
  cut = unmasking.buckets(schedule, num_buckets, _cost)
  assert len(cut) <= num_buckets
  assert tuple(itertools.chain.from_iterable(bucket.iterations for bucket in cut)) == schedule


def _cost(slots, predicted):
  return 3.0 + slots + 0.1 * slots**2 + 5.0 * predicted


def _total(cut, cost_fn):
  return sum(len(bucket.iterations) * cost_fn(bucket.slots, bucket.width) for bucket in cut)


@pytest.mark.parametrize("num_buckets", [1, 2, 3])
def test_buckets_are_the_cheapest(num_buckets):
  schedule = unmasking.iterations(16, 8)
  size = len(schedule)
  totals = []
  for inner in itertools.combinations_with_replacement(range(1, size), num_buckets - 1):
    ends = [0, *sorted(set(inner)), size]
    totals.append(_total([unmasking.Bucket(schedule[i:j]) for i, j in itertools.pairwise(ends)], _cost))
  assert _total(unmasking.buckets(schedule, num_buckets, _cost), _cost) == pytest.approx(min(totals))


def test_encoder_rows_are_as_documented():
  config = MARConfig.named("MAR-B")
  schedule = unmasking.iterations(256, 256)

  def mean_rows(num_buckets):
    cut = unmasking.buckets(schedule, num_buckets, lambda slots, n: multiply_adds(config, slots, n, 100))
    return _total(cut, lambda slots, n: 64 + slots) / 256

  assert mean_rows(1) == 319 and mean_rows(256) == pytest.approx(191.5)
  assert mean_rows(4) == pytest.approx(224, abs=1) and mean_rows(5) == pytest.approx(217, abs=1)


def test_guidance_schedules():
  assert unmasking.linear_guidance(1.0, 16, 2.9) == pytest.approx(1 + 1.9 * 15 / 16)


def test_bad_arguments_are_errors():
  with pytest.raises(ValueError, match="at least one iteration"):
    unmasking.mask_lengths(4, 0)
  with pytest.raises(ValueError, match="at least one bucket"):
    unmasking.buckets(unmasking.iterations(4, 2), 0, _cost)
