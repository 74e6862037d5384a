// The adviser on the page "Do I need one?". Formulas and tables come from Python (adviceData); the sentences are those of
// report/advice/sentences.py.
const adviser = (() => {
  "use strict";
  const { tables } = adviceData;
  const HOUR = 3600;
  const kindOf = (key) => (key in tables.kinds ? key : tables.examples.find((example) => example.id === key).kind);
  const isRate = (kind) => tables.kinds[kind].wish === "rate";

  // job: key (kind or example), model, format (place in tables.formats, null for the usual), sizes (inputs told).
  const examine = (job, machine) => {
    const kind = kindOf(job.key), setup = tables.setups[job.key][job.model];
    const chip = machine[kind] ?? machine;
    const ofClass = (byGroup) => byGroup[chip.class] ?? byGroup.gpu;
    const form = tables.formats[job.format ?? ofClass(setup.formats)];
    const inputs = {
      ...chip.inputs, flops: chip.flops[form.arithmetic], ...tables.models[kind][job.model], ...setup.inputs,
      weight_bits: form.weight_bits, ...job.sizes,
    };
    for (const [name, source] of Object.entries(setup.follows)) inputs[name] = inputs[source];
    const features = { program: ofClass(setup.programs), model: setup.key, chip: chip.id };
    return { kind, chip, form, inputs, features, class: chip.class };
  };

  const memoryOf = ({ kind, inputs }) => {
    const { room, ...all } = adviceData.memory[kind](inputs);
    const parts = Object.fromEntries(Object.entries(all).filter(([, bytes]) => bytes > 0));
    const needed = Object.values(parts).reduce((sum, bytes) => sum + bytes, 0);
    const share = needed / room;
    return { parts, room, needed, fits: share <= 1 - tables.tight ? "fits" : share <= 1 ? "tight" : "no" };
  };

  // Factors on a formula's time: of program, model and chip, the year, the centre of the errors, and from there to the ends.
  const factorsOf = ({ kind, inputs, features, class: name }) => {
    const record = tables.kinds[kind];
    const few = record.sources_by_class[name] < tables.fewest_sources;
    return {
      own: Object.fromEntries(Object.entries(features).map(([feature, each]) => [feature, record.factors[feature][each] ?? 0])),
      year: record.year * inputs.year,
      centre: (record.low + record.high) / 2,
      half: ((record.high - record.low) / 2) * (few ? tables.wider : 1),
      few,
    };
  };

  const answer = (job, machine) => {
    const situation = examine(job, machine), { kind, inputs } = situation, record = tables.kinds[kind];
    const least = adviceData.least[kind](inputs);
    const counts = record.sources_by_class;
    const known = counts[situation.class] || counts[tables.neighbours[situation.class]] || 0;
    const all = { job, machine, situation, least, cost: situation.chip.cost, ...memoryOf(situation), value: null, time: null };
    if (record.sources < tables.fewest_sources || known === 0) return all;
    const { own, year, centre, half } = factorsOf(situation);
    const formula = Math.log(adviceData.time[kind](inputs, record.constants[situation.class]));
    const middle = Object.values(own).reduce((sum, factor) => sum + factor, formula + year);
    const time = [-half, 0, half].map((shift) => Math.max(Math.exp(middle + centre + shift), least));
    const length = record.length ? inputs[record.length] : 1;
    const value = isRate(kind) ? time.map((seconds) => 1 / seconds).reverse() : time.map((seconds) => seconds * length);
    return { ...all, time, value };
  };

  // wish: kind, amount (a rate, or hours).
  const scaled = (wish, answered) => answered.value.map((end) => (isRate(wish.kind) ? end : end / HOUR));
  const isMet = (wish, answered) => {
    if (!answered.value || answered.fits === "no") return false;
    const middle = scaled(wish, answered)[1];
    return isRate(wish.kind) ? middle >= wish.amount : middle <= wish.amount;
  };
  const ends = (wish, answered) => {
    const [low, , high] = scaled(wish, answered);
    return isRate(wish.kind) ? [low >= wish.amount, high >= wish.amount] : [high <= wish.amount, low <= wish.amount];
  };

  const compare = (job, wish, machines = tables.machines) => {
    const answers = machines.map((machine) => answer(job, machine));
    const ordered = answers.filter((each) => each.value && each.cost !== null).sort((one, two) => one.cost - two.cost);
    const place = ordered.findIndex((each) => isMet(wish, each));
    if (place >= 0) return { wish, answers, best: ordered[place], met: true, cheaper: ordered[place - 1] ?? null };
    let nearest = null;
    const better = isRate(wish.kind) ? (one, two) => one.value[1] >= two.value[1] : (one, two) => one.value[1] < two.value[1];
    for (const each of ordered) if (each.fits !== "no" && (!nearest || better(each, nearest))) nearest = each;
    return { wish, answers, best: nearest, met: false, cheaper: null };
  };

  const fill = (text, slots) => text.replace(/\{(\w+)\}/g, (_, name) => slots[name]);
  const large = (text) => text[0].toUpperCase() + text.slice(1);
  const twoFigures = (value) => {
    const rounded = Number(value.toPrecision(2));
    if (rounded >= 10 || rounded <= 0) return rounded.toLocaleString("en-US", { maximumFractionDigits: 0 });
    return rounded.toFixed(1 - Math.floor(Math.log10(rounded)));
  };
  const plainNumber = (value) => Number(value.toPrecision(6)).toLocaleString("en-US", { maximumSignificantDigits: 10 });
  const timeUnit = (seconds) => tables.times.find(([, , end]) => seconds < end);
  const counted = (number, words) => {
    const [first, ...others] = words.split(" ");
    return [number, number === "1" ? first.replace(/s$/, "") : first, ...others].join(" ");
  };
  const valueSlots = (kind, value) => {
    const [unit, size] = isRate(kind) ? [tables.kinds[kind].unit_words, 1] : timeUnit(value[1]);
    const [low, middle, high] = value.map((end) => twoFigures(end / size));
    return { value: counted(middle, unit), low, high };
  };
  const rangeText = (kind, value) => fill("{value} ({low} to {high})", valueSlots(kind, value));
  const wishText = (wish) => {
    const words = tables.kinds[wish.kind];
    if (isRate(wish.kind)) return counted(plainNumber(wish.amount), words.wish_unit ?? words.unit_words);
    const [unit, size] = timeUnit(wish.amount * HOUR);
    return counted(plainNumber((wish.amount * HOUR) / size), unit);
  };
  const gigabytes = (bytes) => `${twoFigures(bytes / 1e9)} GB`;
  const priceText = (usd) => (usd === null ? "not known" : `${twoFigures(usd)} USD`);

  const does = (answered) => {
    const { kind } = answered.situation, words = tables.kinds[kind];
    return fill(tables.sentences[`does_${words.wish}`], {
      name: answered.machine.called, verb: words.verb, model: answered.job.model, ...valueSlots(kind, answered.value),
    });
  };
  const wants = (wish) => fill(tables.sentences[`wants_${tables.kinds[wish.kind].wish}`], { wish: wishText(wish) });
  const memorySlots = (answered) => ({ needed: gigabytes(answered.needed), room: gigabytes(answered.room) });
  const cheapest = (answers) => answers.reduce((one, two) => (two.cost < one.cost ? two : one));

  const sayAdvice = ({ wish, answers, best, met, cheaper }) => {
    const words = tables.sentences, told = [];
    const unpriced = answers.find((each) => each.cost === null && isMet(wish, each));
    if (!best || !met) {
      if (unpriced) told.push(fill(words.unpriced_best, { does: does(unpriced), wants: wants(wish) }));
      if (best) told.push(fill(words[unpriced ? "nearest_priced" : "nearest"], { does: does(best), wants: wants(wish) }));
      else if (!unpriced) {
        const answered = answers.filter((each) => each.value);
        const lacking = answered.length > 0 && answered.every((each) => each.fits === "no");
        const needed = lacking ? gigabytes(Math.min(...answered.map((each) => each.needed))) : "";
        told.push(fill(words[lacking ? "too_large" : "unanswered"], { needed }));
      }
      return told.map(large);
    }
    const slots = { does: does(best), wants: wants(wish) };
    const own = best.situation.class;
    told.push(fill(words[{ cpu: "no_gpu", apple: "no_card", integrated: "no_card" }[own] ?? "gpu"], slots));
    if (!ends(wish, best)[0]) {
      told.push(words.unsure);
      const sure = answers.filter((each) => isMet(wish, each) && ends(wish, each)[0] && each.cost !== null);
      if (sure.length) {
        const safest = cheapest(sure);
        told.push(fill(words.safe, { name: safest.machine.called, ...valueSlots(wish.kind, safest.value) }));
      }
    }
    if (best.fits === "tight") told.push(fill(words.tight, memorySlots(best)));
    if (best.cost && unpriced) told.push(fill(words.unpriced, { name: unpriced.machine.called }));
    if (own !== "cpu") {
      const processors = answers.filter((each) => each.situation.class === "cpu" && isMet(wish, each));
      const other = processors.length ? cheapest(processors) : null;
      told.push(other ? fill(words.processor, { does: does(other), price: priceText(other.cost) }) : words.no_processor);
    }
    if (cheaper && cheaper.cost < best.cost) {
      const form = cheaper.fits === "no" ? "next_memory" : isRate(wish.kind) ? "next" : "next_time";
      told.push(fill(words[form], { name: cheaper.machine.called, ...memorySlots(cheaper), ...valueSlots(wish.kind, cheaper.value) }));
    }
    return told.map(large);
  };

  const sayAnswer = (answered, wish) => {
    const words = tables.sentences, name = answered.machine.called;
    if (!answered.value) return [large(fill(words.unpublished, { name, class: tables.classes[answered.situation.class] }))];
    if (answered.fits === "no") return [large(fill(words.lacks, { name, ...memorySlots(answered) }))];
    const [worst, best] = ends(wish, answered);
    const form = worst ? "enough" : isMet(wish, answered) ? "probably" : best ? "hardly" : "too_slow";
    const told = [fill(words[form], { does: does(answered), wants: wants(wish) })];
    if (answered.fits === "tight") told.push(fill(words.tight, memorySlots(answered)));
    return told.map(large);
  };

  return {
    tables, kindOf, isRate, examine, factorsOf, answer, compare, isMet, sayAdvice, sayAnswer, twoFigures, plainNumber, timeUnit,
    rangeText, wishText, gigabytes, priceText, fill,
  };
})();

