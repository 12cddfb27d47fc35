// Placement: a lane for each PU, or for each larger part of a large machine, coloured by the thread that used it most.

const COLOURS = 7;
const lanes = data.lanes;
const hasUnmeasured = data.unmeasured.some((share) => share > 0) || data.unseen.some((number) => number > 0);
const othersRan = lanes.some((lane) => lane.busy.length > 0);

// How a thread of that rank by CPU time looks: a colour, a colour with stripes, or grey.
function look(rank) {
  if (rank >= 2 * COLOURS) return { fill: "var(--others)", stripes: false };
  return { fill: `var(--thread-${rank % COLOURS})`, stripes: rank >= COLOURS };
}

// Threads with the same name are told apart by their TIDs.
const namesakes = new Map();
for (const { name } of data.names) namesakes.set(name, (namesakes.get(name) ?? 0) + 1);

function shortName(thread) {
  const { name, tid } = data.names[thread];
  return namesakes.get(name) > 1 ? `${name} ${tid}` : name;
}

function laneHeight(narrow) {
  return lanes.length <= 16 ? (narrow ? 20 : 24) : lanes.length <= 40 ? 18 : 14;
}

function rows() {
  return lanes.length + (hasUnmeasured ? 1 : 0);
}

function drawPlacement(canvas, plot) {
  const height = laneHeight(plot.narrow);
  const [first, behind] = inSight();
  let group = null;
  lanes.forEach((lane, at) => {
    const top = plot.top + at * height;
    if (lane.detail !== group || data.lane_kind !== "PU") {
      canvas.append(svg("path", { class: "grid", d: `M${plot.left} ${top}H${plot.right}` }));
      const next = lanes.findIndex((other, place) => place > at && other.detail !== lane.detail);
      const alone = next === at + 1 && height < 18;
      if (!plot.narrow && !(alone && at % 2)) {
        canvas.append(svg("text", { class: "dim", x: 4, y: top + height / 2 + 4 }, fitting(lane.detail, plot.left - 60)));
      }
    }
    group = lane.detail;
    canvas.append(svg("text", { x: plot.left - 6, y: top + height / 2 + 4, "text-anchor": "end" }, lane.label));
    drawLane(canvas, plot, lane, top, height, first, behind);
  });
  if (hasUnmeasured) drawUnmeasured(canvas, plot, plot.top + lanes.length * height, height, first, behind);
  if (state.mark !== null && document.activeElement === placement.canvas) {
    const y = plot.top + state.lane * height;
    canvas.append(svg("rect", { class: "chosen", x: plot.left, y, width: plot.right - plot.left, height }));
  }
}

// Text cut to about this many pixels.
function fitting(text, pixels) {
  const most = Math.max(1, Math.floor(pixels / 6.2));
  return text.length <= most ? text : `${text.slice(0, most - 1)}…`;
}

function drawLane(canvas, plot, lane, top, height, first, behind) {
  const id = placement.section.id;
  const bottom = top + height - 1;
  const usable = height - 2;
  // By look, one shape for all columns: the share of the PU, and a tint of the whole lane.
  const shapes = new Map();
  const add = (fill, name, d) => {
    const key = `${name} ${fill}`;
    const shape = shapes.get(key) ?? { fill, name, d: "" };
    shape.d += d;
    shapes.set(key, shape);
  };
  const box = (from, to, low, high) =>
    `M${from.toFixed(1)} ${(bottom - low * usable).toFixed(1)}H${to.toFixed(1)}V${(bottom - high * usable).toFixed(1)}H${from.toFixed(1)}z`;
  const texts = [];
  let open = null;
  const close = () => {
    if (open && open.to - open.from > 34) {
      const name = fitting(shortName(open.thread), open.to - open.from - 8);
      const x = open.from + 4;
      texts.push(svg("text", { class: "inside", x, y: top + height / 2 + 4 }, name));
    }
    open = null;
  };
  for (let column = first; column < behind; column += 1) {
    const thread = lane.threads[column];
    const [from, to] = span(plot, column);
    if (open && (open.thread !== thread || isAfterGap(column))) close();
    if (thread >= 0) {
      const { fill, stripes } = look(data.names[thread].rank);
      add(fill, "tint", box(from, to, 0, 1));
      add(fill, "share", box(from, to, 0, lane.most[column]));
      if (stripes) add(`url(#${id}-stripes)`, "share", box(from, to, 0, lane.most[column]));
      open = open ?? { thread, from };
      open.to = to;
    }
    if (lane.all[column] > lane.most[column] + 0.005) {
      add(`url(#${id}-hatch)`, "all", box(from, to, lane.most[column], lane.all[column]));
    }
    const busy = lane.busy[column] ?? 0;
    if (busy > lane.all[column] + 0.005) {
      add(`url(#${id}-dots)`, "busy", box(from, to, lane.all[column], busy));
    }
  }
  close();
  for (const { fill, name, d } of shapes.values()) {
    canvas.append(svg("path", { class: name, d, style: `fill:${fill}` }));
  }
  canvas.append(...texts);
}

