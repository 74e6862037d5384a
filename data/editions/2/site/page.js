// Copy link, filters of the claims, and the slider of a threshold, which looks up what Python worked out.
(() => {
  "use strict";
  const make = (name, attributes = {}, ...content) => {
    const element = document.createElement(name);
    for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
    element.append(...content);
    return element;
  };

  // Copy link
  const steps = document.querySelector(".steps");
  if (steps) {
    const button = make("button", { type: "button", class: "copy" }, "Copy link");
    button.addEventListener("click", async () => {
      const address = location.href;
      try {
        await navigator.clipboard.writeText(address);
      } catch {
        // A page that is opened from disk may have no clipboard.
        const field = make("textarea", { "aria-label": "Link" });
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

  // The state of filters and sliders is in the address, so that what is seen can be sent.
  const state = new URLSearchParams(location.hash.startsWith("#?") ? location.hash.slice(2) : "");
  const keep = () => {
    const text = state.toString();
    history.replaceState(null, "", text ? `#?${text}` : location.pathname + location.search);
  };

  // Filters of a table: what a row is filtered by stands at a mark in it.
  for (const holder of document.querySelectorAll(".filters[data-fields]")) {
    const rows = [...document.querySelectorAll("tr")].filter((row) => row.querySelector("[data-row]"));
    const told = make("output", { "aria-live": "polite" });
    const chosen = {};
    const apply = () => {
      let shown = 0;
      for (const row of rows) {
        const values = row.querySelector("[data-row]").dataset;
        row.hidden = !Object.entries(chosen).every(([field, value]) => !value || (values[field] ?? "").split("|").includes(value));
        shown += row.hidden ? 0 : 1;
      }
      told.textContent = `${shown} of ${rows.length} claims`;
    };
    for (const field of holder.dataset.fields.split(" ")) {
      const values = [...new Set(rows.flatMap((row) => (row.querySelector("[data-row]").dataset[field] ?? "").split("|")))]
        .filter(Boolean);
      const select = make("select", { id: `filter-${field}` }, make("option", { value: "" }, "all"));
      for (const value of values) select.append(make("option", { value }, value));
      chosen[field] = values.includes(state.get(field)) ? state.get(field) : "";
      select.value = chosen[field];
      select.addEventListener("change", () => {
        chosen[field] = select.value;
        if (select.value) state.set(field, select.value); else state.delete(field);
        keep();
        apply();
      });
      const name = field[0].toUpperCase() + field.slice(1);
      holder.append(make("span", {}, make("label", { for: `filter-${field}` }, name), select));
    }
    holder.append(told);
    holder.hidden = false;
    apply();
  }

  // The slider: of each part, pieces [from, outcome, verdict of the claim] in rising order, or choices.
  const held = document.getElementById("thresholds");
  const form = document.querySelector("[data-sliders]");
  const digits = (value) => Number(value.toPrecision(4));
  for (const [at, part] of (held ? JSON.parse(held.textContent) : []).entries()) {
    const key = `line${at || ""}`;
    const output = make("output", { "aria-live": "polite" });
    const tell = ([, outcome, verdict]) => {
      output.className = "";
      output.textContent = part.name ? `${part.name}: ${outcome}. The claim: ${verdict}.` : `The claim would be: ${verdict}.`;
    };
    const label = make("label", { for: key }, part.label);
    const row = make("div", { class: "row" });
    if (part.choices) {
      const select = make("select", { id: key });
      part.choices.forEach(([name], index) => select.append(make("option", { value: index }, name)));
      const wanted = Number(state.get(key) ?? part.declared);
      select.value = wanted in part.choices ? wanted : part.declared;
      select.addEventListener("change", () => { state.set(key, select.value); keep(); tell(part.choices[select.value]); });
      row.append(select);
      tell(part.choices[select.value]);
    } else {
      const [low, high] = part.range;
      const place = (value) => part.log ? Math.log(value / low) / Math.log(high / low) : (value - low) / (high - low);
      const value = (share) => part.log ? low * (high / low) ** share : low + share * (high - low);
      const range = make("input", { type: "range", id: key, min: 0, max: 1, step: "any" });
      const field = make("input", { type: "number", step: "any", min: low, max: high, "aria-label": `${part.label}, as a number` });
      const show = (wanted) => {
        if (!Number.isFinite(wanted) || wanted < low || wanted > high) {
          output.className = "refused";
          output.textContent = `Only thresholds from ${low} to ${high} are a fair reading of the claim.`;
          return false;
        }
        // A piece holds from its start on; a start that no threshold may have belongs to the piece before.
        let piece = part.pieces[0];
        for (const one of part.pieces) if (one[0] < wanted || (one[0] === wanted && !one[3])) piece = one;
        tell(piece);
        return true;
      };
      const set = (wanted, from) => {
        if (!show(wanted)) return;
        if (from !== range) range.value = place(wanted);
        if (from !== field) field.value = digits(wanted);
        range.setAttribute("aria-valuetext", `${digits(wanted)} ${part.unit}`);
        if (from) { state.set(key, digits(wanted)); keep(); }
      };
      range.addEventListener("input", () => set(Math.min(high, Math.max(low, digits(value(Number(range.value))))), range));
      field.addEventListener("input", () => set(field.value === "" ? NaN : Number(field.value), field));
      row.append(range, field, part.unit);
      set(part.declared, null);
      if (state.has(key)) { field.value = state.get(key); set(Number(state.get(key)), field); }
    }
    form.append(label, row, output);
    form.hidden = false;
  }
  form?.addEventListener("submit", (event) => event.preventDefault());
})();
