// Search, glossary, printing, copy link, claim filters, and threshold slider with outcomes precomputed in Python.
(() => {
  "use strict";
  const createElement = (name, attributes = {}, ...content) => {
    const element = document.createElement(name);
    for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
    element.append(...content);
    return element;
  };

  // Index of the site: kind, title, address and words. It is a script, because a page from disk cannot fetch JSON.
  const root = document.currentScript?.src.replace(/site\/page\.js$/, "");
  let loading;
  const loadIndex = () => {
    loading ??= new Promise((resolve) => {
      const script = createElement("script", { src: `${root}site/search-data.js` });
      script.addEventListener("load", () => resolve(window.searchEntries));
      script.addEventListener("error", () => resolve([]));
      document.head.append(script);
    });
    return loading;
  };
  const address = (path) => root + path.replace(/(#|$)/, ".html$1");

  // Search: each word of the query, without its ending, begins a word of the title, of its kind, or of the words behind it.
  const FILLERS = new Set("a an and are can do does for how i in is it me much my need of on or the to what which with".split(" "));
  const stem = (word) => word.length > 4 ? word.replace(/(ing|ed|es|s|e)$/, "") : word;
  const plain = (text) => ` ${text.toLowerCase().normalize("NFKD").replace(/[^\p{L}\p{N}.]+/gu, " ")}`;
  const rank = (query, [kind, title, , words]) => {
    const [inTitle, everywhere] = [plain(title), plain(`${kind} ${title} ${words}`)];
    const asked = plain(query).split(" ").filter(Boolean);
    const telling = asked.filter((word) => !FILLERS.has(word));
    const parts = (telling.length ? telling : asked).map(stem);
    if (!parts.length || !parts.every((part) => everywhere.includes(` ${part}`))) return 0;
    return 1 + parts.filter((part) => inTitle.includes(` ${part}`)).length + (inTitle.includes(plain(query).trimEnd()) ? 2 : 0);
  };
  const menu = document.querySelector("header.menu nav");
  if (menu && root) {
    const field = createElement("input", { type: "search", id: "search", placeholder: "Search", "aria-label": "Search these pages", autocomplete: "off" });
    const results = createElement("ul", { id: "search-results", "aria-live": "polite", hidden: "" });
    const search = createElement("div", { class: "search", role: "search" }, field, results);
    const showResults = async () => {
      const entries = await loadIndex();
      const best = entries.map((entry) => [rank(field.value, entry), entry]).filter(([score]) => score)
        .sort(([one], [other]) => other - one).slice(0, 12);
      results.replaceChildren(...best.map(([, [kind, title, path]]) =>
        createElement("li", {}, createElement("a", { href: address(path) }, createElement("b", {}, kind), ` ${title}`))));
      if (field.value.trim() && !best.length) results.append(createElement("li", {}, "Nothing. Try a GPU, a model or a job."));
      results.hidden = !field.value.trim();
    };
    field.addEventListener("focus", loadIndex);
    field.addEventListener("input", showResults);
    search.addEventListener("keydown", (event) => {
      if (event.key === "Escape") { field.value = ""; results.hidden = true; }
      if (event.key === "Enter" && event.target === field) results.querySelector("a")?.click();
    });
    document.addEventListener("pointerdown", (event) => { if (!search.contains(event.target)) results.hidden = true; });
    menu.append(search);
  }

  // Glossary: a word opens its meaning beside it, and the reader keeps the place; without scripts it is a link.
  const meaning = createElement("div", { class: "meaning", popover: "" });
  for (const term of root && meaning.showPopover ? document.querySelectorAll("a.term") : []) {
    term.addEventListener("click", async (event) => {
      if (event.ctrlKey || event.metaKey || event.shiftKey) return;
      event.preventDefault();
      const path = `glossary#${new URL(term.href).hash.slice(1)}`;
      const entry = (await loadIndex()).find((one) => one[2] === path);
      if (!entry) { location.href = term.href; return; }
      meaning.replaceChildren(createElement("b", {}, entry[1]), createElement("p", {}, entry[3]),
        createElement("a", { href: term.href }, "All words"));
      document.body.append(meaning);
      meaning.showPopover();
      const place = term.getBoundingClientRect();
      meaning.style.left = `${Math.max(8, Math.min(place.left, innerWidth - meaning.offsetWidth - 8))}px`;
      const below = place.bottom + 6;
      meaning.style.top = `${below + meaning.offsetHeight < innerHeight ? below : Math.max(8, place.top - meaning.offsetHeight - 6)}px`;
    });
  }

  // Print folded sections
  let folded = [];
  window.addEventListener("beforeprint", () => {
    folded = [...document.querySelectorAll("details:not([open])")];
    for (const fold of folded) fold.open = true;
  });
  window.addEventListener("afterprint", () => {
    for (const fold of folded) fold.open = false;
  });

  // Copy link
  const steps = document.querySelector(".steps");
  if (steps) {
    const button = createElement("button", { type: "button", class: "copy" }, "Copy link");
    button.addEventListener("click", async () => {
      const address = location.href;
      try {
        await navigator.clipboard.writeText(address);
      } catch {
        // A page opened from disk may have no clipboard access.
        const field = createElement("textarea", { "aria-label": "Link" });
        field.value = address;
        document.body.append(field);
        field.select();
        document.execCommand("copy");
        field.remove();
      }
      button.textContent = "Copied";
      setTimeout(() => { button.textContent = "Copy link"; }, 2000);
    });
    steps.append(" ", button);
  }

  // Keep filter and slider state in the URL, so that a view can be shared.
  const state = new URLSearchParams(location.hash.startsWith("#?") ? location.hash.slice(2) : "");
  const saveState = () => {
    const text = state.toString();
    history.replaceState(null, "", text ? `#?${text}` : location.pathname + location.search);
  };

  // Table filters: each row holds its filter values as data attributes of a [data-row] element.
  for (const holder of document.querySelectorAll(".filters[data-fields]")) {
    const rows = [...document.querySelectorAll("tr")].filter((row) => row.querySelector("[data-row]"));
    const countOutput = createElement("output", { "aria-live": "polite" });
    const chosen = {};
    const applyFilters = () => {
      let shown = 0;
      for (const row of rows) {
        const values = row.querySelector("[data-row]").dataset;
        row.hidden = !Object.entries(chosen).every(([field, value]) => !value || (values[field] ?? "").split("|").includes(value));
        shown += row.hidden ? 0 : 1;
      }
      countOutput.textContent = `${shown} of ${rows.length} claims`;
    };
    for (const field of holder.dataset.fields.split(" ")) {
      const values = [...new Set(rows.flatMap((row) => (row.querySelector("[data-row]").dataset[field] ?? "").split("|")))]
        .filter(Boolean);
      const select = createElement("select", { id: `filter-${field}` }, createElement("option", { value: "" }, "all"));
      for (const value of values) select.append(createElement("option", { value }, value));
      chosen[field] = values.includes(state.get(field)) ? state.get(field) : "";
      select.value = chosen[field];
      select.addEventListener("change", () => {
        chosen[field] = select.value;
        if (select.value) state.set(field, select.value); else state.delete(field);
        saveState();
        applyFilters();
      });
      const name = field[0].toUpperCase() + field.slice(1);
      holder.append(createElement("span", {}, createElement("label", { for: `filter-${field}` }, name), select));
    }
    holder.append(countOutput);
    holder.hidden = false;
    applyFilters();
    // Sort by a column: its heading is a button, and a second click turns the order.
    for (const heading of rows[0]?.closest("table").querySelectorAll("thead th") ?? []) {
      const button = createElement("button", { type: "button", class: "sort" }, ...heading.childNodes);
      button.addEventListener("click", () => {
        const turn = heading.ariaSort === "ascending" ? -1 : 1;
        for (const other of heading.parentElement.children) other.removeAttribute("aria-sort");
        heading.setAttribute("aria-sort", turn > 0 ? "ascending" : "descending");
        // A badge begins with a sign.
        const text = (row) => row.cells[heading.cellIndex].innerText.replace(/^[^\p{L}\p{N}]+/u, "");
        rows[0].parentElement.append(...[...rows].sort((one, other) => turn * text(one).localeCompare(text(other), "en", { numeric: true })));
      });
      heading.append(button);
    }
  }

  // Slider: for each part, pieces [start, outcome, claim verdict, open] in ascending order, or choices.
  const thresholds = document.getElementById("thresholds");
  const form = document.querySelector("[data-sliders]");
  const parts = JSON.parse(thresholds?.textContent ?? "[]");
  const roundDigits = (value) => Number(value.toPrecision(4));
  // Line in the figure at the slider's threshold. A plot: its edges as fractions, the ends of its axis, and the scale.
  const plots = parts.length === 1 && JSON.parse(document.getElementById("plots")?.textContent ?? "null");
  const picture = document.querySelector(".figure picture");
  const movedLine = createElement("i", { class: "moved-line", hidden: "" });
  let share = 1;
  const moveLine = () => {
    const plot = picture.querySelector("img").currentSrc.includes(".phone.") ? plots.phone : plots.wide;
    const [left, right, top, bottom, low, high, scale] = plot;
    const value = plots.line * share;
    const place = scale === "log" ? Math.log(value / low) / Math.log(high / low) : (value - low) / (high - low);
    movedLine.hidden = share === 1 || !(place >= 0 && place <= 1);
    const percent = (fraction) => `${100 * fraction}%`;
    Object.assign(movedLine.style, { left: percent(left + place * (right - left)), top: percent(top), height: percent(bottom - top) });
  };
  if (plots && picture) {
    picture.append(movedLine);
    addEventListener("resize", moveLine);
  }
  for (const [at, part] of parts.entries()) {
    const key = `line${at || ""}`;
    const output = createElement("output", { "aria-live": "polite" });
    const showOutcome = ([, outcome, verdict]) => {
      output.className = "";
      output.textContent = part.name ? `${part.name}: ${outcome}. The claim: ${verdict}.` : `The claim would be: ${verdict}.`;
    };
    const label = createElement("label", { for: key }, part.label);
    const row = createElement("div", { class: "row" });
    if (part.choices) {
      const select = createElement("select", { id: key });
      part.choices.forEach(([name], index) => select.append(createElement("option", { value: index }, name)));
      const wanted = Number(state.get(key) ?? part.declared);
      select.value = wanted in part.choices ? wanted : part.declared;
      select.addEventListener("change", () => { state.set(key, select.value); saveState(); showOutcome(part.choices[select.value]); });
      row.append(select);
      showOutcome(part.choices[select.value]);
    } else {
      const [low, high] = part.range;
      const place = (value) => part.log ? Math.log(value / low) / Math.log(high / low) : (value - low) / (high - low);
      const value = (share) => part.log ? low * (high / low) ** share : low + share * (high - low);
      const range = createElement("input", { type: "range", id: key, min: 0, max: 1, step: "any" });
      const field = createElement("input", { type: "number", step: "any", min: low, max: high, "aria-label": `${part.label}, as a number` });
      const showThreshold = (wanted) => {
        if (!Number.isFinite(wanted) || wanted < low || wanted > high) {
          output.className = "refused";
          output.textContent = `The slider covers thresholds from ${low} to ${high}.`;
          return false;
        }
        // A piece covers thresholds from its start; an open start belongs to the previous piece.
        let piece = part.pieces[0];
        for (const next of part.pieces) if (next[0] < wanted || (next[0] === wanted && !next[3])) piece = next;
        showOutcome(piece);
        if (plots && picture) {
          share = wanted / part.declared;
          moveLine();
        }
        return true;
      };
      const setThreshold = (wanted, from) => {
        if (!showThreshold(wanted)) return;
        if (from !== range) range.value = place(wanted);
        if (from !== field) field.value = roundDigits(wanted);
        range.setAttribute("aria-valuetext", `${roundDigits(wanted)} ${part.unit}`);
        if (from) { state.set(key, roundDigits(wanted)); saveState(); }
      };
      range.addEventListener("input", () => setThreshold(Math.min(high, Math.max(low, roundDigits(value(Number(range.value))))), range));
      field.addEventListener("input", () => setThreshold(field.value === "" ? NaN : Number(field.value), field));
      row.append(range, field, part.unit);
      setThreshold(part.declared, null);
      if (state.has(key)) { field.value = state.get(key); setThreshold(Number(state.get(key)), field); }
    }
    form.append(label, row, output);
    form.hidden = false;
  }
  form?.addEventListener("submit", (event) => event.preventDefault());
})();
