// The page: controls from what the server says about its methods, a stream of rounds, figures, and what to keep.
import { controls, make } from "./controls.js";
import { ORIGINS, drawNumbers, drawOrigin, drawOrigins, drawStrip, sharp } from "./maps.js";
import { keep, play } from "./replay.js";

const $ = (id) => document.getElementById(id);
// What an image shows before it is there: browsers draw a broken one where there is no source.
const BLANK = "data:image/gif;base64,R0lGODlhAQABAIAAAAAAAP///yH5BAEAAAAALAAAAAABAAEAAAIBRAA7";
let about, entrants = [], lanes = [], leave = null, uses = [], serial = 0, recorded = [];

const lost = (error) => {
  throw error.name === "AbortError" ? error : new Error("The studio does not answer: it has ended, or the connection to it is lost");
};

async function ask(path, body) {
  const options = body && { method: "POST", headers: { "content-type": "application/json" }, body: JSON.stringify(body) };
  const reply = await fetch(path, options).catch(lost), found = await reply.json();
  if (!reply.ok) throw new Error(found.message);
  return found;
}

const short = (value, digits = 3) => (value === null || value === undefined ? "–" : Number(value.toPrecision(digits)).toLocaleString("en"));
const seconds = (value) => (value === null || value === undefined ? "–" : `${value.toFixed(value < 10 ? 2 : 1)} s`);

// ---- controls -----------------------------------------------------------------------------------------------------

function addEntrant(name) {
  const id = `e${++serial}`, select = make("select", { id: `${id}-method` });
  for (const method of about.methods) select.append(make("option", { value: method.name }, `${method.name}: ${method.title}`));
  select.value = name;
  const words = make("p", { className: "about" }), draft = make("select", { id: `${id}-draft` });
  const draftField = make("div", { className: "field" }, make("label", { htmlFor: `${id}-draft` }, "Draft network"), draft);
  const place = make("div", { className: "options" }), summary = make("summary", {}, "Options");
  const details = make("details", {}, summary, place);
  const remove = make("button", { type: "button" }, "Remove");
  const legend = make("legend", {});
  const box = make("fieldset", {}, legend,
    make("div", { className: "field" }, make("label", { htmlFor: select.id }, "Method"), select), words, draftField, details, remove);
  const entrant = { box, legend, remove, draft, details };
  const choose = () => {
    const method = about.methods.find((each) => each.name === select.value);
    const exact = { true: "exact", false: "not exact", option: "exact on request" }[method.exact];
    words.textContent = `${exact}; drafts from ${method.drafts_by}. ${method.source}`;
    draft.replaceChildren(...method.drafts.map((value) => make("option", { value }, value)));
    if (method.draft && !method.drafts.includes(method.draft)) draft.append(make("option", { value: method.draft }, method.draft));
    if (method.draft) draft.value = method.draft;
    draftField.hidden = draft.options.length < 2;
    entrant.options = controls(place, method.options, id);
    summary.textContent = `Options (${Object.keys(method.options).length})`;
    details.hidden = !Object.keys(method.options).length;
  };
  choose();
  select.addEventListener("change", choose);
  entrant.read = () => {
    const found = { method: select.value, options: entrant.options() };
    if (!draftField.hidden) found.draft = draft.value;
    return found;
  };
  remove.addEventListener("click", () => {
    entrants = entrants.filter((each) => each !== entrant);
    box.remove();
    number();
    plan();
    $("add").focus();
  });
  entrants.push(entrant);
  $("entrants").append(box);
  number();
  return entrant;
}

function number() {
  entrants.forEach((entrant, index) => {
    entrant.legend.textContent = entrants.length > 1 ? `Method ${index + 1}` : "Method";
    entrant.remove.hidden = entrants.length < 2;
    entrant.remove.setAttribute("aria-label", `Remove method ${index + 1}`);
  });
  $("add").disabled = entrants.length >= about.limits.entrants;
}

function request() {
  const wanted = {
    prompts: $("prompts").value.split("\n").filter((line) => line.trim()),
    seed: Number($("seed").value),
    sampling: sampling(),
    entrants: entrants.map((entrant) => entrant.read()),
    audit: $("audit").checked,
    whole: $("whole").checked,
    messages: $("messages").checked,
  };
  if (about.noun === "text") wanted.max_tokens = Number($("max-tokens").value);
  return wanted;
}

