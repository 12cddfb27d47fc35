// What both charts have: the time axis, marks of moves, and moving through time by mouse, touch and keys.

const charts = [];

const HINT = "Point at the chart, or choose it and press the arrow keys, to read its values.";

// A chart in a section. `draw(svg, plot)` draws what is between the axes; `height()` is that of the plot.
function chart(section, label, height, draw, tell) {
  const figure = section.querySelector("figure");
  const canvas = svg("svg", { class: "chart", tabindex: 0, role: "application", "aria-label": label });
  figure.append(canvas);
  const made = { section, canvas, height, draw, tell, select: null };
  charts.push(made);
  listen(made);
  return made;
}

// The place of the plot in a chart, in pixels.
function plotOf(made) {
  const width = Math.max(made.canvas.clientWidth, 200);
  const narrow = width < 560;
  const left = made.left(narrow);
  const top = 16;
  const height = made.height(narrow);
  const right = width - 8;
  const x = (at) => left + ((at - state.from) / (state.to - state.from)) * (right - left);
  const at = (pixel) => state.from + ((pixel - left) / (right - left)) * (state.to - state.from);
  return { narrow, width, left, right, top, bottom: top + height, height, x, at };
}

// The columns that are in sight, from the first to behind the last.
function inSight() {
  const search = (list, value, after) => {
    let [low, high] = [0, columns];
    while (low < high) {
      const middle = (low + high) >> 1;
      if (after ? list[middle] < value : list[middle] <= value) low = middle + 1;
      else high = middle;
    }
    return low;
  };
  return [search(data.ends, state.from, false), search(data.starts, state.to, true)];
}

function columnAt(at) {
  let [low, high] = [0, columns - 1];
  while (low < high) {
    const middle = (low + high) >> 1;
    if (data.ends[middle] <= at) low = middle + 1;
    else high = middle;
  }
  return low;
}

// Begin and end of a column in pixels, within the plot.
function span(plot, column) {
  const from = Math.max(plot.left, plot.x(data.starts[column]));
  const to = Math.min(plot.right, plot.x(data.ends[column]));
  return [from, Math.max(to, from)];
}

// Round steps: about this many between two values.
function ticks(from, to, about) {
  const rough = Math.max(to - from, 1e-9) / about;
  const size = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((times) => times * size).find((of) => of >= rough * 0.999);
  const list = [];
  for (let at = Math.ceil(from / step - 1e-9) * step; at <= to + step * 1e-9; at += step) list.push(at);
  return { list, step };
}

function drawChart(made) {
  const plot = plotOf(made);
  const canvas = made.canvas;
  const height = plot.bottom + 22;
  canvas.setAttribute("viewBox", `0 0 ${plot.width} ${height}`);
  canvas.style.height = `${height}px`;
  canvas.replaceChildren(patterns(made));
  canvas.append(svg("rect", { class: "frame", x: plot.left, y: plot.top, width: plot.right - plot.left, height: plot.height }));
  const { list, step } = ticks(state.from, state.to, plot.narrow ? 4 : 8);
  for (const at of list) {
    const x = plot.x(at);
    canvas.append(svg("path", { class: "grid", d: `M${x} ${plot.top}V${plot.bottom + 4}` }));
    const anchor = x > plot.right - 25 ? "end" : x < plot.left + 15 ? "start" : "middle";
    canvas.append(svg("text", { class: "dim", x, y: plot.bottom + 16, "text-anchor": anchor }, time(at, step)));
  }
  made.draw(canvas, plot);
  drawMoves(canvas, plot);
  drawGaps(canvas, plot, made);
  if (state.mark !== null && state.mark < columns) {
    const [from, to] = [plot.x(data.starts[state.mark]), plot.x(data.ends[state.mark])];
    const x = (from + to) / 2;
    if (x >= plot.left && x <= plot.right) {
      canvas.append(svg("path", { class: "mark", d: `M${x} ${plot.top}V${plot.bottom}` }));
    }
  }
  if (made.select) {
    const [from, to] = made.select.map((x) => Math.max(plot.left, Math.min(x, plot.right))).sort((a, b) => a - b);
    canvas.append(svg("rect", { class: "selection", x: from, y: plot.top, width: to - from, height: plot.height }));
  }
  made.section.querySelector(".readout").textContent = state.mark === null ? HINT : made.tell(state.mark);
}

