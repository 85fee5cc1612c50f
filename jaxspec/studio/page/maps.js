// Maps of tokens and strips of rounds on canvases. Every colour has a mark of its own, so that none is read by colour alone.

export const ORIGINS = {
  1: { word: "first token", colour: "--first", mark: "ring" },
  2: { word: "drafted and accepted", colour: "--drafted", mark: "none" },
  3: { word: "replaced after a rejection", colour: "--replaced", mark: "cross" },
  4: { word: "added by the target", colour: "--bonus", mark: "dot" },
  5: { word: "accepted locally", colour: "--local", mark: "bar" },
};

const css = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
const FEW = [232, 240, 250], MANY = [8, 48, 107];

export function shade(part) {
  const at = (i) => Math.round(FEW[i] + (MANY[i] - FEW[i]) * Math.min(Math.max(part, 0), 1));
  return `rgb(${at(0)},${at(1)},${at(2)})`;
}

function mark(pen, kind, x, y, size, colour) {
  pen.strokeStyle = pen.fillStyle = colour;
  pen.lineWidth = Math.max(1, size / 8);
  const c = [x + size / 2, y + size / 2], r = size * 0.24;
  pen.beginPath();
  if (kind === "ring") pen.arc(...c, r, 0, 7), pen.stroke();
  if (kind === "dot") pen.arc(...c, r * 0.75, 0, 7), pen.fill();
  if (kind === "bar") pen.moveTo(c[0] - r, c[1]), pen.lineTo(c[0] + r, c[1]), pen.stroke();
  if (kind === "cross") {
    pen.moveTo(c[0] - r, c[1] - r), pen.lineTo(c[0] + r, c[1] + r);
    pen.moveTo(c[0] - r, c[1] + r), pen.lineTo(c[0] + r, c[1] - r), pen.stroke();
  }
}

export function drawOrigin(canvas, origin) {
  const pen = canvas.getContext("2d"), kind = ORIGINS[origin];
  canvas.width = canvas.height = 36;
  pen.fillStyle = css(kind.colour);
  pen.fillRect(0, 0, 36, 36);
  mark(pen, kind.mark, 0, 0, 36, css("--mark"));
}

function cells(canvas, grid, each) {
  const [rows, columns] = grid, size = Math.max(6, Math.floor(384 / Math.max(rows, columns)));
  canvas.width = columns * size;
  canvas.height = rows * size;
  const pen = canvas.getContext("2d");
  pen.clearRect(0, 0, canvas.width, canvas.height);
  for (let at = 0; at < rows * columns; at++) each(pen, at, (at % columns) * size, Math.floor(at / columns) * size, size);
}

export function drawOrigins(canvas, grid, origins) {
  const colours = Object.fromEntries(Object.keys(ORIGINS).map((key) => [key, css(ORIGINS[key].colour)])), ink = css("--mark");
  cells(canvas, grid, (pen, at, x, y, size) => {
    const origin = origins[at];
    if (!origin) return;
    pen.fillStyle = colours[origin];
    pen.fillRect(x, y, size - 1, size - 1);
    mark(pen, ORIGINS[origin].mark, x, y, size - 1, ink);
  });
}

export function drawNumbers(canvas, grid, values, highest) {
  cells(canvas, grid, (pen, at, x, y, size) => {
    if (values[at] === undefined || values[at] === null) return;
    pen.fillStyle = shade(values[at] / (highest || 1));
    pen.fillRect(x, y, size - 1, size - 1);
  });
}

// One column a round: accepted drafts upwards, rejected ones above them in outline, what the target drew as a mark below.
export function drawStrip(canvas, rounds) {
  const width = canvas.clientWidth * 2 || 600, height = 112, base = 84;
  canvas.width = width;
  canvas.height = height;
  const pen = canvas.getContext("2d"), step = width / Math.max(rounds.length, 24);
  const most = Math.max(1, ...rounds.map((round) => Math.max(round.drafted, round.accepted + round.local)));
  const unit = (base - 6) / most, fill = Math.max(1, step - (step > 4 ? 2 : 0.5));
  const colours = { drafted: css("--drafted"), local: css("--local"), bonus: css("--bonus"), replaced: css("--replaced") };
  const line = css("--quiet"), ink = css("--mark");
  rounds.forEach((round, index) => {
    const x = index * step;
    let y = base;
    for (const [count, colour] of [[round.local, colours.local], [round.accepted, colours.drafted]]) {
      pen.fillStyle = colour;
      pen.fillRect(x, y - count * unit, fill, count * unit);
      y -= count * unit;
    }
    const rejected = Math.max(round.drafted - round.accepted, 0);
    pen.strokeStyle = line;
    pen.lineWidth = 1;
    if (rejected) pen.strokeRect(x + 0.5, y - rejected * unit + 0.5, Math.max(fill - 1, 0.5), rejected * unit - 1);
    const own = round.replaced ? "replaced" : round.bonus ? "bonus" : null;
    if (own) {
      pen.fillStyle = colours[own];
      pen.fillRect(x, base + 4, fill, 20);
      if (step >= 8) mark(pen, own === "replaced" ? "cross" : "dot", x + fill / 2 - 8, base + 6, 16, ink);
    }
  });
}