let sampling = () => ({}), planned = 0;

// What the next decode will cost: asked whenever something changed.
async function plan() {
  const turn = ++planned;
  await new Promise((done) => setTimeout(done, 250));
  if (turn !== planned) return;
  try {
    const found = await ask("api/check", request());
    if (turn !== planned) return;
    complain("");
    const compiles = found.compiles.map((value, index) => (value ? index + 1 : 0)).filter(Boolean);
    const which = entrants.length > 1 ? ` (method ${compiles.join(" and ")})` : "";
    $("plan").replaceChildren(make("strong", {}, compiles.length ? "Compiles first" : "Runs at once"),
      compiles.length ? `${which}: these static values make a new program, which takes seconds.` : ": the programs are there, these values need no new one.");
  } catch (error) {
    if (turn === planned) complain(error.message), ($("plan").textContent = "");
  }
}

// One line, and a mark at the field that it names.
function complain(message) {
  $("error").textContent = message;
  for (const field of document.querySelectorAll("[aria-invalid]")) field.removeAttribute("aria-invalid");
  if (!message) return;
  const named = [...$("form").elements].find((field) => field.name && new RegExp(`\\b(${field.name}|${field.name.replaceAll("_", " ")})\\b`).test(message));
  const field = named || (/prompt|class|text/i.test(message) ? $("prompts") : /seed/.test(message) ? $("seed") : null);
  if (field) field.setAttribute("aria-invalid", "true"), field.closest("details")?.setAttribute("open", "");
}

// ---- results ------------------------------------------------------------------------------------------------------

const COUNTERS = { tokens: "tokens", calls: "target calls", per: "tokens a call", accepted: "accepted", seconds: "wall clock", traces: "traces" };

function lane(name, captions, length) {
  const method = about.methods.find((each) => each.name === name), many = captions.length > 1;
  const counters = {}, list = make("dl", { className: "counters" });
  for (const [key, words] of Object.entries(COUNTERS)) {
    counters[key] = make("dd", {}, "–");
    list.append(make("div", {}, make("dt", {}, words), counters[key]));
  }
  const badge = { true: "exact", false: "not exact", option: "exact on request" }[method.exact];
  const note = make("span", { className: "about" }), mark = make("span", { className: `badge ${method.exact === true ? "exact" : "lossy"}` }, badge);
  const card = make("article", { className: "card", "aria-label": `${name}, ${method.title}` },
    make("div", { className: "head" }, make("h3", {}, name), mark, note), list);
  const side = Math.ceil(Math.sqrt(length)), grid = about.grid || [Math.ceil(length / side), side];
  const rows = captions.map((caption) => {
    const row = { origins: [], rounds: [], doubts: [], sizes: [], commit: [] };
    if (many) card.append(make("p", { className: "about" }, caption));
    if (about.noun === "image") {
      row.image = make("img", { src: BLANK, alt: `${caption}, decoded by ${name}: not begun` });
      row.map = make("canvas", { role: "img", "aria-label": "Who decided each token: not begun" });
      row.doubt = make("canvas", { role: "img", "aria-label": "Tokens in the round of each token: not begun" });
      row.words = make("figcaption", {}, "tokens in its round");
      const panels = make("div", { className: "panels" },
        make("figure", {}, row.image, make("figcaption", {}, "image")),
        make("figure", {}, row.map, make("figcaption", {}, "who decided")),
        make("figure", {}, row.doubt, row.words));
      panels.style.setProperty("--ratio", `${grid[1]} / ${grid[0]}`);
      card.append(panels);
    } else {
      row.text = make("p", { className: "text" }, caption);
      card.append(row.text);
    }
    row.strip = make("canvas", { className: "strip", role: "img", "aria-label": "Rounds: none yet" });
    row.table = make("tbody", {});
    const head = make("tr", {}, ...["round", "drafted", "accepted", "rejected", "by the target"].map((words) => make("th", { scope: "col" }, words)));
    const region = make("div", { className: "scroll", tabindex: "0", role: "region", "aria-label": `Rounds of ${name}` },
      make("table", {}, make("thead", {}, head), row.table));
    row.details = make("details", {}, make("summary", {}, "Rounds as a table"), region);
    row.details.addEventListener("toggle", () => row.details.open && table(row));
    card.append(make("div", {}, make("p", { className: "hint" }, "rounds: accepted drafts (filled), rejected ones (outline), the target's own token (below)"), row.strip), row.details);
    return row;
  });
  $("lanes").append(card);
  const at = { name, counters, note, mark, rows, grid, captions, total: { calls: 0, drafted: 0, accepted: 0 }, seconds: 0, traces: 0, dirty: false };
  for (const canvas of card.querySelectorAll("canvas")) sharp(canvas, () => ((at.dirty = true), draw(at)));
  return at;
}

