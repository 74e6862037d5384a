// Judges a claim again in the page with another threshold or baseline, by the rules of report/rules.py, and makes the
// form for it in a claim's card when that is first opened. The data are those of report/render/rejudged.py.
(() => {
  "use strict";
  const study = (window.study = window.study || {});
  const own = (object, key) => (object && Object.hasOwn(object, key) ? object[key] : undefined);
  let read;
  function data() {
    const holder = document.getElementById("rejudge-data");
    read = read || (holder ? JSON.parse(holder.textContent) : { awaiting: [], classes: {}, cells: [], claims: {} });
    return read;
  }

  // Where an interval lies: the whole of it on one side decides; one with an unknown end never does.
  function side(low, high, threshold, how) {
    if (Number.isNaN(low) || Number.isNaN(high)) return "undecided";
    if (Array.isArray(threshold)) {
      if (threshold[0] <= low && high <= threshold[1]) return "supports";
      return high < threshold[0] || low > threshold[1] ? "challenges" : "undecided";
    }
    if (how === "at_most") return high <= threshold ? "supports" : low > threshold ? "challenges" : "undecided";
    return low >= threshold ? "supports" : high < threshold ? "challenges" : "undecided";
  }

  // One verdict of n cases: it depends where they differ; where all that are decided agree, they have to be most.
  function agreed(n, pro, contra) {
    if (pro && contra) return "depends";
    return 2 * pro > n ? "supported" : 2 * contra > n ? "challenged" : "undecided";
  }

  // One outcome of n cells, of which so many support and so many challenge.
  function ofCounts(rule, n, pro, contra) {
    if (rule === "exists") return pro ? "supported" : n && contra === n ? "challenged" : "undecided";
    return agreed(n, pro, contra);
  }

  // The outcome of a share: it supports up to one threshold, and challenges from another on; null where it never does.
  function ofShare([last, first], threshold, how) {
    const sign = how === "at_most" ? -1 : 1;
    if (last !== null && sign * threshold <= sign * Number(last)) return "supported";
    return first !== null && sign * threshold >= sign * Number(first) ? "challenged" : "undecided";
  }

  // The verdict on a claim from the outcomes of its parts; awaiting: what they may lack, what takes longest first.
  function combined(outcomes, awaiting) {
    const kinds = new Set(outcomes);
    if (kinds.has("depends") || (kinds.has("supported") && kinds.has("challenged"))) return "depends";
    const lacking = awaiting.find((one) => kinds.has(one));
    if (lacking) return lacking;
    const [pro, contra] = ["supported", "challenged"].map((kind) => outcomes.filter((one) => one === kind).length);
    const whole = agreed(outcomes.length, pro, contra);
    return whole === "supported" && kinds.has("undecided") ? "undecided" : whole;
  }

  function weigh(part, threshold, baseline) {
    const { settled, outcome, ...found } = own(part.baselines, baseline) || part;
    const cells = found.cells.map((number) => data().cells[number]);
    // An infinite end is a word, which Number understands.
    const sides = cells.map(([low, high]) => side(Number(low), Number(high), threshold, part.how));
    const count = (name, place) => settled[place] + sides.filter((one) => one === name).length;
    const [pro, contra, open] = ["supports", "challenges", "undecided"].map(count);
    const n = pro + contra + open;
    const drawn = found.turns ? ofShare(found.turns, threshold, part.how) : ofCounts(part.rule, n, pro, contra);
    return { cells, sides, pro, contra, open, n, outcome: n ? (part.unchecked ? "undecided" : drawn) : outcome };
  }

  function judge(claim, thresholds, baseline) {
    const weighed = claim.parts.map((part) => weigh(part, own(thresholds, part.name) ?? part.threshold, baseline));
    const outcomes = weighed.map((one) => one.outcome);
    const whole = outcomes.length ? combined(outcomes, data().awaiting) : claim.verdict;
    return { weighed, verdict: claim.held_then && whole === "challenged" ? "outdated" : whole };
  }

  // A claim's verdict and its parts' outcomes with these thresholds, by part, the others as declared; null if unknown.
  study.rejudge = (id, thresholds = {}, baseline = "") => {
    const claim = own(data().claims, id);
    if (!claim || !claim.parts) return null;
    const { verdict, weighed } = judge(claim, thresholds, baseline);
    const outcomes = claim.parts.map((part, place) => [part.name, weighed[place].outcome]);
    return { verdict, parts: Object.fromEntries(outcomes) };
  };

  // A decimal number times a power of ten, without an error of rounding in between.
  function shifted(text, power) {
    const [mantissa, exponent = "0"] = text.toLowerCase().split("e");
    return Number(`${mantissa}e${Number(exponent) + power}`);
  }
  const shown = (value, power) => String(shifted(String(value), -power));
  function parsed(text, power) {
    let plain = text.trim().replace("\u2212", "-");
    if (/^[+-]?\d{1,3}(,\d{3})+(\.\d*)?$/.test(plain)) plain = plain.replaceAll(",", "");
    return /^[+-]?(\d+\.?\d*|\.\d+)(e[+-]?\d+)?$/i.test(plain) ? shifted(plain, power) : NaN;
  }
  study.rules = { side, ofCounts, ofShare, combined, shown, parsed };

  // ---- the form

  // Cells that are named, and the signs that their names may take; of more it is said how many they are.
  const MOST_NAMED = 3;
  const MOST_SIGNS = 160;
  const VERBS = {
    supports: ["support", "supports", "would support"],
    challenges: ["challenge", "challenges", "would challenge"],
  };

  function make(tag, attributes, ...children) {
    const made = document.createElement(tag);
    for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
    made.append(...children);
    return made;
  }

  const badgeOf = (verdict) => make("span", { class: `badge v-${own(data().classes, verdict) || "awaiting"}` }, verdict);
  const said = (verdict) => (verdict === "depends" ? "\u2018depends\u2019" : verdict);
  const same = (one, other) => JSON.stringify(one) === JSON.stringify(other);

  // '2 of 10 cells would support it (batch 64; batch 256), 8 would challenge it.'
  function told(part, { cells, sides, pro, contra, open, n, outcome }, changed) {
    if (!n) return `${outcome}.`;
    const verb = (side, count) => `${VERBS[side][changed ? 2 : count === 1 ? 1 : 0]} it`;
    const close = (count) => `${count === 1 ? "is" : "are"} too close to tell`;
    const all = pro === n ? verb("supports", n) : contra === n ? verb("challenges", n) : open === n ? close(n) : "";
    if (all) return n === 1 ? `The one cell ${all}.` : `All ${n} cells ${all}.`;
    const names = (side, count) => {
      const labels = cells.filter((_, place) => sides[place] === side).map((cell) => cell[2]);
      const text = labels.join("; ");
      const few = count <= MOST_NAMED && labels.length === count && labels.every(Boolean) && text.length <= MOST_SIGNS;
      return few ? ` (${text})` : "";
    };
    const found = [];
    if (pro) found.push(`${pro} of ${n} cells ${verb("supports", pro)}${names("supports", pro)}`);
    const against = pro ? contra : `${contra} of ${n} cells`;
    if (contra) found.push(`${against} ${verb("challenges", contra)}${names("challenges", contra)}`);
    if (open) found.push(`${open} ${close(open)}`);
    return `${found.join(", ")}${part.needs ? `; ${part.needs}` : ""}.`;
  }

  // The field of one part, or the two of a range: its elements, and how it is read and set.
  function field(part, key, several) {
    const ends = [part.threshold].flat();
    const inputs = ends.map((end, place) =>
      make("input", {
        id: `${key}-${place}`, type: "text", inputmode: "decimal", autocomplete: "off", spellcheck: "false", size: "9",
        value: shown(end, part.power), "aria-describedby": `${key}-after ${key}-fault`,
      }),
    );
    const row = make("p", { class: "rejudge-row" }, make("label", { for: `${key}-0` }, part.before), inputs[0]);
    if (inputs[1]) row.append(make("label", { for: `${key}-1` }, "to"), inputs[1]);
    row.append(make("span", { id: `${key}-after` }, part.after));
    const fault = make("p", { class: "rejudge-fault", id: `${key}-fault`, "aria-live": "polite" });
    const tries = part.tries.map(([value, text]) => {
      const button = make("button", { type: "button" }, text);
      button.addEventListener("click", () => {
        [value].flat().forEach((end, place) => (inputs[place].value = shown(end, part.power)));
        inputs[0].dispatchEvent(new Event("input", { bubbles: true }));
      });
      return button;
    });
    const range = make("p", { class: "rejudge-tries" }, make("span", {}, "Declared range:"), ...tries);
    const element = several ? make("fieldset", {}, make("legend", {}, part.name)) : make("div", {});
    element.append(row, fault);
    if (tries.length) element.append(range);

    function wrong(values) {
      const place = values.findIndex((value) => !Number.isFinite(value));
      if (place >= 0) {
        const text = inputs[place].value.trim();
        inputs[place].setAttribute("aria-invalid", "true");
        return text ? `\u201c${text}\u201d is not a number: write it like 1000, 0.5 or 2e9.` : "Type a number.";
      }
      const below = part.signed ? -1 : values.findIndex((value) => value < 0);
      if (below >= 0) {
        inputs[below].setAttribute("aria-invalid", "true");
        return `\u201c${inputs[below].value.trim()}\u201d is below zero: what is counted here never is.`;
      }
      if (values.length === 2 && values[0] > values[1]) {
        inputs.forEach((input) => input.setAttribute("aria-invalid", "true"));
        return "The range ends before it begins: the smaller number comes first.";
      }
      return "";
    }

    // The threshold that is typed; undefined, and said why, if it is none.
    function threshold() {
      inputs.forEach((input) => input.removeAttribute("aria-invalid"));
      const values = inputs.map((input) => parsed(input.value, part.power));
      const why = wrong(values);
      if (fault.textContent !== why) fault.textContent = why;
      return why ? undefined : Array.isArray(part.threshold) ? values : values[0];
    }
    return { part, element, threshold };
  }

  function chooser(claim, key) {
    const select = make("select", { id: `${key}-baseline` });
    for (const [name, text] of claim.baselines) select.add(new Option(text, name));
    const label = make("label", { for: select.id }, "Against");
    return { select, element: make("p", { class: "rejudge-row" }, label, select) };
  }

  function command(claim, fields, thresholds, baseline) {
    const moved = fields.filter(({ part }) => !same(thresholds[part.name], part.threshold));
    const against = baseline ? claim.parts.filter((part) => own(part.baselines, baseline)) : [];
    const words = [
      ...moved.map(({ part }) => `${part.set}=${JSON.stringify(thresholds[part.name])}`),
      ...against.map((part) => `${part.set.replace(/threshold$/, "baseline")}=${baseline}`),
    ];
    return words.length ? `python -m report what-if --set ${words.map((word) => `'${word}'`).join(" ")}` : "";
  }

  function build(details) {
    const id = details.closest("section").id;
    const claim = own(data().claims, id);
    if (!claim || !claim.parts) {
      details.append(make("p", {}, claim ? claim.left_out : "Nothing is known here to judge it by."));
      return;
    }
    const key = `rejudge-${id}`;
    const several = claim.parts.length > 1;
    const tried = claim.parts.filter((part) => "before" in part);
    const fields = tried.map((part, place) => field(part, `${key}-${place}`, several));
    const against = claim.baselines.length ? chooser(claim, key) : null;
    const output = make("output", { "aria-live": "polite" });
    const typed = make("code", {});
    const asked = make("p", { class: "rejudge-command", hidden: "" }, "The same on the command line: ", typed);
    const form = make("form", { "aria-label": `Try another threshold for ${id}`, novalidate: "" });
    form.append(...fields.map((one) => one.element), ...(against ? [against.element] : []), output, asked);
    form.append(make("button", { type: "reset" }, "As declared"));
    const kept = "The card keeps its verdict: that of the threshold declared before there were data.";
    form.append(make("p", { class: "fine" }, kept));

    let last = "";
    function update() {
      const thresholds = {};
      for (const { part, threshold } of fields) thresholds[part.name] = threshold();
      if (Object.values(thresholds).includes(undefined)) {
        last = "";
        asked.hidden = true;
        const text = "is the published verdict, which stands: what is typed is no threshold.";
        output.replaceChildren(make("span", {}, badgeOf(claim.verdict), ` ${text}`));
        return;
      }
      const baseline = against ? against.select.value : "";
      const changed = Boolean(baseline) || fields.some(({ part }) => !same(thresholds[part.name], part.threshold));
      const { verdict, weighed } = judge(claim, thresholds, baseline);
      const moved = verdict === claim.verdict ? "" : ` in place of ${said(claim.verdict)}`;
      const lines = claim.parts.map((part, place) => {
        const text = told(part, weighed[place], changed);
        return several ? `${part.name} (${weighed[place].outcome}): ${text}` : text;
      });
      typed.textContent = command(claim, fields, thresholds, baseline);
      asked.hidden = !typed.textContent;
      // What is said again is announced again.
      const now = [verdict, moved, changed, ...lines].join("\n");
      if (now === last) return;
      last = now;
      const stays = changed ? " as with the declared threshold" : " as declared";
      const sentences = lines.map((line) => make("span", {}, ` ${line}`));
      output.replaceChildren(make("span", {}, badgeOf(verdict), `${moved || stays}.`), ...sentences);
    }
    form.addEventListener("input", update);
    form.addEventListener("submit", (event) => event.preventDefault());
    form.addEventListener("reset", () => setTimeout(update));
    details.append(form);
    update();
  }

  for (const details of document.querySelectorAll("details.rejudge")) {
    details.addEventListener("toggle", () => build(details), { once: true });
  }
})();
