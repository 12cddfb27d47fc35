// Series over time: a line for each thread, process or name, told apart by colour and by dashes.

const DASHES = ["", "7 3", "2 3", "9 3 2 3", "4 2", "12 4", "9 3 2 3 2 3", "1 2"];
// So many lines are drawn if the reader chooses none.
const FIRST = 8;

function quantity() {
  const at = data.quantities.findIndex((of) => of.key === state.metric);
  return { at, ...data.quantities[at] };
}

function values(series) {
  return series.values[quantity().at] ?? [];
}

// The places of the series that are drawn.
function drawn() {
  const list = data.series[state.by];
  if (state.shown) return state.shown;
  const known = list.map((_, place) => place).filter((place) => values(list[place]).length);
  return known.slice(0, FIRST);
}

function lineLook(place) {
  const colour = `var(--thread-${place % COLOURS})`;
  const dash = DASHES[place % DASHES.length];
  return { style: `stroke:color-mix(in srgb, ${colour} var(--line-mix, 70%), var(--ink))`, dash };
}

function drawSeries(canvas, plot) {
  const { unit } = quantity();
  const list = data.series[state.by];
  const [first, behind] = inSight();
  let most = 0;
  let least = 0;
  for (const place of drawn()) {
    for (let column = first; column < behind; column += 1) {
      const value = values(list[place])[column];
      if (value > most) most = value;
      if (value < least) least = value;
    }
  }
  if (most === least) most = least + 1;
  const scale = { share: 100, number: 1, bytes: 1024 ** -Math.floor(Math.log(Math.max(most, 1)) / Math.log(1024)) }[unit];
  const { list: marks } = ticks(least * scale, most * scale, 5);
  const y = (value) => plot.bottom - ((value - least) / (most - least)) * (plot.height - 6);
  for (const mark of marks) {
    const at = y(mark / scale);
    canvas.append(svg("path", { class: "grid", d: `M${plot.left - 3} ${at}H${plot.right}` }));
    canvas.append(svg("text", { class: "dim", x: plot.left - 6, y: at + 4, "text-anchor": "end" }, written(mark / scale, unit)));
  }
  let points = 0;
  for (const place of drawn()) {
    const said = values(list[place]);
    let d = "";
    let inside = false;
    for (let column = first; column < behind; column += 1) {
      const value = said[column];
      if (value === null || value === undefined) {
        inside = false;
        continue;
      }
      const [from, to] = span(plot, column);
      inside = inside && !isAfterGap(column);
      const high = y(value).toFixed(1);
      d += inside ? `V${high}H${to.toFixed(1)}` : `M${from.toFixed(1)} ${high}H${to.toFixed(1)}`;
      inside = true;
      points += 1;
    }
    const { style, dash } = lineLook(place);
    canvas.append(svg("path", { class: "line", d, style, "stroke-dasharray": dash || null }));
  }
  if (!points) {
    const x = (plot.left + plot.right) / 2;
    const text = drawn().length ? "nothing is known here" : "no line is chosen";
    canvas.append(svg("text", { class: "dim", x, y: plot.top + plot.height / 2, "text-anchor": "middle" }, text));
  }
}

function tellSeries(column) {
  const { label, unit } = quantity();
  const list = data.series[state.by];
  const said = drawn().map((place) => `${list[place].label}: ${written(values(list[place])[column], unit)}`);
  return `${time(data.starts[column], 0.001)} to ${time(data.ends[column], 0.001)}, ${label}: ${said.join("; ") || "no line is chosen"}.`;
}

function seriesLegend() {
  const list = data.series[state.by];
  const shown = new Set(drawn());
  const items = list.map((series, place) => {
    const { style, dash } = lineLook(place);
    const line = svg("svg", { width: 26, height: 10, "aria-hidden": "true" },
      svg("path", { class: "line", d: "M0 5H26", style, "stroke-dasharray": dash || null }));
    const button = element("button", { type: "button", "aria-pressed": String(shown.has(place)) }, line, series.label);
    if (!values(series).length) button.title = "not known of this one";
    button.addEventListener("click", () => {
      const now = new Set(drawn());
      if (!now.delete(place)) now.add(place);
      state.shown = [...now].sort((a, b) => a - b);
      redraw();
    });
    return element("li", {}, button);
  });
  const legend = series.section.querySelector(".legend");
  const focused = [...legend.querySelectorAll("button")].indexOf(document.activeElement);
  legend.replaceChildren(...items);
  if (focused >= 0) legend.querySelectorAll("button")[focused]?.focus();
  const { key } = quantity();
  series.section.querySelector("#series-note").textContent =
    (key === "cpu" || key === "waiting"
      ? "In percent of one PU; of several threads, the sum."
      : "Of several threads, the mean weighted by CPU time and confidence. A line ends where the value is not known.")
    + " Choose lines above.";
}

const series = chart(
  document.getElementById("series"),
  "Series over time: keys + and - zoom, 0 shows all, arrows move the mark",
  (narrow) => (narrow ? 190 : 250),
  drawSeries,
  tellSeries,
);
// Below each other, both charts have the same time at the same place.
series.left = placement.left;

function seriesControls() {
  const metric = document.getElementById("metric");
  metric.append(...data.quantities.map((of) => element("option", { value: of.key }, of.label)));
  metric.addEventListener("change", () => {
    state.metric = metric.value;
    redraw();
  });
  const by = document.getElementById("by");
  by.addEventListener("change", () => {
    [state.by, state.shown] = [by.value, null];
    redraw();
  });
}