function table(row) {
  row.table.replaceChildren(...row.rounds.map((round, index) => {
    const own = round.replaced ? "replaced" : round.bonus ? "added" : round.first ? "first token" : "–";
    return make("tr", {}, make("th", { scope: "row" }, `${index}`), ...[round.drafted, round.accepted + round.local, Math.max(round.drafted - round.accepted, 0), own].map((value) => make("td", {}, `${value}`)));
  }));
}

function commit(at, event) {
  Object.assign(at, { seconds: event.seconds, traces: event.traces, dirty: true });
  event.rows.forEach((found, index) => {
    const row = at.rows[index], kinds = found.tokens.map((token) => token[1]);
    if (!found.tokens.length && !found.drafted) return;
    row.rounds.push({ drafted: found.drafted, accepted: found.accepted, local: found.local, replaced: kinds.includes(3), bonus: kinds.includes(4), first: kinds.includes(1) });
    if (!kinds.length || kinds.some((kind) => kind !== 5)) at.total.calls += 1;
    at.total.drafted += found.drafted;
    at.total.accepted += found.accepted;
    found.tokens.forEach(([position, origin], number) => {
      row.origins[position] = origin;
      row.sizes[position] = found.tokens.length;
      if (found.doubts) row.doubts[position] = found.doubts[number];
      if (row.text) {
        const doubt = found.doubts && found.doubts[number] !== null ? `, ${short(found.doubts[number], 2)}` : "";
        row.text.append(make("span", { className: `token o${origin}`, title: `${ORIGINS[origin].word}, round ${event.round}${doubt}` }, found.pieces[number] ?? ""));
      }
    });
  });
}

function draw(at) {
  if (!at.dirty) return;
  at.dirty = false;
  let tokens = 0;
  for (const row of at.rows) {
    const counts = {};
    for (const origin of row.origins) if (origin) counts[origin] = (counts[origin] || 0) + 1, tokens++;
    const words = Object.entries(counts).map(([origin, count]) => `${count} ${ORIGINS[origin].word}`).join(", ");
    if (row.map) {
      drawOrigins(row.map, at.grid, row.origins);
      row.map.setAttribute("aria-label", `Who decided each token: ${words}`);
      const known = row.doubts.filter((value) => value !== null && value !== undefined);
      const values = row.doubts.length ? row.doubts : row.sizes, most = Math.max(...(row.doubts.length ? known : row.sizes.filter(Boolean)), 0);
      drawNumbers(row.doubt, at.grid, values, most);
      const name = row.doubts.length ? at.doubts || "uncertainty" : "tokens in its round";
      const scale = !row.doubts.length || known.length ? `${name}: 0 light, ${short(most, 2)} dark` : "no draft was tested";
      row.words.textContent = scale;
      row.doubt.setAttribute("aria-label", `${name} of each token, up to ${short(most, 2)}`);
    }
    drawStrip(row.strip, row.rounds);
    const sum = (key) => row.rounds.reduce((all, round) => all + round[key], 0);
    row.strip.setAttribute("aria-label", `${row.rounds.length} rounds: ${sum("drafted")} drafted, ${sum("accepted")} accepted, ${row.rounds.filter((round) => round.replaced).length} ended by a replaced token`);
    if (row.details.open) table(row);
  }
  const { calls, drafted, accepted } = at.total;
  at.counters.tokens.textContent = tokens;
  at.counters.calls.textContent = calls;
  at.counters.per.textContent = calls ? short(tokens / calls) : "–";
  at.counters.accepted.textContent = drafted ? `${Math.round((100 * accepted) / drafted)} %` : "–";
  at.counters.seconds.textContent = seconds(at.seconds);
  at.counters.traces.textContent = at.traces;
}

