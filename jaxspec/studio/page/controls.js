// Elements of the page, and controls from what the server says about options.

export function make(tag, props = {}, ...children) {
  const node = document.createElement(tag);
  for (const [key, value] of Object.entries(props)) {
    if (key in node && key !== "list" && key !== "for") node[key] = value;
    else node.setAttribute(key, value);
  }
  node.append(...children);
  return node;
}

// A slider beside the field of a number, from its lowest value to its highest one, or to four times the usual one.
function slider(option, input, words) {
  if (option.choices || !["int", "float"].includes(option.type)) return [];
  const low = option.ge ?? option.gt ?? 0, end = option.le ?? option.lt, usual = Number(option.default);
  const isNear = end !== null && end <= (usual > 0 ? 20 * usual : 1000);
  const high = isNear ? end : option.default === null ? low + (option.type === "int" ? 32 : 1) : 4 * usual;
  if (!(high > low) || !Number.isFinite(high)) return [];
  const step = option.type === "int" ? 1 : 10 ** Math.floor(Math.log10((high - low) / 50));
  const range = make("input", { type: "range", "aria-label": `${words}, slider` });
  Object.assign(range, { min: option.gt === null ? low : low + step, max: option.lt === high ? high - step : high, step });
  range.value = option.default ?? low;
  range.addEventListener("input", () => (input.value = range.value));
  input.addEventListener("input", () => input.value.trim() !== "" && (range.value = input.value));
  return [range];
}

// A control for every declared option; `read` gives those that are not what the networks have.
export function controls(place, options, prefix) {
  const readers = {};
  place.replaceChildren();
  for (const [name, option] of Object.entries(options)) {
    const id = `${prefix}-${name}`, words = name.replaceAll("_", " "), hint = option.range ? `${option.help} (${option.range})` : option.help;
    let input;
    if (option.type === "bool") input = make("input", { type: "checkbox", id, checked: option.default });
    else if (option.choices) {
      input = make("select", { id }, ...option.choices.map((value) => make("option", { value }, value)));
      if (option.optional) input.prepend(make("option", { value: "" }, "by itself"));
      input.value = option.default ?? "";
    } else {
      const isNumber = option.type !== "str" && !option.infinite;
      input = make("input", { id, type: isNumber ? "number" : "text", value: option.default ?? "", autocomplete: "off" });
      if (isNumber) input.step = option.type === "int" ? "1" : "any";
      if (isNumber && (option.ge ?? option.gt) !== null) input.min = option.ge ?? option.gt;
      if (isNumber && (option.le ?? option.lt) !== null) input.max = option.le ?? option.lt;
      if (option.optional) input.placeholder = "by itself";
    }
    input.setAttribute("aria-describedby", `${id}-hint`);
    input.name = name;
    const label = make("label", { htmlFor: id }), text = make("p", { className: "hint", id: `${id}-hint` }, hint);
    const field = make("div", { className: "field" });
    if (option.type === "bool") field.classList.add("check"), label.append(input, words), field.append(label, text);
    else label.append(words), field.append(label, input, ...slider(option, input, words), text);
    place.append(field);
    readers[name] = () => {
      if (option.type === "bool") return input.checked;
      const raw = input.value.trim();
      if (raw !== "" && (option.choices || option.type === "str")) return raw;
      if (raw === "") return input.validity && input.validity.badInput ? "?" : null;
      return raw === "inf" || Number.isNaN(Number(raw)) ? raw : Number(raw);
    };
  }
  return () => {
    const found = {};
    for (const [name, read] of Object.entries(readers)) {
      const value = read(), usual = options[name].default;
      if (value === null && usual !== null && !options[name].optional) throw new Error(`Must have a value as ${name.replaceAll("_", " ")}`);
      if (value !== usual && value !== null) found[name] = value;
    }
    return found;
  };
}
