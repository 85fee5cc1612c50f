"""Figures from the text of a compiled program."""

from jaxspec.planning.program_text import computations, copies, exchanges, loop_lines, padded

TEXT = """HloModule decode

%fused (param_0: bf16[4,8,2]) -> bf16[4,8,2] {
  %param_0 = bf16[4,8,2]{2,1,0} parameter(0)
  ROOT %copy.1 = bf16[4,8,2]{2,1,0:T(8,128)} copy(%param_0)
}

%body (state: (s32[], bf16[4,8,2])) -> (s32[], bf16[4,8,2]) {
  %state = (s32[], bf16[4,8,2]{2,1,0}) parameter(0)
  %fusion = bf16[4,8,2]{2,1,0} fusion(%x), kind=kLoop, calls=%fused
  %sum = f32[4,8]{1,0} all-reduce(%y), replica_groups={{0,1}}, to_apply=%add
  %gathered = (f32[4], f32[8]) all-gather-start(%z), dimensions={0}
  %small = f32[4]{0} copy(%w)
  ROOT %tuple = (s32[], bf16[4,8,2]{2,1,0}) tuple(%i, %fusion)
}

%condition (state.1: (s32[], bf16[4,8,2])) -> pred[] {
  ROOT %less = pred[] compare(%i, %n), direction=LT
}

ENTRY %main (a: bf16[4,8,2]) -> bf16[4,8,2] {
  %before = bf16[4,8,2]{2,1,0} copy(%a)
  %first = f32[4,8]{1,0} all-reduce(%b), to_apply=%add
  %while = (s32[], bf16[4,8,2]{2,1,0}) while(%init), condition=%condition, body=%body
}
"""


def test_loops_and_what_they_call():
  assert set(computations(TEXT)) == {"fused", "body", "condition", "main"}
  inside = "\n".join(loop_lines(TEXT))
  assert "%copy.1" in inside and "%sum" in inside and "%before" not in inside and "%first" not in inside


def test_exchanges():
  assert exchanges(loop_lines(TEXT)) == {"all-reduce": 1, "all-gather": 1}
  assert exchanges(TEXT.splitlines()) == {"all-reduce": 2, "all-gather": 1}


def test_copies():
  """Only copies of whole buffers; a copy before the loop is not part of a round."""
  assert copies(loop_lines(TEXT), {("bf16", 64)}) == ({"bf16[4,8,2]": 1}, {})
  assert copies(TEXT.splitlines(), {("bf16", 64), ("f32", 4)}) == ({"bf16[4,8,2]": 2, "f32[4]": 1}, {})
  assert copies(loop_lines(TEXT), {("f32", 64)}) == ({}, {})


def test_moves_are_no_copies():
  """A buffer that is read onto the chip, one that is written back from there, and one that is copied."""
  whole, chip = "bf16[2,8]{1,0:T(8,128)(2,1)}", "bf16[2,8]{1,0:T(8,128)(2,1)S(1)}"
  lines = [
    f"  %a = ({whole}, {chip}, u32[]{{:S(2)}}) copy-start(%x)", f"  %b = {chip} copy(%y)",
    f"  %c = ({whole}, {whole}, u32[]{{:S(2)}}) copy-start(%z)", f"  %d = {whole} copy(%w)",
  ]  # fmt: skip
  assert copies(lines, {("bf16", 16)}) == ({"bf16[2,8]": 2}, {"bf16[2,8]": 2})


def test_padded():
  """Tiles of 8 times 128 over the innermost sides: 376 * 2 * 64 * 128 entries and 376 * 2 * 8 * 128."""
  heads = "bf16[2,5,376,64]{1,3,0,2:T(8,128)(2,1)}, bf16[2,5,376,64]{3,1,0,2:T(8,128)(2,1)}, f32[1280]{0:T(1024)}"
  text = f"  %while.1 = (s32[], {heads}, bf16[4,4]{{1,0:T(8,128)(2,1)}}) while(%tuple), condition=%a, body=%b"
  wanted = {("bf16", 2 * 5 * 376 * 64)}
  assert padded(text, wanted) == 2 * 376 * 2 * (64 + 8) * 128
  assert padded(text, wanted | {("bf16", 16)}) == padded(text, wanted) + 2 * 8 * 128
  assert padded(f"{text}\n{text}", wanted) == padded(text, wanted)  # one state after the other
  assert padded(TEXT, {("bf16", 64)}) == 0  # no tiles, no TPU