function show(at, event) {
  (event.images || []).forEach((source, index) => {
    at.rows[index].image.src = source;
    at.rows[index].image.alt = `${at.captions[index]}, decoded by ${at.name}${event.figures ? "" : ": not finished"}`;
  });
  if (!event.figures) return;
  at.figures = event.figures;
  at.mark.textContent = event.figures.is_exact ? "exact" : "not exact";
  at.mark.className = `badge ${event.figures.is_exact ? "exact" : "lossy"}`;
  at.doubts = event.figures.doubts_are;
  at.dirty = true;
  at.total.calls = event.figures.target_calls;
}

// On a phone the form fills the screen: the first image or text comes into view, with what stands above it if there is room.
function reveal() {
  $("results").focus({ preventScroll: true }); // a field that keeps it keeps the keyboard of a phone, too
  const place = $("lanes").querySelector("img, .text") || $("status"), { top, bottom } = place.getBoundingClientRect();
  if (top >= 0 && bottom <= innerHeight) return;
  const fits = bottom - $("results").getBoundingClientRect().top <= innerHeight;
  if (fits) $("results").scrollIntoView({ block: "start" });
  else place.scrollIntoView({ block: "end" });
}

function handle(event, words) {
  const at = lanes[event.lane], status = $("status");
  if (event.event === "queued") {
    status.textContent = event.ahead ? `Waiting: ${event.ahead} ahead in the queue.` : "Your turn.";
    reveal();
  }
  if (event.event === "started") {
    $("warnings").replaceChildren(...event.warnings.map((words) => make("li", {}, words)));
    lanes = event.methods.map((name) => lane(name, event.captions, event.max_len));
    $("legend").hidden = false;
    reveal();
  }
  if (event.event === "warming") {
    status.textContent = event.compiles ? `Compiling ${at.name}, once for these static values…` : `Decoding ${at.name}…`;
    at.note.textContent = event.compiles ? "compiling…" : "";
  }
  if (event.event === "ready") at.note.textContent = event.traces ? `compiled in ${seconds(event.compile_s)}` : "no new program";
  if (event.event === "round") commit(at, event), (status.textContent = words);
  if (event.event === "images" || event.event === "done") show(at, event);
  if (event.event === "error") complain(event.message), (status.textContent = `Stopped by an error: ${event.message}`);
  if (event.event === "finished") finish(event);
}

const TABLE = [
  ["output", (f) => (f.is_exact ? "exact" : "not exact")],
  ["tokens", (f) => f.tokens],
  ["target calls", (f) => f.target_calls],
  ["draft calls", (f) => f.draft_calls],
  ["drafted, accepted", (f) => `${f.drafted}, ${f.accepted}`],
  ["accepted locally", (f) => f.local],
  ["tokens per target call", (f) => short(f.tokens_per_target_call)],
  ["wall clock, round by round", (f) => seconds(f.run_s)],
  ["tokens per second, round by round", (f) => short(f.tokens_per_s)],
  ["wall clock, one program", (f) => seconds(f.whole_s)],
  ["same tokens in one program", (f) => (f.whole_same === undefined ? "–" : f.whole_same ? "yes" : "no")],
  ["traces, compile time", (f) => `${f.traces}, ${seconds(f.compile_s)}`],
  ["total variation, mean of a token", (f) => short(f.audit?.tv.value, 3)],
  ["total variation, sum (bound)", (f) => short(f.audit?.tv_sum, 3)],
  ["KL to the target, mean of a token", (f) => (f.audit ? (f.audit.kl.value === null ? "infinite" : short(f.audit.kl.value, 3)) : "–")],
];

