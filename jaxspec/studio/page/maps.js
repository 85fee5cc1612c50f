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

// Gives a canvas the pixels that the screen shows of it, and draws again when they change: a browser that scales a canvas loses lines.
export function sharp(canvas, draw) {
  const watch = new ResizeObserver(([{ contentRect, devicePixelContentBoxSize: [exact] = [] }]) => {
    const pixels = (size, found) => {
      const guess = size * devicePixelRatio;
      return Math.abs(found - guess) < 1 ? found : Math.round(guess); // what tools that imitate a phone find is of their own screen
    };
    const width = pixels(contentRect.width, exact?.inlineSize), height = pixels(contentRect.height, exact?.blockSize);
    if (!width || !height || (canvas.width === width && canvas.height === height)) return;
    Object.assign(canvas, { width, height });
    draw();
  });
  try {
    watch.observe(canvas, { box: "device-pixel-content-box" });
  } catch {
    watch.observe(canvas); // Safari does not know that box
  }
}

// Where cells begin, and where the last one ends, in whole pixels.
const edges = (count, length) => Array.from({ length: count + 1 }, (_, at) => Math.round((at * length) / count));

// Calls `each` with the place of every cell, without the line on its right and below it.
function cells(canvas, [rows, columns], each) {
  const pen = canvas.getContext("2d"), x = edges(columns, canvas.width), y = edges(rows, canvas.height);
  const size = Math.min(canvas.width / columns, canvas.height / rows);
  const line = Math.max(1, Math.min(Math.round(devicePixelRatio), Math.floor(size / 4)));
  pen.clearRect(0, 0, canvas.width, canvas.height);
  for (let row = 0; row < rows; row++)
    for (let column = 0; column < columns; column++) {
      const width = Math.max(x[column + 1] - x[column] - line, 1), height = Math.max(y[row + 1] - y[row] - line, 1);
      each(pen, row * columns + column, x[column], y[row], width, height);
    }
}

export function drawOrigins(canvas, grid, origins) {
  const colours = Object.fromEntries(Object.keys(ORIGINS).map((key) => [key, css(ORIGINS[key].colour)])), ink = css("--mark");
  cells(canvas, grid, (pen, at, x, y, width, height) => {
    const origin = origins[at];
    if (!origin) return;
    pen.fillStyle = colours[origin];
    pen.fillRect(x, y, width, height);
    const size = Math.min(width, height);
    mark(pen, ORIGINS[origin].mark, x + (width - size) / 2, y + (height - size) / 2, size, ink);
  });
}

export function drawNumbers(canvas, grid, values, highest) {
  cells(canvas, grid, (pen, at, x, y, width, height) => {
    if (values[at] === undefined || values[at] === null) return;
    pen.fillStyle = shade(values[at] / (highest || 1));
    pen.fillRect(x, y, width, height);
  });
}

// One column a round: accepted drafts upwards, rejected ones above them in outline, what the target drew as a mark below.
export function drawStrip(canvas, rounds) {
  const { width, height } = canvas, pixel = height / 56, base = Math.round(42 * pixel); // 56 as in the style
  const pen = canvas.getContext("2d"), step = width / Math.max(rounds.length, 24);
  pen.clearRect(0, 0, width, height);
  const most = Math.max(1, ...rounds.map((round) => Math.max(round.drafted, round.accepted + round.local)));
  const unit = (base - 3 * pixel) / most, gap = step > 2 * pixel ? Math.max(1, Math.round(pixel)) : 0.5;
  const colours = { drafted: css("--drafted"), local: css("--local"), bonus: css("--bonus"), replaced: css("--replaced") };
  const line = css("--quiet"), ink = css("--mark");
  rounds.forEach((round, index) => {
    const x = Math.round(index * step), fill = Math.max(1, Math.round((index + 1) * step) - x - gap);
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
      pen.fillRect(x, base + 2 * pixel, fill, 10 * pixel);
      if (step >= 4 * pixel) mark(pen, own === "replaced" ? "cross" : "dot", x + fill / 2 - 4 * pixel, base + 3 * pixel, 8 * pixel, ink);
    }
  });
}
