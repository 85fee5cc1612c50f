"""What processes of a group tell each other is read back, and nothing else is taken for it."""

import jax
import numpy as np
import pytest

from jaxspec.serving.server.plan_wire import END, HEAD_BYTES, length_after, read_call, write_call
from jaxspec.serving.server.served_profile import StreamKind
from jaxspec.serving.server.server_programs import Call, Op, Programs
from jaxspec.serving.server.step_arrays import Sizes
from jaxspec.serving.wire.sqs_codec import SqsWire
from tests.helpers import markov_fns, side
from tests.serving.server.crowds import EXAMPLE
from tests.sqs_pair import codec_of

LAZY = StreamKind(SqsWire(codec_of("top", 5, 3, ell=7, coding="lazy"), 4))
PROGRAMS = Programs(side(np.zeros((6, 5), np.float32)), markov_fns(5), (LAZY,), Sizes(4, 2, 12, (8, 16)), EXAMPLE)


@pytest.mark.parametrize("op", Op)
def test_calls_are_read_back(op):
  call, generator = Call(op, 0, {Op.STEP: 16}.get(op, 0)), np.random.default_rng(op)
  draw = lambda leaf: generator.integers(0, 2, leaf.shape).astype(leaf.dtype)
  call = call._replace(arrays=jax.tree.map(draw, PROGRAMS.arrays_like(call)))
  message = write_call(call)
  assert length_after(message[:HEAD_BYTES]) == len(message) - HEAD_BYTES < 4096
  read = read_call(message, PROGRAMS)
  assert read[:3] == call[:3]
  jax.tree.map(np.testing.assert_array_equal, read.arrays, call.arrays)
  for cut in (message[:-1], message + b"x"):
    with pytest.raises(ValueError, match="Must have .* bytes of arrays"):
      read_call(cut, PROGRAMS)


def test_the_end_is_no_call():
  assert read_call(END, PROGRAMS) is None and length_after(END) == 0
  with pytest.raises(ValueError):
    read_call(bytes([9]) + END[1:], PROGRAMS)