function fill(place, columns, lines) {
  const head = make("tr", {}, make("td", {}), ...columns.map((name) => make("th", { scope: "col" }, name)));
  const body = lines.map(([words, cells]) => make("tr", {}, make("th", { scope: "row" }, words), ...cells.map((cell) => make("td", {}, `${cell}`))));
  place.replaceChildren(make("thead", {}, head), make("tbody", {}, ...body));
}

function finish(event) {
  const figures = lanes.map((at) => at.figures), names = lanes.map((at) => at.name);
  $("status").textContent = "Finished.";
  $("after").hidden = false;
  const lines = TABLE.map(([words, read]) => [words, figures.map(read)]).filter(([, cells]) => cells.some((cell) => cell !== "–"));
  fill($("figures"), names, lines);
  uses = figures.map((found) => found.link);
  link();
  const links = event.files.map((file) => make("a", { href: `api/races/${event.name}/${file}`, download: "" }, file));
  $("files").replaceChildren("Download:", ...links);
  if (about.writes) {
    const button = make("button", { type: "button" }, "Write into the folder"), said = make("span", { role: "status" });
    button.addEventListener("click", async () => {
      try {
        said.textContent = `Wrote ${(await ask(`api/races/${event.name}/write`, {})).written.join(", ")}`;
      } catch (error) {
        said.textContent = error.message;
      }
    });
    $("files").append(button, said);
  }
  $("repeat").replaceChildren(...event.commands.flatMap((command, index) => [
    make("h3", {}, `Repeat ${names[index]}`),
    make("pre", { tabIndex: 0, role: "region", "aria-label": `Command line of ${names[index]}` }, command),
    make("details", {}, make("summary", {}, "In Python"), make("pre", { tabIndex: 0, role: "region", "aria-label": `Python of ${names[index]}` }, event.snippets[index])),
  ]));
}

async function link() {
  $("bases").replaceChildren(...uses.flatMap((use, index) => (use ? [make("li", {}, `${lanes[index].name}: ${use.basis}`)] : [])));
  const rate = 10 ** Number($("rate").value), latency = Number($("latency").value);
  $("rate-out").textContent = `${short(rate)} Mbit/s`;
  $("latency-out").textContent = `${latency} ms`;
  $("rate").setAttribute("aria-valuetext", `${short(rate)} megabits per second`);
  $("latency").setAttribute("aria-valuetext", `${latency} milliseconds`);
  const known = uses.filter(Boolean);
  if (!known.length) return void $("link").replaceChildren(make("tbody", {}, make("tr", {}, make("td", { className: "words" }, "No ids cross a link with these tokens."))));
  const found = await ask("api/link", { rate_mbps: rate, latency_ms: latency, uses: known });
  const times = uses.map((use) => (use ? found.seconds[known.indexOf(use)] : null)), pick = (read) => uses.map((use) => (use ? read(use) : "–"));
  fill($("link"), lanes.map((at) => at.name), [
    ["link, modelled", times.map(seconds)],
    ["link and wall clock", times.map((time, index) => (time === null ? "–" : seconds(time + lanes[index].figures.run_s)))],
    ["bits sent up", pick((use) => use.uplink_bits.toLocaleString("en"))],
    ["bits sent down", pick((use) => use.downlink_bits.toLocaleString("en"))],
    ["exchanges", pick((use) => use.calls)],
  ]);
}

// ---- the stream ---------------------------------------------------------------------------------------------------

// Empty lanes, which `run` fills until the button stops it.
async function fillLanes(run) {
  leave = new AbortController();
  const again = setInterval(() => lanes.forEach(draw), 60);
  $("go").disabled = true;
  $("stop").hidden = false;
  $("replay").hidden = $("after").hidden = true;
  $("lanes").replaceChildren();
  lanes = [];
  try {
    await run(leave.signal);
  } catch (error) {
    if (error.name === "AbortError") $("status").textContent = "Stopped.";
    else complain(error.message), ($("status").textContent = lanes.length ? `Stopped by an error: ${error.message}` : "Nothing was decoded.");
  } finally {
    clearInterval(again);
    lanes.forEach(draw);
    $("go").disabled = false;
    $("stop").hidden = true;
    $("replay").hidden = !recorded.length;
    leave = null;
  }
}