// The form, the picture, the table and the arithmetic.
(() => {
  "use strict";
  const {
    tables, kindOf, isRate, factorsOf, answer, compare, isMet, sayAdvice, sayAnswer, twoFigures, plainNumber, timeUnit, rangeText,
    wishText, gigabytes, priceText, fill,
  } = adviser;
  const byId = (id) => document.getElementById(`advice-${id}`);
  const form = document.getElementById("adviser");
  if (!form) return;
  const build = (make) => (name, attributes = {}, ...content) => {
    const element = make(name);
    for (const [key, value] of Object.entries(attributes)) if (value !== null) element.setAttribute(key, value);
    element.append(...content);
    return element;
  };
  const html = build((name) => document.createElement(name));
  const svg = build((name) => document.createElementNS("http://www.w3.org/2000/svg", name));
  const fields = Object.fromEntries(["what", "model", "size", "wish", "format", "machine"].map((name) => [name, byId(name)]));
  const LARGEST = 1e15, WIDE = 640, LISTED = 10;
  const MARKS = { cpu: "cpu", apple: "inside", integrated: "inside" };
  const MEANS = { cpu: "processor", inside: "GPU inside a processor", card: "separate GPU" };
  const markOf = (answered) => MARKS[answered.situation.class] ?? "card";
  const capitalised = (text) => text[0].toUpperCase() + text.slice(1);

  // Fields
  const option = (value, text) => html("option", { value }, text);
  const fillSelect = (select, options, value) => {
    select.replaceChildren(...options);
    select.value = value;
    if (select.selectedIndex < 0) select.selectedIndex = 0;
  };
  const inputsOf = (key, model) => ({ ...tables.models[kindOf(key)][model], ...tables.setups[key][model].inputs });
  const defaults = (key) => {
    const kind = kindOf(key), words = tables.kinds[kind], example = tables.examples.find((each) => each.id === key);
    const model = example?.model ?? Object.keys(tables.setups[key])[0];
    const size = inputsOf(key, model)[words.size] / (words.size_factor ?? 1);
    return { model, size: String(size), wish: String(example?.wish ?? words.usual_wish), format: "" };
  };
  const usualFormat = (key, model) => {
    const names = new Set(Object.values(tables.setups[key][model].formats).map((place) => tables.formats[place].name));
    return names.size === 1 && !names.has("not told") ? `as usual: ${[...names][0]}` : "as usual";
  };
  const setFields = (state) => {
    const key = state.what in tables.setups ? state.what : tables.examples[0].id;
    const kind = kindOf(key), words = tables.kinds[kind], wanted = { ...defaults(key), ...state };
    fields.what.value = key;
    fillSelect(fields.model, Object.keys(tables.setups[key]).map((name) => option(name, name)), wanted.model);
    const formats = words.formats.map((place) => option(tables.formats[place].name, tables.formats[place].name));
    fillSelect(fields.format, [option("", usualFormat(key, fields.model.value)), ...formats], wanted.format);
    fields.machine.value = wanted.machine ?? "";
    if (fields.machine.selectedIndex < 0) fields.machine.value = "";
    fields.size.value = wanted.size;
    fields.wish.value = wanted.wish;
    byId("size-label").textContent = capitalised(words.size_words);
    byId("wish-label").textContent = `${isRate(kind) ? "Wish" : "Time you have"}: ${words.wish_words}`;
  };
  const readState = () => Object.fromEntries(
    new URLSearchParams(location.hash.startsWith("#?") ? location.hash.slice(2) : ""));
  const saveState = () => {
    const key = fields.what.value, usual = { ...defaults(key), machine: "" };
    const state = new URLSearchParams({ what: key });
    for (const name of ["model", "size", "wish", "format", "machine"]) {
      if (fields[name].value !== usual[name]) state.set(name, fields[name].value);
    }
    history.replaceState(null, "", `#?${state}`);
  };

  // Numbers for axes and arithmetic
  const SUPERSCRIPT = [..."⁰¹²³⁴⁵⁶⁷⁸⁹"];
  const figure = (value) => {
    if (value !== 0 && (Math.abs(value) >= 1e6 || Math.abs(value) < 1e-3)) {
      const [digits, power] = value.toExponential(3).split("e");
      return `${Number(digits)} × 10${Number(power) < 0 ? "⁻" : ""}${[...String(Math.abs(power))].map((digit) => SUPERSCRIPT[digit]).join("")}`;
    }
    return Number(value.toPrecision(4)).toLocaleString("en-US", { maximumSignificantDigits: 4 });
  };
  const TIMES = [
    [1e-3, "1 ms"], [1e-2, "10 ms"], [0.1, "0.1 s"], [1, "1 s"], [10, "10 s"], [60, "1 min"], [600, "10 min"], [3600, "1 h"],
    [21600, "6 h"], [86400, "1 day"], [604800, "1 week"], [2629800, "1 month"], [31557600, "1 year"], [315576000, "10 years"],
    [3155760000, "100 years"],
  ];
  const ticksFor = (kind, low, high) => {
    const rates = Array.from({ length: 40 }, (_, place) => (place % 2 ? 3 : 1) * 10 ** (Math.floor(place / 2) - 6));
    const all = isRate(kind) ? rates.map((value) => [value, plainNumber(value)]) : TIMES;
    return all.filter(([value]) => value >= low && value <= high);
  };

  // Candidates in order of price: free ones, decades of USD for an hour, unknown prices.
  const bandOf = (cost) => {
    if (cost === null) return "Price not known";
    if (cost === 0) return "0 USD: you may have it";
    const power = Math.floor(Math.log10(cost));
    return `${plainNumber(10 ** power)} to ${plainNumber(10 ** (power + 1))} USD an hour`;
  };
  const byPrice = (answers) => answers
    .map((each, place) => [each.cost ?? Infinity, place, each])
    .sort((one, two) => (one[0] === two[0] ? one[1] - two[1] : one[0] - two[0]))
    .map(([, , each]) => each);
  const textWidth = (text) => {
    const context = document.createElement("canvas").getContext("2d");
    context.font = "bold 13px system-ui, sans-serif";
    return context.measureText(text).width;
  };
  const mark = (kind, x, y, met) => {
    const attributes = { class: `mark ${kind}${met ? "" : " short"}` };
    if (kind === "cpu") return svg("circle", { ...attributes, cx: x, cy: y, r: 5 });
    if (kind === "card") return svg("rect", { ...attributes, x: x - 4.5, y: y - 4.5, width: 9, height: 9 });
    return svg("path", { ...attributes, d: `M${x} ${y - 6.5}L${x + 6.5} ${y}L${x} ${y + 6.5}L${x - 6.5} ${y}Z` });
  };
  const notDrawn = (answers) => {
    const lacking = answers.filter((each) => each.value && each.fits === "no").length;
    const refused = answers.filter((each) => !each.value).length;
    const parts = [lacking && `${lacking} that lack the memory`, refused && `${refused} without enough known runs`];
    const texts = parts.filter(Boolean);
    return texts.length ? `Not shown: ${texts.join(", ")}.` : "";
  };

  const drawPicture = (wish, answers, best) => {
    const kind = wish.kind, shown = byPrice(answers.filter((each) => each.value && each.fits !== "no"));
    const holder = byId("picture");
    holder.replaceChildren();
    if (!shown.length) return;
    const doing = shown.filter((each) => isMet(wish, each));
    const summary = answers.length > 1 ? `${doing.length} of ${shown.length} machines do it. The table below has all numbers.` : "";
    if (holder.clientWidth < WIDE && answers.length === 1) return;
    if (holder.clientWidth < WIDE) {
      const listed = (doing.length ? doing : shown).slice(0, LISTED);
      const rows = listed.map((each) => html("li", {},
        html("strong", {}, each.machine.name), `: ${rangeText(kind, each.value)}, ${each.fits === "tight" ? "memory tight, " : ""}`,
        each.cost === null ? "price not known" : each.cost === 0 ? "you may have it" : `${priceText(each.cost)} an hour`));
      holder.append(html("p", {}, `${doing.length ? "These do it" : "None does it"}, the cheapest first:`),
        html("ol", { class: "candidates" }, ...rows));
    } else {
      holder.append(picture(wish, shown, best, summary));
      const legend = Object.entries(MEANS).map(([name, text]) => html("span", {},
        svg("svg", { width: 16, height: 16, "aria-hidden": "true" }, mark(name, 8, 8, true)), ` ${text}`));
      holder.append(html("p", { class: "fine legend" }, ...legend,
        html("span", {}, svg("svg", { width: 16, height: 16, "aria-hidden": "true" }, mark("cpu", 8, 8, false)), " hollow: falls short")));
    }
    holder.append(html("p", { class: "fine" }, [summary, notDrawn(answers)].join(" ")));
  };

  const picture = (wish, shown, best, summary) => {
    const kind = wish.kind, width = Math.min(byId("picture").clientWidth, 1000), row = 20, top = 46;
    const right = width - 84, left = Math.max(180, 12 + Math.max(...shown.map((each) => textWidth(each.machine.name))));
    const factor = isRate(kind) ? 1 : 3600, want = wish.amount * factor;
    const values = [want, ...shown.flatMap((each) => each.value)];
    const low = Math.min(...values) / 1.25, high = Math.max(...values) * 1.25;
    const at = (value) => left + ((right - left) * Math.log(value / low)) / Math.log(high / low);
    const lines = [], texts = [], marks = [];
    let y = top, band = "";
    for (const each of shown) {
      if (bandOf(each.cost) !== band) {
        band = bandOf(each.cost);
        y += 12;
        lines.push(svg("line", { class: "band", x1: 0, x2: width, y1: y - 6, y2: y - 6 }));
        texts.push(svg("text", { class: "band", x: 0, y: y + 11 }, band));
        y += row;
      }
      const middle = y + row / 2, met = isMet(wish, each), type = markOf(each);
      const group = svg("g", { class: each === best ? "best" : "" },
        svg("title", {}, `${each.machine.name}: ${rangeText(kind, each.value)}`),
        svg("text", { x: left - 12, y: middle + 4.5, "text-anchor": "end" }, each.machine.name),
        svg("line", { class: `range ${type}`, x1: at(each.value[0]), x2: at(each.value[2]), y1: middle, y2: middle }),
        mark(type, at(each.value[1]), middle, met),
        svg("text", { class: "price", x: width, y: middle + 4.5, "text-anchor": "end" }, each.cost === null ? "–" : twoFigures(each.cost)));
      marks.push(group);
      y += row;
    }
    const bottom = y + 6;
    let last = -Infinity;
    for (const [value, text] of ticksFor(kind, low, high)) {
      if (at(value) - last < 58) continue;
      last = at(value);
      lines.push(svg("line", { class: "grid", x1: last, x2: last, y1: top, y2: bottom }));
      texts.push(svg("text", { class: "tick", x: last, y: bottom + 18, "text-anchor": "middle" }, text));
    }
    const words = isRate(kind) ? tables.kinds[kind].unit_words : "time for the whole job";
    texts.push(svg("text", { class: "tick", x: (left + right) / 2, y: bottom + 38, "text-anchor": "middle" }, words));
    texts.push(svg("text", { class: "tick", x: width, y: top - 8, "text-anchor": "end" }, "USD an hour"));
    const good = isRate(kind) ? [at(want), right] : [left, at(want)];
    const anchor = at(want) < left + 90 ? "start" : at(want) > right - 90 ? "end" : "middle";
    return svg("svg", { class: "advice-chart", width, height: bottom + 46, viewBox: `0 0 ${width} ${bottom + 46}`, role: "img", "aria-label": summary || shown[0].machine.name },
      svg("rect", { class: "good", x: good[0], y: top, width: Math.max(good[1] - good[0], 0), height: bottom - top }),
      ...lines, ...marks,
      svg("line", { class: "wish", x1: at(want), x2: at(want), y1: top - 4, y2: bottom }),
      svg("text", { class: "wish", x: at(want), y: top - 10, "text-anchor": anchor }, `wish: ${wishText(wish)}`), ...texts);
  };

  // Tables
  const aligned = (numbers, place) => (numbers.includes(place) ? "right" : null);
  const tableOf = (heads, rows, numbers = []) => html("table", {},
    html("thead", {}, html("tr", {}, ...heads.map((head, place) => html("th", { scope: "col", class: aligned(numbers, place) }, head)))),
    html("tbody", {}, ...rows.map((cells) => html("tr", {}, ...cells.map((cell, place) => html("td", {
      "data-head": heads[place], class: aligned(numbers, place),
    }, cell))))));
  const FITS = { fits: "fits", tight: "tight", no: "does not fit" };
  const memoryText = (each) => {
    const parts = Object.entries(each.parts).map(([name, bytes]) => `${name.replaceAll("_", " ")} ${twoFigures(bytes / 1e9)}`);
    return `${FITS[each.fits]}: ${parts.join(" + ")} = ${twoFigures(each.needed / 1e9)} of ${gigabytes(each.room)}`;
  };
  const showTable = (wish, answers) => {
    const unit = isRate(wish.kind) ? `Rate, in ${tables.kinds[wish.kind].unit_words}` : "Time";
    const value = (each) => (each.value ? rangeText(wish.kind, each.value).replace(` ${tables.kinds[wish.kind].unit_words}`, isRate(wish.kind) ? "" : "$&")
      : "no answer: too few known runs");
    const rows = byPrice(answers).map((each) => [
      each.machine.name, value(each), each.value ? (isMet(wish, each) ? "yes" : "no") : "–", memoryText(each), priceText(each.cost),
    ]);
    byId("table").replaceChildren(tableOf(["Machine", unit, "Does it", "Memory, in GB", "Price an hour"], rows));
  };

  const showArithmetic = (answered) => {
    const holder = byId("arithmetic"), { situation } = answered, { kind, inputs } = situation, record = tables.kinds[kind];
    const constants = record.constants[situation.class];
    const values = adviceData.steps[kind](inputs, constants);
    const factors = factorsOf(situation), times = (logarithm) => `× ${figure(Math.exp(logarithm))}`;
    const after = [
      [`program${situation.features.program ? `: ${situation.features.program}` : ", not told"}`, "", times(factors.own.program)],
      ["this model beside others", "", times(factors.own.model)],
      ["this chip beside others", "", times(factors.own.chip)],
      ["year", "", times(factors.year)],
      ["middle of the errors", "", times(factors.centre)],
      ["ends of the range", factors.few ? "wider: few sources for such hardware" : "", `× or ÷ ${figure(Math.exp(factors.half))}`],
      ["least time by the ratings", "", `${figure(answered.least)} s`],
    ];
    if (answered.time) {
      after.push([`seconds for one ${record.item}`, "", answered.time.map(figure).join(", ")]);
      const whole = isRate(kind) ? ["tokens a second", "1 / seconds", answered.value.map(figure).join(", ")]
        : ["seconds for the whole job", record.length ? `${record.length} * seconds` : "", answered.value.map(figure).join(", ")];
      after.push(whole);
    }
    const steps = Object.entries(record.steps).map(([name, text]) => [name, text, figure(values[name])]);
    const known = record.inputs.filter((name) => inputs[name]);
    holder.replaceChildren(
      html("p", {}, `For ${answered.machine.called} (${situation.chip.chip}), in the format ${situation.form.name === "not told" ? "that the program takes" : situation.form.name}.`
        + " Another machine: choose it above."),
      html("p", {}, `Memory: ${memoryText(answered)}.`),
      html("p", { class: "figure-title" }, `Time of one ${record.item}`), tableOf(["Step", "Formula", "Value"], [...steps, ...after], [2]),
      html("p", { class: "figure-title" }, "Inputs"), html("p", {}, "All inputs that are not listed are 0."),
      tableOf(["Input", "Meaning", "Value"], known.map((name) => [name, tables.inputs[name] ?? "", figure(inputs[name])]), [2]),
      html("p", { class: "figure-title" }, `Constants for ${tables.classes[situation.class]}`),
      tableOf(["Constant", "Meaning", "Value"], Object.entries(constants).map(([name, value]) => [name, record.meanings[name], figure(value)]), [2]));
  };

  const show = () => {
    const key = fields.what.value, kind = kindOf(key), words = tables.kinds[kind];
    const size = Number(fields.size.value), amount = Number(fields.wish.value);
    const valid = [size, amount].every((value) => value > 0 && value <= LARGEST);
    for (const name of ["picture", "all", "steps", "error", "more"]) byId(name).hidden = !valid;
    byId("text").classList.toggle("refused", !valid);
    if (!valid) {
      byId("text").textContent = "Give a size and a wish above 0.";
      return;
    }
    const format = words.formats.find((place) => tables.formats[place].name === fields.format.value) ?? null;
    const job = { key, model: fields.model.value, format, sizes: { [words.size]: size * (words.size_factor ?? 1) } };
    const wish = { kind, amount };
    const advice = compare(job, wish);
    const own = tables.machines.find((machine) => machine.name === fields.machine.value);
    const ownAnswer = own ? answer(job, own) : null;
    const [first, ...others] = own ? sayAnswer(ownAnswer, wish) : sayAdvice(advice);
    byId("text").textContent = first;
    byId("more").textContent = others.join(" ");
    byId("error").textContent = fill(tables.sentences.error, {
      error: `${Math.round(words.error * 100)}%`, sources: words.sources, share: `${Math.round(tables.share * 100)}%`,
    });
    const answers = own ? [ownAnswer] : advice.answers;
    drawPicture(wish, answers, own ? ownAnswer : advice.best);
    showTable(wish, answers);
    showArithmetic(ownAnswer ?? advice.best ?? advice.answers[0]);
  };

  const groups = (entries) => entries.map(([label, options]) => html("optgroup", { label }, ...options));
  fields.what.append(...groups([
    ["A job like", tables.examples.map((example) => option(example.id, example.title))],
    ["Another job", Object.entries(tables.kinds).map(([kind, words]) => option(kind, capitalised(words.title)))],
  ]));
  fields.machine.append(option("", "all in the list"), ...groups(Object.entries(tables.classes).map(([name, label]) => [
    capitalised(label), tables.machines.filter((machine) => machine.class === name).map((machine) => option(machine.name, machine.name)),
  ])));
  const restore = () => { setFields(readState()); show(); };
  form.addEventListener("submit", (event) => event.preventDefault());
  form.addEventListener("input", (event) => {
    const { what, model, size, wish, format, machine } = Object.fromEntries(
      Object.entries(fields).map(([name, field]) => [name, field.value]));
    if (event.target === fields.what) setFields({ what, machine });
    else if (event.target === fields.model) setFields({ what, model, size, wish, format, machine });
    saveState();
    show();
  });
  window.addEventListener("hashchange", () => {
    if (!location.hash.startsWith("#?")) return;
    restore();
    form.scrollIntoView();
  });
  let drawn = window.innerWidth;
  window.addEventListener("resize", () => {
    if (!form.isConnected || window.innerWidth === drawn) return;
    drawn = window.innerWidth;
    show();
  });
  form.hidden = false;
  byId("result").hidden = false;
  restore();
})();
