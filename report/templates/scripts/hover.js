// Shows the words of a figure's marks to whoever points at them, touches them, or goes through them by keyboard:
// one stop of the tab key for each figure, the arrow keys from mark to mark, Escape hides. Without it the browser
// shows the same words by itself, as titles.
"use strict";
(() => {
  // Nothing is told further from a mark than this, in CSS pixels.
  const NEAR = 48;
  const GAP = 8;
  const shown = new Map();
  const clamp = (value, low, high) => Math.max(low, Math.min(value, Math.max(low, high)));

  function part(name) {
    const made = document.createElement("div");
    made.className = name;
    made.hidden = true;
    made.setAttribute("aria-hidden", "true");
    return made;
  }

  function prepare(plot, titles) {
    const marks = titles.map((title) => ({ mark: title.parentNode, words: title.textContent }));
    // What the browser would show beside it.
    for (const title of titles) title.remove();
    const frame = document.createElement("div");
    frame.className = "hover-frame";
    const reader = document.createElement("div");
    reader.className = "hover-reader";
    // A slider is what screen readers move with the arrow keys, and of which they say each value.
    for (const [name, value] of [["role", "slider"], ["tabindex", "0"], ["aria-label", "Values in this figure"],
      ["aria-valuemin", "1"], ["aria-valuemax", marks.length]]) reader.setAttribute(name, value);
    const ring = part("hover-ring");
    const tip = part("hover-tip");
    plot.replaceWith(frame);
    frame.append(plot, reader, ring, tip);
    let current = 0;
    let places = [];
    let width = 0;

    function measure() {
      const around = frame.getBoundingClientRect();
      if (around.width !== width) {
        width = around.width;
        places = marks.map(({ mark }) => {
          const box = mark.getBoundingClientRect();
          return { left: box.left - around.left, top: box.top - around.top, right: box.right - around.left,
            bottom: box.bottom - around.top, area: box.width * box.height };
        });
      }
      return around;
    }

    function turn(index) {
      current = index;
      reader.setAttribute("aria-valuenow", index + 1);
      reader.setAttribute("aria-valuetext", marks[index].words);
    }

    function show(index) {
      const around = measure();
      turn(index);
      const place = places[index];
      tip.textContent = marks[index].words;
      tip.hidden = ring.hidden = false;
      shown.set(hide, frame);
      ring.style.cssText = `left:${place.left - 4}px;top:${place.top - 4}px;` +
        `width:${place.right - place.left + 8}px;height:${place.bottom - place.top + 8}px`;
      // Within the figure, and within what is seen of one that scrolls.
      const seen = (frame.closest(".table-frame") || frame).getBoundingClientRect();
      const least = Math.max(0, seen.left - around.left);
      const most = Math.min(around.width, seen.right - around.left);
      tip.style.maxWidth = `${Math.min(most - least, 320)}px`;
      const middle = (place.left + place.right) / 2;
      const above = place.top - GAP - tip.offsetHeight;
      tip.style.left = `${clamp(middle - tip.offsetWidth / 2, least, most - tip.offsetWidth)}px`;
      tip.style.top = `${above >= 0 ? above : clamp(place.bottom + GAP, 0, around.height - tip.offsetHeight)}px`;
    }

    function hide() {
      tip.hidden = ring.hidden = true;
      shown.delete(hide);
    }

    function point(event) {
      const around = measure();
      const x = event.clientX - around.left;
      const y = event.clientY - around.top;
      let best = -1;
      let least = [NEAR, Infinity];
      places.forEach((place, index) => {
        const away = Math.hypot(Math.max(place.left - x, 0, x - place.right), Math.max(place.top - y, 0, y - place.bottom));
        if (away < least[0] || (away === least[0] && place.area < least[1])) {
          best = index;
          least = [away, place.area];
        }
      });
      if (best < 0) hide();
      else show(best);
    }

    plot.addEventListener("pointermove", point);
    plot.addEventListener("pointerdown", point);
    // A finger is lifted at once: what it touched stays until something else is touched.
    frame.addEventListener("pointerleave", (event) => { if (event.pointerType === "mouse") hide(); });
    reader.addEventListener("focus", () => show(current));
    reader.addEventListener("blur", hide);
    reader.addEventListener("keydown", (event) => {
      const step = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
      const to = step ? current + step : { Home: 0, End: marks.length - 1 }[event.key];
      if (to === undefined || event.altKey || event.ctrlKey || event.metaKey) return;
      event.preventDefault();
      const index = clamp(to, 0, marks.length - 1);
      marks[index].mark.scrollIntoView({ block: "nearest", inline: "nearest" });
      show(index);
    });
    turn(0);
  }

  for (const plot of document.querySelectorAll("svg.plot")) {
    const titles = [...plot.querySelectorAll("title")];
    if (titles.length) prepare(plot, titles);
  }
  addEventListener("keydown", (event) => {
    if (event.key === "Escape") for (const hide of [...shown.keys()]) hide();
  });
  addEventListener("pointerdown", (event) => {
    for (const [hide, frame] of [...shown]) if (!frame.contains(event.target)) hide();
  });
})();
