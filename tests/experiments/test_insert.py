"""A server's table is written in place, in time independent of its number of rows."""

import pytest

from experiments.bench.insert import costs


@pytest.mark.slow
@pytest.mark.long_runs
def test_a_table_sixteen_times_as_large_takes_the_same_time():
  """The quickest of many runs, since the machine is shared. A copy of the large table takes a hundred times as long."""
  small, large = costs((8, 128), 41).values()
  assert small.is_in_place and large.is_in_place and large.megabytes > 10 * small.megabytes
  assert min(large.insert_s) < 1.3 * min(small.insert_s) and min(large.step_s) < 1.3 * min(small.step_s)
