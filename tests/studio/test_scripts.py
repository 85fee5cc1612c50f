"""The page without a browser: its files, and the results of its scripts."""

import functools
import itertools
import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[2] / "jaxspec" / "studio" / "page"
NODE = shutil.which("node")
needs_node = pytest.mark.skipif(NODE is None, reason="needs a Node: apt-get install nodejs")
SOURCE = (PAGE / "studio.js").read_text()


def run(script: str) -> object:
  """What a module next to the scripts of the page prints as JSON."""
  command = [NODE, "--input-type=module", "--eval", script]
  done = subprocess.run(command, cwd=PAGE, capture_output=True, text=True, timeout=60)
  assert done.returncode == 0, done.stderr
  return json.loads(done.stdout)


def body_of(name: str) -> str:
  return re.search(rf"^(?:async )?function {name}\(.*?^}}$", SOURCE, re.M | re.S)[0]


def test_every_image_begins_with_a_source():
  """Browsers draw a broken one where there is none."""
  html = (PAGE / "index.html").read_text()
  assert all(" src=" in tag for tag in re.findall(r"<img[^>]*>", html))
  made = re.findall(r'make\("img", \{([^}]*)', "".join(path.read_text() for path in PAGE.glob("*.js")))
  assert made and all(re.match(r" src: (BLANK|source)\b", properties) for properties in made)
  assert re.search(r'^const BLANK = "data:image/gif;base64,R0lGODlh', SOURCE, re.M)


def test_results_come_into_view_when_they_begin():
  """Both when the request has its place in the queue, and when the lanes are there."""
  handle = body_of("handle")
  for event in ("queued", "started"):
    block = re.search(rf'^  if \(event\.event === "{event}"\) \{{$(.*?)^  \}}$', handle, re.M | re.S)[1]
    assert block.rstrip().endswith("reveal();"), event
  assert "scrollIntoView" in body_of("reveal")


def test_elements_that_the_script_names_are_there():
  names = set(re.findall(r'\$\("([\w-]+)"\)', SOURCE))
  assert names - set(re.findall(r' id="([\w-]+)"', (PAGE / "index.html").read_text())) == set()


SIZES = list(itertools.product([(16, 109), (16, 384), (24, 165), (24, 123), (32, 165), (32, 390)], [1, 1.5, 2, 3]))


@functools.cache
def maps() -> list:
  """The rectangles of both maps of every size, by one process."""
  return run(f"""
    let drawn = [];
    const pen = {{ clearRect() {{}}, beginPath() {{}}, fillRect: (...at) => drawn.push(at) }}, maps = [];
    const getComputedStyle = () => ({{ getPropertyValue: () => "" }});
    Object.assign(globalThis, {{ document: {{}}, getComputedStyle }});
    const {{ drawNumbers, drawOrigins }} = await import("./maps.js");
    for (const [[side, width], ratio] of {json.dumps(SIZES)}) {{
      const pixels = Math.round(width * ratio), all = Array(side * side).fill(2);
      const canvas = {{ width: pixels, height: pixels, getContext: () => pen }};
      globalThis.devicePixelRatio = ratio;
      drawn = [];
      drawOrigins(canvas, [side, side], all);
      drawNumbers(canvas, [side, side], all, 2);
      maps.push(drawn);
    }}
    console.log(JSON.stringify(maps));
  """)


@needs_node
@pytest.mark.parametrize("size, ratio", SIZES)
def test_a_map_has_all_of_its_lines(size, ratio):
  """Between any two cells lies the same line, in whole pixels of the screen: none is lost where a map is small."""
  side, found = size[0], maps()[SIZES.index((size, ratio))]
  assert len(found) == 2 * side * side and found[: side * side] == found[side * side :]
  assert all(type(number) is int for cell in found for number in cell)
  rows = [found[at : at + side] for at in range(0, side * side, side)]
  for along, size, lines in ((0, 2, rows), (1, 3, zip(*rows))):
    gaps = {after[along] - before[along] - before[size] for line in lines for before, after in itertools.pairwise(line)}
    assert len(gaps) == 1 and gaps.pop() >= 1
  assert {cell[2] for cell in found} <= {found[0][2] - 1, found[0][2], found[0][2] + 1}


EVENTS = [
  {"event": "queued", "ahead": 0},
  {"event": "started"},
  {"event": "warming", "lane": 0},
  {"event": "ready", "lane": 0},
  {"event": "round", "lane": 0, "seconds": 0.3},
  {"event": "images", "lane": 0},
  {"event": "round", "lane": 1, "seconds": 0.1},
  {"event": "round", "lane": 1, "seconds": 0.2},
  {"event": "done", "lane": 0},
  {"event": "done", "lane": 1},
  {"event": "finished"},
]


@needs_node
def test_a_replay_has_the_times_of_the_race():
  """Methods that took turns run side by side, each at the seconds of its own rounds, without requests to the server."""
  script = f"""
    globalThis.fetch = () => {{ throw new Error("a replay asks for nothing"); }};
    const {{ keep, play, timetable }} = await import("./replay.js");
    const events = {json.dumps(EVENTS)}.reduce(keep, []), start = performance.now(), seen = [];
    const see = (event) => seen.push([event.event, (performance.now() - start) / 1000]);
    await play(events, see, new AbortController().signal);
    const stop = new AbortController(), late = [];
    setTimeout(() => stop.abort(), 10);
    const long = events.map((event) => (event.seconds ? {{ ...event, seconds: 1000 * event.seconds }} : event));
    await play(long, (event) => late.push(event.event), stop.signal);
    console.log(JSON.stringify({{ table: timetable(events).map(([time, event]) => [time, event.event]), seen, late }}));
  """
  found = run(script)
  wanted = [(0, "started"), (0, "ready"), (0.1, "round"), (0.2, "round"), (0.2, "done")]
  wanted += [(0.3, "round"), (0.3, "images"), (0.3, "done")]
  assert [tuple(each) for each in found["table"]] == wanted
  assert [event for event, _ in found["seen"]] == [event for _, event in wanted]
  assert all(at >= time - 0.005 for (_, at), (time, _) in zip(found["seen"], wanted))
  assert found["late"] == [event for _, event in wanted]  # the rest at once, not after minutes


@needs_node
def test_a_long_race_keeps_some_of_its_previews():
  """Of each method a bounded number from its whole time; all rounds stay."""
  events = [{"event": kind, "lane": at % 2, "seconds": at} for at in range(1000) for kind in ("round", "images")]
  found = run(f"""
    const {{ keep }} = await import("./replay.js");
    console.log(JSON.stringify({json.dumps(events)}.reduce(keep, [])));
  """)
  assert [event for event in found if event["event"] == "round"] == events[::2]
  for lane in (0, 1):
    kept = [event for event in found if event["event"] == "images" and event["lane"] == lane]
    seconds = [event["seconds"] for event in kept]
    assert len(seconds) == 64 and seconds[0] == lane and seconds[-1] == 998 + lane
    assert max(after - before for before, after in itertools.pairwise(seconds)) <= 40
