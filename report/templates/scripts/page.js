// Opens what a link leads into, and unfolds everything for the printer.
(() => {
  "use strict";
  function unfold() {
    let name;
    try {
      name = decodeURIComponent(location.hash.slice(1));
    } catch {
      return; // no address of ours
    }
    const target = name && document.getElementById(name);
    if (!target) return;
    const closed = [];
    for (let around = target; around; around = around.parentElement) {
      if (around.tagName === "DETAILS" && !around.open) closed.push(around);
    }
    for (const one of closed) one.open = true;
    if (closed.length) target.scrollIntoView();
  }
  addEventListener("hashchange", unfold);
  unfold();

  let folded = [];
  addEventListener("beforeprint", () => {
    folded = [...document.querySelectorAll("details:not([open])")];
    for (const one of folded) one.open = true;
  });
  addEventListener("afterprint", () => {
    for (const one of folded) one.open = false;
    folded = [];
  });
})();
