// Tables that sort when a heading is pressed.

const times = { number: true, text: (value) => time(value, 0.01) };
const lengths = { number: true, text: lasting };
const numbers = { number: true, text: (value) => (value === null ? "–" : value.toLocaleString("en")) };
const shares = { number: true, text: percent };

// A column for each metric and event.
function means() {
  return data.quantities.slice(2).map((of, at) => ({
    key: of.key,
    label: of.label,
    value: (row) => row.means[at],
    number: true,
    text: (value) => written(value, of.unit),
  }));
}

const TABLE = {
  moves: {
    caption: () => data.moves_left_out
      ? `The first ${data.moves.length / 2} and the last ${data.moves.length / 2} moves; ${data.moves_left_out.toLocaleString("en")} between them are not listed.`
      : data.moves.length ? "Press a time to see it in the charts." : "Nothing was moved.",
    columns: () => [
      { key: "time", label: "time", value: (row) => row.at, ...times, press: (row) => around(row.at) },
      { key: "who", label: "thread", value: (row) => row.who, name: true },
      { key: "tid", label: "TID", value: (row) => row.tid, number: true, text: (value) => value ?? "–" },
      { key: "from", label: "from", value: (row) => row.from, short: true },
      { key: "to", label: "to", value: (row) => row.to, short: true },
      { key: "reason", label: "reason", value: (row) => row.why, words: true },
      ...(data.moves.some((row) => row.problem)
        ? [{ key: "problem", label: "not made because", value: (row) => row.problem, problem: true }]
        : []),
    ],
    sort: ["time", false],
  },
  threads: {
    caption: () => "",
    columns: () => [
      { key: "name", label: "thread", value: (row) => row.name, name: true },
      { key: "tid", label: "TID", value: (row) => row.tid, number: true, text: (value) => value ?? "–" },
      { key: "process", label: "process", value: (row) => row.process, name: true },
      { key: "cpu-time", label: "CPU time", value: (row) => row.cpu, ...lengths },
      { key: "waiting", label: "waited", value: (row) => row.wait, ...lengths },
      { key: "pus", label: "PUs visited", value: (row) => row.pus, number: true, text: (value, row) => (value > 1 ? `${value}: ${row.visited}` : row.visited || "–") },
      { key: "moves", label: "moves", value: (row) => row.moves, ...numbers },
      { key: "migrations", label: "migrations", value: (row) => row.migrations, ...numbers },
      ...means(),
      { key: "first", label: "first seen", value: (row) => row.from, ...times },
      { key: "last", label: "last seen", value: (row) => row.to, ...times },
    ],
    sort: ["cpu-time", true],
  },
  processes: {
    caption: () => "",
    columns: () => [
      { key: "name", label: "process", value: (row) => row.name, name: true },
      { key: "pid", label: "PID", value: (row) => row.pid, number: true, text: (value) => value ?? "–" },
      { key: "threads", label: "threads", value: (row) => row.threads, ...numbers },
      { key: "cpu-time", label: "CPU time", value: (row) => row.cpu, ...lengths },
      { key: "waiting", label: "waited", value: (row) => row.wait, ...lengths },
      { key: "moves", label: "moves", value: (row) => row.moves, ...numbers },
      ...means(),
    ],
    sort: ["cpu-time", true],
  },
  units: {
    caption: () => "CPU time of measured threads, and how often a thread was bound to PUs within the unit.",
    columns: () => [
      { key: "unit", label: "unit", value: (row) => row.label },
      { key: "kind", label: "kind", value: (row) => row.kind },
      { key: "pus", label: "PUs", value: (row) => row.pus },
      { key: "cpu-time", label: "CPU time", value: (row) => row.cpu, ...lengths },
      { key: "share", label: "share used", value: (row) => row.share, ...shares },
      { key: "threads", label: "threads seen", value: (row) => row.threads, ...numbers },
      { key: "moves", label: "moves to it", value: (row) => row.moves, ...numbers },
    ],
    // As the machine has them.
    sort: [null, false],
  },
};

