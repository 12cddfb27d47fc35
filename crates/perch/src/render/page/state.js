// What is shown: the data of the page, and what the reader has chosen. The choice is kept in the page's address.

const data = JSON.parse(document.getElementById("data").textContent);
const columns = data.starts.length;
const whole = { from: data.starts[0], to: data.ends[columns - 1] };
const shortest = Math.max((whole.to - whole.from) / columns / 2, 1e-6);

const state = {
  from: whole.from,
  to: whole.to,
  metric: "cpu",
  by: "thread",
  // Places of the series that are drawn; null for the first ones.
  shown: null,
  // By table: [key of a column, whether the largest comes first].
  sort: {},
  find: {},
  // The column of time whose values are told, and the lane.
  mark: null,
  lane: 0,
};

const KINDS = ["thread", "process", "name"];
const TABLES = ["moves", "threads", "processes", "units"];

// Sets the stretch of time that is shown, within the recording.
function show(from, to) {
  const least = Math.min(shortest, whole.to - whole.from);
  let length = Math.min(Math.max(to - from, least), whole.to - whole.from);
  if (!Number.isFinite(length)) length = whole.to - whole.from;
  const middle = (from + to) / 2;
  let begin = Number.isFinite(middle) ? middle - length / 2 : whole.from;
  begin = Math.max(whole.from, Math.min(begin, whole.to - length));
  state.from = begin;
  state.to = begin + length;
}

function isWhole() {
  return state.to - state.from >= (whole.to - whole.from) * 0.999999;
}

// Reads the choice from the address; what is not understood is ignored.
function readAddress() {
  const said = new URLSearchParams(location.hash.slice(1));
  show(
    said.has("from") ? Number(said.get("from")) : whole.from,
    said.has("to") ? Number(said.get("to")) : whole.to,
  );
  const known = (key) => data.quantities.some((of) => of.key === key);
  state.metric = known(said.get("metric")) ? said.get("metric") : "cpu";
  state.by = KINDS.includes(said.get("by")) ? said.get("by") : "thread";
  const list = data.series[state.by];
  const places = (said.get("show") ?? "").split(",").filter((of) => /^\d+$/.test(of)).map(Number);
  state.shown = said.has("show") ? places.filter((place) => place < list.length) : null;
  state.sort = {};
  for (const part of (said.get("sort") ?? "").split(",")) {
    const [table, key, way] = part.split(":");
    if (TABLES.includes(table) && key) state.sort[table] = [key, way !== "up"];
  }
  state.find = {};
  for (const table of TABLES) {
    if (said.get(`find-${table}`)) state.find[table] = said.get(`find-${table}`);
  }
}

// Writes the choice to the address.
function writeAddress() {
  const says = [];
  if (!isWhole()) says.push(`from=${state.from.toFixed(6)}`, `to=${state.to.toFixed(6)}`);
  if (state.metric !== "cpu") says.push(`metric=${encodeURIComponent(state.metric)}`);
  if (state.by !== "thread") says.push(`by=${state.by}`);
  if (state.shown) says.push(`show=${state.shown.join(",")}`);
  const sorts = Object.entries(state.sort).map(([table, [key, down]]) => `${table}:${key}:${down ? "down" : "up"}`);
  if (sorts.length) says.push(`sort=${sorts.join(",")}`);
  for (const [table, text] of Object.entries(state.find)) {
    if (text) says.push(`find-${table}=${encodeURIComponent(text)}`);
  }
  const hash = says.length ? `#${says.join("&")}` : "";
  if (hash === location.hash) return;
  try {
    history.replaceState(null, "", hash || location.pathname + location.search);
  } catch {
    // Some browsers refuse that for files; the page works without.
  }
}

// An element. Texts are set as text, never as markup: names come from other programs.
function element(tag, attributes, ...children) {
  const made = document.createElement(tag);
  return filled(made, attributes, children);
}

function svg(tag, attributes, ...children) {
  const made = document.createElementNS("http://www.w3.org/2000/svg", tag);
  return filled(made, attributes, children);
}

function filled(made, attributes, children) {
  for (const [name, value] of Object.entries(attributes ?? {})) {
    if (value !== undefined && value !== null && value !== false) made.setAttribute(name, value);
  }
  made.append(...children.filter((child) => child !== null && child !== undefined));
  return made;
}

// A number with about three digits.
function plain(value) {
  const size = Math.abs(value);
  if (size === 0) return "0";
  if (size >= 1e15) return value.toExponential(2);
  for (const [limit, sign] of [[1e12, "T"], [1e9, "G"], [1e6, "M"], [1e4, "k"]]) {
    if (size >= limit) return `${(value / limit * (sign === "k" ? 10 : 1)).toPrecision(3)}${sign}`;
  }
  if (size >= 100) return value.toFixed(0);
  if (size >= 10) return value.toFixed(1);
  return size >= 0.01 ? value.toFixed(2) : value.toPrecision(2);
}

function percent(share) {
  const value = share * 100;
  return `${value >= 9.95 || value === 0 ? value.toFixed(0) : value.toFixed(1)} %`;
}

function bytes(value) {
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let at = 0;
  while (value >= 1024 && at + 1 < units.length) {
    value /= 1024;
    at += 1;
  }
  return `${value >= 10 || at === 0 ? value.toFixed(0) : value.toFixed(1)} ${units[at]}`;
}

// A value in the unit of a quantity.
function written(value, unit) {
  if (value === null || value === undefined) return "–";
  return { share: percent, bytes, number: plain }[unit](value);
}

// A time since the recording began, exact to `step` seconds.
function time(at, step = 0.1) {
  const digits = Math.max(0, Math.min(6, Math.ceil(-Math.log10(step) - 1e-9)));
  if (whole.to - whole.from < 600) return `${at.toFixed(digits)} s`;
  const shift = 10 ** digits;
  const rounded = Math.round(at * shift) / shift;
  const hours = Math.floor(rounded / 3600);
  const minutes = Math.floor(rounded / 60) % 60;
  const seconds = (rounded % 60).toFixed(digits).padStart(digits ? digits + 3 : 2, "0");
  return hours ? `${hours}:${String(minutes).padStart(2, "0")}:${seconds}` : `${minutes}:${seconds}`;
}

// A length of time.
function lasting(seconds) {
  if (seconds >= 600) return `${Math.floor(seconds / 60)} min ${Math.round(seconds % 60)} s`;
  return seconds >= 1 ? `${seconds.toFixed(seconds >= 100 ? 0 : 2)} s` : `${plain(seconds * 1000)} ms`;
}

// `1 move`, `2 moves`.
function count(number, noun) {
  return `${number.toLocaleString("en")} ${noun}${number === 1 ? "" : "s"}`;
}
