// Filters the table of claims, keeps the filter in the address (#table?verdict=challenged&find=gpu),
// opens what a link leads into, and unfolds everything for the printer. Without it the page is whole.
"use strict";
(() => {
  const table = document.querySelector("table.claims");
  const form = document.getElementById("filter");
  if (!table || !form) return;
  const heads = [...table.querySelectorAll("thead th")].map((head) => head.textContent.trim());
  const rows = [...table.tBodies[0].rows];
  const text = document.getElementById("filter-text");
  const count = document.getElementById("filter-count");
  const choices = ["Article", "Verdict", "Kind", "Evidence"].map((name) => ({
    name: name.toLowerCase(),
    column: heads.indexOf(name),
    select: document.getElementById("filter-" + name.toLowerCase()),
  }));
  const words = (row, column) => row.cells[column].textContent.trim();

  for (const choice of choices) {
    for (const value of new Set(rows.map((row) => words(row, choice.column)))) {
      choice.select.add(new Option(value, value));
    }
  }
  const wholes = rows.map((row) => row.textContent.toLowerCase());

  function show() {
    const wanted = text.value.toLowerCase().split(/\s+/).filter(Boolean);
    let shown = 0;
    rows.forEach((row, place) => {
      const fits =
        choices.every(({ column, select }) => !select.value || words(row, column) === select.value) &&
        wanted.every((word) => wholes[place].includes(word));
      row.hidden = !fits;
      shown += fits ? 1 : 0;
    });
    count.textContent = shown === rows.length ? `${rows.length} claims` : `${shown} of ${rows.length} claims`;
  }

  function remember() {
    const state = new URLSearchParams();
    if (text.value) state.set("find", text.value);
    for (const { name, select } of choices) if (select.value) state.set(name, select.value);
    const query = state.toString();
    history.replaceState(null, "", query ? "#table?" + query : "#table");
  }

  function recall() {
    const hash = location.hash;
    if (hash.startsWith("#table?")) {
      const state = new URLSearchParams(hash.slice("#table?".length));
      text.value = state.get("find") || "";
      for (const { name, select } of choices) {
        const value = state.get(name) || "";
        select.value = [...select.options].some((option) => option.value === value) ? value : "";
      }
      document.getElementById("table").scrollIntoView();
    } else {
      const target = hash.length > 1 && document.getElementById(decodeURIComponent(hash.slice(1)));
      for (let around = target; around; around = around.parentElement) {
        if (around.tagName === "DETAILS") around.open = true;
      }
    }
    show();
  }

  form.addEventListener("input", () => { show(); remember(); });
  form.addEventListener("submit", (event) => event.preventDefault());
  form.addEventListener("reset", () => setTimeout(() => { show(); remember(); }));
  addEventListener("hashchange", recall);
  addEventListener("beforeprint", () => {
    for (const details of document.querySelectorAll("details")) details.open = true;
  });
  recall();
})();
