// Printing, copy link, claim filters, and threshold slider with outcomes precomputed in Python.
(() => {
  "use strict";
  const createElement = (name, attributes = {}, ...content) => {
    const element = document.createElement(name);
    for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
    element.append(...content);
    return element;
  };

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
  }

  // Slider: for each part, pieces [start, outcome, claim verdict, open] in ascending order, or choices.
  const thresholds = document.getElementById("thresholds");
  const form = document.querySelector("[data-sliders]");
  const roundDigits = (value) => Number(value.toPrecision(4));
  for (const [at, part] of (thresholds ? JSON.parse(thresholds.textContent) : []).entries()) {
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