function drawUnmeasured(canvas, plot, top, height, first, behind) {
  const label = plot.narrow ? "?" : "not measured";
  canvas.append(svg("path", { class: "grid", d: `M${plot.left} ${top}H${plot.right}` }));
  canvas.append(svg("text", { x: plot.left - 6, y: top + height / 2 + 4, "text-anchor": "end" }, label));
  const most = Math.max(1, ...data.unmeasured);
  let d = "";
  let marks = "";
  for (let column = first; column < behind; column += 1) {
    const [from, to] = span(plot, column);
    const tall = (data.unmeasured[column] / most) * (height - 2);
    if (tall > 0) d += `M${from} ${top + height - 1}H${to}V${top + height - 1 - Math.max(tall, 1)}H${from}z`;
    if (data.unseen[column]) marks += `M${from} ${top + 2}H${Math.max(to, from + 2)}v2H${from}z`;
  }
  canvas.append(svg("path", { class: "unmeasured", d, style: `fill:url(#${placement.section.id}-hatch)` }));
  canvas.append(svg("path", { class: "unseen", d: marks, style: "fill:var(--ink)" }));
}

// What a column holds, in words.
function tellPlacement(column) {
  const when = `${time(data.starts[column], 0.001)} to ${time(data.ends[column], 0.001)}`;
  if (state.lane >= lanes.length) {
    const unseen = data.unseen[column];
    return `${when}, not measured: CPU time of ${plain(data.unmeasured[column])} PUs that belongs to no measured thread`
      + (unseen ? `; ${count(unseen, "thread")} came and went unmeasured.` : ".");
  }
  const lane = lanes[state.lane];
  const place = `${when}, ${lane.label} (${lane.detail})`;
  const thread = lane.threads[column];
  const busy = lane.busy[column];
  const watched = busy === undefined || busy === null ? "" : `; not idle for ${percent(busy)}, whatever ran`;
  if (thread < 0) return `${place}: no measured thread${watched}.`;
  const { name, tid } = data.names[thread];
  const others = lane.all[column] > lane.most[column] + 0.005 ? `, all measured threads ${percent(lane.all[column])}` : "";
  return `${place}: most by ${name} (TID ${tid}), ${percent(lane.most[column])} of ${data.lane_kind === "PU" ? "the PU" : "its PUs"}${others}${watched}.`;
}

function swatch(fill, pattern) {
  const box = svg("svg", { width: 14, height: 12, "aria-hidden": "true" });
  if (fill) box.append(svg("rect", { width: 14, height: 12, style: `fill:${fill}` }));
  if (pattern) box.append(svg("rect", { width: 14, height: 12, style: `fill:url(#placement-${pattern})` }));
  return box;
}

function placementLegend() {
  const list = placement.section.querySelector(".legend");
  const named = data.names.filter((of) => of.rank < 2 * COLOURS).sort((a, b) => a.rank - b.rank);
  for (const of of named) {
    const { fill, stripes } = look(of.rank);
    list.append(element("li", {}, swatch(fill, stripes ? "stripes" : null), `${of.name} ${of.tid}`));
  }
  if (data.names.length > named.length) {
    list.append(element("li", {}, swatch("var(--others)"), count(data.names.length - named.length, "less busy thread")));
  }
  if (lanes.some((lane) => lane.all.some((all, at) => all > lane.most[at] + 0.005))) {
    list.append(element("li", {}, swatch(null, "hatch"), "other measured threads"));
  }
  if (othersRan) list.append(element("li", {}, swatch(null, "dots"), "whatever else ran there"));
  const what = data.lane_kind === "PU" ? "PU" : `${data.lane_kind} (of all its PUs)`;
  placement.section.querySelector("#placement-note").textContent =
    `Who used each ${what} most. The height of the full colour is the thread's share.`
    + (othersRan ? "" : " What other programs did there was not recorded.")
    + (hasUnmeasured ? " The last lane shows CPU time that belongs to no measured thread; a bar at its top, threads that came and went unmeasured." : "")
    + " Triangles mark moves.";
}

const placement = chart(
  document.getElementById("placement"),
  "Placement over time: keys + and - zoom, 0 shows all, arrows move the mark",
  (narrow) => rows() * laneHeight(narrow),
  drawPlacement,
  tellPlacement,
);
placement.left = (narrow) => (narrow ? 62 : data.lane_kind === "PU" ? 150 : 190);
placement.hover = (y, plot) => {
  state.lane = Math.max(0, Math.min(rows() - 1, Math.floor((y - plot.top) / laneHeight(plot.narrow))));
};
placement.up = () => {
  state.lane = Math.max(0, state.lane - 1);
  state.mark = state.mark ?? inSight()[0];
  redraw();
};
placement.down = () => {
  state.lane = Math.min(rows() - 1, state.lane + 1);
  state.mark = state.mark ?? inSight()[0];
  redraw();
};