// Patterns that tell apart what colours do not.
function patterns(made) {
  const id = made.section.id;
  const pattern = (name, size, child) =>
    svg("pattern", { id: `${id}-${name}`, width: size, height: size, patternUnits: "userSpaceOnUse" }, child);
  return svg(
    "defs",
    {},
    pattern("stripes", 6, svg("path", { class: "stripe", d: "M-1 1L1 -1M0 6L6 0M5 7L7 5" })),
    pattern("hatch", 5, svg("path", { class: "hatching", d: "M-1 4L1 6M0 0L5 5M4 -1L6 1" })),
    pattern("dots", 4, svg("circle", { class: "dotting", cx: 1.5, cy: 1.5, r: 0.9 })),
  );
}

// A triangle above each column in which threads were moved; those that would overlap are one.
function drawMoves(canvas, plot) {
  const [first, behind] = inSight();
  let open = null;
  const close = () => {
    if (!open) return;
    const title = svg("title", {}, `${count(open.moves, "move")} at ${time(open.at, 0.01)}`);
    const x = open.sum / open.columns;
    const mark = svg("path", { class: "move", d: `M${x - 4} ${plot.top - 10}h8L${x} ${plot.top - 2}z` }, title);
    canvas.append(mark);
    open = null;
  };
  for (let column = first; column < behind; column += 1) {
    if (!data.moved[column]) continue;
    // A move is made at the end of its period.
    const x = Math.min(plot.right, plot.x(data.ends[column]));
    if (open && x - open.last > 7) close();
    open = open ?? { at: data.ends[column], moves: 0, sum: 0, columns: 0 };
    open.moves += data.moved[column];
    open.sum += x;
    open.columns += 1;
    open.last = x;
  }
  close();
  if (first < behind && data.moved.slice(first, behind).some((number) => number > 0)) {
    canvas.append(svg("text", { class: "dim", x: plot.left - 6, y: plot.top - 3, "text-anchor": "end" }, "moves"));
  }
}

// Whether what is before a column was not observed.
function isAfterGap(column) {
  if (column === 0) return false;
  const gap = data.starts[column] - data.ends[column - 1];
  return gap > (data.ends[column] - data.starts[column]) * 0.2;
}

// Stretches that were not observed.
function drawGaps(canvas, plot, made) {
  for (let column = 1; column < columns; column += 1) {
    if (!isAfterGap(column)) continue;
    const from = Math.max(plot.left, plot.x(data.ends[column - 1]));
    const to = Math.min(plot.right, plot.x(data.starts[column]));
    if (to - from < 1) continue;
    const fill = `url(#${made.section.id}-hatch)`;
    canvas.append(svg("rect", { class: "gap", x: from, y: plot.top, width: to - from, height: plot.height, fill },
      svg("title", {}, "not observed")));
    if (to - from > 90) {
      canvas.append(svg("text", { class: "inside", x: (from + to) / 2, y: plot.top + plot.height / 2, "text-anchor": "middle" }, "not observed"));
    }
  }
}

function zoom(factor, around = (state.from + state.to) / 2) {
  show(around - (around - state.from) * factor, around + (state.to - around) * factor);
  redraw();
}

function pan(share) {
  const by = (state.to - state.from) * share;
  show(state.from + by, state.to + by);
  redraw();
}

function showWhole() {
  show(whole.from, whole.to);
  redraw();
}

// Moves the mark by columns, and the time shown with it.
function step(by) {
  const [first, behind] = inSight();
  const start = by > 0 ? first - 1 : behind;
  const inside = state.mark !== null && state.mark >= first && state.mark < behind;
  state.mark = Math.max(0, Math.min(columns - 1, (inside ? state.mark : start) + by));
  const [from, to] = [data.starts[state.mark], data.ends[state.mark]];
  const length = state.to - state.from;
  if (from < state.from) show(from, from + length);
  else if (to > state.to) show(to - length, to);
  redraw();
}

