// A finished race once more, from its events alone: nothing is decoded.

const MOST_PREVIEWS = 64; // of a method

// Adds an event to those of a race; returns what is kept of them. Of too many previews goes the one whose neighbours are nearest.
export function keep(events, event) {
  if (["queued", "warming", "finished"].includes(event.event)) return events;
  const kept = [...events, event], isPreview = (each) => each.event === "images" && each.lane === event.lane;
  const places = event.event === "images" ? [...kept.keys()].filter((at) => isPreview(kept[at])) : [];
  if (places.length <= MOST_PREVIEWS) return kept;
  let least = 1;
  for (let at = 2; at < places.length - 1; at++)
    if (places[at + 1] - places[at - 1] < places[least + 1] - places[least - 1]) least = at;
  kept.splice(places[least], 1);
  return kept;
}

// Pairs of seconds and events. Every method has its own clock, which leaves out compilation and the rounds of the others: methods
// that took turns run side by side.
export function timetable(events) {
  const clocks = {};
  const timed = events.map((event) => {
    if (event.event === "round") clocks[event.lane] = event.seconds;
    return [clocks[event.lane] ?? 0, event];
  });
  return timed.sort(([one], [other]) => one - other); // stable: what has the same time keeps its order
}

// Calls `each` with every event at its time; once the signal aborts, with the rest at once.
export async function play(events, each, signal) {
  const start = performance.now();
  for (const [time, event] of timetable(events)) {
    const left = 1000 * time - (performance.now() - start);
    if (left > 0 && !signal.aborted) await pause(left, signal);
    each(event);
  }
}

function pause(milliseconds, signal) {
  return new Promise((done) => {
    const end = () => (clearTimeout(timer), signal.removeEventListener("abort", end), done());
    const timer = setTimeout(end, milliseconds);
    signal.addEventListener("abort", end);
  });
}
