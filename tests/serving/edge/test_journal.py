"""A journal is read completely, or without its last record."""

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jaxspec.serving.edge.journal import BEGINNING, Journal, pack

RECORDS = st.lists(st.binary(max_size=40), max_size=6)


def file_of(records):
  """The bytes of a journal."""
  return BEGINNING + b"".join(map(pack, records))


@pytest.fixture(scope="module")
def path(tmp_path_factory):
  return tmp_path_factory.mktemp("journal") / "run.jrn"


@settings(max_examples=60, deadline=None)
@given(records=RECORDS, more=RECORDS, data=st.data())
def test_records_come_back_after_any_cut(path, records, more, data):
  whole = file_of(records)
  kept = data.draw(st.integers(len(BEGINNING), len(whole)))
  path.write_bytes(whole[:kept] + bytes(data.draw(st.integers(0, 20)) if kept == len(whole) else 0))
  with Journal(path) as journal:
    found = list(journal.records)
    ends = [len(file_of(records[:count])) for count in range(1, len(records) + 1)]
    assert found == records[: sum(end <= kept for end in ends)]
    for record in more:
      journal.append(record)
      assert path.read_bytes().endswith(pack(record)), "flushed before it is used"
  assert Journal(path).records == found + more


@settings(max_examples=60, deadline=None)
@given(records=st.lists(st.binary(min_size=1, max_size=20), min_size=1, max_size=4), data=st.data())
def test_a_damaged_byte_is_an_error_or_ends_the_file(path, records, data):
  whole = bytearray(file_of(records))
  place = data.draw(st.integers(len(BEGINNING), len(whole) - 1))
  whole[place] ^= data.draw(st.integers(1, 255))
  path.write_bytes(whole)
  try:
    found = Journal(path).records
  except ValueError as error:
    assert "damaged record" in str(error) and path.read_bytes() == whole
  else:
    assert found == records[:-1], "only what was written last may be lost"


def test_a_damaged_record_before_others_is_no_torn_one(path):
  whole = bytearray(file_of([b"first", b"second"]))
  whole[len(BEGINNING) + 9] ^= 1
  path.write_bytes(whole)
  with pytest.raises(ValueError, match=f"damaged record at byte {len(BEGINNING)}"):
    Journal(path)


@pytest.mark.parametrize(
  "content", [b"a red apple\na blue star\n", b"j", bytes(8), bytes(8) + b"x", BEGINNING.replace(b"2", b"1")]
)
def test_a_file_of_something_else_is_left_alone(tmp_path, content):
  """A mistyped name does not destroy a file; the first bytes of a text would be the length of a record."""
  file = tmp_path / "prompts.txt"
  file.write_bytes(content)
  what = "one of another version" if content.startswith(BEGINNING[:-2]) else "a file of something else"
  with pytest.raises(ValueError, match=rf"a journal that this version wrote, we instead got .*prompts\.txt, {what}"):
    Journal(file)
  assert file.read_bytes() == content


def test_a_place_that_is_no_file(tmp_path):
  for place in (tmp_path, tmp_path / "missing" / "run.jrn", Path("/dev/null")):
    with pytest.raises(ValueError, match=f"Cannot write the journal {place}: "):
      Journal(place)