async function decode(event) {
  event.preventDefault();
  complain("");
  if (leave) return;
  let wanted;
  try {
    wanted = request();
  } catch (error) {
    return complain(error.message);
  }
  await fillLanes(async (signal) => {
    let kept = [], last = null;
    recorded = [];
    const reply = await fetch("api/race", { method: "POST", headers: { "content-type": "application/json" }, body: JSON.stringify(wanted), signal }).catch(lost);
    if (!reply.ok) throw new Error((await reply.json()).message);
    const reader = reply.body.pipeThrough(new TextDecoderStream()).getReader();
    for (let rest = ""; ; ) {
      const { value, done } = await reader.read().catch(lost);
      if (done) break;
      const lines = (rest + value).split("\n");
      rest = lines.pop();
      for (const line of lines.filter(Boolean)) {
        const found = JSON.parse(line);
        [kept, last] = [keep(kept, found), found.event];
        handle(found, "Decoding…");
      }
    }
    if (last === "finished") recorded = kept;
    else if (last !== "error") lost(new Error());
  });
  if (recorded.length) plan();
}

function replay() {
  fillLanes(async (signal) => {
    await play(recorded, (event) => handle(event, "Replaying…"), signal);
    $("status").textContent = "Finished.";
    $("after").hidden = false;
  });
}

async function begin() {
  about = await ask("api/about");
  const noun = about.kind === "class" ? "Classes" : about.kind === "text" ? "Beginnings of texts" : "Prompts";
  $("about").textContent = `Networks ${about.bundle}: ${about.noun}s, ${about.methods.length} methods. Prompts stay on the machine that decodes.`;
  $("prompts-label").textContent = `${noun}, one per line`;
  $("prompts-hint").textContent = `Up to ${about.limits.prompts} lines of ${about.limits.prompt_letters} characters.` + (about.classes.length ? ` Classes: ${about.classes.slice(0, 12).join(", ")}…` : "");
  $("prompts").value = about.example;
  $("seed").max = about.limits.seed;
  $("length-field").hidden = about.noun !== "text";
  $("max-tokens").max = about.limits.text_tokens;
  $("audit-label").hidden = $("messages-label").hidden = !about.can_audit;
  sampling = controls($("sampling"), about.sampling, "s");
  addEntrant(about.method).details.open = true;
  for (const origin of Object.keys(ORIGINS)) {
    const isText = about.noun === "text", swatch = make(isText ? "span" : "canvas", { "aria-hidden": "true" });
    if (isText) (swatch.className = `token o${origin}`), (swatch.textContent = "word");
    else drawOrigin(swatch, origin);
    $("legend").append(make("li", {}, swatch, ORIGINS[origin].word));
  }
  for (const [name, [rate, latency]] of Object.entries(about.networks)) $("network").append(make("option", { value: `${rate},${latency}` }, `${name}: ${rate} Mbit/s, ${latency} ms`));
  $("network").append(make("option", { value: "" }, "own values"));
  const preset = () => {
    const [rate, latency] = $("network").value.split(",").map(Number);
    if (!rate) return;
    $("rate").value = Math.log10(rate);
    $("latency").value = latency;
  };
  preset();
  $("network").addEventListener("change", () => (preset(), link()));
  for (const id of ["rate", "latency"]) $(id).addEventListener("input", () => (($("network").value = ""), link()));
  $("add").addEventListener("click", () => {
    const taken = entrants.map((entrant) => entrant.read().method);
    const next = about.methods.find((method) => !taken.includes(method.name)) || about.methods[0];
    addEntrant(next.name).box.querySelector("select").focus();
    plan();
  });
  $("form").addEventListener("input", plan);
  $("form").addEventListener("submit", decode);
  $("stop").addEventListener("click", () => leave?.abort());
  $("replay").addEventListener("click", replay);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
    lanes.forEach((at) => ((at.dirty = true), draw(at)));
    document.querySelectorAll("#legend canvas").forEach((canvas, index) => drawOrigin(canvas, Object.keys(ORIGINS)[index]));
  });
  plan();
}

begin().catch((error) => complain(error.message));