// Shows the time around a move.
function around(at) {
  const length = Math.min((whole.to - whole.from) / 5, state.to - state.from);
  show(at - length / 2, at + length / 2);
  state.mark = columnAt(at - 1e-9);
  redraw();
  document.getElementById("toolbar").scrollIntoView();
}

// Texts in the order of people: `worker-2` before `worker-10`. What is not known comes last.
const collator = new Intl.Collator("en", { numeric: true });

function sorted(rows, column, down) {
  if (!column) return rows;
  const of = rows.map((row) => [column.value(row), row]);
  const unknown = (value) => value === null || value === undefined;
  of.sort(([a], [b]) => {
    if (unknown(a) || unknown(b)) return unknown(a) - unknown(b);
    const way = typeof a === "string" ? collator.compare(a, b) : a - b;
    return down ? -way : way;
  });
  return of.map(([, row]) => row);
}

function cell(column, row) {
  const value = column.value(row);
  const text = column.text ? column.text(value, row) : (value ?? "–");
  const kind = ["number", "name", "words", "problem", "short"].find((of) => column[of]);
  if (!column.press) return element("td", { class: kind }, String(text));
  const button = element("button", { type: "button", title: "See it in the charts" }, String(text));
  button.addEventListener("click", () => column.press(row));
  return element("td", { class: kind }, button);
}

// Makes the table of a section, without its rows.
function makeTable(name) {
  const section = document.getElementById(name);
  const { caption, columns } = TABLE[name];
  const list = columns();
  const heads = list.map((column) => {
    const button = element("button", { type: "button" }, column.label);
    button.addEventListener("click", () => {
      const [key, down] = sortOf(name);
      // Numbers begin with the largest, texts with the first.
      state.sort[name] = [column.key, key === column.key ? !down : Boolean(column.number)];
      drawTable(name);
      writeAddress();
    });
    return element("th", { scope: "col", class: column.number ? "number" : null, "data-key": column.key }, button);
  });
  const body = element("tbody", {});
  const table = element("table", { "aria-label": section.querySelector("h2").textContent },
    element("thead", {}, element("tr", {}, ...heads)), body);
  const note = element("p", { class: "note" }, caption());
  section.append(note);
  const rows = data[name];
  if (rows.length > 10) {
    const input = element("input", { type: "search", "aria-label": `Find in ${name}` });
    input.addEventListener("input", () => {
      state.find[name] = input.value;
      drawTable(name);
      writeAddress();
    });
    section.append(element("p", { class: "find" }, element("label", {}, "Rows with ", input), " ", element("span", { class: "note", "aria-live": "polite" })));
  }
  if (rows.length) section.append(element("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": name }, table));
  TABLE[name].made = { list, body, section };
}

function sortOf(name) {
  const { list } = TABLE[name].made;
  const chosen = state.sort[name];
  return chosen && list.some((column) => column.key === chosen[0]) ? chosen : TABLE[name].sort;
}

function drawTable(name) {
  const { list, body, section } = TABLE[name].made;
  const [key, down] = sortOf(name);
  const column = list.find((of) => of.key === key);
  for (const head of section.querySelectorAll("th")) {
    const ordered = head.dataset.key === key;
    head.setAttribute("aria-sort", ordered ? (down ? "descending" : "ascending") : "none");
  }
  const wanted = (state.find[name] ?? "").toLowerCase();
  const text = (row) => list.map((of) => of.value(row) ?? "").join(" ").toLowerCase();
  const rows = data[name].filter((row) => !wanted || text(row).includes(wanted));
  body.replaceChildren(...sorted(rows, column, down).map((row) => element("tr", {}, ...list.map((of) => cell(of, row)))));
  const input = section.querySelector("input");
  if (input) {
    if (input.value !== (state.find[name] ?? "")) input.value = state.find[name] ?? "";
    section.querySelector(".find span").textContent = wanted ? `${rows.length} of ${data[name].length}` : `${data[name].length} rows`;
  }
}