function listen(made) {
  const canvas = made.canvas;
  const pointers = new Map();
  let drag = null;
  const place = (event) => event.clientX - canvas.getBoundingClientRect().left;
  // Sets the mark, and the lane.
  const point = (event, plot) => {
    const x = place(event);
    if (x < plot.left || x > plot.right) return;
    state.mark = columnAt(plot.at(x));
    if (made.hover) made.hover(event.clientY - canvas.getBoundingClientRect().top, plot);
    redraw();
  };
  canvas.addEventListener("wheel", (event) => {
    if (!event.ctrlKey && !event.metaKey && !event.shiftKey && document.activeElement !== canvas) return;
    event.preventDefault();
    const turned = (event.deltaY || event.deltaX) * (event.deltaMode === 1 ? 20 : 1);
    if (event.shiftKey || Math.abs(event.deltaX) > Math.abs(event.deltaY)) pan(turned / 1000);
    else zoom(Math.exp(Math.max(-1, Math.min(1, turned / 400))), plotOf(made).at(place(event)));
  }, { passive: false });
  canvas.addEventListener("pointerdown", (event) => {
    if (event.button !== 0) return;
    pointers.set(event.pointerId, place(event));
    canvas.setPointerCapture(event.pointerId);
    const along = event.shiftKey || event.pointerType === "touch";
    const pinch = pointers.size === 2 ? [...pointers.values()] : null;
    drag = { from: place(event), along, pinch, view: [state.from, state.to], plot: plotOf(made) };
  });
  canvas.addEventListener("pointermove", (event) => {
    const x = place(event);
    if (pointers.has(event.pointerId)) pointers.set(event.pointerId, x);
    if (!drag || pointers.size === 0) {
      point(event, plotOf(made));
    } else if (drag.pinch && pointers.size === 2) {
      const [a, b] = drag.pinch.map((pixel) => drag.plot.at(pixel));
      const [p, q] = [...pointers.values()];
      if (Math.abs(p - q) < 10) return;
      const perPixel = (b - a) / (q - p);
      const { left, right } = drag.plot;
      if (perPixel > 0) show(a - (p - left) * perPixel, a + (right - p) * perPixel);
      redraw();
    } else if (drag.along) {
      const { left, right } = drag.plot;
      const by = ((drag.from - x) / (right - left)) * (drag.view[1] - drag.view[0]);
      show(drag.view[0] + by, drag.view[1] + by);
      redraw();
    } else {
      made.select = [drag.from, x];
      redraw();
    }
  });
  const end = (event) => {
    pointers.delete(event.pointerId);
    if (pointers.size) return;
    const chosen = made.select;
    const plot = drag?.plot;
    const begin = drag?.from;
    [drag, made.select] = [null, null];
    if (chosen && event.type === "pointerup" && Math.abs(chosen[1] - chosen[0]) > 4) {
      const [from, to] = chosen.map((x) => plot.at(x)).sort((a, b) => a - b);
      show(Math.max(from, state.from), Math.min(to, state.to));
    } else if (event.type === "pointerup" && plot && Math.abs(place(event) - begin) < 5) {
      point(event, plot);
    }
    redraw();
  };
  canvas.addEventListener("pointerup", end);
  canvas.addEventListener("pointercancel", end);
  canvas.addEventListener("dblclick", showWhole);
  canvas.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const actions = {
      "+": () => zoom(0.6),
      "=": () => zoom(0.6),
      "-": () => zoom(1 / 0.6),
      0: showWhole,
      ArrowLeft: () => (event.shiftKey ? pan(-0.2) : step(-1)),
      ArrowRight: () => (event.shiftKey ? pan(0.2) : step(1)),
      ArrowUp: made.up,
      ArrowDown: made.down,
    };
    const action = actions[event.key];
    if (!action) return;
    event.preventDefault();
    action();
  });
}
