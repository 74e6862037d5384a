// The table of claims: search, filters, and a button in each head that sorts. Its whole state stands in the address
// (#table?verdict=challenged&find=gpu&sort=-id), for links and for the back button. Without scripts the table is whole.
(() => {
  "use strict";
  const table = document.querySelector("table.claims");
  const form = document.getElementById("filter");
  if (!table || !form) return;
  const MARK = "#table?";
  const find = document.getElementById("filter-text");
  const count = document.getElementById("filter-count");
  const words = (element) => element.textContent.trim().replace(/\s+/g, " ");

  const heads = [...table.tHead.rows[0].cells];
  const titles = heads.map((head) => words(head).split(" [")[0].toLowerCase());
  const columns = titles.map((title) => title.split(" ")[0]); // id, what, article, kind, verdict, evidence, key
  const body = table.tBodies[0];
  const rows = [...body.rows].map((element) => ({
    element,
    text: [...element.cells].map(words).join(" ").toLowerCase(),
    keys: [...element.cells].map(key),
    values: {}, // by filter
  }));

  // What a cell is sorted by: its place where it has one (verdicts, numbers with units), else its words.
  function key(cell) {
    const placed = cell.querySelector("[data-place]");
    if (placed) return Number(placed.dataset.place);
    return words(cell) === "–" ? null : words(cell);
  }

  const collator = new Intl.Collator("en", { numeric: true });
  // The rows by a column; equal ones keep the order of the articles, and what is empty comes last either way.
  function sorted(column, down = false) {
    return [...rows].sort((one, other) => {
      const [a, b] = [one.keys[column], other.keys[column]];
      if (a === null || b === null) return (a === null) - (b === null);
      return (down ? -1 : 1) * (typeof a === "number" ? a - b : collator.compare(a, b));
    });
  }

  // ---------------------------------------------------------------- filters
  // "1-3 7" names the nodes 1, 2, 3 and 7, as the sections of the nodes are counted.
  const numbers = (spans) => spans.split(" ").flatMap((span) => {
    const [first, last = first] = span.split("-").map(Number);
    return Array.from({ length: last - first + 1 }, (_, at) => first + at);
  });
  const nodes = new Map();
  for (const section of document.querySelectorAll("section[data-node]")) {
    nodes.set(Number(section.id.replace("node-", "")), section);
  }
  const cell = (row, name) => row.element.cells[columns.indexOf(name)];
  const said = (name) => (row) => [words(cell(row, name))];
  const title = (value, head) => (head ? words(head) : value);
  const filters = [
    { name: "article", of: said("article"), called: (value) => title(value, document.querySelector(`#article-${value} h2`)) },
    { name: "verdict", of: said("verdict") },
    { name: "kind", of: said("kind") },
    { name: "evidence", of: (row) => [words(cell(row, "evidence").querySelector(".tier"))] },
    {
      name: "node",
      of: (row) => {
        const from = cell(row, "evidence").querySelector("[data-nodes]");
        return from ? numbers(from.dataset.nodes).filter((n) => nodes.has(n)).map((n) => nodes.get(n).dataset.node) : [];
      },
      called: (value) => title(value, document.querySelector(`[data-node="${CSS.escape(value)}"] h3`)),
    },
  ];
  for (const filter of filters) {
    filter.select = document.getElementById("filter-" + filter.name);
    for (const row of rows) row.values[filter.name] = filter.of(row);
    const column = columns.indexOf(filter.name);
    const ordered = filter.name === "article" || column < 0 ? rows : sorted(column);
    for (const value of new Set(ordered.flatMap((row) => row.values[filter.name]))) {
      filter.select.add(new Option(filter.called ? filter.called(value) : value, value));
    }
  }

  // ---------------------------------------------------------------- what is shown
  let sort = ""; // the name of a column, with "-" before it for the other direction, or nothing
  let inOrderOf = "";

  function show() {
    const wanted = find.value.toLowerCase().split(/\s+/).filter(Boolean);
    let shown = 0;
    for (const row of rows) {
      const fits =
        filters.every(({ name, select }) => !select.value || row.values[name].includes(select.value)) &&
        wanted.every((word) => row.text.includes(word));
      row.element.hidden = !fits;
      shown += fits ? 1 : 0;
    }
    const down = sort.startsWith("-");
    const column = columns.indexOf(sort.replace("-", ""));
    if (sort !== inOrderOf) {
      body.append(...(sort ? sorted(column, down) : rows).map((row) => row.element));
      inOrderOf = sort;
    }
    heads.forEach((head, place) => {
      if (place === column) head.setAttribute("aria-sort", down ? "descending" : "ascending");
      else head.removeAttribute("aria-sort");
    });
    const by = sort ? `, sorted by ${titles[column]}${down ? ", descending" : ""}` : "";
    if (!shown) count.textContent = `None of the ${rows.length} claims fits. Take a word or a filter away, or press Clear.`;
    else if (shown < rows.length) count.textContent = `${shown} of ${rows.length} claims${by}`;
    else count.textContent = `${rows.length} claims${by}`;
  }

  // ---------------------------------------------------------------- the address
  let typed = false; // whether the newest step of the history is being typed

  function remember(typing) {
    const state = new URLSearchParams();
    if (find.value.trim()) state.set("find", find.value.trim());
    for (const { name, select } of filters) if (select.value) state.set(name, select.value);
    if (sort) state.set("sort", sort);
    const address = state.toString() ? MARK + state : "#table";
    if (address === location.hash) return;
    // A step back undoes one choice, or all that was typed in one go.
    history[typing && typed ? "replaceState" : "pushState"]({ table: true }, "", address);
    typed = typing;
  }

  function recall() {
    const { hash } = location;
    const whole = hash === "" || hash === "#table";
    // Another place of the page: the table stays as it is, for whoever comes back.
    if (!whole && !hash.startsWith(MARK)) return show();
    const state = new URLSearchParams(whole ? "" : hash.slice(MARK.length));
    find.value = state.get("find") || "";
    for (const { name, select } of filters) {
      const value = state.get(name) || "";
      select.value = [...select.options].some((option) => option.value === value) ? value : "";
    }
    const by = state.get("sort") || "";
    sort = columns.includes(by.replace("-", "")) ? by : "";
    typed = false;
    show();
    // On a step back the browser itself knows where the reader was.
    if (!whole && !(history.state && history.state.table)) document.getElementById("table").scrollIntoView();
  }

  // ---------------------------------------------------------------- what the reader does
  heads.forEach((head, place) => {
    const button = document.createElement("button");
    button.type = "button";
    button.append(...head.childNodes);
    head.append(button);
    button.addEventListener("click", () => {
      // Up, down, and as it was.
      const name = columns[place];
      sort = { [name]: "-" + name, ["-" + name]: "" }[sort] ?? name;
      show();
      remember(false);
    });
  });
  // On a telephone the rows are laid out as cards, which takes from a table what screen readers know it by.
  const roles = { "thead, tbody": "rowgroup", tr: "row", th: "columnheader", td: "cell" };
  table.setAttribute("role", "table");
  for (const [parts, role] of Object.entries(roles)) {
    for (const part of table.querySelectorAll(parts)) part.setAttribute("role", role);
  }
  form.addEventListener("input", (event) => { show(); remember(event.target === find); });
  find.addEventListener("change", () => { typed = false; });
  form.addEventListener("submit", (event) => event.preventDefault());
  // The fields are empty only after the event.
  form.addEventListener("reset", () => setTimeout(() => { sort = ""; show(); remember(false); }));
  addEventListener("hashchange", recall);
  recall();
})();
