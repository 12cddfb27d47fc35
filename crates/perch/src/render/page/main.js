// Fills the page, and draws it again when something is chosen.

let asked = false;

// Draws the charts before the next picture, once however often it is asked for.
function redraw() {
  if (asked) return;
  asked = true;
  requestAnimationFrame(() => {
    asked = false;
    drawAll();
  });
}

function drawAll() {
  const { from, to } = state;
  const step = (to - from) / 100;
  document.getElementById("range").textContent =
    `${time(from, step)} to ${time(to, step)}${isWhole() ? ", the whole recording" : ` of ${time(whole.to, 0.1)}`}`;
  document.getElementById("metric").value = state.metric;
  document.getElementById("by").value = state.by;
  for (const made of charts) drawChart(made);
  seriesLegend();
  writeAddress();
}

function fillHead() {
  document.getElementById("title").textContent = `perch report: ${data.title}`;
  const head = document.getElementById("head");
  for (const [label, text] of data.head) {
    head.append(element("dt", {}, label), element("dd", {}, text));
  }
  if (data.notes.length) {
    const notes = document.getElementById("notes");
    notes.hidden = false;
    notes.querySelector("ul").append(...data.notes.map((note) => element("li", {}, note)));
  }
  if (data.remarks.length) {
    const remarks = document.getElementById("remarks");
    remarks.hidden = false;
    const items = data.remarks.map(({ at, severity, text, times: often }) =>
      element("li", { class: severity }, element("b", {}, severity), ` at ${time(at, 0.1)}: ${text}`
        + (often > 1 ? ` (said ${often} times, first then)` : "")));
    remarks.querySelector("ul").append(...items);
  }
}

function start() {
  fillHead();
  TABLES.forEach(makeTable);
  readAddress();
  TABLES.forEach(drawTable);
  placementLegend();
  seriesControls();
  const press = (id, action) => document.getElementById(id).addEventListener("click", action);
  press("zoom-in", () => zoom(0.6));
  press("zoom-out", () => zoom(1 / 0.6));
  press("earlier", () => pan(-0.3));
  press("later", () => pan(0.3));
  press("whole", showWhole);
  addEventListener("resize", redraw);
  addEventListener("hashchange", () => {
    readAddress();
    TABLES.forEach(drawTable);
    redraw();
  });
  drawAll();
}

start();
